package replay

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/internal/progress"
)

const (
	// A swap that waits for locks holds up readers and writers that come after it: it gives up soon, and tries again
	// with a little more patience.
	lockWaitFirst = 100 * time.Millisecond
	lockWaitMax   = time.Second
	lockLook      = 10 * time.Millisecond
	lockPause     = 500 * time.Millisecond // between two tries, for those that waited behind
	// lockFor is how long it is tried in all, and how long a snapshot is waited for.
	lockFor     = time.Minute
	snapshotFor = 2 * time.Minute
	// renameMax bounds RENAME and what else is done under the lock.
	renameMax = 30 * time.Second

	errLockWait    = 1205
	errInterrupted = 1317
	errKeyExists   = 1061
)

// Swapped is what a swap did.
type Swapped struct {
	Tables int
	Held   time.Duration // from when all locks were had until they were given back
	Waited time.Duration // from when they were asked for: what a reader or a sink waited at most
}

// swap has the tables with suffix from, which f keeps, become the live ones, which get suffix to. after is the sink that is to
// keep those. f rests from before it is tried: its progress rows go with it.
func (r *Replay) swap(ctx context.Context, f *feed, from, to, after string) (Swapped, error) {
	p, err := r.pairing(f.job, from)
	if err != nil {
		return Swapped{}, err
	}
	defer p.close()
	if err := r.snapshots(ctx); err != nil { // the tables stay complete from here on
		return Swapped{}, err
	}
	wait, deadline := lockWaitFirst, time.Now().Add(lockFor)
	for try := 1; ; try++ {
		if err := p.complete(ctx, r.db, r.o.Shard); err != nil {
			return Swapped{}, r.wrap(err)
		}
		pairs, _, err := p.find(ctx, r.db)
		if err != nil {
			return Swapped{}, r.wrap(err)
		}
		f.rest()
		done, again, err := r.trySwap(ctx, p, pairs, f.sink, to, after, wait)
		switch {
		case err != nil:
			return done, err
		case !again:
			return done, nil
		case time.Now().After(deadline):
			return done, r.lockError(ctx, f.job, pairs)
		}
		if try == 2 { // not only a batch of the live sink
			r.say("swap", "waits for the tables, which others have: "+strings.ReplaceAll(r.holders(ctx, pairs), "\n", "; "))
		}
		f.start(ctx)
		wait = min(wait*3/2, lockWaitMax)
		if err := sleep(ctx, lockPause); err != nil {
			return done, err
		}
		if err := f.until(ctx, "swap", standing.near); err != nil { // readers are not to go back by what f has rested
			return done, err
		}
	}
}

// trySwap does it once; again says that nothing was changed, because a lock was not to be had or a month came.
func (r *Replay) trySwap(ctx context.Context, p *pairing, pairs []pair, beside, to, after string, wait time.Duration) (s Swapped, again bool, err error) {
	if len(pairs) == 0 {
		return s, false, fmt.Errorf("shard %s: there is no table to swap", r.o.Shard)
	}
	conn, id, err := r.alterer(ctx)
	if err != nil {
		return s, false, err
	}
	defer mysqldb.Discard(conn)
	asked := time.Now()
	if err := r.killable(ctx, conn, id, lockSQL(pairs), wait, renameMax); err != nil {
		if n := mysqldb.Number(err); n == errLockWait || n == errInterrupted {
			return s, true, nil
		}
		return s, false, r.wrap(err)
	}
	had := time.Now()
	// From here on it is not cut short: it takes milliseconds, and one that is cut off may be carried out later.
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), renameMax)
	defer cancel()
	now, lone, err := p.find(work, conn)
	if err != nil {
		return s, false, r.wrap(err)
	}
	if len(now) != len(pairs) || len(lone) > 0 { // a month was made meanwhile
		return s, true, nil
	}
	if err := progress.Swap(work, conn, r.o.Config.Topics(), liveSink, beside, after); err != nil {
		return s, false, r.wrap(err)
	}
	if _, err := conn.ExecContext(work, renameSQL(pairs, to)); err != nil {
		return s, false, r.wrap(err)
	}
	_, err = conn.ExecContext(work, "UNLOCK TABLES")
	ended := time.Now()
	return Swapped{Tables: len(pairs), Held: ended.Sub(had), Waited: ended.Sub(asked)}, false, r.wrap(err)
}

