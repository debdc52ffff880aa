package outbox

import (
	"context"
	"fmt"
	"time"
)

// Reasons under which the relay's dead letters are listed.
const (
	ReasonUnknownTable = "unknown_table" // the file has no such table
	ReasonBadRow       = "bad_row"       // a column of the row holds what it must not: the detail says which
	ReasonBadVersion   = "bad_version"   // a version where it is automatic, none where it is not, or one out of range
	ReasonTooLarge     = "too_large"     // larger than the file allows
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

// DeadLetter is a row that the relay could not publish, or an event that a failover lost.
type DeadLetter struct {
	Lane       int
	Generation int64
	ID         uint64 // outbox id
	Reason     string // one of the Reasons above
	Detail     string
	At         time.Time
	Table      string
	Tenant     string
	EntityID   string
	Payload    []byte
}

// DeadLetters lists slotline_dead, oldest first. db is opened by internal/mysqldb.
func DeadLetters(ctx context.Context, db Querier) ([]DeadLetter, error) {
	rows, err := db.QueryContext(ctx, "SELECT lane, generation, id, reason, detail, dead_at, tbl, tenant, entity_id, payload"+
		" FROM slotline_dead ORDER BY dead_at, lane, id")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []DeadLetter
	for rows.Next() {
		var d DeadLetter
		if err := rows.Scan(&d.Lane, &d.Generation, &d.ID, &d.Reason, &d.Detail, &d.At, &d.Table, &d.Tenant, &d.EntityID, &d.Payload); err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return list, rows.Err()
}
