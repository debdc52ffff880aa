package mysql

import (
	"strings"
	"testing"
)

func TestRowSumGolden(t *testing.T) {
	var b strings.Builder
	for _, table := range testSink(t).tables {
		b.WriteString(tenantSumsSQL(table.Table, table.Name+"_202611", true, 500) + ";\n\n" +
			rowSumsSQL(table.Table, table.Name+"_202611", " WHERE TRUE") + ";\n\n")
	}
	golden(t, "rowsum.sql", b.String())
}