// lockSQL locks both sides of each pair and the progress rows.
func lockSQL(pairs []pair) string {
	var b strings.Builder
	b.WriteString("LOCK TABLES `slotline_progress` WRITE")
	for _, p := range pairs {
		b.WriteString(", " + mysqldb.Ident(p.live.Name) + " WRITE, " + mysqldb.Ident(p.beside.Name) + " WRITE")
	}
	return b.String()
}

// renameSQL is one statement, so that it is carried out whole or not at all.
func renameSQL(pairs []pair, to string) string {
	var b strings.Builder
	b.WriteString("RENAME TABLE ")
	for i, p := range pairs {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(mysqldb.Ident(p.live.Name) + " TO " + mysqldb.Ident(p.live.Name+to) + ", " +
			mysqldb.Ident(p.beside.Name) + " TO " + mysqldb.Ident(p.live.Name))
	}
	return b.String()
}

// alterer is a connection, with its id, for statements that lock tables. Discard it, do not give it back: that ends its
// locks, whatever happened before.
func (r *Replay) alterer(ctx context.Context) (conn *sql.Conn, id int64, err error) {
	if conn, err = r.long.Conn(ctx); err != nil {
		return nil, 0, r.wrap(err)
	}
	if _, err = conn.ExecContext(ctx, "SET SESSION lock_wait_timeout = 2, innodb_lock_wait_timeout = 2"); err == nil {
		err = conn.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&id)
	}
	if err != nil {
		mysqldb.Discard(conn)
		return nil, 0, r.wrap(err)
	}
	return conn, id, nil
}

// killable runs a statement of a connection with an id, and kills it when it takes longer than wait or ctx ends: what waits
// for locks has all that comes after it wait too. It returns when the server has answered, after longest at most.
func (r *Replay) killable(ctx context.Context, conn *sql.Conn, id int64, statement string, wait, longest time.Duration) error {
	done := make(chan error, 1)
	// Not cut short with ctx, but killed: a statement that is cut off may be carried out later.
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), longest)
	defer cancel()
	go func() { // owned here: every way out waits for it
		_, err := conn.ExecContext(work, statement)
		done <- err
	}()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	ending := ctx.Done()
	var due <-chan time.Time = timer.C
	for {
		select {
		case err := <-done:
			return err
		case <-ending:
			ending = nil
		case <-due:
			due = nil
		}
		// It may have had its locks just now: then nothing is killed, and done says so.
		if _, err := r.db.ExecContext(work, "KILL QUERY "+strconv.FormatInt(id, 10)); err != nil {
			r.o.Logger.Warn("could not kill a statement", "shard", r.o.Shard, "error", err)
		}
		timer.Reset(lockLook)
		due = timer.C
	}
}

// holders are who has the tables locked, a line each; "" when it may not be asked, or nobody has.
func (r *Replay) holders(ctx context.Context, pairs []pair) string {
	var names []string
	for _, p := range pairs {
		names = append(names, quote(p.live.Name), quote(p.beside.Name))
	}
	return r.sessions(ctx, "SELECT DISTINCT t.PROCESSLIST_ID, COALESCE(t.PROCESSLIST_USER,''), COALESCE(t.PROCESSLIST_HOST,''), "+
		"COALESCE(t.PROCESSLIST_TIME,0), COALESCE(t.PROCESSLIST_INFO,'') FROM performance_schema.metadata_locks l "+
		"JOIN performance_schema.threads t ON t.THREAD_ID=l.OWNER_THREAD_ID WHERE l.OBJECT_TYPE='TABLE' AND l.OBJECT_SCHEMA=DATABASE() "+
		"AND l.LOCK_STATUS='GRANTED' AND t.PROCESSLIST_ID<>CONNECTION_ID() AND l.OBJECT_NAME IN ("+strings.Join(names, ",")+") LIMIT 5")
}

