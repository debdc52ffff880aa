package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"github.com/go-sql-driver/mysql"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/internal/progress"
)

// conflictTriesMax is how often a transaction that lost a lock is sent again at once; after that it is an outage like
// any other, and the consumer's backoff and log take over.
const conflictTriesMax = 5

// errAgain says that the transaction was not committed and can be sent again at once.
var errAgain = errors.New("the transaction was not committed")

// Apply commits the batch and its progress, per shard in one transaction. A shard that has committed stays so when
// another fails: its own next_off keeps it from being sent twice.
func (p *prepared) Apply(ctx context.Context) ([]event.Rejected, error) {
	o := p.owned
	if len(p.rejected) > 0 {
		o.giveBuffer(p)
		return p.rejected, nil
	}
	if p.buffer == nil {
		return nil, nil // applied already
	}
	tasks, err := o.tasks(ctx, p)
	if err != nil {
		return nil, err
	}
	if len(tasks) == 0 {
		o.giveBuffer(p)
		return nil, nil
	}
	if p.mixed {
		// A row that belongs to several shards is committed in all or, if one refuses it, in none.
		o.sink.broadcast.Lock()
		defer o.sink.broadcast.Unlock()
		gate := newGate(len(tasks))
		for _, t := range tasks {
			t.gate = gate
		}
	}
	var wg sync.WaitGroup
	for _, t := range tasks[1:] {
		wg.Go(func() { t.run(ctx) })
	}
	tasks[0].run(ctx)
	wg.Wait()

	p.rejected, err = o.outcome(tasks)
	if err == nil {
		o.giveBuffer(p)
	}
	return p.rejected, err
}

// task is one shard's part of a batch.
type task struct {
	owned    *owned
	shard    *shard
	advance  progress.Advance
	entries  []entry
	buffer   *rows
	passed   passed
	gate     *gate // nil unless the batch holds broadcast rows
	arrived  bool  // at the gate; guarded by its mutex
	plain    bool  // staging was tried in vain: it goes as text
	rejected []event.Rejected
	err      error
}

// tasks are the shards that lack the batch. It takes over the row of a shard that a newer layout has added.
func (o *owned) tasks(ctx context.Context, p *prepared) ([]*task, error) {
	if err := o.ensureHolds(ctx, p.state, p.shards); err != nil {
		return nil, err
	}
	var tasks []*task
	entries := p.buffer.entries
	for _, i := range p.shards {
		n := 0
		for n < len(entries) && entries[n].place.shard() == i {
			n++
		}
		mine := entries[:n]
		entries = entries[n:]
		o.mu.Lock()
		h := o.holds[p.state.shards[i].name]
		row := h.row
		o.mu.Unlock()
		if row.Next < p.at.From {
			return nil, &event.Rewound{Positions: o.Positions()}
		}
		if row.Next >= p.at.To {
			continue
		}
		a := progress.Advance{Key: row.Key, Owner: row.Owner, OwnerEpoch: row.OwnerEpoch, Start: row.Next, End: p.at.To,
			LeaderEpoch: p.at.LeaderEpoch, TopicID: p.at.TopicID}
		if a.LeaderEpoch < 0 {
			a.LeaderEpoch = row.LeaderEpoch
		}
		if a.TopicID == (event.TopicID{}) {
			a.TopicID = row.TopicID
		}
		tasks = append(tasks, &task{owned: o, shard: h.shard, advance: a, entries: mine, buffer: p.buffer, passed: p.passed[i]})
	}
	return tasks, nil
}

// outcome is the batch's, from its shards': what ends the ownership first, then what halts, then what is bad in the
// batch, then what a retry mends.
func (o *owned) outcome(tasks []*task) ([]event.Rejected, error) {
	var rejected []event.Rejected
	var worst error
	for _, t := range tasks {
		rejected = append(rejected, t.rejected...)
		if t.err != nil && (worst == nil || severity(t.err) > severity(worst)) {
			worst = t.err
		}
	}
	if len(rejected) > 0 && severity(worst) <= severityTransient {
		slices.SortFunc(rejected, func(a, b event.Rejected) int { return a.Index - b.Index })
		return slices.CompactFunc(rejected, func(a, b event.Rejected) bool { return a.Index == b.Index }), nil
	}
	return nil, worst
}

const severityTransient = 2

func severity(err error) int {
	if _, ok := errors.AsType[*event.Rewound](err); ok {
		return 3
	}
	switch fault.ClassOf(err) {
	case fault.Fatal, fault.Usage:
		return 4
	case fault.Fenced:
		return 5
	}
	switch err {
	case nil:
		return 0
	case errStopped:
		return 1 // the other shard's error says more
	}
	return severityTransient
}

