package line

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slotline/slotline/outbox"
	"github.com/slotline/slotline/sinks/olap/rollup"
)

// scrapeTimeout bounds what a scrape asks of the outbox database.
const scrapeTimeout = 2 * time.Second

// backlogCollector asks the outbox database how far the lanes are behind. Every process exports it, so that the alarm
// on the oldest age works while no relay runs.
type backlogCollector struct {
	line   *Line
	oldest *prometheus.Desc
	events *prometheus.Desc
	up     *prometheus.Desc

	mu sync.Mutex // one question at a time
}

func newBacklogCollector(l *Line) *backlogCollector {
	return &backlogCollector{line: l,
		oldest: prometheus.NewDesc("slotline_outbox_oldest_unpublished_seconds", "Age of the oldest unpublished event of a lane; 0 when there is none.", []string{"lane"}, nil),
		events: prometheus.NewDesc("slotline_outbox_backlog_events", "Ids of a lane beyond its cursor; those of rolled-back transactions count too.", []string{"lane"}, nil),
		up:     prometheus.NewDesc("slotline_outbox_up", "1 when the outbox database answered this scrape.", nil, nil)}
}

func (c *backlogCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.oldest
	ch <- c.events
	ch <- c.up
}

func (c *backlogCollector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	var list []outbox.Backlog
	db, err := c.line.outboxDB()
	if err == nil {
		list, err = outbox.Backlogs(ctx, db, c.line.Config.Outbox.Lanes)
	}
	if err != nil {
		ch <- prometheus.MustNewConstMetric(c.up, prometheus.GaugeValue, 0)
		return
	}
	ch <- prometheus.MustNewConstMetric(c.up, prometheus.GaugeValue, 1)
	for _, b := range list {
		lane := laneName(b.Lane)
		ch <- prometheus.MustNewConstMetric(c.oldest, prometheus.GaugeValue, b.OldestAge.Seconds(), lane)
		ch <- prometheus.MustNewConstMetric(c.events, prometheus.GaugeValue, float64(b.Events()), lane)
	}
}

// rollupCollector asks the database of sinks.state how far the rollups are behind.
type rollupCollector struct{ line *Line }

var (
	rollupLag   = prometheus.NewDesc("slotline_sink_rollup_lag_seconds", "Since the first event that a rollup of the sink does not have; 0 when there is none.", []string{"sink"}, nil)
	rollupPairs = prometheus.NewDesc("slotline_sink_rollup_pairs", "Pairs of tenant and day, over all rollups, that are to be computed anew.", []string{"sink"}, nil)
	rollupFills = prometheus.NewDesc("slotline_sink_rollup_fills", "Rollups that are to be filled from the whole base table.", []string{"sink"}, nil)
)

func (c rollupCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- rollupLag
	ch <- rollupPairs
	ch <- rollupFills
}

// Collect leaves the figures out when the database does not answer.
func (c rollupCollector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	db, err := c.line.stateDB()
	if err != nil {
		return
	}
	for _, sink := range c.line.olapSinks() {
		lag, err := rollup.ReadLag(ctx, db, sink, c.line.Config.Rollups)
		if err != nil {
			continue
		}
		for d, v := range map[*prometheus.Desc]float64{rollupLag: lag.Oldest.Seconds(), rollupPairs: float64(lag.Pairs), rollupFills: float64(lag.Fills)} {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, sink)
		}
	}
}

// laneCollector exports what a relay knows of its lanes.
type laneCollector struct{ relay *outbox.Relay }

