package consumers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
)

// flight is one batch on its way.
type flight struct {
	batch    *event.Batch
	prepared Prepared // nil: to be prepared (again)
	newer    bool     // holds an event of a layout epoch that is to be loaded first
	retryAt  time.Time
	retry    backoff
	applying bool
	since    time.Time // when it became the current one
	parts    []flightPart
	sent     time.Time // when it was first sent; zero: not yet
	traces   []string  // of its events; see Applied

	// Of one that is gathered: its messages are in prepared alone.
	gathered bool
	open     bool      // more may be added
	rows     int       // messages in it
	due      time.Time // when it is closed, full or not
}

type flightPart struct {
	member *member
	stream *stream // that it was cut from; the member may have another by now
	bytes  int64
}

type result struct {
	rejected []event.Rejected
	err      error
}

// advance cuts, prepares and sends what can be.
func (u *unit) advance(ctx context.Context, now time.Time) (ending, bool) {
	gathers, isGatherer := u.owned.(event.Gatherer)
	isGatherer = isGatherer && len(u.pending) == 0 // a stored batch is exactly what it was
	if isGatherer {
		if end, over := u.gather(ctx, gathers, now); over {
			return end, true
		}
	}
	if u.cur == nil && (u.next == nil || !u.next.open) {
		u.cur, u.next = u.next, nil
		if u.cur == nil && !isGatherer {
			u.cur = u.cut(now, false)
		}
		if u.cur != nil {
			u.cur.since = now
		}
	}
	if u.cur == nil {
		return 0, false
	}
	if !u.cur.applying {
		if u.cur.prepared == nil && !now.Before(u.cur.retryAt) {
			if end, over := u.prepare(ctx, u.cur); over {
				return end, true
			}
		}
		if u.cur.prepared != nil {
			u.send(ctx)
		}
	}
	u.markSlow(now.Sub(u.cur.since) > slowAfter)
	if u.cur.applying {
		if u.next == nil && !isGatherer {
			u.next = u.cut(now, true)
		}
		// One that waits for a layout waits until nothing is applied: then the layout is loaded.
		if u.next != nil && u.next.prepared == nil && !u.next.newer {
			return u.prepare(ctx, u.next)
		}
	}
	return 0, false
}

// send has the current batch applied by a goroutine of its own, which own waits for.
func (u *unit) send(ctx context.Context) {
	f := u.cur
	f.applying = true
	if f.sent.IsZero() {
		f.sent = time.Now()
	}
	go func() {
		rejected, err := u.apply(ctx, f)
		u.results <- result{rejected, err}
	}()
}

// apply tries until the outcome is known: an outage lasts as long as it lasts.
func (u *unit) apply(ctx context.Context, f *flight) ([]event.Rejected, error) {
	retry := backoff{first: 50 * time.Millisecond, max: u.loop.opts.BackoffMax}
	for {
		rejected, err := f.prepared.Apply(ctx)
		if err == nil {
			u.outage.over(doingApply)
			return rejected, nil
		}
		if ctx.Err() != nil {
			return nil, errStopped
		}
		if _, rewound := errors.AsType[*event.Rewound](err); rewound {
			return nil, err
		}
		if _, newer := errors.AsType[*event.NewerLayout](err); newer {
			return nil, err
		}
		switch fault.ClassOf(err) {
		case fault.Transient, fault.Unknown:
		default:
			return nil, err
		}
		u.outage.note(doingApply, err)
		if !u.pause(ctx, retry.next()) {
			return nil, errStopped
		}
	}
}

// prepare has the sink decode and encode a batch.
func (u *unit) prepare(ctx context.Context, f *flight) (ending, bool) {
	if f.newer {
		u.reload(ctx)
	}
	prepared, err := u.owned.Prepare(f.batch)
	if newer, ok := errors.AsType[*event.NewerLayout](err); ok {
		f.newer = true
		if f == u.cur { // tried already, or first seen with nothing in flight
			f.retryAt = time.Now().Add(f.retry.next())
		}
		u.outage.note(doingPrepare, &fault.Error{Code: "SL6009", Class: fault.Transient, Err: err,
			What: newer.Error(),
			Why:  "the event waits; it is neither skipped nor a dead letter",
			Do:   "slotline apply with the newer file, if that was not done; the sink then loads the layout by itself"})
		return 0, false
	}
	if err != nil {
		return u.haltAll(ctx, asFault(err)), true
	}
	if f.newer {
		f.newer = false
		u.outage.over(doingPrepare)
		u.outage.over(doingReload)
	}
	f.prepared = prepared
	return 0, false
}

