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
	return kafka.Scan(ctx, w.cfg, "relay-tail", w.log, begin, end, func(r *kgo.Record) {
		rec := kafka.Content(r)
		each(event.Partition{Topic: r.Topic, Number: r.Partition}, r.Offset, &rec)
	})
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
		// Not the last stable offsets: an open transaction of another lane's holds these back, and events of this lane that
		// are committed may lie beyond. The scan waits until that transaction has ended.
		if ends, err = adm.ListEndOffsets(ctx, names...); err == nil {
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
