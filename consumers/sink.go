package consumers

import (
	"context"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
)

// Sink is what consumers need of an engine. Fence, progress and intent are the sink's; polling, retry and dead letters
// are the consumer's.
type Sink interface {
	// Name is "mysql" or "clickhouse": it names progress rows, metrics and dead letters.
	Name() string
	// TakeOver bumps the owner epoch of the partitions once and says where they stand. From then on every earlier
	// owner changes nothing. A sink without fixed groups is called with one partition at a time. An error is classed
	// by package fault; for a group whose lease another holds it is fault.Fenced.
	TakeOver(ctx context.Context, parts []event.Partition) (Owned, error)
}

// FixedGroups is a Sink whose partitions come in fixed groups under leases (OLAP), not from Kafka's group protocol.
type FixedGroups interface {
	Sink
	Groups() [][]event.Partition
}

// Halter is a Sink that records a halted partition where `slotline status` finds it. The record is cleared by the next
// batch that is applied.
type Halter interface {
	Sink
	Halt(ctx context.Context, p event.Partition, why *fault.Error) error
}

// Owned is a set of partitions that this process has taken over. Its methods are called by one goroutine at a time,
// except that Prepare may run while Apply of an earlier batch is under way.
type Owned interface {
	// Positions says where each partition stands: after TakeOver, and after each Apply. With rewound progress (the
	// database went back) it is lower than before, and the consumer seeks there.
	Positions() []event.Position
	// Pending is the intent that an earlier owner stored and did not confirm: the first batch must cover exactly
	// these ranges. Empty for sinks without intents.
	Pending() []event.Range
	// Prepare decodes and encodes a batch. It does no I/O. Messages that cannot be decoded are remembered and
	// returned by Apply. The error is *event.NewerLayout or fatal. The sink keeps nothing of b after the batch was
	// applied or prepared again.
	//
	// At most two Prepared are live: the one being applied, and the next. When a batch is prepared again (after
	// Rejected, after a reload), the one after it is forgotten first and prepared again as well, so that two sets of
	// buffers in rotation are enough.
	Prepare(b *event.Batch) (Prepared, error)
	// Lost is closed when the ownership is known to be gone (a lease that ran out); nil for sinks without leases.
	Lost() <-chan struct{}
	// Release gives the ownership back, so that a successor need not wait; it does not finish work.
	Release(ctx context.Context) error
}

// Prepared is a batch ready to be sent.
type Prepared interface {
	// Apply commits the batch and its progress together. With rejected messages nothing was committed: the consumer
	// produces the dead letters, excludes them and prepares the batch again. Errors are classed by package fault:
	// Transient (apply the same Prepared again), Fenced, Fatal; *event.Rewound when the database went back.
	Apply(ctx context.Context) ([]event.Rejected, error)
	// Rows and Bytes are what it holds, for metrics.
	Size() (rows, bytes int)
}
