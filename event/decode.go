package event

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"unicode/utf8"
)

// codeRow is the code of a row image that is not as its table says.
const codeRow = "SL1120"

// DecodeRow reads a row image into dst, every value checked against its column. Fields in the table's order are the
// fast path; any order is accepted. For a Delete the body holds the tenant, id, month and spread fields and no
// others. The error is a *DataError; dst is then unspecified, and may be reused.
func (t *Table) DecodeRow(body []byte, op Op, dst *Row) error {
	dst.reset(len(t.Columns))
	s := scanner{b: body, scratch: &dst.scratch}
	if col, ok := t.decodeObject(&s, op, dst); !ok {
		return t.dataError(codeRow, col, s.reason, s.detail)
	}
	if col := t.complete(op, dst); col != None {
		return t.dataError(codeRow, col, ReasonMissing, "the field is missing and the column is not nullable")
	}
	dst.Op = op
	return nil
}

// DecodeView reads the row image of a parsed record into dst: DecodeRow, then the record's version. The body must
// agree with the record's key, and with its version where a column holds the version.
func (t *Table) DecodeView(v *View, dst *Row) error {
	if err := t.DecodeRow(v.Body, v.Op, dst); err != nil {
		return err
	}
	dst.Version = v.Version
	switch {
	case !bytes.Equal(dst.Tenant, v.Tenant):
		col, found := t.Tenant, "tenant "+quoteBounded(dst.Tenant)
		return t.dataError(codeRow, col, ReasonMismatch, found+", the record's key says "+quoteBounded(v.Tenant))
	case !bytes.Equal(dst.ID, v.EntityID):
		return t.dataError(codeRow, t.ID, ReasonMismatch, "id "+quoteBounded(dst.ID)+", the record's key says "+quoteBounded(v.EntityID))
	case t.Version != None && v.Op == Upsert && t.version(&dst.Values[t.Version]) != v.Version:
		return t.dataError(codeRow, t.Version, ReasonMismatch, "version "+strconv.FormatInt(t.version(&dst.Values[t.Version]), 10)+
			", the record's headers say "+strconv.FormatInt(v.Version, 10))
	}
	return nil
}

// version is the version that a value of the version column holds, which checkRoles has seen.
func (t *Table) version(v *Value) int64 {
	if t.Columns[t.Version].Type.Kind == Uint64 {
		return int64(v.Uint)
	}
	return v.Int
}

func (t *Table) dataError(code string, col int, reason, detail string) error {
	e := &DataError{Code: code, Table: t.Name, Reason: reason, Detail: detail}
	if col != None {
		e.Column = t.Columns[col].Name
	}
	return e
}

// decodeObject reads the whole body; col is the column at fault, or None.
func (t *Table) decodeObject(s *scanner, op Op, dst *Row) (col int, ok bool) {
	s.space()
	if s.peek() != '{' {
		return None, s.malformed("an object")
	}
	s.p++
	s.space()
	if s.peek() == '}' {
		s.p++
		return None, s.end()
	}
	for next := 0; ; {
		col, ok = t.decodeName(s, next)
		if !ok {
			return None, false
		}
		word, bit := &dst.seen[col/64], uint64(1)<<(col%64)
		if *word&bit != 0 {
			return col, s.fail(ReasonDuplicate, "the field comes twice")
		}
		*word |= bit
		if op == Delete && !t.Keeps(col) {
			return col, s.fail(ReasonUnknownField, "a delete holds the tenant, id, month and spread fields only")
		}
		if !t.decodeField(s, col, dst) {
			return col, false
		}
		next = col + 1
		s.space()
		switch s.peek() {
		case ',':
			s.p++
			s.space()
		case '}':
			s.p++
			return None, s.end()
		default:
			return col, s.malformed("a comma or the end of the object")
		}
	}
}

// end makes sure that nothing follows.
func (s *scanner) end() bool {
	s.space()
	if s.p < len(s.b) {
		return s.malformed("the end")
	}
	return true
}

// decodeName takes a field's name and colon; next is the column that a body in schema order names here.
func (t *Table) decodeName(s *scanner, next int) (col int, ok bool) {
	if next < len(t.Columns) {
		name := t.Columns[next].Name
		end := s.p + 1 + len(name)
		if end+1 < len(s.b) && s.b[s.p] == '"' && string(s.b[s.p+1:end]) == name && s.b[end] == '"' {
			if s.p = end + 1; end+2 < len(s.b) && s.b[end+1] == ':' && s.b[end+2] > ' ' {
				s.p++
				return next, true
			}
			return next, s.colon()
		}
	}
	if s.peek() != '"' {
		return None, s.malformed("a field name")
	}
	name, ok := s.text()
	if !ok {
		return None, false
	}
	for i := range t.Columns {
		col = next + i
		if col >= len(t.Columns) {
			col -= len(t.Columns)
		}
		if t.Columns[col].Name == string(name) {
			return col, s.colon()
		}
	}
	return None, s.fail(ReasonUnknownField, "field "+quoteBounded(name)+" is not a column")
}

func (s *scanner) colon() bool {
	s.space()
	if s.peek() != ':' {
		return s.malformed("a colon")
	}
	s.p++
	s.space()
	return true
}

// decodeField takes a field's value and sets what the row knows apart from values: its tenant, id, spread and month. The JSON
// text of an integer is its canonical text.
func (t *Table) decodeField(s *scanner, col int, dst *Row) bool {
	c, v := &t.Columns[col], &dst.Values[col]
	start := s.p
	if !s.value(c, v) {
		return false
	}
	if col != t.Tenant && col != t.ID && col != t.Spread && col != t.Month && col != t.Version {
		return true
	}
	if reason, detail := t.checkRoles(col, v); reason != "" {
		return s.fail(reason, detail)
	}
	if col == t.Month {
		var ok bool
		if dst.Month, ok = t.monthOf(v); !ok {
			return s.fail(ReasonOutOfRange, namesNoMonth)
		}
	}
	text := v.Bytes
	if c.Type.Kind.integer() {
		text = s.b[start:s.p]
	}
	if col == t.Tenant {
		dst.Tenant = text
	}
	if col == t.ID {
		dst.ID = text
	}
	if col == t.Spread {
		dst.Spread = text
	}
	return true
}

