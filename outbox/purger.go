package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/lease"
)

const codePurgeHeld = "SL5014" // partitions behind the cursor cannot be purged

const (
	// purgeHeldMax is how long partitions may wait before that is worth a warning; then one an hour.
	purgeHeldMax  = 10 * time.Minute
	purgeWarnings = time.Hour
	// forgetMax bounds the wait until the session has stored that gaps are forgotten.
	forgetMax  = 10 * time.Second
	forgetLook = 20 * time.Millisecond
)

// purger purges the partitions of one lane, for the owner of its lease. One goroutine at a time calls it.
type purger struct {
	db    *sql.DB
	lane  int
	alive func() bool // the lease runs
	log   *slog.Logger
	// away is held while rows may be out of the lane table: whoever looks there for rows that must be there holds it too.
	away *sync.RWMutex
	// orders go to the lane's reader, which holds the gaps; nil where none runs, and fence is what changes them then.
	orders chan<- purgeOrder
	fence  lease.Fence

	anchor  knownRow // a row that was read: while it is there, the table is the one that was read
	decided Purged   // a partition in which nothing can come any more, until it is dropped
	tries   int      // statements of ddl that waited for the lane table in vain, less those that did not
}

// Purged is a partition that was purged.
type Purged struct {
	Bound uint64 // the first id after it
	Rows  uint64 // published rows that went with it
}

// errPurgeWaits says that a partition behind the cursor cannot be purged now.
type errPurgeWaits struct{ why string }

func (e errPurgeWaits) Error() string { return "the purge waits: " + e.why }

var errAnchor = errors.New("a row that was read before is not in the lane table any more")

// next purges the lowest partition if it lies behind the cursor: nil when there is none. With errPurgeWaits nothing was
// changed that the next call does not find.
func (p *purger) next(ctx context.Context) (*Purged, error) {
	state, bounds, maxID, err := p.look(ctx)
	if err != nil || len(bounds) == 0 {
		return nil, err
	}
	bound, why := planPurge(bounds, state, maxID)
	if err := p.moveAnchor(ctx, state.cursor); err != nil {
		return nil, err
	}
	switch {
	case bound == 0:
		return nil, nil
	case why != "":
		return nil, errPurgeWaits{why}
	case p.anchor.id < bound:
		return nil, errPurgeWaits{fmt.Sprintf("no row from id %d up to the cursor, %d, is left: rows were deleted", bound, state.cursor)}
	}
	if p.decided.Bound < bound {
		rows, late, err := p.decide(ctx, bound)
		if err != nil {
			return nil, err
		}
		if len(late) > 0 {
			p.log.Info("rows that committed late are put back into the lane table and published", "partition", idPartition{bound}.name(), "rows", len(late))
			if err := p.order(ctx, purgeOrder{sweep: true}); err != nil {
				return nil, err
			}
			return nil, errPurgeWaits{fmt.Sprintf("%d rows of it committed late and are published first", len(late))}
		}
		p.decided = Purged{bound, rows}
	}
	if err := p.forgetBelow(ctx, bound); err != nil {
		return nil, err
	}
	if !p.alive() {
		return nil, errMoved
	}
	if err := p.ddl(ctx, dropPartitionSQL(p.lane, idPartition{bound})); err != nil {
		return nil, err
	}
	done := p.decided
	p.log.Info("partition purged", "partition", idPartition{bound}.name(), "rows", done.Rows)
	return &done, nil
}

// ddl runs a statement that needs the lane table alone.
func (p *purger) ddl(ctx context.Context, statement string) error {
	err := runDDL(ctx, p.db, p.lane, statement, ddlWait(p.tries))
	switch {
	case err == nil:
		p.tries = max(0, p.tries-1) // the next one meets the same transactions
	case errors.Is(err, errWaited):
		p.tries++
	}
	return err
}

// look is how the lane stands; without partitions there is nothing to purge.
func (p *purger) look(ctx context.Context) (state *laneState, bounds []uint64, maxID uint64, err error) {
	if bounds, err = partitionBounds(ctx, p.db, LaneTable(p.lane)); err != nil || len(bounds) == 0 {
		return nil, nil, 0, err
	}
	state, uuid, err := loadLane(ctx, p.db, p.lane)
	if err != nil {
		return nil, nil, 0, err
	}
	if state.serverUUID != uuid {
		return nil, nil, 0, errOtherServer
	}
	maxID, err = greatestID(ctx, p.db, p.lane)
	return state, bounds, maxID, err
}

