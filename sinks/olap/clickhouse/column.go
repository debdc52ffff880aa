package clickhouse

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/slotline/slotline/event"
)

// column is one column of a block, in the form that the native protocol has: values go straight from a decoded row into
// bytes that are sent as they are. It is a proto.ColInput.
type column struct {
	name     string
	typ      string // as ClickHouse writes it
	kind     event.Kind
	nullable bool
	width    int    // of a decimal, in bytes
	rows     int    // appended
	nulls    []byte // one byte per row, of a nullable column
	data     []byte
	marked   int // bytes of data when the set was marked
}

func newColumn(c event.Column) column {
	return column{name: c.Name, typ: columnType(c), kind: c.Type.Kind, nullable: c.Nullable, width: decimalBytes(c.Type.Precision)}
}

func (c *column) reset() { c.rows, c.nulls, c.data = 0, c.nulls[:0], c.data[:0] }

// cut goes back to the mark, when the column had so many rows.
func (c *column) cut(rows int) {
	c.rows, c.data = rows, c.data[:c.marked]
	if c.nullable {
		c.nulls = c.nulls[:rows]
	}
}

// append adds a value. A null one in a column that is not nullable, as a deleted row has, becomes the zero value: it
// has every field zero.
func (c *column) append(v *event.Value) {
	c.rows++
	if c.nullable {
		null := byte(0)
		if v.Null {
			null = 1
		}
		c.nulls = append(c.nulls, null)
	}
	switch c.kind {
	case event.Bool:
		c.data = append(c.data, byte(v.Int))
	case event.Int32, event.Date:
		c.data = binary.LittleEndian.AppendUint32(c.data, uint32(v.Int))
	case event.Int64, event.Datetime:
		c.data = binary.LittleEndian.AppendUint64(c.data, uint64(v.Int))
	case event.Uint64:
		c.data = binary.LittleEndian.AppendUint64(c.data, v.Uint)
	case event.Float64:
		c.data = binary.LittleEndian.AppendUint64(c.data, math.Float64bits(v.Float))
	case event.Decimal:
		c.data = appendDecimal(c.data, v.Bytes, c.width)
	default:
		if n := len(v.Bytes); n < 0x80 {
			c.data = append(c.data, byte(n))
		} else {
			c.data = binary.AppendUvarint(c.data, uint64(n))
		}
		c.data = append(c.data, v.Bytes...)
	}
}

// Type is the type that the block says it has.
func (c *column) Type() proto.ColumnType { return proto.ColumnType(c.typ) }

// Rows is the number of values.
func (c *column) Rows() int { return c.rows }

// EncodeColumn appends the bytes to a buffer that is compressed as a whole.
func (c *column) EncodeColumn(b *proto.Buffer) {
	b.Buf = append(append(b.Buf, c.nulls...), c.data...)
}

// WriteColumn sends the bytes as they are.
func (c *column) WriteColumn(w *proto.Writer) {
	if c.nullable {
		w.ChainWrite(c.nulls)
	}
	w.ChainWrite(c.data)
}

// Infer is told, at each INSERT, the type that the table's column has. Anything but ours would be converted, and might
// be altered: it is refused before a row is sent.
func (c *column) Infer(t proto.ColumnType) error {
	if looseType(string(t)) == looseType(c.typ) {
		return nil
	}
	return &typeError{column: c.name, have: string(t), want: c.typ}
}

// typeError is a column whose type is not the file's any more.
type typeError struct{ column, have, want string }

func (e *typeError) Error() string {
	return fmt.Sprintf("column %s is %s, the file needs %s", e.column, e.have, e.want)
}

// looseType drops what does not change how values are sent: a time's zone.
func looseType(t string) string { return strings.Replace(plainType(t), ",'UTC'", "", 1) }

// plainType drops the spaces that ClickHouse writes between arguments.
func plainType(t string) string { return strings.ReplaceAll(t, " ", "") }
