package consumers

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
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
	aside   *flight       // the one after that: it was to be added to next and could not
	results chan result
	turn    int // which queue the next cut serves first
	outage  outages

	moved       bool      // a batch was applied since the take-over
	resumeAt    time.Time // when to try again to end the record of halts; zero: no try has failed
	resumeRetry backoff
	unrecorded  string // why a halt could not be recorded, as the log has it
}

// member is one partition of an owned unit.
type member struct {
	at      event.Position // applied up to here
	stream  *stream        // nil while it is not read
	halted  bool
	why     *fault.Error // that it is halted
	resumed bool         // nothing says any more that it is halted
	retryAt time.Time    // when to ask the leader again
	retry   backoff      // of the question
	reread  backoff      // of reading
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
			u.log.Info("fenced: another owner took over, or the progress was set back")
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
	refused := false          // the sink said that a person must act, and has not got farther since
	var othersSince time.Time // another process has the group
	for {
		if take.Err() != nil {
			return false
		}
		owned, err := u.loop.sink.TakeOver(take, u.parts)
		if err == nil {
			u.outage.over(doingTakeOver)
			u.outage.over(doingReload)
			u.loop.metrics.takeOvers.Inc()
			u.owned, u.pending, u.moved = owned, owned.Pending(), false
			u.members, u.resumeAt, u.resumeRetry = nil, time.Time{}, u.newRetry()
			for _, p := range owned.Positions() {
				u.members = append(u.members, &member{at: p, retry: u.newRetry(), reread: u.newRetry()})
				u.loop.log.Info("took over", "topic", p.Topic, "partition", p.Number, "offset", p.Next)
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
				if othersSince.IsZero() {
					othersSince = time.Now()
				}
				// Not sooner: one that is halted as we are gives the group back after each try.
				if time.Since(othersSince) > u.loop.opts.HaltRetry {
					u.leave(take, refused)
				}
				break
			}
			if !u.confirmOurs(take, fences) {
				return false
			}
			wait = 0
		case fault.Fatal, fault.Usage, fault.Data:
			var at []event.Position
			for _, p := range u.parts {
				at = append(at, event.Position{Partition: p})
			}
			u.halt(ctx, asFault(err), at...)
			refused, othersSince = true, time.Time{}
			wait = u.loop.opts.HaltRetry
		default:
			if _, newer := errors.AsType[*event.NewerLayout](err); newer {
				u.reload(take)
			}
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
	u.dropAll()
	u.members = nil
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
			if _, ok := u.loop.sink.(Unleased); ok {
				return endFenced
			}
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
	u.endHalts(ctx, now)
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
		if !m.halted {
			sooner(m.retryAt)
		}
	}
	sooner(u.resumeAt)
	if f := u.cur; f != nil {
		if now.Before(f.since.Add(slowAfter)) {
			sooner(f.since.Add(slowAfter)) // to tell the throttle
		}
		if !f.applying {
			sooner(f.retryAt)
		}
	} else if len(u.pending) == 0 {
		plan, unlock := u.plan(now, u.loop.batch)
		unlock()
		sooner(plan.at)
		if u.next != nil {
			sooner(u.next.due)
		}
	}
	return max(0, at.Sub(now))
}

func (u *unit) stopReading(m *member) {
	if m.stream != nil {
		u.loop.reader.remove(m.stream)
		m.stream = nil
	}
}
