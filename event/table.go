package event

import (
	"strconv"
	"strings"
	"time"

	"github.com/slotline/slotline/partitioner"
)

// Kind is a column's logical type.
type Kind uint8

const (
	Bool Kind = iota + 1
	Int32
	Int64
	Uint64
	Float64
	Decimal
	String // string(n): n code points
	Text
	Bytes // bytes(n): n bytes
	Date
	Datetime // UTC, microseconds
	JSON
)

// Type is a column type as slotline.yaml writes it: "string(10)", "decimal(12,2)".
type Type struct {
	Kind      Kind
	Length    int // String: code points; Bytes: bytes
	Precision int // Decimal
	Scale     int // Decimal
}

// Column is one field of a table.
type Column struct {
	Name     string
	Type     Type
	Nullable bool
	Source   string // where it is declared, "slotline.yaml:11", for errors; "" when it is not from a file
}

// None marks a role that a table's columns do not have.
const None = -1

// Table is the schema of one logical table. Roles are indexes into Columns, or None.
type Table struct {
	Name    string
	Columns []Column // in file order: the order of fields in a row image
	Tenant  int      // None: a broadcast table
	ID      int
	Month   int // None: one physical table per shard. The column that holds the time, or the snowflake id
	Spread  int
	Version int // None: version auto
	// SnowflakeEpoch is set when Month is a snowflake id rather than a time.
	SnowflakeEpoch *time.Time
	Indexes        [][]string // secondary indexes; each begins with the tenant column
	Topic          string     // "" means the line's topic
}

// Broadcast reports whether the table has no tenant and is kept in every shard.
func (t *Table) Broadcast() bool { return t.Tenant == None }

// PhysicalName is the name of the table in a shard that holds a month's rows: orders_202611, or orders without months.
func (t *Table) PhysicalName(m partitioner.Month) string {
	if t.Month == None {
		return t.Name
	}
	return t.Name + "_" + m.String()
}

// MonthOfName is the month of a table's physical name; ok is false for the name of something else.
func (t *Table) MonthOfName(name string) (m partitioner.Month, ok bool) {
	if t.Month == None {
		return partitioner.NoMonth, name == t.Name
	}
	month, ok := strings.CutPrefix(name, t.Name+"_")
	if !ok || len(month) != len("202611") {
		return partitioner.NoMonth, false
	}
	m, err := partitioner.ParseMonth(month)
	return m, err == nil
}

// KeyArgument is a key's canonical text as an argument of its column's type: an integer column is not compared with a string, which
// would go by way of floating point.
func (c *Column) KeyArgument(text string) any {
	switch c.Type.Kind {
	case Int32, Int64:
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
	case Uint64:
		if n, err := strconv.ParseUint(text, 10, 64); err == nil {
			return n
		}
	}
	return text
}
