package replay

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"sync"
	"sync/atomic"
)

// entityKey stands for a key: what is remembered of each is small, and keys may be long. That two keys have one is not to be
// feared: of 128 bits of SHA-256, a thousand million keys share one with a chance of 1 in 10^21, and nobody can make two that do.
type entityKey [16]byte

func keyOf(key []byte) (k entityKey) {
	digest := sha256.Sum256(key)
	copy(k[:], digest[:])
	return k
}

// newest remembers the greatest version of each key: some 35 bytes for one. The zero value is empty and unbounded. learn may
// be called from several goroutines; of and take only while none learns.
type newest struct {
	bytesMax int64 // 0: no bound. Keys beyond it are not remembered
	bytes    atomic.Int64
	keys     atomic.Int64
	parts    [256]newestPart // by the key's first byte, so that to grow one needs little room beside it
}

// newestPart is an open hash table, a fifth of it empty or more.
type newestPart struct {
	mu      sync.Mutex
	entries []newestEntry
	used    int
}

type newestEntry struct {
	key entityKey
	ver int64 // 0: empty; negative: taken
}

const newestEntryBytes = 24

// at is the place of a key, or the empty one where it would be; the part has entries.
func (p *newestPart) at(key entityKey) int {
	hi, _ := bits.Mul64(binary.LittleEndian.Uint64(key[8:]), uint64(len(p.entries)))
	for i := int(hi); ; {
		if e := &p.entries[i]; e.ver == 0 || e.key == key {
			return i
		}
		if i++; i == len(p.entries) {
			i = 0
		}
	}
}

// learn takes note of a version, which is positive. false: there is no room for the key.
func (n *newest) learn(key entityKey, ver int64) bool {
	p := &n.parts[key[0]]
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.entries) > 0 {
		if e := &p.entries[p.at(key)]; e.ver != 0 {
			e.ver = max(e.ver, ver)
			return true
		}
	}
	if (p.used+1)*5 > len(p.entries)*4 && !n.grow(p) {
		return false
	}
	p.entries[p.at(key)] = newestEntry{key, ver}
	p.used++
	n.keys.Add(1)
	return true
}

// grow makes room by a quarter.
func (n *newest) grow(p *newestPart) bool {
	more := max(8, len(p.entries)/4)
	if bytes := n.bytes.Add(int64(more) * newestEntryBytes); n.bytesMax > 0 && bytes > n.bytesMax {
		n.bytes.Add(int64(-more) * newestEntryBytes)
		return false
	}
	old := p.entries
	p.entries = make([]newestEntry, len(old)+more)
	for _, e := range old {
		if e.ver != 0 {
			p.entries[p.at(e.key)] = e
		}
	}
	return true
}

// of is the greatest version of a key; 0 when it is not remembered, or was taken.
func (n *newest) of(key entityKey) int64 {
	p := &n.parts[key[0]]
	if len(p.entries) == 0 {
		return 0
	}
	return max(0, p.entries[p.at(key)].ver)
}

// take says whether a version is the greatest of its key, once.
func (n *newest) take(key entityKey, ver int64) bool {
	if ver <= 0 || n.of(key) != ver {
		return false
	}
	p := &n.parts[key[0]]
	p.entries[p.at(key)].ver = -ver
	return true
}
