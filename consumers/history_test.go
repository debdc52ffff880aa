package consumers_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/consumers"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/kafka"
)

// kept is a History in memory: what a topic held when it was made.
type kept struct {
	topic   event.TopicID
	records map[event.Partition][]*kgo.Record
	until   int64                    // of each partition
	fail    func(offset int64) error // of a read that comes to an offset; nil: none fails
	reads   atomic.Int64
}

func (l *testLine) keep(until int64) *kept {
	l.Helper()
	k := &kept{records: map[event.Partition][]*kgo.Record{}, until: until}
	from, to := map[event.Partition]int64{}, map[event.Partition]int64{}
	var at []event.Position
	for n := range int32(4) {
		from[l.part(n)], to[l.part(n)] = 0, until
		at = append(at, event.Position{Partition: l.part(n), LeaderEpoch: -1})
	}
	err := kafka.Copy(l.Context(), l.setup.Config, "test", nil, from, to, func(r *kgo.Record) error {
		c := *r
		c.Key, c.Value, c.Headers = slices.Clone(r.Key), slices.Clone(r.Value), slices.Clone(r.Headers)
		p := event.Partition{Topic: r.Topic, Number: r.Partition}
		k.records[p] = append(k.records[p], &c)
		return nil
	})
	if err != nil {
		l.Fatal(err)
	}
	logs, err := kafka.Inspect(l.Context(), l.cl, at)
	if err != nil {
		l.Fatal(err)
	}
	k.topic = logs[l.part(0)].TopicID
	return k
}

func (k *kept) Until(_ context.Context, _ event.Partition, topic event.TopicID, from int64) (int64, error) {
	if topic != k.topic {
		return from, nil
	}
	return max(from, k.until), nil
}

func (k *kept) Read(_ context.Context, p event.Partition, from int64, each func([]*kgo.Record) error) (int64, error) {
	k.reads.Add(1)
	for piece := range slices.Chunk(k.records[p], 7) {
		if piece[len(piece)-1].Offset < from {
			continue
		}
		piece = slices.DeleteFunc(slices.Clone(piece), func(r *kgo.Record) bool { return r.Offset < from })
		if k.fail != nil {
			if err := k.fail(piece[0].Offset); err != nil {
				return from, err
			}
		}
		if err := each(piece); err != nil {
			return from, err
		}
	}
	return k.until, nil
}

func (l *testLine) deleteBelow(offset int64, parts ...int32) {
	l.Helper()
	for _, p := range parts {
		if err := l.kafka.DeleteRecords(l.setup.Config.Kafka.Topic, p, offset); err != nil {
			l.Fatal(err)
		}
	}
}

// What the topic does not hold any more is read from History, and then the topic goes on, whether or not the two overlap,
// and in whatever groups the partitions are. A failed read is tried again.
func TestHistoryComesBeforeTheLog(t *testing.T) {
	for name, groups := range map[string]int{"group": 0, "fixed groups": 2} {
		t.Run(name, func(t *testing.T) {
			l := newLine(t)
			l.produce(300, 0, 1, 2, 3)
			k := l.keep(200)
			k.records[l.part(0)] = k.records[l.part(0)][:195] // then markers of a transaction: newer versions come later
			var failed atomic.Int64
			k.fail = func(offset int64) error {
				if offset > 100 && failed.Add(1) <= 3 {
					return errors.New("the archive does not answer")
				}
				return nil
			}
			l.deleteBelow(200, 0)
			l.deleteBelow(150, 1)
			l.deleteBelow(1, 2)
			p := l.run(l.memory.Open(l.setup.Config, l.setup.Layout, groups), func(o *consumers.Options) { o.History = k })
			l.untilDrained()
			l.check()
			l.produce(20, 0, 1, 2, 3)
			l.untilDrained()
			l.check()
			if n := k.reads.Load(); n < 3+2 || n > 3+3 { // of three partitions, and what failed again; of the third the log has the rest
				t.Errorf("%d reads", n)
			}
			if err := p.stop(); err != nil {
				t.Error(err)
			}
			if n := len(l.memory.Halts()); n > 0 {
				t.Errorf("%d partitions are halted", n)
			}
		})
	}
}

// P8: a History that does not reach the log's start, or that is another topic's, is none; one that is damaged halts the
// partition with its own reason, and what it has given before is applied.
func TestP8_HistoryWithAHoleHalts(t *testing.T) {
	l := newLine(t)
	l.produce(100, 0, 1, 2, 3)
	k := l.keep(60)
	l.deleteBelow(61, 0)
	l.deleteBelow(60, 1)
	k.fail = func(offset int64) error {
		if offset >= 28 {
			return &fault.Error{Code: "SL7602", Class: fault.Fatal, What: "damaged", Do: "mend it"}
		}
		return nil
	}
	p := l.run(l.sink(), func(o *consumers.Options) { o.History = k })
	l.untilDrained(2, 3)
	l.until("both halts are recorded", func() bool { return len(l.memory.Halts()) == 2 })
	if why := l.memory.Halts()[l.part(0)]; why == nil || why.Code != "SL6001" {
		t.Errorf("a hole: %v", why)
	}
	if why := l.memory.Halts()[l.part(1)]; why == nil || why.Code != "SL7602" {
		t.Errorf("damage: %v", why)
	}
	if at := l.memory.Positions()[l.part(0)].Next; at != 0 {
		t.Errorf("progress went to %d", at)
	}
	if at := l.memory.Positions()[l.part(1)].Next; at > 28 {
		t.Errorf("progress went to %d past what was read", at)
	}
	p.stop()

	k.topic = event.TopicID{9}
	k.fail = nil
	p = l.run(l.sink(), func(o *consumers.Options) { o.History = k })
	l.until("the halt of another topic's is recorded", func() bool { h := l.memory.Halts()[l.part(1)]; return h != nil && h.Code == "SL6001" })
	p.stop()
}

// P10: what is read from History is bounded as what is fetched is, and a stop ends a read that waits for room.
func TestP10_HistoryWaitsForRoom(t *testing.T) {
	l := newLine(t)
	l.setup.Config.Limits.MemoryBytesMax = 64 << 20
	l.produce(10, 0, 1, 2, 3)
	k := l.keep(10)
	l.deleteBelow(10, 0, 1, 2, 3)
	k.until = 20_000
	for p, records := range k.records {
		k.records[p] = nil
		value := append(slices.Clone(records[0].Value), bytes.Repeat([]byte(" "), 8<<10)...)
		for i := range k.until {
			c := *records[0]
			c.Offset, c.Value = i, value
			k.records[p] = append(k.records[p], &c)
		}
	}
	var most atomic.Int64 // the greatest offset that was given
	k.fail = func(offset int64) error {
		for n := most.Load(); offset > n && !most.CompareAndSwap(n, offset); n = most.Load() {
		}
		return nil
	}
	l.memory.Fault = func(_ context.Context, step string, at []event.Range) error {
		if step == "apply" {
			return &fault.Error{Code: "test", Class: fault.Transient, What: "the shards are down"}
		}
		return nil
	}
	p := l.run(l.sink(), func(o *consumers.Options) { o.History = k })
	l.until("the outage was retried a few times, and reading has come to its bound", func() bool {
		return p.metric("retries_total") > 20 && most.Load()*8<<10 > 1<<20
	})
	// Half of what one partition may hold of the memory's fourth while it is the only one, and a piece.
	if n, bound := most.Load()*8<<10, int64(64<<20/4/2+256<<10); n > bound {
		t.Errorf("%d bytes were read of one partition, more than %d", n, bound)
	}
	if err := p.stop(); err != nil {
		t.Error(err)
	}
}
