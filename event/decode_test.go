package event

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/slotline/slotline/fault"
)

// decodeReason decodes and returns the reason, "" when the body was accepted.
func decodeReason(t *testing.T, table *Table, body string, op Op) string {
	t.Helper()
	var row Row
	err := table.DecodeRow([]byte(body), op, &row)
	if err == nil {
		return ""
	}
	var e *DataError
	if !errors.As(err, &e) || fault.ClassOf(err) != fault.Data || fault.CodeOf(err) != codeRow || e.Table != table.Name {
		t.Fatalf("%s: error %#v is not a data error of the row image", body, err)
	}
	return e.Reason
}

func sameRow(a, b *Row) bool {
	return a.Op == b.Op && a.Month == b.Month && bytes.Equal(a.Tenant, b.Tenant) && bytes.Equal(a.ID, b.ID) &&
		bytes.Equal(a.Spread, b.Spread) && slices.EqualFunc(a.Values, b.Values, sameValue)
}

func sameValue(a, b Value) bool {
	return a.Null == b.Null && a.Int == b.Int && a.Uint == b.Uint && a.Float == b.Float && bytes.Equal(a.Bytes, b.Bytes)
}

func bodies() []struct {
	table *Table
	body  string
	op    Op
} {
	return []struct {
		table *Table
		body  string
		op    Op
	}{
		{flights(), flightBody, Upsert},
		{flights(), `{"carrier":"UA","flight_id":9041113,"sched_dep":"2026-11-30T23:59:59.123456Z"}`, Delete},
		{allKinds(), everythingBody, Upsert},
		{allKinds(), `{"tenant":-5,"id":"a","at":"2024-02-29","zone":7}`, Delete},
		{oneColumn("json"), `{"id":1,"v":{"a":[1,2.5e3,-0,"x\u00e9\ud83d\ude00",{"b":{}}],"c":[],"d":true,"e":false,"f":null}}`, Upsert},
		{oneColumn("json"), ` { "id" : 1 , "v" : [ 1 , { "a b" : " c " } ] } `, Upsert},
		{oneColumn("decimal(6,3)?"), `{"id":1,"v":"-0.0"}`, Upsert},
		{oneColumn("float64"), `{"id":1,"v":-1.5E+300}`, Upsert},
	}
}

// A body that is valid decodes as by the slow twin, with what it says written back byte for byte where it was
// canonical.
func TestDecodeRowAgreesWithSlowTwin(t *testing.T) {
	random := newRandom(t)
	surrogate := regexp.MustCompile(`(?i)\\ud`)
	refused, accepted := 0, 0
	for _, b := range bodies() {
		var row Row
		if err := b.table.DecodeRow([]byte(b.body), b.op, &row); err != nil {
			t.Fatalf("%s: %v", b.body, err)
		}
		want, ok := slowDecode(b.table, []byte(b.body), b.op)
		if !ok || !sameRow(&row, want) {
			t.Fatalf("%s reads as %+v, wanted %+v, %v", b.body, row, want, ok)
		}
		for range 20_000 {
			body := mutate(random, []byte(b.body))
			if surrogate.Match(body) {
				continue // encoding/json puts U+FFFD for half a pair; TestP12_Text has them
			}
			err := b.table.DecodeRow(body, b.op, &row)
			want, ok := slowDecode(b.table, body, b.op)
			if ok != (err == nil) {
				t.Fatalf("%q: %v; the twin accepts: %v", body, err, ok)
			}
			if !ok {
				refused++
				continue
			}
			accepted++
			if !sameRow(&row, want) {
				t.Fatalf("%q reads as %+v, wanted %+v", body, row, want)
			}
		}
	}
	if refused < 10_000 || accepted < 2_000 {
		t.Fatalf("%d refused, %d accepted: the test tests little", refused, accepted)
	}
}