// reload has the sink given the layout in force.
func (u *unit) reload(ctx context.Context) {
	reload := u.loop.opts.Reload
	if reload == nil {
		return
	}
	if err := reload(ctx); err != nil && ctx.Err() == nil {
		u.outage.note(doingReload, err)
	}
}

// finish deals with the outcome of the current batch.
func (u *unit) finish(ctx context.Context, r result) (ending, bool) {
	f := u.cur
	if rewound, ok := errors.AsType[*event.Rewound](r.err); ok {
		u.rewind(rewound.Positions)
		return 0, false
	}
	if _, newer := errors.AsType[*event.NewerLayout](r.err); f.gathered && (newer || len(r.rejected) > 0) {
		return u.haltAll(ctx, &fault.Error{Code: "SL6007", Class: fault.Fatal,
			What: fmt.Sprintf("sink %s rejects events that it took as good", u.loop.sink.Name()),
			Do:   "report this: it is a bug of the sink"}), true
	}
	if _, ok := errors.AsType[*event.NewerLayout](r.err); ok {
		f.prepared, f.newer = nil, true
		u.forgetNext()
		return 0, false
	}
	switch {
	case errors.Is(r.err, errStopped):
		return endStopped, true
	case fault.Is(r.err, fault.Fenced):
		return endFenced, true
	case r.err != nil:
		return u.haltAll(ctx, asFault(r.err)), true
	case len(r.rejected) > 0:
		if err := u.bury(ctx, f, r.rejected); errors.Is(err, errStopped) {
			return endStopped, true
		} else if err != nil {
			end := u.haltAll(ctx, asFault(err))
			if fault.CodeOf(err) == codeFlood {
				end = endFlooded
			}
			return end, true
		}
		f.prepared = nil
		u.forgetNext()
		return 0, false
	}
	u.applied(ctx, f)
	u.cur = nil
	return 0, false
}

// forgetNext keeps to what sinks are promised: when a batch is prepared again, the one after it is too.
func (u *unit) forgetNext() {
	if u.next != nil && !u.next.gathered {
		u.next.prepared = nil
	}
}

// applied records that a batch and its progress are committed.
func (u *unit) applied(ctx context.Context, f *flight) {
	rows, bytes := f.prepared.Size()
	u.loop.metrics.applied(rows, bytes)
	u.tell(f)
	u.pending, u.moved = nil, true
	u.outage.over(doingRead)
	for i, r := range f.batch.Ranges {
		p := f.parts[i]
		p.member.at = event.Position{Partition: r.Partition, Next: r.To, LeaderEpoch: r.LeaderEpoch, TopicID: r.TopicID}
		p.stream.passed(r.To)
		p.member.reread.reset()
		if p.member.halted { // what it read before is applied; that ended the record, and not the reason
			u.halt(ctx, p.member.why, p.member.at)
		} else {
			p.member.resumed = true // the batch ended the record
			u.goesOn(p.member.at)
		}
		u.loop.noteApplied(p.member.at)
	}
	u.markSlow(false)
	u.drop(f)
}

// drop gives back the memory of a batch that is applied or will not be.
func (u *unit) drop(f *flight) {
	if f == nil {
		return
	}
	for _, p := range f.parts {
		u.loop.reader.release(p.stream, p.bytes)
	}
}

// dropAll forgets all batches.
func (u *unit) dropAll() {
	u.drop(u.cur)
	u.drop(u.next)
	u.drop(u.aside)
	u.cur, u.next, u.aside = nil, nil, nil
}

