package clickhouse

import (
	"encoding/binary"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/olap/rollup"
)

// block is the rows of one table and month in a batch: what one INSERT sends, and one part of the table holds.
type block struct {
	table   *table
	month   partitioner.Month
	columns []column // as declared, then _ver and _deleted
	input   proto.Input
	sent    bool // acknowledged
}

func newBlock(t *table) *block {
	b := &block{table: t, columns: make([]column, 0, len(t.Columns)+2)}
	for _, c := range t.Columns {
		b.columns = append(b.columns, newColumn(c))
	}
	b.columns = append(b.columns,
		column{name: verColumn, typ: verType, kind: event.Uint64},
		column{name: deletedColumn, typ: deletedType, kind: event.Bool})
	for i := range b.columns {
		b.input = append(b.input, proto.InputColumn{Name: b.columns[i].name, Data: &b.columns[i]})
	}
	return b
}

func (b *block) reset(m partitioner.Month) {
	b.month, b.sent = m, false
	for i := range b.columns {
		b.columns[i].reset()
	}
}

// append adds a row.
func (b *block) append(values []event.Value, ver int64) {
	for i := range values {
		b.columns[i].append(&values[i])
	}
	version, deleted := &b.columns[len(values)], &b.columns[len(values)+1]
	version.data = binary.LittleEndian.AppendUint64(version.data, uint64(ver))
	deleted.data = append(deleted.data, byte(ver&1))
	version.rows++
	deleted.rows++
}

func (b *block) rows() int { return b.columns[0].rows }

// bytes is what it holds, and what it could hold without growing.
func (b *block) bytes() (used, kept int) {
	for i := range b.columns {
		c := &b.columns[i]
		used += len(c.nulls) + len(c.data)
		kept += cap(c.nulls) + cap(c.data)
	}
	return used, kept
}

// set is the blocks of one batch. It is used again for another: two in rotation are enough.
type set struct {
	blocks  []*block   // of this batch
	touched rollup.Set // by it
	last    *block     // that a row went to: most rows follow one of the same month
	free    map[*table][]*block
}

// at returns the block of a table and month.
func (s *set) at(t *table, m partitioner.Month) *block {
	if s.last != nil && s.last.table == t && s.last.month == m {
		return s.last
	}
	for _, b := range s.blocks {
		if b.table == t && b.month == m {
			s.last = b
			return b
		}
	}
	var b *block
	if free := s.free[t]; len(free) > 0 {
		b, s.free[t] = free[len(free)-1], free[:len(free)-1]
	} else {
		b = newBlock(t)
	}
	b.reset(m)
	s.blocks = append(s.blocks, b)
	s.last = b
	return b
}

// mark is how far the blocks are filled, for cut.
func (s *set) mark() []int {
	rows := make([]int, len(s.blocks))
	for i, b := range s.blocks {
		rows[i] = b.rows()
		for c := range b.columns {
			b.columns[c].marked = len(b.columns[c].data)
		}
	}
	return rows
}

// cut takes back what was added since the last mark.
func (s *set) cut(mark []int) {
	for i, b := range s.blocks {
		if i >= len(mark) {
			s.freeBlock(b)
			continue
		}
		for c := range b.columns {
			b.columns[c].cut(mark[i])
		}
	}
	s.blocks, s.last = s.blocks[:len(mark)], nil
}

func (s *set) freeBlock(b *block) {
	if s.free == nil {
		s.free = make(map[*table][]*block)
	}
	s.free[b.table] = append(s.free[b.table], b)
}

// reset makes the blocks free again. Blocks that were large once and small since would add up: past keepBytesMax they
// are let go.
func (s *set) reset(keepBytesMax int64) {
	for _, b := range s.blocks {
		s.freeBlock(b)
	}
	s.blocks, s.last = s.blocks[:0], nil
	clear(s.touched)
	total := int64(0)
	for _, free := range s.free {
		for _, b := range free {
			_, kept := b.bytes()
			total += int64(kept)
		}
	}
	if total > keepBytesMax {
		clear(s.free)
	}
}
