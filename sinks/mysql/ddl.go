package mysql

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/partitioner"
)

// dialect is what a statement depends on beside its table: the engine, of those that speak MySQL's protocol, and which
// physical tables are meant.
type dialect struct {
	MariaDB  bool
	RowAlias bool   // INSERT … VALUES … AS `_n`; else VALUES(c)
	Suffix   string // behind each physical table's name; "" for the live ones
	Bare     bool   // tables are made without secondary indexes
}

// collation compares strings by their bytes and does not pad: 'a' and 'a ' are two ids. utf8mb4_bin pads.
func (d dialect) collation() string {
	if d.MariaDB {
		return "utf8mb4_nopad_bin"
	}
	return "utf8mb4_0900_bin"
}

// The comment of each table: what it is, and its format, of which a greater one was made by a later release.
const (
	tableComment = "slotline table format "
	tableFormat  = "1"
)

// nameBytesMax is MySQL's for an index, as for any identifier.
const nameBytesMax = 64

// columnType is the SQL type of a column, as information_schema writes it.
func columnType(t event.Type) string {
	switch t.Kind {
	case event.Bool:
		return "tinyint(1)"
	case event.Int32:
		return "int"
	case event.Int64:
		return "bigint"
	case event.Uint64:
		return "bigint unsigned"
	case event.Float64:
		return "double"
	case event.Decimal:
		return fmt.Sprintf("decimal(%d,%d)", t.Precision, t.Scale)
	case event.String:
		return fmt.Sprintf("varchar(%d)", t.Length)
	case event.Text:
		return "longtext"
	case event.Bytes:
		return fmt.Sprintf("varbinary(%d)", t.Length)
	case event.Date:
		return "date"
	case event.Datetime:
		return "datetime(6)"
	case event.JSON:
		return "json"
	}
	panic(fmt.Sprintf("kind %d has no SQL type", t.Kind))
}

// columnDDL is one column's definition.
func columnDDL(c event.Column) string {
	null := "NOT NULL"
	if c.Nullable {
		null = "NULL"
	}
	return mysqldb.Ident(c.Name) + " " + strings.ToUpper(columnType(c.Type)) + " " + null
}

// name is the physical table's that is meant.
func (d dialect) name(t *event.Table, m partitioner.Month) string {
	return t.PhysicalName(m) + d.Suffix
}

// tableDDL creates a physical table unless it exists.
func tableDDL(t *event.Table, m partitioner.Month, d dialect) string {
	var b strings.Builder
	fmt.Fprintf(&b, "CREATE TABLE IF NOT EXISTS %s (\n", mysqldb.Ident(d.name(t, m)))
	for _, c := range t.Columns {
		b.WriteString("  " + columnDDL(c) + ",\n")
	}
	b.WriteString("  `_ver` BIGINT NOT NULL,\n")
	b.WriteString("  `_deleted` TINYINT(1) GENERATED ALWAYS AS (`_ver` & 1) VIRTUAL,\n")
	fmt.Fprintf(&b, "  PRIMARY KEY (%s)", identList(primaryKey(t)))
	for _, columns := range t.Indexes {
		if !d.Bare {
			fmt.Fprintf(&b, ",\n  %s", indexDDL(columns))
		}
	}
	fmt.Fprintf(&b, "\n) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE %s COMMENT='%s'", d.collation(), tableComment+tableFormat)
	return b.String()
}

func indexDDL(columns []string) string {
	return "KEY " + mysqldb.Ident(indexName(columns)) + " (" + identList(columns) + ")"
}

// primaryKey is (tenant, id); a broadcast table's is (id).
func primaryKey(t *event.Table) []string {
	if t.Broadcast() {
		return []string{t.Columns[t.ID].Name}
	}
	return []string{t.Columns[t.Tenant].Name, t.Columns[t.ID].Name}
}

func identList(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = mysqldb.Ident(n)
	}
	return strings.Join(quoted, ",")
}

// indexName names an index by its columns; one too long for MySQL ends in a digest of them.
func indexName(columns []string) string {
	name := "ix_" + strings.Join(columns, "_")
	if len(name) <= nameBytesMax {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:nameBytesMax-9] + "_" + hex.EncodeToString(sum[:4])
}
