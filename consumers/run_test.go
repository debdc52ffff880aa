package consumers_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slotline/slotline/consumers"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
)

func TestEventsAreApplied(t *testing.T) {
	for name, groups := range map[string]int{"group": 0, "fixed groups": 2} {
		t.Run(name, func(t *testing.T) {
			l := newLine(t)
			l.produce(500, 0, 1, 2, 3)
			p := l.run(l.memory.Open(l.setup.Config, l.setup.Layout, groups), nil)
			l.untilDrained()
			l.produce(70, 1, 3)
			l.untilDrained()
			l.check()
			l.until("the lag is 0", func() bool { return p.metric("lag_events") == 0 && p.metric("lag_seconds") == 0 })
			if rows := p.metric("rows_total"); rows != 2140 {
				t.Errorf("%v rows were counted, want 2140", rows)
			}
			l.until("nothing is held", func() bool { return p.metric("buffered_bytes") == 0 })
			if err := p.stop(); err != nil {
				t.Error(err)
			}
			// Another process goes on where this one was.
			l.produce(30, 0, 2)
			p = l.run(l.memory.Open(l.setup.Config, l.setup.Layout, groups), nil)
			l.untilDrained()
			l.check()
			if rows := p.metric("rows_total"); rows != 60 {
				t.Errorf("the second process applied %v rows, want 60", rows)
			}
		})
	}
}

// P7: an outage lasts as long as it lasts, and sends no event to the dead-letter topic; P13: it stalls its partition alone.
func TestP7_OutageNeverDeadLetters(t *testing.T) {
	l := newLine(t)
	var down atomic.Bool
	down.Store(true)
	l.memory.Fault = func(_ context.Context, step string, at []event.Range) error {
		if step == "apply" && at[0].Number == 2 && down.Load() {
			return &fault.Error{Code: "test", Class: fault.Transient, What: "shard s2 is down"}
		}
		return nil
	}
	l.produce(200, 0, 1, 2, 3)
	p := l.run(l.sink(), nil)
	l.untilDrained(0, 1, 3)
	l.until("the outage was retried a few times", func() bool { return p.metric("retries_total") > 5 })
	if at := l.memory.Positions()[l.part(2)].Next; at != 0 {
		t.Errorf("progress passed a batch that failed: it is at %d", at)
	}
	if n := strings.Count(p.log.String(), "shard s2 is down"); n != 1 {
		t.Errorf("an outage that does not change is logged %d times", n)
	}
	l.produce(100, 0, 1, 2, 3)
	l.untilDrained(0, 1, 3)
	down.Store(false)
	l.untilDrained()
	l.check()
	if d := l.deadLetters(); len(d) > 0 {
		t.Errorf("%d dead letters", len(d))
	}
	if err := p.stop(); err != nil {
		t.Error(err)
	}
}

// A stop during an outage does not wait for its end.
func TestStopDuringOutage(t *testing.T) {
	l := newLine(t)
	var hangs atomic.Int64
	l.memory.Fault = func(ctx context.Context, step string, _ []event.Range) error {
		if step != "apply" {
			return nil
		}
		hangs.Add(1)
		<-ctx.Done() // a statement that hangs
		return &fault.Error{Code: "test", Class: fault.Transient, What: "interrupted", Err: ctx.Err()}
	}
	l.setup.Config.Limits.DrainTimeout = 200 * time.Millisecond
	l.produce(10, 0, 1)
	p := l.run(l.sink(), nil)
	l.until("a statement hangs", func() bool { return hangs.Load() > 0 })
	start := time.Now()
	if err := p.stop(); err != nil {
		t.Error(err)
	}
	if d := time.Since(start); d > 10*time.Second {
		t.Errorf("the stop took %v", d)
	}
}

// A drained stop: the batch in flight is finished.
func TestStopFinishesWhatIsInFlight(t *testing.T) {
	l := newLine(t)
	inFlight, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	l.memory.Fault = func(ctx context.Context, step string, _ []event.Range) error {
		if step == "apply" {
			once.Do(func() { close(inFlight) })
			<-goOn
		}
		return ctx.Err()
	}
	l.produce(10, 0)
	p := l.run(l.sink(), nil)
	<-inFlight
	p.cancel()
	time.AfterFunc(100*time.Millisecond, func() { close(goOn) })
	if err := p.stop(); err != nil {
		t.Error(err)
	}
	if n := l.memory.Applied(); n == 0 {
		t.Error("the batch in flight was abandoned")
	}
}

