package replay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/consumers"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/internal/progress"
)

type deadLetter = consumers.DeadLetter

const (
	feedBatchAge = 100 * time.Millisecond
	// lookPeriod is how often logs and progress are looked at while a job runs; once more when its own batches have reached
	// what the last look saw of the log, if that is waited for.
	lookPeriod = 500 * time.Millisecond
	// caughtUp is how far behind the log tables may be that are to take the live ones' place.
	caughtUp = 2 * time.Second
	// drainMax is how long a job that ends waits for its transactions.
	drainMax = 2 * time.Second
	// deadMax is how many events may be refused before the job halts: so many are no rows' fault.
	deadMax = 100_000
)

// filling is how a job fills tables from the log, be they a shard's or an OLAP store's: as a sink beside the live one, at the
// job's pace, and with a look at how far both are.
type filling struct {
	r          *Replay // its database has the progress of both
	jobName    string
	next       string // the commands by which the job goes on after it was halted
	sink, live string // by which they have progress
	parts      []event.Partition
	kafka      *kgo.Client
	pace       pace
	passes     passOver      // which events are not applied; nil: all are
	memory     int64         // bytes that it needs for that
	yieldAbove time.Duration // how far the live sink may be behind before the job waits for it; 0: never
	sending    sync.RWMutex  // held for reading while a batch is applied

	failed  chan error // one at most: why it cannot go on
	mu      sync.Mutex
	dead    int           // letters of this run
	missing ends          // what the last look saw of logs, and batches have not reached since; nil: nobody waits for that
	reached chan struct{} // has room for one: nothing is missing any more

	mineLag, liveLag lag
}

// newFilling is one of a job that does nothing yet: beside the sink live, at so many events a second at most (0: no bound).
func newFilling(r *Replay, live string, perSecond int) filling {
	return filling{r: r, live: live, pace: pace{perSecond: perSecond}, failed: make(chan error, 1), reached: make(chan struct{}, 1)}
}

// consume applies the log to the sink until ctx ends; what it fails with goes to failed.
func (f *filling) consume(ctx context.Context, sink consumers.Sink, batch consumers.Limits, reload func(context.Context) error) {
	cfg := *f.r.o.Config
	// What waits for the job's pace is in flight too, and who pauses a job waits for it; what is cut off is rolled back.
	cfg.Limits.DrainTimeout = min(cfg.Limits.DrainTimeout, drainMax)
	cfg.Dead.HaltPerMinute = math.MaxInt32 // what a year of events refuses comes within a minute; deadMax bounds it
	err := f.r.history().consume(ctx, consumers.Options{Config: &cfg, Sink: sink, Logger: f.r.o.Logger, Batch: batch, Reload: reload, Bury: f.bury,
		Applied: f.applied, MemoryBytesMax: cfg.Limits.MemoryBytesMax - f.memory})
	if err != nil && ctx.Err() == nil {
		f.fail(err)
	}
}

// awaits has applied tell when batches have reached what a look saw of the logs, if the tables are far behind.
func (f *filling) awaits(s standing) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.missing = nil
	if s.near() {
		return
	}
	f.missing = ends{}
	for p, end := range s.log {
		if s.mine[p] < end {
			f.missing[p] = end
		}
	}
}

// applied takes note of a batch that is committed.
func (f *filling) applied(a consumers.Applied) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.missing) == 0 {
		return
	}
	for _, r := range a.Ranges {
		if r.To >= f.missing[r.Partition] {
			delete(f.missing, r.Partition)
		}
	}
	if len(f.missing) == 0 {
		select {
		case f.reached <- struct{}{}:
		default:
		}
	}
}

func (f *filling) fail(err error) {
	select {
	case f.failed <- err:
	default:
	}
}

// halted ends the job's run: a person must act.
func (f *filling) halted(p event.Partition, why *fault.Error) {
	f.fail(&fault.Error{Code: codeHalted, Class: fault.Fatal, Err: why, Why: why.Why,
		What: fmt.Sprintf("job %s, %s partition %d is halted: %s", f.jobName, p.Topic, p.Number, why.What),
		Do:   "mend that, then " + f.next})
}

