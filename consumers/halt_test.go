package consumers_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
)

// refuse has the sink fail a step, as a table that differs from the file does, while the result is true.
func (l *testLine) refuse(step string) *atomic.Bool {
	var on atomic.Bool
	on.Store(true)
	l.memory.Fault = func(_ context.Context, s string, _ []event.Range) error {
		if s == step && on.Load() {
			return &fault.Error{Code: "test", Class: fault.Fatal, What: "table orders differs"}
		}
		return nil
	}
	return &on
}

// untilGoesOn waits until nothing says any more that a partition is halted: neither record nor metric.
func (l *testLine) untilGoesOn(p *process) {
	l.Helper()
	l.until("no halt is recorded", func() bool { return len(l.memory.Halts()) == 0 })
	l.until("no halt is measured", func() bool { return p.metric("halted") == 0 })
}

// A halt ends when its reason is gone, also where no event comes that would say so.
func TestHaltEndsWithoutNewEvents(t *testing.T) {
	for name, groups := range map[string]int{"group": 0, "fixed groups": 2} {
		t.Run(name, func(t *testing.T) {
			l := newLine(t)
			l.produce(20, 0, 1, 2, 3)
			sink := l.memory.Open(l.setup.Config, l.setup.Layout, groups)
			p := l.run(sink, nil)
			l.untilDrained()
			if err := p.stop(); err != nil {
				t.Fatal(err)
			}
			// The take-over is refused.
			broken := l.refuse("take over")
			p = l.run(sink, nil)
			l.until("all are halted", func() bool { return len(l.memory.Halts()) == 4 && p.metric("halted") == 4 })
			broken.Store(false)
			l.untilGoesOn(p)
			if err := p.stop(); err != nil {
				t.Error(err)
			}
			// The process that mends it is another one.
			broken.Store(true)
			p = l.run(sink, nil)
			l.until("all are halted", func() bool { return len(l.memory.Halts()) == 4 })
			l.halted(p.stop())
			broken.Store(false)
			p = l.run(sink, nil)
			l.untilGoesOn(p)
			// The log does not continue what was applied, until a person says from where to go on: the end.
			l.produce(10, 1)
			if err := p.stop(); err != nil {
				t.Error(err)
			}
			end := l.ends()[1]
			l.memory.SetPosition(event.Position{Partition: l.part(1), Next: end - 5, LeaderEpoch: -1}, true)
			if err := l.kafka.DeleteRecords(l.setup.Config.Kafka.Topic, 1, end); err != nil {
				t.Fatal(err)
			}
			p = l.run(sink, nil)
			l.until("the loss halts", func() bool { return l.memory.Halts()[l.part(1)] != nil })
			l.memory.SetPosition(event.Position{Partition: l.part(1), Next: end, LeaderEpoch: -1}, true)
			l.untilGoesOn(p)
			if err := p.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A halt that lasts is one halt, however often it is tried: it does not end with each take-over that succeeds. The rest
// of a fixed group is halted with the partition whose event cannot be applied, and as long.
func TestHaltThatLastsIsOneHalt(t *testing.T) {
	for name, groups := range map[string]int{"group": 0, "fixed groups": 1} {
		t.Run(name, func(t *testing.T) {
			l := newLine(t)
			broken := l.refuse("apply")
			l.produce(20, 1)
			p := l.run(l.memory.Open(l.setup.Config, l.setup.Layout, groups), func(o *consumersOptions) { o.HaltRetry = 10 * time.Millisecond })
			l.until("the partition is halted", func() bool { return l.memory.Halts()[l.part(1)] != nil })
			quiet := l.part(0)
			if groups > 0 {
				l.until("its group is too", func() bool { return l.memory.Halts()[quiet] != nil })
			}
			since, quietSince, tries := l.memory.HaltedSince(l.part(1)), l.memory.HaltedSince(quiet), l.memory.TakeOvers()
			l.until("it was tried again", func() bool { return l.memory.TakeOvers() > tries+5 })
			if at := l.memory.HaltedSince(l.part(1)); !at.Equal(since) {
				t.Errorf("halted since %v, then since %v", since, at)
			}
			if at := l.memory.HaltedSince(quiet); !at.Equal(quietSince) {
				t.Errorf("the rest of the group: halted since %v, then since %v", quietSince, at)
			}
			broken.Store(false)
			l.untilDrained()
			l.untilGoesOn(p)
			if err := p.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A halt whose record failed is recorded by a later try, and the log does not repeat why it could not.
func TestHaltIsRecordedLater(t *testing.T) {
	l := newLine(t)
	var down atomic.Bool
	down.Store(true)
	l.memory.Fault = func(_ context.Context, step string, _ []event.Range) error {
		switch {
		case step == "take over":
			return &fault.Error{Code: "test", Class: fault.Fatal, What: "table orders differs"}
		case step == "halt" && down.Load():
			return &fault.Error{Code: "test", Class: fault.Transient, What: "the database does not answer"}
		}
		return nil
	}
	p := l.run(l.sink(), nil)
	l.until("all are halted", func() bool { return p.metric("halted") == 4 })
	if n := len(l.memory.Halts()); n > 0 {
		t.Errorf("%d halts are recorded", n)
	}
	down.Store(false)
	l.until("all are recorded", func() bool { return len(l.memory.Halts()) == 4 })
	l.halted(p.stop())
	// One line, or one for each partition where they halt far apart: not one for each try.
	if n := strings.Count(p.log.String(), "could not record the halt"); n == 0 || n > 4 {
		t.Errorf("the log says %d times that it could not record", n)
	}
}

// A process that was refused, and finds that another has the groups, is not halted; and the record that it made ends,
// though the other had no reason to.
func TestHaltEndsWhereAnotherProcessHasTheGroup(t *testing.T) {
	l := newLine(t)
	broken := l.refuse("take over")
	broken.Store(false)
	a := l.run(l.groups(2), nil)
	l.until("the groups are owned", func() bool { return l.memory.TakeOvers() == 2 && partitionsOf(a) == 4 })
	broken.Store(true)
	b := l.run(l.groups(2), nil)
	l.until("all are halted", func() bool { return len(l.memory.Halts()) == 4 && b.metric("halted") == 4 })
	broken.Store(false)
	l.untilGoesOn(b)
	for _, p := range []*process{b, a} {
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	}
}
