package consumers

import (
	"context"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
)

// Sink is what consumers need of an engine. Fence, progress and intent are the sink's; polling, retry and dead letters
// are the consumer's.
type Sink interface {
	// Name is "mysql", "clickhouse" or "doris": it names progress rows, metrics and dead letters.
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

// Unleased is a Sink whose owners have no lease that could run out: a batch tells them that they were fenced. Without
// events there is none, so that Look is called as well, every CheckPeriod.
type Unleased interface {
	Sink
	// Look closes Lost of what this process has taken over and does not own any more, as far as the stores answer.
	Look(ctx context.Context) error
}

// Halter is a Sink that records a halted partition where `slotline status` finds it. The record ends with the next batch
// that is applied, or with Resume.
type Halter interface {
	Sink
	// Halt makes the record, or gives one that is there another reason: since when it counts from the first time. It
	// must not need what a take-over needs, since that may be what failed.
	Halt(ctx context.Context, p event.Partition, why *fault.Error) error
	// Resume ends the record, if there is one.
	Resume(ctx context.Context, p event.Partition) error
}

// Sharded is a Sink of several databases, which the metrics tell apart. Its methods do no I/O, and may be called from any
// goroutine.
type Sharded interface {
	Sink
	ShardCounts() []event.ShardCounts
	// ShardPositions are those of each shard that the partition meets.
	ShardPositions(p event.Partition) []event.ShardPosition
}

// Owned and Prepared are declared in event, since sinks, which do not import consumers, return them.
type (
	Owned    = event.Owned
	Prepared = event.Prepared
)
