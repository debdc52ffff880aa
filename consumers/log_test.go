package consumers_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/sinks/sinktest"
)

// P8: a log that was cut ahead of the sink halts that partition and names the offsets; the others go on, and accept-gap
// is the way past, also while the process runs.
func TestP8_ExpiredOffsetsHalt(t *testing.T) {
	for name, groups := range map[string]int{"group": 0, "fixed groups": 2} {
		t.Run(name, func(t *testing.T) {
			l := newLine(t)
			l.produce(100, 0, 1, 2, 3)
			sink := l.memory.Open(l.setup.Config, l.setup.Layout, groups)
			p := l.run(sink, nil)
			l.untilDrained()
			if err := p.stop(); err != nil {
				t.Fatal(err)
			}
			l.produce(50, 0, 1, 2, 3)
			if err := l.kafka.DeleteRecords(l.setup.Config.Kafka.Topic, 1, 130); err != nil {
				t.Fatal(err)
			}
			// Long enough for the rest of a group to be read in between.
			p = l.run(sink, func(o *consumersOptions) { o.HaltRetry = time.Second })
			l.untilDrained(0, 2, 3)
			l.until("the halt is recorded", func() bool { return l.memory.Halts()[l.part(1)] != nil })
			const want = "offset 100 is gone from Kafka (log starts at 130): 30 offsets cannot be applied. Nothing was skipped."
			const command = `: slotline sink accept-gap --sink memory --partition 1 --why "..."`
			if why := l.memory.Halts()[l.part(1)]; why.What != want || !strings.HasSuffix(why.Do, command) || why.Code != "SL6001" {
				t.Errorf("halted with: %v", why)
			}
			l.produce(10, 0, 2, 3)
			l.untilDrained(0, 2, 3)
			if at := l.memory.Positions()[l.part(1)].Next; at != 100 {
				t.Errorf("progress went to %d", at)
			}
			l.memory.SetPosition(event.Position{Partition: l.part(1), Next: 130, LeaderEpoch: -1}, true)
			l.untilDrained()
			l.check()
			l.until("no partition is halted", func() bool { return p.metric("halted") == 0 })
			if err := p.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// P8, while running: the sink's database is restored to a state whose events have expired.
func TestP8_RewoundBelowTheLogHalts(t *testing.T) {
	l := newLine(t)
	p := l.run(l.sink(), nil)
	l.produce(20, 0, 1, 2, 3)
	l.untilDrained()
	if err := l.kafka.DeleteRecords(l.setup.Config.Kafka.Topic, 1, 15); err != nil {
		t.Fatal(err)
	}
	l.memory.SetPosition(event.Position{Partition: l.part(1), Next: 5, LeaderEpoch: -1}, false)
	l.produce(20, 0, 1, 2, 3)
	l.until("the halt is recorded", func() bool { return l.memory.Halts()[l.part(1)] != nil })
	l.untilDrained(0, 2, 3)
	if h := l.halted(p.stop()); fault.CodeOf(h) != "SL6001" || len(h.Halts) != 1 {
		t.Error(h)
	}
}

// P8: a topic of the same name is not the same topic, however many records it has.
func TestP8_RecreatedTopicHalts(t *testing.T) {
	for _, running := range []bool{false, true} {
		name := map[bool]string{false: "while stopped", true: "while running"}[running]
		t.Run(name, func(t *testing.T) {
			l := newLine(t)
			l.produce(100, 0, 1, 2, 3)
			p := l.run(l.sink(), nil)
			l.untilDrained()
			if !running {
				if err := p.stop(); err != nil {
					t.Fatal(err)
				}
			}
			topic := l.setup.Config.Kafka.Topic
			if err := l.kafka.DeleteTopic(topic); err != nil {
				t.Fatal(err)
			}
			if err := kafka.Topics(l.setup.Config)[0].Create(t.Context(), l.cl); err != nil {
				t.Fatal(err)
			}
			applied := l.memory.Applied()
			l.cl.PurgeTopicsFromProducing(topic) // a client never goes on with a topic that was made again
			l.produce(150, 0, 1, 2, 3)
			if !running {
				p = l.run(l.sink(), nil)
			}
			l.until("every partition is halted", func() bool { return len(l.memory.Halts()) == 4 })
			if n := l.memory.Applied(); n != applied {
				t.Errorf("%d messages of another topic were applied", n-applied)
			}
			for part, why := range l.memory.Halts() {
				if why.Code != "SL6003" {
					t.Errorf("%v halted with: %v", part, why)
				}
			}
			// accept-gap starts on the new topic.
			id := l.kafka.TopicInfo(topic).TopicID
			for n := range int32(4) {
				l.memory.SetPosition(event.Position{Partition: l.part(n), Next: 0, LeaderEpoch: -1, TopicID: id}, true)
			}
			l.untilDrained()
			l.check()
			if err := p.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A new leader whose log continues what was applied is followed without a halt, and with one question per change.
func TestP8_LeaderChangeIsFollowed(t *testing.T) {
	l := newLine(t)
	p := l.run(l.sink(), func(o *consumersOptions) { o.CheckPeriod = time.Hour })
	for i := range int32(6) {
		l.produce(50, 0, 1, 2, 3)
		if err := l.kafka.MoveTopicPartition(l.setup.Config.Kafka.Topic, 1, i%2); err != nil {
			t.Fatal(err)
		}
	}
	l.produce(50, 0, 1, 2, 3)
	l.untilDrained()
	l.check()
	if at := l.memory.Positions()[l.part(1)]; at.LeaderEpoch != 6 {
		t.Errorf("progress is at leader epoch %d, want 6", at.LeaderEpoch)
	}
	if err := p.stop(); err != nil {
		t.Error(err)
	}
}

// answerEpoch has the leader of partition 1 answer where leader epoch 0 ended.
func (l *testLine) answerEpoch(epoch int32, end int64) {
	l.kafka.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		l.kafka.KeepControl()
		r := req.(*kmsg.OffsetForLeaderEpochRequest)
		resp := r.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		for _, t := range r.Topics {
			st := kmsg.NewOffsetForLeaderEpochResponseTopic()
			st.Topic = t.Topic
			for _, p := range t.Partitions {
				if p.Partition != 1 || p.LeaderEpoch != 0 {
					return nil, nil, false
				}
				sp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
				sp.Partition, sp.LeaderEpoch, sp.EndOffset = p.Partition, epoch, end
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return resp, nil, true
	})
}

// P8: a log that was cut below what was applied, and filled again beyond it, has its ends in place. The client library
// would go on; only the leader epoch tells.
func TestP8_LogCutAndFilledAgainHalts(t *testing.T) {
	for name, answer := range map[string]struct {
		epoch int32
		end   int64
		code  string
	}{"cut": {0, 40, "SL6002"}, "epoch unknown": {-1, -1, "SL6004"}} {
		for _, running := range []bool{false, true} {
			t.Run(name+map[bool]string{false: " while stopped", true: " while running"}[running], func(t *testing.T) {
				l := newLine(t)
				set := func(o *consumersOptions) { o.CheckPeriod = time.Hour } // the records themselves tell
				p := l.run(l.sink(), set)
				l.produce(60, 0, 1, 2, 3)
				l.untilDrained()
				if !running {
					if err := p.stop(); err != nil {
						t.Fatal(err)
					}
				}
				applied := l.memory.Applied()
				l.answerEpoch(answer.epoch, answer.end)
				leader := l.kafka.LeaderFor(l.setup.Config.Kafka.Topic, 1)
				if err := l.kafka.MoveTopicPartition(l.setup.Config.Kafka.Topic, 1, 1-leader); err != nil {
					t.Fatal(err)
				}
				l.produce(30, 1)
				if !running {
					p = l.run(l.sink(), set)
				}
				l.until("the halt is recorded", func() bool { return l.memory.Halts()[l.part(1)] != nil })
				if why := l.memory.Halts()[l.part(1)]; why.Code != answer.code {
					t.Errorf("halted with: %v", why)
				}
				if n := l.memory.Applied(); n != applied {
					t.Errorf("%d messages of the other log were applied", n-applied)
				}
				if at := l.memory.Positions()[l.part(1)].Next; at != 60 {
					t.Errorf("progress went to %d", at)
				}
				l.produce(30, 0, 2, 3)
				l.untilDrained(0, 2, 3)
				l.halted(p.stop())
			})
		}
	}
}

// Offsets that hold transaction markers, or aborted records, are passed: a sink that has applied everything is at the
// end of the log and shows lag 0.
func TestMarkersArePassed(t *testing.T) {
	l := newLine(t)
	p := l.run(l.sink(), nil)
	cl, err := kafka.Open(t.Context(), l.setup.Config, "transactions", nil, kgo.TransactionalID("relay"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for i := range 6 {
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		commit := kgo.TransactionEndTry(i%2 == 0)
		for p := range int32(4) {
			version := int64(1000 - i) // aborted ones would win
			if commit {
				version = int64(10 + i)
				l.sent[map[int32]string{0: "t0/1", 1: "t1/1", 2: "t2/1", 3: "t3/1"}[p]] = version
			}
			l.send(cl, l.record(p, 1, version, ""))
		}
		if err := cl.EndTransaction(t.Context(), commit); err != nil {
			t.Fatal(err)
		}
		l.untilDrained() // the last offset is a marker
		l.until("the lag is 0", func() bool { return p.metric("lag_events") == 0 })
	}
	l.check()
	// The same from a cold start.
	l.memory = sinktest.NewMemory()
	p2 := l.run(l.groups(2), nil)
	l.untilDrained()
	l.check()
	l.until("the lag is 0", func() bool { return p2.metric("lag_events") == 0 })
}

// newLineWithStoredBatches is a line with 300 events in each partition, whose two groups have stored a batch each; their
// process died before it applied them.
func newLineWithStoredBatches(t *testing.T) *testLine {
	t.Helper()
	l := newLine(t)
	var crash atomic.Bool
	crash.Store(true)
	l.memory.Lease = time.Second
	l.memory.Fault = func(ctx context.Context, step string, at []event.Range) error {
		if step == "apply" && crash.Load() {
			<-ctx.Done()
			return &fault.Error{Code: "test", Class: fault.Transient, What: "interrupted", Err: ctx.Err()}
		}
		return nil
	}
	l.setup.Config.Limits.DrainTimeout = 50 * time.Millisecond
	l.produce(300, 0, 1, 2, 3)
	p := l.run(l.groups(2), nil)
	l.until("both groups stored a batch", func() bool { return len(l.memory.Intents()) == 2 })
	if err := p.stop(); err != nil {
		t.Error(err)
	}
	crash.Store(false)
	return l
}

// A stored batch is applied first and exactly, whatever the limits say now.
func TestStoredBatchComesFirst(t *testing.T) {
	l := newLineWithStoredBatches(t)
	l.produce(300, 0, 1, 2, 3)
	p := l.run(l.groups(2), func(o *consumersOptions) { o.Batch.Rows, o.Batch.Bytes, o.Batch.Age = 7, 1<<20, time.Millisecond })
	l.untilDrained()
	l.check()
	if err := p.stop(); err != nil {
		t.Error(err)
	}
}

// If a stored batch cannot be read again, the group halts and every partition of it says so.
func TestP8_StoredBatchThatIsGoneHalts(t *testing.T) {
	l := newLineWithStoredBatches(t)
	if err := l.kafka.DeleteRecords(l.setup.Config.Kafka.Topic, 1, 5); err != nil {
		t.Fatal(err)
	}
	p := l.run(l.groups(2), nil)
	l.untilDrained(0, 2)
	l.until("the group is halted", func() bool { return len(l.memory.Halts()) == 2 })
	halts := l.memory.Halts()
	if halts[l.part(1)] == nil || halts[l.part(1)].Code != "SL6001" || halts[l.part(3)] == nil || halts[l.part(3)].Code != "SL6012" {
		t.Errorf("halted: %v", halts)
	}
	l.halted(p.stop())
}

// answerEnd has the leader of a partition say that its log ends at an offset, the others' at another.
func (l *testLine) answerEnd(part int32, end, others int64) {
	l.kafka.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		l.kafka.KeepControl()
		r := req.(*kmsg.ListOffsetsRequest)
		resp := r.ResponseKind().(*kmsg.ListOffsetsResponse)
		for _, t := range r.Topics {
			st := kmsg.NewListOffsetsResponseTopic()
			st.Topic = t.Topic
			for _, p := range t.Partitions {
				if p.Timestamp != -1 { // the start
					return nil, nil, false
				}
				sp := kmsg.NewListOffsetsResponseTopicPartition()
				if sp.Partition, sp.Offset = p.Partition, others; p.Partition == part {
					sp.Offset = end
				}
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return resp, nil, true
	})
}

// The log was cut inside a stored batch, above what was applied: other events will take the place of those that were perhaps
// sent. The group halts, and does not wait for them.
func TestP8_StoredBatchBeyondTheLogHalts(t *testing.T) {
	l := newLineWithStoredBatches(t)
	var cut event.Range // of the group of partitions 1 and 3, whichever was read first
	for _, ranges := range l.memory.Intents() {
		if ranges[0].Number%2 == 1 {
			cut = ranges[0]
		}
	}
	l.answerEnd(cut.Number, cut.To-1, 300)
	p := l.run(l.groups(2), nil)
	l.untilDrained(0, 2)
	l.until("the group is halted", func() bool { return len(l.memory.Halts()) == 2 })
	halts := l.memory.Halts()
	if why, other := halts[cut.Partition], halts[l.part(4-cut.Number)]; why == nil || why.Code != "SL6002" || other == nil || other.Code != "SL6012" {
		t.Errorf("halted: %v", halts)
	}
	if at := l.memory.Positions()[cut.Partition].Next; at != cut.From {
		t.Errorf("progress went to %d", at)
	}
	l.halted(p.stop())
}

// The client gives up on a partition whose fetches are refused. Its log is as it should be: it is read again once they
// are not, nothing is halted, and the others go on.
func TestRefusedFetchesAreTriedAgain(t *testing.T) {
	l := newLine(t)
	p := l.run(l.sink(), nil)
	l.produce(20, 0, 1, 2, 3)
	l.untilDrained()
	refuse := l.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: l.setup.Config.Kafka.Topic, Partitions: []int32{1},
		Err: kerr.TopicAuthorizationFailed, Count: -1})
	l.until("fetches are refused", func() bool { return refuse.Hits() > 2 })
	l.produce(20, 0, 1, 2, 3)
	l.untilDrained(0, 2, 3)
	refuse.Remove()
	l.untilDrained()
	l.check()
	if n := strings.Count(p.log.String(), "waits: cannot read"); n != 1 {
		t.Errorf("the outage is logged %d times", n)
	}
	if err := p.stop(); err != nil {
		t.Error(err)
	}
}
