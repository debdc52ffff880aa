package partitioner

import (
	"cmp"
	"fmt"
	"slices"
)

// WithPartitions returns s with a new map of slots to n partitions, replacing any that it had. It is what the first
// apply stores.
//
// The rule, which never changes, since it decides where events go:
//   - Hash slots: partition i owns the contiguous range from i*Slots/n up to (i+1)*Slots/n - 1, rounded down. Sizes
//     differ by one at most.
//   - Placed slots, in order of number: each goes to a partition that owns a slot of the same shard already, so
//     that an outage of the shard stalls no further partition; if there is none, to any. Among these, to the one
//     that owns the fewest placed slots; among equals, to the lowest number. Partition 0 is left out if there is
//     another: broadcast tables make it meet every shard, so any shard's outage would stall the tenant.
//
// n is 1 to Slots and to PartitionsMax. The shards and tenants of s must be valid; the error is Problems.
func (s Spec) WithPartitions(n int) (Spec, error) {
	if ps := validateFor(s, n); len(ps) > 0 {
		return Spec{}, ps
	}
	out := s.canonical()
	out.Partitions = make([][]SlotRange, n)
	for i := range n {
		first, end := i*s.Slots/n, (i+1)*s.Slots/n
		out.Partitions[i] = []SlotRange{{Slot(first), Slot(end - 1)}}
	}
	out.assignPlaced()
	return out, nil
}

// validateFor validates s, but for its partitions, and their number.
func validateFor(s Spec, n int) Problems {
	ps := validate(s, withoutPartitions)
	if n < 1 || n > PartitionsMax {
		ps.add(PartitionsInvalid, []Party{{Part: PartPartitions}}, nil, "16", "%d partitions; there can be 1 to %d", n, PartitionsMax)
	} else if s.Slots >= 1 && n > s.Slots {
		ps.add(PartitionsInvalid, []Party{{Part: PartSlots}, {Part: PartPartitions}}, nil, fmt.Sprint(s.Slots),
			"%d partitions for %d slots: some would own none", n, s.Slots)
	}
	return ps
}

// After returns s as the layout that follows an applied one: with its map of slots to partitions, with the numbers of
// all placed slots that were ever given up, and with what partitions meet because of earlier layouts. Placed slots that
// are new are assigned by the rule of WithPartitions. Partitions that are new take of the free hash slots, which the
// caller knows to hold nothing; no other slot changes its partition.
//
// The rule for new partitions: a partition that owns more than Slots/n hash slots gives up the surplus, as far as it is
// free, its last slots first; what is given up goes in order of number and in equal shares to the new partitions.
//
// For the spec that was applied, After gives the applied layout's own spec: comparing digests tells whether a file
// differs. With fewer partitions, or another number of slots, which Changes.Err refuses, the map is that of
// WithPartitions.
func (s Spec) After(applied *Layout, n int, free []SlotRange) (Spec, error) {
	old := applied.spec
	s.Retired, s.Met = old.retiredBy(s), nil
	if n < len(old.Partitions) || s.Slots != old.Slots {
		return s.WithPartitions(n)
	}
	if ps := validateFor(s, n); len(ps) > 0 {
		return Spec{}, ps
	}
	out := s.canonical()
	out.Partitions = make([][]SlotRange, n)
	for i, ranges := range old.Partitions {
		out.Partitions[i] = subtractRanges(ranges, s.Retired)
	}
	out.widen(len(old.Partitions), mergeRanges(free))
	out.assignPlaced()
	next, err := New(out)
	if err != nil {
		return Spec{}, err
	}
	out.Met = metAfter(applied, next)
	return out, nil
}

// widen gives the partitions from number first on their hash slots. s is canonical.
func (s *Spec) widen(first int, free []SlotRange) {
	if first == len(s.Partitions) {
		return
	}
	var given []SlotRange
	for i, ranges := range s.Partitions[:first] {
		hash := intersectRanges(ranges, s.hashRange())
		gives := lastSlots(intersectRanges(hash, free), countSlots(hash)-s.Slots/len(s.Partitions))
		s.Partitions[i] = subtractRanges(ranges, gives)
		given = append(given, gives...)
	}
	given = mergeRanges(given)
	count, takers := countSlots(given), len(s.Partitions)-first
	for i := range takers {
		rest := lastSlots(given, count-i*count/takers)
		s.Partitions[first+i] = subtractRanges(rest, lastSlots(given, count-(i+1)*count/takers))
	}
}

// lastSlots are the n greatest slots of merged ranges, or all.
func lastSlots(ranges []SlotRange, n int) []SlotRange {
	var last []SlotRange
	for _, r := range slices.Backward(ranges) {
		if n <= 0 {
			break
		}
		if r.Len() > n {
			r.First = r.Last - Slot(n) + 1
		}
		n -= r.Len()
		last = append(last, r)
	}
	slices.Reverse(last)
	return last
}

// assignPlaced gives each placed slot that no partition owns to one. s is canonical and valid but for those.
func (s *Spec) assignPlaced() {
	owner := make(map[Slot]int) // of slots that have a partition
	placedCounts := make([]int, len(s.Partitions))
	for i, ranges := range s.Partitions {
		for _, r := range ranges {
			for slot := r.First; slot <= r.Last; slot++ {
				owner[slot] = i
				if slot >= FirstPlacedSlot {
					placedCounts[i]++
				}
			}
		}
	}
	first := min(1, len(s.Partitions)-1) // partition 0 only if there is no other
	var every []int                      // the partitions that may be chosen
	for i := first; i < len(s.Partitions); i++ {
		every = append(every, i)
	}
	meeting := make(map[string][]int) // those of them that own a slot of a shard, ascending
	meet := func(shard string, partition int) {
		if at, met := slices.BinarySearch(meeting[shard], partition); !met && partition >= first {
			meeting[shard] = slices.Insert(meeting[shard], at, partition)
		}
	}
	for _, shard := range s.Shards {
		for _, r := range shard.Slots {
			for slot := r.First; slot <= r.Last; slot++ {
				meet(shard.Name, owner[slot])
			}
		}
	}
	var unassigned []PlacedSlot
	for _, tenant := range s.Tenants {
		for _, p := range tenant.Placed {
			if partition, owned := owner[p.Slot]; owned {
				meet(p.Shard, partition)
			} else {
				unassigned = append(unassigned, p)
			}
		}
	}
	slices.SortFunc(unassigned, func(a, b PlacedSlot) int { return cmp.Compare(a.Slot, b.Slot) })
	for _, p := range unassigned {
		among := meeting[p.Shard]
		if len(among) == 0 {
			among = every
		}
		// MinFunc returns the first of equals, which has the lowest number.
		chosen := slices.MinFunc(among, func(a, b int) int { return cmp.Compare(placedCounts[a], placedCounts[b]) })
		placedCounts[chosen]++
		meet(p.Shard, chosen)
		s.Partitions[chosen] = append(s.Partitions[chosen], SlotRange{p.Slot, p.Slot})
	}
	for i := range s.Partitions {
		s.Partitions[i] = mergeRanges(s.Partitions[i])
	}
}
