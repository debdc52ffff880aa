package replay

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/slotline/slotline/consumers"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/lease"
	"github.com/slotline/slotline/sinks/mysql"
)

// A replay reads far behind the log's end, where batches are large: they go by the sink's staging path.
const (
	feedBatchRows  = 10_000
	feedBatchBytes = 8 << 20
)

// feed keeps tables of one sink current from the log, and looks at how far they and the live ones are.
type feed struct {
	filling
	job    *Job
	tables *mysql.Sink
	began  ends // where its sink stood before

	cancel context.CancelFunc
	done   chan struct{}
}

// newFeed is a feed of a job that does nothing yet.
func (r *Replay) newFeed(j *Job, sink string) *feed {
	f := &feed{job: j, filling: newFilling(r, liveSink, j.Spec.PerSecond)}
	f.jobName, f.sink, f.yieldAbove = j.Name, sink, j.Spec.YieldAbove
	f.next = fmt.Sprintf("slotline replay resume %s; or slotline replay abort %s", j.Name, j.Name)
	return f
}

// feedFor begins to apply the log to the tables with a suffix, which are there, as a sink of its own; first, unless nil, is done
// before.
func (r *Replay) feedFor(ctx context.Context, h *lease.Held, j *Job, sink, suffix string, first func(context.Context, *feed) error) (*feed, error) {
	if err := r.seed(ctx, h, j, sink); err != nil {
		return nil, err
	}
	tables, err := r.sinkOf(j, sink, suffix)
	if err != nil {
		return nil, err
	}
	rows, err := progress.List(ctx, r.db, sink)
	if err != nil {
		tables.Close()
		return nil, r.wrap(err)
	}
	f := r.newFeed(j, sink)
	f.tables, f.began = tables, ends{}
	for _, row := range rows {
		if slices.Contains(r.o.Config.Topics(), row.Topic) {
			f.parts = append(f.parts, row.Partition)
			f.began[row.Partition] = row.Next
		}
	}
	if f.kafka, err = kafka.Open(ctx, r.o.Config, sink, r.o.Logger); err != nil {
		tables.Close()
		return nil, err
	}
	if first != nil {
		if err := first(ctx, f); err != nil {
			f.kafka.Close()
			tables.Close()
			return nil, err
		}
	}
	f.start(ctx)
	return f, nil
}

// seed has a sink, whose tables are there, have progress of each partition that the live sink has, at the log's start where it
// has none: partitions may be new. The job's other sink has none: a swap that was cut off between its two statements has given
// the progress away and not the tables. A process that has lost the job changes nothing.
func (r *Replay) seed(ctx context.Context, h *lease.Held, j *Job, sink string) error {
	other := oldSink(j.Name)
	if sink == other {
		other = shadowSink(j.Name)
	}
	parts, err := r.partitions(ctx)
	if err != nil {
		return err
	}
	return r.ifOurs(ctx, h, j, func(tx *sql.Tx) error {
		err := progress.Rename(ctx, tx, other, sink, r.o.Config.Topics())
		for _, p := range parts {
			if err == nil {
				err = progress.Seed(ctx, tx, sink, event.Position{Partition: p.Partition, LeaderEpoch: -1})
			}
		}
		return err
	})
}

// ifOurs does something in one transaction, if the job still is this process's.
func (r *Replay) ifOurs(ctx context.Context, h *lease.Held, j *Job, do func(tx *sql.Tx) error) error {
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return r.wrap(err)
	}
	defer tx.Rollback()
	var ours int
	err = tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM `slotline_job` WHERE `job`=? AND "+lease.Guard+" FOR UPDATE",
		append([]any{j.Name}, h.Fence().Args()...)...).Scan(&ours)
	if err == nil && ours == 0 {
		return lost(j.Name)
	}
	if err == nil {
		err = do(tx)
	}
	if err == nil {
		err = tx.Commit()
	}
	return r.wrap(err)
}

// start applies the log to the tables until rest, or the end of ctx.
func (f *feed) start(ctx context.Context) {
	ctx, f.cancel = context.WithCancel(ctx)
	done := make(chan struct{})
	f.done = done
	go func() {
		defer close(done)
		f.consume(ctx, &besideSink{f.tables, f}, consumers.Limits{Rows: feedBatchRows, Bytes: feedBatchBytes, Age: feedBatchAge},
			func(context.Context) error { return f.layoutChanged() })
	}()
}

// rest ends what start began, and waits until nothing of it runs: from then on nobody asks for its progress rows.
func (f *feed) rest() {
	f.cancel()
	<-f.done
}

// sinkOf makes the sink that keeps tables beside the live ones.
func (r *Replay) sinkOf(j *Job, name, suffix string) (*mysql.Sink, error) {
	o := mysql.Options{Config: r.o.Config, Layout: r.o.Layout, Sink: name, Owner: r.owner, Logger: r.o.Logger}
	if suffix != "" {
		o.Shadow = &mysql.Shadow{Shard: r.o.Shard, Tables: j.Spec.Tables, Suffix: suffix, Bare: j.bare()}
	}
	return mysql.New(o)
}

// stop is rest, for good.
func (f *feed) stop() {
	f.rest()
	f.kafka.Close()
	f.tables.Close()
}

// layoutChanged ends a job whose rows would go by another layout than its tables were filled by.
func (f *feed) layoutChanged() error {
	err := &fault.Error{Code: codeLayout, Class: fault.Fatal,
		What: fmt.Sprintf("job %s in shard %s began with layout epoch %d, and a newer one is in force", f.job.Name, f.r.o.Shard, f.job.Layout),
		Why:  "tenants that came to the shard since are not in the rebuilt tables",
		Do:   fmt.Sprintf("slotline replay abort %s, and begin anew", f.job.Name)}
	f.fail(err)
	return err
}

// besideSink is the sink as consumers see it: one fixed group for each partition of the shard, in place of a Kafka group.
type besideSink struct {
	*mysql.Sink
	feed *feed
}

// Groups are the partitions that have a progress row.
func (b *besideSink) Groups() [][]event.Partition {
	var groups [][]event.Partition
	for _, p := range b.feed.parts {
		groups = append(groups, []event.Partition{p})
	}
	return groups
}

// TakeOver has batches wait for the job's pace.
func (b *besideSink) TakeOver(ctx context.Context, parts []event.Partition) (event.Owned, error) {
	o, err := b.Sink.TakeOver(ctx, parts)
	if err != nil {
		return nil, err
	}
	return newFilledOwned(o, &b.feed.filling), nil
}

// Halt ends the job's run: a person must act.
func (b *besideSink) Halt(ctx context.Context, p event.Partition, why *fault.Error) error {
	b.feed.halted(p, why)
	return b.Sink.Halt(ctx, p, why)
}
