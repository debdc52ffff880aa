package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/lease"
	"github.com/slotline/slotline/partitioner"
)

// Options of a relay. All but Logger are needed.
type Options struct {
	Config *config.Config
	Layout *partitioner.Layout // the applied one, for the life of the relay
	// DB is the outbox database, opened by internal/mysqldb: the primary, READ COMMITTED, UTC, clientFoundRows. Each
	// lane uses up to four connections at once.
	DB *sql.DB
	// NewWriter makes the Kafka writer of one lane and one ownership. The relay closes it.
	NewWriter func(lane int) (Writer, error)
	Logger    *slog.Logger

	Timing Timing     // zero: the defaults; tests shorten it
	flow   flowLimits // zero: defaultFlowLimits
}

// Relay publishes the rows of all lanes whose lease it gets. Several relays may run: each lane has one owner, and the
// others take it over within a lease time of its end.
type Relay struct {
	o     Options
	owner string
	wakes []chan struct{}
	stats []*laneStats
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
	r := &Relay{o: o, owner: lease.NewOwner()}
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

// Lanes says how each lane stands in this relay.
func (r *Relay) Lanes() []LaneStatus {
	list := make([]LaneStatus, len(r.stats))
	for i, s := range r.stats {
		list[i] = s.get()
	}
	return list
}

// Run publishes until ctx ends; then it stops reading, waits for the answers to what it sent (for Limits.DrainTimeout
// at most), saves, and gives its lanes back. Outages are waited out. A lane that halts leaves the others running; Run
// returns the errors of halted lanes, at once when all have halted, and nil when none has.
func (r *Relay) Run(ctx context.Context) error {
	if err := r.waitReady(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	var wg sync.WaitGroup
	halts := make([]error, len(r.wakes))
	for lane := range r.wakes {
		wg.Go(func() { halts[lane] = r.runLane(ctx, lane) })
	}
	wg.Wait()
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
		r.o.Logger.Warn("outbox database is not ready", "err", err)
		sleep(ctx, backoff(failures, r.o.Timing.RetryMin, r.o.Timing.RetryMax))
	}
}

// runLane owns a lane whenever it can, until ctx ends or the lane halts.
func (r *Relay) runLane(ctx context.Context, lane int) error {
	log, stats := r.o.Logger.With("lane", fmt.Sprintf("%02d", lane)), r.stats[lane]
	failures := 0
	for ctx.Err() == nil {
		held, err := lease.Acquire(ctx, r.o.DB, lease.Row{Table: "slotline_lane", Where: "lane = ?", Args: []any{lane}},
			r.owner, r.o.Config.Outbox.LeaseTime)
		if err != nil {
			pause := r.o.Timing.LeaseRetry
			if !fault.Is(err, fault.Fenced) {
				if ctx.Err() != nil {
					return nil
				}
				stats.failed(err)
				if f, ok := errors.AsType[*fault.Error](err); ok && f.Class == fault.Fatal {
					stats.update(func(s *LaneStatus) { s.Halted = f })
					return f
				}
				failures++
				pause = backoff(failures, r.o.Timing.RetryMin, r.o.Timing.RetryMax)
				log.Warn("cannot take the lane", "err", err)
			}
			sleep(ctx, pause)
			continue
		}
		began := time.Now()
		err = r.own(ctx, lane, held, log)
		stats.update(func(s *LaneStatus) { s.Owner, s.InFlight = "", 0 })
		if err == nil {
			return nil // drained
		}
		if time.Since(began) > r.o.Timing.RetryMax {
			failures = 0
		}
		failures++
		stats.failed(err)
		if isHalt(err) {
			f, _ := errors.AsType[*fault.Error](err)
			stats.update(func(s *LaneStatus) { s.Halted = f })
			log.Error("lane halts", "err", f)
			return f
		}
		log.Warn("lane is given up and taken again", "err", err)
		sleep(ctx, backoff(failures, r.o.Timing.RetryMin, r.o.Timing.RetryMax))
	}
	return nil
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
		err = s.run(ctx, work)
		if s.flow != nil { // what was suspected is stored
			suspect = ""
		}
		if errors.Is(err, errWentBack) {
			suspect = err.Error()
		}
		if suspect == "" || err == nil || isHalt(err) || ctx.Err() != nil || !held.Alive() {
			break
		}
		// Only this owner knows it for certain: new rows may cover it soon. So it keeps the lane until it is stored.
		log.Warn("lane is taken over anew", "err", err)
		r.stats[lane].failed(err)
		sleep(ctx, backoff(failures, r.o.Timing.RetryMin, r.o.Timing.RetryMax))
	}
	if isHalt(err) && held.Alive() {
		f, _ := errors.AsType[*fault.Error](err)
		if _, dbErr := r.o.DB.ExecContext(work, haltLaneSQL,
			append([]any{f.Code, cutText(f.Error(), deadDetailBytesMax), lane}, held.Fence().Args()...)...); dbErr != nil {
			log.Warn("cannot note that the lane halts", "err", dbErr)
		}
	}
	cancel()
	<-kept
	if held.Alive() {
		release, done := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer done()
		if err := held.Release(release); err != nil {
			log.Warn("cannot give the lease back; it runs out", "err", err)
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
