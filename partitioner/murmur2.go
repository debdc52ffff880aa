package partitioner

// murmur2 is org.apache.kafka.common.utils.Utils.murmur2, before toPositive: MurmurHash2, 32 bits, little-endian,
// with Kafka's seed.
func murmur2(text string) uint32 {
	const (
		seed = 0x9747b28c
		m    = 0x5bd1e995
		r    = 24
	)
	h := uint32(seed) ^ uint32(len(text))
	for ; len(text) >= 4; text = text[4:] {
		k := uint32(text[0]) | uint32(text[1])<<8 | uint32(text[2])<<16 | uint32(text[3])<<24
		k *= m
		k ^= k >> r
		k *= m
		h = h*m ^ k
	}
	switch len(text) {
	case 3:
		h ^= uint32(text[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(text[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(text[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	return h ^ h>>15
}
