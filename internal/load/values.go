package load

import (
	"fmt"
	"strconv"

	"github.com/slotline/slotline/event"
)

// dayMicros are the microseconds of a day.
const dayMicros = 24 * 60 * 60 * 1_000_000

const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// base62 is n in digits, at least that many.
func base62(n uint64, least int) []byte {
	var text []byte
	for ; n > 0 || len(text) < max(1, least); n /= uint64(len(digits)) {
		text = append(text, digits[n%uint64(len(digits))])
	}
	for i, j := 0, len(text)-1; i < j; i, j = i+1, j-1 {
		text[i], text[j] = text[j], text[i]
	}
	return text
}

// Bounds of what is drawn: rows of the size that services have, not of what a column could hold.
const (
	stringMax = 24
	textMax   = 200
	bytesMax  = 32
)

// value is a column's value: what names the entity, or one drawn of its type.
func (d *Drawer) value(col int, e *Entity) event.Value {
	t, r := d.load.table, d.random
	if t.Keeps(col) {
		return d.load.fixed(col, e)
	}
	c := &t.Columns[col]
	if col == t.Version {
		return number(c, d.load.version(e))
	}
	if c.Nullable && r.IntN(10) == 0 {
		return event.Value{Null: true}
	}
	switch c.Type.Kind {
	case event.Bool:
		return event.Value{Int: int64(r.IntN(2))}
	case event.Int32, event.Int64:
		return event.Value{Int: int64(r.IntN(2_000_001)) - 1_000_000}
	case event.Uint64:
		return event.Value{Uint: r.Uint64N(1_000_000)}
	case event.Float64:
		return event.Value{Float: r.NormFloat64() * 1000}
	case event.Decimal:
		return event.Value{Bytes: d.decimal(c.Type)}
	case event.String:
		return event.Value{Bytes: d.letters(min(c.Type.Length, stringMax))}
	case event.Text:
		return event.Value{Bytes: d.letters(textMax)}
	case event.Bytes:
		b := make([]byte, 1+r.IntN(min(c.Type.Length, bytesMax)))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return event.Value{Bytes: b}
	case event.Date:
		return event.Value{Int: e.micros/dayMicros - int64(r.IntN(365))}
	case event.Datetime:
		return event.Value{Int: e.micros - r.Int64N(365*dayMicros)}
	}
	return event.Value{Bytes: fmt.Appendf(nil, `{"n":%d,"text":"%s"}`, r.IntN(1_000_000), d.letters(stringMax))}
}

// number is a value of an integer column.
func number(c *event.Column, n uint64) event.Value {
	if c.Type.Kind == event.Uint64 {
		return event.Value{Uint: n}
	}
	return event.Value{Int: int64(n)}
}

// decimal has at most nine digits before the point.
func (d *Drawer) decimal(t event.Type) []byte {
	whole := int64(1)
	for range min(t.Precision-t.Scale, 9) {
		whole *= 10
	}
	text := strconv.AppendInt(nil, d.random.Int64N(whole), 10)
	if t.Scale == 0 {
		return text
	}
	text = append(text, '.')
	for range t.Scale {
		text = append(text, '0'+byte(d.random.IntN(10)))
	}
	return text
}

// letters are one to n of them.
func (d *Drawer) letters(n int) []byte {
	b := make([]byte, 1+d.random.IntN(n))
	for i := range b {
		b[i] = 'a' + byte(d.random.IntN(26))
	}
	return b
}
