package intent

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/partitioner"
)

// Run is drawn at each take-over. It keeps the tokens of a later pass over the same offsets apart from those of an
// earlier one, which the engine may remember.
type Run [16]byte

// Intent is one batch, exactly.
type Intent struct {
	Run      Run
	Seq      int64 // grows with each intent of the group
	Codec    int   // format of the rows that are made of the events
	Ranges   []event.Range
	Excluded []Excluded
}

// Excluded are offsets inside the ranges whose events are dead letters.
type Excluded struct {
	event.Partition
	Offsets []int64 // ascending
}

// ExcludedOf is the offsets of the messages that a batch leaves out.
func ExcludedOf(b *event.Batch) []Excluded {
	var list []Excluded
	for i := range b.Excluded {
		m := &b.Messages[i]
		at := slices.IndexFunc(list, func(e Excluded) bool { return e.Partition == m.Partition })
		if at < 0 {
			at = len(list)
			list = append(list, Excluded{Partition: m.Partition})
		}
		list[at].Offsets = append(list[at].Offsets, m.Offset)
	}
	return normalExcluded(list)
}

// MergeExcluded is the offsets that are in either list.
func MergeExcluded(a, b []Excluded) []Excluded {
	merged := make([]Excluded, len(a), len(a)+len(b))
	for i, e := range a {
		merged[i] = Excluded{e.Partition, slices.Clone(e.Offsets)}
	}
	for _, e := range b {
		if at := slices.IndexFunc(merged, func(m Excluded) bool { return m.Partition == e.Partition }); at >= 0 {
			merged[at].Offsets = append(merged[at].Offsets, e.Offsets...)
		} else {
			merged = append(merged, Excluded{e.Partition, slices.Clone(e.Offsets)})
		}
	}
	return normalExcluded(merged)
}

// Excludes says whether the offset is left out.
func Excludes(list []Excluded, p event.Partition, offset int64) bool {
	for _, e := range list {
		if e.Partition == p {
			_, found := slices.BinarySearch(e.Offsets, offset)
			return found
		}
	}
	return false
}

func normalExcluded(list []Excluded) []Excluded {
	for i := range list {
		slices.Sort(list[i].Offsets)
		list[i].Offsets = slices.Compact(list[i].Offsets)
	}
	slices.SortFunc(list, func(a, b Excluded) int { return comparePartitions(a.Partition, b.Partition) })
	return list
}

func normalRanges(list []event.Range) []event.Range {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b event.Range) int { return comparePartitions(a.Partition, b.Partition) })
	return list
}

func comparePartitions(a, b event.Partition) int {
	return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Number, b.Number))
}

// Covers says whether the intent is of exactly these ranges. Their leader epochs tell nothing about content.
func (i *Intent) Covers(ranges []event.Range) bool {
	return slices.EqualFunc(i.Ranges, normalRanges(ranges), func(a, b event.Range) bool {
		return a.Partition == b.Partition && a.From == b.From && a.To == b.To
	})
}

// leavesOut says whether the intent leaves out exactly these offsets.
func (i *Intent) leavesOut(excluded []Excluded) bool {
	return slices.EqualFunc(i.Excluded, excluded, func(a, b Excluded) bool {
		return a.Partition == b.Partition && slices.Equal(a.Offsets, b.Offsets)
	})
}

// Token names the rows that the intent has for one table and month: the same for whoever sends it, another for any
// other rows. 32 hexadecimal digits.
func (i *Intent) Token(table string, month partitioner.Month) string {
	h := sha256.New()
	var buf []byte
	text := func(s string) { buf = append(binary.AppendUvarint(buf, uint64(len(s))), s...) }
	number := func(n int64) { buf = binary.AppendVarint(buf, n) }
	buf = append(buf, i.Run[:]...)
	text(table)
	number(int64(month))
	number(int64(len(i.Ranges)))
	for _, r := range i.Ranges {
		text(r.Topic)
		number(int64(r.Number))
		number(r.From)
		number(r.To)
	}
	number(int64(len(i.Excluded)))
	for _, e := range i.Excluded {
		text(e.Topic)
		number(int64(e.Number))
		number(int64(len(e.Offsets)))
		for _, o := range e.Offsets {
			number(o)
		}
	}
	h.Write(buf)
	sum := h.Sum(nil)
	return hex.EncodeToString(sum[:16])
}
