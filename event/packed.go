package event

import (
	"encoding/binary"
	"time"
)

// Packed headers are what the headers of a record of ours say, in a quarter of their bytes. A record is packed where it is
// fetched, so that its headers are read once, while they are at hand. Numbers are little-endian:
//
//	 0  op
//	 1  bytes of the table's name, 2 of the tenant; both are in the key
//	 3  bytes of the line's name, which the source has
//	 4  id
//	20  version, 28 time in microseconds, 36 layout epoch, 44 generation, 52 outbox id: 8 bytes each
//	60  lane, 4 bytes
//	64  the line's name, then the traceparent
const packedBytes = 64

// AppendPacked packs the headers of a record that AppendRecord made: a count, then each header's name and value, every
// number a zigzag varint and every text behind its length, as they lie in a Kafka record. false: they are not in that
// order, or one of them, or the key, is not as it should be; dst is then as it was.
func AppendPacked(dst, key, headers []byte) (packed []byte, ok bool) {
	var h [len(headerNames)][]byte
	var v View
	if !collectOurs(headers, &h) || string(h[6]) != contentType || !splitKey(key, &v) || v.parseHeaders(&h) != nil {
		return dst, false
	}
	line := h[2][len(sourcePrefix):]
	if len(line) > 0xff {
		return dst, false
	}
	le := binary.LittleEndian
	dst = append(dst, byte(v.Op), byte(len(v.Table)), byte(len(v.Tenant)), byte(len(line)))
	dst = append(dst, v.ID[:]...)
	dst = le.AppendUint64(dst, uint64(v.Version))
	dst = le.AppendUint64(dst, uint64(v.Time.UnixMicro()))
	dst = le.AppendUint64(dst, uint64(v.LayoutEpoch))
	dst = le.AppendUint64(dst, uint64(v.Outbox.Generation))
	dst = le.AppendUint64(dst, v.Outbox.ID)
	dst = le.AppendUint32(dst, uint32(v.Outbox.Lane))
	return append(append(dst, line...), v.TraceParent...), true
}

// packedName is a header's name behind its length, as two words and what counts of them: a name is at most fifteen bytes.
type packedName struct {
	bytes             int
	first, second     uint64
	inFirst, inSecond uint64
}

const packedNameBytesMax = 16

// packedNames are headerNames, as they lie in a record.
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

// collectOurs takes the headers of a record of ours apart: all of them in their order, and no others. The shortest has more
// bytes than a name has at most; a traceparent that is empty has fewer, which is none of ours.
func collectOurs(b []byte, h *[len(headerNames)][]byte) bool {
	if len(b) == 0 || b[0] != byte(headersFixed<<1) && b[0] != byte(len(headerNames)<<1) {
		return false
	}
	count := int(b[0] >> 1)
	b = b[1:]
	for n := range count {
		name := &packedNames[n]
		if len(b) <= packedNameBytesMax || binary.LittleEndian.Uint64(b)&name.inFirst != name.first ||
			binary.LittleEndian.Uint64(b[8:])&name.inSecond != name.second {
			return false
		}
		from := name.bytes + 1
		length := int(b[from-1]) // twice that of a text; odd would be negative
		if length >= 0x80 {
			if from == len(b) || b[from] >= 0x80 {
				return false
			}
			length = length&0x7f | int(b[from])<<7
			from++
		}
		to := from + length>>1
		if length&1 != 0 || to > len(b) {
			return false
		}
		h[n], b = b[from:to:to], b[to:]
	}
	return len(b) == 0
}

// unpack sets what AppendPacked packed; false when it did not pack these for this key.
func (v *View) unpack(key, p []byte) bool {
	if len(p) < packedBytes+1 {
		return false
	}
	table, tenant, line := int(p[1]), int(p[2]), int(p[3])
	if table+tenant+2 > len(key) || packedBytes+line > len(p) {
		return false
	}
	v.Op, v.Table, v.Tenant, v.EntityID = Op(p[0]), key[:table], key[table+1:table+1+tenant], key[table+tenant+2:]
	v.ID = ID(p[4:20])
	le := binary.LittleEndian
	v.Version = int64(le.Uint64(p[20:]))
	v.Time = time.UnixMicro(int64(le.Uint64(p[28:]))).UTC()
	v.LayoutEpoch = int64(le.Uint64(p[36:]))
	v.Outbox = OutboxPosition{Generation: int64(le.Uint64(p[44:])), Lane: int(le.Uint32(p[60:])), ID: le.Uint64(p[52:])}
	v.TraceParent = packedTrace(p)
	return true
}

// packedTrace is the traceparent of packed headers; nil when there is none.
func packedTrace(p []byte) []byte {
	if len(p) < packedBytes {
		return nil
	}
	if from := packedBytes + int(p[3]); from < len(p) {
		return p[from:]
	}
	return nil
}

// Unpacked is the record's headers, whichever way it holds them.
func (r *Record) Unpacked() []Header {
	var v View
	if r.Packed == nil || !v.unpack(r.Key, r.Packed) {
		return r.Headers
	}
	e := Event{ID: v.ID, Table: string(v.Table), Tenant: string(v.Tenant), EntityID: string(v.EntityID), Op: v.Op, Version: v.Version,
		Time: v.Time, LayoutEpoch: v.LayoutEpoch, Outbox: v.Outbox, TraceParent: string(v.TraceParent)}
	line := r.Packed[packedBytes:][:r.Packed[3]]
	_, rec := e.AppendRecord(nil, Source(string(line)))
	return rec.Headers
}
