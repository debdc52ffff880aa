package consumers

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/kafka"
)

const (
	// pollRecordsMax bounds one poll, so that commands and the throttle are looked at between large fetches.
	pollRecordsMax = 10_000
	// throttlePeriod is how often the throttle is looked at while nothing is polled.
	throttlePeriod = 50 * time.Millisecond
	// slowAfter is how long a batch may be in flight before its partition counts as one that does not move.
	slowAfter = time.Second
	// fetchWait bounds how long a resumed partition waits for the fetch under way.
	fetchWait = 500 * time.Millisecond
	// A fetch that returned less than pacedBytes is followed by a pause of at least a pacedShare of the batch's age, and
	// of at most paceMax: else a broker answers a thousand times a second with a record or two, and spends more on that
	// than on the records.
	pacedBytes = 64 << 10
	pacedShare = 4
	paceMax    = 50 * time.Millisecond
)

// reader consumes partitions directly, each from the offset that the sink named, into streams. One goroutine (run)
// polls and carries out what others ask, so that no record of a partition that was removed can reach the stream that
// follows it: the client drops what it has buffered when a partition is removed, and nothing is polled in between.
type reader struct {
	cl     *kgo.Client
	log    *slog.Logger
	budget int64 // bytes of raw records that streams may hold
	fetch  *fetchSize
	pace   time.Duration // from a small fetch to the next one, at least

	mu       sync.Mutex
	commands []func()
	interest context.CancelFunc // ends the poll under way, so that a command runs at once
	streams  map[event.Partition]*stream
	ids      map[string]event.TopicID // of the topics, as the client has them
	paused   map[event.Partition]bool

	held atomic.Int64
	room chan struct{} // signalled when bytes were released
}

func newReader(cfg *config.Config, role string, log *slog.Logger, memoryBytes int64, batchAge time.Duration, more []kgo.Opt) (*reader, error) {
	r := &reader{log: log, streams: map[event.Partition]*stream{}, ids: map[string]event.TopicID{}, paused: map[event.Partition]bool{},
		room: make(chan struct{}, 1), pace: min(batchAge/pacedShare, paceMax)}
	r.fetch = newFetchSize(memoryBytes)
	r.budget = memoryBytes / rawShare
	folding, err := newFolding(decompressedBatchesMax * kafka.RecordBytesMax(cfg))
	if err != nil {
		return nil, err
	}
	opts := append([]kgo.Opt{
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), // an offset out of range is an answer for a person, not for the client
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // a log may end with markers: progress passes them, so that lag can be 0
		kgo.FetchMaxWait(fetchWait),
		kgo.FetchMaxBytes(r.fetch.now),
		kgo.FetchMaxPartitionBytes(r.fetch.now),
		kgo.MaxConcurrentFetches(fetchesMax),
		kgo.WithDecompressor(folding),
		kgo.WithHooks(r.fetch)}, more...)
	cl, err := kafka.NewClient(cfg, role, log, opts...)
	if err != nil {
		return nil, err
	}
	r.cl = cl
	return r, nil
}

// run polls until ctx ends.
func (r *reader) run(ctx context.Context) {
	var next time.Time // poll not before
	for ctx.Err() == nil {
		r.runCommands()
		if !r.throttle() {
			r.await(ctx, throttlePeriod)
			continue
		}
		poll, cancel := context.WithTimeout(ctx, time.Second) // so that the throttle is looked at on a quiet topic too
		if !r.interrupt(cancel) {
			cancel()
			continue
		}
		pause(poll, time.Until(next))
		fetches := r.cl.PollRecords(poll, pollRecordsMax)
		cancel()
		now := time.Now()
		if r.deliver(fetches, now) < pacedBytes {
			next = now.Add(r.pace)
		}
		if bytes, changed := r.fetch.adapt(); changed {
			r.cl.UpdateFetchMaxBytes(bytes, bytes)
		}
	}
	r.runCommands()
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// deliver returns how many bytes the streams took.
func (r *reader) deliver(fetches kgo.Fetches, now time.Time) (bytes int64) {
	for i := range fetches {
		for j := range fetches[i].Topics {
			t := &fetches[i].Topics[j]
			for k := range t.Partitions {
				bytes += r.deliverPartition(t, &t.Partitions[k], now)
			}
		}
	}
	return bytes
}

func (r *reader) deliverPartition(t *kgo.FetchTopic, p *kgo.FetchPartition, now time.Time) (bytes int64) {
	r.mu.Lock()
	s := r.streams[event.Partition{Topic: t.Topic, Number: p.Partition}]
	r.mu.Unlock()
	if s == nil {
		return 0 // removed, or the client speaks of no partition (an ended poll)
	}
	if id := event.TopicID(t.TopicID); id != (event.TopicID{}) && s.topicID != (event.TopicID{}) && id != s.topicID {
		s.fail(errTopicChanged)
		return 0
	}
	// What came with an error came before it.
	bytes = s.push(p, now)
	r.held.Add(bytes)
	if p.Err != nil && !errors.Is(p.Err, context.Canceled) && !errors.Is(p.Err, context.DeadlineExceeded) {
		s.fail(p.Err)
	}
	return bytes
}

// errTopicChanged is what a stream fails with when a fetch comes from another topic of the same name.
var errTopicChanged = errors.New("the topic was deleted and made again")

// do has f run between two polls, and waits for it. Whoever calls it ends before run's context does.
func (r *reader) do(f func()) {
	done := make(chan struct{})
	r.mu.Lock()
	r.commands = append(r.commands, func() { defer close(done); f() })
	if r.interest != nil {
		r.interest()
	}
	r.mu.Unlock()
	signal(r.room)
	<-done
}

// interrupt registers how to end the coming poll; false when a command is waiting already.
func (r *reader) interrupt(cancel context.CancelFunc) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.interest = cancel
	return len(r.commands) == 0
}

