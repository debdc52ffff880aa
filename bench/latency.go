package main

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/outbox"
	"github.com/slotline/slotline/producer"
)

const (
	latencyRounds  = 4
	callersRounds  = 8
	latencyRun     = 2500 * time.Millisecond // of one side of a round
	latencyWorkers = 48                      // transactions under way at once, at most
	latencyQuiet   = 30 * time.Second        // within which the last events must be acknowledged
	rateReached    = 0.95                    // of a higher rate than the first; less and there is no figure for it
)

// latencyRates are transactions of one event a second.
var latencyRates = []int{200, 2000}

// timeline is when the transaction of each order was committed, and when its record was acknowledged. Orders are
// numbered by their id.
type timeline struct {
	first     uint64
	committed []atomic.Int64 // Unix nanoseconds
	acked     []atomic.Int64
	left      atomic.Int64
	done      chan struct{}
}

func newTimeline(first uint64, n int) *timeline {
	t := &timeline{first: first, committed: make([]atomic.Int64, n), acked: make([]atomic.Int64, n), done: make(chan struct{})}
	t.left.Store(int64(n))
	return t
}

// ack is a client's hook. The id of an order stands at the end of its record's key.
func (t *timeline) ack(r *kgo.Record, err error) {
	now := time.Now().UnixNano()
	id, parseErr := strconv.ParseUint(string(r.Key[bytes.LastIndexByte(r.Key, 0)+1:]), 10, 64)
	if err != nil || parseErr != nil || id < t.first || id-t.first >= uint64(len(t.acked)) {
		return // shows as an event that is never acknowledged
	}
	if t.acked[id-t.first].CompareAndSwap(0, now) && t.left.Add(-1) == 0 {
		close(t.done)
	}
}

// millis are the latencies. An answer may be here before COMMIT's is: that is none.
func (t *timeline) millis() []float64 {
	list := make([]float64, len(t.acked))
	for i := range list {
		list[i] = max(0, float64(t.acked[i].Load()-t.committed[i].Load())/1e6)
	}
	return list
}

// latencySide is one way to bring a committed order to Kafka.
type latencySide struct {
	*service
	line atomic.Pointer[timeline]
	do   func(o order) error // returns once committed
}

// run writes orders at a fixed rate, whatever the latency, and returns the latencies and the transactions per second
// that were reached.
func (s *latencySide) run(rate int, lasts time.Duration) (millis []float64, reached float64) {
	n := int(float64(rate) * lasts.Seconds())
	t := newTimeline(s.next.Load()+1, n)
	s.line.Store(t)
	took := s.atRate(rate, n, s.do)
	s.await(t.done, latencyQuiet, "the last events", func() string { return fmt.Sprintf("%d without an acknowledgement", t.left.Load()) })
	return t.millis(), float64(n) / took.Seconds()
}

