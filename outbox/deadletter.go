package outbox

import (
	"fmt"
	"time"
)

// Reasons under which the relay's dead letters are listed.
const (
	ReasonUnknownTable = "unknown_table" // the file has no such table
	ReasonBadRow       = "bad_row"       // a column of the row holds what it must not: the detail says which
	ReasonBadVersion   = "bad_version"   // a version where it is automatic, none where it is not, or one out of range
	ReasonTooLarge     = "too_large"     // larger than the topic takes
	ReasonLost         = "lost_commit"   // in the topic, but a failover or restore lost its transaction: information only
)

const deadDetailBytesMax = 4 << 10

// deadSQL copies a row into slotline_dead. IGNORE: an earlier owner of the lane may have done so already.
func deadSQL(lane int) string {
	return fmt.Sprintf("INSERT IGNORE INTO slotline_dead (lane, generation, id, reason, detail, dead_at, %s)"+
		" SELECT %d, ?, id, ?, ?, UTC_TIMESTAMP(6), %s FROM %s WHERE id = ?", columnList, lane, columnList, LaneTable(lane))
}

// lostSQL lists an event that the topic holds and the database lost.
func lostSQL(lane int) string {
	return fmt.Sprintf("INSERT IGNORE INTO slotline_dead (lane, generation, id, reason, detail, dead_at,"+
		" event_id, tbl, tenant, entity_id, op, version, codec, created_at, payload)"+
		" VALUES (%d, ?, ?, '%s', ?, UTC_TIMESTAMP(6), ?, ?, ?, ?, ?, ?, %d, ?, ?)", lane, ReasonLost, codecJSON)
}

// flood counts dead letters per minute: past max it is a fault of a release, not of rows.
type flood struct {
	max    int
	since  time.Time
	within int
}

// add says whether n more are too many.
func (f *flood) add(n int, now time.Time) bool {
	if now.Sub(f.since) >= time.Minute {
		f.since, f.within = now, 0
	}
	f.within += n
	return f.max > 0 && f.within > f.max
}
