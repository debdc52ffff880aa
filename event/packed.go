package event

import (
	"bytes"
	"encoding/binary"
)

// Packed headers are a count, then each header's name and value, every number a zigzag varint and every text behind its
// length: as they lie in a Kafka record.

// Unpacked is the record's headers, whichever way it holds them. Of packed ones that end too early it is those before.
func (r *Record) Unpacked() []Header {
	if r.Packed == nil {
		return r.Headers
	}
	count, p, ok := packedCount(r.Packed)
	var list []Header
	for ; ok && count > 0; count-- {
		var name, value []byte
		if name, p, ok = packedText(p); ok {
			value, p, ok = packedText(p)
		}
		if ok {
			list = append(list, Header{string(name), value})
		}
	}
	return list
}

// packedNames are headerNames behind their lengths.
var packedNames = func() (list [len(headerNames)][]byte) {
	for i, name := range headerNames {
		list[i] = append(binary.AppendVarint(nil, int64(len(name))), name...)
	}
	return list
}()

// collectPacked is collectHeaders of packed ones.
func collectPacked(p []byte, h *[len(headerNames)][]byte) error {
	count, p, ok := packedCount(p)
	for i := 0; ok && i < count; i++ {
		var name, value []byte
		at := i
		if i < len(headerNames) && bytes.HasPrefix(p, packedNames[i]) { // a record of ours
			p = p[len(packedNames[i]):]
		} else {
			name, p, ok = packedText(p)
			at = headerPlace(name, i)
		}
		if ok {
			value, p, ok = packedText(p)
		}
		if !ok {
			break
		}
		if err := setHeader(h, at, value); err != nil {
			return err
		}
	}
	if !ok {
		return recordError("its headers end too early")
	}
	return checkHeaders(h)
}

// packedCount reads how many headers follow; a negative number is none, as Kafka's clients have it.
func packedCount(p []byte) (count int, rest []byte, ok bool) {
	n, used := binary.Varint(p)
	if used <= 0 || n > int64(len(p)) {
		return 0, nil, false
	}
	return int(max(0, n)), p[used:], true
}

// packedText reads one text; a negative length is nil.
func packedText(p []byte) (text, rest []byte, ok bool) {
	n, used := int64(0), 0
	if len(p) > 0 && p[0] < 0x80 {
		n, used = int64(p[0]>>1)^-int64(p[0]&1), 1
	} else {
		n, used = binary.Varint(p)
	}
	switch {
	case used <= 0 || n > int64(len(p)-used):
		return nil, nil, false
	case n < 0:
		return nil, p[used:], true
	}
	end := used + int(n)
	return p[used:end:end], p[end:], true
}
