package kafka

import (
	"context"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/config"
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
	from, left := map[int32]kgo.Offset{}, map[int32]int64{}
	start.Each(func(o kadm.ListedOffset) {
		if e, ok := end.Lookup(topic, o.Partition); ok && e.Offset > o.Offset {
			from[o.Partition] = kgo.NewOffset().At(o.Offset)
			left[o.Partition] = e.Offset
		}
	})
	if len(left) == 0 {
		return nil
	}
	reader, err := kgo.NewClient(append(Options(cfg, "read", log),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // the last offset may be a transaction's marker
		kgo.FetchMaxBytes(8<<20))...)
	if err != nil {
		return err
	}
	defer reader.Close()
	for len(left) > 0 {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return Wrap(err, cfg.Kafka.Brokers, "read topic "+topic)
		}
		for _, e := range fetches.Errors() {
			return Wrap(e.Err, cfg.Kafka.Brokers, "read topic "+topic)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			end, open := left[r.Partition]
			if !open {
				return
			}
			if r.Offset < end && !r.Attrs.IsControl() {
				each(r)
			}
			if r.Offset+1 >= end {
				delete(left, r.Partition)
			}
		})
	}
	return nil
}
