package mysql

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/partitioner"
)

// A month is retired in two steps. First the row of slotline_retired says so, in one transaction with a bump of every
// owner epoch: from its commit on whoever writes has read the row, and passes over the month's events. Then its tables are
// dropped. A crash between leaves tables that nobody writes to, which the next run drops.
//
// What could bring a table back is a writer of before that is about to make it. It holds a lock from reading the row to the
// end of CREATE TABLE, and the first step waits for that lock.

// What an owner has read is its own: one that reads the row just before it is written must not undo what another knows.

// lateEvents is what a process passed over in a shard since it last said so.
type lateEvents struct {
	mu     sync.Mutex
	events int
	said   time.Time
}

// retired says that a month lies below one that is read of slotline_retired.
func retired(m, below partitioner.Month) bool { return m != partitioner.NoMonth && m < below }

// passed are events of one batch that are not applied in a shard, since their months are retired there.
type passed struct {
	events int
	table  string // of the last of them, as below
	month  partitioner.Month
	offset int64
}

// passedSaidEvery bounds the lines of the log: a log that is read again from its start may hold years of such events.
const passedSaidEvery = time.Minute

// passedOver counts them once their batch is committed.
func (sh *shard) passedOver(part event.Partition, p passed) {
	if p.events == 0 {
		return
	}
	sh.counts.retired.Add(uint64(p.events))
	late := &sh.late
	late.mu.Lock()
	defer late.mu.Unlock()
	late.events += p.events
	if time.Since(late.said) < passedSaidEvery {
		return
	}
	sh.sink.log.Warn("events of retired months are passed over", "shard", sh.name, "events", late.events, "topic", part.Topic,
		"partition", part.Number, "offset", p.offset, "table", p.table, "month", p.month.String())
	late.events, late.said = 0, time.Now()
}

// monthsPatience is how long one that makes a month table, or retires a month, waits for another that does.
const monthsPatience = 20 * time.Second

// monthsLock is the name of a lock of the whole server, of at most 64 bytes, which a database's name alone may have.
func (sh *shard) monthsLock() string {
	sum := sha256.Sum256([]byte(sh.dsn.Database() + "/" + sh.sink.line))
	return "slotline_months_" + hex.EncodeToString(sum[:16])
}

// lockMonths keeps month tables from being made while a month is retired, and the other way round. The lock is the
// connection's: it ends with unlockMonths, and with the connection.
func (sh *shard) lockMonths(ctx context.Context, conn *sql.Conn) error {
	var got sql.NullInt64
	err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, ?)", sh.monthsLock(), int(monthsPatience/time.Second)).Scan(&got)
	if err == nil && got.Int64 != 1 {
		err = &fault.Error{Code: codeNotRetired, Class: fault.Transient,
			What: fmt.Sprintf("%s: another connection has been making a month table, or retiring months, for %v", sh.where(), monthsPatience),
			Do:   "try again; a connection that says nothing is ended by the server after a minute"}
	}
	return err
}

func (sh *shard) unlockMonths(ctx context.Context, conn *sql.Conn) {
	var released sql.NullInt64
	if err := conn.QueryRowContext(ctx, "SELECT RELEASE_LOCK(?)", sh.monthsLock()).Scan(&released); err != nil {
		mysqldb.Discard(conn)
	}
}

// make creates a table unless it is there, or its month is retired.
func (sh *shard) make(ctx context.Context, t *event.Table, m partitioner.Month, d dialect) error {
	conn, err := sh.control.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if t.Month != event.None {
		if err := sh.lockMonths(ctx, conn); err != nil {
			return err
		}
		defer sh.unlockMonths(ctx, conn)
		r, _, err := progress.ReadRetired(ctx, conn, sh.sink.line)
		if err != nil {
			return err
		}
		if retired(m, r.Below) { // so its owner epoch is an older one: nothing could be written to the table in any case
			return &fault.Error{Code: codeRetired, Class: fault.Fenced,
				What: fmt.Sprintf("%s: month %s is retired, table %s is not made again; the partition is taken over anew",
					sh.where(), m, t.PhysicalName(m))}
		}
	}
	_, err = conn.ExecContext(ctx, tableDDL(t, m, d))
	return err
}

// Retirement is what a shard has to give up by months.keep.
type Retirement struct {
	Shard string
	// Below is the month that the tables of all earlier ones are dropped of, by the clock that is behind: the server's or
	// ours. It is at least Before.
	Below  partitioner.Month
	Before partitioner.Month // what was retired before; NoMonth: nothing
	Tables []TableSize       // that are dropped, in order of their names
}

