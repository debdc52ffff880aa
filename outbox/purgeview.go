package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/lease"
)

// PartitionView is how the partitions of a lane table stand, for status. Rows and Bytes are InnoDB's estimates.
type PartitionView struct {
	Partitions int // the last, MAXVALUE, apart
	Ahead      int // beyond the one of the greatest id
	Behind     int // wholly behind the cursor: to be purged
	Overrun    bool
	Rows       int64
	Bytes      int64
	Private    int    // private tables of the purge
	Waits      string // why the lowest of those behind cannot be purged now; "" if it can
}

const partitionSizesSQL = "SELECT partition_description, COALESCE(table_rows, 0), COALESCE(data_length, 0) FROM information_schema.partitions" +
	" WHERE table_schema = DATABASE() AND table_name = ? AND partition_name IS NOT NULL"

// Partitions reads how the partitions of each lane's table stand.
func Partitions(ctx context.Context, db *sql.DB, lanes int) ([]PartitionView, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer mysqldb.Discard(conn) // its statistics setting is its own
	if err := freshStatistics(ctx, conn); err != nil {
		return nil, err
	}
	views := make([]PartitionView, lanes)
	for lane := range views {
		if err := views[lane].read(ctx, db, conn, lane); err != nil {
			return nil, err
		}
	}
	return views, nil
}

func (v *PartitionView) read(ctx context.Context, db *sql.DB, conn *sql.Conn, lane int) error {
	p := purger{db: db, lane: lane}
	rows, err := conn.QueryContext(ctx, partitionSizesSQL, LaneTable(lane))
	if err != nil {
		return err
	}
	defer rows.Close()
	var bounds []uint64
	for rows.Next() {
		var text string
		var count, size int64
		if err := rows.Scan(&text, &count, &size); err != nil {
			return err
		}
		v.Rows, v.Bytes = v.Rows+count, v.Bytes+size
		if bound, err := strconv.ParseUint(text, 10, 64); err == nil {
			bounds = append(bounds, bound)
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	private, err := p.tables(ctx)
	if err != nil {
		return err
	}
	v.Partitions, v.Private = len(bounds), len(private)
	if len(bounds) == 0 {
		return nil
	}
	maxID, err := greatestID(ctx, db, lane)
	if err != nil {
		return err
	}
	n := ahead(bounds, maxID)
	v.Ahead, v.Overrun = max(0, n), n < 0
	state, _, err := loadLane(ctx, db, lane)
	if f, ok := errors.AsType[*fault.Error](err); ok && f.Code == codeLaneDamaged {
		v.Waits = f.What
		return nil
	}
	if err != nil {
		return err
	}
	v.Behind = behind(bounds, state.cursor, maxID)
	_, v.Waits = planPurge(bounds, state, maxID)
	return nil
}

// GapView is a range of ids below a lane's cursor that are not published.
type GapView struct {
	From, To uint64
	// Kind is "hot", "cold", or "<topic>/<partition>" where that partition does not take them.
	Kind string
	// Since is when the event after the range was appended, by its emitter's clock: about when the ids were drawn. Zero
	// where there is no such event, and beyond the first gapsDated ranges.
	Since time.Time
}

// gapsDated ranges are dated at most: each takes a query.
const gapsDated = 1000

// Gaps lists a lane's gaps and parked ids, by kind and id.
func Gaps(ctx context.Context, db *sql.DB, lane int) ([]GapView, error) {
	s, _, err := loadLane(ctx, db, lane)
	if err != nil {
		return nil, laneError(err, lane, "load its state")
	}
	var list []GapView
	add := func(kind string, ranges []idRange) {
		for _, r := range ranges {
			list = append(list, GapView{From: r.From, To: r.To, Kind: kind})
		}
	}
	add("hot", s.hot)
	add(coldKind, s.cold)
	for _, p := range sortedPartitions(s.parked) {
		add(partitionName(p), s.parked[p].ranges)
	}
	for i := range list[:min(len(list), gapsDated)] {
		var at anyTime
		err := db.QueryRowContext(ctx, "SELECT created_at FROM "+LaneTable(lane)+" WHERE id > ? ORDER BY id LIMIT 1", list[i].To).Scan(&at)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return nil, laneError(err, lane, "date its gaps")
		}
		list[i].Since = at.Time
	}
	return list, nil
}

// Purge purges what lies behind a lane's cursor, where no relay owns the lane: it takes the lease for the time, and reads
// the topic's tail as each owner does. With fault.Fenced a relay owns the lane, and purges by itself. waits says why the
// purge did not come to its end, "" when it did.
func (r *Relay) Purge(ctx context.Context, lane int) (list []Purged, waits string, err error) {
	if err := checkReady(ctx, r.o.DB, r.o.Config); err != nil {
		return nil, "", err
	}
	held, err := r.acquire(ctx, lane)
	if err != nil {
		return nil, "", err
	}
	keeping, stop := context.WithCancel(ctx)
	kept := make(chan struct{})
	go func() { // owned here: stop ends it
		defer close(kept)
		held.Keep(keeping)
	}()
	list, waits, err = r.purgeHeld(ctx, lane, held)
	stop()
	<-kept
	release, done := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer done()
	return list, waits, errors.Join(err, held.Release(release))
}

func (r *Relay) purgeHeld(ctx context.Context, lane int, held *lease.Held) (list []Purged, waits string, err error) {
	writer, err := r.o.NewWriter(lane)
	if err != nil {
		return nil, "", fmt.Errorf("outbox lane %02d: %w", lane, err)
	}
	defer writer.Close()
	ctx, cancel := lostContext(ctx, held)
	defer cancel()
	s := &session{relay: r, lane: lane, held: held, log: r.o.Logger.With("lane", fmt.Sprintf("%02d", lane)), stats: r.stats[lane], writer: writer}
	s.purger = &purger{db: r.o.DB, lane: lane, alive: held.Alive, log: s.log, away: &s.away, fence: held.Fence()}
	if _, _, err := s.takeOver(ctx); err != nil {
		return nil, "", err
	}
	for {
		done, err := s.purger.next(ctx)
		if waiting, ok := errors.AsType[errPurgeWaits](err); ok {
			return list, waiting.why, nil
		}
		if errors.Is(err, errWaited) {
			return list, err.Error(), nil
		}
		if err != nil {
			return list, "", purgeFault(lane, err)
		}
		if done == nil {
			return list, "", nil
		}
		list = append(list, *done)
	}
}

func sortedPartitions[V any](m map[event.Partition]V) []event.Partition {
	return slices.SortedFunc(maps.Keys(m), comparePartitions)
}
