package partitioner

import (
	"cmp"
	"fmt"
	"slices"
)

// claim is one range that a party owns.
type claim struct {
	SlotRange
	party Party
}

// claimsWithin turns a party's ranges into claims. What lies outside the slots that exist is a problem and no claim.
func claimsWithin(s Spec, party Party, ranges, exist []SlotRange, ps *Problems) []claim {
	var claims []claim
	for i, r := range ranges {
		if r.Last < r.First {
			turned := slices.Clone(ranges)
			turned[i] = SlotRange{r.Last, r.First}
			ps.add(SlotOutside, []Party{party}, []SlotRange{r}, FormatSlotRanges(turned), "%s has the reversed range %s", party, r)
			continue
		}
		one := []SlotRange{r}
		if outside := subtractRanges(one, exist); len(outside) > 0 {
			ps.add(SlotOutside, []Party{party}, outside, "", "%s has %s; %s", party, slotWords(outside), existWords(s, party, outside))
		}
		for _, inside := range intersectRanges(one, exist) {
			claims = append(claims, claim{inside, party})
		}
	}
	return claims
}

func existWords(s Spec, party Party, outside []SlotRange) string {
	if outside[0].First >= FirstPlacedSlot {
		if party.Part == PartShard {
			return "placed slots are written with their tenant"
		}
		return "no tenant has it"
	}
	return fmt.Sprintf("hash slots are %s", SlotRange{0, Slot(s.Slots) - 1})
}

// reportOverlaps returns the union of claims, and reports each claim that overlaps one before it: one problem per
// pair of parties. It compares each with the one that reaches furthest, so that it stays linear; with more than two
// owners of a slot, each still appears in a problem. slotsOf, if there is one, gives a party's ranges, to say what
// the later one should be.
func reportOverlaps(claims []claim, slotsOf func(index int) []SlotRange, ps *Problems) (union []SlotRange) {
	slices.SortStableFunc(claims, func(a, b claim) int { return cmp.Compare(a.First, b.First) })
	type pair struct{ earlier, later Party }
	overlaps := make(map[pair][]SlotRange)
	var order []pair
	var all []SlotRange
	for i, furthest := 0, 0; i < len(claims); i++ {
		all = append(all, claims[i].SlotRange)
		if i > 0 && claims[i].First <= claims[furthest].Last {
			p := pair{claims[furthest].party, claims[i].party}
			if p.earlier.Index > p.later.Index {
				p.earlier, p.later = p.later, p.earlier
			}
			if overlaps[p] == nil {
				order = append(order, p)
			}
			overlaps[p] = append(overlaps[p], SlotRange{claims[i].First, min(claims[i].Last, claims[furthest].Last)})
		}
		if claims[i].Last > claims[furthest].Last {
			furthest = i
		}
	}
	slices.SortFunc(order, func(a, b pair) int {
		return cmp.Or(cmp.Compare(a.later.Index, b.later.Index), cmp.Compare(a.earlier.Index, b.earlier.Index))
	})
	for _, p := range order {
		shared := mergeRanges(overlaps[p])
		if p.earlier == p.later {
			ps.add(SlotTwice, []Party{p.later}, shared, "", "%s names %s twice", p.later, slotWords(shared))
			continue
		}
		write := ""
		if slotsOf != nil {
			write = FormatSlotRanges(subtractRanges(mergeRanges(validRanges(slotsOf(p.later.Index))), shared))
		}
		ps.add(SlotTwice, []Party{p.earlier, p.later}, shared, write, "%s and %s both own %s",
			p.earlier.plural(), p.later.short(), slotWords(shared))
	}
	return mergeRanges(all)
}

// validRanges leaves out reversed ranges, which have their own problem.
func validRanges(ranges []SlotRange) []SlotRange {
	return slices.DeleteFunc(slices.Clone(ranges), func(r SlotRange) bool { return r.Last < r.First })
}
