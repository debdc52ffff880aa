package clickhouse

import (
	"context"
	"sync"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/intake"
	"github.com/slotline/slotline/sinks/olap/intent"
	"github.com/slotline/slotline/sinks/olap/rollup"
)

// group is what a batch needs of the group's state; *intent.Group is one.
type group interface {
	Positions() []event.Position
	Pending() *intent.Intent
	Begin(ctx context.Context, ranges []event.Range, excluded []intent.Excluded) (*intent.Intent, error)
	CommitTouched(ctx context.Context, i *intent.Intent, ranges []event.Range, touched []rollup.Touched) error
	Lost() <-chan struct{}
	Release(ctx context.Context) error
}

// owned is a group of partitions that this process has taken over.
type owned struct {
	sink   *Sink
	group  group
	event  intake.Event // event and latest belong to Prepare
	latest intake.Latest

	mu    sync.Mutex // guards what follows; held for no I/O
	free  []*set     // to use again: one being filled, one being sent
	since time.Time  // of the first failure since the last success; zero: none
	tries int        // failures since
}

// Positions says where the partitions stand.
func (o *owned) Positions() []event.Position { return o.group.Positions() }

// Pending is the batch that must come first: an earlier owner stored it and did not confirm it.
func (o *owned) Pending() []event.Range {
	if i := o.group.Pending(); i != nil {
		return i.Ranges
	}
	return nil
}

// Lost is closed when the group's lease has run out.
func (o *owned) Lost() <-chan struct{} { return o.group.Lost() }

// Release ends the lease, so that a successor need not wait.
func (o *owned) Release(ctx context.Context) error { return o.group.Release(ctx) }

// setsMax are kept per group: more are never in use at once.
const setsMax = 2

// takeSet gives a set to fill; giveSet takes it back once nobody reads it.
func (o *owned) takeSet() *set {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.free); n > 0 {
		s := o.free[n-1]
		o.free = o.free[:n-1]
		return s
	}
	return &set{touched: touched{}}
}

func (o *owned) giveSet(p *prepared) {
	if p.set == nil {
		return
	}
	p.set.reset(o.sink.batchBytes)
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.free) < setsMax {
		o.free = append(o.free, p.set)
	}
	p.set = nil
}
