package kafka

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/kafka"
)

// Tail implements outbox.Writer.
func (w *Writer) Tail(ctx context.Context, from map[event.Partition]int64, each func(event.Partition, int64, *event.Record)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.life, cancel)() // Close ends a scan
	begin, end, err := w.span(ctx, from)
	if err != nil || len(end) == 0 {
		return err
	}
	offsets := map[string]map[int32]kgo.Offset{}
	for p := range end {
		if offsets[p.Topic] == nil {
			offsets[p.Topic] = map[int32]kgo.Offset{}
		}
		offsets[p.Topic][p.Number] = kgo.NewOffset().At(begin[p])
	}
	client, err := kgo.NewClient(append(kafka.Options(w.cfg, "relay-tail", w.log),
		kgo.ConsumePartitions(offsets),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // the last record may be a transaction's marker
		kgo.FetchMaxBytes(fetchBytesMax))...)
	if err != nil {
		return kafka.Wrap(err, w.cfg.Kafka.Brokers, "make the tail scan's client")
	}
	defer client.Close()
	for len(end) > 0 {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, e := range fetches.Errors() {
			return kafka.Wrap(e.Err, w.cfg.Kafka.Brokers, fmt.Sprintf("read topic %s partition %d", e.Topic, e.Partition))
		}
		fetches.EachRecord(func(r *kgo.Record) {
			p := event.Partition{Topic: r.Topic, Number: r.Partition}
			last, open := end[p]
			if !open {
				return
			}
			if r.Offset < last && !r.Attrs.IsControl() {
				rec := event.Record{Key: r.Key, Value: r.Value, Headers: make([]event.Header, len(r.Headers))}
				for i, h := range r.Headers {
					rec.Headers[i] = event.Header(h)
				}
				each(p, r.Offset, &rec)
			}
			if r.Offset+1 >= last {
				delete(end, p)
			}
		})
	}
	return nil
}

// span says where each scan begins and ends; partitions without anything to scan are missing.
func (w *Writer) span(ctx context.Context, from map[event.Partition]int64) (begin, end map[event.Partition]int64, err error) {
	var parts []event.Partition
	for p := range from {
		parts = append(parts, p)
	}
	names := topics(parts)
	slices.Sort(names)
	adm := kadm.NewClient(w.client)
	starts, err := adm.ListStartOffsets(ctx, names...)
	if err == nil {
		err = starts.Error()
	}
	var ends kadm.ListedOffsets
	if err == nil {
		if ends, err = adm.ListCommittedOffsets(ctx, names...); err == nil {
			err = ends.Error()
		}
	}
	if err != nil {
		return nil, nil, kafka.Wrap(err, w.cfg.Kafka.Brokers, "ask how far the topics reach")
	}
	begin, end = map[event.Partition]int64{}, map[event.Partition]int64{}
	for _, p := range parts {
		s, okStart := starts.Lookup(p.Topic, p.Number)
		e, okEnd := ends.Lookup(p.Topic, p.Number)
		if !okStart || !okEnd {
			return nil, nil, fmt.Errorf("topic %s has no partition %d", p.Topic, p.Number)
		}
		at := max(from[p], s.Offset)
		if at > e.Offset {
			at = s.Offset
		}
		if at < e.Offset {
			begin[p], end[p] = at, e.Offset
		}
	}
	return begin, end, nil
}
