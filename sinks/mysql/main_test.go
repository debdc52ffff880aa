package mysql

import (
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/partitioner"
)

var update = flag.Bool("update", false, "rewrite golden files")

// golden compares with testdata/name.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update rewrites it); got\n%s", path, got)
	}
}

// seeded returns a random source whose seed is in the log.
func seeded(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// testFile has a table with a column of each type, nullable and not, one with an integer tenant, and a broadcast table.
const testFile = `
line: test
kafka: { brokers: [127.0.0.1:9092], partitions: 4 }
outbox: { dsn: "mysql://u@127.0.0.1:1/outbox" }
shards:
  s1: { dsn: "mysql://u@127.0.0.1:1/s1", slots: 0-511 }
  s2: { dsn: "mysql://u@127.0.0.1:1/s2", slots: 512-1023 }
tables:
  everything:
    tenant: owner
    id: id
    month: at
    columns:
      owner: string(64)
      id: uint64
      at: datetime
      a_bool: bool
      a_int32: int32
      a_int64: int64
      a_uint64: uint64
      a_float64: float64
      a_decimal: decimal(12,2)
      a_string: string(10)
      a_text: text
      a_bytes: bytes(16)
      a_date: date
      a_datetime: datetime
      a_json: json
      n_int32: int32?
      n_string: string(10)?
      n_json: json?
    indexes: [[owner, a_string], [owner, a_datetime, a_int64, a_int32, a_decimal, a_float64, a_bool]]
  customers: { tenant: owner, id: id, columns: { owner: int64, id: string(40), name: string(100) } }
  places: { id: code, columns: { code: string(8), name: string(80) } }
`

func testSink(t testing.TB) *Sink {
	t.Helper()
	cfg, err := config.Parse("slotline.yaml", []byte(testFile))
	if err != nil {
		t.Fatal(err)
	}
	spec, err := cfg.Layout.WithPartitions(cfg.Kafka.Partitions)
	if err != nil {
		t.Fatal(err)
	}
	layout, err := partitioner.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{Config: cfg, Layout: layout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func testTable(t testing.TB, name string) *event.Table {
	s := testSink(t)
	return s.tables[s.tableIndex[name]].Table
}
