package wire

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Source is a buffered stream of bytes that can be peeked into and copied from in bulk.
type Source struct {
	window []byte // what has been read and not yet been taken
	more   io.Reader
	buf    []byte
}

// sourceBufferBytes is the size of one read. Clients flush blocks of megabytes; 64 KiB costs few system calls and
// little memory per connection.
const sourceBufferBytes = 64 << 10

// NewSource reads from r.
func NewSource(r io.Reader) *Source { return &Source{more: r, buf: make([]byte, sourceBufferBytes)} }

// MemorySource reads from data, which must not change while it is in use.
func MemorySource(data []byte) *Source { return &Source{window: data} }

// Buffered reports whether bytes have been read ahead.
func (s *Source) Buffered() bool { return len(s.window) > 0 }

// fill makes the window non-empty, or returns an error: io.EOF at the end of the stream.
func (s *Source) fill() error {
	if len(s.window) > 0 {
		return nil
	}
	if s.more == nil {
		return io.EOF
	}
	for range 100 {
		n, err := s.more.Read(s.buf)
		if n > 0 {
			s.window = s.buf[:n]
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// need is fill for bytes that belong to something begun: the end of the stream is unexpected there.
func (s *Source) need() error {
	err := s.fill()
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Peek returns the next byte without taking it: io.EOF at the end. An error, such as a deadline, loses no byte.
func (s *Source) Peek() (byte, error) {
	if err := s.fill(); err != nil {
		return 0, err
	}
	return s.window[0], nil
}

// Read implements io.Reader.
func (s *Source) Read(p []byte) (int, error) {
	if err := s.fill(); err != nil {
		return 0, err
	}
	n := copy(p, s.window)
	s.window = s.window[n:]
	return n, nil
}

// Byte takes one byte.
func (s *Source) Byte() (byte, error) {
	if err := s.need(); err != nil {
		return 0, err
	}
	b := s.window[0]
	s.window = s.window[1:]
	return b, nil
}

// Fixed fills p.
func (s *Source) Fixed(p []byte) error {
	for len(p) > 0 {
		if err := s.need(); err != nil {
			return err
		}
		n := copy(p, s.window)
		p, s.window = p[n:], s.window[n:]
	}
	return nil
}

// UInt64 takes 8 bytes.
func (s *Source) UInt64() (uint64, error) {
	var b [8]byte
	if err := s.Fixed(b[:]); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

// UVarInt takes a variable-length number.
func (s *Source) UVarInt() (uint64, error) {
	if len(s.window) > 0 && s.window[0] < 0x80 {
		v := uint64(s.window[0])
		s.window = s.window[1:]
		return v, nil
	}
	var v uint64
	for shift := uint(0); shift < 64; shift += 7 {
		b, err := s.Byte()
		if err != nil {
			return 0, err
		}
		if shift == 63 && b > 1 {
			break
		}
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v, nil
		}
	}
	return 0, fmt.Errorf("%w: a number of more than 64 bits", ErrFormat)
}

// Count takes a variable-length number that may be at most max.
func (s *Source) Count(what string, max uint64) (int, error) {
	v, err := s.UVarInt()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	if v > max {
		return 0, fmt.Errorf("%w: %s is %d, the limit is %d", ErrFormat, what, v, max)
	}
	return int(v), nil
}

// String takes a string of at most max bytes.
func (s *Source) String(what string, max uint64) (string, error) {
	n, err := s.Count("length of "+what, max)
	if err != nil {
		return "", err
	}
	if n <= len(s.window) {
		v := string(s.window[:n])
		s.window = s.window[n:]
		return v, nil
	}
	b, err := s.copyN(nil, uint64(n))
	if err != nil {
		return "", fmt.Errorf("%s: %w", what, err)
	}
	return string(b), nil
}

// copyN appends the next n bytes to dst.
func (s *Source) copyN(dst []byte, n uint64) ([]byte, error) {
	for n > 0 {
		if err := s.need(); err != nil {
			return dst, err
		}
		part := s.window
		if uint64(len(part)) > n {
			part = part[:n]
		}
		dst = append(dst, part...)
		s.window = s.window[len(part):]
		n -= uint64(len(part))
	}
	return dst, nil
}
