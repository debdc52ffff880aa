package consumers_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/slotline/slotline/fault"
)

// bad is an order that its table cannot hold.
func (l *testLine) bad(p int32, id, version int64) *kgo.Record {
	return l.record(p, id, version, fmt.Sprintf(`{"customer":"t%d","order_id":%d,"much":"too much"}`, p, id))
}

// P7: a bad event is a dead letter with its reason, whole; its neighbours and the next lower version of its entity are
// applied.
func TestP7_BadEventIsADeadLetter(t *testing.T) {
	for name, groups := range map[string]int{"group": 0, "fixed groups": 2} {
		t.Run(name, func(t *testing.T) {
			l := newLine(t)
			l.produce(20, 0, 1, 2, 3)
			l.send(l.cl, l.record(1, 77, 5, ""), l.bad(1, 77, 9), l.record(1, 77, 4, ""), l.bad(2, 78, 1))
			l.produce(20, 0, 1, 2, 3)
			p := l.run(l.memory.Open(l.setup.Config, l.setup.Layout, groups), nil)
			l.untilDrained()
			l.sent["t1/77"] = 5
			l.check()
			letters := l.deadLetters()
			if len(letters) != 2 {
				t.Fatalf("%d dead letters, want 2", len(letters))
			}
			for _, d := range letters {
				if d.Partition != l.part(1) {
					continue
				}
				want := l.bad(1, 77, 9)
				if d.Key() != "memory/suite.events/1/21" || d.Reason != "unknown_field" || d.Error == "" ||
					string(d.Record.Key) != string(want.Key) || string(d.Record.Value) != string(want.Value) ||
					len(d.Record.Headers) != len(want.Headers) || time.Since(d.At) > time.Minute {
					t.Errorf("dead letter %s: %+v", d.Key(), d)
				}
			}
			if n := p.metric("dead_letters_total", "reason", "unknown_field"); n != 2 {
				t.Errorf("%v dead letters were counted", n)
			}
			if err := p.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// P7: the dead letter is acknowledged before progress passes it; while it cannot be written, its partition waits and
// the others go on.
func TestP7_ProgressWaitsForTheDeadLetter(t *testing.T) {
	l := newLine(t)
	refuse := l.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: l.setup.Config.Dead.Topic,
		Err: kerr.TopicAuthorizationFailed, Count: -1})
	l.produce(5, 0, 1, 2, 3)
	l.send(l.cl, l.bad(1, 77, 9))
	l.produce(5, 0, 1, 2, 3)
	p := l.run(l.sink(), nil)
	l.untilDrained(0, 2, 3)
	l.until("the writing of dead letters was refused", func() bool { return refuse.Hits() > 1 })
	if at := l.memory.Positions()[l.part(1)].Next; at > 5 {
		t.Errorf("progress is at %d, past a dead letter that is not written", at)
	}
	refuse.Remove()
	l.untilDrained()
	l.check()
	if letters := l.deadLetters(); len(letters) != 1 {
		t.Errorf("%d dead letters, want 1", len(letters))
	}
	if err := p.stop(); err != nil {
		t.Error(err)
	}
}

// P7: a flood is a fault of a release: it halts the partition, writes no dead letter, and is not tried again by itself.
func TestP7_FloodHalts(t *testing.T) {
	l := newLine(t)
	l.setup.Config.Dead.HaltPerMinute = 30
	l.produce(20, 0, 1, 2, 3)
	var records []*kgo.Record
	for i := range int64(40) {
		records = append(records, l.bad(1, i, 1))
	}
	l.send(l.cl, records...)
	p := l.run(l.sink(), func(o *consumersOptions) { o.Batch.Rows, o.Batch.Bytes, o.Batch.Age = 100, 1<<20, 50*time.Millisecond })
	l.untilDrained(0, 2, 3)
	l.until("the halt is recorded", func() bool { return l.memory.Halts()[l.part(1)] != nil })
	takeOvers := l.memory.TakeOvers()
	l.produce(20, 0, 2, 3)
	l.untilDrained(0, 2, 3)
	if letters := l.deadLetters(); len(letters) > 0 {
		t.Errorf("%d dead letters of a flood", len(letters))
	}
	if n := l.memory.TakeOvers(); n != takeOvers {
		t.Errorf("the halted partition was tried again %d times", n-takeOvers)
	}
	if h := l.halted(p.stop()); fault.CodeOf(h) != "SL6006" {
		t.Error(h)
	}
	// A restart tries again: with the limit raised it goes on.
	l.setup.Config.Dead.HaltPerMinute = 1000
	p = l.run(l.sink(), nil)
	l.untilDrained()
	l.check()
	if letters := l.deadLetters(); len(letters) != 40 {
		t.Errorf("%d dead letters, want 40", len(letters))
	}
	if err := p.stop(); err != nil {
		t.Error(err)
	}
}
