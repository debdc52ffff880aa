package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/slotline/slotline/fault"
)

const (
	// ddlWaitMax is how long a split may wait for its metadata lock: emitters queue behind it meanwhile.
	ddlWaitMax   = 50 * time.Millisecond
	ddlLook      = 10 * time.Millisecond // between looks at whether it waits
	ddlRetryMax  = 5 * time.Minute
	lockWaiting  = "Waiting for table metadata lock"
	ddlRunsMax   = 30 * time.Second
	partitionSQL = "SELECT partition_name, partition_description FROM information_schema.partitions" +
		" WHERE table_schema = DATABASE() AND table_name = ? AND partition_name IS NOT NULL"
)

var errWaited = errors.New("it waited for a lock and was cancelled")

// keepPartitions keeps empty partitions ahead of the lane's ids, until ctx ends.
func (s *session) keepPartitions(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		pause := s.relay.o.Timing.Split
		err := s.splitAhead(ctx)
		switch {
		case err == nil:
			failures = 0
		case ctx.Err() == nil:
			failures++
			pause = backoff(failures, s.relay.o.Timing.Split, ddlRetryMax)
			if errors.Is(err, errWaited) {
				s.log.Info("partitions ahead are made later: a transaction holds the lane table", "tries", failures)
			} else {
				s.log.Warn("cannot make partitions ahead", "err", err)
			}
		}
		sleep(ctx, pause)
	}
}

// splitAhead splits MAXVALUE if too few empty partitions lie ahead.
func (s *session) splitAhead(ctx context.Context) error {
	db, table := s.relay.o.DB, LaneTable(s.lane)
	bounds, err := partitionBounds(ctx, db, table)
	if err != nil || len(bounds) == 0 { // a server that does not list partitions keeps none
		return err
	}
	var maxID uint64
	if err := db.QueryRowContext(ctx, "SELECT COALESCE(MAX(id), 0) FROM "+table).Scan(&maxID); err != nil {
		return err
	}
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
	return runDDL(ctx, db, splitSQL(s.lane, add))
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

// runDDL runs a statement that takes a metadata lock, and kills it when it waits for the lock for longer than
// ddlWaitMax: every emitter would wait behind it.
func runDDL(ctx context.Context, db *sql.DB, statement string) error {
	ctx, cancel := context.WithTimeout(ctx, ddlRunsMax)
	defer cancel()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { // it is of no use to others: its lock_wait_timeout is short
		conn.Raw(func(any) error { return driver.ErrBadConn })
		conn.Close()
	}()
	// Should this process die, or the KILL below not get through, the statement gives up by itself.
	if _, err := conn.ExecContext(ctx, "SET SESSION lock_wait_timeout = 1"); err != nil {
		return err
	}
	var id int64
	if err := conn.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&id); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { // owned here: both ways out wait for it
		_, err := conn.ExecContext(ctx, statement)
		done <- err
	}()
	began := time.Now()
	for {
		select {
		case err := <-done:
			return err
		case <-time.After(ddlLook):
		}
		if time.Since(began) < ddlWaitMax {
			continue
		}
		var state sql.NullString
		err := db.QueryRowContext(ctx, "SELECT state FROM information_schema.processlist WHERE id = ?", id).Scan(&state)
		if err == nil && state.String == lockWaiting {
			_, err = db.ExecContext(ctx, "KILL QUERY "+strconv.FormatInt(id, 10))
			if err == nil {
				if err := <-done; err == nil {
					return nil
				}
				return errWaited
			}
		}
		if err != nil && ctx.Err() != nil {
			return <-done
		}
	}
}
