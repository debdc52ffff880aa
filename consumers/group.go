package consumers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/kafka"
)

const (
	// rebalanceTimeout is how long the group waits for a member to let partitions go.
	rebalanceTimeout = 30 * time.Second
	// tellPeriod is how often applied offsets are committed to the broker, for lag tools.
	tellPeriod = 5 * time.Second
)

// group holds the assignment of this process, by a Kafka client that fetches nothing.
type group struct {
	loop   *loop
	cl     *kgo.Client
	name   string
	revoke time.Duration // how long a revoked unit may take to finish what is in flight

	mu      sync.Mutex
	leaving bool // Run is ending: what is halted stays on record for its result
	units   map[event.Partition]*unit
	last    map[event.Partition]<-chan struct{} // done of units that were lost and may still be ending
}

// runGroup joins the group and runs a unit for each assigned partition.
func (l *loop) runGroup(ctx context.Context) error {
	cfg := l.opts.Config
	g := &group{loop: l, name: kafka.GroupPrefix(cfg.Line) + l.sink.Name(), units: map[event.Partition]*unit{},
		last: map[event.Partition]<-chan struct{}{}, revoke: min(cfg.Limits.DrainTimeout, rebalanceTimeout/2)}
	opts := []kgo.Opt{
		kgo.ConsumerGroup(g.name),
		kgo.ConsumeTopics(cfg.Topics()...),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.SessionTimeout(l.opts.SessionTimeout),
		kgo.HeartbeatInterval(l.opts.SessionTimeout / 5),
		kgo.RebalanceTimeout(rebalanceTimeout),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { g.assigned(m) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { g.revoked(m) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { g.lost(m) }),
	}
	if l.opts.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(l.opts.InstanceID))
	}
	// The callbacks may run before NewClient returns.
	g.mu.Lock()
	cl, err := kafka.NewClient(cfg, "group-"+l.sink.Name(), l.opts.Logger, append(opts, l.opts.ClientOptions...)...)
	if err != nil {
		g.mu.Unlock()
		return err
	}
	g.cl = cl
	cl.PauseFetchTopics(cfg.Topics()...)
	g.mu.Unlock()

	var serving sync.WaitGroup
	member, leave := context.WithCancel(context.WithoutCancel(ctx))
	serving.Go(func() { g.watch(member) })
	serving.Go(func() { every(member, tellPeriod, func() { g.tell(member) }) })
	if l.opts.Ready != nil {
		l.opts.Ready()
	}
	<-ctx.Done()
	g.mu.Lock()
	g.leaving = true
	g.mu.Unlock()
	units := g.all()
	stopAll(units, cfg.Limits.DrainTimeout)
	join(units)
	leave()
	serving.Wait()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := g.commit(end); err != nil {
		l.log.Debug("could not commit offsets for lag tools", "error", err)
	}
	cl.CloseAllowingRebalance() // leaves the group, unless a static member
	// An assignment that came while we were stopping started units that have nothing to wait for; and units that were
	// revoked or lost may be ending still.
	units = g.all()
	stopAll(units, 0)
	join(units)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, done := range g.last {
		<-done
	}
	return nil
}

func (g *group) all() []*unit {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []*unit
	for _, u := range g.units {
		all = append(all, u)
	}
	return all
}

// assigned does no I/O: each unit takes over by itself.
func (g *group) assigned(m map[string][]int32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for topic, numbers := range m {
		for _, n := range numbers {
			p := event.Partition{Topic: topic, Number: n}
			if g.units[p] != nil {
				continue
			}
			g.units[p] = g.loop.newUnit([]event.Partition{p}, g.last[p], g.ours)
			delete(g.last, p)
		}
	}
}

