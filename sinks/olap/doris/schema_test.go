package doris

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/olap/doris/doristest"
)

var update = flag.Bool("update", false, "rewrite testdata and docs/doris-errors.md")

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
sinks: { doris: { fe: %s, query_port: %d, database: flights, user: slotline, password: "${file:%s}", groups: 2 } }
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
  passengers: { tenant: carrier, id: passenger_id, columns: { note: "string(20)?", carrier: string(2), passenger_id: uint64, name: string(100) } }
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

// sinkAt is a sink of frontends, without a state database.
func sinkAt(t testing.TB, queryPort int, frontends ...string) *Sink {
	t.Helper()
	secret := t.TempDir() + "/password"
	if err := os.WriteFile(secret, []byte(doristest.Password), 0o600); err != nil {
		t.Fatal(err)
	}
	var fe []string
	for _, f := range frontends {
		fe = append(fe, fmt.Sprintf("%q", "http://"+f))
	}
	cfg := testConfig(t, fmt.Sprintf(testFile, "["+strings.Join(fe, ", ")+"]", queryPort, secret))
	s, err := New(Options{Config: cfg, Layout: testLayout(t, cfg)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// testSink is a sink that reaches no server.
func testSink(t testing.TB) *Sink { return sinkAt(t, 9030, "fe1:8030", "fe2:8031") }

// served is a sink with its tables on a server of its own.
func served(t testing.TB) (*Sink, *doristest.Server) {
	t.Helper()
	server := doristest.New(t)
	server.NewDatabase("flights")
	s := sinkAt(t, server.QueryPort(), server.FE())
	for _, table := range s.tables {
		for _, statement := range []string{tableDDL(table.Table, "flights", 1), viewDDL(table.Table, "CREATE")} {
			if err := s.exec(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
	}
	return s, server
}

// What a DBA reviews, and the headers of loads.
func TestStatements(t *testing.T) {
	s := testSink(t)
	var b strings.Builder
	for _, table := range s.tables {
		b.WriteString(tableDDL(table.Table, "flights", 3) + ";\n\n" + viewDDL(table.Table, "CREATE") + ";\n\n" + viewDDL(table.Table, "ALTER") + ";\n\n")
		for _, c := range physicalColumns(table.Table) {
			if !c.key && c.source.Name != "" {
				b.WriteString(addColumnDDL(table.Table, c) + ";\n")
			}
		}
		b.WriteString("\n-- columns: " + table.columns + "\n\n")
	}
	b.WriteString(strings.Join(s.Grants(), "\n") + "\n")
	golden(t, "testdata/statements.sql", b.String())
}

// What another hand, or another release, may have made of a table.
func TestCompareTable(t *testing.T) {
	s := testSink(t)
	flights := s.tables[0].Table
	good := func() *physical {
		p := &physical{name: "flights", comment: "slotline table format 1, line flights", create: tableDDL(flights, "flights", 1)}
		p.columns = append(p.columns, physicalColumns(flights)...)
		return p
	}
	if list := compareTable(flights, good(), "flights"); len(list) > 0 {
		t.Fatalf("a table as apply makes it: %+v", list)
	}
	replace := func(old, new string) func(*physical) {
		return func(p *physical) {
			if !strings.Contains(p.create, old) {
				t.Fatalf("%s is not in %s", old, p.create)
			}
			p.create = strings.Replace(p.create, old, new, 1)
		}
	}
	column := func(name string, change func(*physicalColumn)) func(*physical) {
		return func(p *physical) {
			for i := range p.columns {
				if p.columns[i].name == name {
					change(&p.columns[i])
				}
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*physical)
		kind   foundKind
		says   string
	}{
		"a view":                {func(p *physical) { p.view = true }, foundDiffers, "is a view"},
		"another line's":        {func(p *physical) { p.comment = "slotline table format 1, line other" }, foundDiffers, "line other's"},
		"a later format":        {func(p *physical) { p.comment = "slotline table format 2, line flights" }, foundDiffers, "format 2"},
		"a duplicate key":       {replace("UNIQUE KEY", "DUPLICATE KEY"), foundDiffers, "no UNIQUE KEY"},
		"another key":           {replace("UNIQUE KEY(`carrier`,`flight_id`,`_month`)", "UNIQUE KEY(`carrier`, `_month`)"), foundDiffers, "UNIQUE KEY(carrier,_month)"},
		"merge on read":         {replace(`"enable_unique_key_merge_on_write" = "true"`, `"enable_unique_key_merge_on_write" = "false"`), foundDiffers, "merge-on-write"},
		"no sequence":           {replace(`"function_column.sequence_col" = "_ver"`, `"x" = "y"`), foundDiffers, "sequence"},
		"partitioned by day":    {replace("'month'", "'day'"), foundDiffers, "by month"},
		"narrower":              {column("origin", func(c *physicalColumn) { c.typ = "varchar(3)" }), foundDiffers, "is varchar(3) NOT NULL, file says string(3) (varchar(12) NOT NULL)"},
		"nullable":              {column("origin", func(c *physicalColumn) { c.nullable = true }), foundDiffers, "NULL"},
		"another _ver":          {column("_ver", func(c *physicalColumn) { c.typ = "int" }), foundDiffers, "it must be bigint"},
		"no _deleted":           {func(p *physical) { p.columns = p.columns[:len(p.columns)-1] }, foundDiffers, "not made by slotline"},
		"a column less":         {column("fare", func(c *physicalColumn) { c.name = "other" }), foundMissing, "is not there"},
		"a column more":         {func(p *physical) { p.columns = append(p.columns, physicalColumn{name: "note", typ: "int"}) }, foundUnexpected, "not in the file"},
		"spelled as by servers": {replace("UNIQUE KEY(`carrier`,`flight_id`,`_month`)", "UNIQUE KEY(`carrier`, `flight_id`, `_month`)"), 0, ""},
	} {
		p := good()
		c.change(p)
		list := compareTable(flights, p, "flights")
		if c.kind == 0 {
			if len(list) > 0 {
				t.Errorf("%s: %+v", name, list)
			}
			continue
		}
		if len(list) == 0 || list[0].kind != c.kind || !strings.Contains(list[0].what, c.says) {
			t.Errorf("%s: %+v, wanted %d with %q", name, list, c.kind, c.says)
		}
	}
	for had, want := range map[string]string{"DECIMALV3(12, 2)": "decimal(12,2)", "DATETIMEV2(6)": "datetime(6)", "datev2": "date", "TEXT": "string", "LARGEINT": "largeint", "tinyint(1)": "boolean"} {
		if got := plainType(had); got != want {
			t.Errorf("%s is %s, wanted %s", had, got, want)
		}
	}
}

// Against a server: what was made is found as it should be; a column that comes later is added, once.
func TestSchemaAgainstTheServer(t *testing.T) {
	s, _ := served(t)
	if err := s.verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v, err := s.version(t.Context()); err != nil || v != "2.1.7" {
		t.Errorf("version %q, %v", v, err)
	}
	flights := *s.tables[0].Table
	flights.Columns = append(flights.Columns[:len(flights.Columns):len(flights.Columns)],
		event.Column{Name: "gate", Type: event.Type{Kind: event.String, Length: 5}}, event.Column{Name: "seen", Type: event.Type{Kind: event.Datetime}, Nullable: true})
	tables, err := s.readSchema(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !viewDiffers(&flights, tables["flights_now"]) || viewDiffers(s.tables[0].Table, tables["flights_now"]) {
		t.Error("the view of another table is taken for it, or not for its own")
	}
	list := compareTable(&flights, tables["flights"], "flights")
	if len(list) != 2 || list[0].kind != foundMissing || list[1].kind != foundMissing {
		t.Fatalf("%+v", list)
	}
	for range 2 { // also a second time, by another apply
		for _, f := range list {
			if err := s.define(t.Context(), "flights", f.alter); err != nil {
				t.Fatalf("%s: %v", f.alter, err)
			}
		}
	}
	if tables, err = s.readSchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	if list := compareTable(&flights, tables["flights"], "flights"); len(list) > 0 {
		t.Errorf("%+v", list)
	}
}

var november = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
