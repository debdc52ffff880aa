package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
)

// readAll calls each for every committed record that the topic holds now, in order per partition.
func readAll(ctx context.Context, cfg *config.Config, log *slog.Logger, topic string, each func(*kgo.Record)) error {
	cl, err := Open(ctx, cfg, "read", log)
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	start, err := adm.ListStartOffsets(ctx, topic)
	if err == nil {
		err = start.Error()
	}
	if err != nil {
		return Wrap(err, cfg.Kafka.Brokers, "read topic "+topic)
	}
	end, err := adm.ListCommittedOffsets(ctx, topic)
	if err == nil {
		err = end.Error()
	}
	if err != nil {
		return Wrap(err, cfg.Kafka.Brokers, "read topic "+topic)
	}
	from, to := map[event.Partition]int64{}, map[event.Partition]int64{}
	start.Each(func(o kadm.ListedOffset) {
		if e, ok := end.Lookup(topic, o.Partition); ok && e.Offset > o.Offset {
			p := event.Partition{Topic: topic, Number: o.Partition}
			from[p], to[p] = o.Offset, e.Offset
		}
	})
	return Scan(ctx, cfg, "read", log, from, to, each)
}

const (
	// scanFetchBytes of compressed batches are fetched at once, and one fetch at a time; a broker sends one batch in any
	// case.
	scanFetchBytes = 256 << 10
	// scanBatchesMax bounds a batch after decompression, in units of the largest that the line writes, before
	// compression. Another program may write anything: a few kilobytes become gigabytes.
	scanBatchesMax = 8
)

// Scan calls each for every committed record of the partitions in from, from the offset there up to the one in to, in
// order per partition. Of a batch that is larger than memory allows it says so in the log, and passes it over: no process
// of the line wrote it. The record is valid during the call only.
func Scan(ctx context.Context, cfg *config.Config, role string, log *slog.Logger, from, to map[event.Partition]int64, each func(*kgo.Record)) error {
	return scan(ctx, cfg, role, log, from, to, scanFetchBytes, func(r *kgo.Record) error { each(r); return nil },
		func(big *kgo.ErrDecompressTooLarge) error {
			if log != nil {
				log.Warn("passed over a record batch that is larger than memory allows; another program wrote it",
					"topic", big.Topic, "partition", big.Partition, "offset", big.Offset, "next", big.NextOffset)
			}
			return nil
		})
}

// copyFetchBytes are fetched at once by Copy: a long stretch of the log is read in fewer, larger answers.
const copyFetchBytes = 1 << 20

// Copy is Scan for a reader that must miss nothing: an error of each ends it, and so does a batch that is larger than
// memory allows (SL2013).
func Copy(ctx context.Context, cfg *config.Config, role string, log *slog.Logger, from, to map[event.Partition]int64, each func(*kgo.Record) error) error {
	return scan(ctx, cfg, role, log, from, to, copyFetchBytes, each, func(big *kgo.ErrDecompressTooLarge) error {
		return &fault.Error{Code: "SL2013", Class: fault.Fatal, Err: big,
			What: fmt.Sprintf("the record batch at offset %d of %s partition %d is larger than memory allows", big.Offset, big.Topic, big.Partition),
			Why:  "the relay writes no such batch: another program wrote into the topic",
			Do:   fmt.Sprintf("find that program; to read its batch, raise outbox.event_bytes_max (batches of up to %d such events are read)", scanBatchesMax)}
	})
}

func scan(ctx context.Context, cfg *config.Config, role string, log *slog.Logger, from, to map[event.Partition]int64, fetchBytes int32,
	each func(*kgo.Record) error, tooLarge func(*kgo.ErrDecompressTooLarge) error) error {
	offsets, left := map[string]map[int32]kgo.Offset{}, map[event.Partition]int64{}
	for p, end := range to {
		if from[p] >= end {
			continue
		}
		if offsets[p.Topic] == nil {
			offsets[p.Topic] = map[int32]kgo.Offset{}
		}
		offsets[p.Topic][p.Number] = kgo.NewOffset().At(from[p])
		left[p] = end
	}
	if len(left) == 0 {
		return nil
	}
	reader, err := NewClient(cfg, role, log,
		kgo.ConsumePartitions(offsets),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // the last offset may be a transaction's marker
		kgo.FetchMaxBytes(fetchBytes),
		kgo.FetchMaxPartitionBytes(fetchBytes),
		kgo.MaxConcurrentFetches(1),
		kgo.MaxDecompressBatchBytes(scanBatchesMax*DeadRecordBytesMax(cfg)))
	if err != nil {
		return err
	}
	defer reader.Close()
	passed := func(p event.Partition, next int64) {
		if end, open := left[p]; open && next >= end {
			delete(left, p)
		}
	}
	for len(left) > 0 {
		fetches := reader.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		var failed error
		fetches.EachRecord(func(r *kgo.Record) {
			p := event.Partition{Topic: r.Topic, Number: r.Partition}
			if end, open := left[p]; open && failed == nil && r.Offset < end && !r.Attrs.IsControl() {
				failed = each(r)
			}
			passed(p, r.Offset+1)
		})
		if failed != nil {
			return failed
		}
		for _, e := range fetches.Errors() {
			big, ok := errors.AsType[*kgo.ErrDecompressTooLarge](e.Err)
			if !ok {
				return Wrap(e.Err, cfg.Kafka.Brokers, fmt.Sprintf("read topic %s partition %d", e.Topic, e.Partition))
			}
			if err := tooLarge(big); err != nil {
				return err
			}
			reader.SetOffsets(map[string]map[int32]kgo.EpochOffset{big.Topic: {big.Partition: {Epoch: big.Epoch, Offset: big.NextOffset}}})
			passed(event.Partition{Topic: big.Topic, Number: big.Partition}, big.NextOffset)
		}
	}
	return nil
}

// Content is what a record that a client has read holds, without a copy of it.
func Content(r *kgo.Record) event.Record {
	rec := event.Record{Key: r.Key, Value: r.Value, Headers: make([]event.Header, len(r.Headers))}
	for i, h := range r.Headers {
		rec.Headers[i] = event.Header(h)
	}
	return rec
}
