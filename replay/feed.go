package replay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/consumers"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/sinks/mysql"
)

type deadLetter = consumers.DeadLetter

// A replay reads far behind the log's end, where batches are large: they go by the sink's staging path.
const (
	feedBatchRows  = 10_000
	feedBatchBytes = 8 << 20
	feedBatchAge   = 100 * time.Millisecond
	// lookPeriod is how often logs and progress are looked at while a job runs.
	lookPeriod = 500 * time.Millisecond
	// caughtUp is how far behind the log tables may be that are to be swapped in.
	caughtUp = 2 * time.Second
	// drainMax is how long a feed that ends waits for its transactions.
	drainMax = 2 * time.Second
	// deadMax is how many events may be refused before the job halts: so many are no rows' fault.
	deadMax = 100_000
)

// feed keeps tables of one sink current from the log, and looks at how far they and the live ones are.
type feed struct {
	r      *Replay
	job    *Job
	sink   string
	pace   *pace
	kafka  *kgo.Client
	tables *mysql.Sink
	parts  []event.Partition

	cancel context.CancelFunc
	done   chan struct{}
	failed chan error // one at most: why it cannot go on

	deadMu sync.Mutex
	dead   int // letters of this run

	mine, live lag
}

// feedFor begins to apply the log to the tables with a suffix, as a sink of its own.
func (r *Replay) feedFor(ctx context.Context, j *Job, sink, suffix string) (*feed, error) {
	tables, err := r.sinkOf(j, sink, suffix)
	if err != nil {
		return nil, err
	}
	rows, err := progress.List(ctx, r.db, sink)
	if err != nil {
		tables.Close()
		return nil, r.wrap(err)
	}
	f := &feed{r: r, job: j, sink: sink, pace: &pace{perSecond: j.Spec.PerSecond}, tables: tables,
		done: make(chan struct{}), failed: make(chan error, 1)}
	for _, row := range rows {
		if slices.Contains(r.o.Config.Topics(), row.Topic) {
			f.parts = append(f.parts, row.Partition)
		}
	}
	if f.kafka, err = kafka.Open(ctx, r.o.Config, sink, r.o.Logger); err != nil {
		tables.Close()
		return nil, err
	}
	cfg := *r.o.Config
	// What waits for the job's pace is in flight too, and who pauses a job waits for it; what is cut off is rolled back.
	cfg.Limits.DrainTimeout = min(cfg.Limits.DrainTimeout, drainMax)
	cfg.Dead.HaltPerMinute = math.MaxInt32 // what a year of events refuses comes within a minute; deadMax bounds it
	ctx, f.cancel = context.WithCancel(ctx)
	go func() {
		defer close(f.done)
		err := r.history().consume(ctx, consumers.Options{Config: &cfg, Sink: &besideSink{tables, f}, Logger: r.o.Logger,
			Batch:  consumers.Limits{Rows: feedBatchRows, Bytes: feedBatchBytes, Age: feedBatchAge},
			Reload: func(context.Context) error { return f.layoutChanged() }, Bury: f.bury})
		if err != nil && ctx.Err() == nil {
			f.fail(err)
		}
	}()
	return f, nil
}

// sinkOf makes the sink that keeps tables beside the live ones.
func (r *Replay) sinkOf(j *Job, name, suffix string) (*mysql.Sink, error) {
	o := mysql.Options{Config: r.o.Config, Layout: r.o.Layout, Sink: name, Owner: r.owner, Logger: r.o.Logger}
	if suffix != "" {
		o.Shadow = &mysql.Shadow{Shard: r.o.Shard, Tables: j.Spec.Tables, Suffix: suffix, Bare: j.bare()}
	}
	return mysql.New(o)
}

func (f *feed) fail(err error) {
	select {
	case f.failed <- err:
	default:
	}
}

