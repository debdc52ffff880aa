package event

import (
	"crypto/rand"
	"fmt"
)

// NewID is a random id (a version 4 UUID). It reads the system's random source, which does not fail.
func NewID() (id ID) {
	rand.Read(id[:]) // never returns an error: the runtime ends the process instead
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id
}

const idTextBytes = 36

// String is the UUID form, 8-4-4-4-12 lower-case hexadecimal digits.
func (id ID) String() string { return string(id.AppendText(make([]byte, 0, idTextBytes))) }

// AppendText appends what String returns.
func (id ID) AppendText(b []byte) []byte {
	const digits = "0123456789abcdef"
	for i, c := range id {
		switch i {
		case 4, 6, 8, 10:
			b = append(b, '-')
		}
		b = append(b, digits[c>>4], digits[c&0xf])
	}
	return b
}

// ParseID reads what String writes, and nothing else.
func ParseID(text string) (ID, error) {
	id, ok := parseID(text)
	if !ok {
		return ID{}, fmt.Errorf("event id %s is not of the form 8-4-4-4-12 lower-case hexadecimal digits", quoteBounded(text))
	}
	return id, nil
}

func parseID[S string | []byte](text S) (id ID, ok bool) {
	if len(text) != idTextBytes {
		return ID{}, false
	}
	p := 0
	for i := range id {
		switch i {
		case 4, 6, 8, 10:
			if text[p] != '-' {
				return ID{}, false
			}
			p++
		}
		hi, lo := nibble(text[p]), nibble(text[p+1])
		if hi|lo > 0xf {
			return ID{}, false
		}
		id[i] = hi<<4 | lo
		p += 2
	}
	return id, true
}

func nibble(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	}
	return 0xff
}
