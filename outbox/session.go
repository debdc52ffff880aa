package outbox

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/lease"
)

const (
	// callTimeout bounds one statement or request of a session: longer than any lock is waited for.
	callTimeout = 60 * time.Second
	// deadLoggedMax dead letters of a batch are logged one by one.
	deadLoggedMax = 5
)

// session is one ownership of one lane: a reader, a Writer and a flow between them. All its fields belong to the
// goroutine of run; the goroutines that it starts answer through channels, and end before it does.
type session struct {
	relay  *Relay
	lane   int
	held   *lease.Held
	log    *slog.Logger
	stats  *laneStats
	router *router
	writer Writer
	gens   generations
	flow   *flow
	flood  flood
	// suspect says why the last session of this ownership found that the database went back; "" if it did not.
	suspect     string
	purger      *purger
	purgeWarned time.Time    // of keepPartitions
	away        sync.RWMutex // the purger's
	// refusal is the fault of a partition that needs a person, while ids are parked; noted is what of it is stored.
	refusal, noted *fault.Error
	notes          chan error
	noting         bool
	lastNote       time.Time

	lastSave, lastEnds time.Time
	saveFailures       int
	saves              chan error
	fetches            chan fetched
	ends               chan endsAnswer
	asking             bool // ends were asked for
	busy               int  // goroutines under way
	answers            []Answer
	// counters of earlier ownerships of this relay
	published, found, dead uint64
}

type fetched struct {
	partition int
	ids       []uint64
	items     []*item
	err       error
}

type endsAnswer struct {
	marks map[int]uint64
	ends  map[event.Partition]int64
	err   error
}

// run works until ctx ends (it drains then, and returns nil), the lease is lost, or something fails. work outlives ctx.
func (s *session) run(ctx, work context.Context) (err error) {
	o := s.relay.o
	work, stop := context.WithCancel(work)
	defer stop()
	writer, err := o.NewWriter(s.lane)
	if err != nil {
		return fmt.Errorf("outbox lane %02d: %w", s.lane, err)
	}
	s.writer = writer
	defer writer.Close()
	// A producer whose lease has run out must fall silent at once, whatever this goroutine is doing.
	silenced := make(chan struct{})
	go func() {
		defer close(silenced)
		select {
		case <-s.held.Lost():
			writer.Close()
		case <-work.Done():
		}
	}()
	defer func() { stop(); <-silenced }()
	lost, endLost := lostContext(ctx, s.held)
	defer endLost()
	orders := make(chan purgeOrder)
	s.purger = &purger{db: o.DB, lane: s.lane, alive: s.held.Alive, log: s.log, away: &s.away, orders: orders}
	r, f, err := s.takeOver(lost)
	if err != nil {
		return err
	}
	r.orders = orders
	s.flow = f
	s.flood = flood{max: o.Config.Dead.HaltPerMinute}
	s.saves, s.fetches, s.ends, s.notes = make(chan error, 1), make(chan fetched, 1), make(chan endsAnswer, 1), make(chan error, 1)
	now := time.Now()
	s.stats.update(func(st *LaneStatus) {
		st.Owner, st.Since, st.Err = s.relay.owner, now, nil
		s.published, s.found, s.dead = st.Published, st.Found, st.Dead
	})

	reading, stopReading := context.WithCancel(work)
	batches, readEnded := make(chan *readBatch), make(chan error, 1)
	go func() { readEnded <- r.run(reading, batches) }()
	keeping := make(chan struct{})
	go func() { defer close(keeping); s.keepPartitions(work) }()
	defer func() {
		stopReading()
		stop()
		if readEnded != nil {
			<-readEnded
		}
		<-keeping
		for ; s.busy > 0; s.busy-- {
			select {
			case <-s.saves:
			case <-s.fetches:
			case <-s.ends:
			case <-s.notes:
			}
		}
	}()

	flightBytes := batchesMax * r.batchSize // of records that wait for answers: a partition may stall
	var draining <-chan time.Time
	ending := ctx.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		in := batches
		if draining != nil || f.full(flightBytes) {
			in = nil
		}
		select {
		case b := <-in:
			if err := s.accept(b); err != nil {
				return err
			}
		case <-writer.Ready():
			if err := s.takeAnswers(); err != nil {
				return err
			}
		case err := <-s.saves:
			s.busy--
			if err := s.saveEnded(err); err != nil {
				return err
			}
		case got := <-s.fetches:
			s.busy--
			s.fetchEnded(got)
		case got := <-s.ends:
			s.busy--
			s.asking = false
			if got.err == nil {
				f.moveEnds(got.marks, got.ends)
			}
		case err := <-s.notes:
			s.busy--
			s.noting = false
			if err != nil {
				s.noted = nil // tried again
			}
		case err := <-readEnded:
			readEnded = nil
			if err != nil {
				return laneError(err, s.lane, "read rows")
			}
		case <-s.held.Lost():
			return &fault.Error{Code: codeLeaseLost, Class: fault.Fenced,
				What: fmt.Sprintf("outbox lane %02d: the lease is lost; its producer is closed", s.lane),
				Do:   "nothing if it happens once; else see whether this process is starved of CPU or cut off from the database"}
		case <-ending:
			ending = nil
			stopReading()
			draining = time.After(o.Timing.Drain)
		case <-draining:
			s.log.Warn("drain ends with events under way; the next owner finds them in the topic or sends them", "in_flight", f.inFlight())
			return nil
		case <-timer.C:
		}
		now := time.Now()
		f.tick(now)
		s.startFetch(work, now)
		s.startSave(work, now, draining != nil)
		s.askEnds(work, now)
		s.startNote(work, now)
		if draining != nil && f.idle() && f.inFlight() == 0 {
			return nil
		}
		timer.Reset(s.nextTimer(now))
	}
}

