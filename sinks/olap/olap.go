// Package olap is what the sinks of OLAP stores tell of their tables, in the same words.
package olap

import "github.com/slotline/slotline/partitioner"

// TableSize is one partition of a table: a month, or the whole of a table without months. What Rows and Bytes count is the
// store's own: see its TableSizes.
type TableSize struct {
	Table string            // logical
	Month partitioner.Month // NoMonth for a table without months
	Rows  int64             // an estimate
	Bytes int64
}
