package mysql

import (
	"strings"
	"testing"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/partitioner"
)

var dialects = map[string]dialect{"mysql": {RowAlias: true}, "mariadb": {MariaDB: true}}

func TestTableDDLGolden(t *testing.T) {
	s := testSink(t)
	for name, d := range dialects {
		var b strings.Builder
		for _, table := range s.tables {
			month := partitioner.NoMonth
			if table.Month != event.None {
				month = 202611
			}
			b.WriteString(tableDDL(table.Table, month, d) + ";\n\n")
		}
		golden(t, "tables."+name+".sql", b.String())
	}
}

func TestUpsertGolden(t *testing.T) {
	s := testSink(t)
	for name, d := range dialects {
		var b strings.Builder
		for _, table := range s.tables {
			u := newUpsert(table.Table, 202611, d)
			row := event.Row{Values: make([]event.Value, len(table.Columns))}
			for i := range row.Values {
				row.Values[i] = event.Value{Int: 1, Uint: 2, Float: 3, Bytes: []byte("4")}
			}
			var r rows
			r.arena = appendTuple(r.arena, table.Table, table.zeros, &row, 14)
			r.add(0, span{}, r.since(0), 14, 0)
			from := len(r.arena)
			for i := range table.Columns { // a delete: only tenant, id and month are there
				if i != table.Tenant && i != table.ID && i != table.Month {
					row.Values[i] = event.Value{Null: true}
				}
			}
			r.arena = appendTuple(r.arena, table.Table, table.zeros, &row, 15)
			r.add(0, span{}, r.since(from), 15, 1)
			statement := string(r.appendStatement(nil, u, r.entries))
			b.WriteString(strings.NewReplacer(" VALUES ", "\n  VALUES ", "),(", "),\n  (", " ON DUPLICATE", "\n  ON DUPLICATE", "),`", "),\n    `").Replace(statement) + ";\n\n")
		}
		golden(t, "upserts."+name+".sql", b.String())
	}
}

func TestTransactionGolden(t *testing.T) {
	var b strings.Builder
	for _, ddl := range progress.DDL() {
		b.WriteString(ddl + ";\n\n")
	}
	a := progress.Advance{Key: progress.Key{Sink: "mysql", Partition: event.Partition{Topic: "flights.events", Number: 11}},
		Owner: "host/1/ab", OwnerEpoch: 7, Start: 100, End: 200, LeaderEpoch: 3, TopicID: event.TopicID{0xab, 15: 1}}
	b.WriteString("START TRANSACTION;\n" + string(a.AppendSQL(nil)) + ";\n-- rows\nCOMMIT;\n")
	golden(t, "progress.sql", b.String())
}

func TestIndexNamesFit(t *testing.T) {
	long := []string{strings.Repeat("a", 60), strings.Repeat("b", 60)}
	other := []string{strings.Repeat("a", 60), strings.Repeat("c", 60)}
	if a, b := indexName(long), indexName(other); len(a) > 64 || a == b {
		t.Errorf("%s and %s", a, b)
	}
}
