package consumers

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/kafka"
)

// Options are what Run needs. Config and Sink must be set; the zero value of everything else is a safe default.
type Options struct {
	Config *config.Config
	Sink   Sink
	// Reload is called when the layout epoch of an event, or of the sink's database, is newer than the sink's: it reads
	// the applied layout and gives it to the sink. nil: the event waits until the process restarts.
	Reload func(ctx context.Context) error
	// Batch bounds one batch; default: what Config says of the sink of this name.
	Batch Limits
	// InstanceID makes this process a static member of the group: one that restarts within SessionTimeout gets its
	// partitions back at once. It must differ between processes. Empty: an ordinary member.
	InstanceID string
	// Bury takes events that the sink rejected, in place of the dead-letter topic, and returns when they are kept: they are
	// passed then. nil: the topic.
	Bury func(ctx context.Context, letters []DeadLetter) error
	// History holds what the topics do not any more: a position below a log's start is read from there. nil: it is lost.
	History History
	// MemoryBytesMax is this loop's part of the process's memory; default limits.memory_bytes_max.
	MemoryBytesMax int64
	// Logger's default discards.
	Logger *slog.Logger
	// Registerer takes the metrics; nil: none. They are unregistered when Run ends.
	Registerer prometheus.Registerer
	// Applied, if set, is told of each batch, so that a trace can link to its events. The goroutine that owns the partition
	// or group calls it: it must not block.
	Applied func(Applied)
	// Ready is called once, when everything is started; nil: nobody waits.
	Ready func()

	// SessionTimeout is how long a member that died keeps its partitions (default 10 s; brokers allow 6 s and more
	// unless set otherwise).
	SessionTimeout time.Duration
	// CheckPeriod is how often leaders, topic ids and the ends of the logs are asked for, and an Unleased sink for what was
	// fenced (default 5 s).
	CheckPeriod time.Duration
	// HaltRetry is how often a halted partition is tried again (default 10 s).
	HaltRetry time.Duration
	// BackoffMax is the longest pause between tries in an outage (default 10 s).
	BackoffMax time.Duration
	// ClientOptions are added to every Kafka client; for tests.
	ClientOptions []kgo.Opt
}

// DeadLetter is an event that a sink cannot take, with its reason.
type DeadLetter = kafka.DeadLetter

func (o Options) withDefaults() Options {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&o.SessionTimeout, 10*time.Second)
	set(&o.CheckPeriod, 5*time.Second)
	set(&o.HaltRetry, 10*time.Second)
	set(&o.BackoffMax, 10*time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MemoryBytesMax == 0 {
		o.MemoryBytesMax = o.Config.Limits.MemoryBytesMax
	}
	if o.Batch == (Limits{}) {
		switch m, c, d := o.Config.Sinks.MySQL, o.Config.Sinks.ClickHouse, o.Config.Sinks.Doris; {
		case o.Sink.Name() == "clickhouse" && c != nil:
			o.Batch = Limits{Rows: c.BatchRows, Bytes: c.BatchBytes, Age: c.BatchAge}
		case o.Sink.Name() == "doris" && d != nil:
			o.Batch = Limits{Rows: d.BatchRows, Bytes: d.BatchBytes, Age: d.BatchAge}
		default:
			o.Batch = Limits{Rows: m.BatchRows, Bytes: m.BatchBytes, Age: m.BatchAge}
		}
	}
	return o
}

// fitBatch lowers the batch's bytes so that every unit can hold one in flight and the next, and refuses memory that
// cannot hold the largest event for each unit. processBytes is what the file gives the process, memoryBytes this loop's
// part of it.
func fitBatch(batch Limits, memoryBytes, processBytes int64, units int, eventBytes int64) (Limits, error) {
	each := memoryBytes / rawShare / int64(max(1, units))
	if each < eventBytes {
		need := float64(eventBytes*int64(units)*rawShare) * float64(processBytes) / float64(memoryBytes)
		return batch, &fault.Error{Code: "SL6010", Class: fault.Usage,
			What: fmt.Sprintf("the batches of %d partitions or groups do not fit into %d MiB, this sink's part of limits.memory_bytes_max",
				units, memoryBytes>>20),
			Why: fmt.Sprintf("each must hold at least the largest event, %d KiB", eventBytes>>10),
			Do:  fmt.Sprintf("set limits.memory_bytes_max to %dMiB or more, or lower outbox.event_bytes_max", int64(need)>>20+1)}
	}
	batch.Bytes = min(batch.Bytes, max(each/2, eventBytes))
	return batch, nil
}

// MemoryBytesMin is the least that Run takes of memory for so many partitions or groups.
func MemoryBytesMin(cfg *config.Config, units int) int64 {
	return eventBytesInMemory(cfg) * int64(max(1, units)) * rawShare
}

// eventBytesInMemory is the largest event as it lies in a queue.
func eventBytesInMemory(cfg *config.Config) int64 {
	return int64(kafka.RecordBytesMax(cfg)) + recordOverhead + 64*headerOverhead
}
