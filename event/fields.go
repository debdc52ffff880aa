package event

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unsafe"
)

var (
	timeType        = reflect.TypeFor[time.Time]()
	rawMessageType  = reflect.TypeFor[json.RawMessage]()
	textMarshalerOf = reflect.TypeFor[encoding.TextMarshaler]()
)

// reader is how a column is read from a field; it notes a field that cannot hold the column.
func (p *planner) reader(f *taggedField, col int) reader {
	c := &p.t.Columns[col]
	elem, wrap, optional := unwrapOptional(f.typ)
	if optional && !c.Nullable {
		write := f.name + " " + goType(c)
		if len(p.t.rolesOf(col)) == 0 { // tenant, id, month, spread and version are never NULL
			write += "; or " + c.String() + "? before the first apply"
		}
		p.mismatch(f, p.column(col), "the column does not allow NULL, which a "+f.typ.String()+" can say", write)
		return nil
	}
	read := plainReader(elem, c)
	if read == nil {
		why, write := whyNot(elem, c)
		p.mismatch(f, p.column(col), why, f.name+" "+write)
		return nil
	}
	if optional {
		return wrap(read)
	}
	return read
}

// unwrapOptional sees through what says NULL: a pointer, or a struct of database/sql with a value and Valid.
func unwrapOptional(typ reflect.Type) (elem reflect.Type, wrap func(reader) reader, ok bool) {
	if typ.Kind() == reflect.Pointer {
		return typ.Elem(), func(read reader) reader {
			return func(p unsafe.Pointer, v *Value) (reason, detail string) {
				p = *(*unsafe.Pointer)(p)
				if p == nil {
					v.Null = true
					return "", ""
				}
				return read(p, v)
			}
		}, true
	}
	if typ.Kind() == reflect.Struct && typ.PkgPath() == "database/sql" && typ.NumField() == 2 && typ.Field(1).Name == "Valid" {
		value, valid := typ.Field(0), typ.Field(1).Offset
		return value.Type, func(read reader) reader {
			return func(p unsafe.Pointer, v *Value) (reason, detail string) {
				if !*(*bool)(unsafe.Add(p, valid)) {
					v.Null = true
					return "", ""
				}
				return read(unsafe.Add(p, value.Offset), v)
			}
		}, true
	}
	return typ, nil, false
}

// plainReader reads a field that is not optional; nil when its type cannot hold the column.
func plainReader(typ reflect.Type, c *Column) reader {
	switch c.Type.Kind {
	case Bool:
		if typ.Kind() == reflect.Bool {
			return readBool
		}
	case Int32, Int64:
		return intReader(typ.Kind(), c.Type.Kind)
	case Uint64:
		return uintReader(typ.Kind())
	case Float64:
		switch typ.Kind() {
		case reflect.Float64:
			return readFloat[float64]
		case reflect.Float32:
			return readFloat[float32]
		}
	case String, Text, Decimal:
		return textReader(typ)
	case Bytes:
		return bytesReader(typ, c.Nullable)
	case JSON:
		if typ == rawMessageType {
			return jsonReader(c.Nullable)
		}
	case Datetime:
		if typ == timeType {
			return readDatetime
		}
	case Date:
		if typ == timeType {
			return readDate
		}
		return dateTextReader(textReader(typ))
	}
	return nil
}

func readBool(p unsafe.Pointer, v *Value) (reason, detail string) {
	if *(*bool)(p) {
		v.Int = 1
	}
	return "", ""
}

func readInt[N int8 | int16 | int32 | int64 | int | uint8 | uint16 | uint32](p unsafe.Pointer, v *Value) (reason, detail string) {
	v.Int = int64(*(*N)(p))
	return "", ""
}

func readUint[N uint8 | uint16 | uint32 | uint64 | uint](p unsafe.Pointer, v *Value) (reason, detail string) {
	v.Uint = uint64(*(*N)(p))
	return "", ""
}

func readFloat[N float32 | float64](p unsafe.Pointer, v *Value) (reason, detail string) {
	v.Float = float64(*(*N)(p))
	return "", ""
}

// intReader reads integers all of whose values the column holds.
func intReader(typ reflect.Kind, column Kind) reader {
	switch typ {
	case reflect.Int8:
		return readInt[int8]
	case reflect.Int16:
		return readInt[int16]
	case reflect.Int32:
		return readInt[int32]
	case reflect.Uint8:
		return readInt[uint8]
	case reflect.Uint16:
		return readInt[uint16]
	}
	if column != Int64 {
		return nil
	}
	switch typ {
	case reflect.Int64:
		return readInt[int64]
	case reflect.Int:
		return readInt[int]
	case reflect.Uint32:
		return readInt[uint32]
	}
	return nil
}

func uintReader(typ reflect.Kind) reader {
	switch typ {
	case reflect.Uint8:
		return readUint[uint8]
	case reflect.Uint16:
		return readUint[uint16]
	case reflect.Uint32:
		return readUint[uint32]
	case reflect.Uint64:
		return readUint[uint64]
	case reflect.Uint:
		return readUint[uint]
	}
	return nil
}

