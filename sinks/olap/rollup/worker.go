package rollup

import (
	"context"
	"database/sql"
	"log/slog"
	"sync"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/fault"
)

// Engine is where the base tables and the rollups are.
type Engine interface {
	// Pairs calls each for every pair of the rollup's base table, deleted rows included.
	Pairs(ctx context.Context, r *config.Rollup, each func(Pair) error) error
	// Compute reads the slices of the pairs from the base as it is now and writes each of them whole, or none, under the
	// version. It returns when readers see them.
	Compute(ctx context.Context, r *config.Rollup, pairs []Pair, version int64) error
}

// Worker keeps the rollups of one sink. Any number of processes may run one.
type Worker struct {
	DB        *sql.DB // of sinks.state; not closed here
	Sink      string
	Rollups   []*config.Rollup
	Engine    Engine
	Owner     string
	LeaseTime time.Duration
	Logger    *slog.Logger
}

const (
	// pause is the least time between two rounds of one rollup: a slice that is touched all the time is computed once in
	// it. A round that took longer is followed by as long a pause, so that a rollup takes half of the time at most.
	pause = time.Second
	// pairsMax bounds a round: what it holds in memory, and what one statement reads.
	pairsMax = 1000
	retryMax = 30 * time.Second
)

// Run works until ctx ends.
func (w *Worker) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, r := range w.Rollups {
		wg.Go(func() { w.keep(ctx, r) })
	}
	wg.Wait()
}

// keep takes the lease of one rollup whenever it is free, and works while it has it.
func (w *Worker) keep(ctx context.Context, r *config.Rollup) {
	wait := pause
	for sleep(ctx, nil, wait) {
		err := w.own(ctx, r)
		switch {
		case err == nil, fault.Is(err, fault.Fenced):
			wait = pause
		case ctx.Err() == nil:
			w.Logger.Warn("a rollup waits", "rollup", r.Name, "error", err)
			wait = min(2*wait, retryMax)
		}
	}
}

// own works until the lease is lost, ctx ends or something fails.
func (w *Worker) own(ctx context.Context, r *config.Rollup) error {
	s := state{w.DB, w.Sink, r.Name}
	held, err := s.lease(ctx, w.Owner, w.LeaseTime)
	if err != nil {
		return err
	}
	keeping, stop := context.WithCancel(ctx)
	var kept sync.WaitGroup
	kept.Go(func() { _ = held.Keep(keeping) }) // what ends it closes Lost
	defer func() {
		stop()
		kept.Wait()
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = held.Release(end) // a courtesy: it runs out
	}()
	for {
		began := time.Now()
		if err := w.Round(ctx, r); err != nil {
			return err
		}
		if !sleep(ctx, held.Lost(), max(pause, time.Since(began))) {
			return nil
		}
	}
}

// RollUp brings every rollup up to the moment at which it was called, whatever other workers do meanwhile.
func (w *Worker) RollUp(ctx context.Context) error {
	for _, r := range w.Rollups {
		if err := w.Round(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// Round brings one rollup up to the moment at which it began. It needs no lease.
func (w *Worker) Round(ctx context.Context, r *config.Rollup) error {
	return round(ctx, state{w.DB, w.Sink, r.Name}, w.Engine, r)
}

// store is what a round needs of sinks.state; tests put an obvious twin in its place.
type store interface {
	fill(ctx context.Context) (number uint64, err error)
	filled(ctx context.Context, number uint64) error
	mark(ctx context.Context, touched []Touched) error
	marks(ctx context.Context, most int) (list []marked, at string, err error)
	version(ctx context.Context) (int64, error)
	clear(ctx context.Context, list []marked, readAt string) error
}

func round(ctx context.Context, s store, e Engine, r *config.Rollup) error {
	if err := fill(ctx, s, e, r); err != nil {
		return err
	}
	for {
		// In this order: see the package's promise about two workers.
		list, at, err := s.marks(ctx, pairsMax)
		if err != nil || len(list) == 0 {
			return err
		}
		version, err := s.version(ctx)
		if err != nil {
			return err
		}
		pairs := make([]Pair, len(list))
		for i, m := range list {
			pairs[i] = m.Pair
		}
		if err := e.Compute(ctx, r, pairs, version); err != nil {
			return err
		}
		if err := s.clear(ctx, list, at); err != nil {
			return err
		}
		if len(list) < pairsMax {
			return nil
		}
	}
}

// fill marks all pairs of the base, if that is wanted.
func fill(ctx context.Context, s store, e Engine, r *config.Rollup) error {
	number, err := s.fill(ctx)
	if err != nil || number == 0 {
		return err
	}
	var touched []Touched
	err = e.Pairs(ctx, r, func(p Pair) error {
		if touched = append(touched, Touched{r.Name, p}); len(touched) < chunk {
			return nil
		}
		err := s.mark(ctx, touched)
		touched = touched[:0]
		return err
	})
	if err == nil {
		err = s.mark(ctx, touched)
	}
	if err != nil {
		return err
	}
	return s.filled(ctx, number)
}

// sleep waits; false if ctx ended or lost was closed meanwhile.
func sleep(ctx context.Context, lost <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-lost:
		return false
	case <-t.C:
		return true
	}
}
