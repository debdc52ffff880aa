package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/outbox"
)

var _ outbox.Writer = (*Writer)(nil)

const topic = "flights.events"

func newWriter(t *testing.T) *Writer {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, topic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	cfg := &config.Config{File: "slotline.yaml", Line: "flights"}
	cfg.Kafka = config.Kafka{Brokers: c.ListenAddrs(), Topic: topic, Partitions: 4, Replication: 1, Compression: "lz4"}
	w, err := New(cfg, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func out(partition int32, key string, value []byte) *outbox.Out {
	return &outbox.Out{Partition: event.Partition{Topic: topic, Number: partition},
		Record: event.Record{Key: []byte(key), Value: value, Headers: []event.Header{{Key: "ce_id", Value: []byte(key)}}}}
}

// answers waits for n answers.
func answers(t *testing.T, w *Writer, n int) (list []outbox.Answer) {
	t.Helper()
	for len(list) < n {
		select {
		case <-w.Ready():
			list = w.Answers(list)
		case <-time.After(10 * time.Second):
			t.Fatalf("%d of %d answers", len(list), n)
		}
	}
	return list
}

func TestRecordsGoWhereTheyAreSentInOrder(t *testing.T) {
	w := newWriter(t)
	var outs []*outbox.Out
	for i := range 200 {
		outs = append(outs, out(int32(i%4), fmt.Sprint(i), []byte("{}")))
	}
	w.Produce(outs[:120])
	w.Produce(outs[120:])
	next := map[int32]int64{}
	for _, a := range answers(t, w, len(outs)) {
		p := a.Out.Partition.Number
		if a.Err != nil || a.Offset != next[p] {
			t.Errorf("%s: offset %d, wanted %d; %v", a.Out.Record.Key, a.Offset, next[p], a.Err)
		}
		next[p]++
	}
	ends, err := w.Ends(t.Context(), []event.Partition{{Topic: topic, Number: 1}, {Topic: topic, Number: 9}})
	if err != nil || len(ends) != 1 || ends[event.Partition{Topic: topic, Number: 1}] != 50 {
		t.Errorf("ends %v %v", ends, err)
	}
	// The tail, from offsets within, at the end, and beyond it (a topic made anew is read whole).
	from := map[event.Partition]int64{{Topic: topic, Number: 0}: 47, {Topic: topic, Number: 1}: 50, {Topic: topic, Number: 2}: 1000}
	got := map[int32][]string{}
	err = w.Tail(t.Context(), from, func(p event.Partition, offset int64, rec *event.Record) {
		if string(rec.Headers[0].Value) != string(rec.Key) || string(rec.Value) != "{}" {
			t.Errorf("record %+v", rec)
		}
		got[p.Number] = append(got[p.Number], fmt.Sprintf("%d:%s", offset, rec.Key))
	})
	if err != nil || fmt.Sprint(got[0]) != "[47:188 48:192 49:196]" || len(got[1]) != 0 || len(got[2]) != 50 || len(got) != 2 {
		t.Errorf("tail %v %v", got, err)
	}
	if err := w.Tail(t.Context(), map[event.Partition]int64{{Topic: topic, Number: 9}: 0}, nil); err == nil || !strings.Contains(err.Error(), "partition 9") {
		t.Errorf("a partition that is not there: %v", err)
	}
}

func TestTooLargeIsTold(t *testing.T) {
	w := newWriter(t)
	w.Produce([]*outbox.Out{out(0, "small", []byte("{}")), out(0, "large", make([]byte, 2<<20)), out(1, "other", []byte("{}"))})
	for _, a := range answers(t, w, 3) {
		if large := string(a.Out.Record.Key) == "large"; errors.Is(a.Err, outbox.ErrRecordTooLarge) != large || !large && a.Err != nil {
			t.Errorf("%s: %v", a.Out.Record.Key, a.Err)
		}
	}
}

// A record is too large only if the file says so: a topic that refuses others was narrowed, and is named.
func TestNarrowedTopicIsNotTheRecordsFault(t *testing.T) {
	w := newWriter(t)
	for _, n := range []int{0, 60_000, kafka.RecordBytesMax(w.cfg) - 200} {
		err := w.refusal(&kgo.Record{Topic: topic, Partition: 2, Value: make([]byte, n)}, kerr.MessageTooLarge)
		if errors.Is(err, outbox.ErrRecordTooLarge) || fault.CodeOf(err) != "SL2005" || !strings.Contains(err.Error(), topic) || !strings.Contains(err.Error(), "max.message.bytes") {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	// Whatever the client refuses by itself, no topic can mend. The zeros compress, so the broker takes the others.
	refused := 0
	for d := -200; d < 10; d++ {
		w.Produce([]*outbox.Out{out(0, "edge", make([]byte, kafka.RecordBytesMax(w.cfg)+d))})
		if a := answers(t, w, 1)[0]; a.Err != nil {
			refused++
			if !errors.Is(a.Err, outbox.ErrRecordTooLarge) {
				t.Errorf("%d: %v", d, a.Err)
			}
		} else if d >= 0 {
			t.Errorf("a record of %d bytes more than the file allows is taken", d)
		}
	}
	if refused < 10 || refused > 150 {
		t.Errorf("%d sizes are refused", refused)
	}
}

// After Close nothing is sent, everything is answered, and a scan ends.
func TestCloseFallsSilent(t *testing.T) {
	w := newWriter(t)
	w.Close()
	w.Close()
	w.Produce([]*outbox.Out{out(0, "late", []byte("{}"))})
	if a := answers(t, w, 1)[0]; a.Err == nil {
		t.Errorf("a record was sent after Close, to offset %d", a.Offset)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := w.Tail(ctx, map[event.Partition]int64{{Topic: topic}: 0}, nil); err == nil || ctx.Err() != nil {
		t.Errorf("Tail after Close: %v", err)
	}
}
