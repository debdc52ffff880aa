package outbox

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Partitions of a lane table that lie behind the cursor are purged, the lowest first, once nothing in them can matter:
//
//  1. The partition is exchanged with an empty private table. The metadata lock for it waits until no transaction, a
//     prepared XA one included, holds the lane table: from then on each id of the range has a row, or never will.
//  2. Rows of the private table whose ids are not settled (gaps, parked) committed late: they are put back into the lane
//     table, where the next sweep finds them. The private table is dropped: its other rows are published.
//  3. When there were none, the gaps of the range are forgotten, and after that is stored the partition is dropped.
//
// Each step can be done again. Rows are away from the lane table only between 1 and 2; an owner that dies there leaves a
// private table with rows, and the next take-over does step 2 before it looks at anything. A private table has a name of
// its own each time, and a take-over renames what it finds: so a statement that a dead owner had sent finds no table.
//
// The partition of the cursor is never purged, nor that of the greatest id: they keep the table's counter, the row by
// which the reader and the purge tell that the table was not emptied, and most rows of the topic's last events. A
// published event whose row is purged tells a take-over nothing: the cursor has passed it.

// planPurge says whether the lowest partition can be purged: the first id after it, 0 when it does not lie wholly behind
// cursor and greatest id. why is not empty when it does and has to wait.
func planPurge(bounds []uint64, s *laneState, maxID uint64) (bound uint64, why string) {
	if len(bounds) == 0 {
		return 0, ""
	}
	bound = slices.Min(bounds)
	if bound > s.cursor || bound > maxID {
		return 0, ""
	}
	if maxID < s.cursor {
		return bound, fmt.Sprintf("the greatest id, %d, lies below the cursor, %d: rows were deleted, or the table went back", maxID, s.cursor)
	}
	below := func(ranges []idRange) bool { return len(ranges) > 0 && ranges[0].From < bound }
	for p, set := range s.parked {
		if below(set.ranges) {
			return bound, "ids of it are parked: " + partitionName(p) + " does not take them"
		}
	}
	if below(s.hot) {
		return bound, "ids of it are hot gaps: a transaction may still commit them"
	}
	return bound, ""
}

// behind counts the partitions that lie wholly behind cursor and greatest id.
func behind(bounds []uint64, cursor, maxID uint64) (n int) {
	for _, b := range bounds {
		if b <= cursor && b <= maxID {
			n++
		}
	}
	return n
}

// unsettled are the ids from first to last that the state does not count as published or gone.
func (s *laneState) unsettled(first, last uint64) []idRange {
	var set idSet
	add := func(ranges []idRange) {
		for _, r := range ranges {
			if from, to := max(r.From, first), min(r.To, last); from <= to {
				set.add(idRange{from, to}, nil)
			}
		}
	}
	add(s.hot)
	add(s.cold)
	for _, p := range s.parked {
		add(p.ranges)
	}
	if s.cursor < ^uint64(0) {
		add([]idRange{{s.cursor + 1, ^uint64(0)}})
	}
	return set.ranges
}

// forget drops the gaps below an id: their partitions hold nothing, and never will.
func (g *gapTracker) forget(below uint64) {
	hot := g.hot[:0]
	for _, h := range g.hot {
		if h.To >= below {
			h.From = max(h.From, below)
			hot = append(hot, h)
		}
	}
	g.hot = hot
	g.cold.removeBelow(below)
}

func (s *bucketSet) removeBelow(id uint64) {
	n := s.search(id)
	for _, r := range s.ranges[:n] {
		s.touch(r.From)
	}
	s.ranges = slices.Delete(s.ranges, 0, n)
	if len(s.ranges) > 0 && s.ranges[0].From < id {
		s.touch(s.ranges[0].From)
		s.ranges[0].From = id
		s.touch(id)
	}
}

// Names and statements of the purge.

func purgeTablePrefix(lane int) string { return LaneTable(lane) + "_purge_" }

func purgeTable(lane int, random uint32) string {
	return fmt.Sprintf("%s%08x", purgeTablePrefix(lane), random)
}

const (
	// Names hold underscores, which LIKE takes for any character.
	purgeTablesSQL = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND LEFT(table_name, ?) = ?"
	anchorSQL      = "SELECT id, event_id FROM %s WHERE id <= ? ORDER BY id DESC LIMIT 1"
	idsOfSQL       = "SELECT COALESCE(MIN(id), 0), COALESCE(MAX(id), 0) FROM %s"
)

// makePurgeSQL makes a lane's private table. The first statement drops nothing: it fails without the privilege that the
// others need in the end.
func makePurgeSQL(lane int, name string) []string {
	return []string{
		"DROP TABLE IF EXISTS " + name,
		"CREATE TABLE " + name + " LIKE " + LaneTable(lane),
		"ALTER TABLE " + name + " REMOVE PARTITIONING",
	}
}

func exchangeSQL(lane int, p idPartition, name string) string {
	return "ALTER TABLE " + LaneTable(lane) + " EXCHANGE PARTITION " + p.name() + " WITH TABLE " + name
}

func dropPartitionSQL(lane int, p idPartition) string {
	return "ALTER TABLE " + LaneTable(lane) + " DROP PARTITION " + p.name()
}

// putBackSQL copies rows into the lane table. IGNORE: an earlier owner may have done so already.
func putBackSQL(lane int, name string, ids []idRange) string {
	var b strings.Builder
	b.WriteString("INSERT IGNORE INTO " + LaneTable(lane) + " (id, " + columnList + ") SELECT id, " + columnList + " FROM " + name + " WHERE ")
	writeTerms(&b, ids)
	return b.String()
}

// lateSQL says which of given ids a private table has.
func lateSQL(name string, ids []idRange, limit int) string {
	var b strings.Builder
	b.WriteString("SELECT id FROM " + name + " WHERE ")
	writeTerms(&b, ids)
	b.WriteString(" ORDER BY id LIMIT " + strconv.Itoa(limit))
	return b.String()
}