func (r *Replay) lockError(ctx context.Context, j *Job, pairs []pair) error {
	return &fault.Error{Code: codeLock, Class: fault.Transient,
		What: fmt.Sprintf("job %s: the tables of shard %s could not be locked within %s; nothing was changed", j.Name, r.o.Shard, short(lockFor)),
		Why:  r.holders(ctx, pairs), Do: fmt.Sprintf("let those end, or KILL them; then slotline replay resume %s", j.Name)}
}

// sessions lists what a query finds, a line each; "" when it may not be asked.
func (r *Replay) sessions(ctx context.Context, query string) string {
	rows, err := r.db.QueryContext(ctx, query)
	if err != nil {
		return ""
	}
	defer rows.Close()
	var lines []string
	for rows.Next() {
		var id, seconds int64
		var user, host, info string
		if rows.Scan(&id, &user, &host, &seconds, &info) == nil {
			lines = append(lines, strings.TrimSuffix(fmt.Sprintf("connection %d of %s@%s, for %d s: %.80s", id, user, host, seconds, info), ": "))
		}
	}
	return strings.Join(lines, "\n")
}

// snapshots waits until no reader has a snapshot that is older than this moment, at which the tables are complete: it
// would see them as they were, half filled. READ COMMITTED has none that lasts, and a single statement holds a lock that
// the swap waits for. Not information_schema.INNODB_TRX: others can keep it from changing.
func (r *Replay) snapshots(ctx context.Context) error {
	conn, err := r.long.Conn(ctx)
	if err != nil {
		return r.wrap(err)
	}
	defer mysqldb.Discard(conn)
	if _, err := conn.ExecContext(ctx, "START TRANSACTION"); err != nil {
		return r.wrap(err)
	}
	var moment sql.NullInt64
	err = conn.QueryRowContext(ctx, "SELECT MAX(e.TIMER_START) FROM performance_schema.events_transactions_current e "+
		"JOIN performance_schema.threads t ON t.THREAD_ID=e.THREAD_ID WHERE t.PROCESSLIST_ID=CONNECTION_ID() AND e.STATE='ACTIVE'").Scan(&moment)
	if err != nil || !moment.Valid {
		return &fault.Error{Code: codeNotVisible, Class: fault.Fatal, Err: err,
			What: fmt.Sprintf("shard %s does not show which transactions are open, so that a reader with an old snapshot might see half-filled tables", r.o.Shard),
			Do: "GRANT SELECT ON performance_schema.* to the shard's user, and UPDATE performance_schema.setup_consumers SET ENABLED='YES' " +
				"WHERE NAME='events_transactions_current'"}
	}
	if _, err := conn.ExecContext(ctx, "COMMIT"); err != nil {
		return r.wrap(err)
	}
	older := " FROM performance_schema.events_transactions_current e JOIN performance_schema.threads t ON t.THREAD_ID=e.THREAD_ID " +
		"WHERE e.STATE='ACTIVE' AND e.AUTOCOMMIT='NO' AND e.ISOLATION_LEVEL IN ('REPEATABLE READ','SERIALIZABLE') AND e.TIMER_START<" +
		strconv.FormatInt(moment.Int64, 10)
	said := false
	for deadline := time.Now().Add(snapshotFor); ; {
		var n int
		if err := r.db.QueryRowContext(ctx, "SELECT COUNT(*)"+older).Scan(&n); err != nil {
			return r.wrap(err)
		}
		if n == 0 {
			return nil
		}
		if !said {
			said = true
			r.say("swap", fmt.Sprintf("waits for %d transactions whose snapshot may be older than the tables", n))
		}
		if time.Now().After(deadline) {
			return &fault.Error{Code: codeSnapshot, Class: fault.Transient,
				What: fmt.Sprintf("shard %s: transactions with a snapshot from before the tables were complete are still open after %s; nothing was changed",
					r.o.Shard, short(snapshotFor)),
				Why: r.sessions(ctx, "SELECT t.PROCESSLIST_ID, COALESCE(t.PROCESSLIST_USER,''), COALESCE(t.PROCESSLIST_HOST,''), "+
					"COALESCE(t.PROCESSLIST_TIME,0), COALESCE(t.PROCESSLIST_INFO,'')"+older+" LIMIT 5"),
				Do: "let them end, or KILL them; then slotline replay resume"}
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}
