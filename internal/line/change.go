package line

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/inforce"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/internal/plan"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/mysql"
)

// change is what an apply does to the layout in force.
//
// A newer layout is stored in new shards' databases first, then in those of the layout in force, in a transaction each
// that also fences the sinks and looks for rows that would move, and last in the outbox database: what is stored there is
// what processes run from. Cut off in between, it is ended by the same apply; or taken back by an apply of the file in
// force, since nobody has run by it.
type change struct {
	applied *partitioner.Layout // in force; nil for a line that was never applied
	target  *partitioner.Layout // that apply makes for
	begun   bool                // by an apply that did not end: shards have target, or what is to be taken back
	diff    partitioner.Changes
}

// isNewer says that the layout in force is to be followed by another.
func (c *change) isNewer() bool { return c.applied != nil && c.target.Epoch() > c.applied.Epoch() }

// appliedLayout is the layout in force, nil for a line that was never applied.
func (l *Line) appliedLayout(ctx context.Context) (*partitioner.Layout, error) {
	db, err := l.outboxDB()
	if err != nil {
		return nil, err
	}
	where := "outbox " + l.Config.Outbox.DSN.Place()
	err = otherLine(ctx, db, l.Config.Line, where)
	if err != nil {
		return nil, mysqldb.Wrap(err, "SL1807", where)
	}
	applied, err := inforce.Read(ctx, db, l.Config.Line, "", where)
	if err != nil {
		return nil, mysqldb.Wrap(err, "SL1807", where)
	}
	return applied, nil
}

// applyWait is how long an apply waits for another of the same line to end.
const applyWait = 60 * time.Second

// applyAlone keeps other applies of the line from running until end, and refuses a plan that one of them has outdated.
func (l *Line) applyAlone(ctx context.Context, p *Plan) (end func(), err error) {
	db, err := l.outboxDB()
	if err != nil {
		return nil, err
	}
	where := "outbox " + l.Config.Outbox.DSN.Place()
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, mysqldb.Wrap(err, "SL1807", where)
	}
	end = func() { mysqldb.Discard(conn) } // which ends the lock
	// The session must not end while it says nothing.
	_, err = conn.ExecContext(ctx, "SET SESSION wait_timeout = 86400")
	var got sql.NullInt64
	if err == nil {
		err = conn.QueryRowContext(ctx, "SELECT GET_LOCK(CONCAT('slotline_apply_', ?), ?)", l.Config.Line, int(applyWait/time.Second)).Scan(&got)
	}
	if err != nil {
		end()
		return nil, mysqldb.Wrap(err, "SL1807", where)
	}
	refuse := func(what string) (func(), error) {
		end()
		return nil, &fault.Error{Code: "SL1819", Class: fault.Transient, What: what + "; nothing was changed", Do: "slotline apply again"}
	}
	if got.Int64 != 1 {
		return refuse(fmt.Sprintf("%s: another apply of line %s runs", where, l.Config.Line))
	}
	applied, err := l.appliedLayout(ctx)
	if err != nil {
		end()
		return nil, err
	}
	if applied == nil && p.inForce == 0 || applied != nil && applied.Epoch() == p.inForce {
		return end, nil
	}
	return refuse(fmt.Sprintf("%s: another layout has come into force since the plan was made", where))
}

// settleChange decides what apply makes for, and refuses what would move rows. It asks all shards.
func (l *Line) settleChange(ctx context.Context, applied *partitioner.Layout) (*change, error) {
	c := &change{applied: applied}
	spec, partitions := l.Config.Layout, l.Config.Kafka.Partitions
	if applied == nil {
		var err error
		if spec, err = spec.WithPartitions(partitions); err != nil {
			return nil, err
		}
		c.target, err = partitioner.New(spec)
		return c, err
	}
	begun, err := l.begunLayout(ctx, applied)
	if err != nil {
		return nil, err
	}
	if spec.Epoch <= applied.Epoch() {
		c.begun = begun != nil
		c.target, err = agree(l.Config.File, spec, partitions, applied)
		return c, err
	}
	if begun != nil {
		if c.target, err = agree(l.Config.File, spec, partitions, begun); err != nil {
			return nil, &fault.Error{Code: "SL1816", Class: fault.Usage, Err: err,
				What: fmt.Sprintf("an apply of layout epoch %d did not end, and %s describes another layout; nothing was changed", begun.Epoch(), l.Config.File),
				Why:  "shards have that layout already, and what meets them waits",
				Do:   fmt.Sprintf("slotline apply with the file of that layout, or with the file in force (epoch %d) to take it back", applied.Epoch())}
		}
		c.begun, c.diff = true, partitioner.Diff(applied, c.target)
		return c, nil
	}
	return c, l.newTarget(ctx, c)
}

