package consumers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/kafka"
)

// unit is what is owned as a whole: one partition of the group, or one fixed group. Its goroutine (run) alone touches
// what is below the line.
type unit struct {
	loop     *loop
	log      *slog.Logger
	parts    []event.Partition
	before   <-chan struct{} // the unit that had these partitions before; nil: none. It must have ended first
	ours     func(ctx context.Context) (bool, error)
	idle     time.Duration // between tries to take over what another owns
	wake     chan struct{}
	stopping chan struct{} // closed: finish what is in flight, then end
	stopOnce sync.Once
	abandon  context.CancelFunc // end now, whatever is in flight
	done     chan struct{}

	// ——— run's own
	owned   Owned
	members []*member
	pending []event.Range // of an intent that an earlier owner stored: the first batch
	cur     *flight       // the batch that is next to be applied, or being applied
	next    *flight       // the one after it
	results chan result
	turn    int // which queue the next cut serves first
	outage  outages
}

// member is one partition of an owned unit.
type member struct {
	at      event.Position // applied up to here
	stream  *stream        // nil while it is not read
	halted  bool
	retryAt time.Time // when to ask the leader again
	retry   backoff
}

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
}

type flightPart struct {
	member *member
	stream *stream // that it was cut from; the member may have another by now
	bytes  int64
	oldest time.Time // when its first message was written
}

type result struct {
	rejected []event.Rejected
	err      error
}

// How the ownership of a unit ended.
type ending uint8

const (
	endStopped ending = iota // asked to stop, or abandoned
	endFenced                // another owner took over
	endAgain                 // take over again at once: the lease was lost, or a halted partition is due for another try
	endHalted                // every partition is halted
	endFlooded               // the same, and only a restart may try again
)

// errStopped ends a retry because the unit is asked to stop.
var errStopped = errors.New("stopped")

// run takes the unit over, again and again, until it is stopped or ctx ends.
func (u *unit) run(ctx context.Context) {
	defer close(u.done)
	if u.before != nil {
		<-u.before
	}
	fences := backoff{first: 250 * time.Millisecond, max: 30 * time.Second}
	for {
		if !u.takeOver(ctx, &fences) {
			return
		}
		began := time.Now()
		end := u.own(ctx)
		u.letGo(ctx)
		if time.Since(began) > time.Minute {
			fences.reset()
		}
		switch end {
		case endStopped:
			return
		case endFenced:
			u.log.Info("fenced: another owner took over")
			if !u.confirmOurs(ctx, &fences) {
				return
			}
		case endAgain:
			if time.Since(began) < u.idle && !u.pause(ctx, u.idle) { // a lease that is lost at once must not make epochs storm
				return
			}
		case endHalted:
			if !u.pause(ctx, u.loop.opts.HaltRetry) {
				return
			}
		case endFlooded:
			u.pause(ctx, 0)
			return
		}
	}
}

// pause waits for d, or for ever if d is 0; false when the unit is to end.
func (u *unit) pause(ctx context.Context, d time.Duration) bool {
	var due <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-u.stopping:
		return false
	case <-due:
		return true
	}
}

// stop asks the unit to finish what is in flight and end.
func (u *unit) stop() { u.stopOnce.Do(func() { close(u.stopping) }) }

// takeOver makes the unit ours; false when it is to end.
func (u *unit) takeOver(ctx context.Context, fences *backoff) bool {
	// A stop ends the statement under way: it may wait for a lock.
	take, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-u.stopping:
			cancel()
		case <-take.Done():
		}
	}()
	retry := backoff{first: 100 * time.Millisecond, max: u.loop.opts.BackoffMax}
	for {
		if take.Err() != nil {
			return false
		}
		owned, err := u.loop.sink.TakeOver(take, u.parts)
		if err == nil {
			u.outage.over(doingTakeOver)
			u.loop.metrics.takeOvers.Inc()
			u.owned, u.pending = owned, owned.Pending()
			u.members = nil
			for _, p := range owned.Positions() {
				u.members = append(u.members, &member{at: p, retry: backoff{first: 100 * time.Millisecond, max: u.loop.opts.BackoffMax}})
				u.log.Info("took over", "topic", p.Topic, "partition", p.Number, "offset", p.Next)
			}
			return true
		}
		if take.Err() != nil {
			return false
		}
		wait := retry.next()
		switch fault.ClassOf(err) {
		case fault.Fenced:
			if u.ours == nil {
				wait = u.idle
				u.log.Debug("another owner has it", "error", err)
				break
			}
			if !u.confirmOurs(take, fences) {
				return false
			}
			wait = 0
		case fault.Fatal, fault.Usage, fault.Data:
			for _, p := range u.parts {
				u.halt(ctx, event.Position{Partition: p}, asFault(err))
			}
			wait = u.loop.opts.HaltRetry
		default:
			u.outage.note(doingTakeOver, err)
		}
		if wait > 0 && !u.pause(take, wait) {
			return false
		}
	}
}

