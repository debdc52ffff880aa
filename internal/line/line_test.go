package line

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/internal/plan"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/partitioner"
)

var update = flag.Bool("update", false, "rewrite golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; got\n%s", path, got)
	}
}

func spec(epoch int64, split partitioner.Slot) partitioner.Spec {
	return partitioner.Spec{Epoch: epoch, Slots: 1024, Shards: []partitioner.ShardSpec{
		{Name: "s1", Slots: []partitioner.SlotRange{{First: 0, Last: split}}},
		{Name: "s2", Slots: []partitioner.SlotRange{{First: split + 1, Last: 1023}}}}}
}

func layoutOf(t *testing.T, s partitioner.Spec, partitions int) *partitioner.Layout {
	t.Helper()
	s, err := s.WithPartitions(partitions)
	if err != nil {
		t.Fatal(err)
	}
	l, err := partitioner.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A file that does not say what was applied is refused, with what would move.
func TestAgree(t *testing.T) {
	applied := layoutOf(t, spec(1, 511), 8)
	for _, c := range []struct {
		name       string
		spec       partitioner.Spec
		partitions int
		applied    *partitioner.Layout
		code       string
		says       string
	}{
		{"same", spec(1, 511), 8, applied, "", ""},
		{"never applied", spec(1, 511), 8, nil, codeNeverApplied, "slotline apply"},
		{"other partitions", spec(1, 511), 12, applied, "SL1806", "kafka.partitions is 12, the layout in force has 8"},
		{"moved slot, same epoch", spec(1, 510), 8, applied, "SL1806", "511"},
		{"moved slot, greater epoch", spec(2, 510), 8, applied, "SL1806", "do: slotline apply"},
		{"greater epoch alone", spec(2, 511), 8, applied, "SL1806", "epoch 2"},
		{"older file", spec(1, 511), 8, layoutOf(t, spec(3, 511), 8), "SL1806", "put the file that was applied last, of layout epoch 3"},
	} {
		l, err := agree("slotline.yaml", c.spec, c.partitions, c.applied)
		if fault.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want code %q", c.name, err, c.code)
			continue
		}
		if c.code == "" && l.Digest() != applied.Digest() {
			t.Errorf("%s: another layout", c.name)
		}
		if err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: the error does not say %q:\n%v", c.name, c.says, err)
		}
	}
}