// lostContext ends when the lease is lost, or with ctx.
func lostContext(ctx context.Context, held *lease.Held) (context.Context, context.CancelFunc) {
	lost, cancel := context.WithCancel(ctx)
	go func() { // ends with lost
		select {
		case <-held.Lost():
			cancel()
		case <-lost.Done():
		}
	}()
	return lost, cancel
}

// nextTimer is how long the loop may sleep when nothing happens.
func (s *session) nextTimer(now time.Time) time.Duration {
	next := s.relay.o.Timing.Ends
	if s.flow.inFlight() > 0 || s.flow.anyParked() {
		next = min(next, 100*time.Millisecond)
	}
	if !s.flow.idle() && s.flow.sending == nil {
		next = min(next, max(time.Millisecond, s.relay.o.Timing.Save-now.Sub(s.lastSave)))
	}
	return next
}

func (s *session) accept(b *readBatch) error {
	now := time.Now()
	dead := 0
	for _, it := range b.items {
		if it.reason == "" {
			continue
		}
		if dead++; dead <= deadLoggedMax {
			s.log.Warn("dead letter", "id", it.id, "reason", it.reason, "error", it.detail)
		}
	}
	if dead > deadLoggedMax {
		s.log.Warn("more dead letters; all are in slotline_dead", "count", dead-deadLoggedMax)
	}
	if dead > 0 && s.flood.add(dead, now) {
		return &fault.Error{Code: codeDeadFlood, Class: fault.Fatal,
			What: fmt.Sprintf("outbox lane %02d: more than %d dead letters within a minute, the last: id %d, %s", s.lane,
				s.flood.max, lastDead(b.items).id, lastDead(b.items).detail),
			Why: "so many are the fault of a release, not of rows: nothing of this batch was passed",
			Do:  "run the relay with the file that the service was released with, or raise dead_letters.halt_per_minute to let them go"}
	}
	s.produce(s.flow.accept(b.items, b.after, now))
	return nil
}

func lastDead(items []*item) *item {
	for i := len(items) - 1; ; i-- {
		if items[i].reason != "" {
			return items[i]
		}
	}
}

func (s *session) produce(send []*item) {
	if len(send) == 0 {
		return
	}
	outs := make([]*Out, len(send))
	for i, it := range send {
		outs[i] = it.out
	}
	s.writer.Produce(outs)
}

// takeAnswers returns an error when the ownership is over.
func (s *session) takeAnswers() error {
	now := time.Now()
	s.answers = s.writer.Answers(s.answers[:0])
	for i := range s.answers {
		a := &s.answers[i]
		if errors.Is(a.Err, ErrProducerLost) {
			return a.Err
		}
		if a.Err != nil && s.flow.parts[a.Out.item.part].err == nil && !errors.Is(a.Err, ErrRecordTooLarge) {
			s.log.Warn("partition refuses; its ids are parked", "partition", partitionName(a.Out.Partition), "id", a.Out.item.id, "error", a.Err)
		}
		if f, ok := errors.AsType[*fault.Error](a.Err); ok && f.Class == fault.Fatal {
			s.refusal = f
		}
		s.flow.answered(a.Out.item, a.Offset, a.Err, now)
	}
	s.stats.update(func(st *LaneStatus) {
		for i := range s.answers {
			if s.answers[i].Err == nil {
				st.latency(now.Sub(s.answers[i].Out.item.created))
			}
		}
		st.Published, st.InFlight = s.published+s.flow.published, s.flow.inFlight()
	})
	s.tell(s.answers, now)
	clear(s.answers)
	return nil
}

// fillStatus is called after each save, that is seldom: it counts parked ids.
func (s *session) fillStatus(st *LaneStatus) {
	st.Cursor = s.flow.base.state.cursor
	st.Published, st.Found, st.Dead = s.published+s.flow.published, s.found+s.flow.found, s.dead+s.flow.dead
	st.InFlight, st.Refusals, st.Err = s.flow.inFlight(), s.flow.refusals(), nil
}

