package partitioner

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Slot is the unit that is placed: hash slots are 0 to Slots-1, placed slots are FirstPlacedSlot to
// LastPlacedSlot.
type Slot uint32

const (
	// SlotsMax is the greatest number of hash slots: a flat table of them stays within a core's cache.
	SlotsMax = 65_536
	// FirstPlacedSlot is the least number of a placed slot. It lies above every hash slot, so that a number
	// alone says which kind a slot is.
	FirstPlacedSlot Slot = 100_000
	// LastPlacedSlot is the greatest number of a placed slot: it fits a signed 32-bit column in any database.
	LastPlacedSlot Slot = 1<<31 - 1
	// PlacedSlotsMax is the greatest number of placed slots in one layout.
	PlacedSlotsMax = 65_536
)

// SlotRange is the slots from First to Last, both included. Its text form is "0-511", or "7" for a single slot.
type SlotRange struct{ First, Last Slot }

// Len is the number of slots in the range; 0 if it is reversed.
func (r SlotRange) Len() int {
	if r.Last < r.First {
		return 0
	}
	return int(r.Last-r.First) + 1
}

// Contains says whether s lies in the range.
func (r SlotRange) Contains(s Slot) bool { return r.First <= s && s <= r.Last }

// String is the text form that ParseSlotRanges reads.
func (r SlotRange) String() string { return string(r.append(nil)) }

func (r SlotRange) append(b []byte) []byte {
	b = strconv.AppendUint(b, uint64(r.First), 10)
	if r.First != r.Last {
		b = append(b, '-')
		b = strconv.AppendUint(b, uint64(r.Last), 10)
	}
	return b
}

// FormatSlotRanges is the text form of a list of ranges, "0-10,20"; "" for an empty list.
func FormatSlotRanges(ranges []SlotRange) string {
	var b []byte
	for i, r := range ranges {
		if i > 0 {
			b = append(b, ',')
		}
		b = r.append(b)
	}
	return string(b)
}

// ParseSlotRanges reads "0-10,20": ranges and single slots, separated by commas, spaces around them allowed. It
// keeps their order and does not compare them with each other (New does). An empty text is an error.
func ParseSlotRanges(text string) ([]SlotRange, error) {
	parts := strings.Split(text, ",")
	ranges := make([]SlotRange, 0, len(parts))
	for _, part := range parts {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			last = first
		}
		f, okFirst := parseSlot(first)
		l, okLast := parseSlot(last)
		if !okFirst || !okLast {
			return nil, fmt.Errorf("slots %s: %s is neither a slot nor a range of slots; write them as 0-511,600",
				quoteBounded(text), quoteBounded(part))
		}
		if l < f {
			return nil, fmt.Errorf("slots %s: range %d-%d is reversed; write %d-%d", quoteBounded(text), f, l, l, f)
		}
		ranges = append(ranges, SlotRange{f, l})
	}
	return ranges, nil
}

// parseSlot reads digits only: ParseUint would take a sign or, with base 0, underscores.
func parseSlot(text string) (Slot, bool) {
	text = strings.TrimSpace(text)
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 32)
	return Slot(n), err == nil && Slot(n) <= LastPlacedSlot
}

// quoteBounded quotes what a person wrote, cut so that one bad line cannot flood a log.
func quoteBounded(text string) string {
	const quotedBytesMax = 80
	if len(text) <= quotedBytesMax {
		return strconv.Quote(text)
	}
	return strconv.Quote(text[:quotedBytesMax]) + "..."
}

// mergeRanges returns the same set of slots in order, with adjacent and overlapping ranges joined; nil for none.
// Ranges must not be reversed.
func mergeRanges(ranges []SlotRange) []SlotRange {
	if len(ranges) == 0 {
		return nil
	}
	sorted := slices.Clone(ranges)
	slices.SortFunc(sorted, func(a, b SlotRange) int { return int(a.First) - int(b.First) })
	merged := sorted[:0]
	for _, r := range sorted {
		if n := len(merged); n > 0 && uint64(r.First) <= uint64(merged[n-1].Last)+1 {
			merged[n-1].Last = max(merged[n-1].Last, r.Last)
			continue
		}
		merged = append(merged, r)
	}
	return merged
}

// subtractRanges returns the slots of a that are not in b. Both must be merged; the result is.
func subtractRanges(a, b []SlotRange) []SlotRange {
	var left []SlotRange
	for _, r := range a {
		for len(b) > 0 && b[0].Last < r.First {
			b = b[1:]
		}
		next, whole := r.First, false
		for _, cut := range b {
			if cut.First > r.Last {
				break
			}
			if cut.First > next {
				left = append(left, SlotRange{next, cut.First - 1})
			}
			if cut.Last >= r.Last {
				whole = true
				break
			}
			next = cut.Last + 1
		}
		if !whole {
			left = append(left, SlotRange{next, r.Last})
		}
	}
	return left
}

// intersectRanges returns the slots that are in both. Both must be merged; the result is.
func intersectRanges(a, b []SlotRange) []SlotRange { return subtractRanges(a, subtractRanges(a, b)) }

// countSlots is the number of slots in merged ranges.
func countSlots(ranges []SlotRange) int {
	n := 0
	for _, r := range ranges {
		n += r.Len()
	}
	return n
}
