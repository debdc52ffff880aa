package doris

import (
	"encoding/base64"
	"encoding/binary"
	"math/bits"
	"strconv"

	"github.com/slotline/slotline/event"
)

// Rows are lines of JSON: every text has one exact form in it. CSV has none for a text that holds a separator, or that
// is \N, which it takes for NULL.
//
// Numbers that a double cannot hold stand in quotes, so that no reader between here and the column rounds them; Doris
// casts either from text. Times have no zone: loads set theirs to UTC.

// encoder writes the rows of one table.
type encoder struct {
	columns []columnEncoder
	month   bool // the table has _month
}

type columnEncoder struct {
	prefix   string // `,"name":`, without the comma for the first
	kind     event.Kind
	nullable bool
}

func newEncoder(t *event.Table) encoder {
	e := encoder{month: t.Month != event.None}
	for i, c := range t.Columns {
		prefix := `,"` + c.Name + `":`
		if i == 0 {
			prefix = prefix[1:]
		}
		e.columns = append(e.columns, columnEncoder{prefix, c.Type.Kind, c.Nullable})
	}
	return e
}

// append adds one row, with the line break behind it.
func (e *encoder) append(dst []byte, r *event.Row, ver int64) []byte {
	dst = append(dst, '{')
	for i := range e.columns {
		c := &e.columns[i]
		dst = c.append(append(dst, c.prefix...), &r.Values[i])
	}
	if e.month {
		dst = append(dst, `,"_month":"`...)
		m := int(r.Month)
		dst = append(dst, byte('0'+m/100000), byte('0'+m/10000%10), byte('0'+m/1000%10), byte('0'+m/100%10), '-', byte('0'+m/10%10), byte('0'+m%10))
		dst = append(dst, `-01"`...)
	}
	dst = append(dst, `,"_ver":`...)
	dst = strconv.AppendInt(dst, ver, 10)
	return append(append(dst, `,"_deleted":`...), byte('0'+ver&1), '}', '\n')
}

// append adds a value. A null one in a column that is not nullable, as a deleted row has, becomes the zero value: it
// has every field zero.
func (c *columnEncoder) append(dst []byte, v *event.Value) []byte {
	if v.Null && c.nullable {
		return append(dst, "null"...)
	}
	switch c.kind {
	case event.Bool:
		return append(dst, byte('0'+v.Int))
	case event.Int32, event.Int64:
		return strconv.AppendInt(dst, v.Int, 10)
	case event.Uint64:
		return append(strconv.AppendUint(append(dst, '"'), v.Uint, 10), '"')
	case event.Float64:
		return strconv.AppendFloat(dst, v.Float, 'g', -1, 64)
	case event.Decimal:
		if v.Null {
			return append(dst, `"0"`...)
		}
		return append(append(append(dst, '"'), v.Bytes...), '"')
	case event.Date:
		return append(event.AppendDate(append(dst, '"'), v.Int), '"')
	case event.Datetime:
		return append(event.AppendDatetimeText(append(dst, '"'), v.Int, ' '), '"')
	case event.Bytes:
		return append(base64.StdEncoding.AppendEncode(append(dst, '"'), v.Bytes), '"')
	default:
		return append(appendEscaped(append(dst, '"'), v.Bytes), '"')
	}
}

const hexDigits = "0123456789abcdef"

// appendEscaped adds text, valid UTF-8, as the inside of a JSON string. Runs of bytes that need no escape are found
// eight at a time.
func appendEscaped(dst, text []byte) []byte {
	from := 0
	for at := 0; at < len(text); {
		if len(text)-at >= 8 {
			n := plainBytes(binary.LittleEndian.Uint64(text[at:]))
			if at += n; n == 8 {
				continue
			}
		}
		c := text[at]
		if c >= ' ' && c != '"' && c != '\\' {
			at++
			continue
		}
		dst = append(dst, text[from:at]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		at++
		from = at
	}
	return append(dst, text[from:]...)
}

// plainBytes is how many of eight bytes, from the lowest on, need no escape. A borrow of the subtractions may mark a
// byte above one that is marked rightly: the first mark is always right.
func plainBytes(w uint64) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	quote, slash := w^(ones*'"'), w^(ones*'\\')
	marks := ((w - ones*' ') &^ w) | ((quote - ones) &^ quote) | ((slash - ones) &^ slash)
	return bits.TrailingZeros64(marks&highs) / 8
}
