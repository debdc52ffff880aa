package consumers_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/kafka"
)

// P8: records that expire between what a running sink holds and what it reads next are missed, not jumped over: what it
// holds is applied, and the partition halts where the hole begins. A client that resets by itself goes on at the log's
// start without a word.
func TestP8_LogExpiresWhileASinkIsBehind(t *testing.T) {
	l := newLine(t)
	var down atomic.Bool
	down.Store(true)
	l.memory.Fault = func(_ context.Context, step string, at []event.Range) error {
		if step == "apply" && at[0].Number == 2 && down.Load() {
			return &fault.Error{Code: "test", Class: fault.Transient, What: "shard s2 is down"}
		}
		return nil
	}
	// 40 MB in the partition that stands still; raw records may take 16 MiB in all.
	const count, start = 2000, 1900
	space, random := make([]byte, 20_000), rand.New(rand.NewPCG(1, 1)) // compresses badly: a fetch does not hold it all
	var records []*kgo.Record
	for i := range int64(count) {
		r := l.record(2, i%10, i+1, "")
		for j := range space {
			space[j] = " \t\n\r"[random.IntN(4)]
		}
		r.Value = append(bytes.Clone(space), r.Value...)
		records = append(records, r)
	}
	l.send(l.cl, records...)
	l.produce(50, 0, 1, 3)
	p := l.run(l.sink(), func(o *consumersOptions) { o.MemoryBytesMax = 64 << 20 })
	l.untilDrained(0, 1, 3)
	l.until("the partition holds records", func() bool { return p.metric("buffered_bytes") > 1<<20 })
	if err := l.kafka.DeleteRecords(l.setup.Config.Kafka.Topic, 2, start); err != nil {
		t.Fatal(err)
	}
	down.Store(false)
	l.until("it is halted where the hole begins", func() bool {
		at, why := l.memory.Positions()[l.part(2)].Next, l.memory.Halts()[l.part(2)]
		if at >= start {
			t.Fatalf("progress went to %d, past records that nobody applied", at)
		}
		return why != nil && why.Code == "SL6001" && p.metric("halted", "partition", "2") == 1 &&
			strings.HasPrefix(why.What, fmt.Sprintf("offset %d is gone from Kafka (log starts at %d)", at, start))
	})
	l.produce(10, 0, 1, 3)
	l.untilDrained(0, 1, 3)
	l.halted(p.stop())
}

// P8: a partition whose log is found to be another one while a batch of it is on its way stays halted when that batch is
// applied: the batch was read before, and says nothing of what comes after.
func TestP8_HaltOutlivesTheBatchInFlight(t *testing.T) {
	l := newLine(t)
	var down atomic.Bool
	down.Store(true)
	var tries atomic.Int32
	l.memory.Fault = func(_ context.Context, step string, at []event.Range) error {
		if step == "apply" && at[0].Number == 2 && down.Load() {
			tries.Add(1)
			return &fault.Error{Code: "test", Class: fault.Transient, What: "shard s2 is down"}
		}
		return nil
	}
	l.produce(30, 2)
	p := l.run(l.sink(), func(o *consumersOptions) { o.HaltRetry = time.Hour })
	l.until("a batch is on its way", func() bool { return tries.Load() > 0 })
	topic := l.setup.Config.Kafka.Topic
	if err := l.kafka.DeleteTopic(topic); err != nil {
		t.Fatal(err)
	}
	if err := kafka.Topics(l.setup.Config)[0].Create(t.Context(), l.cl); err != nil {
		t.Fatal(err)
	}
	l.until("the halt is recorded", func() bool { return l.memory.Halts()[l.part(2)] != nil })
	down.Store(false)
	l.until("the batch is applied", func() bool { return l.memory.Positions()[l.part(2)].Next > 0 })
	l.until("it is recorded that the partition is halted all the same", func() bool {
		return l.memory.Halts()[l.part(2)] != nil && p.metric("halted", "partition", "2") == 1
	})
	if h := l.halted(p.stop()); !strings.Contains(h.Error(), "SL6003") {
		t.Error(h)
	}
	if strings.Contains(p.log.String(), "the partition goes on") {
		t.Error("the log says that a halted partition goes on")
	}
}
