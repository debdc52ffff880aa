package intake

import (
	"bytes"
	"hash/maphash"

	"github.com/slotline/slotline/event"
)

// Latest remembers, per entity, the greatest version that a batch has so far, by the record's key. It is an open hash
// table that is used again: a Go map would copy each key. The zero value needs a Reset first.
type Latest struct {
	seed    maphash.Seed
	entries []latestEntry // a power of two, at most half full
	vers    []int64       // by message that an entry points to: its entity's greatest version
}

// latestEntry is small, so that the table of a batch stays in the processor's cache.
type latestEntry struct {
	hash    uint32 // its upper half; the lower one is the place
	message int32  // index of one that has the key, plus 1; 0: empty
}

// Reset makes room for a number of messages.
func (l *Latest) Reset(messages int) {
	size := 64
	for size < 2*messages {
		size *= 2
	}
	if len(l.entries) == 0 {
		l.seed = maphash.MakeSeed()
	}
	if cap(l.entries) < size || cap(l.entries) > 8*size { // what one large batch needed is not kept for ever
		l.entries, l.vers = make([]latestEntry, size), make([]int64, size/2)
		return
	}
	l.entries = l.entries[:size]
	clear(l.entries)
}

// IsNewer notes message i of an entity, and says whether its version is greater than all before it.
func (l *Latest) IsNewer(messages []event.Message, i int, ver int64) bool {
	key := messages[i].Key
	hash := maphash.Bytes(l.seed, key)
	upper := uint32(hash >> 32)
	mask := uint64(len(l.entries) - 1)
	for at := hash & mask; ; at = (at + 1) & mask {
		e := &l.entries[at]
		if e.message == 0 {
			*e, l.vers[i] = latestEntry{upper, int32(i) + 1}, ver
			return true
		}
		if have := int(e.message - 1); e.hash == upper && bytes.Equal(messages[have].Key, key) {
			if ver <= l.vers[have] {
				return false
			}
			l.vers[have] = ver
			return true
		}
	}
}