func TestResumeAt(t *testing.T) {
	one, two := event.TopicID{1}, event.TopicID{2}
	for _, c := range []struct {
		name string
		at   event.Position
		log  kafka.Log
		want int64 // -1: no gap
	}{
		{"whole", event.Position{Next: 50, LeaderEpoch: 3, TopicID: one}, kafka.Log{TopicID: one, Start: 0, End: 90, Epoch: 3, EpochEnd: 90}, -1},
		{"nothing applied", event.Position{LeaderEpoch: -1}, kafka.Log{TopicID: one, End: 90, Epoch: -1, EpochEnd: -1}, -1},
		{"expired", event.Position{Next: 50, LeaderEpoch: 3, TopicID: one}, kafka.Log{TopicID: one, Start: 70, End: 90, Epoch: 3, EpochEnd: 90}, 70},
		{"expired before the first", event.Position{LeaderEpoch: -1}, kafka.Log{TopicID: one, Start: 70, End: 90, Epoch: -1, EpochEnd: -1}, 70},
		{"made again", event.Position{Next: 50, LeaderEpoch: 3, TopicID: one}, kafka.Log{TopicID: two, Start: 0, End: 90, Epoch: 3, EpochEnd: 90}, 0},
		{"cut and filled again", event.Position{Next: 50, LeaderEpoch: 3, TopicID: one}, kafka.Log{TopicID: one, Start: 0, End: 90, Epoch: 3, EpochEnd: 40}, 40},
		{"cut", event.Position{Next: 50, LeaderEpoch: 3, TopicID: one}, kafka.Log{TopicID: one, Start: 0, End: 30, Epoch: 3, EpochEnd: 30}, 30},
		{"replaced", event.Position{Next: 50, LeaderEpoch: 3, TopicID: one}, kafka.Log{TopicID: one, Start: 0, End: 90, Epoch: -1, EpochEnd: -1}, 0},
	} {
		got, gap := resumeAt(c.at, c.log)
		if !gap {
			got = -1
		}
		if got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestStatusText(t *testing.T) {
	at := time.Date(2026, 11, 30, 9, 14, 2, 0, time.UTC)
	p := func(n int32) event.Partition { return event.Partition{Topic: "flights.events", Number: n} }
	key := func(n int32) progress.Key { return progress.Key{Sink: "mysql", Partition: p(n)} }
	before := SinkStatus{progressRows: []progress.Row{{Key: key(0), Next: 100}, {Key: key(1), Next: 7}}}
	sink := SinkStatus{Name: "mysql/s2", progressRows: []progress.Row{
		{Key: key(0), Next: 600, Owner: "sink-a", UpdatedAt: at.Add(-35 * time.Millisecond)},
		{Key: key(1), Next: 7, UpdatedAt: at.Add(-11 * time.Minute), HaltedAt: at.Add(-11 * time.Minute), HaltCode: "SL6001",
			HaltText: "offset 7 is gone from Kafka (log starts at 10): 3 offsets cannot be applied. Nothing was skipped. [SL6001]\n  do: slotline sink accept-gap"},
	}}
	s := &Status{Line: "flights", LayoutEpoch: 1, At: at, Lanes: []LaneStatus{
		{Lane: 0, Owner: "relay-a", Cursor: 18204551, Backlog: 3, OldestSeconds: 0.004, GapsHot: 1},
		{Lane: 1, Cursor: 17993004, Backlog: 5_100_000, OldestSeconds: 4000, GapsCold: 12, Parked: 2000}}}
	s.Halted = sink.measure(before, &laneEnds{ends: map[event.Partition]int64{p(0): 641, p(1): 20}}, nil, at, 0.5)
	s.Sinks = []SinkStatus{sink, {Name: "clickhouse", Partitions: 16, Owned: 16, Owners: []string{"olap-a"}}, {Name: "mysql/s3", Unreachable: "mysql/s3 db3/flights_s3: dial tcp 10.0.0.3:3306: connect: connection refused [SL9007]\n  no server answers at that address\n  do: start the server, or correct host and port in the DSN"}}
	if sink.Lag != 41+13 || sink.RowsPerSec != 1000 || sink.Owned != 1 || sink.Halted != 1 {
		t.Errorf("measured %+v", sink)
	}
	var b bytes.Buffer
	if err := s.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "status.txt", b.Bytes())

	// Without the outbox database the sinks are shown, and no lag is made up.
	s.Lanes, s.Halted, s.Unreachable = nil, nil, "outbox db0/flights: no answer within 5s [SL1807]\n  do: see the server's log"
	s.Sinks[0].Lag, s.Sinks[0].IdleSeconds = 0, 0
	b.Reset()
	if err := s.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "status-silent.txt", b.Bytes())
	if !s.Partial() {
		t.Error("a status without lanes counts as whole")
	}
}

