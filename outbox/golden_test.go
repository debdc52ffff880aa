package outbox

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
)

var update = flag.Bool("update", false, "rewrite golden files")

// golden compares text with a file in testdata; -update rewrites it.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != text {
		t.Errorf("%s differs; -update rewrites it. Now:\n%s", path, text)
	}
}

func testConfig(t *testing.T) *config.Config {
	t.Helper()
	cfg, err := config.Parse("slotline.yaml", []byte(`
line: flights
kafka: { brokers: [127.0.0.1:9092], partitions: 8 }
outbox: { dsn: "mysql://app:secret@127.0.0.1/flights", lanes: 2 }
shards: { s1: { dsn: "mysql://slotline:secret@127.0.0.1/flights_s1", slots: 0-1023 } }
tables:
  flights:
    { tenant: carrier, id: flight_id, month: sched_dep, columns: { carrier: string(2), flight_id: uint64, sched_dep: datetime } }
  orders:
    { tenant: owner, id: n, version: v, columns: { owner: string(20), n: int64, v: int64 } }
  airports: { id: code, columns: { code: string(3), name: string(80) } }
`))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestGoldenDDL(t *testing.T) {
	golden(t, "ddl.sql", strings.Join(DDL(testConfig(t)), ";\n\n")+";\n")
}

// goldenEvents are the public examples of the row format.
func goldenEvents() []event.Event {
	at := time.Date(2026, 11, 30, 9, 14, 2, 123456789, time.UTC)
	return []event.Event{
		{ID: eventID(1), Table: "flights", Tenant: "UA", EntityID: "1545", Op: event.Upsert, Month: 202611, Time: at,
			TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
			Body:        []byte(`{"carrier":"UA","flight_id":1545,"sched_dep":"2026-11-30T10:15:00.000000Z"}`)},
		{ID: eventID(2), Table: "flights", Tenant: "UA", EntityID: "1546", Op: event.Delete, Month: 202612, Time: at.Add(time.Second), Spread: "1546",
			Body: []byte(`{"carrier":"UA","flight_id":1546,"sched_dep":"2026-12-01T00:00:00.000000Z"}`)},
		{ID: eventID(3), Table: "orders", Tenant: "ann's \\ naïve\n", EntityID: "-7", Op: event.Upsert, Version: 42, Time: at,
			Body: []byte(`{"owner":"ann's \\ naïve\n","n":-7,"v":42}`)},
		{ID: eventID(4), Table: "airports", EntityID: "JFK", Op: event.Upsert, Time: at, Body: []byte(`{"code":"JFK","name":"Kennedy"}`)},
	}
}

func TestGoldenInsert(t *testing.T) {
	var b strings.Builder
	for _, in := range Inserts(goldenEvents(), 2) {
		b.WriteString(in.SQL + ";\n")
	}
	golden(t, "insert.sql", b.String())
}

func TestGoldenSQL(t *testing.T) {
	var b strings.Builder
	for _, s := range []string{
		readSQL(3, 1000, 0, nil, 5000),
		readSQL(3, 1000, 90000, nil, 5000),
		lastIDSQL(3), lastIDsSQL([]int{0, 2}),
		readSQL(3, 1000, 0, []idRange{{7, 7}, {12, 15}, {20, 20}, {30, 40}}, 5000),
		readSQL(3, 1000, 0, []idRange{{12, 15}}, 16),
		readIDsSQL(0, []idRange{{7, 7}, {9, 9}}, 2),
		findIDsSQL(0, []idRange{{7, 9}, {11, 11}}, 50000),
		lookBackSQL(0, 7, 9, false), lookBackSQL(0, 0, 9, true), nextIDSQL,
		saveLaneSQL, beginGenerationSQL, goBackSQL, clearGapsSQL, saveGapSQL, deleteGapSQL, haltLaneSQL, startLaneSQL, loadLaneSQL, loadGapSQL,
		beatSQL, peersSQL, leaveSQL, buryPeerSQL,
		deadSQL(1), lostSQL(1), backlogSQL([]int{0, 1}), splitSQL(0, partitionsUpTo(5_000_001, 1_000_000, 2)),
	} {
		b.WriteString(s + ";\n")
	}
	for _, statement := range []string{listDeadSQL, settleDeadSQL, deadRowSQL(DeadKey{Lane: 1, Generation: 2, ID: 7}), addSettledSQL(), findSQL(1)} {
		b.WriteString(statement + ";\n")
	}
	golden(t, "statements.sql", b.String())
}

func TestInsertsAreCutByRowsAndBytes(t *testing.T) {
	var events []event.Event
	for i := range 2500 {
		events = append(events, event.Event{ID: eventID(i), Tenant: "a", EntityID: "1", Op: event.Upsert})
	}
	rows := 0
	for _, in := range Inserts(events, 4) {
		rows += in.Rows
		if in.Rows > insertRowsMax {
			t.Errorf("%d rows in one INSERT", in.Rows)
		}
	}
	if rows != 2500 {
		t.Errorf("%d rows of 2500", rows)
	}
	big := make([]event.Event, 7)
	for i := range big {
		big[i] = event.Event{Tenant: "a", EntityID: "1", Body: make([]byte, 1500<<10)}
	}
	inserts := Inserts(big, 1)
	for _, in := range inserts {
		if len(in.SQL) > insertBytesMax {
			t.Errorf("an INSERT of %d bytes", len(in.SQL))
		}
	}
	if len(inserts) != 4 {
		t.Errorf("%d INSERTs, wanted 4 of two rows at most", len(inserts))
	}
}
