// Package wire reads what a client of the ClickHouse native protocol sends and carries blocks between the two
// shapes that they have: on the wire at revision 54460, and in the engine's Native format (revision 0). The shapes
// differ by one byte per column, the custom-serialization flag, which stands between the type and the data. So a
// block is walked, column by column, and copied; no value is decoded.
//
// It promises: bounded memory whatever the bytes say (nothing is allocated by a count that a peer sent; a buffer
// grows only with bytes that have arrived); an error for each input that ends too early; no panic.
//
// It assumes little-endian machines on both ends, as the protocol does.
//
// How it fails: ErrType for a column type whose length cannot be told (AggregateFunction, Variant, Dynamic, JSON),
// ErrFormat for bytes that are no block, and the reader's own error. After any of them the position in the stream
// is unknown: the connection must be closed.
package wire

import "errors"

// ErrFormat says that the bytes are not what the protocol allows there.
var ErrFormat = errors.New("malformed data")

// ErrType says that a column type cannot be carried.
var ErrType = errors.New("column type is not supported by this front")

// Limits. They are far above what real clients send, and keep a wrong or hostile length from being believed.
const (
	// rows_max of one block, and of nested values within it.
	blockRowsMax = 1 << 31
	// columns of one block.
	blockColumnsMax = 100_000
	// bytes of a column's name or type.
	nameBytesMax = 1 << 20
	// nesting of types.
	typeDepthMax = 64
)
