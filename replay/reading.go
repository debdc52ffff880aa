package replay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/consumers"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
)

// reading is a sink that keeps nothing: a job looks by it at what it is going to apply, as it is going to read it.
type reading struct {
	name string
	// each is given every message below the ends, one at a time for a partition, and now and then twice.
	each func() func(m *event.Message)

	mu    sync.Mutex
	to    ends
	left  int // partitions that are not read yet
	at    map[event.Partition]event.Position
	whole chan struct{} // closed when none is left
	ended chan error    // one at most: why it cannot go on
}

// pass has each be called for the log from offset 0 up to the ends, and tell now and then for how far it is; it says where it
// stood in the end. memory is its part of the process's.
func (h *history) pass(ctx context.Context, name string, to ends, memory int64, each func() func(*event.Message), tell func(done int64)) (map[event.Partition]event.Position, error) {
	s := &reading{name: name, each: each, to: ends{}, at: map[event.Partition]event.Position{}, whole: make(chan struct{}), ended: make(chan error, 1)}
	for p, end := range to {
		if end > 0 {
			s.to[p], s.at[p] = end, event.Position{Partition: p, LeaderEpoch: -1}
		}
	}
	if s.left = len(s.to); s.left == 0 {
		return s.at, nil
	}
	cfg := *h.cfg
	cfg.Limits.DrainTimeout = min(cfg.Limits.DrainTimeout, drainMax)
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		err := h.consume(ctx, consumers.Options{Config: &cfg, Sink: s, Logger: h.log, MemoryBytesMax: memory,
			Batch: consumers.Limits{Rows: feedBatchRows, Bytes: feedBatchBytes, Age: feedBatchAge}})
		if err == nil {
			err = errors.New("the reader ended")
		}
		s.end(err)
	})
	tick := time.NewTicker(lookPeriod)
	defer tick.Stop()
	for {
		select {
		case <-s.whole:
			return maps.Clone(s.at), nil
		case err := <-s.ended:
			return nil, err
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
			tell(s.done())
		}
	}
}

func (s *reading) end(err error) {
	select {
	case s.ended <- err:
	default:
	}
}

func (s *reading) done() (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, at := range s.at {
		n += min(at.Next, s.to[p])
	}
	return n
}

func (s *reading) Name() string { return s.name }

// Groups are the partitions.
func (s *reading) Groups() (groups [][]event.Partition) {
	for p := range s.to {
		groups = append(groups, []event.Partition{p})
	}
	return groups
}

func (s *reading) TakeOver(_ context.Context, parts []event.Partition) (event.Owned, error) {
	return &readingOwned{s: s, part: parts[0], each: s.each()}, nil
}

// Halt ends the reading: whoever applies the log says why.
func (s *reading) Halt(_ context.Context, p event.Partition, why *fault.Error) error {
	s.end(fmt.Errorf("%s partition %d: %w", p.Topic, p.Number, why))
	return nil
}

func (s *reading) Resume(context.Context, event.Partition) error { return nil }

// readingOwned is one partition of it.
type readingOwned struct {
	s    *reading
	part event.Partition
	each func(*event.Message)
}

func (o *readingOwned) Positions() []event.Position {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	return []event.Position{o.s.at[o.part]}
}

func (*readingOwned) Pending() []event.Range        { return nil }
func (*readingOwned) Lost() <-chan struct{}         { return nil }
func (*readingOwned) Release(context.Context) error { return nil }

func (o *readingOwned) Prepare(b *event.Batch) (event.Prepared, error) {
	end := o.s.to[o.part]
	for i := range b.Messages {
		if m := &b.Messages[i]; m.Offset < end {
			o.each(m)
		}
	}
	return &readingPrepared{o, b.Ranges[0], len(b.Messages)}, nil
}

type readingPrepared struct {
	o    *readingOwned
	r    event.Range
	rows int
}

func (p *readingPrepared) Size() (rows, bytes int) { return p.rows, 0 }

func (p *readingPrepared) Apply(context.Context) ([]event.Rejected, error) {
	s := p.o.s
	s.mu.Lock()
	defer s.mu.Unlock()
	before, end := s.at[p.o.part].Next, s.to[p.o.part]
	s.at[p.o.part] = event.Position{Partition: p.o.part, Next: p.r.To, LeaderEpoch: p.r.LeaderEpoch, TopicID: p.r.TopicID}
	if before < end && p.r.To >= end {
		if s.left--; s.left == 0 {
			close(s.whole)
		}
	}
	return nil, nil
}

var _ interface {
	consumers.FixedGroups
	consumers.Halter
} = (*reading)(nil)

// memoryBesideReader is what a job may keep in memory while it reads so many partitions: half of what they do not need.
func memoryBesideReader(cfg *config.Config, parts int) int64 {
	return max(0, cfg.Limits.MemoryBytesMax-consumers.MemoryBytesMin(cfg, parts)) / 2
}