// atRate has do write n orders, so many a second, and returns how long all took.
func (s *service) atRate(rate, n int, do func(order) error) time.Duration {
	due := make(chan struct{}, n)
	failed := make(chan error, latencyWorkers)
	var wg sync.WaitGroup
	for range latencyWorkers {
		wg.Go(func() {
			for range due {
				if err := do(s.image()); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	began := time.Now()
	tick := time.NewTicker(time.Millisecond)
	for sent := 0; sent < n; {
		<-tick.C
		for ; sent < min(n, int(time.Since(began).Seconds()*float64(rate))+1); sent++ {
			due <- struct{}{}
		}
	}
	tick.Stop()
	close(due)
	wg.Wait()
	took := time.Since(began)
	select {
	case err := <-failed:
		s.Fatal(err)
	default:
	}
	return took
}

// callers sets transactions that emit on a line with a relay in their process beside the same on a line without one:
// what the relay's reads cost the service.
func callers(b *bench, relayed *service, rate int) Result {
	alone := b.newService(b.newLine("", orderTable), latencyWorkers)
	lasts := b.lasts(latencyRun)
	n := int(float64(rate) * lasts.Seconds())
	measure := func(s *service) func(int) float64 {
		return func(int) float64 {
			micros := make([]float64, n)
			var at atomic.Int64
			s.atRate(rate, n, func(o order) error {
				began := time.Now()
				err := s.emit(o)
				micros[at.Add(1)-1] = float64(time.Since(began).Nanoseconds()) / 1000
				return err
			})
			return quantile(micros, 0.5)
		}
	}
	measure(alone)(0) // opens the connections
	rounds := b.alternate(callersRounds, nil, measure(relayed), measure(alone))
	slower := each(rounds, func(r round) float64 { return 100 * (r.ours/r.bare - 1) })
	return summarize("relay_callers", fmt.Sprintf("µs/transaction, p50 at %d/s", rate), rounds,
		fmt.Sprintf("a relay in the process slows transactions that emit by %.1f %% (%.1f to %.1f over the rounds)",
			median(slower), slices.Min(slower), slices.Max(slower)))
}

// commits notes when an order was committed.
func (s *latencySide) commits(o *order) {
	t := s.line.Load()
	t.committed[o.ID-t.first].Store(time.Now().UnixNano())
}

func relayLatency(b *bench) []Result {
	l := b.newLine("", orderTable)
	var relay *outbox.Relay
	base := b.newService(l, latencyWorkers, producer.WithWake(func(lane int) { relay.Wake(lane) }))

	ours := &latencySide{service: base}
	ours.do = func(o order) error {
		err := base.emit(o)
		ours.commits(&o)
		return err
	}
	relay = l.newRelay(func() {}, func(r *kgo.Record, err error) { ours.line.Load().ack(r, err) })
	ours.line.Store(newTimeline(0, 0))
	l.ending(relay.Run)

	bare := &latencySide{service: base}
	client := l.client(kgo.WithHooks(acks{func(r *kgo.Record, err error) { bare.line.Load().ack(r, err) }}))
	structs, err := event.StructOf[order](l.cfg.Table("orders"))
	if err != nil {
		b.Fatal(err)
	}
	topic := l.newTopic("bare")
	bare.do = func(o order) error {
		if err := base.plain(o); err != nil {
			return err
		}
		bare.commits(&o)
		e, err := o.event(structs, l.layout.Epoch())
		if err != nil {
			return err
		}
		e.Version = int64(o.ID)
		return client.ProduceSync(b.Context(), l.record(&e, topic)).FirstErr()
	}

	var results []Result
	for _, rate := range latencyRates {
		results = append(results, latencyAt(b, rate, ours, bare)...)
	}
	results = append(results, callers(b, base, latencyRates[0]))
	return results
}

func latencyAt(b *bench, rate int, ours, bare *latencySide) []Result {
	lasts := b.lasts(latencyRun)
	// The first transactions of a rate open connections. They also show whether the machine can do it.
	lowest := 1.0
	for _, side := range []*latencySide{ours, bare} {
		_, reached := side.run(rate, min(lasts, time.Second))
		lowest = min(lowest, reached/float64(rate))
	}
	if lowest < rateReached && rate != latencyRates[0] {
		b.Logf("relay_latency: %d transactions/s were asked for, %.0f reached: no figure at this rate", rate, lowest*float64(rate))
		return nil
	}
	p99 := make([]round, latencyRounds)
	measure := func(side *latencySide, tail func(i int, v float64)) func(int) float64 {
		return func(i int) float64 {
			millis, reached := side.run(rate, lasts)
			lowest = min(lowest, reached/float64(rate))
			tail(i, quantile(millis, 0.99))
			return quantile(millis, 0.5)
		}
	}
	p50 := b.alternate(latencyRounds, nil,
		measure(ours, func(i int, v float64) { p99[i].ours = v }), measure(bare, func(i int, v float64) { p99[i].bare = v }))
	name := "relay_latency"
	if rate != latencyRates[0] {
		name += fmt.Sprintf("_%d", rate)
	}
	note := fmt.Sprintf("p50 from COMMIT's answer to the broker's; %d transactions of one event a second for %s a side and round, relay in the same process, %d lanes; at least %.0f/s reached",
		rate, lasts, ours.cfg.Outbox.Lanes, lowest*float64(rate))
	return []Result{
		summarize(name, fmt.Sprintf("ms p50 at %d/s", rate), p50, note),
		summarize(name+"_p99", fmt.Sprintf("ms p99 at %d/s", rate), p99[:len(p50)], ""),
	}
}