// mutate changes a body a little: bytes, pieces of it, or pieces that tend to be wrong.
func mutate(random *rand.Rand, body []byte) []byte {
	pieces := []string{" ", ",", "0", "-", "1e5", ".0", "null", "true", `"`, `\`, `\n`, `A`, "\xff", "é", "9999999999", "{", "}", "[", "]", ":",
		`"id":`, `"x":1,`, "雪", "\x00", `""`, "-0", "T", "Z", "="}
	const alphabet = "0123456789 \"\\{}[],:.-+eEnulltrfas/"
	body = bytes.Clone(body)
	for range 1 + random.IntN(2) {
		at := random.IntN(len(body) + 1)
		switch random.IntN(5) {
		case 0:
			body = slices.Insert(body, at, []byte(pieces[random.IntN(len(pieces))])...)
		case 1:
			to := min(len(body), at+1+random.IntN(4))
			body = slices.Delete(body, at, to)
		case 2:
			if at < len(body) {
				body[at] = alphabet[random.IntN(len(alphabet))]
			}
		case 3:
			if at < len(body) && body[at] >= '0' && body[at] <= '9' {
				body[at] = byte('0' + random.IntN(10))
			}
		case 4:
			to := min(len(body), at+1+random.IntN(12))
			body = slices.Insert(body, random.IntN(len(body)+1), bytes.Clone(body[at:to])...)
		}
		if len(body) == 0 {
			body = []byte("{}")
		}
	}
	return body
}

func TestEveryTruncatedRowIsRefused(t *testing.T) {
	for _, b := range bodies() {
		body := strings.TrimSpace(b.body)
		for n := range len(body) {
			if decodeReason(t, b.table, body[:n], b.op) == "" {
				t.Errorf("%q was accepted", body[:n])
			}
		}
	}
}

func TestRowFieldsComeInAnyOrder(t *testing.T) {
	fields := strings.Split(strings.Trim(flightBody, "{}"), ",")
	table := flights()
	var want, got Row
	if err := table.DecodeRow([]byte(flightBody), Upsert, &want); err != nil {
		t.Fatal(err)
	}
	random := newRandom(t)
	for range 100 {
		random.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
		body := "{" + strings.Join(fields, ", ") + "}"
		if err := table.DecodeRow([]byte(body), Upsert, &got); err != nil || !sameRow(&got, &want) {
			t.Fatalf("%s: %v", body, err)
		}
	}
}

// Names with escapes are the same names.
func TestRowFieldNamesMayHoldEscapes(t *testing.T) {
	if r := decodeReason(t, oneColumn("bool"), `{"\u0069d":1,"\u0076":true}`, Upsert); r != "" {
		t.Error(r)
	}
	if r := decodeReason(t, oneColumn("bool"), `{"id":1,"v":true,"\u0076":true}`, Upsert); r != ReasonDuplicate {
		t.Error(r)
	}
}

// Tables wider than a machine word: each field missing is noticed.
func TestRowOfManyColumns(t *testing.T) {
	for _, columns := range []int{1, 63, 64, 65, 128, 129, 200} {
		table := &Table{Name: "wide", Tenant: None, ID: 0, Month: None, Spread: None, Version: None}
		var fields []string
		for i := range columns {
			table.Columns = append(table.Columns, column(fmt.Sprintf("c%d", i), "int32"))
			fields = append(fields, fmt.Sprintf(`"c%d":%d`, i, i))
		}
		var row Row
		if err := table.DecodeRow([]byte("{"+strings.Join(fields, ",")+"}"), Upsert, &row); err != nil {
			t.Fatal(err)
		}
		for i := range columns {
			if row.Values[i].Int != int64(i) {
				t.Fatalf("column %d is %d", i, row.Values[i].Int)
			}
			body := "{" + strings.Join(slices.Concat(fields[:i], fields[i+1:]), ",") + "}"
			if r := decodeReason(t, table, body, Upsert); r != ReasonMissing {
				t.Fatalf("%d of %d left out: %q", i, columns, r)
			}
			table.Columns[i].Nullable = true
			if err := table.DecodeRow([]byte(body), Upsert, &row); i > 0 && (err != nil || !row.Values[i].Null) {
				t.Fatalf("%d of %d left out and nullable: %v", i, columns, err)
			}
			table.Columns[i].Nullable = false
		}
	}
}

// A row is reused: nothing of the row before shines through, and values survive growth of the row's memory.
func TestRowIsReused(t *testing.T) {
	table := allKinds()
	var row Row
	if err := table.DecodeRow([]byte(everythingBody), Upsert, &row); err != nil {
		t.Fatal(err)
	}
	if err := table.DecodeRow([]byte(`{"tenant":1,"id":"b","at":"2020-01-31","zone":0}`), Delete, &row); err != nil {
		t.Fatal(err)
	}
	if string(row.Tenant) != "1" || string(row.ID) != "b" || string(row.Spread) != "0" || row.Month != 202001 || row.Op != Delete {
		t.Errorf("%+v", row)
	}
	for col, v := range row.Values {
		if !table.Keeps(col) && !sameValue(v, Value{Null: true}) {
			t.Errorf("column %d of a delete is %+v", col, v)
		}
	}
	long := strings.Repeat(`\n`, 5000)
	body := strings.Replace(strings.Replace(everythingBody, "雪", long, 1), `tab\tquote\"`, `a\tb`, 1)
	var fresh Row
	if err := table.DecodeRow([]byte(body), Upsert, &fresh); err != nil {
		t.Fatal(err)
	}
	if got := string(fresh.Values[11].Bytes) + string(fresh.ID); got != "a\tb"+"a/b\x00c é" {
		t.Errorf("values changed when the row's memory grew: %q", got)
	}
}

func TestDecodeViewComparesBodyAndKey(t *testing.T) {
	table := allKinds()
	good := View{Table: []byte("everything"), Tenant: []byte("-5"), EntityID: []byte("a/b\x00c é"), Op: Upsert, Version: 4611686018427387903,
		Body: []byte(everythingBody)}
	var row Row
	if err := table.DecodeView(&good, &row); err != nil || row.Version != good.Version {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*View){
		"tenant":   func(v *View) { v.Tenant = []byte("-6") },
		"id":       func(v *View) { v.EntityID = []byte("a") },
		"id's end": func(v *View) { v.EntityID = []byte("a/b\x00c è") },
		"version":  func(v *View) { v.Version-- },
	} {
		v := good
		change(&v)
		var e *DataError
		if err := table.DecodeView(&v, &row); !errors.As(err, &e) || e.Reason != ReasonMismatch {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDecodeRowAllocatesNothingOnceWarm(t *testing.T) {
	for _, b := range bodies() {
		var row Row
		body := []byte(b.body)
		allocs := testing.AllocsPerRun(100, func() {
			if err := b.table.DecodeRow(body, b.op, &row); err != nil {
				t.Fatal(err)
			}
		})
		if allocs != 0 {
			t.Errorf("%s: %v allocations", b.body, allocs)
		}
	}
}

// An error quotes no more than a bounded part of what it found.
func TestRowErrorsAreBounded(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, body := range []string{`{"id":1,"v":"` + long + `"}`, `{"` + long + `":1}`, `{"id":` + strings.Repeat("9", 1<<20) + `}`, long} {
		var row Row
		err := oneColumn("string(5)").DecodeRow([]byte(body), Upsert, &row)
		if err == nil || len(err.Error()) > 400 {
			t.Errorf("%d bytes of error", len(err.Error()))
		}
	}
}

func FuzzDecodeRow(f *testing.F) {
	for _, b := range bodies() {
		f.Add([]byte(b.body), b.op == Delete)
	}
	tables := []*Table{flights(), allKinds(), oneColumn("json"), oneColumn("string(5)?")}
	f.Fuzz(func(t *testing.T, body []byte, isDelete bool) {
		op := Upsert
		if isDelete {
			op = Delete
		}
		for _, table := range tables {
			var row, again Row
			if table.DecodeRow(body, op, &row) != nil {
				continue
			}
			image, err := table.AppendRow(nil, row.Values, op)
			if err != nil {
				t.Fatalf("%q was read, and is refused on writing: %v", body, err)
			}
			if err := table.DecodeRow(image, op, &again); err != nil || !sameRow(&row, &again) {
				t.Fatalf("%q became %q: %v", body, image, err)
			}
			second, err := table.AppendRow(nil, again.Values, op)
			if err != nil || !bytes.Equal(image, second) {
				t.Fatalf("%q became %q, then %q", body, image, second)
			}
		}
	})
}
