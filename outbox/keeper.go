package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
)

const (
	// How long a statement may wait for the lane table's metadata lock: emitters queue behind it meanwhile. Each try that
	// was in vain doubles it, or transactions that always take longer would hold up the purge for ever; and the pause
	// before the next try doubles too, so that emitters wait for less than a hundredth of the time.
	ddlWaitMin   = 50 * time.Millisecond
	ddlWaitMax   = 1600 * time.Millisecond
	ddlLook      = 10 * time.Millisecond // between looks at whether it waits
	ddlRetryMax  = 15                    // times Timing.Split, between tries: 5 minutes
	lockWaiting  = "Waiting for table metadata lock"
	ddlRunsMax   = 30 * time.Second
	partitionSQL = "SELECT partition_name, partition_description FROM information_schema.partitions" +
		" WHERE table_schema = DATABASE() AND table_name = ? AND partition_name IS NOT NULL"
)

const (
	errLockWait    = 1205
	errInterrupted = 1317
)

// errWaited says that a statement waited for a lock and was cancelled, or was not tried since it would have waited.
var errWaited = errors.New("a transaction holds the lane table")

// standing is how far a lane was when a look found nothing to do.
type standing struct {
	read, cursor uint64
	until        time.Time // rolled-back transactions use up ids that nobody reads: then it is looked again
}

// keepPartitions keeps empty partitions ahead of the lane's ids and purges those behind its cursor, until ctx ends. While
// the lane is idle and stands where there was nothing to do, it does not look.
func (s *session) keepPartitions(ctx context.Context) {
	every := s.relay.o.Timing.Split
	splits, purges := 0, 0 // failures in a row
	var splitAt, purgeAt time.Time
	var done standing
	for ; ctx.Err() == nil; sleep(ctx, every) {
		now := time.Now()
		read, idle := s.relay.glance.readOf(s.lane)
		here := standing{read: read, cursor: s.stats.cursor(), until: now.Add(ddlRetryMax * every)}
		if idle && now.Before(done.until) && here.read == done.read && here.cursor == done.cursor {
			continue
		}
		settled := true
		if now.Before(splitAt) {
			settled = false
		} else if err := s.splitAhead(ctx); err == nil {
			splits = 0
		} else if ctx.Err() == nil {
			settled = false
			splits++
			splitAt = now.Add(backoff(splits, every, ddlRetryMax*every))
			if errors.Is(err, errWaited) {
				s.log.Info("partitions ahead are made later: a transaction holds the lane table", "tries", splits)
			} else {
				s.log.Warn("cannot make partitions ahead", "error", err)
			}
		}
		if now.Before(purgeAt) {
			settled = false
		} else if err := s.purgeBehind(ctx); err == nil {
			purges = 0
		} else if settled = false; errors.As(err, new(errPurgeWaits)) {
			purges = 0
		} else {
			purges++
			purgeAt = now.Add(backoff(purges, every, ddlRetryMax*every))
		}
		if done = (standing{}); settled {
			done = here
		}
	}
}

// purgeBehind purges what lies behind the cursor, and says why something is left; errPurgeWaits is no failure.
func (s *session) purgeBehind(ctx context.Context) error {
	for ctx.Err() == nil {
		done, err := s.purger.next(ctx)
		if err == nil && done == nil {
			s.purgeHeld(nil)
			return nil
		}
		if err != nil {
			if ctx.Err() == nil {
				s.purgeHeld(err)
			}
			return err
		}
		s.stats.update(func(st *LaneStatus) {
			st.PurgedPartitions++
			st.PurgedRows += done.Rows
		})
	}
	return ctx.Err()
}

// purgeHeld notes why the purge does not go on; nil when nothing is left to purge.
func (s *session) purgeHeld(err error) {
	now := time.Now()
	var since time.Time
	s.stats.update(func(st *LaneStatus) {
		if err == nil {
			st.PurgeHeldSince, st.PurgeHeld = time.Time{}, nil
			return
		}
		if st.PurgeHeldSince.IsZero() {
			st.PurgeHeldSince = now
		}
		st.PurgeHeld, since = err, st.PurgeHeldSince
	})
	switch {
	case err == nil:
		s.purgeWarned = time.Time{}
	case errors.As(err, new(errPurgeWaits)), errors.Is(err, errWaited), mysqldb.Classify(err) == fault.Transient:
		if now.Sub(since) < purgeHeldMax {
			return
		}
		fallthrough
	default:
		if s.purgeWarned.IsZero() || now.Sub(s.purgeWarned) >= purgeWarnings {
			s.purgeWarned = now
			s.log.Warn("partitions behind the cursor are not purged", "error", purgeFault(s.lane, err), "since", since)
		}
	}
}

func purgeFault(lane int, err error) error {
	f := &fault.Error{Code: codePurgeHeld, Class: fault.Transient, Err: err,
		What: fmt.Sprintf("%s: partitions behind the cursor cannot be purged: %v", LaneTable(lane), err),
		Why:  "nothing is lost and publishing goes on; the table grows",
		Do:   "end the session that keeps a transaction open on it: SELECT * FROM performance_schema.metadata_locks shows who; slotline outbox status shows the partitions"}
	if mysqldb.Classify(err) == fault.Fatal {
		f.Do = "give the relay's user what slotline apply --grants prints"
	}
	return f
}

// ddlWait is how long a statement may wait after so many tries in vain.
func ddlWait(tries int) time.Duration { return backoff(tries+1, ddlWaitMin, ddlWaitMax) }

