package event

import (
	"encoding/binary"
	"time"
)

// Dates are of the proleptic Gregorian calendar, years 0001 to 9999: those that have four digits and no sign.
const (
	dateMin     = -719_162  // 0001-01-01
	dateMax     = 2_932_896 // 9999-12-31
	dayMicros   = 24 * 60 * 60 * 1_000_000
	datetimeMin = dateMin * dayMicros       // 0001-01-01T00:00:00.000000Z
	datetimeMax = (dateMax+1)*dayMicros - 1 // 9999-12-31T23:59:59.999999Z

	dateBytes     = len("2026-11-30")
	datetimeBytes = len("2026-11-30T23:59:59.123456Z")
)

// daysOf is the number of days from 1970-01-01 to a date whose parts are in range. The year is shifted to begin in
// March, so that the leap day is its last and months before it have a fixed start.
func daysOf(year, month, day int) int64 {
	if month <= 2 {
		year--
		month += 12
	}
	return int64(365*year + year/4 - year/100 + year/400 + (153*(month-3)+2)/5 + day - 719_469)
}

// civil is the date that daysOf counts to; days must be at least dateMin.
func civil(days int64) (year, month, day int) {
	// Days since 0000-03-01, in eras of 400 years.
	n := uint64(days + 719_468)
	era := n / 146_097
	dayOfEra := n % 146_097
	yearOfEra := (dayOfEra - dayOfEra/1460 + dayOfEra/36_524 - dayOfEra/146_096) / 365
	dayOfYear := dayOfEra - (365*yearOfEra + yearOfEra/4 - yearOfEra/100)
	shifted := (5*dayOfYear + 2) / 153
	day = int(dayOfYear-(153*shifted+2)/5) + 1
	month = int(shifted) + 3
	year = int(yearOfEra + era*400)
	if month > 12 {
		month -= 12
		year++
	}
	return year, month, day
}

func monthDays(year, month int) int {
	switch month {
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

// digits reads n decimal digits of b; negative when one is not a digit.
func digits(b []byte) int {
	n := 0
	for _, c := range b {
		d := c - '0'
		if d > 9 {
			return -1
		}
		n = n*10 + int(d)
	}
	return n
}

// parseDate reads exactly "2026-11-30".
func parseDate(b []byte) (days int64, ok bool) {
	if len(b) != dateBytes || b[4] != '-' || b[7] != '-' {
		return 0, false
	}
	year, month, day := digits(b[0:4]), digits(b[5:7]), digits(b[8:10])
	if !isDate(year, month, day) {
		return 0, false
	}
	return daysOf(year, month, day), true
}

func isDate(year, month, day int) bool {
	return year >= 1 && month >= 1 && month <= 12 && day >= 1 && day <= monthDays(year, month)
}

// parseDatetime reads exactly "2026-11-30T23:59:59.123456Z". A leap second is refused: no engine holds one.
func parseDatetime(b []byte) (micros int64, ok bool) {
	if len(b) != datetimeBytes {
		return 0, false
	}
	yearMonth, ok1 := formYearMonth.read(b)
	dayMinute, ok2 := formDayMinute.read(b[8:])
	seconds, ok3 := formSecond.read(b[16:])
	fractions, ok4 := formFraction.read(b[19:])
	year, month, day := pair(yearMonth, 0)*100+pair(yearMonth, 2), pair(yearMonth, 5), pair(dayMinute, 0)
	hour, minute, second := pair(dayMinute, 3), pair(dayMinute, 6), pair(seconds, 1)
	if !(ok1 && ok2 && ok3 && ok4) || !isDate(year, month, day) || hour > 23 || minute > 59 || second > 59 {
		return 0, false
	}
	fraction := (pair(fractions, 1)*100+pair(fractions, 3))*100 + pair(fractions, 5)
	return daysOf(year, month, day)*dayMicros + (int64(hour*3600+minute*60+second)*1_000_000 + int64(fraction)), true
}

// form is eight bytes of a text: digits, and what stands between them.
type form struct {
	zeros uint64 // the form with '0' for each digit
	room  uint64 // byte by byte, what may be added to a digit's number, or to the 0 of what equals the form, below 0x80
}

func formOf(text string) form {
	f := form{zeros: binary.LittleEndian.Uint64([]byte(text))}
	for i := range 8 {
		most := byte(0)
		if text[i] == '0' {
			most = 9
		}
		f.room |= uint64(0x7f-most) << (8 * i)
	}
	return f
}

// The parts of a time; the last two overlap.
var (
	formYearMonth = formOf("0000-00-")
	formDayMinute = formOf("00T00:00")
	formSecond    = formOf(":00.0000")
	formFraction  = formOf(".000000Z")
)

// read returns the numbers of the digits of b[:8] in their places. A byte that the form does not allow has its high bit
// set, or gets it by the sum.
func (f *form) read(b []byte) (numbers uint64, ok bool) {
	numbers = binary.LittleEndian.Uint64(b) ^ f.zeros
	return numbers, (numbers+f.room|numbers)&highs == 0
}

// pair is the number of the two digits at a place.
func pair(numbers uint64, at int) int {
	return int(numbers>>(8*at)&0xff)*10 + int(numbers>>(8*at+8)&0xff)
}

func appendPadded(dst []byte, n, width int) []byte {
	var b [8]byte
	for i := width - 1; i >= 0; i-- {
		b[i] = byte('0' + n%10)
		n /= 10
	}
	return append(dst, b[:width]...)
}

// AppendDate appends a Date value as "2026-11-30".
func AppendDate(dst []byte, days int64) []byte {
	year, month, day := civil(days)
	dst = append(appendPadded(dst, year, 4), '-')
	dst = append(appendPadded(dst, month, 2), '-')
	return appendPadded(dst, day, 2)
}

// AppendDatetime appends a Datetime value as "2026-11-30T23:59:59.123456Z".
func AppendDatetime(dst []byte, micros int64) []byte {
	return append(AppendDatetimeText(dst, micros, 'T'), 'Z')
}

// AppendDatetimeText appends a Datetime value as "2026-11-30 23:59:59.123456", with separator between date and time.
func AppendDatetimeText(dst []byte, micros int64, separator byte) []byte {
	days := floorDays(micros)
	rest := int(micros - days*dayMicros)
	dst = append(AppendDate(dst, days), separator)
	dst = append(appendPadded(dst, rest/3_600_000_000, 2), ':')
	dst = append(appendPadded(dst, rest/60_000_000%60, 2), ':')
	dst = append(appendPadded(dst, rest/1_000_000%60, 2), '.')
	return appendPadded(dst, rest%1_000_000, 6)
}

func floorDays(micros int64) int64 {
	days := micros / dayMicros
	if micros < days*dayMicros {
		days--
	}
	return days
}

// microsOf is t in microseconds since the Unix epoch, cut and not rounded: also before the epoch a time never moves
// into a later microsecond.
func microsOf(t time.Time) (micros int64, ok bool) {
	if year := t.UTC().Year(); year < 1 || year > 9999 {
		return 0, false
	}
	return t.UnixMicro(), true
}
