package partitioner

import (
	"fmt"
	"time"
)

// Month is a UTC month as the number 202611: the suffix of a month table. 0 is no month (a table without month
// tables). Valid months compare in order of time with < and >.
type Month int32

const (
	// NoMonth is the month of a table that is not split by month.
	NoMonth Month = 0
	// InvalidMonth is the month of a time outside 1000 to 9999. It is not NoMonth, so that a time out of range is
	// never taken for a table without months.
	InvalidMonth Month = -1

	yearMin, yearMax = 1000, 9999 // MySQL's DATETIME; always four digits
)

// MonthOf is the month, in UTC, in which t lies; InvalidMonth for a year outside 1000 to 9999, so for the zero
// time too.
func MonthOf(t time.Time) Month {
	year, month, _ := t.UTC().Date()
	return monthFrom(year, int(month))
}

// Snowflake is the month of a snowflake id: the bits above the lowest 22 count milliseconds since epoch.
func Snowflake(id uint64, epoch time.Time) Month {
	// 42 bits of milliseconds are 139 years: no overflow of a Duration (292 years).
	return MonthOf(epoch.Add(time.Duration(id>>22) * time.Millisecond))
}

// ParseMonth reads "2026-11" or "202611", years 1000 to 9999.
func ParseMonth(text string) (Month, error) {
	digits := text
	if len(text) == 7 && text[4] == '-' {
		digits = text[:4] + text[5:]
	}
	var m Month
	for _, c := range []byte(digits) {
		if len(digits) != 6 || c < '0' || c > '9' {
			m = InvalidMonth
			break
		}
		m = m*10 + Month(c-'0')
	}
	if !m.Valid() {
		return NoMonth, fmt.Errorf("month %s is not a month of the years 1000 to 9999; write it as 2026-11 or 202611",
			quoteBounded(text))
	}
	return m, nil
}

func monthFrom(year, month int) Month {
	if year < yearMin || year > yearMax {
		return InvalidMonth
	}
	return Month(year*100 + month)
}

// Valid says whether m is a month: 100001 to 999912. NoMonth is not.
func (m Month) Valid() bool {
	year, month := m/100, m%100
	return yearMin <= year && year <= yearMax && 1 <= month && month <= 12
}

// index counts months from year 0.
func (m Month) index() int { return int(m/100)*12 + int(m%100) - 1 }

// Add is the month n months later, or earlier if n is negative. It is InvalidMonth if m is not valid or the result
// leaves the years 1000 to 9999.
func (m Month) Add(n int) Month {
	const span = (yearMax + 1) * 12
	if !m.Valid() || n < -span || n > span { // beyond span nothing is valid, and the sum might overflow
		return InvalidMonth
	}
	i := m.index() + n
	if i < 0 {
		return InvalidMonth
	}
	return monthFrom(i/12, i%12+1)
}

// Sub is the number of months from o to m: m == o.Add(m.Sub(o)). Both must be valid.
func (m Month) Sub(o Month) int { return m.index() - o.index() }

// Before says whether m is earlier than o; both must be valid.
func (m Month) Before(o Month) bool { return m < o }

// After says whether m is later than o; both must be valid.
func (m Month) After(o Month) bool { return m > o }

// Start is the first instant of the month, in UTC; the zero time if m is not valid.
func (m Month) Start() time.Time {
	if !m.Valid() {
		return time.Time{}
	}
	return time.Date(int(m/100), time.Month(m%100), 1, 0, 0, 0, 0, time.UTC)
}

// End is the first instant after the month, in UTC; the zero time if m is not valid.
func (m Month) End() time.Time {
	if !m.Valid() {
		return time.Time{}
	}
	return time.Date(int(m/100), time.Month(m%100)+1, 1, 0, 0, 0, 0, time.UTC)
}

// String is the suffix of a month table, "202611"; "none" for NoMonth.
func (m Month) String() string {
	switch {
	case m == NoMonth:
		return "none"
	case !m.Valid():
		return fmt.Sprintf("invalid month (%d)", int32(m))
	}
	return fmt.Sprintf("%06d", int32(m))
}
