package event

import (
	"encoding/base64"
	"math"
	"strconv"
	"sync"
	"unicode/utf8"
)

// codeValue is the code of a value that its column cannot hold, found before the event was written.
const codeValue = "SL1121"

// AppendRow appends the row image of values, one per column, to dst: fields in the table's order, NULL as null, for a
// Delete the tenant, id, month and spread fields alone. Every value is checked against its column as DecodeRow does;
// a decimal may have fewer fraction digits than its scale, and JSON may hold white space: the canonical form is
// written. The error is a *DataError; dst is then returned as it was.
func (t *Table) AppendRow(dst []byte, values []Value, op Op) ([]byte, error) {
	start := len(dst)
	for col := range t.Columns {
		if op == Delete && !t.Keeps(col) {
			continue
		}
		c := &t.Columns[col]
		if len(dst) == start {
			dst = append(dst, '{', '"')
		} else {
			dst = append(dst, ',', '"')
		}
		dst = append(dst, c.Name...)
		dst = append(dst, '"', ':')
		var reason, detail string
		if dst, reason, detail = t.appendValue(dst, col, &values[col]); reason != "" {
			return dst[:start], t.dataError(codeValue, col, reason, detail)
		}
	}
	return append(dst, '}'), nil
}

func (t *Table) appendValue(dst []byte, col int, v *Value) (out []byte, reason, detail string) {
	c := &t.Columns[col]
	if v.Null {
		if !c.Nullable {
			return dst, ReasonNull, "NULL in a column that is not nullable"
		}
		return append(dst, "null"...), "", ""
	}
	if dst, reason, detail = appendTyped(dst, &c.Type, v); reason != "" {
		return dst, reason, detail
	}
	if col == t.Month {
		if _, ok := t.monthOf(v); !ok {
			return dst, ReasonOutOfRange, namesNoMonth
		}
	}
	reason, detail = t.checkRoles(col, v)
	return dst, reason, detail
}

func appendTyped(dst []byte, t *Type, v *Value) (out []byte, reason, detail string) {
	switch t.Kind {
	case Bool:
		if uint64(v.Int) > 1 {
			return dst, ReasonOutOfRange, strconv.FormatInt(v.Int, 10) + " is neither 0 nor 1"
		}
		return strconv.AppendBool(dst, v.Int == 1), "", ""
	case Int32:
		if v.Int != int64(int32(v.Int)) {
			return dst, ReasonOutOfRange, strconv.FormatInt(v.Int, 10) + " is not within int32"
		}
		return strconv.AppendInt(dst, v.Int, 10), "", ""
	case Int64:
		return strconv.AppendInt(dst, v.Int, 10), "", ""
	case Uint64:
		return strconv.AppendUint(dst, v.Uint, 10), "", ""
	case Float64:
		return appendFloat(dst, v.Float)
	case Decimal:
		dst = append(dst, '"')
		dst, reason, detail = appendDecimal(dst, v.Bytes, *t)
		return append(dst, '"'), reason, detail
	case String, Text:
		if t.Kind == String && len(v.Bytes) > t.Length && utf8.RuneCount(v.Bytes) > t.Length {
			return dst, ReasonTooLong, tooManyCodePoints(v.Bytes, t)
		}
		return appendText(dst, v.Bytes)
	case Bytes:
		if len(v.Bytes) > t.Length {
			return dst, ReasonTooLong, tooManyBytes(v.Bytes, t)
		}
		return append(base64.StdEncoding.AppendEncode(append(dst, '"'), v.Bytes), '"'), "", ""
	case Date:
		if v.Int < dateMin || v.Int > dateMax {
			return dst, ReasonOutOfRange, outsideYears
		}
		return append(AppendDate(append(dst, '"'), v.Int), '"'), "", ""
	case Datetime:
		if v.Int < datetimeMin || v.Int > datetimeMax {
			return dst, ReasonOutOfRange, outsideYears
		}
		return append(AppendDatetime(append(dst, '"'), v.Int), '"'), "", ""
	}
	return appendJSON(dst, v.Bytes)
}

const outsideYears = "not within the years 0001 to 9999"

// appendFloat appends the shortest text that reads back as f, in the form that ECMAScript, RFC 8785 and encoding/json
// give it.
func appendFloat(dst []byte, f float64) (out []byte, reason, detail string) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return dst, ReasonOutOfRange, strconv.FormatFloat(f, 'g', -1, 64) + " is not a finite number"
	}
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	dst = strconv.AppendFloat(dst, f, format, -1, 64)
	if n := len(dst); format == 'e' && n >= 4 && dst[n-4] == 'e' && dst[n-2] == '0' {
		dst[n-2] = dst[n-1] // e-09 is e-9
		dst = dst[:n-1]
	}
	return dst, "", ""
}

// appendText appends a JSON string. Only what JSON demands is escaped.
func appendText(dst, text []byte) (out []byte, reason, detail string) {
	if !utf8.Valid(text) {
		return dst, ReasonBadText, "invalid UTF-8 in " + quoteBounded(text)
	}
	dst = append(dst, '"')
	for p := 0; ; {
		end, _ := plainEnd(text, p)
		dst = append(dst, text[p:end]...)
		if end == len(text) {
			return append(dst, '"'), "", ""
		}
		dst = appendEscape(dst, text[end])
		p = end + 1
	}
}

func appendEscape(dst []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
}

// scratches serve appendJSON: the keys of a JSON value are kept until it has been read.
var scratches = sync.Pool{New: func() any { return new(scratch) }}

func appendJSON(dst, text []byte) (out []byte, reason, detail string) {
	memory := scratches.Get().(*scratch)
	defer scratches.Put(memory)
	memory.arena = memory.arena[:0]
	s := scanner{b: text, scratch: memory}
	s.space()
	if s.peek() == 'n' {
		return dst, ReasonNull, "the JSON value null is NULL"
	}
	compact, ok := s.jsonColumn()
	if !ok || !s.end() {
		return dst, s.reason, s.detail
	}
	return append(dst, compact...), "", ""
}

// CanonicalText appends the text by which a value of column col is known outside of its row, as tenant, entity id or
// spread field: an integer in decimal, a string as it is. The column must be one of those.
func (t *Table) CanonicalText(dst []byte, col int, v Value) []byte {
	switch t.Columns[col].Type.Kind {
	case Int32, Int64:
		return strconv.AppendInt(dst, v.Int, 10)
	case Uint64:
		return strconv.AppendUint(dst, v.Uint, 10)
	}
	return append(dst, v.Bytes...)
}
