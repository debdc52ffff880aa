package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/outbox"
)

const (
	// stallMax is how long a transaction waits for a partition that does not answer while others do. Elections take less.
	stallMax = 3 * time.Second
	// fencePatience bounds InitProducerId: Kafka first ends what the last owner left open.
	fencePatience = 30 * time.Second
)

// transactions sends records in transactions, one after the other: what was handed over while one was under way makes the
// next. Records are answered when theirs is committed.
type transactions struct {
	w    *Writer
	done chan struct{} // closed when the loop has ended

	mu    sync.Mutex
	queue []*outbox.Out
	more  chan struct{} // has a value when there is something in the queue
}

// TransactionalID is the transactional.id of a lane: one per line and lane, so that a take-over fences the last owner.
func TransactionalID(line string, lane int) string {
	return fmt.Sprintf("%s%02d", kafka.TransactionalIDPrefix(line), lane)
}

func transactionOptions(line string, lane int) []kgo.Opt {
	return []kgo.Opt{
		kgo.TransactionalID(TransactionalID(line, lane)),
		kgo.TransactionTimeout(kafka.TransactionTimeout),
		// Kafka ends a transaction in the background, and refuses the next until it has: some milliseconds.
		kgo.ConcurrentTransactionsBackoff(2 * time.Millisecond),
		kgo.RetryBackoffFn(transactionBackoff),
		kgo.MetadataMinAge(10 * time.Millisecond), // a refused record is not tried again before the client has asked for metadata
	}
}

// transactionBackoff doubles from 2 ms to a second: most retries wait for the end of the last transaction.
func transactionBackoff(fails int) time.Duration {
	return min(time.Second, time.Millisecond<<min(10, max(1, fails)))
}

func newTransactions(w *Writer) *transactions {
	t := &transactions{w: w, done: make(chan struct{}), more: make(chan struct{}, 1)}
	go t.run() // owned by w: ends with its life, and Close waits for it
	return t
}

func (t *transactions) add(outs []*outbox.Out) {
	t.mu.Lock()
	t.queue = append(t.queue, outs...)
	t.mu.Unlock()
	select {
	case t.more <- struct{}{}:
	default:
	}
}

func (t *transactions) take() []*outbox.Out {
	t.mu.Lock()
	defer t.mu.Unlock()
	outs := t.queue
	t.queue = nil
	return outs
}

// run commits transactions until one fails in a way that leaves this producer without use; from then on it answers
// everything with why.
func (t *transactions) run() {
	defer close(t.done)
	var lost error
	for {
		select {
		case <-t.w.life.Done():
			t.w.refuse(t.take(), t.w.life.Err())
			return
		case <-t.more:
		}
		outs := t.take()
		for lost == nil && len(outs) > 0 {
			outs, lost = t.one(outs)
		}
		t.w.refuse(outs, lost)
	}
}

// outcome is what became of the records of a transaction.
type outcome struct {
	mu      sync.Mutex
	offsets []int64 // by record
	errs    []error // by record
	open    []bool  // by record: not answered
	left    int
	all     chan struct{} // closed when left is 0
}

func (o *outcome) answer(i int, offset int64, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.offsets[i], o.errs[i], o.open[i] = offset, err, false
	if o.left--; o.left == 0 {
		close(o.all)
	}
}

// one sends records in one transaction. If a partition does not take its records, theirs are answered with why, the
// transaction is aborted, and again holds the others, which another can carry. lost says that this producer is of no use
// any more: nothing of again was committed, as far as one can know.
func (t *transactions) one(outs []*outbox.Out) (again []*outbox.Out, lost error) {
	w := t.w
	if err := w.client.BeginTransaction(); err != nil {
		return outs, w.producerLost(err)
	}
	n := len(outs)
	o := &outcome{offsets: make([]int64, n), errs: make([]error, n), open: slices.Repeat([]bool{true}, n), left: n, all: make(chan struct{})}
	slab := make([]kgo.Record, n)
	now := time.Now()
	for i, out := range outs {
		slab[i] = kgo.Record{Key: out.Record.Key, Value: out.Record.Value, Headers: headers(out.Record.Headers),
			Topic: out.Partition.Topic, Partition: out.Partition.Number, Timestamp: now}
		w.client.Produce(w.life, &slab[i], func(r *kgo.Record, err error) { o.answer(i, r.Offset, err) })
	}
	stalled := t.wait(o, outs)
	if len(stalled) > 0 {
		if err := w.client.AbortBufferedRecords(w.life); err != nil {
			return outs, w.producerLost(err)
		}
		<-o.all
	}
	refused := map[event.Partition]bool{}
	for i, err := range o.errs {
		switch {
		case err == nil:
		case stalled[outs[i].Partition]:
			o.errs[i] = errStalled
			refused[outs[i].Partition] = true
		case ofPartition(err):
			refused[outs[i].Partition] = true
		default:
			return outs, w.producerLost(err)
		}
	}
	if len(refused) == 0 {
		if err := w.client.EndTransaction(w.life, kgo.TryCommit); err != nil {
			return outs, w.producerLost(err)
		}
		w.settle(func(add func(outbox.Answer)) {
			for i, out := range outs {
				add(outbox.Answer{Out: out, Offset: o.offsets[i]})
			}
		})
		return nil, nil
	}
	if err := w.client.EndTransaction(w.life, kgo.TryAbort); err != nil {
		return outs, w.producerLost(err)
	}
	w.settle(func(add func(outbox.Answer)) {
		why := map[event.Partition]error{} // of its first record that was refused: the others went with it
		for i, out := range outs {
			if p := out.Partition; o.errs[i] != nil && why[p] == nil {
				why[p] = w.refusal(&slab[i], o.errs[i])
			}
		}
		for _, out := range outs {
			if err := why[out.Partition]; err != nil {
				add(outbox.Answer{Out: out, Err: err})
			} else {
				again = append(again, out)
			}
		}
	})
	return again, nil
}

