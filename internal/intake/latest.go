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
}

type latestEntry struct {
	hash    uint64
	ver     int64 // 0: empty; versions are positive
	message int32 // index of one that has the key
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
		l.entries = make([]latestEntry, size)
		return
	}
	l.entries = l.entries[:size]
	clear(l.entries)
}

// IsNewer notes message i of an entity, and says whether its version is greater than all before it.
func (l *Latest) IsNewer(messages []event.Message, i int, ver int64) bool {
	key := messages[i].Key
	hash := maphash.Bytes(l.seed, key)
	mask := uint64(len(l.entries) - 1)
	for at := hash & mask; ; at = (at + 1) & mask {
		e := &l.entries[at]
		if e.ver == 0 {
			*e = latestEntry{hash, ver, int32(i)}
			return true
		}
		if e.hash == hash && bytes.Equal(messages[e.message].Key, key) {
			if ver <= e.ver {
				return false
			}
			e.ver = ver
			return true
		}
	}
}
