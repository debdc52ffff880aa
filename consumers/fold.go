package consumers

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/kafka"
)

// The client makes a list of each record's headers, and a string of each header's key: twelve allocations a record, more
// than all else that reading an event costs. So each record of a decompressed batch is rewritten before the client takes
// it apart: its headers are packed, which makes a quarter of their bytes of them, in front of its value, and it has none
// left. unfold parts them again.
//
// A folded value is: 4 bytes, little endian, how many are packed, with foldedNull set when the record had no value; the
// packed headers; the value. Headers that cannot be packed, since they are not the relay's, stay where they are.
//
// Batches that are not compressed do not pass the decompressor; their records have the client's headers.

const (
	foldedPrefix = 4
	foldedNull   = 1 << 31
)

// folding is a kgo.Decompressor. It is safe for concurrent use.
type folding struct {
	client      kgo.Decompressor // of what unpackLZ4 does not read; it uses raw too
	raw, folded *scratch         // apart, since they differ in size
	bytesMax    int
}

// newFolding bounds a batch as kgo.MaxDecompressBatchBytes does.
func newFolding(bytesMax int) (*folding, error) {
	f := &folding{raw: &scratch{}, folded: &scratch{}, bytesMax: bytesMax}
	client, err := kafka.Decompressor(bytesMax, f.raw)
	if err != nil {
		return nil, err
	}
	f.client = client
	return f, nil
}

func (f *folding) Decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	if codec == kgo.CodecLz4 {
		raw, ok := unpackLZ4(f.raw.GetDecompressBytes(src, codec), src)
		if ok && len(raw) <= f.bytesMax {
			return f.fold(raw), nil
		}
	}
	raw, err := f.client.Decompress(src, codec)
	if err != nil || codec == kgo.CodecNone {
		return raw, err
	}
	return f.fold(raw), nil
}

// fold folds the records of a batch into memory of the batch's own, of no more bytes than it needs.
func (f *folding) fold(raw []byte) []byte {
	folded := foldRecords(f.folded.GetDecompressBytes(nil, kgo.CodecNone), raw)
	f.raw.PutDecompressBytes(raw)
	defer f.folded.PutDecompressBytes(folded)
	return bytes.Clone(folded)
}

// scratch is what batches are decompressed, or folded, into.
type scratch struct{ pool sync.Pool }

func (s *scratch) GetDecompressBytes(compressed []byte, _ kgo.CompressionCodecType) []byte {
	if b, ok := s.pool.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, 0, 8*len(compressed))
}

func (s *scratch) PutDecompressBytes(b []byte) {
	b = b[:0]
	s.pool.Put(&b)
}

// foldRecords appends the records of a batch to dst, folded. From the first one on that is none they are left as they are:
// the client stops at it as it would have, and so it does at the batches of before Kafka 0.11, which begin with a zero byte.
func foldRecords(dst, src []byte) []byte {
	var buf [512]byte // what is packed is seldom more
	for {
		rec, rest, ok := nextRecord(src)
		if !ok {
			return append(dst, src...)
		}
		key, lengthAt, valueAt, headersAt, ok := locateValue(rec)
		if !ok {
			return append(dst, src...)
		}
		value, headers := rec[valueAt:headersAt], rec[headersAt:]
		packed, ok := event.AppendPacked(buf[:0], key, headers)
		if ok {
			headers = noHeaders
		}
		prefix := uint32(len(packed))
		if rec[lengthAt]&1 != 0 { // a negative length
			prefix |= foldedNull
		}
		length := foldedPrefix + len(packed) + len(value)
		dst = appendVarint(dst, lengthAt+varintBytes(length)+length+len(headers))
		dst = appendVarint(append(dst, rec[:lengthAt]...), length)
		dst = binary.LittleEndian.AppendUint32(dst, prefix)
		dst = append(append(append(dst, packed...), value...), headers...)
		src = rest
	}
}

// noHeaders is their count.
var noHeaders = []byte{0}

// nextRecord cuts the first record off, without its length.
func nextRecord(src []byte) (rec, rest []byte, ok bool) {
	length, from := varint(src, 0)
	if from < 0 || length < 0 || length > int64(len(src)-from) {
		return nil, nil, false
	}
	end := from + int(length)
	return src[from:end], src[end:], true
}

// locateValue finds the key of a record, the length of its value, the value, and what follows it, of which there is at least
// a byte: attributes and two deltas come before.
func locateValue(rec []byte) (key []byte, lengthAt, valueAt, headersAt int, ok bool) {
	at := 1
	for range 2 {
		if _, at = varint(rec, at); at < 0 {
			return nil, 0, 0, 0, false
		}
	}
	keyAt, lengthAt, ok := locateText(rec, at)
	if !ok {
		return nil, 0, 0, 0, false
	}
	valueAt, headersAt, ok = locateText(rec, lengthAt)
	return rec[keyAt:lengthAt], lengthAt, valueAt, headersAt, ok && headersAt < len(rec)
}

// locateText finds the text whose length is at a place; a negative length is that of nothing.
func locateText(rec []byte, at int) (from, to int, ok bool) {
	n, from := varint(rec, at)
	if from < 0 || n > int64(len(rec)-from) {
		return 0, 0, false
	}
	return from, from + int(max(0, n)), true
}

// varint reads the zigzag varint at a place and says where it ends; negative when there is none.
func varint(b []byte, at int) (n int64, end int) {
	if at+1 < len(b) { // nearly all have one byte, or two
		if b[at] < 0x80 {
			return int64(b[at]>>1) ^ -int64(b[at]&1), at + 1
		}
		if b[at+1] < 0x80 {
			u := uint64(b[at]&0x7f) | uint64(b[at+1])<<7
			return int64(u>>1) ^ -int64(u&1), at + 2
		}
	}
	n, used := binary.Varint(b[min(at, len(b)):])
	if used <= 0 {
		return 0, -1
	}
	return n, at + used
}

// appendVarint appends a number that is not negative as a zigzag varint of varintBytes.
func appendVarint(dst []byte, n int) []byte {
	u := uint64(n) << 1
	for u >= 0x80 {
		dst = append(dst, byte(u)|0x80)
		u >>= 7
	}
	return append(dst, byte(u))
}

func varintBytes(n int) int { return (bits.Len64(uint64(n)<<1|1) + 6) / 7 }

// unfold is a record as it was sent.
func unfold(r *kgo.Record) event.Record {
	rec := event.Record{Key: r.Key, Value: r.Value}
	if r.Attrs.CompressionType() == 0 || len(r.Value) < foldedPrefix {
		rec.Headers = headers(r.Headers)
		return rec
	}
	prefix := binary.LittleEndian.Uint32(r.Value)
	end := int(prefix&^foldedNull) + foldedPrefix
	if end > len(r.Value) { // of before Kafka 0.11
		return rec
	}
	if rec.Value = r.Value[end:]; prefix&foldedNull != 0 {
		rec.Value = nil
	}
	if rec.Headers = headers(r.Headers); end > foldedPrefix {
		rec.Headers, rec.Packed = nil, r.Value[foldedPrefix:end:end]
	}
	return rec
}
