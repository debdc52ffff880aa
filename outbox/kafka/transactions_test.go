package kafka

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/outbox"
)

// newTransactional is a writer of lane 0 with transactions; with one before, on the same brokers.
func newTransactional(t *testing.T, before *Writer) *Writer {
	t.Helper()
	if before == nil {
		before = newWriter(t)
	}
	cfg := *before.cfg
	cfg.Outbox.Transactional = true
	w, err := New(&cfg, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	if err := w.Fence(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

func tail(t *testing.T, w *Writer) (keys []string) {
	t.Helper()
	from := map[event.Partition]int64{}
	for p := range 4 {
		from[event.Partition{Topic: topic, Number: int32(p)}] = 0
	}
	if err := w.Tail(t.Context(), from, func(p event.Partition, _ int64, rec *event.Record) {
		keys = append(keys, fmt.Sprintf("%d:%s", p.Number, rec.Key))
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	return keys
}

func TestTransactionsKeepTheOrder(t *testing.T) {
	w := newTransactional(t, nil)
	var outs []*outbox.Out
	for i := range 300 {
		outs = append(outs, out(int32(i%4), fmt.Sprintf("%03d", i), []byte("{}")))
	}
	for batch := range slices.Chunk(outs, 70) {
		w.Produce(batch)
	}
	next := map[int32]int64{}
	last := map[int32]string{}
	for _, a := range answers(t, w, len(outs)) {
		p, key := a.Out.Partition.Number, string(a.Out.Record.Key)
		if a.Err != nil || a.Offset < next[p] || key <= last[p] {
			t.Errorf("%s: offset %d after %s and %d; %v", key, a.Offset, last[p], next[p]-1, a.Err)
		}
		next[p], last[p] = a.Offset+1, key
	}
	if got := tail(t, w); len(got) != len(outs) {
		t.Errorf("the topic holds %d of %d records", len(got), len(outs))
	}
	// Markers lie behind the last record: a scan from the recorded offset on finds nothing and ends.
	from := map[event.Partition]int64{}
	for p, n := range next {
		from[event.Partition{Topic: topic, Number: p}] = n
	}
	if err := w.Tail(t.Context(), from, func(p event.Partition, offset int64, rec *event.Record) {
		t.Errorf("partition %d offset %d: %s", p.Number, offset, rec.Key)
	}); err != nil {
		t.Fatal(err)
	}
}

// P5: once another has fenced the lane, the former owner adds nothing, also when it does not know; it is told why.
func TestP5_TransactionsOfAFormerOwnerAddNothing(t *testing.T) {
	a := newTransactional(t, nil)
	a.Produce([]*outbox.Out{out(0, "before", []byte("{}"))})
	if got := answers(t, a, 1)[0]; got.Err != nil {
		t.Fatal(got.Err)
	}
	b := newTransactional(t, a)
	for range 3 { // the first is told by the broker, the others by the writer
		a.Produce([]*outbox.Out{out(0, "zombie", []byte("{}")), out(1, "zombie", []byte("{}"))})
		for _, got := range answers(t, a, 2) {
			if !errors.Is(got.Err, outbox.ErrProducerLost) || fault.CodeOf(got.Err) != "SL5015" || !fault.Is(got.Err, fault.Fenced) ||
				!strings.Contains(got.Err.Error(), "slotline-flights-lane-00") {
				t.Errorf("the former owner's record: %v", got.Err)
			}
		}
	}
	b.Produce([]*outbox.Out{out(0, "after", []byte("{}"))})
	if got := answers(t, b, 1)[0]; got.Err != nil {
		t.Errorf("the present owner: %v", got.Err)
	}
	if got := fmt.Sprint(tail(t, b)); got != "[0:after 0:before]" {
		t.Errorf("the topic holds %s", got)
	}
}

// What an owner had sent and not committed when it died is not in the topic for its successor, nor for anybody later.
func TestP5_TransactionLeftOpenIsAborted(t *testing.T) {
	w := newWriter(t)
	cfg := *w.cfg
	cfg.Outbox.Transactional = true
	dead, err := kgo.NewClient(append(transactionOptions(cfg.Line, 0), kgo.SeedBrokers(cfg.Kafka.Brokers...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	if err := dead.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := dead.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: 2, Key: []byte("open")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	dead.Close()
	b := newTransactional(t, w)
	if got := tail(t, b); len(got) != 0 {
		t.Errorf("the successor sees %v", got)
	}
	b.Produce([]*outbox.Out{out(2, "after", []byte("{}"))})
	if got := answers(t, b, 1)[0]; got.Err != nil || got.Offset < 1 {
		t.Errorf("offset %d, %v", got.Offset, got.Err)
	}
	if got := fmt.Sprint(tail(t, b)); got != "[2:after]" {
		t.Errorf("the topic holds %s", got)
	}
}

// A record that is refused is answered with why, and so are those of its partition; the others are committed.
func TestTransactionsCarryOnWithoutWhatIsRefused(t *testing.T) {
	w := newTransactional(t, nil)
	w.Produce([]*outbox.Out{out(0, "small", []byte("{}")), out(0, "large", make([]byte, 2<<20)), out(0, "behind", []byte("{}")),
		out(1, "other", []byte("{}")), out(2, "other", []byte("{}"))})
	for _, a := range answers(t, w, 5) {
		if refused := a.Out.Partition.Number == 0; errors.Is(a.Err, outbox.ErrRecordTooLarge) != refused || !refused && a.Err != nil {
			t.Errorf("%s: %v", a.Out.Record.Key, a.Err)
		}
	}
	w.Produce([]*outbox.Out{out(0, "small", []byte("{}"))})
	if a := answers(t, w, 1)[0]; a.Err != nil {
		t.Error(a.Err)
	}
	if got := fmt.Sprint(tail(t, w)); got != "[0:small 1:other 2:other]" {
		t.Errorf("the topic holds %s", got)
	}
}

func TestTransactionsFallSilentAtClose(t *testing.T) {
	w := newTransactional(t, nil)
	w.Produce([]*outbox.Out{out(0, "before", []byte("{}"))})
	answers(t, w, 1)
	w.Close()
	w.Close()
	w.Produce([]*outbox.Out{out(0, "late", []byte("{}"))})
	if got := tail(t, newTransactional(t, w)); fmt.Sprint(got) != "[0:before]" {
		t.Errorf("the topic holds %v", got)
	}
	if err := w.Fence(t.Context()); err == nil {
		t.Error("Fence after Close succeeded")
	}
}
