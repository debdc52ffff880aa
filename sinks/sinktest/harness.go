package sinktest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/slotline/slotline/consumers"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/partitioner"
)

// harness is one case: a log per partition, the fold of what was applied of it, and the state under test.
type harness struct {
	*testing.T
	store Store
	setup Setup

	layout   *partitioner.Layout
	log      map[int32][]event.Message
	end      map[int32]int64
	fold     fold
	rejected map[at]event.Rejected
	folded   map[int32]int64 // up to which offset the fold goes
}

type at struct {
	partition int32
	offset    int64
}

func newHarness(t *testing.T, factory Factory) *harness {
	store, setup := factory(t)
	return &harness{T: t, store: store, setup: setup, layout: setup.Layout, log: map[int32][]event.Message{}, end: map[int32]int64{},
		fold: fold{}, rejected: map[at]event.Rejected{}, folded: map[int32]int64{}}
}

// ev is an event to append; zero fields have the defaults of the suite.
type ev struct {
	table   string
	op      event.Op // Upsert
	version int64
	values  []event.Value
	at      time.Time // appended
	epoch   int64     // the layout's
	body    string    // in place of the values' row image, for events that no table can hold
	skip    int64     // offsets left out before it, as transaction markers do
}

func (h *harness) table(name string) *event.Table {
	h.Helper()
	t := h.setup.Config.Table(name)
	if t == nil {
		h.Fatalf("the suite has no table %s", name)
	}
	return t
}

func (h *harness) topic() string { return h.setup.Config.Kafka.Topic }

// append writes events to the log, each to the partition that the layout says.
func (h *harness) append(events ...ev) {
	h.Helper()
	for _, e := range events {
		t := h.table(e.table)
		full := event.Event{ID: event.NewID(), Table: t.Name, Op: e.op, Version: e.version, Time: e.at, LayoutEpoch: e.epoch,
			Outbox: event.OutboxPosition{Generation: 1, ID: uint64(len(h.log)) + 1}}
		if full.Op == 0 {
			full.Op = event.Upsert
		}
		if full.Time.IsZero() {
			full.Time = appended
		}
		if full.LayoutEpoch == 0 {
			full.LayoutEpoch = h.layout.Epoch()
		}
		full.EntityID = string(t.CanonicalText(nil, t.ID, e.values[t.ID]))
		p, spread := h.layout.Broadcast(), ""
		if !t.Broadcast() {
			full.Tenant = string(t.CanonicalText(nil, t.Tenant, e.values[t.Tenant]))
			if t.Spread != event.None {
				spread = string(t.CanonicalText(nil, t.Spread, e.values[t.Spread]))
			}
			p = h.layout.Route(full.Tenant, spread).Partition
		}
		full.Body = []byte(e.body)
		if e.body == "" {
			var err error
			if full.Body, err = t.AppendRow(nil, e.values, full.Op); err != nil {
				h.Fatalf("the suite wrote an event that its own encoder refuses: %v", err)
			}
		}
		_, rec := full.AppendRecord(nil, "slotline/suite")
		h.end[p] += e.skip
		h.log[p] = append(h.log[p], event.Message{Record: rec, Partition: event.Partition{Topic: h.topic(), Number: p},
			Offset: h.end[p], LeaderEpoch: 3})
		h.end[p]++
	}
}

// owner is one process that has taken over every partition.
type owner struct {
	h     *harness
	sink  consumers.Sink
	units []consumers.Owned
}

// topicID is the suite's topic's.
var topicID = event.TopicID{1, 2, 3}

// takeOverWait bounds how long a fixed group's lease is waited for: one second in the suite's file, with room for a
// slow machine.
const takeOverWait = 30 * time.Second

// takeOver opens a sink, as another process would, and takes every partition over.
func (h *harness) takeOver() *owner {
	h.Helper()
	o := &owner{h: h, sink: h.store.Open(h)}
	o.again()
	return o
}

