package partitioner

import (
	"math"
	"strings"
	"testing"
	"time"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	instant, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return instant
}

func TestP6_MonthOfIsTheMonthInUTC(t *testing.T) {
	for text, want := range map[string]Month{
		"2026-11-30T23:59:59.999999Z":      202611,
		"2026-11-30T23:59:59.999999999Z":   202611,
		"2026-12-01T00:00:00Z":             202612,
		"2026-12-31T23:59:59.999999Z":      202612,
		"2027-01-01T00:00:00Z":             202701,
		"2026-12-31T23:59:59.999999-00:01": 202701, // 2027 in UTC
		"2027-01-01T00:59:59+01:00":        202612, // 2026 in UTC
		"2024-02-29T12:00:00Z":             202402,
		"1969-12-31T23:59:59.999999Z":      196912, // before the Unix epoch
		"1970-01-01T00:00:00Z":             197001,
		"1000-01-01T00:00:00Z":             100001,
		"0999-12-31T23:59:59Z":             InvalidMonth,
		"9999-12-31T23:59:59.999999Z":      999912,
		"0001-01-01T00:00:00Z":             InvalidMonth, // the zero time
	} {
		if got := MonthOf(at(t, text)); got != want {
			t.Errorf("MonthOf(%s) = %s, want %s", text, got, want)
		}
	}
	for _, seconds := range []int64{math.MinInt64 / 4, math.MaxInt64 / 4, math.MaxInt64} {
		if got := MonthOf(time.Unix(seconds, 0)); got == NoMonth {
			t.Errorf("MonthOf(%d s) = %s: taken for a table without months", seconds, got)
		}
	}
}

// The session's zone must not matter: Open Bank's and pg_partman's rows went elsewhere on replay.
func TestP6_MonthDoesNotDependOnTheZone(t *testing.T) {
	r := random(t)
	for range 5000 {
		instant := time.UnixMicro(r.Int64N(253402300800_000000)) // 1970 to 9999
		zone := time.FixedZone("", r.IntN(28*3600)-14*3600)
		if got, want := MonthOf(instant.In(zone)), MonthOf(instant.UTC()); got != want {
			t.Fatalf("%s: %s in its zone, %s in UTC", instant.In(zone), got, want)
		}
		if got, want := MonthOf(instant).String(), instant.UTC().Format("200601"); got != want {
			t.Fatalf("%s is in %s, want %s", instant.UTC(), got, want)
		}
	}
}

func TestMonthBoundsHoldExactlyItsInstants(t *testing.T) {
	r := random(t)
	for range 5000 {
		m := monthFrom(yearMin+r.IntN(yearMax-yearMin+1), 1+r.IntN(12))
		if !m.Valid() || MonthOf(m.Start()) != m || MonthOf(m.End().Add(-1)) != m || m.Start().Location() != time.UTC {
			t.Fatalf("%s: start %s, end %s", m, m.Start(), m.End())
		}
		if next := m.Add(1); next.Valid() && !next.Start().Equal(m.End()) {
			t.Fatalf("%s ends at %s, %s starts at %s", m, m.End(), next, next.Start())
		}
	}
	if got := Month(999912).End(); got.Year() != 10000 {
		t.Errorf("999912 ends at %s", got)
	}
}

func TestMonthArithmeticAgreesWithTheCalendar(t *testing.T) {
	r := random(t)
	for range 20_000 {
		m := monthFrom(yearMin+r.IntN(yearMax-yearMin+1), 1+r.IntN(12))
		n := r.IntN(40_000) - 20_000
		got, want := m.Add(n), MonthOf(m.Start().AddDate(0, n, 0))
		if got != want {
			t.Fatalf("%s.Add(%d) = %s, want %s", m, n, got, want)
		}
		if !got.Valid() {
			continue
		}
		if got.Sub(m) != n || m.Sub(got) != -n {
			t.Fatalf("%s.Sub(%s) = %d, want %d", got, m, got.Sub(m), n)
		}
		if m.Before(got) != (n > 0) || m.After(got) != (n < 0) {
			t.Fatalf("%s and %s are in the wrong order", m, got)
		}
	}
}