// A sink is stalled when a partition that it could go on with stands still: neither one that had nothing to apply until
// just now nor one that waits for another shard says so.
func TestStatusSaysStalledOfWhatStandsStill(t *testing.T) {
	at := time.Date(2026, 11, 30, 9, 14, 2, 0, time.UTC)
	p := func(n int32) event.Partition { return event.Partition{Topic: "flights.events", Number: n} }
	for name, c := range map[string]struct {
		sink  string
		idle  time.Duration
		saved time.Duration // age of the lane's state that names the end
		waits map[event.Partition]string
		state string
		sure  bool
	}{
		"for a minute":              {"mysql/s1", time.Minute, time.Minute, nil, "stalled: does its process run?", true},
		"not for long":              {"mysql/s1", stalled, time.Minute, nil, "ok", false},
		"lag may have begun now":    {"mysql/s1", time.Minute, time.Second, nil, "stalled: does its process run?", false}, // is watched
		"another shard is away":     {"mysql/s1", time.Minute, time.Minute, map[event.Partition]string{p(0): "mysql/s2"}, "waits for mysql/s2", false},
		"away for other partitions": {"mysql/s1", time.Minute, time.Minute, map[event.Partition]string{p(1): "mysql/s2"}, "stalled: does its process run?", true},
		"shards are not waited for": {"clickhouse", time.Minute, time.Minute, map[event.Partition]string{p(0): "mysql/s2"}, "stalled: does its process run?", true},
	} {
		known := &laneEnds{ends: map[event.Partition]int64{}, before: map[event.Partition]int64{}}
		known.add(map[event.Partition]int64{p(0): 9, p(1): 7}, c.saved)
		known.add(map[event.Partition]int64{p(0): 5}, time.Hour) // of another lane: applied
		k := SinkStatus{Name: c.sink, progressRows: []progress.Row{
			{Key: progress.Key{Sink: "x", Partition: p(0)}, Next: 5, Owner: "a", UpdatedAt: at.Add(-c.idle)},
			{Key: progress.Key{Sink: "x", Partition: p(1)}, Next: 7, Owner: "a", UpdatedAt: at.Add(-time.Hour)}}}
		k.measure(SinkStatus{}, known, c.waits, at, 1)
		if k.Lag != 4 || k.state() != c.state || k.sure != c.sure {
			t.Errorf("%s: lag %d, %q, sure %t; wanted %q, %t", name, k.Lag, k.state(), k.sure, c.state, c.sure)
		}
	}
}

func TestPlanText(t *testing.T) {
	p := &Plan{Line: "flights", LayoutEpoch: 1, Slots: 1024, Partitions: 16, Lanes: 4, Shards: 2, Sinks: []string{"mysql"}}
	var b bytes.Buffer
	write := func() {
		if err := p.WriteText(&b); err != nil {
			t.Fatal(err)
		}
	}
	write()
	p.add(plan.Change{Where: "kafka kafka1:9092 (4.3.1)", Sign: plan.Create, What: "topic flights.events", Note: "16 partitions"},
		plan.Change{Where: "shard s1 db1/flights_s1", Sign: plan.Note, What: "local_infile is OFF", Note: "the faster staging path stays unused"},
		plan.Change{Where: "shard s1 db1/flights_s1", Sign: plan.Alter, What: "passengers", Note: "ADD COLUMN name"},
		plan.Change{Where: "shard s1 db1/flights_s1", Sign: plan.Decide, What: "flights_202610.arr_delay", Note: "is smallint, file says int32"})
	write()
	if !p.Differs() {
		t.Error("a plan with changes does not differ")
	}
	p.Done = true
	write()
	golden(t, "plan.txt", b.Bytes())
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{-1: "-", 0: "0 ms", 35 * time.Millisecond: "35 ms", 4200 * time.Millisecond: "4.2 s",
		11 * time.Minute: "11 min", 3*time.Hour + 12*time.Minute: "3h12m", 120 * time.Hour: "5 d"} {
		if got := short(d); got != want {
			t.Errorf("short(%v) = %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 980: "980", 3700: "3.7k", 1_200_000: "1.2M"} {
		if got := count(n); got != want {
			t.Errorf("count(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestShareMemory(t *testing.T) {
	for _, c := range []struct {
		names []string
		want  map[string]int64
	}{
		{[]string{"mysql"}, map[string]int64{"mysql": 512}},
		{[]string{"mysql", "clickhouse", "doris", "relay"}, map[string]int64{"relay": 85, "mysql": 85, "clickhouse": 170, "doris": 170}},
		{[]string{"relay", "mysql", "clickhouse"}, map[string]int64{"relay": 128, "mysql": 128, "clickhouse": 256}},
	} {
		if got := shareMemory(512, c.names); !maps.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.names, got, c.want)
		}
	}
}
