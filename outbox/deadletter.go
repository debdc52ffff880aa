package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/deadletter"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/partitioner"
)

// Reasons under which the relay's dead letters are listed.
const (
	ReasonUnknownTable = event.ReasonUnknownTable
	ReasonBadRow       = "bad_row"     // a column of the row holds what it must not: the detail says which
	ReasonBadVersion   = "bad_version" // a version where it is automatic, none where it is not, or one out of range
	ReasonTooLarge     = "too_large"   // larger than the file allows
	ReasonLost         = "lost_commit" // in the topic, but a failover or restore lost its transaction: information only
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

// DeadKey names a dead letter of the relay.
type DeadKey struct {
	Lane       int
	Generation int64
	ID         uint64 // outbox id
}

// String is the key as commands show it: outbox/00/1/18204551.
func (k DeadKey) String() string { return fmt.Sprintf("outbox/%02d/%d/%d", k.Lane, k.Generation, k.ID) }

// DeadLetter is a row that the relay could not publish, or an event that a failover lost.
type DeadLetter struct {
	DeadKey
	Reason   string // one of the Reasons above
	Detail   string
	At       time.Time
	Table    string
	Tenant   string
	EntityID string
	Payload  []byte              // of those that were asked for whole
	Settled  *deadletter.Settled // nil while it is open
}

// listDeadSQL lists all dead letters, oldest first; the payload comes of one alone.
const listDeadSQL = "SELECT lane, generation, id, reason, detail, dead_at, tbl, tenant, entity_id," +
	" IF(lane = ? AND generation = ? AND id = ?, payload, NULL), settled, settled_at, settled_by, settled_why" +
	" FROM slotline_dead ORDER BY dead_at, lane, id"

// DeadLetters lists slotline_dead, oldest first; whole is the letter that comes with its payload, if any. db is opened by
// internal/mysqldb.
func DeadLetters(ctx context.Context, db Querier, whole DeadKey) ([]DeadLetter, error) {
	rows, err := db.QueryContext(ctx, listDeadSQL, whole.Lane, whole.Generation, whole.ID)
	if err != nil {
		return nil, settledMissing(err)
	}
	defer rows.Close()
	var list []DeadLetter
	for rows.Next() {
		var d DeadLetter
		var settled, by, why sql.NullString
		var at sql.NullTime
		if err := rows.Scan(&d.Lane, &d.Generation, &d.ID, &d.Reason, &d.Detail, &d.At, &d.Table, &d.Tenant, &d.EntityID, &d.Payload,
			&settled, &at, &by, &why); err != nil {
			return nil, err
		}
		if settled.Valid {
			d.Settled = &deadletter.Settled{Action: deadletter.Action(settled.String), At: at.Time, By: by.String, Why: why.String}
		}
		list = append(list, d)
	}
	return list, rows.Err()
}

const settleDeadSQL = "UPDATE slotline_dead SET settled = ?, settled_at = UTC_TIMESTAMP(6), settled_by = ?, settled_why = ?" +
	" WHERE lane = ? AND generation = ? AND id = ? AND settled IS NULL"

// Settle records how a person settled a dead letter. One that is settled already stays as it is. The time is the
// database's.
func Settle(ctx context.Context, db *sql.DB, key DeadKey, s deadletter.Settled) error {
	_, err := db.ExecContext(ctx, settleDeadSQL, string(s.Action), cutText(s.By, deadletter.ByBytesMax), cutText(s.Why, deadletter.WhyBytesMax),
		key.Lane, key.Generation, key.ID)
	return settledMissing(err)
}

// settledMissing says what to do about a table of an earlier release.
func settledMissing(err error) error {
	if mysqldb.Number(err) != 1054 {
		return err
	}
	return &fault.Error{Code: codeDeadOlder, Class: fault.Fatal, Err: err,
		What: "table slotline_dead was made by an earlier release: it cannot hold what was redriven or discarded",
		Do:   "slotline apply adds the columns; the relay need not stop"}
}

// generations give the letter's id, and no other, the version that it had: later generations began above it.
func (d *DeadLetter) generations() generations {
	return generations{{From: 1, Number: d.Generation}}
}

// deadRowSQL reads a dead letter as the relay reads a lane table.
func deadRowSQL(key DeadKey) string {
	return fmt.Sprintf("SELECT %s FROM slotline_dead WHERE lane = %d AND generation = %d AND id = %d", rowColumns, key.Lane, key.Generation, key.ID)
}

// Redrive makes the record that the relay would publish now for a dead letter: under the version that its id gave it, so
// that a newer event of the entity wins whenever either arrives. refused says why it still cannot be published, and is
// empty where it can.
func Redrive(ctx context.Context, db *sql.DB, cfg *config.Config, layout *partitioner.Layout, letter *DeadLetter) (out *Out, refused string, err error) {
	if letter.Reason == ReasonLost {
		return nil, "the topic holds it already: it is listed because its transaction is lost, not because it could not be published", nil
	}
	if letter.Lane >= cfg.Outbox.Lanes {
		return nil, fmt.Sprintf("the line has no lane %02d", letter.Lane), nil
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, "", err
	}
	defer conn.Close()
	var it *item
	r := newRouter(cfg, layout, letter.Lane)
	err = query(ctx, conn, deadRowSQL(letter.DeadKey), rowColumnCount, func(v []driver.Value) (bool, error) {
		var row laneRow
		var a arena
		if _, err := scanRow(v, &row, &a); err != nil {
			return false, err
		}
		it = r.item(&row, letter.generations(), &a)
		return false, nil
	})
	switch {
	case err != nil:
		return nil, "", err
	case it == nil:
		return nil, "it is not in slotline_dead any more", nil
	case it.reason != "":
		return nil, it.reason + ": " + it.detail, nil
	}
	return it.out, "", nil
}
