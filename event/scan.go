package event

import (
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"
)

// scratch is memory that a scanner needs besides its input; it is kept from one input to the next.
type scratch struct {
	arena []byte   // what cannot be a slice of the input: unescaped text, decoded base64, padded decimals, compact JSON
	keys  [][]byte // of the JSON objects that are open, innermost last
}

// scanner walks over JSON bytes once. Its methods return false after setting reason and detail; position p is then
// where it stopped. A slice of the arena stays valid when the arena moves: what it points to is left behind.
type scanner struct {
	b []byte
	p int
	*scratch
	spaced bool // value met white space inside a JSON value

	reason string
	detail string
}

func (s *scanner) fail(reason, detail string) bool {
	s.reason, s.detail = reason, detail
	return false
}

// malformed says what was wanted where the scanner stands.
func (s *scanner) malformed(wanted string) bool {
	return s.fail(ReasonMalformed, "at byte "+strconv.Itoa(s.p)+": wanted "+wanted+", found "+s.found())
}

func (s *scanner) wrongType(wanted string) bool {
	if s.p >= len(s.b) {
		return s.malformed(wanted)
	}
	return s.fail(ReasonWrongType, "wanted "+wanted+", found "+s.found())
}

// found names what begins where the scanner stands, for a person.
func (s *scanner) found() string {
	if s.p >= len(s.b) {
		return "the end"
	}
	switch c := s.b[s.p]; {
	case c == '"':
		return "a string"
	case c == '{':
		return "an object"
	case c == '[':
		return "a list"
	case c == 't' || c == 'f':
		return "a bool"
	case c == 'n':
		return "null"
	case c == '-' || '0' <= c && c <= '9':
		return "the number " + quoteBounded(s.b[s.p:s.tokenEnd()])
	}
	return quoteBounded(s.b[s.p : s.p+1])
}

// tokenEnd is where the number or literal that begins at p ends, were it one.
func (s *scanner) tokenEnd() int {
	for i := s.p; i < len(s.b); i++ {
		switch c := s.b[i]; {
		case c == '-' || c == '+' || c == '.' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z':
		default:
			return i
		}
	}
	return len(s.b)
}

// space skips white space, of which there mostly is none.
func (s *scanner) space() {
	if s.p >= len(s.b) || s.b[s.p] > ' ' {
		return
	}
	s.skipSpace()
}

func (s *scanner) skipSpace() {
	for s.p < len(s.b) {
		switch s.b[s.p] {
		case ' ', '\t', '\n', '\r':
			s.p++
		default:
			return
		}
	}
}

// peek is the next byte, or 0 at the end: NUL begins nothing in JSON.
func (s *scanner) peek() byte {
	if s.p < len(s.b) {
		return s.b[s.p]
	}
	return 0
}

// literal takes word, which must not go on with another letter; the caller's next check sees to that.
func (s *scanner) literal(word string) bool {
	if len(s.b)-s.p < len(word) || string(s.b[s.p:s.p+len(word)]) != word {
		return s.malformed(word)
	}
	s.p += len(word)
	return true
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// plainEnd is the first position from p on that holds a quote, a backslash or a control character, or len(b); ascii
// says whether every byte before it is below 0x80. It reads eight bytes at a time: in each lane the high bit of
// (x-n)&^x shows a byte below n, and a borrow can only spoil lanes above the first hit.
func plainEnd(b []byte, p int) (end int, ascii bool) {
	var seen uint64
	for ; p+8 <= len(b); p += 8 {
		x := binary.LittleEndian.Uint64(b[p:])
		quote := x ^ ones*'"'
		slash := x ^ ones*'\\'
		hit := ((x - ones*0x20) &^ x) | ((quote - ones) &^ quote) | ((slash - ones) &^ slash)
		if hit &= highs; hit != 0 {
			n := bits.TrailingZeros64(hit)
			seen |= x & (1<<(n&^7) - 1)
			return p + n/8, seen&highs == 0
		}
		seen |= x
	}
	for ; p < len(b); p++ {
		c := b[p]
		if c == '"' || c == '\\' || c < 0x20 {
			break
		}
		seen |= uint64(c)
	}
	return p, seen&highs == 0
}

// text takes a string: a slice of the input, or of the arena when it holds escapes.
func (s *scanner) text() (text []byte, ok bool) {
	start := s.p + 1
	end, ascii := plainEnd(s.b, start)
	if end < len(s.b) && s.b[end] == '"' {
		text = s.b[start:end]
		if !ascii && !utf8.Valid(text) {
			s.p = start
			return nil, s.fail(ReasonBadText, "invalid UTF-8 in "+quoteBounded(text))
		}
		s.p = end + 1
		return text, true
	}
	return s.escaped(start)
}

// escaped is text from start on for a string with escapes.
func (s *scanner) escaped(start int) (text []byte, ok bool) {
	base := len(s.arena)
	for p := start; ; {
		end, ascii := plainEnd(s.b, p)
		if !ascii && !utf8.Valid(s.b[p:end]) {
			return nil, s.fail(ReasonBadText, "invalid UTF-8 in "+quoteBounded(s.b[p:end]))
		}
		s.arena = append(s.arena, s.b[p:end]...)
		s.p = end
		switch s.peek() {
		case '"':
			s.p++
			return s.arena[base:len(s.arena):len(s.arena)], true
		case '\\':
			if !s.escape() {
				return nil, false
			}
			p = s.p
		default:
			if end < len(s.b) {
				return nil, s.malformed("no control character in a string")
			}
			return nil, s.malformed("the end of a string")
		}
	}
}

// escape takes one escape and appends what it stands for.
func (s *scanner) escape() bool {
	if s.p+1 >= len(s.b) {
		s.p = len(s.b)
		return s.malformed("the rest of an escape")
	}
	c := s.b[s.p+1]
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		return s.escapeRune()
	default:
		return s.malformed("an escape that JSON has")
	}
	s.arena = append(s.arena, c)
	s.p += 2
	return true
}