// Fatal halts one partition; the others go on, and it goes on itself once the cause is mended.
func TestP13_FatalHaltsOnePartition(t *testing.T) {
	l := newLine(t)
	var broken atomic.Bool
	broken.Store(true)
	l.memory.Fault = func(_ context.Context, step string, at []event.Range) error {
		if step == "apply" && at[0].Number == 1 && broken.Load() {
			return &fault.Error{Code: "test", Class: fault.Fatal, What: "unknown column note"}
		}
		return nil
	}
	l.produce(100, 0, 1, 2, 3)
	p := l.run(l.sink(), nil)
	l.untilDrained(0, 2, 3)
	l.until("the halt is recorded", func() bool { return l.memory.Halts()[l.part(1)] != nil })
	l.until("the halt is measured", func() bool { return p.metric("halted", "partition", "1") == 1 })
	l.until("its lag is measured", func() bool {
		return p.metric("lag_events", "partition", "1") == 100 && p.metric("lag_seconds", "partition", "1") > 0
	})
	if n := p.metric("halted"); n != 1 {
		t.Errorf("%v partitions are halted, want 1", n)
	}
	h := l.halted(p.stop())
	if len(h.Halts) != 1 || h.Halts[0].Partition != l.part(1) || fault.CodeOf(h) != "test" {
		t.Errorf("halted: %v", h)
	}
	p = l.run(l.sink(), nil)
	l.until("the halt is measured", func() bool { return p.metric("halted") == 1 })
	broken.Store(false)
	l.untilDrained()
	l.check()
	if err := p.stop(); err != nil {
		t.Error(err)
	}
}

// An event of a newer layout waits until the layout was loaded, and holds up its partition alone.
func TestNewerLayoutIsLoaded(t *testing.T) {
	l := newLine(t)
	spec := l.setup.Layout.Spec()
	spec.Epoch++
	var loaded atomic.Bool
	sink := l.sink()
	old := l.setup.Layout
	newer := mustLayout(t, spec)
	l.setup.Layout = newer
	l.produce(5, 2) // under the newer layout
	l.setup.Layout = old
	l.produce(50, 0, 1, 3)
	var loads atomic.Int64
	p := l.run(sink, func(o *consumersOptions) {
		o.Reload = func(context.Context) error {
			if loads.Add(1) > 3 && loaded.Load() {
				sink.(interface{ SetLayout(*layoutOf) }).SetLayout(newer)
			}
			return nil
		}
	})
	l.untilDrained(0, 1, 3)
	l.until("loading was tried a few times", func() bool { return loads.Load() > 3 })
	if !strings.Contains(p.log.String(), "layout epoch 2") {
		t.Error("the log does not say what is waited for")
	}
	loaded.Store(true)
	l.untilDrained()
	l.check()
	if d := l.deadLetters(); len(d) > 0 {
		t.Errorf("%d dead letters", len(d))
	}
}

// behind is a sink whose database has a newer layout, until that is loaded.
type behind struct {
	consumers.Sink
	loaded *atomic.Bool
}

func (b behind) TakeOver(ctx context.Context, parts []event.Partition) (consumers.Owned, error) {
	if !b.loaded.Load() {
		return nil, &fault.Error{Code: "test", Class: fault.Transient, Err: &event.NewerLayout{Epoch: 2, At: parts[0]}, What: "behind"}
	}
	return b.Sink.TakeOver(ctx, parts)
}

// A take-over of what has switched to a newer layout loads it, and is tried again.
func TestNewerLayoutIsLoadedToTakeOver(t *testing.T) {
	l := newLine(t)
	l.produce(20, 0, 1, 2, 3)
	var loaded atomic.Bool
	p := l.run(behind{l.sink(), &loaded}, func(o *consumersOptions) {
		o.Reload = func(context.Context) error {
			loaded.Store(true)
			return nil
		}
	})
	l.untilDrained()
	l.check()
	if err := p.stop(); err != nil {
		t.Error(err)
	}
}