// complete fills in the fields that did not come; it returns a column that must not be missing, or None.
func (t *Table) complete(op Op, dst *Row) int {
	for w, seen := range dst.seen {
		columns := min(64, len(t.Columns)-w*64)
		if seen == 1<<columns-1 || columns == 64 && seen == 1<<64-1 {
			continue
		}
		for i := range columns {
			col := w*64 + i
			if seen&(1<<i) != 0 {
				continue
			}
			if !t.Columns[col].Nullable && (op != Delete || t.Keeps(col)) {
				return col
			}
			dst.Values[col] = Value{Null: true}
		}
	}
	return None
}

// value takes the value of a column.
func (s *scanner) value(c *Column, v *Value) bool {
	*v = Value{}
	if s.peek() == 'n' {
		if !s.literal("null") {
			return false
		}
		if !c.Nullable {
			return s.fail(ReasonNull, "null in a column that is not nullable")
		}
		v.Null = true
		return true
	}
	switch c.Type.Kind {
	case Bool:
		return s.boolColumn(v)
	case Int32, Int64:
		return s.intColumn(c.Type.Kind, v)
	case Uint64:
		magnitude, negative, ok := s.integer(Uint64)
		if ok && negative {
			s.p -= len(strconv.FormatUint(magnitude, 10)) + 1
			return s.outOfRange(Uint64)
		}
		v.Uint = magnitude
		return ok
	case Float64:
		f, ok := s.float()
		v.Float = f
		return ok
	case JSON:
		text, ok := s.jsonColumn()
		v.Bytes = text
		return ok
	}
	if s.peek() != '"' {
		return s.wrongType("a string for " + c.Type.String())
	}
	text, ok := s.text()
	if !ok {
		return false
	}
	return s.textColumn(&c.Type, text, v)
}

func (s *scanner) boolColumn(v *Value) bool {
	switch s.peek() {
	case 't':
		v.Int = 1
		return s.literal("true")
	case 'f':
		return s.literal("false")
	}
	return s.wrongType("true or false")
}

func (s *scanner) intColumn(k Kind, v *Value) bool {
	start := s.p
	magnitude, negative, ok := s.integer(k)
	if !ok {
		return false
	}
	most := uint64(1<<63 - 1)
	if k == Int32 {
		most = 1<<31 - 1
	}
	if negative {
		most++
	}
	if magnitude > most {
		s.p = start
		return s.outOfRange(k)
	}
	v.Int = int64(magnitude)
	if negative {
		v.Int = -v.Int
	}
	return true
}

// textColumn reads the columns that are JSON strings.
func (s *scanner) textColumn(t *Type, text []byte, v *Value) bool {
	switch t.Kind {
	case String:
		// Code points are at most as many as bytes.
		if len(text) > t.Length && utf8.RuneCount(text) > t.Length {
			return s.fail(ReasonTooLong, tooManyCodePoints(text, t))
		}
		v.Bytes = text
	case Text:
		v.Bytes = text
	case Decimal:
		if canonicalDecimal(text, *t) {
			v.Bytes = text
			return true
		}
		base := len(s.arena)
		arena, reason, detail := appendDecimal(s.arena, text, *t)
		if reason != "" {
			return s.fail(reason, detail)
		}
		s.arena = arena
		v.Bytes = arena[base:len(arena):len(arena)]
	case Bytes:
		return s.base64Column(t, text, v)
	case Date:
		days, ok := parseDate(text)
		if !ok {
			return s.fail(ReasonWrongType, notADate(text))
		}
		v.Int = days
	case Datetime:
		micros, ok := parseDatetime(text)
		if !ok {
			return s.fail(ReasonWrongType, quoteBounded(text)+" is not a time of the years 0001 to 9999, written as \"2026-11-30T23:59:59.123456Z\"")
		}
		v.Int = micros
	}
	return true
}

// strictBase64 refuses padding bits that are not zero, so that one value has one text.
var strictBase64 = base64.StdEncoding.Strict()

func (s *scanner) base64Column(t *Type, text []byte, v *Value) bool {
	// The decoder skips line breaks; here they are as wrong as any other byte outside of the alphabet.
	if bytes.IndexByte(text, '\n') >= 0 || bytes.IndexByte(text, '\r') >= 0 {
		return s.fail(ReasonWrongType, "a line break in base64")
	}
	base := len(s.arena)
	arena, err := strictBase64.AppendDecode(s.arena, text)
	if err != nil {
		return s.fail(ReasonWrongType, quoteBounded(text)+" is not base64 (RFC 4648 section 4, padded)")
	}
	s.arena = arena
	v.Bytes = arena[base:len(arena):len(arena)]
	if len(v.Bytes) > t.Length {
		return s.fail(ReasonTooLong, tooManyBytes(v.Bytes, t))
	}
	return true
}

func tooManyCodePoints(text []byte, t *Type) string {
	return strconv.Itoa(utf8.RuneCount(text)) + " code points in " + t.String() + ": " + quoteBounded(text)
}

func tooManyBytes(b []byte, t *Type) string {
	return strconv.Itoa(len(b)) + " bytes in " + t.String()
}

func notADate(text []byte) string {
	return quoteBounded(text) + " is not a date of the years 0001 to 9999, written as \"2026-11-30\""
}
