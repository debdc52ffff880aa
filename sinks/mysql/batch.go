package mysql

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/partitioner"
)

// entry is one row of a batch: where it goes, what it is called there, and where its SQL is. Keys and tuples lie in the
// batch's arena, so that a batch of any size is three allocations.
type entry struct {
	place   place
	prefix  uint64 // the key's first eight bytes, big-endian: most comparisons end here
	ver     int64  // version*2 + deleted
	key     span
	tuple   span
	message int32 // index into event.Batch.Messages
}

// span is a part of the arena.
type span struct{ from, to uint32 }

// place is a physical table: shard, table and month in one number that sorts. All writers send tables and rows in the
// same order, so that two of them do not wait for each other's locks in a ring.
type place uint64

func newPlace(shard int32, table int, m partitioner.Month) place {
	return place(uint64(uint16(shard))<<48 | uint64(uint16(table))<<32 | uint64(uint32(m)))
}

func (p place) shard() int32             { return int32(p >> 48) }
func (p place) table() int               { return int(p >> 32 & 0xffff) }
func (p place) month() partitioner.Month { return partitioner.Month(uint32(p)) }

// rows collects the rows of one batch and keeps those that count. It is pure, and reused.
type rows struct {
	arena   []byte
	entries []entry
}

func (r *rows) reset() { r.arena, r.entries = r.arena[:0], r.entries[:0] }

// since is the arena from a length it had to its end.
func (r *rows) since(from int) span { return span{uint32(from), uint32(len(r.arena))} }

func (r *rows) bytes(s span) []byte { return r.arena[s.from:s.to] }

// add appends an entry whose key and tuple are in the arena already.
func (r *rows) add(p place, key, tuple span, ver int64, message int) {
	r.entries = append(r.entries, entry{place: p, prefix: keyPrefix(r.bytes(key)), ver: ver, key: key, tuple: tuple, message: int32(message)})
}

// reduce sorts by shard, table, month and primary key, and keeps the greatest version of each entity; of equal ones,
// which mean equal bytes, the last. It returns how many rows lost.
func (r *rows) reduce() int {
	slices.SortFunc(r.entries, func(a, b entry) int {
		switch {
		case a.place != b.place:
			return cmp.Compare(a.place, b.place)
		case a.prefix != b.prefix:
			return cmp.Compare(a.prefix, b.prefix)
		}
		if c := bytes.Compare(r.bytes(a.key), r.bytes(b.key)); c != 0 {
			return c
		}
		if a.ver != b.ver {
			return cmp.Compare(b.ver, a.ver)
		}
		return cmp.Compare(b.message, a.message)
	})
	kept := slices.CompactFunc(r.entries, func(a, b entry) bool {
		return a.place == b.place && a.prefix == b.prefix && bytes.Equal(r.bytes(a.key), r.bytes(b.key))
	})
	lost := len(r.entries) - len(kept)
	r.entries = kept
	return lost
}

// keyPrefix is the first eight bytes of a key as a number that sorts as they do; a shorter key is padded with zeros,
// and ties are decided by the whole key.
func keyPrefix(key []byte) uint64 {
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	var padded [8]byte
	copy(padded[:], key)
	return binary.BigEndian.Uint64(padded[:])
}

// appendKey appends the primary key in a form that sorts by bytes as MySQL sorts the key (decimals apart, which sort as
// text: any order will do as long as all writers have the same). Two rows have equal forms if and only if they have
// equal keys.
func appendKey(dst []byte, t *event.Table, row *event.Row) []byte {
	if !t.Broadcast() {
		dst = appendKeyColumn(dst, t.Columns[t.Tenant].Type.Kind, &row.Values[t.Tenant])
	}
	return appendKeyColumn(dst, t.Columns[t.ID].Type.Kind, &row.Values[t.ID])
}

func appendKeyColumn(dst []byte, kind event.Kind, v *event.Value) []byte {
	switch kind {
	case event.String, event.Text, event.Bytes, event.Decimal:
		// The collation compares code points, and UTF-8 sorts as those do. A tenant holds no NUL, so that the end of
		// one sorts before any longer one; the id comes last and needs no end.
		return append(append(dst, v.Bytes...), 0)
	case event.Uint64:
		return binary.BigEndian.AppendUint64(dst, v.Uint)
	}
	return binary.BigEndian.AppendUint64(dst, uint64(v.Int)^1<<63)
}