// newTarget makes the layout of a file that is newer than the layout in force.
func (l *Line) newTarget(ctx context.Context, c *change) error {
	spec, partitions, old := l.Config.Layout, l.Config.Kafka.Partitions, c.applied
	sink, err := mysql.New(mysql.Options{Config: l.Config, Layout: old, Logger: l.Log})
	if err != nil {
		return err
	}
	defer sink.Close()
	var free []partitioner.SlotRange
	census := partitioner.NewCensus(old)
	if partitions > old.Partitions() {
		if err := sink.Tenants(ctx, l.heldShards(old), func(_, tenant string) { census.Add(tenant) }); err != nil {
			return err
		}
		free = census.Free()
	}
	if spec, err = spec.After(old, partitions, free); err != nil {
		return err
	}
	if c.target, err = partitioner.New(spec); err != nil {
		return err
	}
	c.diff = partitioner.Diff(old, c.target)
	if err := allowed(l.Config.File, c.diff); err != nil {
		return err
	}
	if !mayMove(c.diff) {
		return nil
	}
	moved := partitioner.NewMoved(old, c.target)
	if err := sink.Tenants(ctx, l.heldShards(old), func(_, tenant string) { moved.Add(tenant) }); err != nil {
		return err
	}
	return refuseMoved(l.Config.File, c.target, moved)
}

// heldShards are the shards of a layout that the file names too: allowed refuses the file if one is missing.
func (l *Line) heldShards(layout *partitioner.Layout) (names []string) {
	for _, s := range l.Config.Shards {
		if _, ok := layout.ShardIndex(s.Name); ok {
			names = append(names, s.Name)
		}
	}
	return names
}

// mayMove says that a tenant's route can differ, so that rows must be looked for.
func mayMove(c partitioner.Changes) bool {
	return len(c.ShardMoves)+len(c.PartitionMoves)+len(c.Tenants) > 0
}

// allowed refuses what no layout may change, whatever rows there are.
func allowed(file string, c partitioner.Changes) error {
	refuse := func(why, do string) error {
		return &fault.Error{Code: "SL1817", Class: fault.Usage,
			What: fmt.Sprintf("%s: layout epoch %d cannot follow epoch %d; nothing was changed", file, c.NewEpoch, c.OldEpoch), Why: why, Do: do}
	}
	if err := c.Err(); err != nil {
		return refuse(err.Error(), "put back what never changes")
	}
	if len(c.ShardsRemoved) > 0 {
		return refuse("shard "+strings.Join(c.ShardsRemoved, ", ")+" is gone: it holds rows of broadcast tables, and may hold tenants'",
			"leave it in the file, without slots if it has no rows; removing a shard comes with a later release")
	}
	if c.NewPartitions > c.OldPartitions && len(c.PartitionMoves) == 0 {
		return refuse(fmt.Sprintf("the %d new partitions would own no slot: each slot that could be spared holds rows", c.NewPartitions-c.OldPartitions),
			fmt.Sprintf("kafka.partitions: %d; Kafka cannot take partitions away again", c.OldPartitions))
	}
	return nil
}

// refuseMoved says who would move, if anybody would.
func refuseMoved(file string, target *partitioner.Layout, moved *partitioner.Moved) error {
	if moved.Empty() {
		return nil
	}
	do := "leave them where they are"
	if spare := moved.Spare(); len(spare) > 0 {
		do += "; without rows, of the slots that would change their shard, are " + strings.Join(spare, "; ")
	}
	return &fault.Error{Code: "SL1818", Class: fault.Usage,
		What: fmt.Sprintf("%s: layout epoch %d would move tenants that have rows; nothing was changed", file, target.Epoch()),
		Why:  strings.Join(moved.Lines(), "\n"), Do: do + ". Moving what has rows comes with a later release"}
}

