package intent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/lease"
	"github.com/slotline/slotline/sinks/olap/rollup"
)

// Group is a group of partitions that this process has taken over. Begin and Commit are called by one goroutine at a
// time; the other methods may be called meanwhile.
type Group struct {
	state  *State
	number int
	parts  []event.Partition
	hold   hold
	run    Run
	stop   context.CancelFunc // ends the goroutine that keeps the lease
	done   chan struct{}      // closed when it has ended

	mu      sync.Mutex     // guards what follows; held for no I/O
	stand   []progress.Row // by parts, as this owner last saw or wrote them
	seq     int64          // of the intent in the row
	pending *Intent        // of an earlier owner, not confirmed
	current *Intent        // that this owner stored last
}

// keep renews the lease until Release.
func (g *Group) keep() {
	ctx, cancel := context.WithCancel(context.Background())
	g.stop, g.done = cancel, make(chan struct{})
	go func() {
		defer close(g.done)
		g.hold.Keep(ctx) // what ends it closes Lost
	}()
}

// learn reads where the group stands, after every earlier owner was fenced.
func (g *Group) learn(ctx context.Context) error {
	s := g.state
	for _, p := range g.parts {
		taken, err := s.store.takeProgress(ctx, p, s.o.Owner)
		if err != nil {
			return g.notSeeded(err)
		}
		g.stand = append(g.stand, taken) // so that a take-over that fails half-way can let go
	}
	r, stand, err := s.store.read(ctx, g.number, g.parts)
	if err != nil {
		return g.notSeeded(err)
	}
	if r.fence != g.hold.Fence() {
		return g.fencedBy(r)
	}
	pending := pendingOf(r, stand)
	// A batch that was perhaps sent, and will not be sent again, marked nothing.
	left := pending == nil && !r.confirmed
	if err := s.store.takeRollups(ctx, g.number, rollup.Digest(s.o.Rollups), left); err != nil {
		return err
	}
	if pending != nil && pending.Codec > s.o.Codec {
		return newer(fmt.Sprintf("%s: %s holds a batch of row format %d that was not confirmed, this release writes format %d",
			g.where(), Table, pending.Codec, s.o.Codec))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stand, g.seq, g.pending, g.current = stand, r.intent.Seq, pending, nil
	return nil
}

// Positions says where the partitions stand.
func (g *Group) Positions() []event.Position {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := make([]event.Position, len(g.stand))
	for i, r := range g.stand {
		list[i] = r.Position()
	}
	return list
}

// Pending is the batch that must be sent first: an earlier owner stored it and did not confirm it. Nil without one.
func (g *Group) Pending() *Intent {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pending
}

// Lost is closed when the lease has run out or was released.
func (g *Group) Lost() <-chan struct{} { return g.hold.Lost() }

// Release ends the lease, so that a successor need not wait, and the goroutine that keeps it; and it takes the owner's
// name out of the progress rows.
func (g *Group) Release(ctx context.Context) error {
	g.stop()
	err := g.letGo(ctx)
	<-g.done
	return err
}

// letGo ends the lease first: the names are for people. A successor that is there already has other epochs, and keeps
// its name.
func (g *Group) letGo(ctx context.Context) error {
	errs := []error{g.hold.Release(ctx)}
	g.mu.Lock()
	stand := slices.Clone(g.stand)
	g.mu.Unlock()
	for _, r := range stand {
		errs = append(errs, g.state.store.releaseProgress(ctx, r.Partition, lease.Fence{Owner: r.Owner, Epoch: r.OwnerEpoch}))
	}
	return g.state.wrap(errors.Join(errs...))
}

// Begin stores the intent of a batch, unless it is stored. It may be called again after an error, and after it
// succeeded.
func (g *Group) Begin(ctx context.Context, ranges []event.Range, excluded []Excluded) (*Intent, error) {
	if g.lost() {
		return nil, g.leaseLost()
	}
	g.mu.Lock()
	how := decideBegin(g.pending, g.current, g.stand, ranges, excluded)
	pending, current := g.pending, g.current
	i := &Intent{Run: g.run, Seq: g.seq + 1, Codec: g.state.o.Codec, Ranges: normalRanges(ranges), Excluded: excluded}
	g.mu.Unlock()
	switch how {
	case beginAgain:
		if pending != nil && pending.leavesOut(excluded) {
			return pending, nil
		}
		return current, nil
	case beginRewound:
		return nil, &event.Rewound{Positions: g.Positions()}
	case beginApplied, beginForeign:
		return nil, g.outOfTurn(ranges, pending)
	}
	found, err := g.state.store.put(ctx, g.number, g.hold.Fence(), *i)
	if err != nil {
		return nil, g.state.wrap(err)
	}
	if !found {
		return nil, g.replaced(ctx)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seq, g.current = i.Seq, i
	return i, nil
}

// Commit confirms the intent, which Begin returned and whose rows the engine has acknowledged, and advances the
// progress. A batch that had nothing to send needs no intent: then it is nil.
func (g *Group) Commit(ctx context.Context, i *Intent, ranges []event.Range) error {
	return g.CommitTouched(ctx, i, ranges, nil)
}

// CommitTouched is Commit for a batch that touched pairs of rollups: they are marked in the same transaction.
func (g *Group) CommitTouched(ctx context.Context, i *Intent, ranges []event.Range, touched []rollup.Touched) error {
	g.mu.Lock()
	advances := advancesOf(g.stand, ranges)
	g.mu.Unlock()
	if len(advances) != len(ranges) {
		return g.outOfTurn(ranges, nil)
	}
	done, failed := g.state.store.commit(ctx, g.number, g.hold.Fence(), i, advances, touched)
	if failed == nil && done {
		g.moved(i, advances)
		return nil
	}
	// Whether it was carried out is in the rows.
	r, stand, err := g.state.store.read(ctx, g.number, g.parts)
	if err != nil {
		return g.state.wrap(g.notSeeded(errors.Join(failed, err)))
	}
	switch decideCommit(g.hold.Fence(), advances, r, stand) {
	case committed:
		g.moved(i, advances)
		return nil
	case fenced:
		return g.fencedBy(r)
	case wentBack:
		g.mu.Lock()
		g.stand, g.seq, g.pending, g.current = stand, max(g.seq, r.intent.Seq), nil, nil
		g.mu.Unlock()
		return &event.Rewound{Positions: g.Positions()}
	case open:
		if failed != nil {
			return g.state.wrap(failed)
		}
		// The progress stands where the batch begins, and the row holds another intent: the database was restored to a
		// moment just before it was stored. Begin stores it again.
		g.mu.Lock()
		g.pending, g.current = nil, nil
		g.mu.Unlock()
		return &fault.Error{Code: codeDatabase, Class: fault.Transient,
			What: g.where() + ": the stored intent is gone; it is stored again"}
	}
	return g.outOfTurn(ranges, nil)
}

// moved records a commit.
func (g *Group) moved(i *Intent, advances []progress.Advance) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range advances {
		at := &g.stand[find(g.stand, a.Partition)]
		at.Next, at.LeaderEpoch, at.TopicID = a.End, a.LeaderEpoch, a.TopicID
		at.Applied = max(at.Applied, a.End)
	}
	if i != nil {
		g.pending, g.current = nil, nil
	}
}

func (g *Group) lost() bool {
	select {
	case <-g.hold.Lost():
		return true
	default:
		return false
	}
}

func (g *Group) leaseLost() error {
	return &fault.Error{Code: codeFenced, Class: fault.Fenced,
		What: fmt.Sprintf("%s: the lease ran out before the batch was sent; nothing was sent", g.where())}
}

// replaced says who has the group, after a compare on the owner epoch found it changed.
func (g *Group) replaced(ctx context.Context) error {
	r, _, err := g.state.store.read(ctx, g.number, g.parts)
	if err != nil {
		return g.state.wrap(g.notSeeded(err))
	}
	return g.fencedBy(r)
}

func (g *Group) fencedBy(r row) error {
	owner, ours := r.fence.Owner, g.hold.Fence()
	if owner == "" {
		owner = "another process"
	}
	what := fmt.Sprintf("%s was taken over by %s (owner epoch %d, ours %d); nothing was changed", g.where(), owner, r.fence.Epoch, ours.Epoch)
	if r.fence == ours {
		what = g.where() + ": a gap was accepted, or the groups were changed, while a batch was on its way; nothing was changed"
	}
	return &fault.Error{Code: codeFenced, Class: fault.Fenced, What: what}
}

func (g *Group) outOfTurn(ranges []event.Range, pending *Intent) error {
	e := &fault.Error{Code: codeForeign, Class: fault.Fatal,
		What: fmt.Sprintf("%s: a batch of %s does not fit where the group stands: %s", g.where(), describe(ranges), describePositions(g.Positions())),
		Why:  "something other than this sink wrote slotline_progress",
		Do:   "find out what did; rows are safe (versions decide), an offset may be set back but never forward by hand"}
	if pending != nil && !pending.Covers(ranges) {
		e.What = fmt.Sprintf("%s: a batch of %s came before the stored one of %s was confirmed", g.where(), describe(ranges), describe(pending.Ranges))
		e.Why, e.Do = "it may have been sent, and must be sent again as it is", "restart the sink: it reads the stored batch first"
	}
	return e
}

func describe(ranges []event.Range) string {
	text := ""
	for i, r := range ranges {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%s/%d %d-%d", r.Topic, r.Number, r.From, r.To)
	}
	return text
}

func describePositions(list []event.Position) string {
	text := ""
	for i, p := range list {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%s/%d at %d", p.Topic, p.Number, p.Next)
	}
	return text
}

// notSeeded says what to do about a row that is not there.
func (g *Group) notSeeded(err error) error {
	if !errors.Is(err, errNotSeeded) {
		return err
	}
	return &fault.Error{Code: codeNotSeeded, Class: fault.Fatal, Err: err,
		What: fmt.Sprintf("%s has no row in %s, or a partition of it none in slotline_progress", g.where(), Table),
		Why:  "the groups, or the partitions, are others than at the last apply",
		Do:   "slotline apply"}
}

// where names the group in errors: "clickhouse group 3 (state in db0/flights)".
func (g *Group) where() string {
	return fmt.Sprintf("%s group %d (state in %s)", g.state.o.Sink, g.number, g.state.o.Place)
}
