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
	for _, c := range []prometheus.Collector{m.rows, m.batches, m.bytes, m.retries, m.takeOvers, m.deadLetters, newGauges(labels, l)} {
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