// confirmOurs waits until a fresh heartbeat says that the unit is still assigned to us: a late bump of the owner epoch
// by a former owner must not leave the partition without one, and two owners must not chase each other. The pause
// before grows. False when the unit is to end.
func (u *unit) confirmOurs(ctx context.Context, fences *backoff) bool {
	for {
		if !u.pause(ctx, fences.next()) {
			return false
		}
		if u.ours == nil {
			return true
		}
		ours, err := u.ours(ctx)
		if err != nil {
			u.outage.note(doingConfirm, err)
			continue
		}
		u.outage.over(doingConfirm)
		if ours {
			return true
		}
		u.log.Debug("no longer assigned; waiting for the group to say so")
	}
}

// letGo ends the ownership: nothing is read, nothing is held, and a successor need not wait.
func (u *unit) letGo(ctx context.Context) {
	for _, m := range u.members {
		u.stopReading(m)
	}
	u.drop(u.cur)
	u.drop(u.next)
	u.cur, u.next, u.members = nil, nil, nil
	// Also when abandoned: whoever comes next is let in at once instead of after the lease.
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := u.owned.Release(end); err != nil {
		u.log.Debug("could not release; the successor takes over all the same", "error", err)
	}
	u.owned = nil
}

// releaseTimeout bounds the courtesy of letting a successor in early.
const releaseTimeout = 2 * time.Second