// textReader reads text: what MarshalText says, or a string. A time says its text in a form of its own.
func textReader(typ reflect.Type) reader {
	switch {
	case typ == timeType:
		return nil
	case reflect.PointerTo(typ).Implements(textMarshalerOf):
		return marshalReader(typ)
	case typ.Kind() == reflect.String:
		return func(p unsafe.Pointer, v *Value) (reason, detail string) {
			s := *(*string)(p)
			v.Bytes = unsafe.Slice(unsafe.StringData(s), len(s))
			return "", ""
		}
	}
	return nil
}

// marshalReader calls MarshalText on the field itself, through a pointer, so that nothing is copied.
func marshalReader(typ reflect.Type) reader {
	return func(p unsafe.Pointer, v *Value) (reason, detail string) {
		text, err := reflect.NewAt(typ, p).Interface().(encoding.TextMarshaler).MarshalText()
		if err != nil {
			return ReasonWrongType, "MarshalText of " + typ.String() + ": " + err.Error()
		}
		v.Bytes = text
		return "", ""
	}
}

// bytesReader reads a byte slice or array. A nil slice is NULL where the column allows it, as it is to database/sql.
func bytesReader(typ reflect.Type, nullable bool) reader {
	switch {
	case typ.Kind() == reflect.Slice && typ.Elem().Kind() == reflect.Uint8 && typ != rawMessageType:
		return func(p unsafe.Pointer, v *Value) (reason, detail string) {
			v.Bytes = *(*[]byte)(p)
			v.Null = nullable && v.Bytes == nil
			return "", ""
		}
	case typ.Kind() == reflect.Array && typ.Elem().Kind() == reflect.Uint8:
		length := typ.Len()
		return func(p unsafe.Pointer, v *Value) (reason, detail string) {
			v.Bytes = unsafe.Slice((*byte)(p), length)
			return "", ""
		}
	}
	return nil
}

func jsonReader(nullable bool) reader {
	return func(p unsafe.Pointer, v *Value) (reason, detail string) {
		v.Bytes = *(*json.RawMessage)(p)
		if nullable && (v.Bytes == nil || string(v.Bytes) == "null") {
			*v = Value{Null: true}
		}
		return "", ""
	}
}

func readDatetime(p unsafe.Pointer, v *Value) (reason, detail string) {
	t := *(*time.Time)(p)
	micros, ok := microsOf(t)
	if !ok {
		return ReasonOutOfRange, "year " + strconv.Itoa(t.UTC().Year()) + " is " + outsideYears
	}
	v.Int = micros
	return "", ""
}

// readDate takes the calendar date that the time shows in its own location, and refuses one that shows a time of day
// too: which date that is depends on a zone that the column does not have.
func readDate(p unsafe.Pointer, v *Value) (reason, detail string) {
	t := *(*time.Time)(p)
	year, month, day := t.Date()
	if hour, minute, second := t.Clock(); hour|minute|second|t.Nanosecond() != 0 {
		return ReasonWrongType, t.Format(time.RFC3339Nano) + " has a time of day, which a date cannot hold: give it midnight"
	}
	if year < 1 || year > 9999 {
		return ReasonOutOfRange, "year " + strconv.Itoa(year) + " is " + outsideYears
	}
	v.Int = daysOf(year, int(month), day)
	return "", ""
}

func dateTextReader(read reader) reader {
	if read == nil {
		return nil
	}
	return func(p unsafe.Pointer, v *Value) (reason, detail string) {
		if reason, detail = read(p, v); reason != "" {
			return reason, detail
		}
		days, ok := parseDate(v.Bytes)
		if !ok {
			return ReasonWrongType, notADate(v.Bytes)
		}
		*v = Value{Int: days}
		return "", ""
	}
}

// whyNot says why a Go type cannot hold a column, and which could.
func whyNot(typ reflect.Type, c *Column) (why, write string) {
	change := "; or change the column to "
	switch k := typ.Kind(); {
	case c.Type.Kind == Decimal && k >= reflect.Int && k <= reflect.Uint64:
		why = article(typ.String()) + " cannot hold it without a silent factor of " + factor(c.Type.Scale)
		if c.Type.Scale == 0 {
			why = "a decimal is text in an event, so that no language rounds it"
		}
		return why, goType(c) + ", or any type with MarshalText" + change + integerFor(k) + " before the first apply"
	case c.Type.Kind == Decimal && (k == reflect.Float32 || k == reflect.Float64):
		return article(typ.String()) + " cannot hold most decimal fractions", goType(c) + ", or any type with MarshalText" +
			change + "float64 before the first apply"
	case c.Type.Kind.integer() && k >= reflect.Int && k <= reflect.Uint64:
		return "some values of " + typ.String() + " are not within " + c.Type.String(), goType(c) + change + integerFor(k) + " before the first apply"
	case (c.Type.Kind == String || c.Type.Kind == Text || c.Type.Kind == Decimal) && typ != timeType:
		return "neither a string nor a type with MarshalText", goType(c) + ", or any type with MarshalText"
	}
	return "", goType(c)
}

func article(name string) string {
	if strings.HasPrefix(name, "int") {
		return "an " + name
	}
	return "a " + name
}

func factor(scale int) string {
	return "1" + strings.Repeat("0", scale)
}

// integerFor is the narrowest column that holds every value of a Go integer.
func integerFor(k reflect.Kind) string {
	switch k {
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Uint8, reflect.Uint16:
		return "int32"
	case reflect.Uint64, reflect.Uint:
		return "uint64"
	}
	return "int64"
}