// again takes every partition over (again).
func (o *owner) again() {
	o.h.Helper()
	var groups [][]event.Partition
	if fixed, ok := o.sink.(consumers.FixedGroups); ok {
		groups = fixed.Groups()
	} else {
		for p := range int32(partitions) {
			groups = append(groups, []event.Partition{{Topic: o.h.topic(), Number: p}})
		}
	}
	o.units = nil
	for _, parts := range groups {
		o.units = append(o.units, o.h.takeOverGroup(o.sink, parts))
	}
}

func (h *harness) takeOverGroup(sink consumers.Sink, parts []event.Partition) consumers.Owned {
	h.Helper()
	wait, cancel := context.WithTimeout(h.Context(), takeOverWait)
	defer cancel()
	for {
		owned, err := sink.TakeOver(wait, parts)
		if err == nil {
			return owned
		}
		if !fault.Is(err, fault.Fenced) && !fault.Is(err, fault.Transient) {
			h.Fatalf("take over %v: %v", parts, err)
		}
		select {
		case <-wait.Done():
			h.Fatalf("take over %v: %v", parts, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// batches cuts the next batch of each unit that has something to apply: at most rows messages, or exactly what an
// earlier owner stored.
func (o *owner) batches(rows int) []unitBatch {
	var list []unitBatch
	for _, owned := range o.units {
		b := &event.Batch{}
		pending := owned.Pending()
		for _, p := range owned.Positions() {
			end := o.h.end[p.Number]
			if len(pending) > 0 {
				i := slices.IndexFunc(pending, func(r event.Range) bool { return r.Partition == p.Partition })
				if i < 0 {
					continue
				}
				end = pending[i].To
			}
			r := event.Range{Partition: p.Partition, From: p.Next, To: end, LeaderEpoch: 3, TopicID: topicID}
			for _, m := range o.h.log[p.Number] {
				if m.Offset < p.Next || m.Offset >= end {
					continue
				}
				if len(pending) == 0 && len(b.Messages) == rows {
					r.To = m.Offset
					break
				}
				b.Messages = append(b.Messages, m)
			}
			if r.To > r.From {
				b.Ranges = append(b.Ranges, r)
			}
		}
		if len(b.Ranges) > 0 {
			list = append(list, unitBatch{owned, b})
		}
	}
	return list
}

type unitBatch struct {
	owned consumers.Owned
	batch *event.Batch
}

// apply has the unit apply the batch, as consumers do: rejected events are excluded and the batch is prepared again.
func (h *harness) apply(ctx context.Context, u unitBatch) error {
	h.Helper()
	for {
		p, err := u.owned.Prepare(u.batch)
		if err != nil {
			return err
		}
		rejected, err := p.Apply(ctx)
		if err != nil {
			return err
		}
		if len(rejected) == 0 {
			return nil
		}
		if u.batch.Excluded == nil {
			u.batch.Excluded = map[int]bool{}
		}
		for _, r := range rejected {
			m := u.batch.Messages[r.Index]
			if u.batch.Excluded[r.Index] {
				h.Fatalf("offset %d was rejected a second time, though excluded: %v", m.Offset, r.Err)
			}
			if r.Reason == "" || !fault.Is(r.Err, fault.Data) {
				h.Errorf("offset %d is rejected with reason %q and an error of class %s: %v", m.Offset, r.Reason, fault.ClassOf(r.Err), r.Err)
			}
			u.batch.Excluded[r.Index] = true
			h.rejected[at{m.Partition.Number, m.Offset}] = r
		}
	}
}

// drain applies all that is in the log, rows messages at a time, and checks after each batch that progress is where
// the batch ends.
func (o *owner) drain(rows int) {
	o.h.Helper()
	for {
		batches := o.batches(rows)
		if len(batches) == 0 {
			return
		}
		for _, u := range batches {
			if err := o.h.apply(o.h.Context(), u); err != nil {
				o.h.Fatalf("apply %v: %v", u.batch.Ranges, err)
			}
			o.h.wantPositions(u.owned, u.batch.Ranges)
		}
	}
}

// wantPositions: progress equals the ranges that were applied.
func (h *harness) wantPositions(owned consumers.Owned, ranges []event.Range) {
	h.Helper()
	for _, r := range ranges {
		for _, p := range owned.Positions() {
			if p.Partition == r.Partition && (p.Next != r.To || p.LeaderEpoch != r.LeaderEpoch || p.TopicID != r.TopicID) {
				h.Fatalf("after a batch up to offset %d (leader epoch %d) the sink stands at %d (%d)", r.To, r.LeaderEpoch, p.Next, p.LeaderEpoch)
			}
		}
	}
}

// foldTo folds the log up to the given offsets, without what was rejected.
func (h *harness) foldTo(to map[int32]int64) {
	h.Helper()
	var view event.View
	for p, messages := range h.log {
		for _, m := range messages {
			if m.Offset < h.folded[p] || m.Offset >= to[p] {
				continue
			}
			if _, bad := h.rejected[at{p, m.Offset}]; bad {
				continue
			}
			if err := event.ParseView(m.Record, &view); err != nil {
				h.Fatalf("offset %d was applied, though it is no event: %v", m.Offset, err)
			}
			var row event.Row
			if err := h.table(string(view.Table)).DecodeView(&view, &row); err != nil {
				h.Fatalf("offset %d was applied, though its table cannot hold it: %v", m.Offset, err)
			}
			ver := view.Version * 2
			if view.Op == event.Delete {
				ver++
			}
			h.fold.add(entity{string(view.Table), string(view.Tenant), string(view.EntityID)}, ver, row)
		}
		h.folded[p] = max(h.folded[p], to[p])
	}
}

// check compares every table with the fold of the whole log (P3, P4).
func (h *harness) check() {
	h.Helper()
	h.foldTo(h.end)
	h.checkFolded()
}

// checkFolded compares every table with what is folded already.
func (h *harness) checkFolded() {
	h.Helper()
	for _, t := range h.setup.Config.Tables {
		rows := h.store.Rows(h, t)
		shards, months := false, false
		got := make([]string, 0, len(rows))
		for _, r := range rows {
			shards = shards || r.Shard != ""
			months = months || r.Month != partitioner.NoMonth
			got = append(got, r.text(t))
		}
		slices.Sort(got)
		if d := difference(h.fold.wanted(t, h.layout, shards, months), got); d != "" {
			h.Errorf("table %s is not the fold of its events:%s", t.Name, d)
		}
	}
}

// wantRejected says which offsets of the log, by their place in append order of a partition, are dead letters.
func (h *harness) wantRejected(want ...at) {
	h.Helper()
	for _, w := range want {
		if _, ok := h.rejected[w]; !ok {
			h.Errorf("the event at partition %d offset %d was not rejected", w.partition, w.offset)
		}
	}
	for got, r := range h.rejected {
		if !slices.Contains(want, got) {
			h.Errorf("the event at partition %d offset %d was rejected: %v", got.partition, got.offset, r.Err)
		}
	}
}

// last is where the event that was appended last lies, if it went to the partition of the given tenant.
func (h *harness) last(tenant string) at {
	p := h.layout.Route(tenant, "").Partition
	log := h.log[p]
	return at{p, log[len(log)-1].Offset}
}

// fenced says whether err is what a writer gets that was replaced. ClickHouse's groups may also find their lease gone.
func fenced(err error) bool { return err != nil && fault.Is(err, fault.Fenced) }

// setLayout gives a sink a newer layout.
func (h *harness) setLayout(s consumers.Sink, l *partitioner.Layout) {
	h.Helper()
	setter, ok := s.(interface{ SetLayout(*partitioner.Layout) })
	if !ok {
		h.Fatalf("sink %s has no SetLayout(*partitioner.Layout)", s.Name())
	}
	setter.SetLayout(l)
}

func newerLayout(err error) bool {
	_, ok := errors.AsType[*event.NewerLayout](err)
	return ok
}
