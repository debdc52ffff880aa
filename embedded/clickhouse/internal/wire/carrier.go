package wire

import (
	"encoding/binary"
	"fmt"
)

// Column is a name and a type.
type Column struct{ Name, Type string }

// Carrier copies blocks from a Source. It remembers the types that it has parsed; one connection has one.
type Carrier struct {
	// Flush, when set, takes the bytes gathered so far as soon as they are flushBytes or more, so that a block of
	// any size needs little memory.
	Flush func([]byte) error
	// Check, when set, is asked about each column of a block before its data.
	Check func(Column) error

	types map[string]*node
	out   []byte
	src   *Source
}

// flushBytes is a compromise: the engine takes about 50 µs per call, and a megabyte takes longer than that.
const flushBytes = 1 << 20

// typesMax bounds the memory of types; a table has hundreds at most.
const typesMax = 10_000

func (c *Carrier) typeOf(text string) (*node, error) {
	if n, ok := c.types[text]; ok {
		return n, nil
	}
	n, err := parseType(text)
	if err != nil {
		return nil, err
	}
	if c.types == nil || len(c.types) >= typesMax {
		c.types = map[string]*node{}
	}
	c.types[text] = n
	return n, nil
}

// Shape of a block.
type Shape struct{ Columns, Rows int }

// FromWire copies the columns of one block from the wire (the block info has been read) to the engine's format.
// The result is appended to out, except for what Flush took.
func (c *Carrier) FromWire(src *Source, out []byte) ([]byte, Shape, error) {
	return c.block(src, out, true)
}

// FromEngine copies one block from the engine's format to the wire, without the block info.
func (c *Carrier) FromEngine(src *Source, out []byte) ([]byte, Shape, error) {
	return c.block(src, out, false)
}

func (c *Carrier) block(src *Source, out []byte, fromWire bool) ([]byte, Shape, error) {
	c.src, c.out = src, out
	var s Shape
	var err error
	if s.Columns, err = src.Count("columns", blockColumnsMax); err != nil {
		return c.out, s, err
	}
	if s.Rows, err = src.Count("rows", blockRowsMax); err != nil {
		return c.out, s, err
	}
	if s.Columns == 0 && s.Rows > 0 {
		return c.out, s, fmt.Errorf("%w: %d rows without columns", ErrFormat, s.Rows)
	}
	if s.Columns == 0 && fromWire {
		// The end of the data: the engine has its own sign for it.
		return c.out, s, nil
	}
	c.out = binary.AppendUvarint(c.out, uint64(s.Columns))
	c.out = binary.AppendUvarint(c.out, uint64(s.Rows))
	for i := range s.Columns {
		if err := c.column(i, s.Rows, fromWire); err != nil {
			return c.out, s, err
		}
	}
	return c.out, s, nil
}

func (c *Carrier) column(i, rows int, fromWire bool) error {
	name, err := c.src.String("column name", nameBytesMax)
	if err != nil {
		return err
	}
	typeText, err := c.src.String("column type", nameBytesMax)
	if err != nil {
		return err
	}
	c.out = appendString(c.out, name)
	c.out = appendString(c.out, typeText)
	if fromWire {
		custom, err := c.src.Byte()
		if err != nil {
			return fmt.Errorf("column %d (%s): %w", i, name, err)
		}
		if custom != 0 {
			return fmt.Errorf("%w: column %d (%s) has custom serialization %d", ErrFormat, i, name, custom)
		}
	} else {
		c.out = append(c.out, 0)
	}
	if c.Check != nil {
		if err := c.Check(Column{Name: name, Type: typeText}); err != nil {
			return err
		}
	}
	if rows == 0 {
		return nil
	}
	n, err := c.typeOf(typeText)
	if err != nil {
		return fmt.Errorf("column %d (%s): %w", i, name, err)
	}
	if err := c.prefix(n); err != nil {
		return fmt.Errorf("column %d (%s): %w", i, name, err)
	}
	if err := c.data(n, uint64(rows)); err != nil {
		return fmt.Errorf("column %d (%s): %w", i, name, err)
	}
	return nil
}

// prefix copies what stands before the data of the whole column: a version for each LowCardinality in it.
func (c *Carrier) prefix(n *node) error {
	if n.shape == shapeLowCardinality {
		return c.fixed(8)
	}
	for _, inner := range n.inner {
		if err := c.prefix(inner); err != nil {
			return err
		}
	}
	return nil
}