// splitAhead splits MAXVALUE if too few empty partitions lie ahead.
func (s *session) splitAhead(ctx context.Context) error {
	db, table := s.relay.o.DB, LaneTable(s.lane)
	bounds, err := partitionBounds(ctx, db, table)
	if err != nil || len(bounds) == 0 { // a server that does not list partitions keeps none
		return err
	}
	maxID, err := greatestID(ctx, db, s.lane)
	if err != nil {
		return err
	}
	s.stats.update(func(st *LaneStatus) { st.PartitionsAhead = max(0, ahead(bounds, maxID)) })
	add, overrun := planSplit(bounds, maxID, uint64(s.relay.o.Config.Outbox.PurgeRows))
	if overrun {
		return &fault.Error{Code: codeMaxvalueFilled, Class: fault.Fatal,
			What: fmt.Sprintf("%s: ids have reached the last partition, %s; it cannot be split without moving rows", table, lastPartition),
			Why:  "publishing goes on, but rows there cannot be dropped as a whole",
			Do:   "in a quiet hour: " + splitSQL(s.lane, partitionsUpTo(bounds[len(bounds)-1], uint64(s.relay.o.Config.Outbox.PurgeRows), partitionsAhead))}
	}
	if len(add) == 0 || !s.held.Alive() {
		return nil
	}
	return s.purger.ddl(ctx, splitSQL(s.lane, add))
}

func partitionBounds(ctx context.Context, db *sql.DB, table string) ([]uint64, error) {
	rows, err := db.QueryContext(ctx, partitionSQL, table)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var bounds []uint64
	for rows.Next() {
		var name, description sql.NullString
		if err := rows.Scan(&name, &description); err != nil {
			return nil, err
		}
		if bound, err := strconv.ParseUint(description.String, 10, 64); err == nil {
			bounds = append(bounds, bound)
		}
	}
	return bounds, rows.Err()
}

// Statements that take a lane table's metadata lock run one at a time in a database: emitters that write to two lanes
// would else wait for each other behind two of them, a deadlock, which the server ends at the emitters' cost.
const (
	ddlLockSQL = "SELECT CONNECTION_ID(), GET_LOCK(CONCAT('slotline ', CRC32(DATABASE())), 5)"
	// A transaction's locks keep their event for as long as it lasts. Without the privilege to see them none is in sight.
	holdersSQL = "SELECT CONCAT(owner_thread_id, ' ', owner_event_id, ' ', object_instance_begin) FROM performance_schema.metadata_locks" +
		" WHERE object_type = 'TABLE' AND object_schema = DATABASE() AND object_name = ? AND lock_status = 'GRANTED'" +
		" AND lock_duration = 'TRANSACTION' AND owner_event_id > 0"
)

// heldLong says that somebody holds a lane table's metadata lock for the length of a look: a statement that needs it
// alone would wait.
func heldLong(ctx context.Context, conn *sql.Conn, lane int, look time.Duration) bool {
	holders := func() map[string]bool {
		rows, err := conn.QueryContext(ctx, holdersSQL, LaneTable(lane))
		if err != nil {
			return nil
		}
		defer rows.Close()
		seen := map[string]bool{}
		for rows.Next() {
			var holder string
			if rows.Scan(&holder) == nil {
				seen[holder] = true
			}
		}
		return seen
	}
	before := holders()
	if len(before) == 0 {
		return false
	}
	sleep(ctx, look)
	for holder := range holders() {
		if before[holder] {
			return true
		}
	}
	return false
}

// runDDL runs a statement that takes a lane table's metadata lock alone, and kills it when it waits for the lock for
// longer than wait: every emitter would wait behind it. It is not tried while a transaction holds the table for twice as
// long. errWaited says that it was not carried out.
func runDDL(ctx context.Context, db *sql.DB, lane int, statement string, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, ddlRunsMax)
	defer cancel()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer mysqldb.Discard(conn) // it is of no use to others: its lock_wait_timeout is short, and it holds the lock of ddlLockSQL
	// Should this process die, or the KILL below not get through, the statement gives up by itself.
	if _, err := conn.ExecContext(ctx, "SET SESSION lock_wait_timeout = 2"); err != nil {
		return err
	}
	var id int64
	var alone sql.NullInt64
	if err := conn.QueryRowContext(ctx, ddlLockSQL).Scan(&id, &alone); err != nil {
		return err
	}
	if alone.Int64 != 1 || heldLong(ctx, conn, lane, 2*wait) {
		return errWaited
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	done := make(chan error, 1)
	// Not cut short with ctx, but killed: a statement that is cut off may be carried out later.
	work, abandon := context.WithTimeout(context.WithoutCancel(ctx), ddlRunsMax+callTimeout)
	defer abandon()
	go func() { // owned here: every way out waits for it
		_, err := conn.ExecContext(work, statement)
		done <- err
	}()
	began, ending := time.Now(), ctx.Done()
	for killed := false; ; {
		select {
		case err := <-done:
			if n := mysqldb.Number(err); n == errInterrupted || n == errLockWait {
				return errWaited
			}
			return err
		case <-ending:
			ending = nil
		case <-time.After(ddlLook):
		}
		if killed || ending != nil && time.Since(began) < wait {
			continue
		}
		var state sql.NullString
		err := db.QueryRowContext(work, "SELECT state FROM information_schema.processlist WHERE id = ?", id).Scan(&state)
		if err == nil && state.String == lockWaiting {
			_, err := db.ExecContext(work, "KILL QUERY "+strconv.FormatInt(id, 10))
			killed = err == nil
		}
	}
}
