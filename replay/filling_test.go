package replay

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/slotline/slotline/consumers"
	"github.com/slotline/slotline/event"
)

// Whoever waits for tables that are far behind is woken by the batch with which they have reached what was seen of the logs,
// by no other, and once; nobody is while the tables are near the end.
func TestFillingTellsWhenItHasReached(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	part := func(n int) event.Partition { return event.Partition{Topic: "t", Number: int32(n)} }
	for range 500 {
		f := newFilling(nil, "", 0)
		s := standing{log: ends{}, mine: ends{}}
		at := ends{}
		for n := range 1 + rng.IntN(5) {
			s.log[part(n)], s.mine[part(n)] = rng.Int64N(100), rng.Int64N(100)
			at[part(n)] = s.mine[part(n)]
		}
		near := rng.IntN(4) == 0
		if near {
			s.mineKnown, s.mineBehind = true, time.Second
		}
		f.awaits(s)
		told, whole := false, s.mine.reached(s.log)
		for range 50 {
			n := rng.IntN(len(s.log))
			at[part(n)] += rng.Int64N(20)
			f.applied(consumers.Applied{Ranges: []event.Range{{Partition: part(n), To: at[part(n)]}}})
			want := !near && !whole && !told && at.reached(s.log)
			got := false
			select {
			case <-f.reached:
				got, told = true, true
			default:
			}
			if got != want {
				t.Fatalf("seed %d: log %v, began at %v, near %v, is at %v: told %v, want %v", seed, s.log, s.mine, near, at, got, want)
			}
		}
	}
}
