package event

import (
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares got with testdata/name, or rewrites it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s differs; go test ./event -update rewrites it\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}

// newRandom gives a random source whose seed is printed when the test fails.
func newRandom(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

func mustType(text string) (t Type, nullable bool) {
	t, nullable, err := ParseType(text)
	if err != nil {
		panic(err)
	}
	return t, nullable
}

func column(name, text string) Column {
	t, nullable := mustType(text)
	return Column{Name: name, Type: t, Nullable: nullable}
}

// oneColumn is a broadcast table whose column v has the type.
func oneColumn(text string) *Table {
	return &Table{Name: "one", Columns: []Column{column("id", "int64"), column("v", text)},
		Tenant: None, ID: 0, Month: None, Spread: None, Version: None}
}

// flights is the table of the surface documents: eight columns, each kind of role but version.
func flights() *Table {
	return &Table{Name: "flights", Columns: []Column{
		column("carrier", "string(2)"), column("flight_id", "uint64"), column("sched_dep", "datetime"), column("origin", "string(3)"),
		column("status", "string(10)"), column("cancelled", "bool"), column("arr_delay", "int32?"), column("fare", "decimal(12,2)"),
	}, Tenant: 0, ID: 1, Month: 2, Spread: 1, Version: None, Indexes: [][]string{{"carrier", "origin", "sched_dep"}}}
}

const flightBody = `{"carrier":"UA","flight_id":9041113,"sched_dep":"2026-11-30T23:59:59.123456Z","origin":"EWR",` +
	`"status":"departed","cancelled":false,"arr_delay":-7,"fare":"219.90"}`

// allKinds has a column of each kind and a version of the service's own.
func allKinds() *Table {
	return &Table{Name: "everything", Columns: []Column{
		column("tenant", "int64"), column("id", "string(40)"), column("rev", "uint64"), column("at", "date"), column("zone", "int32"),
		column("b", "bool?"), column("i", "int32?"), column("l", "int64?"), column("u", "uint64?"), column("f", "float64?"),
		column("d", "decimal(20,4)?"), column("s", "string(20)?"), column("t", "text?"), column("x", "bytes(16)?"),
		column("day", "date?"), column("ts", "datetime?"), column("j", "json?"),
	}, Tenant: 0, ID: 1, Month: 3, Spread: 4, Version: 2}
}

const everythingBody = `{"tenant":-5,"id":"a/b\u0000c é","rev":4611686018427387903,"at":"2024-02-29","zone":7,` +
	`"b":true,"i":-2147483648,"l":9223372036854775807,"u":18446744073709551615,"f":1e-7,` +
	`"d":"-0.5000","s":"tab\tquote\"","t":"雪","x":"AAECAw==","day":"0001-01-01","ts":"9999-12-31T23:59:59.999999Z","j":{"a":[1,null,"x"]}}`
