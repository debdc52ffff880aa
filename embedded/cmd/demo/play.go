package main

import (
	"math/rand/v2"

	"github.com/slotline/slotline/examples/flights/nyc"
)

// transaction is one transaction of the service: what it emits, and whether it is rolled back.
type transaction struct {
	steps []nyc.Step
	fate  fate
}

type fate uint8

const (
	commits       fate = iota
	failsInRun         // the function given to Run returns an error: nothing was inserted
	rollsBackLate      // a transaction of the service's own, rolled back after its rows were inserted
)

const (
	writers       = 4
	openFlights   = 24 // of a writer at once: their events interleave
	stepsMax      = 60 // of a transaction
	rollBackOneIn = 8
	poison        = "poison" // the status of images that were rolled back: no figure may show one
)

// plays are the transactions of each writer, in order. A flight belongs to one writer, as a service that locks the row
// it changes would have it. It is pure: the same seed gives the same plays.
func plays(flights []nyc.Flight, seed uint64) [writers][]transaction {
	var all [writers][]transaction
	rolledBack := 0 // the two ways take turns, so that a short demo has both
	for w := range writers {
		rng := rand.New(rand.NewPCG(seed, uint64(w)))
		var open [][]nyc.Step
		var now []nyc.Step
		want := 1 + rng.IntN(stepsMax)
		flush := func() {
			if rng.IntN(rollBackOneIn) == 0 {
				all[w] = append(all[w], transaction{poisoned(now, rng), failsInRun + fate(rolledBack%2)})
				rolledBack++
			}
			all[w] = append(all[w], transaction{now, commits})
			now, want = nil, 1+rng.IntN(stepsMax)
		}
		for next := w; next < len(flights) || len(open) > 0; {
			for len(open) < openFlights && next < len(flights) {
				open = append(open, nyc.Life(&flights[next], rng))
				next += writers
			}
			i := rng.IntN(len(open))
			now = append(now, open[i][0])
			if open[i] = open[i][1:]; len(open[i]) == 0 {
				open[i] = open[len(open)-1]
				open = open[:len(open)-1]
			}
			if len(now) >= want {
				flush()
			}
		}
		if len(now) > 0 {
			flush()
		}
	}
	return all
}

// poisoned are images of the same flights that would show in every figure.
func poisoned(steps []nyc.Step, rng *rand.Rand) []nyc.Step {
	out := make([]nyc.Step, len(steps))
	for i, s := range steps {
		s.Row.Status, s.Row.Cancelled, s.Row.Distance = poison, true, 1_000_000
		delay := int32(100_000)
		s.Row.ArrDelay = &delay
		s.Delete = rng.IntN(4) == 0
		out[i] = s
	}
	return out
}

// tally counts events by what happened to the flight.
type tally struct {
	events       int64
	transactions int64
	kinds        map[string]int64
}

func (t *tally) add(tx transaction) {
	if t.kinds == nil {
		t.kinds = map[string]int64{}
	}
	t.transactions++
	t.events += int64(len(tx.steps))
	for _, s := range tx.steps {
		t.kinds[kind(s)]++
	}
}

func kind(s nyc.Step) string {
	if s.Delete {
		return "deleted"
	}
	return s.Row.Status
}
