package event

import "github.com/slotline/slotline/partitioner"

// Value is one column of a row. Which field holds it depends on the column's kind:
//
//	Bool             Int, 0 or 1
//	Int32, Int64     Int
//	Uint64           Uint
//	Float64          Float, finite
//	Decimal          Bytes, canonical text at the declared scale: "-12.50", "0.00", never "-0.00"
//	String, Text     Bytes, valid UTF-8
//	Bytes            Bytes, raw
//	Date             Int, days since 1970-01-01
//	Datetime         Int, microseconds since the Unix epoch
//	JSON             Bytes, compact JSON text
//
// A Null value has every other field zero.
type Value struct {
	Null  bool
	Int   int64
	Uint  uint64
	Float float64
	Bytes []byte
}

// Row is a decoded row image. It is reused from one DecodeRow to the next: what its slices point to (the body that
// was decoded, or the row's own scratch memory) is valid until then.
type Row struct {
	Op      Op
	Version int64  // the record's; DecodeView sets it, DecodeRow leaves 0: it is not part of a delete's body
	Tenant  []byte // canonical text; empty for a broadcast table
	ID      []byte // canonical text
	Spread  []byte // canonical text; empty without a spread column
	Month   partitioner.Month
	Values  []Value // by column; a delete's are Null apart from tenant, id, month and spread

	seen    []uint64 // bit per column: the field came
	scratch scratch
}

// reset prepares the row for another body of columns fields.
func (r *Row) reset(columns int) {
	if cap(r.Values) < columns {
		r.Values = make([]Value, columns)
		r.seen = make([]uint64, (columns+63)/64)
	}
	r.Values = r.Values[:columns]
	r.seen = r.seen[:(columns+63)/64]
	clear(r.seen)
	r.scratch.arena = r.scratch.arena[:0]
	r.Op, r.Version, r.Month = 0, 0, partitioner.NoMonth
	r.Tenant, r.ID, r.Spread = nil, nil, nil
}