// A database that was restored to an earlier state gets the events again.
func TestP3_RewoundProgressIsFollowed(t *testing.T) {
	l := newLine(t)
	l.produce(100, 0, 1, 2, 3)
	p := l.run(l.sink(), nil)
	l.untilDrained()
	l.memory.SetPosition(event.Position{Partition: l.part(1), Next: 40, LeaderEpoch: -1}, false)
	l.produce(10, 0, 1, 2, 3)
	l.untilDrained()
	l.check()
	if n := l.memory.Applied(); n != 440+60 {
		t.Errorf("%d messages were applied, want those from offset 40 again", n)
	}
	if !strings.Contains(p.log.String(), "progress went back") {
		t.Error("the log does not say that progress went back")
	}
}

// A bump that came late from a former owner must not leave the partition without one; epochs do not storm.
func TestFencedOwnerTakesOverAgain(t *testing.T) {
	l := newLine(t)
	l.run(l.sink(), nil)
	for i := range 4 {
		l.produce(20, 0, 1, 2, 3)
		l.untilDrained()
		l.memory.Bump(l.part(int32(i)))
		l.produce(20, int32(i))
		l.untilDrained()
	}
	l.check()
	if n := l.memory.TakeOvers(); n != 4+4 {
		t.Errorf("%d take-overs for 4 partitions and 4 late bumps", n)
	}
}

// Two processes: each partition has one owner, events are applied once each, and a member that leaves hands over.
func TestRebalance(t *testing.T) {
	l := newLine(t)
	l.produce(200, 0, 1, 2, 3)
	a := l.run(l.sink(), nil)
	l.untilDrained()
	b := l.run(l.sink(), nil)
	l.until("both have partitions", func() bool { return partitionsOf(b) == 2 && partitionsOf(a) == 2 })
	l.produce(200, 0, 1, 2, 3)
	l.untilDrained()
	if err := a.stop(); err != nil {
		t.Error(err)
	}
	l.until("one has all", func() bool { return partitionsOf(b) == 4 })
	l.produce(200, 0, 1, 2, 3)
	l.untilDrained()
	l.check()
	if n := l.memory.TakeOvers(); n != 4+2+2 {
		t.Errorf("%d take-overs, want one for each assignment: 8", n)
	}
	if n := l.memory.Applied(); n != 2400 {
		t.Errorf("%d messages were applied, want each once", n)
	}
}

// partitionsOf counts the partitions that a process reads.
func partitionsOf(p *process) int {
	families, err := p.reg.Gather()
	if err != nil {
		p.l.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "slotline_sink_lag_events" {
			return len(f.GetMetric())
		}
	}
	return 0
}

// P5: a member that hung longer than its session is replaced; its batch, which was in flight all the time, changes
// nothing when it wakes.
func TestP5_ZombieIsFenced(t *testing.T) {
	l := newLine(t)
	l.produce(100, 0, 1, 2, 3)
	wake := make(chan struct{})
	var asleep atomic.Int64
	zombieSink := l.sink()
	l.memory.Fault = func(_ context.Context, step string, at []event.Range) error {
		if step == "apply" && at[0].From == 0 {
			asleep.Add(1)
			<-wake
		}
		return nil
	}
	zombie := l.run(zombieSink, nil)
	l.until("every batch of the first owner hangs", func() bool { return asleep.Load() == 4 })
	for p := range int32(4) { // what the group does when heartbeats stay away
		l.memory.Bump(l.part(p))
	}
	before := l.memory.Applied()
	close(wake)
	l.untilDrained()
	l.check()
	if n := l.memory.Applied(); n-before != 400 {
		t.Errorf("%d messages were applied, want each once: a fenced batch changed something", n)
	}
	if !strings.Contains(zombie.log.String(), "fenced") {
		t.Error("the log does not say that it was fenced")
	}
}

