// Package olap is what the sinks of OLAP stores have in common for whoever compares and rebuilds their tables.
package olap

import (
	"bytes"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/partitioner"
)

// TableSize is one partition of a table: a month, or the whole of a table without months. What Rows and Bytes count is the
// store's own: see its TableSizes.
type TableSize struct {
	Table string            // logical
	Month partitioner.Month // NoMonth for a table without months
	Rows  int64             // an estimate
	Bytes int64
}

// Shadow has a sink fill one table beside the live one: that of a rebuild.
type Shadow struct {
	Table string            // logical
	Month partitioner.Month // rows of other months are passed over; NoMonth: all count
	Into  func() string     // the table that rows go to; it may become another between batches
}

// PassesOver says that an event is of one of the file's tables that the sink does not keep. One of an unknown table is
// looked at: that is a fault of the event, or of the file. A nil Shadow passes nothing over.
func (s *Shadow) PassesOver(key []byte, file []*event.Table) bool {
	if s == nil {
		return false
	}
	table, _, _ := bytes.Cut(key, []byte{0})
	if string(table) == s.Table {
		return false
	}
	for _, t := range file {
		if t.Name == string(table) {
			return true
		}
	}
	return false
}

// Keeps says whether a row is of a month that the sink keeps. A nil Shadow keeps all.
func (s *Shadow) Keeps(row *event.Row) bool {
	return s == nil || s.Month == partitioner.NoMonth || row.Month == s.Month
}

// Named is a table under another name.
func Named(t *event.Table, name string) *event.Table {
	other := *t
	other.Name = name
	return &other
}

// Compared is how the rows of two tables compare.
type Compared struct {
	Rows    int64 // of both, each entity once
	Equal   int64
	Missing int64 // not in the first
	Extra   int64 // in the first alone
}