// stop ends it, and waits until nothing of it runs.
func (f *feed) stop() {
	f.cancel()
	<-f.done
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

// bury keeps the events that the tables cannot hold with the job, not in the dead-letter topic: the live sink's letters
// are there already.
func (f *feed) bury(ctx context.Context, letters []deadLetter) error {
	f.deadMu.Lock()
	f.dead += len(letters)
	many := f.dead > deadMax
	f.deadMu.Unlock()
	if many {
		return &fault.Error{Code: codeHalted, Class: fault.Fatal,
			What: fmt.Sprintf("job %s: more than %d events cannot be applied, the last: %s", f.job.Name, deadMax, letters[0].Error),
			Do:   "correct the file, abort the job and begin anew"}
	}
	return f.r.keepDead(ctx, f.job.Name, letters)
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
	return &pacedOwned{o, b.feed.pace}, nil
}

// Halt ends the job's run: a person must act.
func (b *besideSink) Halt(ctx context.Context, p event.Partition, why *fault.Error) error {
	b.feed.fail(&fault.Error{Code: codeHalted, Class: fault.Fatal, Err: why,
		What: fmt.Sprintf("job %s, %s partition %d is halted: %s", b.feed.job.Name, p.Topic, p.Number, why.What),
		Why:  why.Why, Do: fmt.Sprintf("mend that, then slotline replay resume %s; or slotline replay abort %s", b.feed.job.Name, b.feed.job.Name)})
	return b.Sink.Halt(ctx, p, why)
}

type pacedOwned struct {
	event.Owned
	pace *pace
}

func (o *pacedOwned) Prepare(b *event.Batch) (event.Prepared, error) {
	p, err := o.Owned.Prepare(b)
	if err != nil {
		return nil, err
	}
	return &pacedPrepared{p, o.pace, len(b.Messages)}, nil
}

type pacedPrepared struct {
	event.Prepared
	pace *pace
	left int // events that have not waited yet
}

func (p *pacedPrepared) Apply(ctx context.Context) ([]event.Rejected, error) {
	if err := p.pace.wait(ctx, p.left); err != nil {
		return nil, err
	}
	p.left = 0
	return p.Prepared.Apply(ctx)
}

// standing is how far the log, the live tables and the job's are.
type standing struct {
	log, mine, live ends
	mineBehind      time.Duration
	mineKnown       bool
	liveBehind      time.Duration
	liveAlive       bool // a live sink is at work: what is halted, or has no owner, is not waited for
}

// look asks how far all are, and holds the job back while the live sink lags.
func (f *feed) look(ctx context.Context) (s standing, err error) {
	var at []event.Position
	for _, p := range f.parts {
		at = append(at, event.Position{Partition: p, LeaderEpoch: -1})
	}
	logs, err := kafka.Inspect(ctx, f.kafka, at)
	if err != nil {
		return s, err
	}
	s.log, s.mine, s.live = ends{}, ends{}, ends{}
	for p, log := range logs {
		if log.Err != nil {
			return s, log.Err
		}
		s.log[p] = log.Stable
	}
	rows, err := progress.List(ctx, f.r.db, "")
	if err != nil {
		return s, f.r.wrap(err)
	}
	working := maps.Clone(s.log)
	for _, row := range rows {
		if !slices.Contains(f.parts, row.Partition) {
			continue
		}
		switch row.Sink {
		case f.sink:
			s.mine[row.Partition] = row.Next
		case liveSink:
			s.live[row.Partition] = row.Next
			if row.Owner == "" || !row.HaltedAt.IsZero() {
				delete(working, row.Partition)
			}
		}
	}
	now := time.Now()
	s.mineBehind, s.mineKnown = f.mine.behind(now, s.log, s.mine)
	s.liveBehind, _ = f.live.behind(now, working, s.live)
	s.liveAlive = len(working) > 0
	return s, nil
}

// until looks again and again until enough says so. It returns early when the feed cannot go on.
func (f *feed) until(ctx context.Context, enough func(standing) bool) error {
	for {
		s, err := f.look(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && mysqldb.Classify(err) != fault.Transient && !fault.Is(err, fault.Transient):
			return err
		case err != nil:
			f.r.say(string(f.job.Stage), "waits: "+err.Error())
		default:
			f.yield(s)
			if enough(s) {
				return nil
			}
		}
		select {
		case err := <-f.failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lookPeriod):
		}
	}
}

func (f *feed) yield(s standing) {
	above := f.job.Spec.YieldAbove
	if above <= 0 {
		return
	}
	lags := s.liveAlive && s.liveBehind > above
	if f.pace.hold(lags) {
		if lags {
			f.r.say("yield", fmt.Sprintf("live lag %s above %s; the job waits", short(s.liveBehind), short(above)))
		} else {
			f.r.say("yield", "over: live lag "+short(s.liveBehind))
		}
	}
}

// beside runs do while the feed goes on, and ends it with the feed's error.
func (f *feed) beside(ctx context.Context, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case err := <-f.failed:
			cancel(err)
		case <-ended:
		}
	}()
	err := do(ctx)
	close(ended)
	<-watched
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}
