package outbox

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// random returns a random source whose seed is in the log.
func random(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 3))
}

// twinSet is the slow, obvious set.
type twinSet map[uint64]bool

func (s twinSet) sorted() (ids []uint64) {
	for id := range s {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func TestIDSetAgreesWithAMap(t *testing.T) {
	rnd := random(t)
	for range 300 {
		var s bucketSet
		twin := twinSet{}
		base := uint64(rnd.IntN(3))<<bucketShift - uint64(rnd.IntN(2)*30) // around the edge of a bucket
		if base > 1<<40 {
			base = 1
		}
		stored := map[uint64]string{}
		for range 60 {
			switch rnd.IntN(3) {
			case 0:
				from := base + uint64(rnd.IntN(80))
				r := idRange{from, from + uint64(rnd.IntN(12))}
				s.add(r)
				for id := r.From; id <= r.To; id++ {
					twin[id] = true
				}
			case 1:
				var ids []uint64
				for range rnd.IntN(20) {
					ids = append(ids, base+uint64(rnd.IntN(90)))
				}
				slices.Sort(ids)
				s.removeAll(ids)
				for _, id := range ids {
					delete(twin, id)
				}
			case 2: // the stored buckets, put together, are the set
				for b, text := range s.takeDirty() {
					stored[b] = text
				}
				var whole idSet
				for _, text := range stored {
					ranges, err := parseRanges(text)
					if err != nil {
						t.Fatal(err)
					}
					for _, r := range ranges {
						whole.add(r, nil)
					}
				}
				if got, want := whole.first(1000), twin.sorted(); !slices.Equal(got, want) {
					t.Fatalf("stored %v, wanted %v", got, want)
				}
			}
			if got, want := s.first(1000), twin.sorted(); !slices.Equal(got, want) {
				t.Fatalf("%v, wanted %v", got, want)
			}
			if s.count() != uint64(len(twin)) || s.empty() != (len(twin) == 0) {
				t.Fatalf("count %d, wanted %d", s.count(), len(twin))
			}
			for id := base; id < base+95; id++ {
				if s.contains(id) != twin[id] {
					t.Fatalf("contains(%d) is %v", id, s.contains(id))
				}
			}
			for i := 1; i < len(s.ranges); i++ {
				if s.ranges[i].From <= s.ranges[i-1].To+1 {
					t.Fatalf("ranges %v touch", s.ranges)
				}
			}
		}
	}
}

func TestRangesTextRefusesWhatItDidNotWrite(t *testing.T) {
	for _, text := range []string{"7", "7-9,11", "1-2,4,6-18446744073709551615", ""} {
		ranges, err := parseRanges(text)
		if err != nil || string(appendRanges(nil, ranges)) != text {
			t.Errorf("%q: %v %v", text, ranges, err)
		}
	}
	for _, text := range []string{",", "7,", "9-7", "7-7", "7,8", "7-9,9", "7-9,3", "a", "-7", "7-", "07", "+7", " 7", "7 ", "7--9",
		"18446744073709551616", "1.5"} {
		if ranges, err := parseRanges(text); err == nil {
			t.Errorf("%q is read as %v", text, ranges)
		}
	}
}

func FuzzRangesText(f *testing.F) {
	f.Add("7-9,11")
	f.Fuzz(func(t *testing.T, text string) {
		ranges, err := parseRanges(text)
		if err != nil {
			return
		}
		if got := string(appendRanges(nil, ranges)); got != text {
			t.Errorf("%q is read as %v and written as %q", text, ranges, got)
		}
	})
}

func TestIDSetHoldsTheWholeRange(t *testing.T) {
	var s idSet
	s.add(idRange{1, ^uint64(0)}, nil)
	s.removeAll([]uint64{5}, nil)
	if s.contains(5) || !s.contains(4) || !s.contains(^uint64(0)) || s.count() != ^uint64(0)-1 {
		t.Errorf("%v, %d ids", s.ranges, s.count())
	}
	if got := s.first(6); !slices.Equal(got, []uint64{1, 2, 3, 4, 6, 7}) {
		t.Errorf("first %v", got)
	}
}
