package event

import "strconv"

// Bounds of a json column's value, the same for every sink: MySQL has the narrowest.
const (
	JSONDepthMax    = 100    // objects and lists within each other; MySQL error 3157 beyond
	JSONKeyBytesMax = 65_535 // MySQL error 3151 beyond
)

// jsonNumberDigitsSafe is a number of digits that no float64 overflows on without an exponent.
const jsonNumberDigitsSafe = 300

// keysLinearMax is the number of keys of one object up to which looking at each is cheaper than a map.
const keysLinearMax = 32

// jsonColumn takes a whole JSON value and returns it without white space.
func (s *scanner) jsonColumn() (compact []byte, ok bool) {
	start, base := s.p, len(s.arena)
	s.spaced = false
	s.keys = s.keys[:0]
	if !s.jsonValue(0) {
		return nil, false
	}
	s.arena = s.arena[:base] // keys were unescaped into it
	text := s.b[start:s.p]
	if !s.spaced {
		return text, true
	}
	s.arena = appendCompact(s.arena, text)
	return s.arena[base:len(s.arena):len(s.arena)], true
}

// appendCompact appends valid JSON without the white space between its tokens.
func appendCompact(dst, text []byte) []byte {
	inString := false
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case inString && c == '\\':
			dst = append(dst, c)
			i++
			c = text[i]
		case c == '"':
			inString = !inString
		case !inString && (c == ' ' || c == '\t' || c == '\n' || c == '\r'):
			continue
		}
		dst = append(dst, c)
	}
	return dst
}

// jsonSpace is space inside of a JSON value.
func (s *scanner) jsonSpace() {
	p := s.p
	s.space()
	s.spaced = s.spaced || s.p > p
}

// jsonValue takes a value of any type; depth is the number of objects and lists around it.
func (s *scanner) jsonValue(depth int) bool {
	switch c := s.peek(); {
	case c == '"':
		base := len(s.arena)
		_, ok := s.text()
		s.arena = s.arena[:base]
		return ok
	case c == '{':
		return s.jsonObject(depth + 1)
	case c == '[':
		return s.jsonList(depth + 1)
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	case c == '-' || '0' <= c && c <= '9':
		return s.jsonNumber()
	}
	return s.malformed("a JSON value")
}

// jsonNumber takes a number that a float64 can hold.
func (s *scanner) jsonNumber() bool {
	start := s.p
	text, exponent, ok := s.number()
	if !ok {
		s.reason = ReasonMalformed // no type was asked for
		return false
	}
	if !exponent && len(text) <= jsonNumberDigitsSafe {
		return true
	}
	s.p = start
	_, ok = s.float()
	return ok
}

func (s *scanner) jsonList(depth int) bool {
	if depth > JSONDepthMax {
		return s.tooDeep()
	}
	s.p++
	s.jsonSpace()
	if s.peek() == ']' {
		s.p++
		return true
	}
	for {
		if !s.jsonValue(depth) {
			return false
		}
		s.jsonSpace()
		switch s.peek() {
		case ',':
			s.p++
			s.jsonSpace()
		case ']':
			s.p++
			return true
		default:
			return s.malformed("a comma or the end of a list")
		}
	}
}

func (s *scanner) jsonObject(depth int) bool {
	if depth > JSONDepthMax {
		return s.tooDeep()
	}
	s.p++
	s.jsonSpace()
	if s.peek() == '}' {
		s.p++
		return true
	}
	keys, arena := len(s.keys), len(s.arena)
	var seen map[string]struct{}
	for {
		if s.peek() != '"' {
			return s.malformed("a key")
		}
		key, ok := s.text()
		if !ok {
			return false
		}
		if len(key) > JSONKeyBytesMax {
			return s.fail(ReasonTooLong, "a JSON key of "+strconv.Itoa(len(key))+" bytes, at most "+strconv.Itoa(JSONKeyBytesMax)+" are allowed")
		}
		if seen, ok = s.newKey(key, keys, seen); !ok {
			return s.fail(ReasonDuplicate, "JSON key "+quoteBounded(key)+" comes twice in one object: engines differ in which they keep")
		}
		s.jsonSpace()
		if s.peek() != ':' {
			return s.malformed("a colon")
		}
		s.p++
		s.jsonSpace()
		if !s.jsonValue(depth) {
			return false
		}
		s.jsonSpace()
		switch s.peek() {
		case ',':
			s.p++
			s.jsonSpace()
		case '}':
			s.p++
			s.keys, s.arena = s.keys[:keys], s.arena[:arena]
			return true
		default:
			return s.malformed("a comma or the end of an object")
		}
	}
}

// newKey remembers a key of the object whose keys begin at from; false when the object has it already.
func (s *scanner) newKey(key []byte, from int, seen map[string]struct{}) (map[string]struct{}, bool) {
	if seen == nil {
		for _, known := range s.keys[from:] {
			if string(known) == string(key) {
				return nil, false
			}
		}
		s.keys = append(s.keys, key)
		if len(s.keys)-from > keysLinearMax {
			seen = make(map[string]struct{}, 2*keysLinearMax)
			for _, known := range s.keys[from:] {
				seen[string(known)] = struct{}{}
			}
		}
		return seen, true
	}
	if _, ok := seen[string(key)]; ok {
		return seen, false
	}
	seen[string(key)] = struct{}{}
	return seen, true
}

func (s *scanner) tooDeep() bool {
	return s.fail(ReasonOutOfRange, "JSON within more than "+strconv.Itoa(JSONDepthMax)+" objects and lists")
}