// A partition without events is taken back when something fences its owner, as a swap or retired months do: once, and not
// again with each look. Offsets that were set back meanwhile are read again.
func TestIdlePartitionsAreTakenBack(t *testing.T) {
	l := newLine(t)
	l.produce(20, 0, 1, 2, 3)
	var looks atomic.Int64
	l.memory.Fault = func(_ context.Context, step string, _ []event.Range) error {
		if step == "look" {
			looks.Add(1)
		}
		return nil
	}
	p := l.run(l.sink(), nil)
	l.untilDrained()
	before := l.memory.TakeOvers()
	for n := range int32(3) {
		l.memory.SetPosition(event.Position{Partition: l.part(n), Next: 5, LeaderEpoch: -1}, true)
	}
	l.until("the three are taken back", func() bool { return l.memory.TakeOvers() >= before+3 })
	l.untilDrained()
	seen := looks.Load()
	l.until("it has looked a few times more", func() bool { return looks.Load() > seen+3 })
	if n := l.memory.TakeOvers() - before; n != 3 {
		t.Errorf("%d take-overs after three partitions were fenced", n)
	}
	if n := l.memory.Applied(); n != 4*20+3*15 {
		t.Errorf("%d messages were applied, wanted 125: each once, and those from offset 5 on of three partitions again", n)
	}
	// It is a fence, not a lease that ran out: the group is asked whether they are still ours, so that two do not chase each other.
	if log := p.log.String(); strings.Count(log, "fenced: ") != 3 || strings.Contains(log, "the lease ran out") {
		t.Errorf("the log of three fences:\n%s", log)
	}
	if err := p.stop(); err != nil {
		t.Error(err)
	}
	// A store that does not answer fences nobody.
	l.memory.Fault = func(_ context.Context, step string, _ []event.Range) error {
		if step == "look" {
			looks.Add(1)
			return &fault.Error{Code: "test", Class: fault.Transient, What: "shard s2 is down"}
		}
		return nil
	}
	before = l.memory.TakeOvers()
	l.run(l.sink(), nil)
	seen = looks.Load()
	l.until("it has looked a few times in vain", func() bool { return looks.Load() > seen+3 && l.memory.TakeOvers() >= before+4 })
	l.produce(20, 0, 1, 2, 3)
	l.untilDrained()
	if n := l.memory.TakeOvers() - before; n != 4 {
		t.Errorf("%d take-overs of four partitions", n)
	}
}

// Static members: a process that restarts within its session gets its partitions back.
func TestStaticMember(t *testing.T) {
	l := newLine(t)
	set := func(o *consumersOptions) { o.InstanceID = "one"; o.SessionTimeout = 20 * time.Second }
	for range 3 {
		l.produce(50, 0, 1, 2, 3)
		p := l.run(l.sink(), set)
		l.untilDrained()
		if err := p.stop(); err != nil {
			t.Fatal(err)
		}
	}
	l.check()
}

// A process that is asked to end before it began has not failed.
func TestStopAtOnce(t *testing.T) {
	l := newLine(t)
	for range 20 {
		if err := l.run(l.sink(), nil).stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// Start errors are clear and nothing runs.
func TestRunRefusesToStart(t *testing.T) {
	l := newLine(t)
	cfg := *l.setup.Config
	cfg.Kafka.Partitions = 16
	p := l.run(l.sink(), func(o *consumersOptions) { o.Config = &cfg })
	if err := <-p.done; fault.CodeOf(err) != "SL2003" {
		t.Errorf("another partition count: %v", err)
	}
	p.done <- nil
	p = l.run(l.sink(), func(o *consumersOptions) { o.MemoryBytesMax = 8 << 20 })
	if err := <-p.done; fault.CodeOf(err) != "SL6010" {
		t.Errorf("memory that cannot hold two batches for each partition: %v", err)
	}
	p.done <- nil
}

// P5: a unit whose batch hangs when the group takes its partition away is abandoned at the deadline; the next owner goes
// on, and the batch changes nothing when it wakes.
func TestP5_RevokedWhileABatchHangs(t *testing.T) {
	l := newLine(t)
	l.setup.Config.Limits.DrainTimeout = 200 * time.Millisecond
	l.produce(100, 0, 1, 2, 3)
	wake := make(chan struct{})
	var asleep atomic.Int64
	l.memory.Fault = func(_ context.Context, step string, _ []event.Range) error {
		if step == "apply" {
			if asleep.Add(1) <= 4 { // the first owner's, whatever the context says
				<-wake
			}
		}
		return nil
	}
	first := l.run(l.sink(), nil)
	l.until("every batch of the first owner hangs", func() bool { return asleep.Load() == 4 })
	l.run(l.sink(), nil)
	l.until("the second owner has applied two partitions", func() bool { return l.memory.Applied() == 200 })
	close(wake)
	l.untilDrained()
	l.check()
	if n := l.memory.Applied(); n != 400 {
		t.Errorf("%d messages were applied, want each once", n)
	}
	if err := first.stop(); err != nil {
		t.Error(err)
	}
}