// moveAnchor makes sure that the anchor is there, and takes the newest row up to the cursor in its place.
func (p *purger) moveAnchor(ctx context.Context, cursor uint64) error {
	if p.anchor.id > 0 {
		if err := p.intact(ctx); err != nil {
			return err
		}
	}
	row, err := p.newest(ctx, cursor)
	if err == nil {
		p.anchor = row
	}
	return err
}

func (p *purger) newest(ctx context.Context, upto uint64) (row knownRow, err error) {
	var id []byte
	err = p.db.QueryRowContext(ctx, fmt.Sprintf(anchorSQL, LaneTable(p.lane)), upto).Scan(&row.id, &id)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	copy(row.eventID[:], id)
	return row, err
}

func (p *purger) intact(ctx context.Context) error {
	row, err := p.newest(ctx, p.anchor.id)
	if err == nil && row != p.anchor {
		err = fmt.Errorf("%w: id %d", errAnchor, p.anchor.id)
	}
	return err
}

// decide takes the partition's rows out of the lane table and puts back those that are not settled.
func (p *purger) decide(ctx context.Context, bound uint64) (rows uint64, late []uint64, err error) {
	name := purgeTable(p.lane, rand.Uint32())
	for _, statement := range makePurgeSQL(p.lane, name) {
		if !p.alive() {
			return 0, nil, errMoved
		}
		if _, err := p.db.ExecContext(ctx, statement); err != nil {
			return 0, nil, err
		}
	}
	p.away.Lock()
	defer p.away.Unlock()
	if !p.alive() {
		return 0, nil, errMoved
	}
	err = p.ddl(ctx, exchangeSQL(p.lane, idPartition{bound}, name))
	// Whatever the error, the exchange may have been done.
	for failures := 1; ; failures++ {
		var settleErr error
		rows, late, settleErr = p.settle(ctx, name)
		if settleErr == nil {
			return rows, late, err
		}
		if ctx.Err() != nil || !p.alive() {
			return 0, nil, settleErr // the next take-over settles it
		}
		p.log.Warn("rows are in a private table of the purge until this succeeds", "table", name, "error", settleErr)
		sleep(ctx, backoff(failures, 50*time.Millisecond, time.Second))
	}
}

// settle puts the rows of a private table that are not settled back into the lane table, and drops the private one. A
// table that is not there is settled.
func (p *purger) settle(ctx context.Context, name string) (rows uint64, late []uint64, err error) {
	state, _, err := loadLane(ctx, p.db, p.lane)
	if err != nil {
		return 0, nil, err
	}
	var first, last uint64
	err = p.db.QueryRowContext(ctx, fmt.Sprintf(idsOfSQL, name)).Scan(&first, &last)
	if mysqldb.Number(err) == errNoTable {
		return 0, nil, nil
	}
	if err != nil {
		return 0, nil, err
	}
	if last > 0 {
		open := state.unsettled(first, last)
		rows = last - first + 1 - countIDs(open)
		if p.anchor.id > 0 {
			if err := p.intact(ctx); errors.Is(err, errAnchor) {
				// The table was emptied, and these may be rows that nobody has read.
				p.log.Warn("the lane table went back while it was purged: all rows are put back", "error", err)
				open, rows = []idRange{{first, last}}, 0
			} else if err != nil {
				return 0, nil, err
			}
		}
		for chunk := range slices.Chunk(open, sweepTerms) {
			if err := p.putBack(ctx, name, chunk, &late); err != nil {
				return 0, nil, err
			}
		}
	}
	if !p.alive() {
		return 0, nil, errMoved
	}
	_, err = p.db.ExecContext(ctx, "DROP TABLE IF EXISTS "+name)
	return rows, late, err
}

// putBack copies the rows of some ids back into the lane table and adds their ids to late.
func (p *purger) putBack(ctx context.Context, name string, ranges []idRange, late *[]uint64) error {
	conn, err := p.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for len(ranges) > 0 {
		var found []uint64
		err := query(ctx, conn, lateSQL(name, ranges, foundRows), 1, func(v []driver.Value) (bool, error) {
			var s valueScanner
			found = append(found, s.uint(v[0]))
			return true, s.err
		})
		if err != nil {
			return err
		}
		var set idSet
		for _, id := range found {
			set.add(idRange{id, id}, nil)
		}
		for chunk := range slices.Chunk(set.ranges, sweepTerms) {
			if _, err := conn.ExecContext(ctx, putBackSQL(p.lane, name, chunk)); err != nil {
				return err
			}
		}
		*late = append(*late, found...)
		if len(found) < foundRows {
			return nil
		}
		above := laneState{cursor: ^uint64(0), cold: ranges}
		ranges = above.unsettled(found[len(found)-1]+1, ^uint64(0))
	}
	return nil
}

