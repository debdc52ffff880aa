package replay

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
)

var start = time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)

func TestPaceSpreadsEvents(t *testing.T) {
	p := &pace{perSecond: 100}
	now := start
	for i, want := range []time.Duration{0, 500 * time.Millisecond, time.Second} {
		if got := p.reserve(now, 50).Sub(start); got != want {
			t.Errorf("batch %d may go after %v, want %v", i, got, want)
		}
	}
	// What was not used is not made up for.
	late := start.Add(time.Hour)
	if got := p.reserve(late, 50); got != late {
		t.Errorf("after a pause: %v, want at once", got)
	}
	if got := p.reserve(late, 50).Sub(late); got != 500*time.Millisecond {
		t.Errorf("and the next after %v, want 500ms", got)
	}
	if got := (&pace{}).reserve(now, 1_000_000); got != now {
		t.Error("without a bound a batch waits")
	}
}

func TestPaceHolds(t *testing.T) {
	p := &pace{}
	if !p.hold(true) || p.hold(true) {
		t.Error("hold does not say whether it changed something")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.wait(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("held, it returned %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- p.wait(t.Context(), 1) }()
	p.hold(false)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The lag against a twin that keeps every sample and looks through all of them.
func TestLagAgainstATwin(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	parts := []event.Partition{{Topic: "t", Number: 0}, {Topic: "t", Number: 1}}
	var l lag
	var all []lagSample
	log, applied := ends{}, ends{}
	now := start
	for range 900 { // below lagSamplesMax: nothing is thinned out
		now = now.Add(time.Second)
		sample, at := ends{}, ends{}
		for _, p := range parts {
			log[p] += random.Int64N(5)
			applied[p] = min(log[p], applied[p]+random.Int64N(6))
			sample[p], at[p] = log[p], applied[p]
		}
		all = append(all, lagSample{now, sample})
		want, wantKnown := now.Sub(all[0].at), false
		for i := range all {
			if applied[parts[0]] >= all[i].ends[parts[0]] && applied[parts[1]] >= all[i].ends[parts[1]] {
				want, wantKnown = now.Sub(all[i].at), true
			}
		}
		if got, known := l.behind(now, sample, at); got != want || known != wantKnown {
			t.Fatalf("behind %v (known %t), want %v (%t)", got, known, want, wantKnown)
		}
	}
}

// A sink that never moves does not make the samples grow without bound, and its lag is still told.
func TestLagIsBounded(t *testing.T) {
	p := event.Partition{Topic: "t"}
	var l lag
	now := start
	for i := range 10 * lagSamplesMax {
		now = now.Add(time.Second)
		l.behind(now, ends{p: int64(i + 1)}, ends{})
	}
	if d, known := l.behind(now, ends{p: 1 << 40}, ends{}); known || d != now.Sub(start.Add(time.Second)) || len(l.samples) > lagSamplesMax+1 {
		t.Errorf("behind %v (known %t), %d samples", d, known, len(l.samples))
	}
}
