package clickhouse

import (
	"os"
	"strings"
	"testing"

	"github.com/slotline/slotline/config"
)

func onCluster(t *testing.T) *Sink {
	t.Helper()
	cfg, err := config.Parse("slotline.yaml", []byte(strings.Replace(rollupFile, "ch1:9000/flights\" }", "ch1:9000,ch2:9000/flights\", cluster: main }", 1)+
		"  flights_by_month: { table: flights, bucket: month, measures: { flights: count } }\n"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What a DBA reads of a cluster: every statement that apply carries out, and what the sink says to a cluster alone.
func TestClusterStatements(t *testing.T) {
	s := onCluster(t)
	var b strings.Builder
	write := func(statements ...string) {
		for _, text := range statements {
			b.WriteString(strings.TrimSuffix(text, ";") + ";\n\n")
		}
	}
	for _, table := range s.tables {
		write(tableDDL(table.Table, s.line, s.cluster)...)
		write(viewDDL(table.Table, s.cluster))
	}
	for _, r := range s.rollups {
		write(rollupDDL(r, s.line, s.cluster)...)
		write(rollupViewDDL(r, s.cluster))
	}
	write(s.cluster.alter("flights", "ADD COLUMN IF NOT EXISTS `late` Bool AFTER `origin`")...)
	write(s.cluster.alter("flights", "MODIFY SETTING fsync_after_insert = 1")...)
	write(s.cluster.tableSizesSQL(), s.cluster.syncSQL("flights"))
	write(s.Grants()...)
	const golden = "testdata/cluster.sql"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || string(want) != b.String() {
		t.Errorf("the statements are not those of %s (%v); -update rewrites it:\n%s", golden, err, b.String())
	}
}

// clusterTables are the tables of a line as a host of a cluster tells of them.
func clusterTables(s *Sink) map[string]*physical {
	tables := map[string]*physical{}
	for _, t := range s.tables {
		local, over := asFound(t.Table), asFound(t.Table)
		local.name, local.engine = t.Name+"_local", "ReplicatedReplacingMergeTree"
		local.engineFull = "ReplicatedReplacingMergeTree('/clickhouse/tables/{uuid}/{shard}', '{replica}', _ver) PARTITION BY x"
		over.engine, over.engineFull = "Distributed", "Distributed('main', 'flights', '"+t.Name+"_local', xxHash64("+sortingKey(t.Table)[0]+"))"
		over.partitionKey, over.sortingKey = "", ""
		tables[local.name], tables[over.name] = local, over
	}
	return tables
}

// A table on a cluster is refused when rows could be lost or counted twice, and mended when a column is missing.
func TestClusterTablesAreCompared(t *testing.T) {
	s := onCluster(t)
	flights := s.tables[0]
	if list := s.compare(flights.Table, clusterTables(s)); len(list) > 0 || !s.isThere("flights", clusterTables(s)) {
		t.Fatalf("a table as apply makes it: %+v", list)
	}
	for name, c := range map[string]struct {
		change func(local, over *physical)
		says   string
		kind   foundKind
	}{
		"one server's table": {func(_, over *physical) {
			over.engine, over.engineFull = "ReplacingMergeTree", "ReplacingMergeTree(_ver)"
		}, "must be Distributed over flights_local", foundDiffers},
		"another cluster": {func(_, over *physical) {
			over.engineFull = "Distributed('test', 'flights', 'flights_local', xxHash64(carrier))"
		}, "of cluster test", foundDiffers},
		"another key":    {func(_, over *physical) { over.engineFull = "Distributed('main', 'flights', 'flights_local', rand())" }, "versions of one entity", foundDiffers},
		"no key":         {func(_, over *physical) { over.engineFull = "Distributed('main', 'flights', 'flights_local')" }, "must be Distributed", foundDiffers},
		"another type":   {func(_, over *physical) { over.columns[3].typ = "UInt8" }, "the table below it has", foundDiffers},
		"a column above": {func(_, over *physical) { over.columns = append(over.columns[:3:3], over.columns[4:]...) }, "is not there", foundMissing},
		"a column below": {func(local, _ *physical) { local.columns = append(local.columns[:3:3], local.columns[4:]...) }, "is not there", foundMissing},
		"rows that are not kept": {func(local, _ *physical) {
			local.engine, local.engineFull = "ReplicatedMergeTree", "ReplicatedMergeTree"
		}, "engine", foundDiffers},
	} {
		tables := clusterTables(s)
		c.change(tables["flights_local"], tables["flights"])
		list := s.compare(flights.Table, tables)
		if len(list) != 1 || list[0].kind != c.kind || !strings.Contains(list[0].what, c.says) {
			t.Errorf("%s: %+v", name, list)
		}
	}
	both := clusterTables(s)
	for _, name := range []string{"flights", "flights_local"} {
		both[name].columns = append(both[name].columns[:3:3], both[name].columns[4:]...)
	}
	list := s.compare(flights.Table, both)
	var statements []string
	if len(list) == 1 {
		s.planFound(func(_ byte, _, _ string, made ...string) { statements = made }, flights.Table, list[0])
	}
	if len(statements) != 2 || !strings.HasPrefix(statements[0], "ALTER TABLE `flights_local` ON CLUSTER `main` ADD COLUMN") ||
		!strings.HasPrefix(statements[1], "ALTER TABLE `flights` ON CLUSTER `main` ADD COLUMN") {
		t.Errorf("a column that both lack: %+v, %q", list, statements)
	}
	delete(both, "flights")
	if s.isThere("flights", both) {
		t.Error("half a table is taken for a whole one")
	}
}