// rewind goes back to where the sink stands: its database was restored.
func (u *unit) rewind(to []event.Position) {
	u.dropAll()
	for _, m := range u.members {
		for _, p := range to {
			if p.Partition != m.at.Partition {
				continue
			}
			u.loop.log.Warn("the sink's progress went back; reading again from there",
				"topic", p.Topic, "partition", p.Number, "from", m.at.Next, "to", p.Next)
			m.at = p
		}
		// All of them: what was cut of the others and not applied is read again as well.
		u.stopReading(m)
	}
}

func (u *unit) markSlow(slow bool) {
	for _, m := range u.members {
		if m.stream != nil {
			m.stream.mu.Lock()
			m.stream.slow = slow
			m.stream.mu.Unlock()
		}
	}
}

// asFault makes an error that a person can act on of whatever a sink returned.
func asFault(err error) *fault.Error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	return &fault.Error{Code: "SL6008", Class: fault.Fatal, Err: err, What: err.Error()}
}

// plan locks the queues that are read and plans the next cut; the caller unlocks.
func (u *unit) plan(now time.Time, limits Limits) (cutPlan, func()) {
	var queues []*queue
	var locked []*stream
	for _, m := range u.members {
		if m.stream != nil {
			m.stream.mu.Lock()
			locked = append(locked, m.stream)
			queues = append(queues, &m.stream.q)
		}
	}
	unlock := func() {
		for _, s := range locked {
			s.mu.Unlock()
		}
	}
	if len(queues) == 0 {
		return cutPlan{}, unlock
	}
	return planCut(queues, limits, now, u.turn), unlock
}

// cut makes the next batch, or returns nil. onlyFull: another is being applied, so what is not full can grow.
func (u *unit) cut(now time.Time, onlyFull bool) *flight {
	if len(u.pending) > 0 {
		if onlyFull {
			return nil // the stored batch is applied alone
		}
		return u.cutPending()
	}
	plan, unlock := u.plan(now, u.loop.batch)
	defer unlock()
	if plan.take == nil || onlyFull && !plan.full {
		return nil
	}
	return u.take(plan)
}

// take makes a batch as planned, of queues that are locked; nil of nothing.
func (u *unit) take(plan cutPlan) *flight {
	u.turn++
	n := 0
	for _, t := range plan.take {
		n += t
	}
	f := &flight{batch: &event.Batch{Messages: make([]event.Message, 0, n)}, retry: u.newRetry()}
	i := 0
	for _, m := range u.members {
		if m.stream == nil {
			continue
		}
		if m.stream.q.takes(plan.take[i]) {
			f.add(m, plan.take[i])
		}
		i++
	}
	if len(f.batch.Ranges) == 0 {
		return nil
	}
	return f
}

func (u *unit) newRetry() backoff {
	return backoff{first: 100 * time.Millisecond, max: u.loop.opts.BackoffMax}
}

// add takes n messages of the member's queue, whose lock is held.
func (f *flight) add(m *member, n int) {
	q := &m.stream.q
	oldest := q.oldest()
	r, messages, bytes := q.take(f.batch.Messages, n)
	r.TopicID = m.stream.topicID
	f.batch.Messages = messages
	f.batch.Ranges = append(f.batch.Ranges, r)
	f.parts = append(f.parts, flightPart{member: m, stream: m.stream, bytes: bytes})
	m.stream.cuts = append(m.stream.cuts, cut{r.To, oldest})
}

// cutPending makes the batch of a stored intent: exactly its ranges. nil while they are still being read.
func (u *unit) cutPending() *flight {
	var queues []*queue
	for _, m := range u.members {
		if m.stream == nil {
			return nil
		}
		m.stream.mu.Lock()
		defer m.stream.mu.Unlock()
		queues = append(queues, &m.stream.q)
	}
	take, done := planPending(queues, u.pending)
	if !done {
		return nil
	}
	f := &flight{batch: &event.Batch{}, retry: u.newRetry()}
	for _, r := range u.pending {
		for i, m := range u.members {
			if m.at.Partition == r.Partition {
				f.add(m, take[i])
				f.batch.Ranges[len(f.batch.Ranges)-1] = r
				m.stream.q.next = r.To
				m.stream.cuts[len(m.stream.cuts)-1].to = r.To
			}
		}
	}
	return f
}
