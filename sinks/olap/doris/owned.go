package doris

import (
	"context"
	"sync"

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
	group               // Positions, Lost and Release are its own
	event  intake.Event // event and latest belong to Prepare
	latest intake.Latest

	mu     sync.Mutex // guards what follows; held for no I/O
	free   []set      // to use again: one being filled, one being sent
	outage intake.Outage
}

// Pending is the batch that must come first: an earlier owner stored it and did not confirm it.
func (o *owned) Pending() []event.Range {
	if i := o.group.Pending(); i != nil {
		return i.Ranges
	}
	return nil
}

// setsMax are kept per group: more are never in use at once.
const setsMax = 2

// takeSet gives a set to fill; giveSet takes it back once nobody reads it.
func (o *owned) takeSet() set {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.free); n > 0 {
		s := o.free[n-1]
		o.free = o.free[:n-1]
		return s
	}
	s := make(set, len(o.sink.tables))
	for i, t := range o.sink.tables {
		s[i].table = t
	}
	return s
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