func (r *reader) runCommands() {
	r.mu.Lock()
	commands := r.commands
	r.commands = nil
	r.mu.Unlock()
	for _, f := range commands {
		f()
	}
}

func (r *reader) await(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-r.room:
	case <-timer.C:
	}
}

// add begins to read into s, from where its queue ends. The client gets no epoch: it would go on from wherever the
// epoch's log ends, and the unit has asked that question already.
func (r *reader) add(s *stream) {
	r.do(func() {
		r.mu.Lock()
		r.streams[s.part] = s
		known, ok := r.ids[s.part.Topic]
		r.ids[s.part.Topic] = s.topicID
		r.mu.Unlock()
		if ok && known != s.topicID {
			// The client never goes on with a topic that was made again, unless it forgets the old one first. The
			// streams of the old one have failed, or will.
			r.cl.PurgeTopicsFromConsuming(s.part.Topic)
		}
		s.mu.Lock()
		s.logged = true
		s.mu.Unlock()
		r.cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{
			s.part.Topic: {s.part.Number: kgo.NoResetOffset().At(s.readTo())}})
	})
}

// remove ends reading into s and drops what it holds in its queue; batches that were cut of it stay held.
func (r *reader) remove(s *stream) {
	s.past.stop()
	r.do(func() {
		r.mu.Lock()
		if r.streams[s.part] == s {
			delete(r.streams, s.part)
			r.cl.RemoveConsumePartitions(map[string][]int32{s.part.Topic: {s.part.Number}})
			if r.paused[s.part] {
				delete(r.paused, s.part)
				r.cl.ResumeFetchPartitions(map[string][]int32{s.part.Topic: {s.part.Number}})
			}
		}
		r.mu.Unlock()
		r.held.Add(-s.close())
	})
}

// release gives back the bytes of a batch that was applied or dropped.
func (r *reader) release(s *stream, bytes int64) {
	s.release(bytes)
	r.held.Add(-bytes)
	signal(r.room)
}

// throttle pauses and resumes partitions, and says whether to poll.
func (r *reader) throttle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	parts := make([]event.Partition, 0, len(r.streams))
	loads := make([]load, 0, len(r.streams))
	for p, s := range r.streams {
		s.mu.Lock()
		// What is read from History bounds itself, and could not be read again from the log.
		loads = append(loads, load{bytes: s.held, slow: s.slow && s.logged, paused: r.paused[p]})
		s.mu.Unlock()
		parts = append(parts, p)
	}
	paused, share, poll := throttle(loads, r.budget)
	for i, p := range parts {
		one := map[string][]int32{p.Topic: {p.Number}}
		switch {
		case paused[i] && !r.paused[p]:
			r.paused[p] = true
			r.cl.PauseFetchPartitions(one)
		case !paused[i] && r.paused[p]:
			delete(r.paused, p)
			r.cl.ResumeFetchPartitions(one)
		}
		if paused[i] && loads[i].bytes > share {
			if next, dropped := r.streams[p].trim(share); dropped > 0 {
				r.held.Add(-dropped)
				r.cl.RemoveConsumePartitions(one)
				r.cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{p.Topic: {p.Number: kgo.NoResetOffset().At(next)}})
			}
		}
	}
	return poll
}

// each calls f for every stream that is read.
func (r *reader) each(f func(*stream)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.streams {
		f(s)
	}
}
