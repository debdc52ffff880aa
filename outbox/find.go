package outbox

import (
	"context"
	"database/sql"
	"time"

	"github.com/slotline/slotline/event"
)

// FoundRow is a row of a lane table that tells of an entity.
type FoundRow struct {
	ID        uint64
	Op        event.Op
	Version   int64 // that it is published under; of an unpublished row with an automatic version, unless a generation begins before it
	CreatedAt time.Time
	Published bool // or a dead letter
}

// Found is what a lane table says of an entity.
type Found struct {
	Lane   int
	Cursor uint64
	From   uint64     // rows below this id were not looked at
	Rows   []FoundRow // the newest first, at most foundRowsMax
}

const (
	// findIDsMax bounds the ids that Find looks at: a lane table has no index but its key, and a look at a million rows
	// takes about a second.
	findIDsMax   = 1_000_000
	foundRowsMax = 20
)

// findSQL looks for an entity among the rows from an id on.
func findSQL(lane int) string {
	return "SELECT id, op, version, created_at FROM " + LaneTable(lane) +
		" WHERE id >= ? AND tbl = ? AND tenant = ? AND entity_id = ? ORDER BY id DESC LIMIT ?"
}

// Find looks for an entity's rows in its lane's table, among the newest million ids. It takes no locks. table, tenant and
// id are the canonical texts that rows hold; tenant is empty for a broadcast table.
func Find(ctx context.Context, db *sql.DB, lane int, table, tenant, id string) (*Found, error) {
	s, _, err := loadLane(ctx, db, lane)
	if err != nil {
		return nil, err
	}
	f := &Found{Lane: lane, Cursor: s.cursor}
	var last uint64
	if err := db.QueryRowContext(ctx, "SELECT COALESCE(MAX(id), 0) FROM "+LaneTable(lane)).Scan(&last); err != nil {
		return nil, err
	}
	if last > findIDsMax {
		f.From = last - findIDsMax + 1
	}
	rows, err := db.QueryContext(ctx, findSQL(lane), f.From, table, tenant, id, foundRowsMax)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r FoundRow
		var version sql.NullInt64
		if err := rows.Scan(&r.ID, &r.Op, &version, &r.CreatedAt); err != nil {
			return nil, err
		}
		r.Version, r.Published = s.generations.version(r.ID), s.counted(r.ID)
		if version.Valid {
			r.Version = version.Int64
		}
		f.Rows = append(f.Rows, r)
	}
	return f, rows.Err()
}
