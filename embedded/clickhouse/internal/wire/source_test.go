package wire

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"
)

func TestUVarInt(t *testing.T) {
	for _, n := range []uint64{0, 1, 127, 128, 16383, 16384, math.MaxUint32, math.MaxUint64} {
		b := binary.AppendUvarint(nil, n)
		if got, err := MemorySource(b).UVarInt(); err != nil || got != n {
			t.Errorf("%d: %d, %v", n, got, err)
		}
		for cut := range b {
			if _, err := MemorySource(b[:cut]).UVarInt(); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%d cut after %d: %v", n, cut, err)
			}
		}
	}
}

func TestStringLimit(t *testing.T) {
	b := append(binary.AppendUvarint(nil, 5), "hello"...)
	if got, err := NewSource(iotest.OneByteReader(strings.NewReader(string(b)))).String("word", 5); err != nil || got != "hello" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := MemorySource(b).String("word", 4); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "length of word is 5, the limit is 4") {
		t.Error(err)
	}
}

// A deadline that strikes between packets loses nothing.
func TestPeekAfterAnError(t *testing.T) {
	src := NewSource(iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader("ab"))))
	if b, err := src.Byte(); err != nil || b != 'a' {
		t.Fatal(b, err)
	}
	if _, err := src.Peek(); !errors.Is(err, iotest.ErrTimeout) {
		t.Fatal(err)
	}
	for range 2 {
		if b, err := src.Peek(); err != nil || b != 'b' {
			t.Fatal(b, err)
		}
	}
	if _, err := src.Byte(); err != nil {
		t.Fatal(err)
	}
	if _, err := src.Peek(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
}
