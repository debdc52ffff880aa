package doris

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/olap"
	"github.com/slotline/slotline/sinks/olap/doris/doristest"
	"github.com/slotline/slotline/sinks/olap/rollup"
)

func TestShadowGolden(t *testing.T) {
	var b strings.Builder
	s := testSink(t)
	for _, table := range s.tables {
		beside, m := table.Name+"__rb_rb19c2_1", partitioner.NoMonth
		if table.Month != event.None {
			m = 202611
		}
		b.WriteString(shadowDDL(table.Table, beside, "flights", 3, "DISTRIBUTED BY HASH(`a`) BUCKETS AUTO", "IDENTITY") + ";\n\n" +
			compareTablesSQL(table.Table, m, table.Name, beside) + ";\n\n")
		if m != partitioner.NoMonth {
			b.WriteString(copyMonthSQL(table.Table, m, beside, "TEMPORARY PARTITION (`"+beside+"`) ", "month_1", []string{"a", "b"}) + ";\n\n")
		}
	}
	golden(t, "testdata/shadow.sql", b.String())
}

// A table that was made beside another is told from it by what it keeps through a change of names, and has as many buckets.
func TestShadowKeepsItsIdentity(t *testing.T) {
	server := doristest.New(t)
	server.NewDatabase("flights")
	s := sinkAt(t, server.QueryPort(), server.FE())
	table := s.tables[0].Table
	if err := s.exec(t.Context(), strings.Replace(tableDDL(table, "flights", 1), " BUCKETS 8", " BUCKETS 32", 1)); err != nil {
		t.Fatal(err)
	}
	const beside = "flights__rb_rb19c2_1"
	for range 2 { // made again where it is there
		if err := s.MakeShadow(t.Context(), table, beside); err != nil {
			t.Fatal(err)
		}
	}
	before, err := s.TablesLike(t.Context(), "flights")
	if err != nil || len(before) != 2 || before["flights"] != "" || before[beside] == "" {
		t.Fatalf("tables and what identifies them: %v, %v", before, err)
	}
	if create, err := s.createOf(t.Context(), beside); err != nil || !strings.Contains(create, " BUCKETS 32") {
		t.Errorf("the table beside is made by %s, %v", create, err)
	}
	if err := s.ExchangeTables(t.Context(), "flights", beside); err != nil {
		t.Fatal(err)
	}
	if err := s.RenameTable(t.Context(), beside, "flights__rb_rb19c2_2"); err != nil {
		t.Fatal(err)
	}
	after, err := s.TablesLike(t.Context(), "flights")
	if err != nil || after["flights"] != before[beside] || after["flights__rb_rb19c2_2"] != "" || len(after) != 2 {
		t.Errorf("after the exchange %v, before it %v, %v", after, before, err)
	}
	if err := s.CheckShadow(t.Context(), table); err != nil {
		t.Errorf("the table that was exchanged is refused: %v", err)
	}
	if err := s.ExchangeTables(t.Context(), "flights", beside); err == nil {
		t.Error("a table of a name that is no more is exchanged")
	}
}

// What is committed and not visible yet would be missing in a copy, in a comparison and in a rollup, and keeps a table from
// being dropped: it is waited for.
func TestShadowWaitsForWhatIsCommitted(t *testing.T) {
	for name, do := range map[string]func(ctx context.Context, s *Sink, t *event.Table) error{
		"ReplaceMonth": func(ctx context.Context, s *Sink, t *event.Table) error { return s.ReplaceMonth(ctx, t, 202611, "b") },
		"DropTable":    func(ctx context.Context, s *Sink, t *event.Table) error { return s.DropTable(ctx, "b") },
		"CompareTables": func(ctx context.Context, s *Sink, t *event.Table) error {
			_, err := s.CompareTables(ctx, t, 202611, t.Name, "b")
			return err
		},
		"RollupPairs": func(ctx context.Context, s *Sink, t *event.Table) error {
			return s.RollupPairs(ctx, &config.Rollup{Name: "r", Table: t, Bucket: "day"}, 202611, func(rollup.Pair) error { return nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := doristest.New(t)
			server.NewDatabase("flights")
			s := sinkAt(t, server.QueryPort(), server.FE())
			publish, done := server.Commit("flights", "late"), make(chan struct{})
			go func() {
				_ = do(t.Context(), s, s.tables[0].Table) // what comes after it is refused: there are no tables
				close(done)
			}()
			select {
			case <-done:
				t.Error("it did not wait")
			case <-time.After(2 * settlePeriod): // it looks at least once
			}
			publish()
			<-done
		})
	}
}

// A sink that fills a table beside the live one keeps rows of its table and month alone. A batch whose label is used goes
// into the table that took the other's place all the same.
func TestShadowSinkFillsOneTable(t *testing.T) {
	server := doristest.New(t)
	server.NewDatabase("flights")
	s := sinkAt(t, server.QueryPort(), server.FE())
	into := "flights__rb_rb19c2_1"
	s.shadow = &olap.Shadow{Table: "flights", Month: 202611, Into: func() string { return into }}
	for _, table := range s.tables {
		if err := s.exec(t.Context(), tableDDL(table.Table, "flights", 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.MakeShadow(t.Context(), s.tables[0].Table, into); err != nil {
		t.Fatal(err)
	}
	m := &maker{t: t, sink: s}
	b := batchOf(m.flight(1, 1, november, "LAX"), m.flight(2, 2, november.AddDate(0, 1, 0), "JFK"),
		m.message("airports", event.Upsert, 3, event.Value{Bytes: []byte("LAX")}, event.Value{Null: true}))
	o := &owned{sink: s, group: &scripted{}}
	for _, table := range []string{into, "flights"} {
		into = table
		if bad, err := apply(t, o, b, 1); len(bad) > 0 || err != nil {
			t.Fatalf("%v, %v", bad, err)
		}
		wantRows(t, s, "flight_id,_ver", table, "1|2")
	}
	wantRows(t, s, "code", "airports")
}
