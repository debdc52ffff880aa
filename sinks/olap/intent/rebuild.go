package intent

import (
	"context"
	"database/sql"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/internal/progress"
)

// This file is what the rebuild of an engine's table asks of the state.

// Ends are the offsets below which a sink may have sent the rows of each partition: its progress, or the end of a batch that
// is on its way.
func Ends(ctx context.Context, db *sql.DB, sink string) (map[event.Partition]int64, error) {
	// The batches first: one that is confirmed meanwhile is in the progress.
	rows, err := db.QueryContext(ctx, "SELECT `grp`,`ranges` FROM `slotline_intent` WHERE `sink`=? AND `confirmed`=0", sink)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	ends := map[event.Partition]int64{}
	for rows.Next() {
		var group int
		var text string
		if err := rows.Scan(&group, &text); err != nil {
			return nil, err
		}
		ranges, err := parseRanges(text)
		if err != nil {
			return nil, unreadable(sink, group, "ranges", err)
		}
		for _, r := range ranges {
			ends[r.Partition] = r.To
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	list, err := progress.List(ctx, db, sink)
	for _, r := range list {
		ends[r.Partition] = max(ends[r.Partition], r.Next)
	}
	return ends, err
}

// Seed makes the rows of a sink of groups that begins.
func (s *State) Seed(ctx context.Context, groups [][]event.Partition) error {
	changes, err := s.Plan(ctx, groups)
	if err != nil {
		return err
	}
	for _, c := range changes {
		if err := c.Apply(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Forget deletes the rows of a sink that is no more.
func Forget(ctx context.Context, db *sql.DB, sink string, topics []string) error {
	for _, table := range []string{Table, "slotline_rollup_group"} {
		_, err := db.ExecContext(ctx, "DELETE FROM `"+table+"` WHERE `sink`=?", sink)
		if err != nil && mysqldb.Number(err) != errNoTable {
			return err
		}
	}
	return progress.Forget(ctx, db, sink, topics)
}

const errNoTable = 1146
