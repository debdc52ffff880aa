package clickhouse

import (
	"fmt"
	"strings"

	"github.com/slotline/slotline/event"
)

const (
	verColumn     = "_ver"
	verType       = "UInt64"
	deletedColumn = "_deleted"
	deletedType   = "UInt8"
	viewSuffix    = "_now"

	// The comment of a table says its format and its line, "slotline table format 1, line flights"; another than ours is
	// refused.
	tableComment = "slotline table format "
	lineComment  = ", line "
	tableFormat  = "1"

	// dedupWindow is how many INSERTs per table the server remembers tokens of. A token is sent again within seconds of
	// the first time, by a successor within a lease: some hundred groups and months may come between.
	dedupWindow = 1000
)

// tableSettings also make an acknowledged part outlive a power cut, as everything else that is acknowledged does; a
// part of 100,000 rows pays a few milliseconds for it.
var tableSettings = []string{
	fmt.Sprintf("non_replicated_deduplication_window = %d", dedupWindow),
	"fsync_after_insert = 1",
	"fsync_part_directory = 1",
}

// columnType is the ClickHouse type of a column, as system.columns writes it.
func columnType(c event.Column) string {
	t := baseType(c.Type)
	if c.Nullable {
		return "Nullable(" + t + ")"
	}
	return t
}

func baseType(t event.Type) string {
	switch t.Kind {
	case event.Bool:
		return "Bool"
	case event.Int32:
		return "Int32"
	case event.Int64:
		return "Int64"
	case event.Uint64:
		return "UInt64"
	case event.Float64:
		return "Float64"
	case event.Decimal:
		return fmt.Sprintf("Decimal(%d, %d)", t.Precision, t.Scale)
	case event.String, event.Text, event.Bytes, event.JSON:
		return "String"
	case event.Date:
		return "Date32"
	case event.Datetime:
		return "DateTime64(6, 'UTC')"
	}
	panic(fmt.Sprintf("kind %d has no ClickHouse type", t.Kind))
}

// ident quotes a name.
func ident(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

func identList(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = ident(n)
	}
	return strings.Join(quoted, ", ")
}

// text is a string literal.
func text(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}

// sortingKey is (tenant, id); a broadcast table's is (id).
func sortingKey(t *event.Table) []string {
	if t.Broadcast() {
		return []string{t.Columns[t.ID].Name}
	}
	return []string{t.Columns[t.Tenant].Name, t.Columns[t.ID].Name}
}

// partitionKey is the month of a row, as partitioner.Month counts it; "" for a table without months.
func partitionKey(t *event.Table) string {
	if t.Month == event.None {
		return ""
	}
	name := ident(t.Columns[t.Month].Name)
	if t.SnowflakeEpoch == nil {
		return "toYYYYMM(" + name + ")"
	}
	return fmt.Sprintf("toYYYYMM(fromUnixTimestamp64Milli(toInt64(bitShiftRight(%s, 22)) + %d, 'UTC'))", name, t.SnowflakeEpoch.UnixMilli())
}

// tableColumns are a table's columns, as name and type.
func tableColumns(t *event.Table) (list [][2]string) {
	for _, c := range t.Columns {
		list = append(list, [2]string{c.Name, columnType(c)})
	}
	return append(list, [2]string{verColumn, verType}, [2]string{deletedColumn, deletedType})
}

// tableDDL creates a line's table unless it exists.
func tableDDL(t *event.Table, line string, on cluster) []string {
	var b strings.Builder
	fmt.Fprintf(&b, "CREATE TABLE IF NOT EXISTS %s%s (\n", ident(on.local(t.Name)), on.on())
	columns := tableColumns(t)
	for i, c := range columns {
		fmt.Fprintf(&b, "  %s %s", ident(c[0]), c[1])
		if i < len(columns)-1 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, ")\nENGINE = %s\n", on.engine())
	if key := partitionKey(t); key != "" {
		fmt.Fprintf(&b, "PARTITION BY %s\n", key)
	}
	comment := tableComment + tableFormat + lineComment + line
	fmt.Fprintf(&b, "ORDER BY (%s)\n", identList(sortingKey(t)))
	fmt.Fprintf(&b, "SETTINGS %s\nCOMMENT %s", strings.Join(on.settings(), ", "), text(comment))
	return append([]string{b.String()}, on.distributed(t.Name, columns, sortingKey(t)[0], comment)...)
}

func viewName(t *event.Table) string { return t.Name + viewSuffix }

// viewColumns are what analysts see: the declared columns and the version.
func viewColumns(t *event.Table) []string {
	var names []string
	for _, c := range t.Columns {
		names = append(names, c.Name)
	}
	return append(names, verColumn)
}

// viewDDL makes the view, or makes it anew.
func viewDDL(t *event.Table, on cluster) string {
	return fmt.Sprintf("CREATE OR REPLACE VIEW %s%s AS\nSELECT %s\nFROM %s FINAL\nWHERE %s = 0",
		ident(viewName(t)), on.on(), identList(viewColumns(t)), ident(t.Name), ident(deletedColumn))
}

// insertSQL names the columns that a block has.
func insertSQL(t *event.Table) string {
	var names []string
	for _, c := range t.Columns {
		names = append(names, c.Name)
	}
	return fmt.Sprintf("INSERT INTO %s (%s) VALUES", ident(t.Name), identList(append(names, verColumn, deletedColumn)))
}
