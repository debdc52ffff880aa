package partitioner

import (
	"fmt"
	"hash/crc32"
	"unsafe"

	"github.com/cespare/xxhash/v2"
)

// Hash is the function that turns a tenant into a hash slot and a spread field into one of a tenant's placed
// slots. It never changes in the life of a line.
type Hash uint8

const (
	XXH64   Hash = iota // xxHash, 64 bits, seed 0; the default
	CRC32               // CRC-32 IEEE, as zlib and MySQL's CRC32()
	Murmur2             // Kafka's default partitioner: Utils.toPositive(Utils.murmur2(bytes))
	Java                // String.hashCode() & 0x7fffffff, over the UTF-16 units of the text
)

var hashNames = [...]string{XXH64: "xxh64", CRC32: "crc32", Murmur2: "murmur2", Java: "java"}

// signMask makes a signed 32-bit hash non-negative in the way of Kafka's toPositive. Math.abs is not that way: it
// leaves Integer.MIN_VALUE negative ("polygenelubricants".hashCode()).
const signMask = 0x7fff_ffff

// ParseHash reads a hash's name: xxh64, crc32, murmur2 or java.
func ParseHash(name string) (Hash, error) {
	for h, known := range hashNames {
		if name == known {
			return Hash(h), nil
		}
	}
	return 0, fmt.Errorf("hash %s is not known; write xxh64, crc32, murmur2 or java", quoteBounded(name))
}

// Valid says whether h is one of the four.
func (h Hash) Valid() bool { return int(h) < len(hashNames) }

// String is the name that ParseHash reads.
func (h Hash) String() string {
	if !h.Valid() {
		return fmt.Sprintf("Hash(%d)", uint8(h))
	}
	return hashNames[h]
}

// MarshalText is String; it refuses a value that is not one of the four.
func (h Hash) MarshalText() ([]byte, error) {
	if !h.Valid() {
		return nil, fmt.Errorf("hash %d is not known", uint8(h))
	}
	return []byte(hashNames[h]), nil
}

// UnmarshalText is ParseHash.
func (h *Hash) UnmarshalText(text []byte) (err error) {
	*h, err = ParseHash(string(text))
	return err
}

// NeedsPowerOfTwo says whether the number of slots must be a power of two. Where a hash is signed at its origin,
// implementations differ in how they drop the sign (mask, floorMod, unsigned); modulo a power of two all agree.
func (h Hash) NeedsPowerOfTwo() bool { return h == Murmur2 || h == Java }

// Sum is the hash of a text, never negative: 64 bits for XXH64, 32 for CRC32, 31 for Murmur2 and Java. All but
// Java hash the bytes as they are. Java hashes the UTF-16 units, where each byte that is not valid UTF-8 counts as
// U+FFFD. It allocates nothing.
func (h Hash) Sum(text string) uint64 {
	switch h {
	case XXH64:
		return xxhash.Sum64String(text)
	case CRC32:
		return uint64(crc32Sum(text))
	case Murmur2:
		return uint64(murmur2(text) & signMask)
	default:
		return uint64(javaHash(text) & signMask)
	}
}

// SumBytes is Sum of the same bytes.
func (h Hash) SumBytes(text []byte) uint64 { return h.Sum(view(text)) }

// Lane is the outbox lane of a tenant: CRC32(tenant) mod lanes with MySQL's CRC32, whatever the layout's hash, so
// that plain SQL can emit. lanes must be at least 1.
func Lane(tenant string, lanes int) int { return int(uint64(crc32Sum(tenant)) % uint64(lanes)) }

func crc32Sum(text string) uint32 {
	return crc32.ChecksumIEEE(unsafe.Slice(unsafe.StringData(text), len(text)))
}

// view reads bytes as a string without a copy. Safe where the string does not outlive the call.
func view(text []byte) string { return unsafe.String(unsafe.SliceData(text), len(text)) }
