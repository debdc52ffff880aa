package consumers_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slotline/slotline/consumers"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
)

// gathering is the in-memory sink as one that takes batches piece by piece.
type gathering struct {
	consumers.Sink
	refused *atomic.Int64 // pieces with a bad event
	largest *atomic.Int64 // rows of a gathered batch
	rewound *atomic.Int64 // batches that did not go on where the sink stood
}

// count counts a batch that was refused for where it begins.
func (g gathering) count(err error) {
	if _, ok := errors.AsType[*event.Rewound](err); ok {
		g.rewound.Add(1)
	}
}

type gatheringGroups struct {
	gathering
	groups consumers.FixedGroups
}

func (g gatheringGroups) Groups() [][]event.Partition { return g.groups.Groups() }

// gathers makes such a sink; with groups above 0 it has fixed ones.
func (l *testLine) gathers(groups int) (sink consumers.Sink, g gathering) {
	g = gathering{l.groups(groups), new(atomic.Int64), new(atomic.Int64), new(atomic.Int64)}
	if fixed, ok := g.Sink.(consumers.FixedGroups); ok {
		return gatheringGroups{g, fixed}, g
	}
	return g, g
}

const badBody = `{"bad":1}`

func (g gathering) TakeOver(ctx context.Context, parts []event.Partition) (consumers.Owned, error) {
	owned, err := g.Sink.TakeOver(ctx, parts)
	if err != nil {
		return nil, err
	}
	return gatheringOwned{owned, g}, nil
}

type gatheringOwned struct {
	event.Owned
	sink gathering
}

type gathered struct {
	event.Prepared
	messages []event.Message
}

// counted tells of a refusal.
type counted struct {
	event.Prepared
	sink gathering
}

func (c counted) Apply(ctx context.Context) ([]event.Rejected, error) {
	rejected, err := c.Prepared.Apply(ctx)
	c.sink.count(err)
	return rejected, err
}

func (o gatheringOwned) Prepare(b *event.Batch) (event.Prepared, error) {
	p, err := o.Owned.Prepare(b)
	o.sink.count(err)
	return counted{p, o.sink}, err
}

func (o gatheringOwned) Gather(to event.Prepared, b *event.Batch) (event.Prepared, bool, error) {
	for _, m := range b.Messages {
		if string(m.Value) == badBody {
			o.sink.refused.Add(1)
			return to, false, nil
		}
	}
	p := &gathered{}
	if have, ok := to.(*gathered); ok {
		p.messages = slices.Clone(have.messages)
	}
	for _, m := range b.Messages {
		m.Value, m.Packed = bytes.Clone(m.Value), bytes.Clone(m.Packed)
		p.messages = append(p.messages, m)
	}
	var err error
	p.Prepared, err = o.Prepare(&event.Batch{Ranges: slices.Clone(b.Ranges), Messages: p.messages})
	o.sink.largest.Store(max(o.sink.largest.Load(), int64(len(p.messages))))
	return p, err == nil, err
}

// Batches that are gathered are applied whole and in order, whatever fails: pieces with an event that is to be rejected,
// transient errors, owners that are replaced, progress that goes back.
func TestP7_GatheredBatchesLoseNothing(t *testing.T) {
	for name, groups := range map[string]int{"group": 0, "fixed groups": 2} {
		t.Run(name, func(t *testing.T) { gatherThroughFaults(t, groups) })
	}
}

func gatherThroughFaults(t *testing.T, groups int) {
	l := newLine(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var applies atomic.Int64
	l.memory.Fault = func(_ context.Context, step string, at []event.Range) error {
		if step == "apply" && applies.Add(1)%7 == 0 {
			return &fault.Error{Code: "test", Class: fault.Transient, What: "once in a while"}
		}
		return nil
	}
	l.memory.Lease = 50 * time.Millisecond
	sink, g := l.gathers(groups)
	p := l.run(sink, func(o *consumersOptions) {
		o.Batch = consumers.Limits{Rows: 200, Bytes: 100 << 10, Age: 5 * time.Millisecond}
	})
	bad := 0
	for range 12 {
		for part := range int32(4) {
			for range random.IntN(120) {
				l.next[part]++
				id, body := random.Int64N(10), ""
				if random.IntN(150) == 0 {
					id, body = 99, badBody
					bad++
				} else {
					l.sent[entityName(part, id)] = l.next[part]
				}
				l.cl.Produce(t.Context(), l.record(part, id, l.next[part], body), nil)
			}
		}
		if err := l.cl.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		part := l.part(int32(random.IntN(4)))
		switch random.IntN(4) {
		case 0:
			l.memory.Bump(part)
		case 1:
			// A stored intent would lie above where the sink stands then: not with fixed groups.
			if at, ok := l.memory.Positions()[part]; ok && groups == 0 {
				at.Next /= 2
				l.memory.SetPosition(at, false)
			}
		}
	}
	l.untilDrained()
	l.check()
	places := map[string]bool{}
	for _, d := range l.deadLetters() {
		places[d.Key()] = true
	}
	if len(places) != bad {
		t.Errorf("%d events are dead letters, %d were bad", len(places), bad)
	}
	if bad > 0 && g.refused.Load() == 0 || g.largest.Load() == 0 {
		t.Errorf("%d pieces were refused, the largest batch had %d rows", g.refused.Load(), g.largest.Load())
	}
	l.until("nothing is held", func() bool { return p.metric("buffered_bytes") == 0 })
	if err := p.stop(); err != nil {
		t.Error(err)
	}
}

// A piece that is set aside is the next batch itself: it is not lost and found again by where the sink stands.
func TestP7_PieceThatIsSetAsideComesNext(t *testing.T) {
	for name, groups := range map[string]int{"group": 0, "fixed groups": 2} {
		t.Run(name, func(t *testing.T) {
			l := newLine(t)
			for part := range int32(4) {
				for n := range int64(600) {
					l.next[part]++
					id, body := n%10, ""
					if n%97 == 50 {
						id, body = 99, badBody
					} else {
						l.sent[entityName(part, id)] = l.next[part]
					}
					l.cl.Produce(t.Context(), l.record(part, id, l.next[part], body), nil)
				}
			}
			if err := l.cl.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			sink, g := l.gathers(groups)
			l.run(sink, func(o *consumersOptions) {
				o.Batch = consumers.Limits{Rows: 200, Bytes: 100 << 10, Age: 5 * time.Millisecond}
			})
			l.untilDrained()
			l.check()
			if g.refused.Load() == 0 || g.rewound.Load() > 0 {
				t.Errorf("%d pieces were refused, %d batches did not go on where the sink stood", g.refused.Load(), g.rewound.Load())
			}
		})
	}
}

// A gathered batch is full by its rows though its pieces are small, and is due by its age when it is not.
func TestGatheredBatchIsFull(t *testing.T) {
	l := newLine(t)
	l.produce(1000, 0, 1, 2, 3)
	sink, g := l.gathers(1)
	l.run(sink, func(o *consumersOptions) {
		o.Batch = consumers.Limits{Rows: 700, Bytes: 40 << 10, Age: 50 * time.Millisecond}
	})
	l.untilDrained()
	l.check()
	if n := g.largest.Load(); n < 200 || n > 700 {
		t.Errorf("the largest batch has %d rows", n)
	}
}
