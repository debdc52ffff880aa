package clickhouse

import (
	"strings"
	"testing"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/partitioner"
)

func TestRowSumGolden(t *testing.T) {
	var b strings.Builder
	after, upTo := "7", "9"
	for _, table := range testSink(t).tables {
		m := partitioner.NoMonth
		if table.Month != event.None {
			m = 202611
		}
		b.WriteString(tenantSumsSQL(table.Table, []partitioner.Month{m}, &after, &upTo, 500) + ";\n\n" +
			rowSumsSQL(table.Table, m, "7", between(table.Columns[table.ID], &after, nil), 5000) + ";\n\n")
	}
	golden(t, "testdata/rowsum.sql", b.String())
}

func TestShadowGolden(t *testing.T) {
	var b strings.Builder
	s := testSink(t)
	for _, table := range s.tables {
		m := partitioner.NoMonth
		if table.Month != event.None {
			m = 202611
		}
		b.WriteString(compareTablesSQL(table.Table, m, table.Name, table.Name+"__rb_rb19c2_1") + ";\n\n")
	}
	for _, r := range s.rollups {
		b.WriteString(rollupPairsSQL(r, 202611) + ";\n\n")
	}
	golden(t, "testdata/shadow.sql", b.String())
}
