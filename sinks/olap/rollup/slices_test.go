package rollup

import (
	"testing"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
)

// The day of a row against Go's calendar, before 1970 too.
func TestDayNumber(t *testing.T) {
	epoch := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	flights := &event.Table{Columns: []event.Column{{Type: event.Type{Kind: event.Datetime}}}}
	posts := &event.Table{Columns: []event.Column{{Type: event.Type{Kind: event.Uint64}}}, SnowflakeEpoch: &epoch}
	for _, at := range []time.Time{time.Date(1969, 12, 31, 23, 59, 59, 999999000, time.UTC), time.Unix(0, 0), time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(2026, 11, 30, 23, 59, 59, 999999000, time.UTC), time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), time.Date(2199, 2, 28, 1, 0, 0, 0, time.UTC)} {
		day := dayNumber(flights, &event.Value{Int: at.UnixMicro()})
		if got, want := DayText(day), at.UTC().Format(time.DateOnly); got != want {
			t.Errorf("%v is on %s", at, got)
		}
		if at.After(epoch) && at.Year() < 2150 {
			id := uint64(at.Sub(epoch).Milliseconds())<<22 | 12345
			if got := dayNumber(posts, &event.Value{Uint: id}); got != day {
				t.Errorf("snowflake %v is on %s", at, DayText(got))
			}
		}
	}
}

// Slices are of one month each, and each once.
func TestSlicesOfPairs(t *testing.T) {
	r := &config.Rollup{Bucket: "month"}
	var pairs []Pair
	for day := range int32(800) {
		pairs = append(pairs, Pair{Tenant: "a", Day: day}, Pair{Tenant: "b", Day: day})
	}
	seen := map[Pair]bool{}
	for _, month := range Slices(r, pairs, 500) {
		for _, p := range month {
			if at := Date(p.Day); at.Day() != 1 || seen[p] || at.Month() != Date(month[0].Day).Month() {
				t.Errorf("%+v", p)
			}
			seen[p] = true
		}
	}
	if len(seen) != 2*27 {
		t.Errorf("%d slices", len(seen))
	}
	r.Bucket = "day"
	if n := len(Slices(r, pairs, 500)); n != 27 {
		t.Errorf("%d statements", n)
	}
	if n := len(Slices(r, pairs[:62], 10)); n != 7 {
		t.Errorf("%d statements of ten slices at most", n)
	}
}
