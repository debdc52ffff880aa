package outbox

import (
	"maps"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
)

func testFlow(skip map[event.ID]skipped, parts ...event.Partition) *flow {
	state := &laneState{cursor: 10, offsets: map[event.Partition]int64{}}
	for _, p := range parts {
		state.offsets[p] = 100
	}
	limits := defaultFlowLimits
	limits.flightsMax, limits.parkedRangeMax = 2, 3
	return newFlow(parts, state, skip, limits)
}

// After a take-over, records of the tail wait for their rows; that of a cold gap until the next sweep. Should the lane be
// taken over again before, they must be found again, or their events would be published twice: until each was met, and
// that is stored, the recorded offsets stay, whatever is published meanwhile.
func TestP1_OffsetsStayWhileRecordsWaitForTheirRows(t *testing.T) {
	part := event.Partition{Topic: "t.events"}
	now := time.Unix(1e9, 0)
	f := testFlow(map[event.ID]skipped{eventID(5): {5, 0}}, part)
	store := func(when string, want int64) {
		t.Helper()
		s := f.save()
		if s == nil {
			t.Fatalf("%s: nothing to save", when)
		}
		if s.offsets[0] != want {
			t.Errorf("%s: offset %d is stored, wanted %d", when, s.offsets[0], want)
		}
		f.saved(true)
	}
	publish := func(id uint64, offset int64) {
		it := &item{id: id, eventID: eventID(int(id)), bytes: 1}
		f.accept([]*item{it}, readerState{cursor: id}, now)
		f.answered(it, offset, nil, now)
	}
	publish(11, 130)
	store("a record waits", 100)
	f.moveEnds(f.quiet(), map[event.Partition]int64{part: 140})
	if f.save() != nil {
		t.Error("the offset moves to the end while a record waits")
	}
	if send := f.accept([]*item{{id: 5, eventID: eventID(5), bytes: 1}}, readerState{cursor: 11}, now); len(send) > 0 {
		t.Error("the event is published twice")
	}
	stuck := &item{id: 12, eventID: eventID(12), bytes: 1}
	f.accept([]*item{stuck}, readerState{cursor: 12}, now)
	f.moveEnds(f.quiet(), map[event.Partition]int64{part: 140})
	if marks := f.quiet(); len(marks) > 0 {
		t.Errorf("%v are quiet", marks)
	}
	store("its row was met", 100)
	f.answered(stuck, 135, nil, now)
	store("all are met", 136)
	f.moveEnds(f.quiet(), map[event.Partition]int64{part: 140})
	store("at rest", 140)
}

// A row that was met is not stored before the batches that were read before it are: until then offsets stay too.
func TestP1_OffsetsStayUntilWhatWasMetIsStored(t *testing.T) {
	parts := []event.Partition{{Topic: "t.events"}, {Topic: "t.events", Number: 1}}
	now := time.Unix(1e9, 0)
	f := testFlow(map[event.ID]skipped{eventID(13): {13, 0}}, parts...)
	first := &item{id: 11, eventID: eventID(11), bytes: 1}
	stuck := &item{id: 12, eventID: eventID(12), part: 1, bytes: 1}
	f.accept([]*item{first}, readerState{cursor: 11}, now)
	f.accept([]*item{stuck}, readerState{cursor: 12}, now)
	f.accept([]*item{{id: 13, eventID: eventID(13), bytes: 1}}, readerState{cursor: 13}, now)
	f.answered(first, 130, nil, now)
	want := map[int]int64{0: 100, 1: 100}
	if s := f.save(); s == nil || s.state.cursor != 11 || !maps.Equal(s.offsets, want) {
		t.Fatalf("%+v is stored, wanted cursor 11 and %v", s, want)
	}
	f.saved(true)
	if marks := f.quiet(); len(marks) > 0 {
		t.Errorf("%v are quiet, though batches of them are not stored", marks)
	}
	f.answered(stuck, 120, nil, now)
	if s := f.save(); s == nil || s.state.cursor != 13 || s.offsets[1] != 121 {
		t.Errorf("%+v is stored", s)
	}
}

// What a lane holds is bounded: batches without an answer, their bytes, and ranges of parked ids.
func TestP10_FlowIsFullAtEachBound(t *testing.T) {
	const bytesMax = 1000
	for name, fill := range map[string]func(f *flow){
		"batches": func(f *flow) {
			for id := range uint64(f.limits.flightsMax) {
				f.accept([]*item{{id: id + 1, bytes: 1}}, readerState{}, time.Time{})
			}
		},
		"bytes": func(f *flow) { f.accept([]*item{{id: 1, bytes: bytesMax + 1}}, readerState{}, time.Time{}) },
		"parked ids": func(f *flow) {
			for id := range uint64(f.limits.parkedRangeMax + 1) {
				f.parts[id%2].park(2 * (id + 1))
			}
		},
	} {
		f := testFlow(nil, event.Partition{Topic: "t"}, event.Partition{Topic: "t", Number: 1})
		if f.full(bytesMax) {
			t.Errorf("%s: full when it is empty", name)
		}
		if fill(f); !f.full(bytesMax) {
			t.Errorf("%s: not full beyond the bound", name)
		}
	}
}

// A partition that ends before the recorded offset is of a topic that was made anew: the offset of the one before goes,
// also when a save was under way, and what is published then counts from there.
func TestP1_OffsetsOfATopicThatWasMadeAnewGo(t *testing.T) {
	part, other := event.Partition{Topic: "t.events"}, event.Partition{Topic: "t.events", Number: 1}
	now := time.Unix(1e9, 0)
	f := testFlow(nil, part, other)
	publish := func(id uint64, part int, offset int64) {
		it := &item{id: id, eventID: eventID(int(id)), part: part, bytes: 1}
		f.accept([]*item{it}, readerState{cursor: id}, now)
		f.answered(it, offset, nil, now)
	}
	store := func(when string, want map[int]int64) {
		t.Helper()
		if s := f.save(); s == nil || !maps.Equal(s.offsets, want) {
			t.Fatalf("%s: %+v is stored, wanted %v", when, s, want)
		}
	}
	publish(11, 1, 120)
	marks := f.quiet()
	store("before", map[int]int64{0: 100, 1: 121})
	f.moveEnds(marks, map[event.Partition]int64{part: 3, other: 121})
	f.saved(true)
	store("an end below", map[int]int64{0: 3, 1: 121})
	f.saved(true)
	publish(12, 0, 7)
	store("published", map[int]int64{0: 8, 1: 121})
}
