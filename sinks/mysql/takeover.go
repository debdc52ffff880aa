package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/internal/progress"
)

// lockPatience is how long a take-over waits for the row's lock before it looks for who holds it. A batch of a living
// owner takes some tens of milliseconds; whoever holds it longer is paused or cut off, and is being replaced.
const lockPatience = time.Second

// lockWait is how long one try waits in all.
const lockWait = 4 * time.Second

// TakeOver bumps the owner epoch of one partition in every shard that it meets, once, and says where it stands. From
// then on no earlier owner changes anything.
func (s *Sink) TakeOver(ctx context.Context, parts []event.Partition) (event.Owned, error) {
	if len(parts) != 1 {
		return nil, fmt.Errorf("sink %s takes over one partition at a time, not %d", s.name, len(parts))
	}
	o := &owned{sink: s, part: parts[0], holds: make(map[string]*hold), lost: make(chan struct{})}
	st := s.state.Load()
	met := s.met(st.layout, o.part.Number)
	if len(met) == 0 { // it was just added to the topic: the layout that has it comes next
		return nil, &fault.Error{Code: codeNoPartition, Class: fault.Transient, Err: &event.NewerLayout{Epoch: st.layout.Epoch() + 1, At: o.part},
			What: fmt.Sprintf("%s: layout epoch %d has no partition %d of %s", s.name, st.layout.Epoch(), o.part.Number, o.part.Topic),
			Do:   "slotline apply, if one has not ended; else find out who added a partition to the topic"}
	}
	if err := o.ensureHolds(ctx, st, met); err != nil {
		return nil, err
	}
	s.ownsMu.Lock()
	s.owns[o.part] = o
	s.ownsMu.Unlock()
	return o, nil
}

