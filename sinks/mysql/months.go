package mysql

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/partitioner"
)

// catalog is the physical tables of a shard that are known to be there and to match the schema.
type catalog struct {
	mu     sync.Mutex // guards known; held for no I/O
	known  map[place]*upsert
	making sync.Mutex // held while tables are made, so that partitions do not make one twice
}

// local is a place without its shard: a layout may number shards anew.
func (p place) local() place { return p & (1<<48 - 1) }

func (c *catalog) has(p place) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known[p.local()] != nil
}

func (c *catalog) add(p place, u *upsert) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = make(map[place]*upsert)
	}
	c.known[p.local()] = u
}

// forget is for tables that a statement did not find.
func (c *catalog) forget(list []place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range list {
		delete(c.known, p.local())
	}
}

// upsert is the statement of a table. One that was just forgotten has its text made again.
func (sh *shard) upsert(p place) *upsert {
	sh.catalog.mu.Lock()
	u := sh.catalog.known[p.local()]
	sh.catalog.mu.Unlock()
	if u == nil {
		u = newUpsert(sh.sink.tables[p.table()].Table, p.month(), sh.engine.Load().dialect)
	}
	return u
}

// ensure makes the tables that are not there yet. It runs before a transaction begins, on a connection of its own: DDL
// commits whatever is open.
func (sh *shard) ensure(ctx context.Context, list []place) error {
	missing := slices.DeleteFunc(list, sh.catalog.has)
	if len(missing) == 0 {
		return nil
	}
	sh.catalog.making.Lock()
	defer sh.catalog.making.Unlock()
	for _, p := range missing {
		if sh.catalog.has(p) {
			continue // made meanwhile
		}
		if err := sh.create(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// create makes one table unless another process has, and compares what is there with the schema.
func (sh *shard) create(ctx context.Context, p place) error {
	t := sh.sink.tables[p.table()].Table
	d := sh.engine.Load().dialect
	if err := sh.make(ctx, t, p.month(), d); err != nil {
		return sh.tableError(err, t, p.month())
	}
	name := d.name(t, p.month())
	found, err := readSchema(ctx, sh.control, name)
	if err != nil {
		return sh.tableError(err, t, p.month())
	}
	if err := sh.check(t, found[name], d); err != nil {
		return err
	}
	sh.sink.log.Info("table made or found", "shard", sh.name, "table", name)
	sh.catalog.add(p, newUpsert(t, p.month(), d))
	return nil
}

func (sh *shard) tableError(err error, t *event.Table, m partitioner.Month) error {
	if denied(err) {
		return sh.deniedError(err)
	}
	return mysqldb.Wrap(err, codeTableNotMade, fmt.Sprintf("%s, making table %s", sh.where(), t.PhysicalName(m)))
}

// maintainEvery is far shorter than a month and long enough to cost nothing.
const maintainEvery = time.Hour

// Maintain makes month tables ahead of their time, so that no batch has to wait for DDL at the turn of a month. It
// blocks until ctx ends. What it cannot do it logs, and tries again: tables are made on demand in any case.
func (s *Sink) Maintain(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		next := maintainEvery
		for _, sh := range s.state.Load().shards {
			if err := sh.ensureAhead(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn("month tables cannot be made ahead", "shard", sh.name, "error", err)
				next = time.Minute
			}
		}
		timer.Reset(next)
	}
}

func (sh *shard) ensureAhead(ctx context.Context) error {
	if _, err := sh.open(ctx); err != nil {
		return err
	}
	var list []place
	for i, t := range sh.sink.tables {
		for _, m := range sh.sink.monthsToHave(t.Table) {
			list = append(list, newPlace(0, i, m))
		}
	}
	return sh.ensure(ctx, list)
}

// monthsToHave are the months of a table that are made before an event needs them: this one and months.ahead more.
func (s *Sink) monthsToHave(t *event.Table) []partitioner.Month {
	if t.Month == event.None {
		return []partitioner.Month{partitioner.NoMonth}
	}
	var list []partitioner.Month
	first := partitioner.MonthOf(s.now())
	for i := range s.ahead + 1 {
		if m := first.Add(i); m >= s.monthsFrom {
			list = append(list, m)
		}
	}
	return list
}
