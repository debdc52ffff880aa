package consumers

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slotline/slotline/event"
)

// metrics of one loop; all carry the label sink.
type metrics struct {
	rows, batches, bytes, retries, takeOvers prometheus.Counter
	deadLetters                              *prometheus.CounterVec
	unregister                               func()
}

func newMetrics(reg prometheus.Registerer, sink string, l *loop) (*metrics, error) {
	labels := prometheus.Labels{"sink": sink}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "slotline_sink_" + name, Help: help, ConstLabels: labels})
	}
	m := &metrics{
		rows:      counter("rows_total", "Rows applied."),
		batches:   counter("batches_total", "Batches applied."),
		bytes:     counter("bytes_total", "Bytes applied, as sent to the engine."),
		retries:   counter("retries_total", "Tries that failed and are repeated: an outage somewhere."),
		takeOvers: counter("take_overs_total", "Take-overs of partitions or groups: each bumps an owner epoch."),
		deadLetters: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "slotline_sink_dead_letters_total",
			Help: "Events written to the dead-letter topic, by reason.", ConstLabels: labels}, []string{"reason"}),
		unregister: func() {},
	}
	if reg == nil {
		return m, nil
	}
	var done []prometheus.Collector
	m.unregister = func() {
		for _, c := range done {
			reg.Unregister(c)
		}
	}
	all := []prometheus.Collector{m.rows, m.batches, m.bytes, m.retries, m.takeOvers, m.deadLetters, newGauges(labels, l)}
	if s, ok := l.sink.(Sharded); ok {
		all = append(all, newShardMetrics(labels, l, s))
	}
	for _, c := range all {
		if err := reg.Register(c); err != nil {
			m.unregister()
			return nil, err
		}
		done = append(done, c)
	}
	return m, nil
}

func (m *metrics) applied(rows, bytes int) {
	m.rows.Add(float64(rows))
	m.batches.Inc()
	m.bytes.Add(float64(bytes))
}

func (m *metrics) dead(reason string) { m.deadLetters.WithLabelValues(reason).Inc() }

// gauges are read when they are asked for, so that they cannot go stale.
type gauges struct {
	loop                                    *loop
	lagEvents, lagSeconds, halted, buffered *prometheus.Desc
}

func newGauges(labels prometheus.Labels, l *loop) *gauges {
	desc := func(name, help string, by ...string) *prometheus.Desc {
		return prometheus.NewDesc("slotline_sink_"+name, help, by, labels)
	}
	return &gauges{loop: l,
		lagEvents:  desc("lag_events", "Offsets between progress and the end of the log.", "topic", "partition"),
		lagSeconds: desc("lag_seconds", "Age of the oldest event that is read and not applied.", "topic", "partition"),
		halted:     desc("halted", "1 for a partition that is halted.", "topic", "partition"),
		buffered:   desc("buffered_bytes", "Raw records held in memory."),
	}
}

func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	ch <- g.lagEvents
	ch <- g.lagSeconds
	ch <- g.halted
	ch <- g.buffered
}

func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	now := time.Now()
	send := func(d *prometheus.Desc, p event.Partition, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, p.Topic, strconv.Itoa(int(p.Number)))
	}
	read := map[event.Partition]bool{}
	g.loop.reader.each(func(s *stream) {
		read[s.part] = true
		events, behind := s.lag(now)
		send(g.lagEvents, s.part, float64(events))
		send(g.lagSeconds, s.part, behind.Seconds())
		if !g.loop.halts.has(s.part) {
			send(g.halted, s.part, 0)
		}
	})
	for _, h := range g.loop.halts.list() {
		send(g.halted, h.Partition, 1)
		if !read[h.Partition] {
			events, behind := h.lag(now)
			send(g.lagEvents, h.Partition, float64(events))
			send(g.lagSeconds, h.Partition, behind.Seconds())
		}
	}
	ch <- prometheus.MustNewConstMetric(g.buffered, prometheus.GaugeValue, float64(g.loop.reader.held.Load()))
}

// shardMetrics are those of a sink with several databases; all carry the label shard too. They are read when they are
// asked for.
type shardMetrics struct {
	loop                                                          *loop
	sink                                                          Sharded
	rows, batches, bytes, retries, retired, lagEvents, lagSeconds *prometheus.Desc
}

func newShardMetrics(labels prometheus.Labels, l *loop, sink Sharded) *shardMetrics {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("slotline_sink_"+name, help, []string{"shard"}, labels)
	}
	return &shardMetrics{loop: l, sink: sink,
		rows:       desc("shard_rows_total", "Rows applied to the shard."),
		batches:    desc("shard_batches_total", "Batches applied to the shard."),
		bytes:      desc("shard_bytes_total", "Bytes applied to the shard, as sent to it."),
		retries:    desc("shard_retries_total", "Tries at the shard that failed and are repeated."),
		retired:    desc("shard_retired_events_total", "Events passed over, since their months are retired in the shard."),
		lagEvents:  desc("shard_lag_events", "Offsets between the shard's progress and the end of the log, over this process's partitions."),
		lagSeconds: desc("shard_lag_seconds", "Age of the oldest event that is read and not applied to the shard."),
	}
}

func (m *shardMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.rows, m.batches, m.bytes, m.retries, m.retired, m.lagEvents, m.lagSeconds} {
		ch <- d
	}
}

func (m *shardMetrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.sink.ShardCounts() {
		counter := func(d *prometheus.Desc, n uint64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), c.Shard)
		}
		counter(m.rows, c.Rows)
		counter(m.batches, c.Batches)
		counter(m.bytes, c.Bytes)
		counter(m.retries, c.Retries)
		counter(m.retired, c.Retired)
	}
	for shard, l := range m.lags(time.Now()) {
		ch <- prometheus.MustNewConstMetric(m.lagEvents, prometheus.GaugeValue, float64(l.events), shard)
		ch <- prometheus.MustNewConstMetric(m.lagSeconds, prometheus.GaugeValue, l.behind.Seconds(), shard)
	}
}

// shardLag is a shard's over all partitions that this process has: offsets add up, of times the longest counts.
type shardLag struct {
	events int64
	behind time.Duration
}

func (m *shardMetrics) lags(now time.Time) map[string]shardLag {
	all := map[string]shardLag{}
	add := func(shard string, events int64, behind time.Duration) {
		l := all[shard]
		all[shard] = shardLag{l.events + events, max(l.behind, behind)}
	}
	read := map[event.Partition]bool{}
	m.loop.reader.each(func(s *stream) {
		read[s.part] = true
		at := m.sink.ShardPositions(s.part)
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, p := range at {
			events, behind := s.lagFrom(max(p.Next, s.applied), now)
			add(p.Shard, events, behind)
		}
	})
	for _, h := range m.loop.halts.list() {
		if read[h.Partition] {
			continue
		}
		for _, p := range m.sink.ShardPositions(h.Partition) {
			h := h
			h.next = max(p.Next, h.next)
			events, behind := h.lag(now)
			add(p.Shard, events, behind)
		}
	}
	return all
}
