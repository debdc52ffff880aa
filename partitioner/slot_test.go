package partitioner

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestParseSlotRanges(t *testing.T) {
	for text, want := range map[string][]SlotRange{
		"7":                      {{7, 7}},
		"0-511":                  {{0, 511}},
		"0-10,20":                {{0, 10}, {20, 20}},
		" 0 - 10 , 20 ":          {{0, 10}, {20, 20}},
		"20,0-10,5":              {{20, 20}, {0, 10}, {5, 5}}, // order and overlaps are New's business
		"100000-100003":          {{100_000, 100_003}},
		"5-5":                    {{5, 5}},
		"0-2147483647":           {{0, LastPlacedSlot}},
		"00-0000000000000000001": {{0, 1}},
	} {
		got, err := ParseSlotRanges(text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("ParseSlotRanges(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestParseSlotRangesRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                       `slots ""`,
		" ":                      `slots " "`,
		",":                      `slots ","`,
		"1,":                     `slots "1,": ""`,
		"-":                      `"-" is neither`,
		"-5":                     `"-5" is neither`,
		"5-":                     `"5-" is neither`,
		"1-2-3":                  `"1-2-3" is neither`,
		"+1":                     `"+1" is neither`,
		"1_000":                  `"1_000" is neither`,
		"0x10":                   `"0x10" is neither`,
		"a":                      `"a" is neither`,
		"١":                      `is neither`,
		"511-0":                  "range 511-0 is reversed; write 0-511",
		"2147483648":             `is neither`,
		"4294967296":             `is neither`, // would be 0 in 32 bits
		"99999999999999999999":   `is neither`,
		strings.Repeat("x", 1e4): "...",
	} {
		got, err := ParseSlotRanges(text)
		if err == nil {
			t.Errorf("ParseSlotRanges(%q) = %v, want an error", text, got)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("ParseSlotRanges(%q): %v; want %s", text, err, want)
		} else if len(err.Error()) > 400 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	}
}

func FuzzParseSlotRanges(f *testing.F) {
	for _, text := range []string{"7", "0-511", "0-10,20", " 1 - 2 ,3", "", "-", "1-", "4294967296", "5-1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ranges, err := ParseSlotRanges(text)
		if err != nil {
			return
		}
		for _, r := range ranges {
			if r.Len() < 1 || r.Last > LastPlacedSlot {
				t.Fatalf("%q gave %v", text, r)
			}
		}
		again, err := ParseSlotRanges(FormatSlotRanges(ranges))
		if err != nil || !slices.Equal(again, ranges) {
			t.Fatalf("%q gave %v, and from its text %v, %v", text, ranges, again, err)
		}
	})
}

// rangeBits is the slow, obvious twin of a list of ranges.
func rangeBits(ranges []SlotRange) (bits [64]bool) {
	for _, r := range ranges {
		for s := r.First; s <= r.Last; s++ {
			bits[s] = true
		}
	}
	return bits
}

func randomRanges(r *rand.Rand) []SlotRange {
	var ranges []SlotRange
	for range r.IntN(6) {
		first := r.IntN(64)
		ranges = append(ranges, SlotRange{Slot(first), Slot(first + r.IntN(64-first)/(1+r.IntN(4)))})
	}
	return ranges
}

func checkMerged(t *testing.T, ranges []SlotRange) {
	t.Helper()
	for i, r := range ranges {
		if r.Len() == 0 || i > 0 && ranges[i-1].Last+1 >= r.First {
			t.Fatalf("%v is not merged", ranges)
		}
	}
}

func TestRangeSetsAgreeWithBits(t *testing.T) {
	r := random(t)
	for range 20_000 {
		rawA, rawB := randomRanges(r), randomRanges(r)
		before := slices.Clone(rawA)
		a, b := mergeRanges(rawA), mergeRanges(rawB)
		if !slices.Equal(rawA, before) {
			t.Fatal("mergeRanges changed its argument")
		}
		minus, both := subtractRanges(a, b), intersectRanges(a, b)
		for _, set := range [][]SlotRange{a, b, minus, both} {
			checkMerged(t, set)
		}
		if rangeBits(a) != rangeBits(rawA) {
			t.Fatalf("merge of %v is %v", rawA, a)
		}
		inA, inB := rangeBits(rawA), rangeBits(rawB)
		inMinus, inBoth := rangeBits(minus), rangeBits(both)
		count := 0
		for s := range inA {
			if inMinus[s] != (inA[s] && !inB[s]) || inBoth[s] != (inA[s] && inB[s]) {
				t.Fatalf("%v minus %v is %v, and %v, wrong at %d", a, b, minus, both, s)
			}
			if inA[s] {
				count++
			}
			contains := slices.ContainsFunc(a, func(r SlotRange) bool { return r.Contains(Slot(s)) })
			if contains != inA[s] {
				t.Fatalf("%v contains %d: %v", a, s, contains)
			}
		}
		if countSlots(a) != count {
			t.Fatalf("%v has %d slots, not %d", a, count, countSlots(a))
		}
	}
}

func TestRangeSetsAtTheEndOfSlots(t *testing.T) {
	const end = ^Slot(0)
	whole := []SlotRange{{0, end}}
	if got := mergeRanges([]SlotRange{{5, end}, {end, end}, {0, 4}}); !slices.Equal(got, whole) {
		t.Errorf("merged %v", got)
	}
	if got := subtractRanges(whole, []SlotRange{{end, end}}); !slices.Equal(got, []SlotRange{{0, end - 1}}) {
		t.Errorf("subtracted %v", got)
	}
	if got := subtractRanges(whole, whole); got != nil {
		t.Errorf("subtracted %v", got)
	}
	if got := whole[0].Len(); got != 1<<32 {
		t.Errorf("Len = %d", got)
	}
}

func TestAReversedRangeIsEmpty(t *testing.T) {
	if r := (SlotRange{5, 4}); r.Len() != 0 || r.Contains(4) || r.Contains(5) {
		t.Errorf("%v has %d slots", r, r.Len())
	}
}

func TestPlaceExpandsInOrder(t *testing.T) {
	ranges, err := ParseSlotRanges("100003,100001-100002")
	if err != nil {
		t.Fatal(err)
	}
	got, err := Place(ranges, "s1")
	want := []PlacedSlot{{100_003, "s1"}, {100_001, "s1"}, {100_002, "s1"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Place = %v, %v; want %v", got, err, want)
	}
	if _, err := Place([]SlotRange{{FirstPlacedSlot, LastPlacedSlot}}, "s1"); err == nil {
		t.Error("two thousand million slots were placed")
	}
}
