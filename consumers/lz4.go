package consumers

import (
	"encoding/binary"

	"github.com/pierrec/lz4/v4"
)

const (
	lz4Magic = 0x184d2204
	// lz4Plain is the version and the flags of frames that are read here: blocks are independent of each other and have
	// no checksums, and there is no dictionary. lz4Content and lz4Size are two flags that may be set beside.
	lz4Plain   = 0x60
	lz4Content = 0x04 // a checksum of the content, at the end
	lz4Size    = 0x08 // the size of the content, in the header
	// lz4Stored is set in the size of a block that is not compressed.
	lz4Stored = 1 << 31
)

// unpackLZ4 appends the content of a frame to dst as far as its capacity allows. It reads what Kafka's clients write, and
// no checksum: Kafka's own covers the batch, and the client has looked at it. false: dst is too small, or it is another
// frame, or none.
func unpackLZ4(dst, frame []byte) (content []byte, ok bool) {
	const headerBytes = 7 // magic, flags, block size, checksum
	if len(frame) < headerBytes || binary.LittleEndian.Uint32(frame) != lz4Magic || frame[4]&^(lz4Content|lz4Size) != lz4Plain {
		return dst, false
	}
	end := 0 // bytes that follow the end mark
	if frame[4]&lz4Content != 0 {
		end = 4
	}
	b := frame[headerBytes:]
	if frame[4]&lz4Size != 0 {
		if len(b) < 8 {
			return dst, false
		}
		b = b[8:]
	}
	for {
		if len(b) < 4 {
			return dst, false
		}
		size := binary.LittleEndian.Uint32(b)
		b = b[4:]
		if size == 0 {
			return dst, len(b) == end
		}
		block := int(size &^ lz4Stored)
		if block > len(b) {
			return dst, false
		}
		room := dst[len(dst):cap(dst)]
		n := block
		if size&lz4Stored == 0 {
			var err error
			if n, err = lz4.UncompressBlock(b[:block], room); err != nil {
				return dst, false
			}
		} else if copy(room, b[:block]) < block {
			return dst, false
		}
		dst, b = dst[:len(dst)+n], b[block:]
	}
}
