package outbox

import (
	"context"
	"database/sql"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	// beatMax is the longest time between two looks at the other relays; a short lease needs more of them.
	beatMax = 2 * time.Second
	// settleMax is how long a relay must be live before lanes that run elsewhere move to it, with a longer lease too.
	settleMax = 5 * time.Second
	// awaitPoll is between looks while a lane is about to be handed over to this relay: most of the pause in publishing.
	// A hand-over that takes longer than awaitMax is looked for with each beat.
	awaitPoll = 50 * time.Millisecond
	awaitMax  = 15 * time.Second
	// peerKept is how long the row of a dead relay stays.
	peerKept = time.Minute
)

// The statements of slotline_relay, in the database's time. One that comes after its lease ran out has been away: it
// begins anew.
const (
	beatSQL = "INSERT INTO slotline_relay (owner, since, lease_until, declines)" +
		" VALUES (?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, ?) ON DUPLICATE KEY UPDATE" +
		" since = IF(lease_until > UTC_TIMESTAMP(6), since, UTC_TIMESTAMP(6))," +
		" lease_until = VALUES(lease_until), declines = VALUES(declines)"
	leaveSQL    = "DELETE FROM slotline_relay WHERE owner = ?"
	buryPeerSQL = "DELETE FROM slotline_relay WHERE lease_until < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND"
	// Lanes and relays in one read view. Times are microseconds from now.
	peersSQL = "SELECT lane, owner, TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), lease_until), 0, 0 FROM slotline_lane" +
		" UNION ALL SELECT -1, owner, TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), lease_until)," +
		" TIMESTAMPDIFF(MICROSECOND, since, UTC_TIMESTAMP(6)), declines FROM slotline_relay"
)

// claims are the lanes that this relay is to own: what peers decides and the goroutines of the lanes carry out.
type claims struct {
	given []chan context.Context // by lane, at most one waits; a context ends when the lane is to be drained

	mu       sync.Mutex
	mine     []context.CancelFunc // by lane; nil: another's
	declined []time.Time          // by lane: not claimed before
	changed  chan struct{}        // has a value when a lane was given up
}

func newClaims(lanes int) *claims {
	c := &claims{mine: make([]context.CancelFunc, lanes), declined: make([]time.Time, lanes), changed: make(chan struct{}, 1)}
	for range lanes {
		c.given = append(c.given, make(chan context.Context, 1))
	}
	return c
}

// claim gives a lane to its goroutine, unless it has it.
func (c *claims) claim(work context.Context, lane int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mine[lane] != nil {
		return
	}
	ctx, cancel := context.WithCancel(work)
	c.mine[lane] = cancel
	select {
	case <-c.given[lane]: // one that was taken back before it was looked at
	default:
	}
	c.given[lane] <- ctx
}

// take makes the lane's goroutine drain it, if it has it.
func (c *claims) take(lane int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel := c.mine[lane]; cancel != nil {
		cancel()
		c.mine[lane] = nil
	}
}

// giveUp is called by the lane's goroutine, which cannot run the lane: peers may look for another relay, and this one
// claims it again after the pause.
func (c *claims) giveUp(lane int, pause time.Duration) {
	c.mu.Lock()
	if cancel := c.mine[lane]; cancel != nil {
		cancel()
		c.mine[lane] = nil
	}
	if pause > 0 {
		c.declined[lane] = time.Now().Add(pause)
	}
	c.mu.Unlock()
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// declines has a bit for each lane that is declined now, and says when the first of them is not any more; zero: never.
func (c *claims) declines(now time.Time) (lanes uint64, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for lane, t := range c.declined {
		if t.After(now) {
			lanes |= 1 << lane
			until = earlier(until, t)
		}
	}
	return lanes, until
}

func (c *claims) any() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.mine, func(cancel context.CancelFunc) bool { return cancel != nil })
}

// earlier is the first of two times, of which the zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// forever is longer than a process lives.
const forever = 100 * 365 * 24 * time.Hour

// peers says that this relay is live, sees which others are, and claims the lanes that are its own.
type peers struct {
	db     *sql.DB
	owner  string
	lease  time.Duration
	claims *claims
	log    *slog.Logger
	retry  time.Duration // between tries while the database is away

	awaited map[int]time.Time // lanes that others are about to hand over, since when
}

func (p *peers) beat() time.Duration   { return min(beatMax, p.lease/3) }
func (p *peers) settle() time.Duration { return min(settleMax, p.lease) }

