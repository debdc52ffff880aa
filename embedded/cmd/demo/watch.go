package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/outbox"
)

const (
	sampleEvery = 200 * time.Millisecond
	// stuckAfter ends the wait when nothing has moved for so long: longer than a lease and a take-over.
	stuckAfter = 30 * time.Second
)

// watcher sees how far each stage is: the outbox's cursors, the topic's ends, and the progress rows of the sinks.
type watcher struct {
	cfg    *config.Config
	outbox *sql.DB
	shards map[string]*sql.DB
	kafka  *kadm.Client
}

// sample is what it sees at one time. Counts are of events.
type sample struct {
	unpublished int64
	published   int64
	shards      int64 // applied by every shard that they meet
	clickhouse  int64
	halted      string
}

// drained says that each stage has done all that the one before it has.
func (s sample) drained(olap bool) bool {
	return s.unpublished == 0 && s.shards == s.published && (!olap || s.clickhouse == s.published)
}

func (w *watcher) look(ctx context.Context) (s sample, err error) {
	backlogs, err := outbox.Backlogs(ctx, w.outbox, lanes)
	if err != nil {
		return s, err
	}
	for _, b := range backlogs {
		s.unpublished += b.Events()
		if b.HaltedAt != nil {
			s.halted = fmt.Sprintf("outbox lane %02d: %s", b.Lane, b.HaltText)
		}
	}
	ends, err := w.kafka.ListEndOffsets(ctx, w.cfg.Kafka.Topic)
	if err != nil {
		return s, err
	}
	if err := ends.Error(); err != nil {
		return s, err
	}
	ends.Each(func(o kadm.ListedOffset) { s.published += o.Offset })
	// A partition may meet both shards: an event is applied when the slower has it.
	least := map[event.Partition]int64{}
	for _, db := range w.shards {
		rows, err := progress.List(ctx, db, "mysql")
		if err != nil {
			return s, err
		}
		for _, r := range rows {
			if n, ok := least[r.Partition]; !ok || r.Next < n {
				least[r.Partition] = r.Next
			}
			s.note(r)
		}
	}
	for _, n := range least {
		s.shards += n
	}
	if w.cfg.Sinks.ClickHouse != nil {
		rows, err := progress.List(ctx, w.outbox, "clickhouse")
		if err != nil {
			return s, err
		}
		for _, r := range rows {
			s.clickhouse += r.Next
			s.note(r)
		}
	}
	return s, nil
}

func (s *sample) note(r progress.Row) {
	if !r.HaltedAt.IsZero() {
		s.halted = fmt.Sprintf("sink %s, %s partition %d: %s", r.Sink, r.Topic, r.Number, r.HaltText)
	}
}

var errStuck = errors.New("the line has stopped moving")

// follow calls seen with each sample until emitted is closed and the line has drained.
func (w *watcher) follow(ctx context.Context, emitted <-chan struct{}, seen func(sample)) error {
	var last sample
	moved := time.Now()
	for {
		allEmitted := false
		select { // before the look: what was emitted by now is in it
		case <-emitted:
			allEmitted = true
		default:
		}
		s, err := w.look(ctx)
		if err != nil {
			return err
		}
		seen(s)
		if s.halted != "" {
			return fmt.Errorf("halted: %s", s.halted)
		}
		if allEmitted && s.drained(w.cfg.Sinks.ClickHouse != nil) {
			return nil
		}
		if s != last {
			last, moved = s, time.Now()
		}
		if time.Since(moved) > stuckAfter {
			return fmt.Errorf("%w for %v: %d events unpublished, %d published, %d applied by the shards, %d by ClickHouse",
				errStuck, stuckAfter, s.unpublished, s.published, s.shards, s.clickhouse)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(sampleEvery):
		}
	}
}
