package event

import (
	"context"
	"fmt"
)

// This file holds the types that cross the seam between consumers and sinks.

// Partition names one Kafka partition.
type Partition struct {
	Topic  string
	Number int32
}

// TopicID is Kafka's id of a topic; it changes when a topic is deleted and made again. Zero means unknown.
type TopicID [16]byte

// Position says where a sink stands in a partition.
type Position struct {
	Partition
	Next        int64   // offset of the next record to apply
	LeaderEpoch int32   // leader epoch of the last record applied; -1 when none was
	TopicID     TopicID // zero before the first batch
}

// ShardPosition says where one shard of a sink stands in a partition.
type ShardPosition struct {
	Shard string
	Next  int64 // offset of the next record to apply to it; -1 when it is not known
}

// ShardCounts are what a process has done to one shard of a sink since it began.
type ShardCounts struct {
	Shard   string
	Rows    uint64 // applied
	Batches uint64 // applied: transactions, each with the progress of one partition
	Bytes   uint64 // applied, as sent
	Retries uint64 // tries that failed and are repeated
	Retired uint64 // events that were passed over, since their months are retired
}

// Range is what one batch examined of a partition: every record with From <= offset < To. Offsets may have holes.
type Range struct {
	Partition
	From, To    int64
	LeaderEpoch int32 // of the last record examined; -1 when unknown
	TopicID     TopicID
}

// Header is one Kafka record header.
type Header struct {
	Key   string
	Value []byte
}

// Record is a Kafka record's content, apart from any client library.
type Record struct {
	Key     []byte
	Value   []byte
	Headers []Header
	// Packed, unless nil, is what the headers say, as AppendPacked makes it, and Headers is nil: a list of them would be
	// most of what reading an event costs. Unpacked reads either.
	Packed []byte
}

// Message is a record at its place in the log.
type Message struct {
	Record
	Partition   Partition
	Offset      int64
	LeaderEpoch int32
}

// Batch is what a sink applies at once: messages in offset order per partition, inside Ranges.
type Batch struct {
	Ranges   []Range
	Messages []Message
	// Excluded holds indexes into Messages that are in the dead-letter topic already, acknowledged: the sink skips
	// them, and the next lower version of the same entity in this batch counts instead.
	Excluded map[int]bool
}

// Rejected is one message that a sink cannot take (fault.Data).
type Rejected struct {
	Index  int    // into Batch.Messages
	Reason string // short, stable: what the dead letter is listed under, e.g. "too_long", "out_of_range"
	Err    error  // names the column; shown to a person
}

// NewerLayout is returned by a sink that meets an event of a layout epoch that it does not know yet. The consumer
// reloads the layout and prepares the batch again; it never dead-letters.
type NewerLayout struct {
	Epoch int64
	At    Partition
	Next  int64
}

func (e *NewerLayout) Error() string {
	return fmt.Sprintf("%s partition %d below offset %d holds events of layout epoch %d, newer than ours",
		e.At.Topic, e.At.Number, e.Next, e.Epoch)
}

// Rewound is returned by Apply when the sink's own progress went back (its database was restored): the consumer
// seeks to Positions and goes on.
type Rewound struct{ Positions []Position }

func (e *Rewound) Error() string { return "the sink's progress went back" }

// Owned is a set of partitions that this process has taken over. Its methods are called by one goroutine at a time,
// except that Prepare may run while Apply of an earlier batch is under way.
type Owned interface {
	// Positions says where each partition stands: after TakeOver, and after each Apply. With rewound progress (the
	// database went back) it is lower than before, and the consumer seeks there.
	Positions() []Position
	// Pending is the intent that an earlier owner stored and did not confirm: the first batch must cover exactly
	// these ranges. Empty for sinks without intents.
	Pending() []Range
	// Prepare decodes and encodes a batch. It does no I/O. Messages that cannot be decoded are remembered and
	// returned by Apply. The error is *NewerLayout or fatal. The sink keeps nothing of b after the batch was
	// applied or prepared again.
	//
	// At most two Prepared are live: the one being applied, and the next. When a batch is prepared again (after
	// Rejected, after a reload), the one after it is forgotten first and prepared again as well, unless it was gathered,
	// so that two sets of buffers in rotation are enough.
	Prepare(b *Batch) (Prepared, error)
	// Lost is closed when the ownership is known to be gone: a lease that ran out, or a fence that was found without a batch.
	// nil where only a batch finds out.
	Lost() <-chan struct{}
	// Release gives the ownership back, so that a successor need not wait; it does not finish work.
	Release(ctx context.Context) error
}

// Gatherer is an Owned that takes a batch piece by piece, so that a large one needs no more memory than what it becomes.
type Gatherer interface {
	Owned
	// Gather adds b's messages to p, a batch that is not applied yet, or to a new one when p is nil; b's ranges are those
	// of the whole. true: nothing of b is needed any more, Apply of what is returned rejects none of it, and it is never
	// prepared again. false: some of b's messages must be rejected, or wait for a layout; p is as it was, and b is to be
	// prepared as a batch of its own. It does no I/O. The error is fatal.
	Gather(p Prepared, b *Batch) (Prepared, bool, error)
}

// Prepared is a batch ready to be sent.
type Prepared interface {
	// Apply commits the batch and its progress together. With rejected messages nothing was committed: the consumer
	// produces the dead letters, excludes them and prepares the batch again. Errors are classed by package fault:
	// Transient (apply the same Prepared again), Fenced, Fatal; *Rewound when the database went back.
	Apply(ctx context.Context) ([]Rejected, error)
	// Rows and Bytes are what it holds, for metrics.
	Size() (rows, bytes int)
}