// Retirement looks at a shard, and changes nothing.
func (s *Sink) Retirement(ctx context.Context, shardName string) (*Retirement, error) {
	have, _, err := s.TableSizes(ctx, shardName)
	if err != nil {
		return nil, err
	}
	sh := s.shards[shardName]
	known, seeded, err := progress.ReadRetired(ctx, sh.control, s.line)
	if err != nil {
		return nil, sh.wrap(err)
	}
	if !seeded {
		return nil, &fault.Error{Code: codeNotRetired, Class: fault.Usage,
			What: sh.where() + " has no row of line " + s.line + " in slotline_retired", Do: "slotline apply, which makes it"}
	}
	var year, month int
	if err := sh.control.QueryRowContext(ctx, "SELECT YEAR(UTC_TIMESTAMP()), MONTH(UTC_TIMESTAMP())").Scan(&year, &month); err != nil {
		return nil, sh.wrap(err)
	}
	r := &Retirement{Shard: shardName, Below: known.Below, Before: known.Below}
	if s.keep > 0 {
		now := min(partitioner.Month(year*100+month), partitioner.MonthOf(s.now()))
		r.Below = max(r.Below, now.Add(-s.keep))
	}
	for _, t := range have {
		if retired(t.Month, r.Below) {
			r.Tables = append(r.Tables, t)
		}
	}
	return r, nil
}

const (
	// retireLockWait is how long the lock of a progress row is waited for: a batch holds it for some tens of milliseconds.
	retireLockWait = "10"
	// dropPatience is how long DROP TABLE waits for those who read the table. Whoever comes after it waits behind it.
	dropPatience = "5"
)

// Retire does what Retirement found. It may be repeated after any failure. The error names what could not be dropped.
func (s *Sink) Retire(ctx context.Context, r *Retirement, by string) error {
	sh := s.shards[r.Shard]
	conn, err := sh.alter.Conn(ctx)
	if err != nil {
		return sh.retireError(err, "")
	}
	defer func() {
		mysqldb.Discard(conn) // its settings are its own
		conn.Close()
	}()
	if _, err := conn.ExecContext(ctx, "SET SESSION innodb_lock_wait_timeout = "+retireLockWait+", lock_wait_timeout = "+dropPatience); err != nil {
		return sh.retireError(err, "")
	}
	if r.Below > r.Before {
		if err := sh.retireBelow(ctx, conn, r.Below, by); err != nil {
			return sh.retireError(err, "")
		}
		s.log.Info("months retired", "shard", sh.name, "below", r.Below.String(), "by", by)
	}
	var errs []error
	for _, t := range r.Tables {
		if _, err := conn.ExecContext(ctx, "DROP TABLE IF EXISTS "+mysqldb.Ident(t.Name)); err != nil {
			errs = append(errs, sh.retireError(err, t.Name))
			if ctx.Err() != nil || !slices.Contains([]uint16{1205, 3730}, mysqldb.Number(err)) {
				break // it is not this table's alone
			}
			continue
		}
		s.log.Info("month table dropped", "shard", sh.name, "table", t.Name)
	}
	return errors.Join(errs...)
}

// retireBelow is the first step.
func (sh *shard) retireBelow(ctx context.Context, conn *sql.Conn, below partitioner.Month, by string) error {
	if err := sh.lockMonths(ctx, conn); err != nil {
		return err
	}
	defer sh.unlockMonths(ctx, conn)
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := progress.Retire(ctx, tx, sh.sink.line, sh.sink.name, sh.sink.topics, below, by); err != nil {
		return err
	}
	return tx.Commit()
}

// retireError is what a person reads of a shard, or of one of its tables.
func (sh *shard) retireError(err error, table string) error {
	where := sh.where()
	if table != "" {
		where += ", table " + table
	}
	e, isFault := errors.AsType[*fault.Error](mysqldb.Wrap(err, codeNotRetired, where))
	if !isFault || e.Code != codeNotRetired {
		return err
	}
	switch mysqldb.Number(err) {
	case 1044, 1142:
		e.Do = "GRANT DROP ON " + mysqldb.Ident(sh.dsn.Database()) + ".* TO the user in shards." + sh.name + ".dsn"
	case 1205:
		e.Do = "end the transaction that uses it (a reader's, if it is a month table) and run slotline tables retire again; it waited " + dropPatience + " s"
	}
	return e
}