// bury keeps the events that the tables cannot hold with the job, not in the dead-letter topic: the live sink's letters
// are there already.
func (f *filling) bury(ctx context.Context, letters []deadLetter) error {
	f.mu.Lock()
	f.dead += len(letters)
	many := f.dead > deadMax
	f.mu.Unlock()
	if many {
		return &fault.Error{Code: codeHalted, Class: fault.Fatal,
			What: fmt.Sprintf("job %s: more than %d events cannot be applied, the last: %s", f.jobName, deadMax, letters[0].Error),
			Do:   "correct the file, abort the job and begin anew"}
	}
	return f.r.keepDead(ctx, f.jobName, letters)
}

// filledOwned has batches wait for the job's pace, less what it passes over.
type filledOwned struct {
	event.Owned
	f      *filling
	passes func(*event.Message) bool // nil: none
}

func newFilledOwned(o event.Owned, f *filling) *filledOwned {
	owned := &filledOwned{Owned: o, f: f}
	if f.passes != nil {
		owned.passes = f.passes()
	}
	return owned
}

func (o *filledOwned) Prepare(b *event.Batch) (event.Prepared, error) {
	left := len(b.Messages)
	if o.passes != nil {
		var passed int
		b, passed = without(b, o.passes)
		left -= passed
	}
	p, err := o.Owned.Prepare(b)
	if err != nil {
		return nil, err
	}
	return &filledPrepared{p, o.f, left}, nil
}

type filledPrepared struct {
	event.Prepared
	f    *filling
	left int // events that have not waited yet
}

func (p *filledPrepared) Apply(ctx context.Context) ([]event.Rejected, error) {
	if err := p.f.pace.wait(ctx, p.left); err != nil {
		return nil, err
	}
	p.left = 0
	p.f.sending.RLock()
	defer p.f.sending.RUnlock()
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

// near says that the job's tables hold nearly all of the log.
func (s standing) near() bool { return s.mineKnown && s.mineBehind <= caughtUp }

// look asks how far all are.
func (f *filling) look(ctx context.Context) (s standing, err error) {
	logs, err := inspect(ctx, f.kafka, f.parts)
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
	working := ends{}
	for _, row := range rows {
		if !slices.Contains(f.parts, row.Partition) {
			continue
		}
		switch row.Sink {
		case f.sink:
			s.mine[row.Partition] = row.Next
		case f.live:
			s.live[row.Partition] = row.Next
			if row.Owner != "" && row.HaltedAt.IsZero() {
				working[row.Partition] = s.log[row.Partition]
			}
		}
	}
	now := time.Now()
	s.mineBehind, s.mineKnown = f.mineLag.behind(now, s.log, s.mine)
	s.liveBehind, _ = f.liveLag.behind(now, working, s.live)
	s.liveAlive = len(working) > 0
	return s, nil
}

// until looks again and again until enough says so, and holds the job back while the live sink lags. It returns early when
// the job cannot go on. What it waits for is said as the stage's.
func (f *filling) until(ctx context.Context, stage string, enough func(standing) bool) error {
	for {
		s, err := f.look(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && mysqldb.Classify(err) != fault.Transient && !fault.Is(err, fault.Transient):
			return err
		case err != nil:
			f.r.say(stage, "waits: "+err.Error())
		default:
			f.yield(s)
			if enough(s) {
				return nil
			}
			f.awaits(s)
		}
		select {
		case err := <-f.failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-f.reached:
		case <-time.After(lookPeriod):
		}
	}
}

func (f *filling) yield(s standing) {
	if f.yieldAbove <= 0 {
		return
	}
	lags := s.liveAlive && s.liveBehind > f.yieldAbove
	if f.pace.hold(lags) {
		if lags {
			f.r.say("yield", fmt.Sprintf("live lag %s above %s; the job waits", short(s.liveBehind), short(f.yieldAbove)))
		} else {
			f.r.say("yield", "over: live lag "+short(s.liveBehind))
		}
	}
}

// beside runs do while the tables are filled, and ends it with what the filling fails with.
func (f *filling) beside(ctx context.Context, do func(ctx context.Context) error) error {
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