// startSave begins a save when there is something to store and the last one is long enough ago.
func (s *session) startSave(ctx context.Context, now time.Time, atOnce bool) {
	wait := s.relay.o.Timing.Save
	if s.saveFailures > 0 {
		wait = backoff(s.saveFailures, s.relay.o.Timing.RetryMin, s.relay.o.Timing.RetryMax)
	} else if atOnce {
		wait = 0
	}
	if now.Sub(s.lastSave) < wait {
		return
	}
	save := s.flow.save()
	if save == nil {
		return
	}
	s.lastSave = now
	s.busy++
	go func() { // owned by run, which waits for saves
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		if len(save.dead) > 0 { // their rows are copied from the lane table
			s.away.RLock()
			defer s.away.RUnlock()
		}
		s.saves <- saveLane(ctx, s.relay.o.DB, s.lane, s.held.Fence(), s.gens, s.router.names, save)
	}()
}

// saveEnded returns an error when the ownership is over.
func (s *session) saveEnded(err error) error {
	s.flow.saved(err == nil)
	if err == nil {
		s.saveFailures = 0
		s.stats.update(s.fillStatus)
		return nil
	}
	if errors.Is(err, errMoved) {
		return fmt.Errorf("outbox lane %02d: %w", s.lane, err)
	}
	err = laneError(err, s.lane, "save its cursor")
	if fault.Is(err, fault.Fatal) {
		return err
	}
	s.saveFailures++
	s.stats.failed(err)
	if s.saveFailures == 1 {
		s.log.Warn("cannot save the cursor, trying again", "error", err)
	}
	return nil
}

// startNote shows in the lane's row that a partition needs a person, and that it does no more: the lane itself goes on.
func (s *session) startNote(ctx context.Context, now time.Time) {
	if !s.flow.anyParked() {
		s.refusal = nil
	}
	if s.noting || (s.refusal == nil) == (s.noted == nil) || now.Sub(s.lastNote) < s.relay.o.Timing.RetryMin {
		return
	}
	s.noting, s.lastNote, s.noted = true, now, s.refusal
	statement, args := startLaneSQL, append([]any{s.lane}, s.held.Fence().Args()...)
	if f := s.refusal; f != nil {
		statement, args = haltLaneSQL, append([]any{f.Code, cutText(f.Error(), deadDetailBytesMax), s.lane}, s.held.Fence().Args()...)
	}
	s.busy++
	go func() { // owned by run, which waits for notes
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		_, err := s.relay.o.DB.ExecContext(ctx, statement, args...)
		s.notes <- err
	}()
}

// startFetch reads parked rows again whose partition may take them now.
func (s *session) startFetch(ctx context.Context, now time.Time) {
	partition, ids := s.flow.wanted(now)
	if partition < 0 {
		return
	}
	s.busy++
	go func() { // owned by run, which waits for fetches
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		items, err := s.fetch(ctx, ids)
		s.fetches <- fetched{partition, ids, items, err}
	}()
}

func (s *session) fetch(ctx context.Context, ids []uint64) ([]*item, error) {
	s.away.RLock() // rows that are not found are forgotten
	defer s.away.RUnlock()
	conn, err := s.relay.o.DB.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ranges := make([]idRange, len(ids))
	for i, id := range ids {
		ranges[i] = idRange{id, id}
	}
	var items []*item
	var a arena
	var row laneRow
	err = query(ctx, conn, readIDsSQL(s.lane, ranges, len(ids)), rowColumnCount, func(v []driver.Value) (bool, error) {
		if _, err := scanRow(v, &row, &a); err != nil {
			return false, err
		}
		items = append(items, s.router.item(&row, s.gens, &a))
		return true, nil
	})
	return items, err
}

func (s *session) fetchEnded(got fetched) {
	if got.err != nil {
		s.flow.refill(got.partition, nil, nil, time.Now())
		s.stats.failed(laneError(got.err, s.lane, "read parked rows"))
		return
	}
	send, vanished := s.flow.refill(got.partition, got.ids, got.items, time.Now())
	if len(vanished) > 0 {
		s.log.Error("parked rows are not in the database any more", "partition", partitionName(s.router.names[got.partition]), "ids", vanished)
	}
	s.produce(send)
}

// askEnds asks for the partitions' ends now and then, so that the scan of a take-over stays short.
func (s *session) askEnds(ctx context.Context, now time.Time) {
	if s.asking || now.Sub(s.lastEnds) < s.relay.o.Timing.Ends {
		return
	}
	marks := s.flow.quiet()
	if len(marks) == 0 {
		return
	}
	s.asking, s.lastEnds = true, now
	s.busy++
	go func() { // owned by run, which waits for ends
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		ends, err := s.writer.Ends(ctx, s.router.names)
		s.ends <- endsAnswer{marks, ends, err}
	}()
}
