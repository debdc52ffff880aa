package outbox

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A lane is woken when it has rows after what was read, or when that cannot be told, and only while it is idle; while no
// lane is idle nothing is asked.
func TestGlanceWakesIdleLanesThatHaveRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		last, err, asked := map[int]uint64{}, error(nil), [][]int{}
		woken := map[int]int{}
		g := newGlance(func(_ context.Context, lanes []int) (map[int]uint64, error) {
			slices.Sort(lanes)
			asked = append(asked, lanes)
			return last, err
		}, time.Second, func(lane int) { woken[lane]++ })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { g.run(ctx); close(ended) }()
		step := func(name string, looks int, want map[int]int) {
			t.Helper()
			asked, woken = nil, map[int]int{}
			time.Sleep(time.Second)
			synctest.Wait()
			if len(asked) != looks || !maps.Equal(woken, want) {
				t.Errorf("%s: asked %v, woke %v; wanted %d looks and %v", name, asked, woken, looks, want)
			}
		}
		step("no lane is idle", 0, map[int]int{})
		g.watch(1, 5)
		g.watch(3, 7)
		last = map[int]uint64{1: 5, 3: 7}
		step("nothing is new", 1, map[int]int{})
		last = map[int]uint64{1: 6, 3: 7}
		step("one has a row", 1, map[int]int{1: 1})
		g.ignore(1)
		last = map[int]uint64{1: 9, 3: 8}
		step("one that reads for itself is not asked for", 1, map[int]int{3: 1})
		last, err = nil, errors.New("no answer")
		g.watch(1, 9)
		step("no answer", 1, map[int]int{1: 1, 3: 1})
		g.ignore(1)
		g.ignore(3)
		step("none is idle any more", 0, map[int]int{})
		g.watch(3, 8)
		last, err = map[int]uint64{3: 9}, nil
		step("idle again", 1, map[int]int{3: 1})
		cancel()
		<-ended
	})
}
