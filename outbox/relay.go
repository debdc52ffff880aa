package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/lease"
	"github.com/slotline/slotline/partitioner"
)

// Options of a relay. All but Logger and Published are needed.
type Options struct {
	Config *config.Config
	Layout *partitioner.Layout // the one in force; SetLayout gives a newer one
	// DB is the outbox database, opened by internal/mysqldb: the primary, READ COMMITTED, UTC, clientFoundRows. Each
	// lane uses up to four connections at once.
	DB *sql.DB
	// NewWriter makes the Kafka writer of one lane and one ownership. The relay closes it.
	NewWriter func(lane int) (Writer, error)
	Logger    *slog.Logger
	// Published, if set, is told of what Kafka acknowledged, so that a trace can link to it. The goroutine that owns the
	// lane calls it: it must not block.
	Published func(Published)

	Timing Timing     // zero: the defaults; tests shorten it
	flow   flowLimits // zero: defaultFlowLimits
}

// Relay publishes the rows of its share of the lanes. Several relays may run: the lanes are spread evenly over those that
// are live, each lane has one owner, and the others take it over within a lease time of its end.
type Relay struct {
	o      Options
	owner  string
	wakes  []chan struct{}
	stats  []*laneStats
	claims *claims
	glance *glance

	layout atomic.Pointer[partitioner.Layout]
	laying sync.Mutex
	relaid chan struct{} // closed, and replaced, when layout changes; guarded by laying
}

// New makes a relay. It does no I/O.
func New(o Options) *Relay {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Timing == (Timing{}) {
		o.Timing = defaultTiming
		if d := o.Config.Limits.DrainTimeout; d > 0 {
			o.Timing.Drain = d
		}
	}
	if o.flow == (flowLimits{}) {
		o.flow = defaultFlowLimits
	}
	r := &Relay{o: o, owner: lease.NewOwner(), claims: newClaims(o.Config.Outbox.Lanes), relaid: make(chan struct{})}
	r.glance = newGlance(func(ctx context.Context, lanes []int) (map[int]uint64, error) {
		return lastIDs(ctx, o.DB, lanes)
	}, o.Timing.PollMax, r.Wake)
	r.layout.Store(o.Layout)
	for lane := range o.Config.Outbox.Lanes {
		r.wakes = append(r.wakes, make(chan struct{}, 1))
		r.stats = append(r.stats, newLaneStats(lane))
	}
	return r
}

// Wake tells the relay that a lane has new committed rows. It does not block; a lane that does not exist is ignored.
func (r *Relay) Wake(lane int) {
	if lane < 0 || lane >= len(r.wakes) {
		return
	}
	select {
	case r.wakes[lane] <- struct{}{}:
	default:
	}
}

// SetLayout takes a newer layout; one that is not newer is ignored. Each lane finishes what it has sent and goes on under
// the same lease, with partitions by the newer layout.
func (r *Relay) SetLayout(l *partitioner.Layout) {
	r.laying.Lock()
	defer r.laying.Unlock()
	if l.Epoch() <= r.layout.Load().Epoch() {
		return
	}
	r.layout.Store(l)
	close(r.relaid)
	r.relaid = make(chan struct{})
}

// untilRelaid is a context that ends with ctx, or when the layout changes.
func (r *Relay) untilRelaid(ctx context.Context) (context.Context, context.CancelFunc) {
	until, end := context.WithCancel(ctx)
	r.laying.Lock()
	relaid := r.relaid
	r.laying.Unlock()
	go func() { // ends with until
		select {
		case <-relaid:
			end()
		case <-until.Done():
		}
	}()
	return until, end
}

// Lanes says how each lane stands in this relay.
func (r *Relay) Lanes() []LaneStatus {
	list := make([]LaneStatus, len(r.stats))
	for i, s := range r.stats {
		list[i] = s.get()
	}
	return list
}

