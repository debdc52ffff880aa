package rollup

import (
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
)

// Base is a table with its rollups.
type Base struct {
	*event.Table
	Rollups []*config.Rollup
}

// BaseOf finds the rollups of a table.
func BaseOf(t *event.Table, all []*config.Rollup) *Base {
	b := &Base{Table: t}
	for _, r := range all {
		if r.Table == t {
			b.Rollups = append(b.Rollups, r)
		}
	}
	return b
}

// Set is the pairs that a batch touched, each once. It is used by one goroutine at a time.
type Set map[setKey]struct{}

type setKey struct {
	base   *Base
	tenant string
	day    int32
}

// Add notes a row of a table; without rollups it does nothing.
func (s Set) Add(b *Base, row *event.Row) {
	if len(b.Rollups) == 0 {
		return
	}
	day := dayNumber(b.Table, &row.Values[b.Month])
	if _, ok := s[setKey{b, string(row.Tenant), day}]; !ok { // the look-up allocates nothing
		s[setKey{b, string(row.Tenant), day}] = struct{}{}
	}
}

// List is the pairs of every rollup, in no order.
func (s Set) List() (list []Touched) {
	for k := range s {
		for _, r := range k.base.Rollups {
			list = append(list, Touched{Rollup: r.Name, Pair: Pair{Tenant: k.tenant, Day: k.day}})
		}
	}
	return list
}

// dayNumber is the UTC day of a row's month column, counted from 1970-01-01.
func dayNumber(t *event.Table, v *event.Value) int32 {
	const dayMicros, dayMillis = 86400_000_000, 86400_000
	switch k := t.Columns[t.Month].Type.Kind; {
	case k == event.Date:
		return int32(v.Int)
	case k == event.Datetime:
		return int32(floorDiv(v.Int, dayMicros))
	case k == event.Uint64:
		return int32(floorDiv(int64(v.Uint>>22)+t.SnowflakeEpoch.UnixMilli(), dayMillis))
	}
	return int32(floorDiv(v.Int>>22+t.SnowflakeEpoch.UnixMilli(), dayMillis))
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// Date is the midnight, in UTC, at which a day begins.
func Date(day int32) time.Time { return time.Unix(int64(day)*86400, 0).UTC() }

// DayText is a day as SQL writes it: "2026-11-30".
func DayText(day int32) string { return Date(day).Format(time.DateOnly) }

// Slices are the slices that pairs touch, by month of the calendar, each once, and at most so many together: of a rollup
// by month the day is the first of it.
func Slices(r *config.Rollup, pairs []Pair, most int) (months [][]Pair) {
	byMonth := map[[2]int]int{}
	seen := map[Pair]bool{}
	for _, p := range pairs {
		year, month, day := Date(p.Day).Date()
		if r.Bucket == "month" {
			p.Day -= int32(day - 1)
		}
		if seen[p] {
			continue
		}
		seen[p] = true
		at, ok := byMonth[[2]int{year, int(month)}]
		if !ok || len(months[at]) == most {
			at = len(months)
			byMonth[[2]int{year, int(month)}] = at
			months = append(months, nil)
		}
		months[at] = append(months[at], p)
	}
	return months
}