// foundRows are put back in one statement at most: rows may be large.
const foundRows = 500

// forgetBelow takes the gaps below an id out of the state and waits until that is stored.
func (p *purger) forgetBelow(ctx context.Context, bound uint64) error {
	deadline := time.Now().Add(forgetMax)
	for asked := false; ; {
		state, _, err := loadLane(ctx, p.db, p.lane)
		if err != nil {
			return err
		}
		if len(state.unsettled(0, bound-1)) == 0 {
			return nil
		}
		if !asked {
			asked = true
			if err := p.order(ctx, purgeOrder{forget: bound}); err != nil {
				return err
			}
		} else if time.Now().After(deadline) {
			return errPurgeWaits{"the lane's state is not saved: see whether Kafka takes events"}
		}
		if !sleep(ctx, forgetLook) {
			return ctx.Err()
		}
	}
}

// order waits until the reader has taken an order.
func (p *purger) order(ctx context.Context, o purgeOrder) error {
	if p.orders == nil {
		return p.forgetStored(ctx, o.forget) // a relay that takes the lane over sweeps by itself
	}
	select {
	case p.orders <- o:
		return nil
	case <-time.After(forgetMax):
		return errPurgeWaits{"the lane does not read: see whether Kafka takes events"}
	case <-ctx.Done():
		return ctx.Err()
	}
}

// forgetStored takes the gaps below an id out of the stored state, for an owner that does not read.
func (p *purger) forgetStored(ctx context.Context, below uint64) error {
	state, _, err := loadLane(ctx, p.db, p.lane)
	if err != nil {
		return err
	}
	var gaps gapTracker
	for _, h := range state.hot {
		gaps.hot = append(gaps.hot, hotRange{idRange: h})
	}
	gaps.cold.ranges = state.cold
	gaps.forget(below)
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := oneRow(tx.ExecContext(ctx, goBackSQL, state.cursor, string(appendRanges(nil, gaps.hotRanges())), p.lane, p.fence.Owner, p.fence.Epoch)); err != nil {
		return err
	}
	if err := saveBuckets(ctx, tx, p.lane, coldKind, gaps.cold.takeDirty()); err != nil {
		return err
	}
	return tx.Commit()
}

const errNoTable = 1146

// recover settles what an owner that died has left: its private tables get names that it does not know, and what was
// not settled is in the lane table again. It comes before anything of the lane is judged or read.
func (p *purger) recover(ctx context.Context) error {
	names, err := p.tables(ctx)
	if err != nil {
		return err
	}
	for _, old := range names {
		name := purgeTable(p.lane, rand.Uint32())
		err := p.exec(ctx, "RENAME TABLE "+old+" TO "+name)
		switch {
		case mysqldb.Number(err) == errNoTable:
			continue // its owner was about to drop it
		case mysqldb.Classify(err) == fault.Fatal:
			var first, last uint64
			if askErr := p.db.QueryRowContext(ctx, fmt.Sprintf(idsOfSQL, old)).Scan(&first, &last); askErr == nil && last == 0 {
				p.log.Warn("an empty private table of the purge stays", "table", old, "error", err)
				continue
			}
			return err
		case err != nil:
			return err
		}
		rows, late, err := p.settle(ctx, name)
		if err != nil {
			return err
		}
		if rows > 0 || len(late) > 0 {
			p.log.Info("settled a private table of the purge that an owner left", "table", old, "rows", rows, "put_back", len(late))
		}
	}
	return nil
}

// tables are the lane's private tables.
func (p *purger) tables(ctx context.Context) (names []string, err error) {
	prefix := purgeTablePrefix(p.lane)
	rows, err := p.db.QueryContext(ctx, purgeTablesSQL, len(prefix), prefix)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, rows.Err()
}

// exec runs a statement that waits a second at most for those who read a private table.
func (p *purger) exec(ctx context.Context, statement string) error {
	conn, err := p.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer mysqldb.Discard(conn)
	if _, err := conn.ExecContext(ctx, "SET SESSION lock_wait_timeout = 1"); err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, statement)
	return err
}

func greatestID(ctx context.Context, db *sql.DB, lane int) (id uint64, err error) {
	err = db.QueryRowContext(ctx, "SELECT COALESCE(MAX(id), 0) FROM "+LaneTable(lane)).Scan(&id)
	return id, err
}
