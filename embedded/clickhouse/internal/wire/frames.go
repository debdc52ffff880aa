package wire

import "github.com/ClickHouse/ch-go/compress"

// NewFrames reads what the compressed frames of src hold (LZ4, ZSTD or none; each has its checksum, and at most
// 128 MiB). It takes from src no more than whole frames, so src can be read on after the last.
func NewFrames(src *Source) *Source { return NewSource(compress.NewReader(src)) }