// Run publishes until ctx ends. Where other relays are live it goes on until they have seen that it leaves, two seconds
// at most; then it stops reading, waits for the answers to what it sent (for Limits.DrainTimeout at most), saves, and
// gives its lanes back. Outages are waited out. A lane that halts leaves the others running; Run returns the errors of
// halted lanes, at once when all have halted, and nil when none has.
func (r *Relay) Run(ctx context.Context) error {
	if err := r.waitReady(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	work, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	claiming, stop := context.WithCancel(ctx)
	left := make(chan struct{})
	p := &peers{db: r.o.DB, owner: r.owner, lease: r.o.Config.Outbox.LeaseTime, claims: r.claims, log: r.o.Logger,
		retry: r.o.Timing.LeaseRetry}
	go func() { // owned here: ends when ctx does, or with the last lane
		defer close(left)
		p.run(claiming, work)
		end()
	}()
	glanced := make(chan struct{})
	go func() { // owned here: ends with work
		defer close(glanced)
		r.glance.run(work)
	}()
	var wg sync.WaitGroup
	halts := make([]error, len(r.wakes))
	for lane := range r.wakes {
		wg.Go(func() { halts[lane] = r.runLane(work, lane) })
	}
	wg.Wait()
	stop()
	<-left
	end()
	<-glanced
	return errors.Join(halts...)
}

// waitReady checks the database once it answers.
func (r *Relay) waitReady(ctx context.Context) error {
	for failures := 1; ; failures++ {
		err := checkReady(ctx, r.o.DB, r.o.Config)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if c := fault.ClassOf(err); c == fault.Fatal || c == fault.Usage {
			return err
		}
		r.o.Logger.Warn("outbox database is not ready", "error", err)
		sleep(ctx, backoff(failures, r.o.Timing.RetryMin, r.o.Timing.RetryMax))
	}
}

// declineAfter failures in a row another relay shall try: a first one is often over at the second try.
const declineAfter = 3

// runLane owns a lane whenever it is this relay's, until ctx ends or the lane halts.
func (r *Relay) runLane(ctx context.Context, lane int) error {
	log, failures := r.o.Logger.With("lane", fmt.Sprintf("%02d", lane)), 0
	for {
		select {
		case mine := <-r.claims.given[lane]:
			if err := r.runClaim(mine, lane, log, &failures); err != nil {
				r.claims.giveUp(lane, forever)
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// runClaim owns a lane until ctx ends, or this relay cannot run it at present. The error is that of a lane that halts;
// failures are those in a row.
func (r *Relay) runClaim(ctx context.Context, lane int, log *slog.Logger, failures *int) error {
	stats := r.stats[lane]
	for ctx.Err() == nil {
		began := time.Now()
		held, err := r.acquire(ctx, lane)
		if fault.Is(err, fault.Fenced) { // another was faster
			sleep(ctx, r.o.Timing.LeaseRetry)
			r.claims.giveUp(lane, 0)
			return nil
		}
		if err == nil {
			stats.update(func(s *LaneStatus) { s.TakeOvers++ })
			err = r.own(ctx, lane, held, log)
			stats.update(func(s *LaneStatus) { s.Owner, s.InFlight = "", 0 })
			if err == nil {
				stats.update(func(s *LaneStatus) { s.HandOvers++ })
				return nil // drained
			}
		}
		if isHalt(err) {
			f, _ := errors.AsType[*fault.Error](err)
			stats.update(func(s *LaneStatus) { s.Halted, s.Err = f, err })
			log.Error("lane halts", "error", f)
			return f
		}
		if ctx.Err() != nil {
			if !errors.Is(err, context.Canceled) {
				stats.failed(err)
				log.Warn("lane is given up", "error", err)
			}
			return nil
		}
		if time.Since(began) > r.o.Timing.RetryMax {
			*failures = 0
		}
		*failures++
		stats.failed(err)
		log.Warn("lane is given up and taken again", "error", err)
		pause := backoff(*failures, r.o.Timing.RetryMin, r.o.Timing.RetryMax)
		if *failures >= declineAfter {
			r.claims.giveUp(lane, pause)
			return nil
		}
		sleep(ctx, pause)
	}
	return nil
}

// acquire takes a lane's lease. It is not cut short: a lease that is taken and not known of would run for nothing.
func (r *Relay) acquire(ctx context.Context, lane int) (*lease.Held, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.o.Config.Outbox.LeaseTime)
	defer cancel()
	return lease.Acquire(ctx, r.o.DB, lease.Row{Table: "slotline_lane", Where: "lane = ?", Args: []any{lane}},
		r.owner, r.o.Config.Outbox.LeaseTime)
}

// own runs one ownership of a lane, and gives the lease back unless it is lost.
func (r *Relay) own(ctx context.Context, lane int, held *lease.Held, log *slog.Logger) error {
	// The lease outlives ctx: draining needs it.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	kept := make(chan struct{})
	go func() { // owned here: cancel ends it
		defer close(kept)
		held.Keep(work)
	}()
	var err error
	suspect := ""
	for failures := 1; ; failures++ {
		s := &session{relay: r, lane: lane, held: held, log: log, stats: r.stats[lane], suspect: suspect}
		until, end := r.untilRelaid(ctx)
		err = s.run(until, work)
		relaid := until.Err() != nil && ctx.Err() == nil
		end()
		if s.flow != nil { // what was suspected is stored
			suspect = ""
		}
		if errors.Is(err, errWentBack) {
			suspect = err.Error()
		}
		if relaid && !isHalt(err) && held.Alive() {
			log.Info("lane goes on by a newer layout", "layout_epoch", r.layout.Load().Epoch())
			continue
		}
		if suspect == "" || err == nil || isHalt(err) || ctx.Err() != nil || !held.Alive() {
			break
		}
		// Only this owner knows it for certain: new rows may cover it soon. So it keeps the lane until it is stored.
		log.Warn("lane is taken over anew", "error", err)
		r.stats[lane].failed(err)
		sleep(ctx, backoff(failures, r.o.Timing.RetryMin, r.o.Timing.RetryMax))
	}
	if isHalt(err) && held.Alive() {
		f, _ := errors.AsType[*fault.Error](err)
		if _, dbErr := r.o.DB.ExecContext(work, haltLaneSQL,
			append([]any{f.Code, cutText(f.Error(), deadDetailBytesMax), lane}, held.Fence().Args()...)...); dbErr != nil {
			log.Warn("cannot note that the lane halts", "error", dbErr)
		}
	}
	cancel()
	<-kept
	if held.Alive() {
		release, done := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer done()
		if err := held.Release(release); err != nil {
			log.Warn("cannot give the lease back; it runs out", "error", err)
		}
	}
	return err
}

// isHalt says that a lane cannot go on by itself.
func isHalt(err error) bool {
	f, ok := errors.AsType[*fault.Error](err)
	return ok && (f.Class == fault.Fatal || f.Class == fault.Usage)
}

// checkReady makes sure that the tables are there, of formats that this release reads, for as many lanes as the file
// says, and that ids are drawn one by one.
func checkReady(ctx context.Context, db *sql.DB, cfg *config.Config) error {
	found, err := inspect(ctx, db)
	if err != nil {
		return mysqldb.Wrap(err, codeDatabase, "outbox "+cfg.Outbox.DSN.Place())
	}
	return found.check(cfg)
}
