package outbox

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// idRange is the ids from From to To, both included.
type idRange struct{ From, To uint64 }

// idSet is a set of ids as sorted ranges that neither overlap nor touch. Sets of the relay grow and shrink near their
// ends, so a slice with bulk operations is cheap: one pass and one move.
type idSet struct{ ranges []idRange }

// count is the number of ids; it saturates, as one range may span almost all ids.
func (s *idSet) count() uint64 {
	var n uint64
	for _, r := range s.ranges {
		width := r.To - r.From + 1
		if width == 0 || n+width < n {
			return ^uint64(0)
		}
		n += width
	}
	return n
}

func (s *idSet) empty() bool { return len(s.ranges) == 0 }

// search is the index of the first range that ends at or after id.
func (s *idSet) search(id uint64) int {
	i, _ := slices.BinarySearchFunc(s.ranges, id, func(r idRange, id uint64) int {
		if r.To < id {
			return -1
		}
		return 1
	})
	return i
}

func (s *idSet) contains(id uint64) bool {
	i := s.search(id)
	return i < len(s.ranges) && s.ranges[i].From <= id
}

// add puts a range in. touched, if not nil, is called with the From of every stored range that changed or vanished.
func (s *idSet) add(r idRange, touched func(from uint64)) {
	if touched == nil {
		touched = func(uint64) {}
	}
	lo := s.search(r.From)
	if lo > 0 && s.ranges[lo-1].To+1 == r.From {
		lo--
	}
	hi := lo
	for hi < len(s.ranges) && (s.ranges[hi].From <= r.To || s.ranges[hi].From == r.To+1) {
		touched(s.ranges[hi].From)
		r.From = min(r.From, s.ranges[hi].From)
		r.To = max(r.To, s.ranges[hi].To)
		hi++
	}
	touched(r.From)
	s.ranges = slices.Replace(s.ranges, lo, hi, r)
}

// removeAll takes sorted ids out, those that are in, in one pass.
func (s *idSet) removeAll(ids []uint64, touched func(from uint64)) {
	if len(ids) == 0 || len(s.ranges) == 0 {
		return
	}
	if touched == nil {
		touched = func(uint64) {}
	}
	first := s.search(ids[0])
	last := s.search(ids[len(ids)-1])
	if last < len(s.ranges) {
		last++
	}
	var kept []idRange
	k := 0
	for _, r := range s.ranges[first:last] {
		for k < len(ids) && ids[k] < r.From {
			k++
		}
		from, cut := r.From, false
		for ; k < len(ids) && ids[k] <= r.To; k++ {
			if !cut {
				cut = true
				touched(r.From)
			}
			if ids[k] < from { // a repeated id
				continue
			}
			if ids[k] > from {
				kept = append(kept, idRange{from, ids[k] - 1})
				touched(from)
			}
			from = ids[k] + 1
		}
		if !cut {
			kept = append(kept, r)
		} else if from <= r.To && from > r.From {
			kept = append(kept, idRange{from, r.To})
			touched(from)
		}
	}
	s.ranges = slices.Replace(s.ranges, first, last, kept...)
}

// first returns up to n ids, the least ones.
func (s *idSet) first(n int) []uint64 {
	var ids []uint64
	for _, r := range s.ranges {
		for id := r.From; len(ids) < n; id++ {
			ids = append(ids, id)
			if id == r.To {
				break
			}
		}
		if len(ids) == n {
			break
		}
	}
	return ids
}

func (s *idSet) clone() idSet { return idSet{slices.Clone(s.ranges)} }

// appendRanges is the text form of ranges, "7,12-15"; "" for none. It is what the state tables hold, so that a person
// can read them.
func appendRanges(dst []byte, ranges []idRange) []byte {
	for i, r := range ranges {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, r.From, 10)
		if r.To != r.From {
			dst = append(dst, '-')
			dst = strconv.AppendUint(dst, r.To, 10)
		}
	}
	return dst
}

// parseRanges reads what appendRanges wrote and refuses anything else: ranges out of order, touching, reversed, signs,
// spaces, leading zeros. A state that reads differently from how it was written would lose events.
func parseRanges(text string) ([]idRange, error) {
	if text == "" {
		return nil, nil
	}
	var ranges []idRange
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		r := idRange{}
		var okFrom, okTo bool
		r.From, okFrom = parseID(first)
		r.To, okTo = r.From, okFrom
		if isRange {
			r.To, okTo = parseID(last)
		}
		if !okFrom || !okTo || r.To < r.From || isRange && r.To == r.From {
			return nil, fmt.Errorf("%q is neither an id nor a range of ids", part)
		}
		if n := len(ranges); n > 0 && (r.From <= ranges[n-1].To || r.From == ranges[n-1].To+1) {
			return nil, fmt.Errorf("%q does not lie beyond the range before it", part)
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

func parseID(text string) (uint64, bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" || len(text) > 1 && text[0] == '0' {
		return 0, false
	}
	id, err := strconv.ParseUint(text, 10, 64)
	return id, err == nil
}

// bucketShift puts 16,384 ids in a bucket: the ids of a bucket are stored in one row of slotline_lane_gap, so that a save
// rewrites a kilobyte or two where gaps or parked ids changed, and nothing elsewhere.
const bucketShift = 14

// bucketSet is an idSet that remembers which buckets differ from what is stored. A range belongs to the bucket of its
// first id and may reach beyond it: a jump of the counter is one range, however wide.
type bucketSet struct {
	idSet
	dirty map[uint64]bool
}

func (s *bucketSet) touch(from uint64) {
	if s.dirty == nil {
		s.dirty = map[uint64]bool{}
	}
	s.dirty[from>>bucketShift] = true
}

func (s *bucketSet) add(r idRange)          { s.idSet.add(r, s.touch) }
func (s *bucketSet) removeAll(ids []uint64) { s.idSet.removeAll(ids, s.touch) }

// bucket is the text of one bucket, "" when it is empty.
func (s *bucketSet) bucket(b uint64) string {
	i, _ := slices.BinarySearchFunc(s.ranges, b<<bucketShift, func(r idRange, from uint64) int {
		if r.From < from {
			return -1
		}
		return 1
	})
	j := i
	for j < len(s.ranges) && s.ranges[j].From>>bucketShift == b {
		j++
	}
	return string(appendRanges(nil, s.ranges[i:j]))
}

// takeDirty returns the texts of the buckets that changed since the last call.
func (s *bucketSet) takeDirty() map[uint64]string {
	if len(s.dirty) == 0 {
		return nil
	}
	texts := make(map[uint64]string, len(s.dirty))
	for b := range s.dirty {
		texts[b] = s.bucket(b)
	}
	clear(s.dirty)
	return texts
}
