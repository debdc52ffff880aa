package config

import (
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/partitioner"
)

// Config is one validated line: slotline.yaml with every default filled in.
type Config struct {
	File   string // path it was read from, for errors
	Line   string
	Kafka  Kafka
	Layout partitioner.Spec // from layout, shards and kafka.partitions; Spec.Partitions is nil (apply computes and stores it)
	Shards []Shard          // in file order; a partitioner.Layout has its own: find one by name
	Tables []*event.Table   // in file order
	Months Months
	Outbox Outbox
	Sinks  Sinks
	Dead   DeadLetters
	Limits Limits
	HTTP   HTTP
}

type Kafka struct {
	Brokers     []string
	Topic       string // default <line>.events
	Partitions  int    // of each topic of events
	Replication int
	Compression string // none | lz4 | zstd
}

type Shard struct {
	Name string
	DSN  DSN
}

type Months struct {
	From  partitioner.Month // absolute lower bound; default 200001
	Ahead int               // month tables made ahead of the present one
}

type Outbox struct {
	DSN              DSN
	Lanes            int
	BacklogAgeMax    time.Duration // past either, Emit returns ErrBacklogged
	BacklogEventsMax int64         // per lane
	EventBytesMax    int64         // one event's body; past it Emit returns ErrTooLarge
	PurgeRows        int64         // ids per outbox partition
	LeaseTime        time.Duration // outbox.lease_time, default 5s: how long a dead relay or OLAP owner is waited for
}

type Sinks struct {
	MySQL      MySQLSink
	ClickHouse *ClickHouseSink // nil: off
	State      DSN             // the outbox's unless sinks.state names another
}

type MySQLSink struct {
	BatchRows           int
	BatchBytes          int64
	BatchAge            time.Duration
	ConnectionsPerShard int
}

type ClickHouseSink struct {
	DSN        DSN
	Groups     int // 1 to Kafka.Partitions
	BatchRows  int
	BatchBytes int64
	BatchAge   time.Duration
}

type DeadLetters struct {
	Topic         string
	Retention     time.Duration
	HaltPerMinute int // past it the partition halts
}

type Limits struct {
	MemoryBytesMax int64 // of one process
	DrainTimeout   time.Duration
}

type HTTP struct {
	Listen string // host:port of /metrics, /healthz and /readyz
}
