package event

import "time"

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