// wait waits until all records are answered, and returns none; or until some partitions have not answered anything for
// stallMax while others have answered everything, and returns those. When nothing at all is answered the brokers are
// away, and are waited for.
func (t *transactions) wait(o *outcome, outs []*outbox.Out) (stalled map[event.Partition]bool) {
	for {
		timer := time.NewTimer(stallMax)
		select {
		case <-o.all:
			timer.Stop()
			return nil
		case <-timer.C:
		}
		stalled, answered := map[event.Partition]bool{}, map[event.Partition]bool{}
		o.mu.Lock()
		for i, open := range o.open {
			if open {
				stalled[outs[i].Partition] = true
			} else {
				answered[outs[i].Partition] = true
			}
		}
		o.mu.Unlock()
		for p := range answered {
			if !stalled[p] {
				return stalled
			}
		}
	}
}

var errStalled = errors.New("does not answer while other partitions do")

// ofPartition says that an error is one partition's, or one record's, and leaves the producer as it is.
func ofPartition(err error) bool {
	for _, e := range []error{kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.TopicAuthorizationFailed, kerr.InvalidTopicException} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// producerLost says why this producer is of no use any more.
func (w *Writer) producerLost(err error) error {
	if w.life.Err() != nil {
		return w.life.Err()
	}
	if kafka.Classify(err) == fault.Fenced || errors.Is(err, kerr.InvalidTxnState) || errors.Is(err, kerr.InvalidProducerIDMapping) {
		err = &fault.Error{Code: "SL5015", Class: fault.Fenced, Err: err,
			What: fmt.Sprintf("outbox lane %02d: Kafka refuses its producer, transactional.id %s: %v", w.lane, TransactionalID(w.cfg.Line, w.lane), err),
			Why:  fmt.Sprintf("another relay has taken the lane over, or Kafka ended a transaction that was open for %v; nothing of it is in the topic", kafka.TransactionTimeout),
			Do:   "nothing if it happens once: the lane's owner takes it over anew; else see whether this process is starved of CPU or cut off"}
	} else {
		err = kafka.Wrap(err, w.cfg.Kafka.Brokers, fmt.Sprintf("publish a transaction of outbox lane %02d; the topic tells what became of it", w.lane))
	}
	return fmt.Errorf("%w: %w", outbox.ErrProducerLost, err)
}

// Fence implements outbox.Writer.
func (w *Writer) Fence(ctx context.Context) error {
	if w.txn == nil {
		return nil
	}
	if err := w.life.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, fencePatience)
	defer cancel()
	defer context.AfterFunc(w.life, cancel)()
	if _, _, err := w.client.ProducerID(ctx); err != nil {
		return kafka.Wrap(err, w.cfg.Kafka.Brokers, "fence the lane's earlier owners, transactional.id "+TransactionalID(w.cfg.Line, w.lane))
	}
	return nil
}

// settle adds answers.
func (w *Writer) settle(each func(add func(outbox.Answer))) {
	w.mu.Lock()
	each(func(a outbox.Answer) { w.answers = append(w.answers, a) })
	w.mu.Unlock()
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// refuse answers records that were not committed.
func (w *Writer) refuse(outs []*outbox.Out, err error) {
	if len(outs) == 0 {
		return
	}
	w.settle(func(add func(outbox.Answer)) {
		for _, out := range outs {
			add(outbox.Answer{Out: out, Err: err})
		}
	})
}
