package outbox

import (
	"slices"
	"time"
)

// Auto-increment order is not commit order: an id below one that was seen may commit later, or never. A gap is such an
// id. It is never timed out. While it is hot, each read asks for it. It turns cold, and is then only swept for, once
//
//  1. it is older than the margin, which is longer than any INSERT takes between drawing its id and writing its row,
//  2. a READ UNCOMMITTED read did not find it: no open transaction holds it, so it was rolled back, or its INSERT is
//     slower than the margin, or it committed in this instant,
//  3. a READ COMMITTED read after that did not find it either: it had not committed.
//
// A transaction held open for hours keeps its own ids hot and delays nobody else's.
//
// In a backlog few reads need to ask for them. A gap that a read did not find had not committed by then. What must come
// after it in the topic, an event whose transaction waited for it, drew its id after that: above every id that was drawn
// before the read. So ids up to there are read without asking for the gap again, whatever becomes of it meanwhile.

// hotRange is a range of hot gaps.
type hotRange struct {
	idRange
	since  time.Time // when it was first missed by this owner (monotonic)
	absent bool      // the READ UNCOMMITTED read after the margin did not find it
}

// gapTracker is what a lane's reader knows about the ids that it has passed. It does no I/O.
type gapTracker struct {
	read   uint64 // greatest id read; every id up to it was delivered, is hot or is cold
	hot    []hotRange
	cold   bucketSet
	margin time.Duration
	asked  uint64 // the pass of suspects has come up to this id; 0 when a new one begins
	// through was drawn before the last read that asked for every hot gap: ids up to it need no other. 0: each read asks.
	through uint64
}

// ask is what the next read is to ask for beside the ids above read: the hot gaps. Where through is not 0 it is to ask for
// none, and for no id above through.
func (g *gapTracker) ask() (hot []idRange, through uint64) {
	if g.through > g.read {
		return nil, g.through
	}
	return g.hotRanges(), 0
}

// askAll makes the next read ask for every hot gap.
func (g *gapTracker) askAll() { g.through = 0 }

// observe takes the result of one READ COMMITTED statement that asked for what ask says: ids, sorted, are the rows that
// it delivered; upto is the greatest id that it can vouch for: the last id where the result was cut short, and the
// greatest there is otherwise. drawn is an id that was drawn before the statement began; 0 if none above read is known.
func (g *gapTracker) observe(ids []uint64, upto, drawn uint64, now time.Time) {
	if g.through > g.read { // no gap was asked for
		if upto == ^uint64(0) {
			g.through = 0 // there is nothing more up to it
		}
		g.pass(ids, now)
		return
	}
	g.through = 0
	if upto >= g.read { // every gap was
		g.through = drawn
	}
	n, _ := slices.BinarySearch(ids, g.read+1)
	filled, fresh := ids[:n], ids[n:]
	if len(g.hot) > 0 {
		var hot []hotRange
		for _, h := range g.hot {
			filled = splitHot(h, filled, func(part hotRange) {
				if part.absent && part.To <= upto {
					g.cold.add(part.idRange)
					return
				}
				hot = append(hot, part)
			})
		}
		g.hot = hot
	}
	g.pass(fresh, now)
}

// pass goes past ids that were delivered; those between are gaps.
func (g *gapTracker) pass(ids []uint64, now time.Time) {
	for _, id := range ids {
		if id > g.read+1 {
			g.hot = append(g.hot, hotRange{idRange: idRange{g.read + 1, id - 1}, since: now})
		}
		g.read = id
	}
}

// splitHot calls keep with the parts of h that no id of filled lies in, and returns the ids above h.
func splitHot(h hotRange, filled []uint64, keep func(hotRange)) []uint64 {
	for len(filled) > 0 && filled[0] <= h.To {
		id := filled[0]
		filled = filled[1:]
		if id < h.From {
			continue
		}
		if id > h.From {
			part := h
			part.To = id - 1
			keep(part)
		}
		if id == h.To {
			return filled
		}
		h.From = id + 1
	}
	keep(h)
	return filled
}

// suspects are hot gaps older than the margin, which a READ UNCOMMITTED read is to look for: at most max ranges, from where
// the last call ended, so that gaps which an open transaction holds hide none of the others. more says that the pass has
// not come to its end.
func (g *gapTracker) suspects(now time.Time, max int) (ranges []idRange, more bool) {
	for _, h := range g.hot {
		if h.From <= g.asked || h.absent || now.Sub(h.since) <= g.margin {
			continue
		}
		if len(ranges) == max {
			g.asked = ranges[max-1].From
			return ranges, true
		}
		ranges = append(ranges, h.idRange)
	}
	g.asked = 0
	return ranges, false
}

// uncommitted takes the result of a READ UNCOMMITTED read of asked: the ids that it found, sorted, and the greatest id
// that it can vouch for.
func (g *gapTracker) uncommitted(asked []idRange, found []uint64, upto uint64) {
	set := idSet{asked}
	var hot []hotRange
	for _, h := range g.hot {
		if !set.contains(h.From) || h.To > upto {
			hot = append(hot, h)
			continue
		}
		lo, _ := slices.BinarySearch(found, h.From)
		hi, _ := slices.BinarySearch(found, h.To+1)
		splitHot(h, found[lo:hi], func(part hotRange) {
			part.absent = true
			hot = append(hot, part)
		})
		for _, id := range found[lo:hi] {
			if n := len(hot); n > 0 && hot[n-1].To+1 == id && !hot[n-1].absent {
				hot[n-1].To = id
				continue
			}
			hot = append(hot, hotRange{idRange: idRange{id, id}, since: h.since})
		}
	}
	slices.SortFunc(hot, func(a, b hotRange) int {
		if a.From < b.From {
			return -1
		}
		return 1
	})
	g.hot = hot
}

// swept takes the ids that a sweep of the cold gaps found: they are hot again, so that the next read delivers them in
// order with the others of its read view.
func (g *gapTracker) swept(found []uint64, now time.Time) {
	g.cold.removeAll(found)
	g.askAll()
	for _, id := range found {
		i, _ := slices.BinarySearchFunc(g.hot, id, func(h hotRange, id uint64) int {
			if h.From < id {
				return -1
			}
			return 1
		})
		g.hot = slices.Insert(g.hot, i, hotRange{idRange: idRange{id, id}, since: now})
	}
}

// hotRanges are the hot gaps, sorted and joined.
func (g *gapTracker) hotRanges() []idRange {
	var ranges []idRange
	for _, h := range g.hot {
		if n := len(ranges); n > 0 && ranges[n-1].To+1 == h.From {
			ranges[n-1].To = h.To
			continue
		}
		ranges = append(ranges, h.idRange)
	}
	return ranges
}

// has says whether an id is a gap: its row may commit yet.
func (g *gapTracker) has(id uint64) bool {
	return g.cold.contains(id) || slices.ContainsFunc(g.hot, func(h hotRange) bool { return h.From <= id && id <= h.To })
}

func countIDs(ranges []idRange) uint64 { s := idSet{ranges}; return s.count() }
