package clickhouse

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/partitioner"
)

var update = flag.Bool("update", false, "rewrite testdata and docs/clickhouse-errors.md")

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (-update rewrites it); got\n%s", path, got)
	}
}

const testFile = `line: flights
kafka: { brokers: [127.0.0.1:9092], partitions: 4 }
outbox: { dsn: "mysql://app@127.0.0.1:1/flights" }
shards: { s1: { dsn: "mysql://app@127.0.0.1:1/s1", slots: 0-1023 } }
sinks: { clickhouse: { dsn: "clickhouse://slotline@ch1,ch2:9001/flights", groups: 2 } }
tables:
  flights:
    tenant: carrier
    id: flight_id
    month: sched_dep
    columns: { carrier: string(2), flight_id: uint64, sched_dep: datetime, origin: string(3), cancelled: bool, arr_delay: "int32?", fare: "decimal(12,2)?" }
  days: { tenant: carrier, id: day_id, month: day, columns: { carrier: string(2), day_id: int32, day: date } }
  scans:
    tenant: customer
    id: scan_id
    month: { snowflake: scan_id, epoch: 2020-01-01T00:00:00Z }
    columns: { customer: string(64), scan_id: int64, raw: bytes(100), more: "json?", note: text, weight: float64 }
  passengers: { tenant: carrier, id: passenger_id, columns: { carrier: string(2), passenger_id: uint64, name: string(100) } }
  airports: { id: code, columns: { code: string(3), name: "string(80)?" } }
`