// ensureHolds takes over the rows, in the given shards, that are not held yet: all of them at the start, later those of
// shards that a newer layout has added. All shards are asked before any epoch is bumped: while one is down, the tries
// to take over must not fence the others' writer again and again.
func (o *owned) ensureHolds(ctx context.Context, st *state, shards []int32) error {
	var missing []*shard
	o.mu.Lock()
	for _, i := range shards {
		if o.holds[st.shards[i].name] == nil {
			missing = append(missing, st.shards[i])
		}
	}
	o.mu.Unlock()
	key := o.sink.key(o.part)
	err := together(missing, func(sh *shard) error {
		err := sh.ask(ctx, key, st.layout.Epoch())
		sh.retried(ctx, err)
		return err
	})
	if err != nil {
		return err
	}
	return together(missing, func(sh *shard) error {
		h, err := sh.takeOver(ctx, key, st.layout.Epoch())
		if err != nil {
			sh.retried(ctx, err)
			return err
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.holds[sh.name] = h
		return nil
	})
}

// together does the same in several shards at once.
func together(shards []*shard, do func(*shard) error) error {
	errs := make([]error, len(shards))
	var wg sync.WaitGroup
	for i, sh := range shards {
		wg.Go(func() { errs[i] = do(sh) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// ask says whether the shard can be reached, has the row, and knows no newer layout.
func (sh *shard) ask(ctx context.Context, key progress.Key, epoch int64) error {
	if _, err := sh.open(ctx); err != nil {
		return err
	}
	_, err := progress.Read(ctx, sh.control, key)
	if errors.Is(err, sql.ErrNoRows) {
		return progress.NotSeeded(sh.where(), key)
	}
	if err != nil {
		return sh.wrap(err)
	}
	return sh.checkLayout(ctx, sh.control, key, epoch)
}

// checkLayout refuses to write by an older layout than the shard's own: what apply has found to be without rows must
// stay so. Asked after a bump of the owner epoch it is a fence, since apply bumps the epochs in the transaction that
// stores the layout.
func (sh *shard) checkLayout(ctx context.Context, q progress.Querier, key progress.Key, epoch int64) error {
	var newest int64
	err := q.QueryRowContext(ctx, "SELECT COALESCE(MAX(epoch), 0) FROM slotline_layout WHERE line = ?", sh.sink.line).Scan(&newest)
	switch {
	case mysqldb.Number(err) == 1146: // a sink that is used without apply
		return nil
	case err != nil:
		return sh.wrap(err)
	case newest <= epoch:
		return nil
	}
	return &fault.Error{Code: codeLayoutNewer, Class: fault.Transient, Err: &event.NewerLayout{Epoch: newest, At: key.Partition},
		What: fmt.Sprintf("%s has layout epoch %d, the one in force is %d; %s partition %d waits", sh.where(), newest, epoch, key.Topic, key.Number),
		Why:  "an apply is under way, or it did not end: until then nothing is written by the older layout",
		Do:   "if it lasts: slotline apply with the newer file, or with the file in force to take the newer layout back"}
}

// takeOver bumps one row's epoch. Where another transaction holds the row for long, its connection is killed.
func (sh *shard) takeOver(ctx context.Context, key progress.Key, epoch int64) (*hold, error) {
	select {
	case sh.taking <- struct{}{}:
	case <-ctx.Done():
		return nil, sh.wrap(ctx.Err())
	}
	defer func() { <-sh.taking }()
	conn, err := sh.control.Conn(ctx)
	if err != nil {
		return nil, sh.wrap(err)
	}
	defer conn.Close()
	var id int64
	if err := conn.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&id); err != nil {
		return nil, sh.wrap(err)
	}
	// So that a row that stays locked does not keep the others from being taken over; it is tried again.
	_, err = conn.ExecContext(ctx, "SET SESSION innodb_lock_wait_timeout = "+strconv.Itoa(int(lockWait/time.Second)))
	if err != nil && mysqldb.Number(err) == 0 { // an engine without InnoDB does not know it
		return nil, sh.wrap(err)
	}
	done := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() { sh.killBlockers(ctx, key, id, done) })
	row, err := progress.TakeOver(ctx, conn, key, sh.sink.owner)
	close(done)
	watcher.Wait()
	if err != nil {
		return nil, sh.wrap(err)
	}
	// After the bump: what is retired later bumps the epoch again.
	r, _, err := progress.ReadRetired(ctx, conn, sh.sink.line)
	if err != nil {
		return nil, sh.wrap(err)
	}
	return &hold{shard: sh, row: row, retired: r.Below}, sh.checkLayout(ctx, conn, key, epoch)
}

// blockersSQL finds the connections that hold a lock which the given one waits for.
const blockersSQL = "SELECT DISTINCT b.PROCESSLIST_ID FROM performance_schema.data_lock_waits w " +
	"JOIN performance_schema.threads r ON r.THREAD_ID = w.REQUESTING_THREAD_ID " +
	"JOIN performance_schema.threads b ON b.THREAD_ID = w.BLOCKING_THREAD_ID " +
	"WHERE r.PROCESSLIST_ID = ? AND b.PROCESSLIST_ID IS NOT NULL"

const blockersMariaDBSQL = "SELECT DISTINCT b.trx_mysql_thread_id FROM information_schema.INNODB_LOCK_WAITS w " +
	"JOIN information_schema.INNODB_TRX r ON r.trx_id = w.requesting_trx_id " +
	"JOIN information_schema.INNODB_TRX b ON b.trx_id = w.blocking_trx_id " +
	"WHERE r.trx_mysql_thread_id = ?"

// killBlockers kills, each second until done, the connections that the take-over of connection id waits for. They are
// those of this sink's own user, which needs no privilege to kill them; to see them it needs SELECT on
// performance_schema (in MariaDB: PROCESS). Without it the take-over is tried until the server drops the silent session
// (wait_timeout, 60 s).
func (sh *shard) killBlockers(ctx context.Context, key progress.Key, id int64, done <-chan struct{}) {
	log := sh.sink.log.With("shard", sh.name, "topic", key.Topic, "partition", key.Number)
	ticker := time.NewTicker(lockPatience)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		blockers, err := sh.blockers(ctx, id)
		if err != nil {
			log.Warn("take-over waits for a lock; who holds it cannot be seen", "error", err,
				"do", "grant what slotline apply --grants prints")
			return
		}
		for _, blocker := range blockers {
			_, err := sh.control.ExecContext(ctx, "KILL "+strconv.FormatInt(blocker, 10))
			log.Warn("take-over killed the connection that held the progress row", "connection", blocker, "error", err)
		}
	}
}

func (sh *shard) blockers(ctx context.Context, id int64) ([]int64, error) {
	query := blockersSQL
	if sh.engine.Load().MariaDB {
		query = blockersMariaDBSQL
	}
	rows, err := sh.control.QueryContext(ctx, query, id)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []int64
	for rows.Next() {
		var blocker int64
		if err := rows.Scan(&blocker); err != nil {
			return nil, err
		}
		list = append(list, blocker)
	}
	return list, rows.Err()
}
