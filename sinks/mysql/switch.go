package mysql

import (
	"context"
	"database/sql"
	"slices"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/internal/progress"
)

// Switch makes shards follow another layout.
type Switch struct {
	// Shards are those that hold rows by the layout in force, by name.
	Shards []string
	// Gaining are those of them that slots or tenants come to. What is not applied of these may lie below where the
	// shard stands, so it goes back to where the least of all stands; versions decide what is applied twice.
	Gaining []string
	// Check is called for each tenant that has a row in a shard; nil: nobody asks.
	Check func(shard, tenant string)
	// Verdict, after all checks, is why nothing may be switched, or nil.
	Verdict func() error
	// Store writes the layout into a shard.
	Store func(ctx context.Context, tx *sql.Tx, shard string) error
}

const (
	// sessionPatience is how long a session waits while other shards are asked for their tenants, in seconds.
	sessionPatience = "3600"
	// switchLockWait is how long the lock of one progress row is waited for, in seconds: a batch of rows for all shards
	// may hold it while it waits for another that is held here.
	switchLockWait = "2"
	switchTriesMax = 10
)

// Switch does it in one transaction per shard. All hold their progress rows from before the first check until the last
// commit, so that no batch is committed in between; and each fences the owners of before, who must load the layout to
// take over again. Where a commit fails after another's, the same Switch is to be made again, or one that stores the
// layout in force.
func (s *Sink) Switch(ctx context.Context, w Switch) error {
	for try := 1; ; try++ {
		committed, err := s.trySwitch(ctx, w)
		if err == nil || committed || try == switchTriesMax || mysqldb.Classify(err) != fault.Transient || !pause(ctx, try) {
			return err
		}
	}
}

// trySwitch does it once; committed says that a shard has switched, whatever became of the others.
func (s *Sink) trySwitch(ctx context.Context, w Switch) (committed bool, err error) {
	st := s.state.Load()
	type part struct {
		*shard
		tx   *sql.Tx
		rows []progress.Row
	}
	var parts []*part
	defer func() {
		for _, p := range parts {
			_ = p.tx.Rollback() // nothing after a commit
		}
	}()
	least := map[event.Partition]event.Position{}
	for _, name := range slices.Sorted(slices.Values(w.Shards)) {
		i, _ := st.layout.ShardIndex(name)
		sh := st.shards[i]
		tx, err := sh.alter.BeginTx(ctx, nil)
		if err != nil {
			return false, sh.wrap(err)
		}
		p := &part{shard: sh, tx: tx}
		parts = append(parts, p)
		if _, err := tx.ExecContext(ctx, "SET SESSION wait_timeout = "+sessionPatience+", innodb_lock_wait_timeout = "+switchLockWait); err != nil {
			return false, sh.wrap(err)
		}
		rows, err := progress.Lock(ctx, tx, s.name)
		if err != nil {
			return false, sh.wrap(err)
		}
		for _, r := range rows {
			if !slices.Contains(s.topics, r.Topic) {
				continue // another line's
			}
			p.rows = append(p.rows, r)
			if at, some := least[r.Partition]; !some || r.Next < at.Next {
				least[r.Partition] = r.Position()
			}
		}
	}
	if w.Check != nil {
		for _, p := range parts {
			if err := p.tenants(ctx, p.tx, w.Check); err != nil {
				return false, err
			}
		}
		if err := w.Verdict(); err != nil {
			return false, err
		}
	}
	for _, p := range parts {
		for _, r := range p.rows {
			at := r.Position()
			if slices.Contains(w.Gaining, p.name) {
				at = least[r.Partition]
			}
			if err := progress.Fence(ctx, p.tx, s.name, at); err != nil {
				return committed, p.wrap(err)
			}
		}
		if err := w.Store(ctx, p.tx, p.name); err != nil {
			return committed, p.wrap(err)
		}
	}
	for _, p := range parts {
		if err := p.tx.Commit(); err != nil {
			return committed, p.wrap(err)
		}
		committed = true
	}
	return true, nil
}

// Tenants calls each for every tenant that has a row in one of the shards, deleted rows included, once per table.
func (s *Sink) Tenants(ctx context.Context, shards []string, each func(shard, tenant string)) error {
	st := s.state.Load()
	for _, name := range shards {
		i, _ := st.layout.ShardIndex(name)
		if err := st.shards[i].tenants(ctx, st.shards[i].alter, each); err != nil {
			return err
		}
	}
	return nil
}

// tenants reads the primary keys' first column: the server skips from one tenant to the next.
func (sh *shard) tenants(ctx context.Context, q progress.Querier, each func(shard, tenant string)) error {
	tables, err := readSchema(ctx, q, "")
	if err != nil {
		return sh.wrap(err)
	}
	for name := range tables {
		i, _, ok := sh.sink.logical(name)
		if !ok || sh.sink.tables[i].Broadcast() {
			continue
		}
		t := sh.sink.tables[i]
		rows, err := q.QueryContext(ctx, "SELECT DISTINCT "+mysqldb.Ident(t.Columns[t.Tenant].Name)+" FROM "+mysqldb.Ident(name))
		if err != nil {
			return sh.wrap(err)
		}
		for rows.Next() {
			var tenant string
			if err = rows.Scan(&tenant); err != nil {
				break
			}
			each(sh.name, tenant)
		}
		rows.Close()
		if err == nil {
			err = rows.Err()
		}
		if err != nil {
			return sh.wrap(err)
		}
	}
	return nil
}
