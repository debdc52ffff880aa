package doris

import (
	"fmt"
	"strings"

	"github.com/slotline/slotline/event"
)

const (
	monthColumn   = "_month" // first day of the row's month: what the table is partitioned by
	monthType     = "date"
	verColumn     = "_ver"
	verType       = "bigint"
	deletedColumn = "_deleted"
	deletedType   = "boolean"
	viewSuffix    = "_now"

	// The comment of a table says its format and its line, "slotline table format 1, line flights"; another than ours is
	// refused.
	tableComment = "slotline table format "
	lineComment  = ", line "
	tableFormat  = "1"

	// buckets are the tablets of a partition, or of a table without months: 8 do for up to some 50 GB.
	buckets = 8
)

// physicalColumn is a column of a table in Doris.
type physicalColumn struct {
	name, typ string
	nullable  bool
	key       bool
	source    event.Column // zero for ours
}

// physicalColumns are in the order of the table: the key must come first.
func physicalColumns(t *event.Table) []physicalColumn {
	var key, rest []physicalColumn
	column := func(i int, key bool) physicalColumn {
		c := t.Columns[i]
		return physicalColumn{c.Name, columnType(c.Type), c.Nullable, key, c}
	}
	if !t.Broadcast() {
		key = append(key, column(t.Tenant, true))
	}
	key = append(key, column(t.ID, true))
	if t.Month != event.None {
		key = append(key, physicalColumn{name: monthColumn, typ: monthType, key: true})
	}
	for i := range t.Columns {
		if i != t.Tenant && i != t.ID {
			rest = append(rest, column(i, false))
		}
	}
	return append(append(key, rest...), physicalColumn{name: verColumn, typ: verType}, physicalColumn{name: deletedColumn, typ: deletedType})
}

// columnType is the Doris type of a column, as DESC writes it, but in one spelling.
func columnType(t event.Type) string {
	switch t.Kind {
	case event.Bool:
		return "boolean"
	case event.Int32:
		return "int"
	case event.Int64:
		return "bigint"
	case event.Uint64:
		return "largeint"
	case event.Float64:
		return "double"
	case event.Decimal:
		return fmt.Sprintf("decimal(%d,%d)", t.Precision, t.Scale)
	case event.String:
		return fmt.Sprintf("varchar(%d)", 4*t.Length) // Doris counts bytes
	case event.Text, event.Bytes, event.JSON:
		return "string"
	case event.Date:
		return "date"
	case event.Datetime:
		return "datetime(6)"
	}
	panic(fmt.Sprintf("kind %d has no Doris type", t.Kind))
}

// zeroText is the default of a column that rows which are there get when it is added.
func zeroText(t event.Type) string {
	switch t.Kind {
	case event.String, event.Text, event.Bytes, event.JSON:
		return ""
	case event.Date:
		return "1970-01-01"
	case event.Datetime:
		return "1970-01-01 00:00:00"
	}
	return "0"
}

// ident quotes a name.
func ident(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

func identList(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = ident(n)
	}
	return strings.Join(quoted, ",")
}

// text is a string literal.
func text(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(s) + "'"
}

func keyNames(t *event.Table) []string {
	var names []string
	for _, c := range physicalColumns(t) {
		if c.key {
			names = append(names, c.name)
		}
	}
	return names
}

// tableDDL creates a line's table unless it exists.
func tableDDL(t *event.Table, line string, replication int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "CREATE TABLE IF NOT EXISTS %s (\n", ident(t.Name))
	for i, c := range physicalColumns(t) {
		if i > 0 {
			b.WriteString(",\n")
		}
		b.WriteString("  " + columnDDL(c))
	}
	keys := keyNames(t)
	fmt.Fprintf(&b, "\n) ENGINE=OLAP\nUNIQUE KEY(%s)\nCOMMENT %s\n", identList(keys), text(tableComment+tableFormat+lineComment+line))
	if t.Month != event.None {
		fmt.Fprintf(&b, "AUTO PARTITION BY RANGE (date_trunc(%s, 'month')) ()\n", ident(monthColumn))
		keys = keys[:len(keys)-1]
	}
	fmt.Fprintf(&b, "DISTRIBUTED BY HASH(%s) BUCKETS %d\n", identList(keys), buckets)
	fmt.Fprintf(&b, `PROPERTIES ("replication_num" = "%d", "enable_unique_key_merge_on_write" = "true", "function_column.sequence_col" = "%s")`,
		replication, verColumn)
	return b.String()
}

func null(nullable bool) string {
	if nullable {
		return "NULL"
	}
	return "NOT NULL"
}

// columnDDL declares a column. Those of the file that are not part of the key have a default, so that a sink of a file
// without them goes on loading.
func columnDDL(c physicalColumn) string {
	declared := ident(c.name) + " " + c.typ + " " + null(c.nullable)
	if !c.nullable && !c.key && c.source.Name != "" {
		declared += fmt.Sprintf(" DEFAULT %q", zeroText(c.source.Type))
	}
	return declared
}

// addColumnDDL adds a column of the file behind those that are there: loads name their columns.
func addColumnDDL(t *event.Table, c physicalColumn) string {
	return "ALTER TABLE " + ident(t.Name) + " ADD COLUMN " + columnDDL(c)
}

func viewName(t *event.Table) string { return t.Name + viewSuffix }

// viewColumns are what analysts see: the declared columns, the month and the version.
func viewColumns(t *event.Table) []string {
	var names []string
	for _, c := range t.Columns {
		names = append(names, c.Name)
	}
	if t.Month != event.None {
		names = append(names, monthColumn)
	}
	return append(names, verColumn)
}

// viewDDL makes the view, or with "ALTER" makes it anew.
func viewDDL(t *event.Table, verb string) string {
	return fmt.Sprintf("%s VIEW %s AS\nSELECT %s\nFROM %s\nWHERE %s = 0", verb, ident(viewName(t)), identList(viewColumns(t)), ident(t.Name), ident(deletedColumn))
}