// run sends the shard's part, again where that can help at once, and settles what came of it.
func (t *task) run(ctx context.Context) {
	defer t.gate.leave(t)
	var err error
	for try := range conflictTriesMax {
		if try > 0 {
			t.shard.counts.retries.Add(1)
			if !pause(ctx, try) {
				break
			}
		}
		if err = t.try(ctx); !errors.Is(err, errAgain) {
			break
		}
	}
	t.settle(err)
	if t.err != nil {
		t.shard.retried(ctx, t.err)
	} else if len(t.rejected) == 0 {
		t.shard.counts.applied(t.entries)
		t.shard.passedOver(t.owned.part, t.passed)
	}
}

// pause waits a little, differently in each process that lost the same lock.
func pause(ctx context.Context, try int) bool {
	timer := time.NewTimer(time.Duration(rand.Int64N(int64(try) * int64(20*time.Millisecond))))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// try runs the transaction once; by text where staging was in vain.
func (t *task) try(ctx context.Context) error {
	e, err := t.shard.open(ctx)
	if err != nil {
		return err
	}
	if err := t.ensure(ctx); err != nil {
		return err
	}
	if lists := t.stages(e); len(lists) > 0 {
		err := t.transact(ctx, e, lists)
		in, vain := errors.AsType[*unstaged](err)
		if !vain {
			return err
		}
		t.fellBack(ctx, in.err)
	}
	return t.transact(ctx, e, nil)
}

// transact sends the rows, those of the given tables by staging, and commits.
func (t *task) transact(ctx context.Context, e *engine, lists [][]entry) error {
	conn, err := t.shard.apply.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	var loaded []staged
	end := "COMMIT"
	undo := rollback
	if len(lists) > 0 {
		if loaded, err = t.load(ctx, conn, e, lists); err != nil {
			mysqldb.Discard(conn)
			return &unstaged{err}
		}
		end += dropSQL(loaded)
		undo = func(ctx context.Context, conn *sql.Conn) {
			rollback(ctx, conn)
			mysqldb.Discard(conn)
		}
	}
	moved, err := t.send(ctx, conn, e, loaded)
	if err != nil || moved != 1 {
		undo(ctx, conn)
		switch {
		case err == nil:
			return t.read(ctx)
		case len(loaded) > 0 && !conflict(err):
			return &unstaged{err}
		}
		return t.refused(ctx, err)
	}
	if !t.gate.pass(ctx, t) {
		undo(ctx, conn)
		return errStopped
	}
	if _, err := exec(ctx, conn, end); err != nil {
		// Whether it was carried out is in the progress row. The connection may hold a transaction: it is not used again.
		mysqldb.Discard(conn)
		if err := t.read(ctx); err != nil {
			return err
		}
		return nil
	}
	t.owned.stands(t, nil)
	return nil
}

// send writes START TRANSACTION, the move of the progress row, and the rows, in as few packets as their bound allows.
// It returns how many progress rows were found.
func (t *task) send(ctx context.Context, conn *sql.Conn, e *engine, loaded []staged) (moved int64, err error) {
	packet := packets.Get().(*[]byte)
	defer packets.Put(packet)
	buf := append((*packet)[:0], "START TRANSACTION;"...)
	buf = t.advance.AppendSQL(buf)

	first := true
	flush := func() error {
		result, err := exec(ctx, conn, unsafe.String(unsafe.SliceData(buf), len(buf)))
		if err != nil {
			return err
		}
		if first {
			first = false
			if counts := result.AllRowsAffected(); len(counts) > 1 {
				moved = counts[1]
			}
		}
		buf = buf[:0]
		return nil
	}
	limit := int(min(packetBytesMax, e.packetBytes-packetSpareBytes))
	for rest := t.entries; len(rest) > 0; {
		up := t.shard.upsert(rest[0].place)
		n, size := cut(rest, len(up.head)+len(up.tail), limit)
		fromStaging := len(loaded) > 0 && loaded[0].place == rest[0].place
		if fromStaging {
			n, size = len(loaded[0].entries), len(loaded[0].insert)
		}
		if len(buf) > 0 && len(buf)+1+size > limit {
			if err := flush(); err != nil || moved != 1 {
				return moved, err // not ours any more: the rest need not be sent
			}
		}
		if len(buf) > 0 {
			buf = append(buf, ';')
		}
		if fromStaging {
			buf, loaded = append(buf, loaded[0].insert...), loaded[1:]
		} else {
			buf = t.buffer.appendStatement(buf, up, rest[:n])
		}
		rest = rest[n:]
	}
	err = flush()
	*packet = buf
	return moved, err
}

// packets are the buffers that statements are put together in.
var packets = sync.Pool{New: func() any { return new([]byte) }}

// stands records where the shard stands after a move: at its end, or where the row says.
func (o *owned) stands(t *task, row *progress.Row) {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := o.holds[t.shard.name]
	if row != nil {
		h.row = *row
	} else {
		h.row.Next, h.row.LeaderEpoch, h.row.TopicID = t.advance.End, t.advance.LeaderEpoch, t.advance.TopicID
	}
	h.outage.Over()
}

// read looks at the progress row, on another connection, and decides what the state means. nil: the move was made.
func (t *task) read(ctx context.Context) error {
	row, err := progress.Read(ctx, t.shard.control, t.advance.Key)
	if errors.Is(err, sql.ErrNoRows) {
		return progress.NotSeeded(t.shard.where(), t.advance.Key)
	}
	if err != nil {
		return err
	}
	switch t.advance.Decide(row) {
	case progress.Done:
		t.owned.stands(t, &row)
		return nil
	case progress.Pending:
		return errAgain
	case progress.WentBack:
		t.owned.stands(t, &row)
		return &event.Rewound{Positions: t.owned.Positions()}
	case progress.Fenced:
		return &fault.Error{Code: codeTakenOver, Class: fault.Fenced,
			What: fmt.Sprintf("%s: %s partition %d was taken over by %s (owner epoch %d, ours %d); nothing was changed",
				t.shard.where(), row.Topic, row.Number, ownerText(row.Owner), row.OwnerEpoch, t.advance.OwnerEpoch)}
	}
	return &fault.Error{Code: codeBetween, Class: fault.Fatal,
		What: fmt.Sprintf("%s: progress of %s partition %d stands at offset %d, inside a batch from %d to %d of its only owner",
			t.shard.where(), row.Topic, row.Number, row.Next, t.advance.Start, t.advance.End),
		Why: "something other than this sink wrote slotline_progress",
		Do:  "find out what did; rows are safe (versions decide), the offset may be set back but never forward by hand"}
}

func ownerText(owner string) string {
	if owner == "" {
		return "another process"
	}
	return owner
}

// refused says what an error of the server, or of the way to it, means for the transaction, which was rolled back.
func (t *task) refused(ctx context.Context, err error) error {
	if conflict(err) {
		return fmt.Errorf("%w: %w", errAgain, err)
	}
	if mysqldb.Number(err) == 1146 {
		t.shard.catalog.forget(places(t.entries))
		return fmt.Errorf("%w: %w", errAgain, err)
	}
	switch mysqldb.Classify(err) {
	case fault.Data, fault.Fatal:
		return t.search(ctx, err)
	}
	return err
}

// conflict says that another transaction was in the way.
func conflict(err error) bool {
	n := mysqldb.Number(err)
	return n == 1205 || n == 1213
}

// settle turns the last error into what the consumer, and a person, reads.
func (t *task) settle(err error) {
	if err == nil || len(t.rejected) > 0 {
		return
	}
	if _, ok := errors.AsType[*event.Rewound](err); ok || err == errStopped {
		t.err = err
		return
	}
	if _, ok := errors.AsType[*fault.Error](err); ok && !fault.Is(err, fault.Transient) {
		t.err = err
		return
	}
	if denied(err) {
		t.err = t.shard.deniedError(err)
		return
	}
	if mysqldb.Classify(err) == fault.Fatal {
		t.err = mysqldb.Wrap(err, codeRefused, t.shard.where())
		return
	}
	t.err = t.owned.waits(t, err)
}

// waits is the error of an outage.
func (o *owned) waits(t *task, cause error) error {
	e := &fault.Error{Code: codeOutage, Err: cause, What: t.shard.name + ": " + cause.Error(),
		Do: "nothing if the shard comes back; else see its server's log"}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.holds[t.shard.name].outage.Waits(o.sink.now(), e, mysqldb.Wrap(cause, codeOutage, t.shard.name), o.part, t.advance.Start)
	e.What = o.sink.name + "/" + e.What
	return e
}

// exec sends text as it is, and returns the driver's result, which counts per statement.
func exec(ctx context.Context, conn *sql.Conn, query string) (result mysql.Result, err error) {
	err = conn.Raw(func(driverConn any) error {
		r, err := driverConn.(driver.ExecerContext).ExecContext(ctx, query, nil)
		if err == nil {
			result = r.(mysql.Result)
		}
		return err
	})
	return result, err
}

// rollback ends the transaction; a connection where that fails is not used again.
func rollback(ctx context.Context, conn *sql.Conn) {
	if _, err := exec(ctx, conn, "ROLLBACK"); err != nil {
		mysqldb.Discard(conn)
	}
}

func appendInt(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) }