func TestMonthEdges(t *testing.T) {
	for _, c := range []struct {
		got, want Month
	}{
		{Month(202612).Add(1), 202701},
		{Month(202701).Add(-1), 202612},
		{Month(202611).Add(14), 202801},
		{Month(202611).Add(0), 202611},
		{Month(999912).Add(1), InvalidMonth},
		{Month(100001).Add(-1), InvalidMonth},
		{Month(202611).Add(math.MaxInt), InvalidMonth},
		{Month(202611).Add(math.MinInt), InvalidMonth},
		{NoMonth.Add(1), InvalidMonth},
		{InvalidMonth.Add(1), InvalidMonth},
	} {
		if c.got != c.want {
			t.Errorf("%s, want %s", c.got, c.want)
		}
	}
	for _, m := range []Month{NoMonth, InvalidMonth, 202600, 202613, 202699, 99912, 1000001, math.MaxInt32, math.MinInt32} {
		if m.Valid() {
			t.Errorf("%d is valid", int32(m))
		}
		if !m.Start().IsZero() || !m.End().IsZero() {
			t.Errorf("%d has bounds", int32(m))
		}
	}
	for m, want := range map[Month]string{202611: "202611", NoMonth: "none", 202613: "invalid month (202613)"} {
		if m.String() != want {
			t.Errorf("String = %q, want %q", m.String(), want)
		}
	}
}

func TestSnowflake(t *testing.T) {
	epoch := at(t, "2020-01-01T00:00:00Z")
	id := func(instant string) uint64 { return uint64(at(t, instant).Sub(epoch).Milliseconds()) << 22 }
	const low = 1<<22 - 1 // worker and sequence
	for _, c := range []struct {
		id   uint64
		want Month
	}{
		{0, 202001},
		{low, 202001},
		{id("2026-11-30T23:59:59.999Z") | low, 202611},
		{id("2026-12-01T00:00:00Z"), 202612},
		{id("2026-12-31T23:59:59.999Z") | low, 202612},
		{id("2027-01-01T00:00:00Z"), 202701},
		{math.MaxUint64, 215905}, // 2^42 ms after 2020 begins: no overflow
	} {
		if got := Snowflake(c.id, epoch); got != c.want {
			t.Errorf("Snowflake(%d) = %s, want %s", c.id, got, c.want)
		}
	}
	r := random(t)
	for range 5000 {
		id, zone := r.Uint64(), time.FixedZone("", r.IntN(28*3600)-14*3600)
		start := time.UnixMilli(r.Int64N(4e12)).In(zone)
		want := MonthOf(time.UnixMilli(start.UnixMilli() + int64(id/(1<<22))))
		if got := Snowflake(id, start); got != want {
			t.Fatalf("Snowflake(%d, %s) = %s, want %s", id, start, got, want)
		}
	}
}

func TestParseMonth(t *testing.T) {
	for text, want := range map[string]Month{"2026-11": 202611, "202611": 202611, "1000-01": 100001, "9999-12": 999912} {
		if got, err := ParseMonth(text); err != nil || got != want {
			t.Errorf("ParseMonth(%q) = %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "2026", "2026-1", "2026-00", "2026-13", "0999-12", "20261", "2026111", "2026/11",
		"2026-11-01", "-202611", "+20261", "20 611", "2026-1x", "20-2611", "２０２６11", "20261١"} {
		if got, err := ParseMonth(text); err == nil {
			t.Errorf("ParseMonth(%q) = %s, want an error", text, got)
		} else if got != NoMonth || !strings.Contains(err.Error(), "2026-11 or 202611") {
			t.Errorf("ParseMonth(%q) = %s, %v", text, got, err)
		}
	}
}

func FuzzParseMonth(f *testing.F) {
	for _, text := range []string{"2026-11", "202611", "", "999912", "9999-13", "abc"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ParseMonth(text)
		if err != nil {
			return
		}
		if !m.Valid() || strings.Replace(text, "-", "", 1) != m.String() {
			t.Fatalf("%q gave %s", text, m)
		}
		if again, err := ParseMonth(m.String()); err != nil || again != m {
			t.Fatalf("%q gave %s, and from its text %s, %v", text, m, again, err)
		}
	})
}
