package event

import (
	"crypto/rand"
	"encoding/binary"
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
	id, ok := parseID([]byte(text))
	if !ok {
		return ID{}, fmt.Errorf("event id %s is not of the form 8-4-4-4-12 lower-case hexadecimal digits", quoteBounded(text))
	}
	return id, nil
}

func parseID(text []byte) (id ID, ok bool) {
	if len(text) != idTextBytes || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return ID{}, false
	}
	be := binary.BigEndian
	ok = true
	for i, digits := range [4]uint64{be.Uint64(text), uint64(be.Uint32(text[9:]))<<32 | uint64(be.Uint32(text[14:])),
		uint64(be.Uint32(text[19:]))<<32 | uint64(be.Uint32(text[24:])), be.Uint64(text[28:])} {
		n, valid := eightNibbles(digits)
		be.PutUint32(id[4*i:], n)
		ok = ok && valid
	}
	return id, ok
}

// eightNibbles reads eight lower-case hexadecimal digits at once, the first in the highest byte. A letter is told by a bit
// that no digit has; the number that it stands for, nine above its low half, is at least ten, and that of a digit is not.
func eightNibbles(text uint64) (n uint32, ok bool) {
	letters := text >> 6 & ones
	values := text&(ones*0x0f) + letters*9
	ok = text&(ones*0xf0) == ones*0x30+letters*0x30 && values&(ones*0x10) == 0 && (values+ones*6)&(ones*0x10) == letters<<4
	values = (values | values>>4) & 0x00ff00ff00ff00ff
	values = (values | values>>8) & 0x0000ffff0000ffff
	return uint32(values | values>>16), ok
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
