package line

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/slotline/slotline/archive"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/outbox"
	"github.com/slotline/slotline/replay"
)

// Whatever applies events to tables of a store is asked how far it is: the sink, what jobs fill, what they keep current. What has
// no progress needs all.
func TestTablesStand(t *testing.T) {
	part := func(n int32) event.Partition { return event.Partition{Topic: "flights.events", Number: n} }
	row := func(sink string, n int32, next int64) progress.Row {
		return progress.Row{Key: progress.Key{Sink: sink, Partition: part(n)}, Next: next, LeaderEpoch: 3}
	}
	rows := []progress.Row{row("mysql", 0, 70), row("mysql", 5, 9), row("mysql__old_rb7f3a", 0, 50), row("mysql__old_rb7f3a", 1, 51), row("mysql__rb_rb0001", 1, 8),
		row("clickhouse", 0, 3), row("mysqlx", 0, 2), {Key: progress.Key{Sink: "mysql", Partition: event.Partition{Topic: "trains.events"}}, Next: 1}}
	jobs := []replay.Job{{Name: "rb7f3a", Stage: replay.StageObserve}, {Name: "rb0001", Stage: replay.StageReplay}, {Name: "rb0002", Stage: replay.StageShadow},
		{Name: "rb0003", Stage: replay.StageAccepted}}
	var got []string
	for _, s := range tablesStand("mysql/s1", "mysql", []event.Partition{part(0), part(1)}, rows, jobs) {
		got = append(got, fmt.Sprintf("%s %d %d", s.by, s.at.Number, s.at.Next))
	}
	want := []string{"mysql/s1 0 70", "job rb7f3a 0 50", "job rb7f3a 1 51", "job rb0001 1 8",
		"job rb0001 0 0", "job rb0002 0 0", "job rb0002 1 0", "mysql/s1 1 0"}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

// The lane whose take-over reads the most of a partition says from where the outbox needs it; one that has recorded nothing, or
// cannot be read, reads all.
func TestLanesStand(t *testing.T) {
	p, other := event.Partition{Topic: "flights.events"}, event.Partition{Topic: "flights.events", Number: 1}
	views := []outbox.View{{Ends: map[event.Partition]int64{p: 100, other: 10}}, {Ends: map[event.Partition]int64{p: 90, other: 400}}}
	stand := func() (list []int64) {
		for _, s := range lanesStand(views, []event.Partition{p, other}) {
			list = append(list, s.at.Next)
		}
		return list
	}
	if got := stand(); !slices.Equal(got, []int64{90 - outbox.TailBack, 0}) {
		t.Errorf("%v", got)
	}
	views = append(views, outbox.View{})
	if got := stand(); !slices.Equal(got, []int64{0, 0}) {
		t.Errorf("with a lane that has recorded nothing: %v", got)
	}
}

// Somebody who has applied another log than the one that is there needs all of it.
func TestNeedOfAnotherLog(t *testing.T) {
	one, two := event.TopicID{1}, event.TopicID{2}
	at := event.Position{Next: 50, LeaderEpoch: 3, TopicID: one}
	for name, c := range map[string]struct {
		log  kafka.Log
		want int64
	}{
		"the same":      {kafka.Log{TopicID: one, Start: 10, End: 90, Epoch: 3, EpochEnd: 90}, 50},
		"at its end":    {kafka.Log{TopicID: one, Start: 10, End: 50, Epoch: 3, EpochEnd: 50}, 50},
		"made again":    {kafka.Log{TopicID: two, Start: 10, End: 90, Epoch: 3, EpochEnd: 90}, 0},
		"cut":           {kafka.Log{TopicID: one, Start: 10, End: 90, Epoch: 3, EpochEnd: 40}, 0},
		"begins above":  {kafka.Log{TopicID: one, Start: 60, End: 90, Epoch: 3, EpochEnd: 90}, 0},
		"ends below":    {kafka.Log{TopicID: one, Start: 10, End: 40, Epoch: 3, EpochEnd: 40}, 0},
		"no answer":     {kafka.Log{TopicID: one, Start: 10, End: 90, Epoch: 3, EpochEnd: 90, Err: errNoAnswer}, 0},
		"not there":     {kafka.Log{Gone: true}, 0},
		"unknown epoch": {kafka.Log{TopicID: one, Start: 10, End: 90, Epoch: -1, EpochEnd: -1}, 0},
	} {
		if got := need(standing{"mysql/s1", at}, c.log); got != (archive.Need{By: "mysql/s1", From: c.want}) {
			t.Errorf("%s: %+v, want %d", name, got, c.want)
		}
	}
}

func TestTrimText(t *testing.T) {
	trim := &Trim{Line: "flights", Place: "/srv/archive/flights", DryRun: true, Parts: []archive.Trim{
		{Topic: "flights.events", Partition: 0, Start: 48100, End: 90000, Becomes: 51774, Records: 3674, HeldBy: []string{"age"}},
		{Topic: "flights.events", Partition: 1, Start: 100, End: 90000, Becomes: 200, Records: 90, HeldBy: []string{"mysql/s2", "job rb7f3a"}},
		{Topic: "flights.events", Partition: 2, Start: 100, End: 90000, Becomes: 100, HeldBy: []string{"archive"},
			Problem: "archive /srv/archive/flights: flights.events/00002/x.parquet, offsets 0 to 99 of flights.events partition 2: it is not there [SL7602]\n  do: put the file back"},
		{Topic: "flights.events", Partition: 3}}, NotAsked: []NotAskedReason{{"mysql/s3", "mysql/s3 db3/flights_s3: no answer within 5s [SL9027]"}}}
	var b bytes.Buffer
	if err := trim.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	trim.DryRun = false
	if err := trim.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "trim.txt", b.Bytes())
	if !trim.Any() || !trim.Failed() {
		t.Error("something goes, and something failed")
	}
}