func (s *scanner) escapeRune() bool {
	r, ok := s.unit(s.p)
	if !ok {
		return s.malformed("four hexadecimal digits after \\u")
	}
	length := len(`\ud83d`)
	if utf16.IsSurrogate(r) {
		low, ok := s.unit(s.p + length)
		r = utf16.DecodeRune(r, low)
		if !ok || r == utf8.RuneError {
			return s.fail(ReasonBadText, "half of a surrogate pair in \\u escapes at byte "+strconv.Itoa(s.p))
		}
		length *= 2
	}
	s.arena = utf8.AppendRune(s.arena, r)
	s.p += length
	return true
}

// unit reads the UTF-16 unit of the escape "\ud83d" at p.
func (s *scanner) unit(p int) (r rune, ok bool) {
	if p+6 > len(s.b) || s.b[p] != '\\' || s.b[p+1] != 'u' {
		return 0, false
	}
	for _, c := range s.b[p+2 : p+6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// integer takes an exact JSON integer and splits off its sign. -0 is refused with fractions and exponents: an integer
// has one text, which is also its canonical one.
func (s *scanner) integer(k Kind) (magnitude uint64, negative, ok bool) {
	start := s.p
	p := s.p
	if p < len(s.b) && s.b[p] == '-' {
		negative = true
		p++
	}
	first := p
	for ; p < len(s.b); p++ {
		d := s.b[p] - '0'
		if d > 9 {
			break
		}
		// Nineteen digits always fit; the twentieth may not.
		if p-first >= 19 && (p-first > 19 || magnitude > (math.MaxUint64-uint64(d))/10) {
			s.p = start
			return 0, false, s.outOfRange(k)
		}
		magnitude = magnitude*10 + uint64(d)
	}
	if p == first {
		return 0, false, s.wrongType("an integer")
	}
	if s.b[first] == '0' && (p-first > 1 || negative) || p < len(s.b) && (s.b[p] == '.' || s.b[p]|0x20 == 'e') {
		return 0, false, s.wrongType("an integer without fraction, exponent, leading zeros or minus zero")
	}
	s.p = p
	return magnitude, negative, true
}

func (s *scanner) outOfRange(k Kind) bool {
	return s.fail(ReasonOutOfRange, quoteBounded(s.b[s.p:s.tokenEnd()])+" is not within "+k.String())
}

// number takes a JSON number and returns its text.
func (s *scanner) number() (text []byte, exponent, ok bool) {
	start, p := s.p, s.p
	if p < len(s.b) && s.b[p] == '-' {
		p++
	}
	whole := p
	p = s.digits(p)
	if p == whole || s.b[whole] == '0' && p > whole+1 {
		return nil, false, s.wrongType("a number")
	}
	if p < len(s.b) && s.b[p] == '.' {
		fraction := p + 1
		if p = s.digits(fraction); p == fraction {
			return nil, false, s.wrongType("a number")
		}
	}
	if p < len(s.b) && s.b[p]|0x20 == 'e' {
		exponent = true
		p++
		if p < len(s.b) && (s.b[p] == '+' || s.b[p] == '-') {
			p++
		}
		first := p
		if p = s.digits(first); p == first {
			return nil, false, s.wrongType("a number")
		}
	}
	s.p = p
	return s.b[start:p], exponent, true
}

func (s *scanner) digits(p int) int {
	for p < len(s.b) && s.b[p]-'0' <= 9 {
		p++
	}
	return p
}

// float takes a JSON number as the float64 that is nearest to it.
func (s *scanner) float() (f float64, ok bool) {
	start := s.p
	text, _, ok := s.number()
	if !ok {
		return 0, false
	}
	f, err := strconv.ParseFloat(view(text), 64)
	if err != nil {
		s.p = start
		return 0, s.outOfRange(Float64)
	}
	return f, true
}

// view reads bytes as a string without a copy. Safe where the string does not outlive the call.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
