package outbox

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A lane table is split by id into partitions of purge_rows ids, so that rows behind the cursor are dropped as a whole.
// The last one, MAXVALUE, is only split while it is empty: splitting it then moves no row. So it must stay empty, and
// some empty partitions are kept before it.

// idPartition holds the ids below its bound.
type idPartition struct{ Bound uint64 }

func (p idPartition) name() string { return "p" + strconv.FormatUint(p.Bound-1, 10) }

func (p idPartition) ddl() string {
	return fmt.Sprintf("PARTITION %s VALUES LESS THAN (%d)", p.name(), p.Bound)
}

// partitionsUpTo are the n partitions after a bound; each ends at a multiple of rows.
func partitionsUpTo(bound, rows uint64, n int) []idPartition {
	if bound > 0 {
		bound-- // bounds are 1 above a multiple
	}
	var list []idPartition
	for range n {
		bound = bound/rows*rows + rows
		list = append(list, idPartition{bound + 1})
	}
	return list
}

// planSplit says which partitions to make of MAXVALUE so that partitionsAhead partitions lie beyond the one that maxID
// is in; none when there are enough. overrun says that ids have reached MAXVALUE.
func planSplit(bounds []uint64, maxID, rows uint64) (add []idPartition, overrun bool) {
	slices.Sort(bounds)
	ahead := ahead(bounds, maxID)
	if len(bounds) > 0 && ahead < 0 {
		return nil, true
	}
	if ahead >= partitionsAhead {
		return nil, false
	}
	last := uint64(0)
	if len(bounds) > 0 {
		last = bounds[len(bounds)-1]
	}
	// Twice as many as are missing at least, so that the table is altered seldom.
	return partitionsUpTo(last, rows, max(partitionsAhead-ahead, partitionsAhead)), false
}

// ahead counts the partitions beyond the one that an id is in, MAXVALUE apart; −1 when the id is in MAXVALUE.
func ahead(bounds []uint64, id uint64) int {
	n := -1
	for _, b := range bounds {
		if b > id {
			n++
		}
	}
	return n
}

func splitSQL(lane int, add []idPartition) string {
	parts := make([]string, 0, len(add)+1)
	for _, p := range add {
		parts = append(parts, p.ddl())
	}
	parts = append(parts, "PARTITION "+lastPartition+" VALUES LESS THAN MAXVALUE")
	return fmt.Sprintf("ALTER TABLE %s REORGANIZE PARTITION %s INTO (%s)", LaneTable(lane), lastPartition, strings.Join(parts, ", "))
}