var (
	laneOwned = prometheus.NewDesc("slotline_relay_lane_owned", "1 when this relay holds the lane's lease.", []string{"lane"}, nil)
	laneGaps  = prometheus.NewDesc("slotline_relay_gap_ids", "Ids below the cursor that are not published.", []string{"lane", "kind"}, nil)
	lanePub   = prometheus.NewDesc("slotline_relay_published_total", "Events acknowledged by Kafka.", []string{"lane"}, nil)
	laneTaken = prometheus.NewDesc("slotline_relay_take_overs_total", "Times that this relay took the lane over; each raises its owner epoch.", []string{"lane"}, nil)
	laneGiven = prometheus.NewDesc("slotline_relay_hand_overs_total", "Times that this relay drained the lane and gave it back.", []string{"lane"}, nil)
	laneFound = prometheus.NewDesc("slotline_relay_found_total", "Events that a take-over found in the topic already.", []string{"lane"}, nil)
	laneDead  = prometheus.NewDesc("slotline_relay_dead_letters_total", "Dead letters of the relay.", []string{"lane"}, nil)
	laneLost  = prometheus.NewDesc("slotline_relay_lost_commits_total", "Events in the topic whose transactions a failover or a restore lost.", []string{"lane"}, nil)
	laneFly   = prometheus.NewDesc("slotline_relay_in_flight_events", "Events sent and not yet acknowledged.", []string{"lane"}, nil)
	laneHalt  = prometheus.NewDesc("slotline_relay_lane_halted", "1 when the lane is halted.", []string{"lane"}, nil)
	lanePart  = prometheus.NewDesc("slotline_relay_partitions_ahead", "Empty partitions of the lane table beyond its greatest id; 0 when ids are about to reach the last one, or have.", []string{"lane"}, nil)
	laneHeld  = prometheus.NewDesc("slotline_relay_purge_held_seconds", "How long partitions behind the cursor have waited to be purged; 0 when none waits.", []string{"lane"}, nil)
	lanePurgP = prometheus.NewDesc("slotline_relay_purged_partitions_total", "Partitions purged.", []string{"lane"}, nil)
	lanePurgR = prometheus.NewDesc("slotline_relay_purged_rows_total", "Published rows purged.", []string{"lane"}, nil)
	laneDelay = prometheus.NewDesc("slotline_relay_publish_seconds", "Time from append to acknowledgement by Kafka.", []string{"lane"}, nil)
)

func (c laneCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{laneOwned, laneTaken, laneGiven, laneGaps, lanePub, laneFound, laneDead, laneLost, laneFly, laneHalt, lanePart, laneHeld, lanePurgP, lanePurgR, laneDelay} {
		ch <- d
	}
}

func (c laneCollector) Collect(ch chan<- prometheus.Metric) {
	for _, s := range c.relay.Lanes() {
		lane := laneName(s.Lane)
		gauge := func(d *prometheus.Desc, v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{lane}, labels...)...)
		}
		counter := func(d *prometheus.Desc, v uint64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), lane)
		}
		gauge(laneOwned, boolean(s.Owner != ""))
		gauge(laneGaps, float64(s.GapsHot), "hot")
		gauge(laneGaps, float64(s.GapsCold), "cold")
		var parked uint64
		for _, r := range s.Refusals {
			parked += r.Parked
		}
		gauge(laneGaps, float64(parked), "parked")
		gauge(laneFly, float64(s.InFlight))
		gauge(laneHalt, boolean(s.Halted != nil))
		counter(laneTaken, s.TakeOvers)
		counter(laneGiven, s.HandOvers)
		if s.Owner != "" {
			gauge(lanePart, float64(s.PartitionsAhead))
			held := 0.0
			if !s.PurgeHeldSince.IsZero() {
				held = time.Since(s.PurgeHeldSince).Seconds()
			}
			gauge(laneHeld, held)
		}
		counter(lanePurgP, s.PurgedPartitions)
		counter(lanePurgR, s.PurgedRows)
		counter(lanePub, s.Published)
		counter(laneFound, s.Found)
		counter(laneDead, s.Dead)
		counter(laneLost, s.Lost)
		buckets := make(map[float64]uint64, len(outbox.LatencyBounds))
		var sum uint64
		for i, bound := range outbox.LatencyBounds {
			sum += s.Latency[i]
			buckets[bound] = sum
		}
		sum += s.Latency[len(outbox.LatencyBounds)]
		ch <- prometheus.MustNewConstHistogram(laneDelay, sum, s.LatencySum, buckets, lane)
	}
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
