package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/consumers"
	"github.com/slotline/slotline/event"
)

const consumeLimit = 2 * time.Minute

// consume runs the consumers with a sink until rows are applied, and returns rows per second: from the first take-over,
// since joining a group takes what the broker is set to, to the last commit.
func (l *testLine) consume(sink consumers.Sink, rows int) float64 {
	m := &meter{Sink: sink, left: int64(rows), done: make(chan struct{})}
	var metered consumers.Sink = m
	if groups, ok := sink.(consumers.FixedGroups); ok {
		metered = meteredGroups{m, groups}
	}
	stop := l.ending(func(ctx context.Context) error {
		return consumers.Run(ctx, consumers.Options{Config: l.cfg, Sink: metered, Logger: l.log})
	})
	l.await(m.done, consumeLimit, "sink "+sink.Name(), func() string {
		return fmt.Sprintf("%d of %d rows are not applied", atomic.LoadInt64(&m.left), rows)
	})
	stop()
	return float64(rows) / time.Duration(m.ended.Load()-m.began.Load()).Seconds()
}

// meter is a sink that counts what another one applies.
type meter struct {
	consumers.Sink
	left         int64 // rows that are not applied; atomic
	began, ended atomic.Int64
	done         chan struct{}
}

type meteredGroups struct {
	*meter
	groups consumers.FixedGroups
}

func (m meteredGroups) Groups() [][]event.Partition { return m.groups.Groups() }

type meteredOwned struct {
	event.Owned
	meter *meter
}

type meteredPrepared struct {
	event.Prepared
	meter *meter
	rows  int64
}

func (m *meter) TakeOver(ctx context.Context, parts []event.Partition) (event.Owned, error) {
	owned, err := m.Sink.TakeOver(ctx, parts)
	if err != nil {
		return nil, err
	}
	m.began.CompareAndSwap(0, time.Now().UnixNano())
	if g, ok := owned.(event.Gatherer); ok {
		return meteredGatherer{meteredOwned{owned, m}, g}, nil
	}
	return meteredOwned{owned, m}, nil
}

type meteredGatherer struct {
	meteredOwned
	gatherer event.Gatherer
}

func (g meteredGatherer) Gather(p event.Prepared, b *event.Batch) (event.Prepared, bool, error) {
	have, _ := p.(meteredPrepared)
	more, ok, err := g.gatherer.Gather(have.Prepared, b)
	if !ok || err != nil {
		return p, ok, err
	}
	return meteredPrepared{more, g.meter, have.rows + int64(len(b.Messages))}, true, nil
}

func (o meteredOwned) Prepare(b *event.Batch) (event.Prepared, error) {
	p, err := o.Owned.Prepare(b)
	if err != nil {
		return nil, err
	}
	return meteredPrepared{p, o.meter, int64(len(b.Messages) - len(b.Excluded))}, nil
}

func (p meteredPrepared) Apply(ctx context.Context) ([]event.Rejected, error) {
	rejected, err := p.Prepared.Apply(ctx)
	if err == nil && len(rejected) == 0 && atomic.AddInt64(&p.meter.left, -p.rows) == 0 {
		p.meter.ended.Store(time.Now().UnixNano())
		close(p.meter.done)
	}
	return rejected, err
}

// flightRecord makes a row into the record that the relay would publish.
func (l *testLine) flightRecord() func(f *flight) *kgo.Record {
	structs, err := event.StructOf[flight](l.cfg.Table("flights"))
	if err != nil {
		l.Fatal(err)
	}
	return func(f *flight) *kgo.Record {
		e, err := f.event(structs, l.layout.Epoch())
		if err != nil {
			l.Fatal(err)
		}
		return l.record(&e, l.cfg.Kafka.Topic)
	}
}
