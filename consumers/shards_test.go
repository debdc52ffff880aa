package consumers

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
)

// twoShards is a sink whose figures are set by hand.
type twoShards struct {
	Sink
	at map[event.Partition][]event.ShardPosition
}

func (twoShards) ShardCounts() []event.ShardCounts {
	return []event.ShardCounts{{Shard: "s1", Rows: 7, Batches: 2, Bytes: 100, Retired: 4}, {Shard: "s2", Retries: 3}}
}

func (s twoShards) ShardPositions(p event.Partition) []event.ShardPosition { return s.at[p] }

// The lag of a shard is its own: one that has committed its part of a batch is not held to be as late as the one that
// has not. Partitions add up, also those that are halted and not read.
func TestMetricsTellShardsApart(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	ago := func(seconds int64) item {
		return item{rec: &kgo.Record{Timestamp: now.Add(-time.Duration(seconds) * time.Second)}}
	}
	p0, p1, p2 := event.Partition{Topic: "t", Number: 0}, event.Partition{Topic: "t", Number: 1}, event.Partition{Topic: "t", Number: 2}
	// Offsets 10..14 are in flight, 15..19 in the batch after it, 20..29 in the queue; the log ends at 40.
	s := &stream{part: p0, applied: 10, stable: 40, q: queue{part: p0, next: 20, end: 30, items: []item{ago(1)}},
		cuts: []cut{{15, now.Add(-60 * time.Second)}, {20, now.Add(-20 * time.Second)}}}
	idle := &stream{part: p1, applied: 5, stable: 5, q: queue{part: p1, next: 5, end: 5}}
	sink := twoShards{at: map[event.Partition][]event.ShardPosition{
		p0: {{Shard: "s1", Next: 15}, {Shard: "s2", Next: 10}},
		p1: {{Shard: "s1", Next: 5}},
		p2: {{Shard: "s2", Next: -1}},
	}}
	l := &loop{sink: sink, reader: &reader{streams: map[event.Partition]*stream{p0: s, p1: idle}}}
	l.halts.add(p2, 100, &fault.Error{What: "x"}, now.Add(-90*time.Second))
	l.halts.look(p2, 107)
	m := newShardMetrics(prometheus.Labels{"sink": "mysql"}, l, sink)
	for shard, want := range map[string]shardLag{"s1": {25, 20 * time.Second}, "s2": {30 + 7, 90 * time.Second}} {
		if got := m.lags(now)[shard]; got != want {
			t.Errorf("%s: %+v, wanted %+v", shard, got, want)
		}
	}
	s.passed(15)
	if got := m.lags(now)["s1"]; got != (shardLag{25, 20 * time.Second}) {
		t.Errorf("after the batch: %+v", got)
	}
	s.passed(20)
	if got, _ := s.lag(now); got != 20 || len(s.cuts) != 0 {
		t.Errorf("%d offsets behind, %v in flight", got, s.cuts)
	}
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(m)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, v := range f.Metric {
			labels := map[string]string{}
			for _, pair := range v.Label {
				labels[pair.GetName()] = pair.GetValue()
			}
			if labels["sink"] != "mysql" {
				t.Errorf("%s has the labels %v", f.GetName(), labels)
			}
			got[strings.TrimPrefix(f.GetName(), "slotline_sink_shard_")+" "+labels["shard"]] = v.GetCounter().GetValue()
		}
	}
	for name, want := range map[string]float64{"rows_total s1": 7, "batches_total s1": 2, "bytes_total s1": 100, "retired_events_total s1": 4, "retries_total s2": 3} {
		if got[name] != want {
			t.Errorf("%s is %v, wanted %v", name, got[name], want)
		}
	}
	if len(got) != 14 {
		t.Errorf("%d figures: %v", len(got), got)
	}
}
