package event

import "github.com/slotline/slotline/partitioner"

// AppendRow appends the row image of values to dst.
func (t *Table) AppendRow(dst []byte, values []Value, op Op) ([]byte, error) { panic("being built") }

// CanonicalText appends the text by which a value of column col is known outside of its row: in keys, in tenants, as
// spread field.
func (t *Table) CanonicalText(dst []byte, col int, v Value) []byte { panic("being built") }

// MonthOf is the month that the month column's value names; NoMonth for a table without months.
func (t *Table) MonthOf(v Value) (partitioner.Month, error) { panic("being built") }
