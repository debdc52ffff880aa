package event

import (
	"reflect"
	"sync"
	"unsafe"

	"github.com/slotline/slotline/partitioner"
)

// Struct turns values of T into events of one table. It is safe for concurrent use.
type Struct[T any] struct {
	plan *structPlan
}

// StructOf compares the slotline tags of T with the table, once: each column has a field that can hold it, each
// tagged field has a column, and the roles agree. The error lists every difference.
//
// A tag is a column's name and then its roles: `slotline:"flight_id,id"`. Roles are tenant, id, month, spread and
// version; spread may be left out. Fields without a tag, or with "-", are no concern of the table's. Fields of
// embedded structs count as the struct's own.
func StructOf[T any](t *Table) (*Struct[T], error) {
	plan, err := planStruct(t, reflect.TypeFor[T]())
	if err != nil {
		return nil, err
	}
	return &Struct[T]{plan}, nil
}

// Table is the table that the events belong to.
func (s *Struct[T]) Table() *Table { return s.plan.table }

// Event is the event of v: everything but ID, Time, LayoutEpoch, Outbox and TraceParent, which are the append's and
// the relay's. Version is 0 where the table's versions are automatic. A Delete reads the tenant, id, month, spread
// and version fields only. The error is a *DataError that names the column.
func (s *Struct[T]) Event(v *T, op Op) (Event, error) { return s.plan.event(unsafe.Pointer(v), op) }

// structPlan is what reflection found out about a struct: how to read each column.
type structPlan struct {
	table  *Table
	fields []structField // by column
	memory sync.Pool     // *structMemory
}

// structField reads one column's value. Its pointer is to the whole struct.
type structField struct {
	offset uintptr
	read   reader
}

// reader reads the field that p points to; reason is "" when that went well. v is zero before.
type reader func(p unsafe.Pointer, v *Value) (reason, detail string)

type structMemory struct {
	values []Value
	body   []byte
	text   []byte
}

func (s *structPlan) event(p unsafe.Pointer, op Op) (Event, error) {
	m, _ := s.memory.Get().(*structMemory)
	if m == nil {
		m = &structMemory{values: make([]Value, len(s.fields))}
	}
	e, err := s.build(p, op, m)
	clear(m.values) // they point into the caller's struct
	s.memory.Put(m)
	return e, err
}

func (s *structPlan) build(p unsafe.Pointer, op Op, m *structMemory) (Event, error) {
	t := s.table
	for col, f := range s.fields {
		if op == Delete && !t.Keeps(col) && col != t.Version {
			continue
		}
		if reason, detail := f.read(unsafe.Add(p, f.offset), &m.values[col]); reason != "" {
			return Event{}, t.dataError(codeValue, col, reason, detail)
		}
	}
	var err error
	if m.body, err = t.AppendRow(m.body[:0], m.values, op); err != nil {
		return Event{}, err
	}
	e := Event{Table: t.Name, Op: op, Month: partitioner.NoMonth, Body: append([]byte(nil), m.body...)}
	if t.Version != None {
		// AppendRow has checked it for an upsert; a delete's body does not hold it.
		if reason, detail := t.checkRoles(t.Version, &m.values[t.Version]); reason != "" {
			return Event{}, t.dataError(codeValue, t.Version, reason, detail)
		}
		e.Version = t.version(&m.values[t.Version])
	}
	if t.Month != None {
		e.Month, _ = t.monthOf(&m.values[t.Month]) // AppendRow has checked it
	}
	s.texts(&e, m)
	return e, nil
}

// texts sets the tenant, id and spread: slices of one new string.
func (s *structPlan) texts(e *Event, m *structMemory) {
	t := s.table
	m.text = m.text[:0]
	var end [3]int
	for i, col := range [3]int{t.Tenant, t.ID, t.Spread} {
		if col != None && (i != 2 || col != t.ID) {
			m.text = t.CanonicalText(m.text, col, m.values[col])
		}
		end[i] = len(m.text)
	}
	text := string(m.text)
	e.Tenant, e.EntityID, e.Spread = text[:end[0]], text[end[0]:end[1]], text[end[1]:]
	if t.Spread == t.ID {
		e.Spread = e.EntityID
	}
}
