package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"slices"

	"github.com/slotline/slotline/event"
)

// A table that is emptied by TRUNCATE, or restored, gives out ids again that the lane has passed: nobody would read
// them. Two things tell. The table's counter lies at or below the greatest id read, which a committed row had: so also
// where the table is empty. And rows up to the greatest id read are others than those that were read: so also once the
// counter has passed it again. Rows that are deleted, and partitions that are dropped, leave the counter where it is and
// put nothing in the place of rows.

// knownMax rows are remembered: as long as one of them is there, the deletion of others says nothing.
const knownMax = 64

// knownRow is a row that was read.
type knownRow struct {
	id      uint64
	eventID event.ID
}

// knownRows are the last rows that were read, by id. A row at or above the first of them, that is neither one of them
// nor a gap, was not there before.
type knownRows struct{ rows []knownRow }

// add takes a row that is delivered. Below the first there are rows that are not known, so none is added there.
func (k *knownRows) add(id uint64, eventID event.ID) {
	if len(k.rows) > 0 && id < k.rows[0].id {
		return
	}
	i, _ := slices.BinarySearchFunc(k.rows, id, func(r knownRow, id uint64) int {
		if r.id < id {
			return -1
		}
		return 1
	})
	k.rows = slices.Insert(k.rows, i, knownRow{id, eventID})
	if len(k.rows) > 2*knownMax { // twice, so that rows are moved seldom
		k.rows = slices.Delete(k.rows, 0, len(k.rows)-knownMax)
	}
}

// newest is the id of the last row, 0 when none is known.
func (k *knownRows) newest() uint64 {
	if len(k.rows) == 0 {
		return 0
	}
	return k.rows[len(k.rows)-1].id
}

// judge compares the rows that the table holds now from some id on, up to the greatest id read, with what is known.
// gap says of an id that its row may commit yet. intact says that the newest known row is there still; foreign is a row
// that was not read, 0 if there is none.
func (k *knownRows) judge(now []knownRow, gap func(id uint64) bool) (intact bool, foreign uint64) {
	for _, r := range now {
		i, known := slices.BinarySearchFunc(k.rows, r.id, func(k knownRow, id uint64) int {
			switch {
			case k.id < id:
				return -1
			case k.id > id:
				return 1
			}
			return 0
		})
		switch {
		case known && k.rows[i].eventID != r.eventID:
			return false, r.id
		case known:
			intact = intact || i == len(k.rows)-1
		case r.id >= k.first() && !gap(r.id):
			foreign = r.id
		}
	}
	return intact, foreign
}

func (k *knownRows) first() uint64 {
	if len(k.rows) == 0 {
		return 0
	}
	return k.rows[0].id
}

// keep forgets the rows that the table does not hold any more. now are its rows up to the greatest id read, the
// greatest knownMax at least. foreign is a row that is neither known nor a gap where no known one is left: it may have
// been read long ago, or not at all.
func (k *knownRows) keep(now []knownRow, gap func(id uint64) bool) (foreign uint64) {
	there := map[uint64]bool{}
	for _, r := range now {
		there[r.id] = true
	}
	k.rows = slices.DeleteFunc(k.rows, func(r knownRow) bool { return !there[r.id] })
	if len(k.rows) > 0 {
		return 0
	}
	for _, r := range now {
		if !gap(r.id) {
			return r.id
		}
	}
	return 0
}

// lookBack makes sure that the table holds, up to the greatest id read, what was read of it, or less. counter asks for
// the table's counter too.
func (r *reader) lookBack(ctx context.Context, counter bool) error {
	if !r.anchored {
		rows, err := r.rowsUpTo(ctx, 0, true)
		if err != nil {
			return err
		}
		slices.Reverse(rows)
		for _, row := range rows {
			if !r.gaps.has(row.id) {
				r.known.add(row.id, row.eventID)
			}
		}
		r.anchored = true
	} else {
		rows, err := r.rowsUpTo(ctx, r.known.newest(), false)
		if err != nil {
			return err
		}
		intact, foreign := r.known.judge(rows, r.gaps.has)
		if foreign == 0 && !intact && len(r.known.rows) > 0 {
			// The newest is gone. It was deleted, if the rest is as it was.
			counter = true
			if rows, err = r.rowsUpTo(ctx, 0, true); err != nil {
				return err
			}
			if _, foreign = r.known.judge(rows, r.gaps.has); foreign == 0 {
				foreign = r.known.keep(rows, r.gaps.has)
			}
		}
		if foreign > 0 {
			return fmt.Errorf("%w: row %d of %s, at or below id %d that was read, is not one that was read", errWentBack, foreign, LaneTable(r.lane), r.gaps.read)
		}
	}
	if !counter {
		return nil
	}
	next, known, err := nextID(ctx, r.conn, r.lane)
	if err == nil && known && next <= r.gaps.read {
		err = fmt.Errorf("%w: %s", errWentBack, counterWentBack(r.lane, next, r.gaps.read))
	}
	return err
}

func counterWentBack(lane int, next, read uint64) string {
	return fmt.Sprintf("%s gives out id %d next, and id %d was read before", LaneTable(lane), next, read)
}

// rowsUpTo are rows up to the greatest id read: from an id on, or the last ones, those first.
func (r *reader) rowsUpTo(ctx context.Context, from uint64, last bool) (rows []knownRow, err error) {
	err = query(ctx, r.conn, lookBackSQL(r.lane, from, r.gaps.read, last), 2, func(v []driver.Value) (bool, error) {
		var s valueScanner
		row := knownRow{id: s.uint(v[0])}
		copy(row.eventID[:], s.bytes(v[1]))
		rows = append(rows, row)
		return true, s.err
	})
	return rows, err
}

// freshStatistics makes nextID tell the truth on a connection; the server's default is that of yesterday.
func freshStatistics(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, "SET SESSION information_schema_stats_expiry = 0")
	return err
}

const nextIDSQL = "SELECT auto_increment FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?"

// nextID is the id that a lane's table gives out next; not known where the server does not tell.
func nextID(ctx context.Context, conn *sql.Conn, lane int) (id uint64, known bool, err error) {
	var next sql.NullInt64
	if err := conn.QueryRowContext(ctx, nextIDSQL, LaneTable(lane)).Scan(&next); err != nil {
		return 0, false, err
	}
	return uint64(next.Int64), next.Valid && next.Int64 > 0, nil
}