// take removes the units of partitions from the register.
func (g *group) take(m map[string][]int32) []*unit {
	g.mu.Lock()
	defer g.mu.Unlock()
	var units []*unit
	for topic, numbers := range m {
		for _, n := range numbers {
			p := event.Partition{Topic: topic, Number: n}
			if u := g.units[p]; u != nil {
				units = append(units, u)
				delete(g.units, p)
				g.last[p] = u.done
			}
		}
	}
	return units
}

// revoked lets units finish what is in flight: the group waits for this callback before it gives the partitions to
// another member. It does not wait longer than it may: a unit that is abandoned changes nothing, the owner epoch sees
// to that.
func (g *group) revoked(m map[string][]int32) {
	units := g.take(m)
	if len(units) == 0 {
		return
	}
	stopAll(units, g.revoke)
	g.forgetHalts(units)
	g.loop.log.Info("partitions revoked", place(partsOf(units))...)
}

func partsOf(units []*unit) (parts []event.Partition) {
	for _, u := range units {
		parts = append(parts, u.parts...)
	}
	return parts
}

// lost abandons units: another member may have the partitions already, and the owner epoch keeps ours from changing
// anything.
func (g *group) lost(m map[string][]int32) {
	units := g.take(m)
	for _, u := range units {
		u.stop()
		u.abandon()
	}
	g.forgetHalts(units)
	if len(units) > 0 {
		g.loop.log.Warn("partitions lost: the group went on without this member", place(partsOf(units))...)
	}
}

// forgetHalts: a partition that another process has is not halted here.
func (g *group) forgetHalts(units []*unit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.leaving {
		return
	}
	for _, u := range units {
		for _, p := range u.parts {
			g.loop.halts.clear(p)
		}
	}
}

// ours asks the group coordinator, by a heartbeat of our own, whether this process is still a member of the generation
// that assigned the partitions. A rebalance under way takes nothing from us before the revoke callback.
func (g *group) ours(ctx context.Context) (bool, error) {
	id, generation := g.cl.GroupMetadata()
	if id == "" {
		return false, nil
	}
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = g.name, id, generation
	if g.loop.opts.InstanceID != "" {
		req.InstanceID = &g.loop.opts.InstanceID
	}
	resp, err := req.RequestWith(ctx, g.cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	switch {
	case err == nil, errors.Is(err, kerr.RebalanceInProgress):
		return true, nil
	case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.IllegalGeneration), errors.Is(err, kerr.FencedInstanceID):
		return false, nil
	}
	return false, kafka.Wrap(err, g.loop.opts.Config.Kafka.Brokers, fmt.Sprintf("ask group %s for the assignment", g.name))
}

// watch takes what the member's client has to say: it fetches nothing, so that is errors of the group alone. The
// client goes on by itself.
func (g *group) watch(ctx context.Context) {
	said := ""
	for ctx.Err() == nil {
		for _, e := range g.cl.PollFetches(ctx).Errors() {
			if errors.Is(e.Err, context.Canceled) || errors.Is(e.Err, kgo.ErrClientClosed) {
				continue
			}
			if _, ok := errors.AsType[*kgo.ErrGroupSession](e.Err); ok && e.Err.Error() != said {
				said = e.Err.Error()
				g.loop.log.Warn("the group session ended; joining again", "group", g.name,
					"error", kafka.Wrap(e.Err, g.loop.opts.Config.Kafka.Brokers, "stay in group "+g.name))
			}
		}
	}
}

// tell commits applied offsets to the broker, for lag tools. Nothing reads them back.
func (g *group) tell(ctx context.Context) {
	if err := g.commit(ctx); err != nil && ctx.Err() == nil {
		g.loop.log.Debug("could not commit offsets for lag tools", "error", err)
	}
}

func (g *group) commit(ctx context.Context) error {
	offsets := g.loop.untold()
	if len(offsets) == 0 {
		return nil
	}
	var failed error
	g.cl.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		failed = err
		if resp == nil {
			return
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				failed = errors.Join(failed, kerr.ErrorForCode(p.ErrorCode))
			}
		}
	})
	return failed
}
