package wire

import (
	"fmt"
	"strconv"
	"strings"
)

type shape int

const (
	shapeFixed          shape = iota // size bytes a row
	shapeString                      // length and bytes, for each row
	shapeNullable                    // a byte a row, then the rows of inner[0]
	shapeLowCardinality              // dictionary of inner[0] and indexes
	shapeArray                       // 8-byte end offsets, then the elements of inner[0]
	shapeTuple                       // the rows of each inner
)

// node is a column type, as far as the length of its data depends on it.
type node struct {
	shape shape
	size  uint64
	inner []*node
}

// sizes of the types that have no parameters, or whose parameters do not change it.
var sizes = map[string]uint64{
	"UInt8": 1, "UInt16": 2, "UInt32": 4, "UInt64": 8, "UInt128": 16, "UInt256": 32,
	"Int8": 1, "Int16": 2, "Int32": 4, "Int64": 8, "Int128": 16, "Int256": 32,
	"Float32": 4, "Float64": 8, "BFloat16": 2, "Bool": 1,
	"Date": 2, "Date32": 4, "DateTime": 4, "DateTime32": 4, "DateTime64": 8, "Time": 4, "Time64": 8,
	"Decimal32": 4, "Decimal64": 8, "Decimal128": 16, "Decimal256": 32,
	"Enum8": 1, "Enum16": 2, "UUID": 16, "IPv4": 4, "IPv6": 16, "Nothing": 1,
}

// geo types are names for nested ones.
var geo = map[string]string{
	"Point": "Tuple(Float64, Float64)", "Ring": "Array(Point)", "LineString": "Array(Point)",
	"MultiLineString": "Array(LineString)", "Polygon": "Array(Ring)", "MultiPolygon": "Array(Polygon)",
}

func parseType(text string) (*node, error) { return parseTypeAt(text, 0) }

func parseTypeAt(text string, depth int) (*node, error) {
	if depth > typeDepthMax {
		return nil, fmt.Errorf("%w: nested deeper than %d", ErrType, typeDepthMax)
	}
	text = strings.TrimSpace(text)
	name, body, hasBody := strings.Cut(text, "(")
	name = strings.TrimSpace(name)
	var args []string
	if hasBody {
		if !strings.HasSuffix(body, ")") {
			return nil, fmt.Errorf("%w: %q has no closing bracket", ErrType, text)
		}
		var err error
		if args, err = splitArguments(body[:len(body)-1]); err != nil {
			return nil, fmt.Errorf("%w: %q: %v", ErrType, text, err)
		}
	}
	if size, ok := sizes[name]; ok {
		return &node{shape: shapeFixed, size: size}, nil
	}
	if strings.HasPrefix(name, "Interval") {
		return &node{shape: shapeFixed, size: 8}, nil
	}
	if alias, ok := geo[name]; ok {
		return parseTypeAt(alias, depth+1)
	}
	one := func(s shape) (*node, error) {
		if len(args) != 1 {
			return nil, fmt.Errorf("%w: %q", ErrType, text)
		}
		inner, err := parseTypeAt(args[0], depth+1)
		if err != nil {
			return nil, err
		}
		return &node{shape: s, inner: []*node{inner}}, nil
	}
	switch name {
	case "String":
		return &node{shape: shapeString}, nil
	case "FixedString":
		n, err := numberArgument(args, 0)
		if err != nil || n == 0 || n > 0xFFFFFF {
			return nil, fmt.Errorf("%w: %q", ErrType, text)
		}
		return &node{shape: shapeFixed, size: n}, nil
	case "Decimal":
		n, err := numberArgument(args, 0)
		if err != nil || n == 0 || n > 76 {
			return nil, fmt.Errorf("%w: %q", ErrType, text)
		}
		size := uint64(4)
		for _, step := range []struct{ precision, size uint64 }{{9, 8}, {18, 16}, {38, 32}} {
			if n > step.precision {
				size = step.size
			}
		}
		return &node{shape: shapeFixed, size: size}, nil
	case "Nullable":
		return one(shapeNullable)
	case "LowCardinality":
		n, err := one(shapeLowCardinality)
		if err == nil && n.inner[0].shape == shapeNullable {
			// NULL is an index of the dictionary, which itself holds plain values.
			n.inner[0] = n.inner[0].inner[0]
		}
		return n, err
	case "Array":
		return one(shapeArray)
	case "SimpleAggregateFunction":
		if len(args) != 2 {
			return nil, fmt.Errorf("%w: %q", ErrType, text)
		}
		return parseTypeAt(args[1], depth+1)
	case "Tuple", "Map", "Nested":
		if len(args) == 0 || name == "Map" && len(args) != 2 {
			return nil, fmt.Errorf("%w: %q", ErrType, text)
		}
		tuple := &node{shape: shapeTuple}
		for _, arg := range args {
			if name != "Map" {
				arg = withoutElementName(arg)
			}
			inner, err := parseTypeAt(arg, depth+1)
			if err != nil {
				return nil, err
			}
			tuple.inner = append(tuple.inner, inner)
		}
		if name == "Tuple" {
			return tuple, nil
		}
		return &node{shape: shapeArray, inner: []*node{tuple}}, nil
	}
	return nil, fmt.Errorf("%w: %q", ErrType, text)
}

func numberArgument(args []string, i int) (uint64, error) {
	if i >= len(args) {
		return 0, ErrType
	}
	return strconv.ParseUint(strings.TrimSpace(args[i]), 10, 32)
}

// withoutElementName drops the name of a tuple's element: `a UInt8` and "`a b` UInt8" are UInt8. An element
// without a name has no space before its first bracket.
func withoutElementName(arg string) string {
	arg = strings.TrimSpace(arg)
	if strings.HasPrefix(arg, "`") {
		if end := quotedEnd(arg, '`'); end > 0 {
			return arg[end:]
		}
		return arg
	}
	space := strings.IndexByte(arg, ' ')
	bracket := strings.IndexByte(arg, '(')
	if space > 0 && (bracket < 0 || space < bracket) {
		return arg[space:]
	}
	return arg
}

// quotedEnd returns the index after the quoted text that s begins with, 0 when it does not end.
func quotedEnd(s string, quote byte) int {
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			i++
		case s[i] == quote && i+1 < len(s) && s[i+1] == quote:
			i++
		case s[i] == quote:
			return i + 1
		}
	}
	return 0
}

// splitArguments cuts at the commas outside brackets and quotes.
func splitArguments(s string) ([]string, error) {
	if strings.TrimSpace(s) == "" {
		return nil, nil
	}
	var (
		args  []string
		start int
		level int
	)
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\'', '`', '"':
			end := quotedEnd(s[i:], s[i])
			if end == 0 {
				return nil, fmt.Errorf("a quote is not closed")
			}
			i += end - 1
		case '(':
			level++
		case ')':
			level--
			if level < 0 {
				return nil, fmt.Errorf("a bracket too many")
			}
		case ',':
			if level == 0 {
				args = append(args, s[start:i])
				start = i + 1
			}
		}
	}
	if level != 0 {
		return nil, fmt.Errorf("a bracket is not closed")
	}
	return append(args, s[start:]), nil
}