// begunLayout is the layout newer than the one in force that an apply which did not end has stored in shards; nil
// without one.
func (l *Line) begunLayout(ctx context.Context, applied *partitioner.Layout) (begun *partitioner.Layout, err error) {
	first := ""
	for i, shard := range l.Config.Shards {
		if _, held := applied.ShardIndex(shard.Name); !held {
			continue
		}
		db, err := l.shardDB(i)
		if err != nil {
			return nil, err
		}
		where := shardWhere(shard)
		stored, err := inforce.Read(ctx, db, l.Config.Line, shard.Name, where)
		if err != nil {
			return nil, mysqldb.Wrap(err, "SL1807", where)
		}
		if stored == nil || stored.Epoch() <= applied.Epoch() {
			continue
		}
		if begun != nil && begun.Digest() != stored.Digest() {
			return nil, &fault.Error{Code: "SL1808", Class: fault.Usage,
				What: fmt.Sprintf("%s and %s hold two layouts newer than the one in force", first, where),
				Why:  "one of the databases belongs to another life of this line", Do: "correct the DSNs; nothing was changed"}
		}
		begun, first = stored, where
	}
	return begun, nil
}

// planChange adds the steps by which the layout of c comes into force, last of all changes.
func (l *Line) planChange(ctx context.Context, p *Plan, c *change, sink *mysql.Sink) error {
	outboxDB, err := l.outboxDB()
	if err != nil {
		return err
	}
	outboxWhere := "outbox " + l.Config.Outbox.DSN.Place()
	for i, shard := range l.Config.Shards {
		if c.applied != nil {
			if _, held := c.applied.ShardIndex(shard.Name); held && (c.isNewer() || c.begun) {
				continue
			}
		}
		db, err := l.shardDB(i)
		if err != nil {
			return err
		}
		if err := l.planLayout(ctx, p, db, shard.Name, shardWhere(shard), c); err != nil {
			return err
		}
	}
	switch {
	case c.applied == nil:
		return l.planLayout(ctx, p, outboxDB, "", outboxWhere, c)
	case c.isNewer():
		heading := fmt.Sprintf("layout epoch %d -> %d", c.applied.Epoch(), c.target.Epoch())
		for _, line := range c.diff.Lines() {
			p.add(plan.Change{Where: heading, Sign: plan.Note, What: line})
		}
		p.add(plan.Change{Where: heading, Sign: plan.Alter, What: "slotline_layout in " + strings.Join(c.applied.Shards(), ", "),
			Note: "no rows move; sinks load it while they run", Do: func(ctx context.Context) error { return l.switchShards(ctx, sink, c) }})
		p.add(plan.Change{Where: heading, Sign: plan.Alter, What: "slotline_layout in the outbox database", Note: "in force from then on",
			Do: func(ctx context.Context) error {
				return writeLayout(ctx, outboxDB, l.Config.Line, "", l.tableNames(), c.target)
			}})
	case c.begun:
		p.add(plan.Change{Where: fmt.Sprintf("layout epoch %d", c.applied.Epoch()), Sign: plan.Alter,
			What: "slotline_layout in " + strings.Join(c.applied.Shards(), ", "), Note: "a newer layout, whose apply did not end, is taken back",
			Do: func(ctx context.Context) error { return l.switchShards(ctx, sink, c) }})
	}
	return nil
}

// switchShards stores the target in the shards of the layout in force, all or none but for a crash.
func (l *Line) switchShards(ctx context.Context, sink *mysql.Sink, c *change) error {
	w := mysql.Switch{Shards: c.applied.Shards(), Store: func(ctx context.Context, tx *sql.Tx, shard string) error {
		return storeLayout(ctx, tx, l.Config.Line, shard, l.tableNames(), c.applied.Epoch(), c.target)
	}}
	if c.isNewer() && mayMove(c.diff) {
		moved := partitioner.NewMoved(c.applied, c.target)
		w.Check = func(_, tenant string) { moved.Add(tenant) }
		w.Verdict = func() error { return refuseMoved(l.Config.File, c.target, moved) }
		for _, m := range c.diff.ShardMoves {
			w.Gaining = append(w.Gaining, m.To)
		}
		for _, t := range c.diff.Tenants {
			w.Gaining = append(w.Gaining, t.To...)
		}
		w.Gaining = slices.DeleteFunc(w.Gaining, func(name string) bool { return !slices.Contains(w.Shards, name) })
	}
	return sink.Switch(ctx, w)
}