// run claims lanes until ctx ends, and then leaves: it says so first, and gives the other relays the time to see it, so
// that they wait for the lanes when these are drained. work is of the claims, and outlives it.
func (p *peers) run(ctx, work context.Context) {
	p.awaited = map[int]time.Time{}
	var next, beatAt time.Time
	failing := false
	declined := uint64(0)
	for {
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
			timer.Stop()
			p.leave(work)
			return
		case <-p.claims.changed:
			timer.Stop()
		case <-timer.C:
		}
		began := time.Now()
		v, err := (*peerView)(nil), error(nil)
		declines, undeclined := p.claims.declines(began)
		if !began.Before(beatAt) || declines != declined {
			err = p.exec(ctx, beatSQL, p.owner, p.lease.Microseconds(), declines)
			if err == nil {
				beatAt, declined = began.Add(p.beat()), declines
			}
		}
		if err == nil {
			v, err = p.look(ctx)
		}
		if err != nil {
			// Lanes stay where they are: their leases say when that is over.
			if ctx.Err() == nil && !failing {
				p.log.Warn("cannot see the other relays; lanes stay where they are", "error", err)
				failing = true
			}
			next = time.Now().Add(p.retry)
			continue
		}
		failing = false
		if _, ok := v.left[p.owner]; !ok { // its lease ran out between the two statements
			next, beatAt = time.Now(), time.Time{}
			continue
		}
		next = earlier(earlier(p.act(work, v, began), undeclined), beatAt)
	}
}

func (p *peers) exec(ctx context.Context, statement string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, p.lease)
	defer cancel()
	_, err := p.db.ExecContext(ctx, statement, args...)
	return err
}

// peerView is what one look shows.
type peerView struct {
	owners []string        // by lane; "" when the lease is free or has run out
	ends   []time.Duration // by lane: until the lease ends
	live   []peer
	left   map[string]time.Duration // of each live relay, until its lease ends
	age    time.Duration            // since this relay is live
	buried bool                     // rows of dead relays are to be deleted
}

func (p *peers) look(ctx context.Context) (*peerView, error) {
	ctx, cancel := context.WithTimeout(ctx, p.lease)
	defer cancel()
	rows, err := p.db.QueryContext(ctx, peersSQL)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	lanes := len(p.claims.given)
	v := &peerView{owners: make([]string, lanes), ends: make([]time.Duration, lanes), left: map[string]time.Duration{}}
	for rows.Next() {
		var lane int
		var owner string
		var left, age int64
		var declines uint64
		if err := rows.Scan(&lane, &owner, &left, &age, &declines); err != nil {
			return nil, err
		}
		until := time.Duration(left) * time.Microsecond
		switch {
		case lane >= 0 && lane < lanes && until > 0:
			v.owners[lane], v.ends[lane] = owner, until
		case lane >= 0:
		case until > 0:
			lived := time.Duration(age) * time.Microsecond
			v.live = append(v.live, peer{owner: owner, settled: lived >= p.settle(), declines: declines})
			v.left[owner] = until
			if owner == p.owner {
				v.age = lived
			}
		case until < -peerKept:
			v.buried = true
		}
	}
	return v, rows.Err()
}

// act claims and gives back lanes by what a look shows, and says when to look again at the latest; zero: with the beat.
func (p *peers) act(work context.Context, v *peerView, now time.Time) (next time.Time) {
	after := func(d time.Duration) { next = earlier(next, now.Add(d+time.Millisecond)) }
	for lane, owner := range assign(v.owners, v.live) {
		holder := v.owners[lane]
		switch {
		case owner != p.owner:
			p.claims.take(lane)
			delete(p.awaited, lane)
		case holder == "" || holder == p.owner:
			p.claims.claim(work, lane)
			delete(p.awaited, lane)
		default:
			since, ok := p.awaited[lane]
			if !ok {
				since = now
				p.awaited[lane] = now
			}
			if now.Sub(since) < awaitMax {
				after(awaitPoll)
			}
		}
		if holder != "" && holder != p.owner {
			after(v.ends[lane])
		}
	}
	for owner, left := range v.left {
		if owner != p.owner {
			after(left)
		}
	}
	if wait := p.settle() - v.age; wait > 0 {
		after(wait)
	}
	if v.buried {
		if err := p.exec(work, buryPeerSQL, peerKept.Microseconds()); err != nil {
			p.log.Debug("cannot delete the rows of dead relays", "error", err)
		}
	}
	return next
}

// leave takes this relay off the list, and waits until the others have looked at it since, for a beat and a half at
// most.
func (p *peers) leave(work context.Context) {
	ctx, cancel := context.WithTimeout(work, p.beat()+p.beat()/2)
	defer cancel()
	if err := p.exec(ctx, leaveSQL, p.owner); err != nil || !p.claims.any() {
		return
	}
	left := time.Now()
	for {
		v, err := p.look(ctx)
		if err != nil {
			return
		}
		// One that has said since that it is live has a lease that reaches further than from when this one left.
		unseen := slices.ContainsFunc(v.live, func(o peer) bool { return v.left[o.owner] <= p.lease-time.Since(left) })
		if !unseen {
			return
		}
		if !sleep(ctx, awaitPoll) {
			return
		}
	}
}
