package event

// Struct turns values of T into events of one table.
type Struct[T any] struct{ table *Table }

// StructOf compares the tags of T with the table, once.
func StructOf[T any](t *Table) (*Struct[T], error) { panic("being built") }

// Table is the table that the events belong to.
func (s *Struct[T]) Table() *Table { return s.table }

// Event is the event of v, apart from what the append and the relay fix: ID, Time, LayoutEpoch, Outbox.
func (s *Struct[T]) Event(v *T, op Op) (Event, error) { panic("being built") }