func testConfig(t testing.TB, file string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("slotline.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func testLayout(t testing.TB, cfg *config.Config) *partitioner.Layout {
	t.Helper()
	spec, err := cfg.Layout.WithPartitions(cfg.Kafka.Partitions)
	if err != nil {
		t.Fatal(err)
	}
	l, err := partitioner.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// testSink is a sink that reaches no server.
func testSink(t testing.TB) *Sink {
	t.Helper()
	cfg := testConfig(t, testFile)
	s, err := New(Options{Config: cfg, Layout: testLayout(t, cfg)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The statements, as whoever runs the server reviews them.
func TestSQLIsGolden(t *testing.T) {
	s := testSink(t)
	var b strings.Builder
	for _, table := range s.tables {
		b.WriteString(strings.Join(tableDDL(table.Table, "flights", cluster{}), "") + ";\n\n" + viewDDL(table.Table, cluster{}) + ";\n\n" + table.insert + ";\n\n")
	}
	b.WriteString(strings.Join(s.Grants(), "\n") + "\n")
	golden(t, "testdata/statements.sql", b.String())
}

// asFound is the table as the server tells of it when it was made by tableDDL.
func asFound(t *event.Table) *physical {
	p := &physical{name: t.Name, engine: "ReplacingMergeTree", comment: "slotline table format 1, line flights",
		engineFull:   "ReplacingMergeTree(_ver) PARTITION BY … ORDER BY … SETTINGS non_replicated_deduplication_window = 1000, index_granularity = 8192",
		partitionKey: strings.ReplaceAll(partitionKey(t), "`", ""), sortingKey: strings.Join(sortingKey(t), ", ")}
	for _, c := range t.Columns {
		p.columns = append(p.columns, physicalColumn{c.Name, columnType(c)})
	}
	p.columns = append(p.columns, physicalColumn{verColumn, verType}, physicalColumn{deletedColumn, deletedType})
	return p
}

func TestCompareTable(t *testing.T) {
	s := testSink(t)
	for _, table := range s.tables {
		if list := compareTable(table.Table, asFound(table.Table), "flights"); len(list) > 0 {
			t.Errorf("%s as made differs: %+v", table.Name, list)
		}
	}
	flights := s.tables[0].Table
	for _, c := range []struct {
		name   string
		change func(p *physical)
		kind   foundKind
		what   string // in the finding
	}{
		{"engine", func(p *physical) { p.engine = "MergeTree" }, foundDiffers, "MergeTree"},
		{"without version", func(p *physical) {
			p.engineFull = "ReplacingMergeTree ORDER BY carrier SETTINGS non_replicated_deduplication_window = 5"
		}, foundDiffers, "_ver"},
		{"engine-level is_deleted", func(p *physical) {
			p.engineFull = strings.Replace(p.engineFull, "(_ver)", "(_ver, _deleted)", 1)
		}, foundDiffers, "_deleted"},
		{"sorting key", func(p *physical) { p.sortingKey = "flight_id, carrier" }, foundDiffers, "ORDER BY"},
		{"longer sorting key", func(p *physical) { p.sortingKey = "carrier, flight_id, origin" }, foundDiffers, "ORDER BY"},
		{"partition key", func(p *physical) { p.partitionKey = "toYYYYMMDD(sched_dep)" }, foundDiffers, "PARTITION BY"},
		{"no partition key", func(p *physical) { p.partitionKey = "" }, foundDiffers, "nothing"},
		{"format", func(p *physical) { p.comment = "slotline table format 2, line flights" }, foundDiffers, "format 2"},
		{"another line", func(p *physical) { p.comment = "slotline table format 1, line other" }, foundDiffers, "line other's"},
		{"type", func(p *physical) { p.columns[5].typ = "Nullable(Int64)" }, foundDiffers, "Int64"},
		{"nullable", func(p *physical) { p.columns[5].typ = "Int32" }, foundDiffers, "int32?"},
		{"scale", func(p *physical) { p.columns[6].typ = "Nullable(Decimal(12, 3))" }, foundDiffers, "decimal(12,2)?"},
		{"zone", func(p *physical) { p.columns[2].typ = "DateTime64(6, 'Europe/Berlin')" }, foundDiffers, "Berlin"},
		{"version's type", func(p *physical) { p.columns[7].typ = "Int64" }, foundDiffers, "UInt64"},
		{"missing", func(p *physical) { p.columns = append(p.columns[:3:3], p.columns[4:]...) }, foundMissing, "not there"},
		{"more", func(p *physical) { p.columns = append(p.columns, physicalColumn{"extra", "String"}) }, foundUnexpected, "not in the file"},
		{"no window", func(p *physical) {
			p.engineFull = "ReplacingMergeTree(_ver) ORDER BY carrier SETTINGS index_granularity = 8192"
		}, foundSetting, "tokens"},
	} {
		p := asFound(flights)
		c.change(p)
		list := compareTable(flights, p, "flights")
		if len(list) != 1 || list[0].kind != c.kind || !strings.Contains(list[0].what, c.what) {
			t.Errorf("%s: %+v", c.name, list)
		}
	}
	p := asFound(flights)
	p.columns = p.columns[1:]
	if list := compareTable(flights, p, "flights"); len(list) != 1 || list[0].alter != "ADD COLUMN IF NOT EXISTS `carrier` String FIRST" {
		t.Errorf("the first column is added by %+v", list)
	}
	p = asFound(flights)
	p.columns = append(p.columns[:3:3], p.columns[4:]...)
	if list := compareTable(flights, p, "flights"); list[0].alter != "ADD COLUMN IF NOT EXISTS `origin` String AFTER `sched_dep`" {
		t.Errorf("a column is added by %+v", list)
	}
	p = asFound(flights)
	p.engine, p.engineFull = "ReplicatedReplacingMergeTree", "ReplicatedReplacingMergeTree('/t/{shard}', '{replica}', _ver) ORDER BY x"
	if list := compareTable(flights, p, "flights"); len(list) != 0 {
		t.Errorf("a replicated table differs: %+v", list)
	}
}

func TestViewDiffers(t *testing.T) {
	flights := testSink(t).tables[0].Table
	view := func() *physical {
		p := &physical{engine: "View", create: "CREATE VIEW db.flights_now (`carrier` String) AS SELECT carrier, _ver FROM db.flights FINAL WHERE _deleted = 0"}
		for _, c := range viewColumns(flights) {
			p.columns = append(p.columns, physicalColumn{name: c})
		}
		return p
	}
	if viewDiffers(flights, view()) {
		t.Error("the view as made differs")
	}
	for name, change := range map[string]func(p *physical){
		"a column fewer": func(p *physical) { p.columns = p.columns[1:] },
		"without FINAL":  func(p *physical) { p.create = strings.Replace(p.create, " FINAL", "", 1) },
		"with deleted":   func(p *physical) { p.create, _, _ = strings.Cut(p.create, " WHERE") },
		"a table":        func(p *physical) { p.engine = "MergeTree" },
	} {
		p := view()
		change(p)
		if !viewDiffers(flights, p) {
			t.Errorf("%s: not seen", name)
		}
	}
}
