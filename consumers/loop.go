package consumers

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/kafka"
)

// loop is what the units of one Run share.
type loop struct {
	opts    Options
	sink    Sink
	batch   Limits
	log     *slog.Logger
	reader  *reader
	dead    *kafka.Dead
	metrics *metrics
	halts   halts
	news    news

	mu     sync.Mutex
	rates  map[event.Partition]*deadRate
	toTell map[event.Partition]kgo.EpochOffset // applied and not yet committed to the broker
}

// Run applies the events of the line's topics to the sink until ctx ends, then finishes what is in flight within
// limits.drain_timeout. It returns nil, *Halted, or why it could not start.
func Run(ctx context.Context, o Options) error {
	o = o.withDefaults()
	log := o.Logger.With("sink", o.Sink.Name())
	fixed, isFixed := o.Sink.(FixedGroups)
	units := len(o.Config.Topics()) * o.Config.Kafka.Partitions
	if isFixed {
		units = len(fixed.Groups())
	}
	batch, err := fitBatch(o.Batch, o.MemoryBytesMax, max(o.MemoryBytesMax, o.Config.Limits.MemoryBytesMax), units, eventBytesInMemory(o.Config))
	if err != nil {
		return err
	}
	role := "sink-" + o.Sink.Name()
	cl, err := kafka.Open(ctx, o.Config, role, o.Logger, o.ClientOptions...)
	if err == nil {
		err = kafka.Check(ctx, cl, kafka.Topics(o.Config))
		cl.Close()
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil // asked to end before it began
		}
		return err
	}

	l := &loop{opts: o, sink: o.Sink, batch: batch, log: log,
		rates: map[event.Partition]*deadRate{}, toTell: map[event.Partition]kgo.EpochOffset{}}
	if l.reader, err = newReader(o.Config, role, o.Logger, o.MemoryBytesMax, o.Batch.Age, o.ClientOptions); err != nil {
		return err
	}
	defer l.reader.cl.Close()
	if l.dead, err = kafka.NewDead(o.Config, role, o.Logger, o.ClientOptions...); err != nil {
		return err
	}
	defer l.dead.Close()
	if l.metrics, err = newMetrics(o.Registerer, o.Sink.Name(), l); err != nil {
		return err
	}
	defer l.metrics.unregister()
	l.news.log = log
	defer l.news.flush()

	// The reader and the look-out serve the units, so they end after them.
	serve, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	var serving sync.WaitGroup
	serving.Go(func() { l.reader.run(serve) })
	serving.Go(func() { every(serve, o.CheckPeriod, func() { l.lookOut(serve) }) })
	if sink, ok := l.sink.(Unleased); ok {
		serving.Go(func() { every(serve, o.CheckPeriod, func() { l.lookAtOwners(serve, sink) }) })
	}
	defer func() {
		stopServing()
		serving.Wait()
	}()

	if isFixed {
		err = l.runFixed(ctx, fixed)
	} else {
		err = l.runGroup(ctx)
	}
	return errors.Join(err, l.halts.err(o.Sink.Name()))
}

// newUnit makes a unit and starts it.
func (l *loop) newUnit(parts []event.Partition, before <-chan struct{}, ours func(context.Context) (bool, error)) *unit {
	log := l.log.With(place(parts)...)
	ctx, abandon := context.WithCancel(context.Background())
	u := &unit{loop: l, log: log, parts: parts, before: before, ours: ours, abandon: abandon,
		idle: max(100*time.Millisecond, l.opts.Config.Outbox.LeaseTime/4),
		wake: make(chan struct{}, 1), stopping: make(chan struct{}), done: make(chan struct{}),
		outage: outages{log: log, retries: l.metrics.retries.Inc}}
	go u.run(ctx)
	return u
}

// stopAll has units finish what is in flight, all at once, and abandons those that have not by the deadline. It does
// not wait for those: join does.
func stopAll(units []*unit, within time.Duration) {
	for _, u := range units {
		u.stop()
	}
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	late := false
	for _, u := range units {
		if !late {
			select {
			case <-u.done:
			case <-deadline.C:
				late = true
			}
		}
		if late {
			u.abandon()
		}
	}
}

// join waits until units have ended. An abandoned one ends as soon as its sink lets go.
func join(units []*unit) {
	for _, u := range units {
		<-u.done
		u.abandon() // frees the context
	}
}

// admitDead counts dead letters of a partition, over all its owners in this process.
func (l *loop) admitDead(p event.Partition, n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.rates[p]
	if r == nil {
		r = &deadRate{perMinute: l.opts.Config.Dead.HaltPerMinute}
		l.rates[p] = r
	}
	return r.admit(time.Now(), n)
}

// noteApplied remembers a position for the next commit to the broker.
func (l *loop) noteApplied(at event.Position) {
	l.mu.Lock()
	l.toTell[at.Partition] = kgo.EpochOffset{Epoch: at.LeaderEpoch, Offset: at.Next}
	l.mu.Unlock()
}

// untold returns what lag tools do not know yet.
func (l *loop) untold() map[string]map[int32]kgo.EpochOffset {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]map[int32]kgo.EpochOffset{}
	for p, at := range l.toTell {
		if out[p.Topic] == nil {
			out[p.Topic] = map[int32]kgo.EpochOffset{}
		}
		out[p.Topic][p.Number] = at
	}
	clear(l.toTell)
	return out
}

// every does something each period, until ctx ends.
func every(ctx context.Context, period time.Duration, do func()) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do()
		}
	}
}

// lookOut asks how the logs stand: for the lag of partitions that are not fetched just now, and for changes of leader or
// topic that no record has told of.
func (l *loop) lookOut(ctx context.Context) {
	streams := map[event.Partition]*stream{}
	l.reader.each(func(s *stream) { streams[s.part] = s })
	var at []event.Position
	for p := range streams {
		at = append(at, event.Position{Partition: p, LeaderEpoch: -1})
	}
	for _, h := range l.halts.list() {
		if streams[h.Partition] == nil {
			at = append(at, event.Position{Partition: h.Partition, LeaderEpoch: -1})
		}
	}
	if len(at) == 0 {
		return
	}
	logs, err := kafka.Inspect(ctx, l.reader.cl, at)
	if err != nil {
		l.log.Debug("could not ask for the ends of the logs", "error", err)
		return
	}
	for p, log := range logs {
		if log.Err != nil {
			continue
		}
		if s := streams[p]; s != nil {
			s.look(log)
		} else if !log.Gone {
			l.halts.look(p, log.Stable)
		}
	}
}

// lookAtOwners has the sink find what was fenced while it had nothing to apply. A store that does not answer fences nobody,
// and is reported by whoever has something to apply there.
func (l *loop) lookAtOwners(ctx context.Context, sink Unleased) {
	look, cancel := context.WithTimeout(ctx, l.opts.CheckPeriod)
	defer cancel()
	if err := sink.Look(look); err != nil && ctx.Err() == nil {
		l.log.Debug("could not look who owns the partitions", "error", err)
	}
}

// look compares what the leader says with what the stream was verified against.
func (s *stream) look(log kafka.Log) {
	if log.Gone || log.TopicID != s.topicID && log.TopicID != (event.TopicID{}) {
		s.fail(errTopicChanged)
		return
	}
	s.mu.Lock()
	s.stable = max(s.stable, log.Stable)
	changed := s.leader != log.LeaderEpoch
	s.leader = log.LeaderEpoch
	s.mu.Unlock()
	if changed {
		s.ask()
	}
}