func (c *Carrier) data(n *node, rows uint64) error {
	if rows == 0 {
		return nil
	}
	switch n.shape {
	case shapeFixed:
		return c.fixed(rows * n.size)
	case shapeString:
		return c.strings(rows)
	case shapeNullable:
		if err := c.fixed(rows); err != nil {
			return err
		}
		return c.data(n.inner[0], rows)
	case shapeArray:
		elements, err := c.offsets(rows)
		if err != nil {
			return err
		}
		return c.data(n.inner[0], elements)
	case shapeTuple:
		for _, inner := range n.inner {
			if err := c.data(inner, rows); err != nil {
				return err
			}
		}
		return nil
	case shapeLowCardinality:
		return c.lowCardinality(n.inner[0], rows)
	}
	return fmt.Errorf("%w: shape %d", ErrType, n.shape)
}

func (c *Carrier) flush() error {
	if c.Flush == nil || len(c.out) < flushBytes {
		return nil
	}
	if err := c.Flush(c.out); err != nil {
		return err
	}
	c.out = c.out[:0]
	return nil
}

// fixed copies n bytes.
func (c *Carrier) fixed(n uint64) error {
	for n > 0 {
		part := min(n, flushBytes)
		var err error
		if c.out, err = c.src.copyN(c.out, part); err != nil {
			return err
		}
		if err := c.flush(); err != nil {
			return err
		}
		n -= part
	}
	return nil
}

// strings copies rows strings. The loop is the hot one of an INSERT: it works on the window as long as strings end
// within it, and copies many at once.
func (c *Carrier) strings(rows uint64) error {
	for rows > 0 {
		if err := c.src.need(); err != nil {
			return err
		}
		window := c.src.window
		end := 0
		for rows > 0 && end < len(window) {
			length, used := binary.Uvarint(window[end:])
			if used <= 0 || length > uint64(len(window)-end-used) {
				break
			}
			end += used + int(length)
			rows--
		}
		c.out = append(c.out, window[:end]...)
		c.src.window = window[end:]
		if rows > 0 && len(c.src.window) > 0 {
			// One that crosses the end of the window.
			length, err := c.src.UVarInt()
			if err != nil {
				return err
			}
			c.out = binary.AppendUvarint(c.out, length)
			if err := c.fixed(length); err != nil {
				return err
			}
			rows--
		}
		if err := c.flush(); err != nil {
			return err
		}
	}
	return nil
}

// offsets copies the ends of arrays and returns the last, the number of all elements.
func (c *Carrier) offsets(rows uint64) (uint64, error) {
	var last uint64
	for range rows {
		end, err := c.src.UInt64()
		if err != nil {
			return 0, err
		}
		if end < last || end > blockRowsMax {
			return 0, fmt.Errorf("%w: array end %d after %d", ErrFormat, end, last)
		}
		last = end
		c.out = binary.LittleEndian.AppendUint64(c.out, end)
		if err := c.flush(); err != nil {
			return 0, err
		}
	}
	return last, nil
}

// Bits of the word before a LowCardinality's dictionary; the lowest byte is the width of an index (0 to 3: 1, 2, 4,
// 8 bytes).
const (
	lowCardinalityGlobalDictionary = 1 << 8
	lowCardinalityHasKeys          = 1 << 9
)

func (c *Carrier) lowCardinality(keys *node, rows uint64) error {
	for rows > 0 {
		flags, err := c.src.UInt64()
		if err != nil {
			return err
		}
		width := flags & 0xff
		if width > 3 || flags&lowCardinalityGlobalDictionary != 0 {
			return fmt.Errorf("%w: dictionary flags %#x", ErrFormat, flags)
		}
		c.out = binary.LittleEndian.AppendUint64(c.out, flags)
		if flags&lowCardinalityHasKeys != 0 {
			n, err := c.number("keys of a dictionary")
			if err != nil {
				return err
			}
			if err := c.data(keys, n); err != nil {
				return err
			}
		}
		n, err := c.number("indexes into a dictionary")
		if err != nil {
			return err
		}
		if n == 0 || n > rows {
			return fmt.Errorf("%w: %d indexes for %d rows", ErrFormat, n, rows)
		}
		if err := c.fixed(n << width); err != nil {
			return err
		}
		rows -= n
	}
	return nil
}

// number copies an 8-byte count.
func (c *Carrier) number(what string) (uint64, error) {
	n, err := c.src.UInt64()
	if err != nil {
		return 0, err
	}
	if n > blockRowsMax {
		return 0, fmt.Errorf("%w: %d %s", ErrFormat, n, what)
	}
	c.out = binary.LittleEndian.AppendUint64(c.out, n)
	return n, nil
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}
