package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/outbox"
)

const (
	// The relay hands over at most a few batches; these bound the client should that ever be wrong. At the bound
	// Produce waits.
	bufferedRecordsMax = 100_000
	bufferedBytesMax   = 64 << 20
)

// Writer is an outbox.Writer.
type Writer struct {
	cfg    *config.Config
	lane   int
	log    *slog.Logger
	client *kgo.Client
	txn    *transactions // nil: without transactions
	closed sync.Once
	ended  context.CancelFunc
	life   context.Context

	mu      sync.Mutex
	answers []outbox.Answer
	ready   chan struct{}
}

// New makes a writer. It does no I/O: brokers that are away are waited for. more is for tests and fault injection.
func New(cfg *config.Config, lane int, log *slog.Logger, more ...kgo.Opt) (*Writer, error) {
	opts := []kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0),       // the relay batches already
		kgo.UnknownTopicRetries(-1), // a topic that cannot be seen is an outage, not a verdict
		kgo.MaxBufferedRecords(bufferedRecordsMax),
		kgo.MaxBufferedBytes(bufferedBytesMax),
	}
	if cfg.Outbox.Transactional {
		opts = append(opts, transactionOptions(cfg.Line, lane)...)
	}
	client, err := kafka.NewClient(cfg, fmt.Sprintf("relay-%02d", lane), log, append(opts, more...)...)
	if err != nil {
		return nil, err
	}
	w := &Writer{cfg: cfg, lane: lane, log: log, client: client, ready: make(chan struct{}, 1)}
	w.life, w.ended = context.WithCancel(context.Background())
	if cfg.Outbox.Transactional {
		w.txn = newTransactions(w)
	}
	return w, nil
}

// sent is a record in the client's hands. The client gives back a pointer to its first field.
type sent struct {
	record kgo.Record
	out    *outbox.Out
}

// Produce implements outbox.Writer.
func (w *Writer) Produce(outs []*outbox.Out) {
	if w.txn != nil {
		w.txn.add(outs)
		return
	}
	slab := make([]sent, len(outs)) // one allocation for a batch
	now := time.Now()
	for i, out := range outs {
		s := &slab[i]
		s.out = out
		s.record = kgo.Record{Key: out.Record.Key, Value: out.Record.Value, Headers: headers(out.Record.Headers),
			Topic: out.Partition.Topic, Partition: out.Partition.Number, Timestamp: now}
		w.client.Produce(w.life, &s.record, w.answer)
	}
}

// headers reads one slice as the other: the two structs are the same, which the conversion below proves to the
// compiler.
func headers(list []event.Header) []kgo.RecordHeader {
	_ = kgo.RecordHeader(event.Header{})
	return unsafe.Slice((*kgo.RecordHeader)(unsafe.Pointer(unsafe.SliceData(list))), len(list))
}

// answer is called by the client once per record.
func (w *Writer) answer(r *kgo.Record, err error) {
	s := (*sent)(unsafe.Pointer(r))
	a := outbox.Answer{Out: s.out, Offset: r.Offset}
	if err != nil {
		a.Err = w.refusal(r, err)
	}
	w.mu.Lock()
	w.answers = append(w.answers, a)
	w.mu.Unlock()
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// refusal says why a record was not taken. One that is larger than the file allows can never be published; one that is
// not, and yet is refused for its size, waits until the topic is as the file says: it is no dead letter.
func (w *Writer) refusal(r *kgo.Record, err error) error {
	tooLarge := errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
	if size := batchBytes(r); tooLarge && size <= kafka.RecordBytesMax(w.cfg) {
		return kafka.RefusedSize(w.cfg, r.Topic, r.Partition, size, err)
	}
	wrapped := kafka.Wrap(err, w.cfg.Kafka.Brokers, fmt.Sprintf("publish to topic %s partition %d", r.Topic, r.Partition))
	if tooLarge {
		return fmt.Errorf("%w: %w", outbox.ErrRecordTooLarge, wrapped)
	}
	return wrapped
}

// batchOverhead is what a batch takes beside its records: 61 bytes, and the client counts up to a dozen of the request.
const batchOverhead = 61 + 12

// batchBytes is the size of a batch of one record, before compression, as the client bounds it.
func batchBytes(r *kgo.Record) int {
	n := batchOverhead + 3 + varint(len(r.Key)) + len(r.Key) + varint(len(r.Value)) + len(r.Value) + varint(len(r.Headers))
	for _, h := range r.Headers {
		n += varint(len(h.Key)) + len(h.Key) + varint(len(h.Value)) + len(h.Value)
	}
	return n + varint(n)
}

func varint(n int) int { return kbin.VarintLen(int32(n)) }

// Ready implements outbox.Writer.
func (w *Writer) Ready() <-chan struct{} { return w.ready }

// Answers implements outbox.Writer.
func (w *Writer) Answers(dst []outbox.Answer) []outbox.Answer {
	w.mu.Lock()
	defer w.mu.Unlock()
	dst = append(dst, w.answers...)
	clear(w.answers)
	w.answers = w.answers[:0]
	return dst
}

// Close implements outbox.Writer. It may be called more than once, and at the same time as the other methods.
func (w *Writer) Close() {
	w.closed.Do(func() {
		w.ended()
		w.client.Close()
		if w.txn != nil {
			<-w.txn.done
		}
	})
}

// Ends implements outbox.Writer.
func (w *Writer) Ends(ctx context.Context, parts []event.Partition) (map[event.Partition]int64, error) {
	listed, err := kadm.NewClient(w.client).ListEndOffsets(ctx, topics(parts)...)
	if err != nil {
		return nil, kafka.Wrap(err, w.cfg.Kafka.Brokers, "ask for the partitions' ends")
	}
	ends := map[event.Partition]int64{}
	for _, p := range parts {
		if o, ok := listed.Lookup(p.Topic, p.Number); ok && o.Err == nil {
			ends[p] = o.Offset
		}
	}
	return ends, nil
}

func topics(parts []event.Partition) (list []string) {
	seen := map[string]bool{}
	for _, p := range parts {
		if !seen[p.Topic] {
			seen[p.Topic] = true
			list = append(list, p.Topic)
		}
	}
	return list
}
