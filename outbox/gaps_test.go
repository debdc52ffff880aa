package outbox

import (
	"slices"
	"testing"
	"time"
)

// twinGap is what is known of one id that was passed: the three conditions by which it may turn cold, one by one.
type twinGap struct {
	since  time.Time
	absent bool
}

// What the tracker asks for, and what it lets turn cold, against a map of ids: a gap is hot until a READ UNCOMMITTED read
// after the margin and a READ COMMITTED read after that have both vouched for its absence; gaps are left out of a read only
// up to an id that was drawn before the last read that asked for all of them.
func TestP2_GapsAgainstAMap(t *testing.T) {
	rnd := random(t)
	const margin = 100 * time.Millisecond
	for range 300 {
		g := gapTracker{margin: margin}
		hot, cold := map[uint64]*twinGap{}, map[uint64]bool{}
		read, safe := uint64(0), uint64(0)
		now := time.Unix(1e9, 0)
		check := func(when string) {
			t.Helper()
			for _, h := range g.hot {
				for id := h.From; id <= h.To; id++ {
					if w := hot[id]; w == nil || h.absent != w.absent {
						t.Fatalf("after %s id %d is hot as %+v, wanted %+v", when, id, h, w)
					}
				}
			}
			n := uint64(0)
			for id := range cold {
				if !g.cold.contains(id) {
					t.Fatalf("after %s id %d is not cold", when, id)
				}
				n++
			}
			if g.cold.count() != n || countIDs(g.hotRanges()) != uint64(len(hot)) || g.read != read {
				t.Fatalf("after %s: %v hot, %v cold, read up to %d; wanted %d, %d and %d", when, g.hotRanges(), g.cold.ranges, g.read, len(hot), n, read)
			}
			if _, through := g.ask(); through > safe {
				t.Fatalf("after %s ids up to %d are read without the gaps, %d was drawn", when, through, safe)
			}
		}
		for range 60 {
			now = now.Add(time.Duration(rnd.IntN(60)) * time.Millisecond)
			switch rnd.IntN(4) {
			case 0, 1: // a read that finds some gaps filled and some new ids, cut short or not
				asked, through := g.ask()
				if through == 0 && countIDs(asked) != uint64(len(hot)) {
					t.Fatalf("%v is asked for, %d gaps are hot", asked, len(hot))
				}
				var ids []uint64
				if through == 0 {
					for id := range hot {
						if rnd.IntN(5) == 0 {
							ids = append(ids, id)
						}
					}
				}
				for id := read + 1; id <= read+uint64(rnd.IntN(8)) && (through == 0 || id <= through); id++ {
					if rnd.IntN(2) == 0 {
						ids = append(ids, id)
					}
				}
				slices.Sort(ids)
				upto := ^uint64(0)
				if len(ids) > 0 && rnd.IntN(2) == 0 {
					ids = ids[:1+rnd.IntN(len(ids))]
					upto = ids[len(ids)-1]
				}
				drawn := uint64(0)
				if through == 0 && rnd.IntN(2) == 0 {
					drawn = read + uint64(rnd.IntN(12))
				}
				g.observe(ids, upto, drawn, now)
				if through == 0 {
					if safe = 0; upto >= read {
						safe = drawn
					}
					for id, w := range hot {
						if _, filled := slices.BinarySearch(ids, id); filled {
							delete(hot, id)
						} else if w.absent && id <= upto {
							delete(hot, id)
							cold[id] = true
						}
					}
				}
				for _, id := range ids {
					for ; read < id; read++ {
						if read+1 < id {
							hot[read+1] = &twinGap{since: now}
						}
					}
				}
				check("a read")
			case 2: // a look for rows of open transactions
				suspects, _ := g.suspects(now, 1+rnd.IntN(4))
				var found []uint64
				for _, r := range suspects {
					for id := r.From; id <= r.To; id++ {
						if w := hot[id]; w == nil || w.absent || now.Sub(w.since) <= margin {
							t.Fatalf("id %d, %+v, is suspected", id, w)
						}
						if rnd.IntN(3) == 0 {
							found = append(found, id)
						}
					}
				}
				upto := ^uint64(0)
				if len(found) > 0 && rnd.IntN(2) == 0 {
					found = found[:1+rnd.IntN(len(found))]
					upto = found[len(found)-1]
				}
				g.uncommitted(suspects, found, upto)
				for _, r := range suspects {
					for id := r.From; id <= r.To && r.To <= upto; id++ { // a range that the answer ends in waits
						_, open := slices.BinarySearch(found, id)
						hot[id].absent = !open
					}
				}
				check("a look")
			case 3: // a sweep: what it finds is asked for by the next read
				var found []uint64
				for id := range cold {
					if rnd.IntN(3) == 0 {
						found = append(found, id)
					}
				}
				slices.Sort(found)
				g.swept(found, now)
				safe = 0
				for _, id := range found {
					delete(cold, id)
					hot[id] = &twinGap{since: now}
				}
				check("a sweep")
			}
		}
		for range 3 * len(hot) { // none comes any more: each turns cold
			now = now.Add(2 * margin)
			suspects, _ := g.suspects(now, 2)
			g.uncommitted(suspects, nil, ^uint64(0))
			g.askAll()
			g.observe(nil, ^uint64(0), 0, now)
		}
		if left := g.hotRanges(); len(left) > 0 {
			t.Fatalf("%v stay hot", left)
		}
	}
}
