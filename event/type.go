package event

import (
	"strconv"
	"strings"

	"github.com/slotline/slotline/fault"
)

// Bounds of column types. They are the narrowest that every engine can declare; what an engine holds of the values is in
// Limits.
const (
	StringLengthMax     = 16_383 // code points: MySQL's VARCHAR is at most 65,535 bytes, four for each
	BytesLengthMax      = 65_532 // bytes: the same, less the length and the NULL bit
	DecimalPrecisionMax = 65     // MySQL's DECIMAL
	DecimalScaleMax     = 30
)

// kinds is the one list of type names; the arguments that a type takes are the rest of its text.
var kinds = [...]struct {
	name      string
	arguments int
}{
	Bool: {"bool", 0}, Int32: {"int32", 0}, Int64: {"int64", 0}, Uint64: {"uint64", 0}, Float64: {"float64", 0},
	Decimal: {"decimal", 2}, String: {"string", 1}, Text: {"text", 0}, Bytes: {"bytes", 1}, Date: {"date", 0},
	Datetime: {"datetime", 0}, JSON: {"json", 0},
}

// aliases are names that other systems give to our types, for the suggestion in an error.
var aliases = map[string]Kind{
	"boolean": Bool, "tinyint": Int32, "smallint": Int32, "int": Int64, "integer": Int64, "int8": Int32, "int16": Int32,
	"uint8": Int32, "uint16": Int32, "uint32": Int64, "uint": Uint64, "bigint": Int64, "float": Float64, "double": Float64,
	"float32": Float64, "real": Float64, "numeric": Decimal, "number": Decimal, "varchar": String, "char": String,
	"str": String, "longtext": Text, "mediumtext": Text, "binary": Bytes, "varbinary": Bytes, "blob": Bytes,
	"timestamp": Datetime, "datetime64": Datetime, "time": Datetime, "jsonb": JSON, "object": JSON,
}

func (k Kind) String() string {
	if k == 0 || int(k) >= len(kinds) {
		return "Kind(" + strconv.Itoa(int(k)) + ")"
	}
	return kinds[k].name
}

func (k Kind) integer() bool { return k == Int32 || k == Int64 || k == Uint64 }

// ParseType reads a column type as slotline.yaml writes it; a trailing "?" makes the column nullable. The error is a
// *fault.Error of class Usage, with what to write instead.
func ParseType(s string) (t Type, nullable bool, err error) {
	text, nullable := strings.CutSuffix(strings.TrimSpace(s), "?")
	name, rest, hasArguments := strings.Cut(text, "(")
	for k := Bool; int(k) < len(kinds); k++ {
		if kinds[k].name == name {
			t.Kind = k
		}
	}
	if t.Kind == 0 {
		return Type{}, false, unknownType(s, name, rest, nullable)
	}
	arguments, ok := parseArguments(rest, hasArguments)
	if !ok || len(arguments) != kinds[t.Kind].arguments {
		return Type{}, false, typeError("type "+quoteBounded(s)+": "+argumentsWanted(t.Kind), typeExample(t.Kind, nullable))
	}
	t = t.Kind.with(arguments)
	if what, write := t.bounds(); what != "" {
		return Type{}, false, typeError("type "+quoteBounded(s)+": "+what, write+optional(nullable))
	}
	return t, nullable, nil
}

// with is the type of kind k that takes these arguments.
func (k Kind) with(arguments []int) Type {
	t := Type{Kind: k}
	switch k {
	case String, Bytes:
		t.Length = arguments[0]
	case Decimal:
		t.Precision, t.Scale = arguments[0], arguments[1]
	}
	return t
}

// parseArguments reads "12,2)".
func parseArguments(rest string, hasArguments bool) (arguments []int, ok bool) {
	if !hasArguments {
		return nil, true
	}
	list, ok := strings.CutSuffix(rest, ")")
	if !ok {
		return nil, false
	}
	for part := range strings.SplitSeq(list, ",") {
		digits := strings.TrimSpace(part)
		n, err := strconv.ParseUint(digits, 10, 31)
		if err != nil || digits != strconv.FormatUint(n, 10) {
			return nil, false
		}
		arguments = append(arguments, int(n))
	}
	return arguments, true
}

// bounds says what is wrong with the type's arguments, and which type comes nearest.
func (t Type) bounds() (what, write string) {
	switch t.Kind {
	case String:
		if t.Length < 1 || t.Length > StringLengthMax {
			return "the length is 1 to " + strconv.Itoa(StringLengthMax) + " code points; text has no bound of its own",
				nearest(t.Length, StringLengthMax, "string", "text")
		}
	case Bytes:
		if t.Length < 1 || t.Length > BytesLengthMax {
			return "the length is 1 to " + strconv.Itoa(BytesLengthMax) + " bytes",
				nearest(t.Length, BytesLengthMax, "bytes", "bytes("+strconv.Itoa(BytesLengthMax)+")")
		}
	case Decimal:
		precision := min(max(t.Precision, 1), DecimalPrecisionMax)
		scale := min(t.Scale, DecimalScaleMax, precision)
		if precision != t.Precision || scale != t.Scale || scale < 0 {
			return "the precision is 1 to " + strconv.Itoa(DecimalPrecisionMax) + ", the scale 0 to " +
				strconv.Itoa(DecimalScaleMax) + " and not above the precision", Type{Kind: Decimal, Precision: precision, Scale: max(scale, 0)}.String()
		}
	}
	return "", ""
}

func nearest(length, most int, name, above string) string {
	if length > most {
		return above
	}
	return name + "(1)"
}

func argumentsWanted(k Kind) string {
	switch kinds[k].arguments {
	case 0:
		return k.String() + " takes no arguments"
	case 1:
		return k.String() + " takes a length"
	}
	return k.String() + " takes a precision and a scale"
}

func typeExample(k Kind, nullable bool) string {
	example := Type{Kind: k, Length: 100, Precision: 12, Scale: 2}
	return example.String() + optional(nullable)
}

func unknownType(s, name, rest string, nullable bool) error {
	what := "type " + quoteBounded(s) + " is not known"
	if k, ok := aliases[strings.ToLower(strings.TrimSpace(name))]; ok {
		if arguments, ok := parseArguments(rest, true); ok && len(arguments) == kinds[k].arguments {
			return typeError(what, k.with(arguments).String()+optional(nullable))
		}
		return typeError(what, typeExample(k, nullable))
	}
	return typeError(what, "one of bool int32 int64 uint64 float64 decimal(p,s) string(n) text bytes(n) date datetime json; "+
		"a trailing ? allows NULL")
}

func typeError(what, write string) error {
	return &fault.Error{Code: "SL1102", Class: fault.Usage, What: what, Write: write}
}

func optional(nullable bool) string {
	if nullable {
		return "?"
	}
	return ""
}

// String is the form that ParseType reads.
func (t Type) String() string {
	switch t.Kind {
	case String, Bytes:
		return t.Kind.String() + "(" + strconv.Itoa(t.Length) + ")"
	case Decimal:
		return "decimal(" + strconv.Itoa(t.Precision) + "," + strconv.Itoa(t.Scale) + ")"
	}
	return t.Kind.String()
}

// TypeText is the type as slotline.yaml writes it: "int32?".
func (c Column) TypeText() string { return c.Type.String() + optional(c.Nullable) }

// String is the column as slotline.yaml writes it: "arr_delay: int32?".
func (c Column) String() string { return c.Name + ": " + c.TypeText() }