// own reads and applies until the ownership ends.
func (u *unit) own(ctx context.Context) ending {
	work, cancel := context.WithCancel(ctx)
	u.results = make(chan result, 1)
	defer func() {
		cancel()
		if u.cur != nil && u.cur.applying {
			<-u.results // the sink is not called by two goroutines, and none outlives its owner
		}
	}()
	var again <-chan time.Time
	due := false // to take over again, as soon as nothing is in flight
	lost, stopping := u.owned.Lost(), u.stopping
	for {
		busy := u.cur != nil && u.cur.applying
		if stopping == nil && !busy {
			return endStopped
		}
		if due && !busy {
			return endAgain
		}
		if stopping != nil && !due {
			if end, over := u.step(work, time.Now()); over {
				return end
			}
		}
		if again == nil && slices.ContainsFunc(u.members, func(m *member) bool { return m.halted }) {
			again = time.After(u.loop.opts.HaltRetry)
		}
		timer := time.NewTimer(u.nextLook(time.Now()))
		select {
		case <-ctx.Done():
			timer.Stop()
			return endStopped
		case <-stopping:
			stopping = nil
		case <-lost:
			timer.Stop()
			u.log.Warn("the lease ran out")
			return endAgain
		case <-again:
			due = true
		case r := <-u.results:
			u.cur.applying = false
			if end, over := u.finish(work, r); over {
				timer.Stop()
				return end
			}
		case <-u.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// step does what can be done now without waiting for the batch in flight.
func (u *unit) step(ctx context.Context, now time.Time) (ending, bool) {
	if err := u.askLeaders(ctx, now); err != nil {
		return endStopped, true
	}
	if u.cannotGoOn(ctx) {
		// What is in flight was read before, and is finished.
		return endHalted, u.cur == nil || !u.cur.applying
	}
	return u.advance(ctx, now)
}

// nextLook is how long own may sleep if nothing wakes it.
func (u *unit) nextLook(now time.Time) time.Duration {
	at := now.Add(time.Minute)
	sooner := func(t time.Time) {
		if !t.IsZero() && t.Before(at) {
			at = t
		}
	}
	for _, m := range u.members {
		if m.stream == nil && !m.halted {
			sooner(m.retryAt)
		}
	}
	if f := u.cur; f != nil {
		if now.Before(f.since.Add(slowAfter)) {
			sooner(f.since.Add(slowAfter)) // to tell the throttle
		}
		if !f.applying {
			sooner(f.retryAt)
		}
	} else if len(u.pending) == 0 {
		plan, unlock := u.plan(now)
		unlock()
		sooner(plan.at)
	}
	return max(0, at.Sub(now))
}

// advance cuts, prepares and sends what can be.
func (u *unit) advance(ctx context.Context, now time.Time) (ending, bool) {
	if u.cur == nil {
		u.cur, u.next = u.next, nil
		if u.cur == nil {
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
		if u.next == nil {
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
		if reload := u.loop.opts.Reload; reload != nil {
			if err := reload(ctx); err != nil && ctx.Err() == nil {
				u.outage.note(doingReload, err)
			}
		}
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

// finish deals with the outcome of the current batch.
func (u *unit) finish(ctx context.Context, r result) (ending, bool) {
	f := u.cur
	if rewound, ok := errors.AsType[*event.Rewound](r.err); ok {
		u.rewind(rewound.Positions)
		return 0, false
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
	u.applied(f)
	u.cur = nil
	return 0, false
}

// forgetNext keeps to what sinks are promised: when a batch is prepared again, the one after it is too.
func (u *unit) forgetNext() {
	if u.next != nil {
		u.next.prepared = nil
	}
}

// applied records that a batch and its progress are committed.
func (u *unit) applied(f *flight) {
	rows, bytes := f.prepared.Size()
	u.loop.metrics.applied(rows, bytes)
	u.pending = nil
	for i, r := range f.batch.Ranges {
		p := f.parts[i]
		p.member.at = event.Position{Partition: r.Partition, Next: r.To, LeaderEpoch: r.LeaderEpoch, TopicID: r.TopicID}
		p.stream.mu.Lock()
		p.stream.applied, p.stream.oldest = r.To, p.stream.q.oldest()
		p.stream.mu.Unlock()
		if u.loop.halts.clear(r.Partition) {
			u.log.Info("the partition goes on", "topic", r.Topic, "partition", r.Number, "offset", r.To)
		}
		u.loop.noteApplied(p.member.at)
	}
	if u.next != nil {
		for _, p := range u.next.parts {
			p.stream.mu.Lock()
			p.stream.oldest = p.oldest
			p.stream.mu.Unlock()
		}
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

// rewind goes back to where the sink stands: its database was restored.
func (u *unit) rewind(to []event.Position) {
	u.drop(u.cur)
	u.drop(u.next)
	u.cur, u.next = nil, nil
	for _, m := range u.members {
		for _, p := range to {
			if p.Partition != m.at.Partition {
				continue
			}
			u.log.Warn("the sink's progress went back; reading again from there",
				"topic", p.Topic, "partition", p.Number, "from", m.at.Next, "to", p.Next)
			m.at = p
		}
		// All of them: what was cut of the others and not applied is read again as well.
		u.stopReading(m)
	}
}

func (u *unit) stopReading(m *member) {
	if m.stream != nil {
		u.loop.reader.remove(m.stream)
		m.stream = nil
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
func (u *unit) plan(now time.Time) (cutPlan, func()) {
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
	return planCut(queues, u.loop.batch, now, u.turn), unlock
}

// cut makes the next batch, or returns nil. onlyFull: another is being applied, so what is not full can grow.
func (u *unit) cut(now time.Time, onlyFull bool) *flight {
	if len(u.pending) > 0 {
		if onlyFull {
			return nil // the stored batch is applied alone
		}
		return u.cutPending()
	}
	plan, unlock := u.plan(now)
	defer unlock()
	if plan.take == nil || onlyFull && !plan.full {
		return nil
	}
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
	f.parts = append(f.parts, flightPart{member: m, stream: m.stream, bytes: bytes, oldest: oldest})
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
			}
		}
	}
	return f
}

// errPartitionGone is an answer that knows no such topic or partition. It is an outage until the topic comes back, and
// then its id tells whether it is the same one.
func errPartitionGone(p event.Partition) error {
	return &fault.Error{Code: "SL6011", Class: fault.Transient,
		What: p.Topic + " is not there (or not this partition of it)",
		Why:  "somebody deleted it, or the brokers do not tell of it yet",
		Do:   "find out who deleted the topic; the sinks hold what they applied"}
}

// askLeaders asks how the logs of partitions stand that are not read yet, or whose leader changed, or whose reading
// failed; and begins, goes on, or halts accordingly.
func (u *unit) askLeaders(ctx context.Context, now time.Time) error {
	var ask []event.Position
	var of []*member
	for _, m := range u.members {
		if m.halted || now.Before(m.retryAt) {
			continue
		}
		at, needed := m.question()
		if needed {
			ask, of = append(ask, at), append(of, m)
		}
	}
	if len(ask) == 0 {
		return nil
	}
	logs, err := kafka.Inspect(ctx, u.loop.reader.cl, ask)
	for i, m := range of {
		l, failed := logs[ask[i].Partition], err
		switch {
		case failed != nil:
		case l.Err != nil:
			failed = l.Err
		case l.Gone:
			failed = errPartitionGone(ask[i].Partition)
		}
		if failed != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			m.retryAt = time.Now().Add(m.retry.next())
			u.outage.note(doingAsk, failed)
			continue
		}
		m.retryAt, m.retry.tries = time.Time{}, 0
		why := judge(ask[i], l)
		if why == nil {
			why = m.loss()
		}
		if why == nil {
			why = u.pendingGone(ask[i].Partition, l)
		}
		if why != nil {
			u.stopReading(m)
			m.halted = true
			u.halt(ctx, ask[i], why)
			continue
		}
		if u.loop.halts.clearVerdict(ask[i].Partition) {
			u.log.Info("the log continues what was applied; the partition goes on", "topic", m.at.Topic, "partition", m.at.Number)
		}
		u.goOn(m, ask[i], l)
	}
	if err == nil {
		u.outage.over(doingAsk)
	}
	return nil
}

// cannotGoOn says that every partition is halted, or that the batch that must come first cannot be read.
func (u *unit) cannotGoOn(ctx context.Context) bool {
	halted := 0
	for _, m := range u.members {
		if m.halted {
			halted++
		}
	}
	if halted == 0 || halted < len(u.members) && len(u.pending) == 0 {
		return false
	}
	for _, m := range u.members {
		if !m.halted {
			m.halted = true
			u.halt(ctx, m.at, &fault.Error{Code: "SL6012", Class: fault.Fatal,
				What: "a batch that was stored, and perhaps sent, cannot be read again: another partition of its group is halted",
				Do:   "see that partition; this one goes on with it"})
		}
	}
	return true
}

// question says whether the leader must be asked about the member, and of which position.
func (m *member) question() (event.Position, bool) {
	if m.stream == nil {
		return m.at, true
	}
	s := m.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	_, blocked := s.q.blocked()
	at := event.Position{Partition: s.part, Next: s.q.next, LeaderEpoch: s.q.epoch, TopicID: s.topicID}
	return at, blocked || s.recheck || s.trouble != nil
}

// loss is what the client found out by itself and would go on from.
func (m *member) loss() *fault.Error {
	if m.stream == nil {
		return nil
	}
	m.stream.mu.Lock()
	err := m.stream.trouble
	m.stream.mu.Unlock()
	if lost, ok := errors.AsType[*kgo.ErrDataLoss](err); ok {
		return cutFault(event.Position{Partition: m.at.Partition, Next: lost.ConsumedTo, LeaderEpoch: lost.ConsumedToEpoch}, lost.ResetTo)
	}
	if big, ok := errors.AsType[*kgo.ErrDecompressTooLarge](err); ok {
		return &fault.Error{Code: "SL6013", Class: fault.Fatal, Err: err,
			What: fmt.Sprintf("the record batch at offset %d is larger than memory allows. Nothing was skipped.", big.Offset),
			Why:  "the relay writes no such batch: another program wrote into the topic",
			Do:   "find that program; slotline sink accept-gap goes past its batch and records who and why"}
	}
	return nil
}

// pendingGone says that a stored batch reaches beyond the log.
func (u *unit) pendingGone(p event.Partition, l kafka.Log) *fault.Error {
	for _, r := range u.pending {
		if r.Partition == p && r.To > l.End {
			return cutFault(event.Position{Partition: p, Next: r.To, LeaderEpoch: r.LeaderEpoch}, l.End)
		}
	}
	return nil
}

// goOn begins to read, or goes on after the leader's log was found to continue what was applied.
func (u *unit) goOn(m *member, at event.Position, l kafka.Log) {
	if s := m.stream; s != nil {
		s.mu.Lock()
		failed := s.trouble
		s.recheck = false
		if epoch, blocked := s.q.blocked(); blocked {
			s.q.unblock(epoch)
		}
		s.mu.Unlock()
		if failed == nil {
			return
		}
		// The client gave up on the partition, but its log is as it should be.
		u.outage.note(doingRead, failed)
		u.loop.reader.remove(s)
	}
	m.stream = newStream(at, l, u.wake)
	u.loop.reader.add(m.stream)
}
