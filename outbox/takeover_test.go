package outbox

import (
	"context"
	"log/slog"
	"maps"
	"testing"

	"github.com/slotline/slotline/event"
)

// endsWriter has ends, and notes where a scan begins.
type endsWriter struct {
	Writer
	ends, from map[event.Partition]int64
}

func (w *endsWriter) Ends(context.Context, []event.Partition) (map[event.Partition]int64, error) {
	return w.ends, nil
}

func (w *endsWriter) Tail(_ context.Context, from map[event.Partition]int64, _ func(event.Partition, int64, *event.Record)) error {
	w.from = from
	return nil
}

// A take-over forgets what was recorded of a topic that was made anew: it scans the new one whole, though that reaches
// almost as far, and the recorded offset does not hide later records from the next.
func TestP1_TakeOverForgetsATopicThatWasMadeAnew(t *testing.T) {
	kept, anew, silent := event.Partition{Topic: "t.events"}, event.Partition{Topic: "t.events", Number: 1}, event.Partition{Topic: "t.events", Number: 2}
	w := &endsWriter{ends: map[event.Partition]int64{kept: 100, anew: 95}}
	s := &session{writer: w, log: slog.New(slog.DiscardHandler), router: &router{names: []event.Partition{kept, anew, silent}, routed: 3}}
	state := &laneState{offsets: map[event.Partition]int64{kept: 100, anew: 100, silent: 100}}
	if _, err := s.scanTail(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	if want := map[event.Partition]int64{kept: 100, anew: 0, silent: 100}; !maps.Equal(state.offsets, want) {
		t.Errorf("recorded are %v, wanted %v", state.offsets, want)
	}
	if s := newFlow(s.router.names, state, nil, defaultFlowLimits).save(); s == nil || !maps.Equal(s.offsets, map[int]int64{0: 100, 1: 0, 2: 100}) {
		t.Errorf("%+v is stored", s)
	}
	if want := map[event.Partition]int64{kept: 100 - TailBack, anew: 0, silent: 100 - TailBack}; !maps.Equal(w.from, want) {
		t.Errorf("scanned from %v, wanted %v", w.from, want)
	}
}
