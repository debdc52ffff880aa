package event

import (
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

// packedName is a header's name behind its length, as two words and what counts of them: a name is at most fifteen bytes.
type packedName struct {
	bytes             int
	first, second     uint64
	inFirst, inSecond uint64
}

const packedNameBytesMax = 16

// packedNames are headerNames, packed.
var packedNames = func() (list [len(headerNames)]packedName) {
	for i, name := range headerNames {
		var text, mask [packedNameBytesMax]byte
		n := copy(text[:], append(binary.AppendVarint(nil, int64(len(name))), name...))
		for at := range n {
			mask[at] = 0xff
		}
		list[i] = packedName{n, binary.LittleEndian.Uint64(text[:]), binary.LittleEndian.Uint64(text[8:]),
			binary.LittleEndian.Uint64(mask[:]), binary.LittleEndian.Uint64(mask[8:])}
	}
	return list
}()

// collectPacked is collectHeaders of packed ones.
func collectPacked(p []byte, h *[len(headerNames)][]byte) error {
	count, p, ok := packedCount(p)
	at := collectOurs(&p, min(count, len(h)), h)
	for ; ok && at < count; at++ {
		var name, value []byte
		if name, p, ok = packedText(p); ok {
			value, p, ok = packedText(p)
		}
		if !ok {
			break
		}
		if err := setHeader(h, headerPlace(name, at), value); err != nil {
			return err
		}
	}
	if !ok {
		return recordError("its headers end too early")
	}
	return checkHeaders(h)
}

// collectOurs takes the headers of a record of ours off p, up to the first that is not in its place or has a value of
// more than 63 bytes, or none; how many it took.
func collectOurs(p *[]byte, count int, h *[len(headerNames)][]byte) (n int) {
	b := *p
	for ; n < count; n++ {
		name := &packedNames[n]
		if len(b) <= packedNameBytesMax || binary.LittleEndian.Uint64(b)&name.inFirst != name.first ||
			binary.LittleEndian.Uint64(b[8:])&name.inSecond != name.second {
			break
		}
		from := name.bytes + 1
		length := b[from-1] // a zigzag varint: even, and below 0x80, is the double of a length below 64
		to := from + int(length>>1)
		if length&0x81 != 0 || to > len(b) {
			break
		}
		h[n], b = b[from:to:to], b[to:]
	}
	*p = b
	return n
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
