package outbox

import (
	"context"
	"errors"

	"github.com/slotline/slotline/event"
)

// Writer is what the relay needs of Kafka: one producer per lane and owner epoch. It is idempotent, waits for all
// in-sync replicas, and keeps the order of Produce within each partition: after a record that fails, no later one that
// was handed over before the failure was answered succeeds.
type Writer interface {
	// Produce hands records over. It does not wait for answers, and does not fail: each record is answered exactly
	// once by Answers, per partition in the order of Produce. A broker that does not answer is waited for without end.
	Produce(outs []*Out)
	// Ready has a value when there are answers.
	Ready() <-chan struct{}
	// Answers appends the answers since the last call to dst.
	Answers(dst []Answer) []Answer
	// Fence makes sure that no earlier producer of the lane adds anything to a topic from here on, and ends what one left
	// open. Without transactions it does nothing.
	Fence(ctx context.Context) error
	// Tail calls each for every committed record from given offsets on, to the partitions' ends as they are at the time
	// of the call, in order per partition. An offset below the log's start counts as the start, and so does one above
	// its end: that topic was made anew. The record is valid during the call only.
	Tail(ctx context.Context, from map[event.Partition]int64, each func(p event.Partition, offset int64, rec *event.Record)) error
	// Ends are the offsets after the last record of each partition; partitions that do not answer are missing.
	Ends(ctx context.Context, parts []event.Partition) (map[event.Partition]int64, error)
	// Close drops what is not answered and closes the connections at once: from then on nothing more is sent.
	Close()
}

// Out is one record on its way to Kafka.
type Out struct {
	Partition event.Partition
	Record    event.Record
	item      *item
}

// Answer says what became of a record.
type Answer struct {
	Out    *Out
	Offset int64 // valid if Err is nil
	// Err is ErrRecordTooLarge if the record, or one that it was sent with, is larger than the file allows; and
	// ErrProducerLost if this Writer is of no use any more.
	Err error
}

// ErrRecordTooLarge is wrapped by a Writer around MESSAGE_TOO_LARGE, unless it is the topic that is narrower than the file
// says.
var ErrRecordTooLarge = errors.New("record too large")

// ErrProducerLost is wrapped by a Writer with transactions that cannot go on: Kafka has fenced its producer, or does not
// say whether a transaction was committed. The lane must be taken over anew: the topic's tail tells what it holds.
var ErrProducerLost = errors.New("the lane's producer is lost")

// Refusal is a partition that does not take this lane's records at present. Its ids are parked: stored, and published
// in order when it takes records again.
type Refusal struct {
	Partition event.Partition
	Parked    uint64
	Err       error
}
