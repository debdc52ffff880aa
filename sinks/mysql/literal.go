package mysql

import (
	"strconv"
	"time"

	"github.com/slotline/slotline/event"
)

// SQL literals. They mean the same whatever the session's sql_mode: a text that holds a backslash or a control byte is
// written in hex, so that NO_BACKSLASH_ESCAPES, switched on or off by a proxy or an init_connect, changes nothing.

const hexDigits = "0123456789ABCDEF"

// appendText appends a utf8mb4 string literal. s is valid UTF-8.
func appendText(dst, s []byte) []byte {
	quotes := 0
	for _, c := range s {
		if c < ' ' || c == '\\' {
			return appendHex(append(dst, "_utf8mb4 x'"...), s)
		}
		if c == '\'' {
			quotes++
		}
	}
	dst = append(dst, '\'')
	if quotes == 0 {
		dst = append(dst, s...)
	} else {
		for _, c := range s {
			if c == '\'' {
				dst = append(dst, '\'')
			}
			dst = append(dst, c)
		}
	}
	return append(dst, '\'')
}

// appendBinary appends a binary string literal.
func appendBinary(dst, s []byte) []byte { return appendHex(append(dst, "x'"...), s) }

// appendHex appends the digits of s and the closing quote.
func appendHex(dst, s []byte) []byte {
	for _, c := range s {
		dst = append(dst, hexDigits[c>>4], hexDigits[c&15])
	}
	return append(dst, '\'')
}

// appendValue appends the literal of a value that event.LimitsMySQL lets pass.
func appendValue(dst []byte, kind event.Kind, v *event.Value) []byte {
	switch kind {
	case event.Bool, event.Int32, event.Int64:
		return strconv.AppendInt(dst, v.Int, 10)
	case event.Uint64:
		return strconv.AppendUint(dst, v.Uint, 10)
	case event.Float64:
		// With an exponent it is a DOUBLE to the parser, never a DECIMAL; -0e+00 keeps its sign.
		return strconv.AppendFloat(dst, v.Float, 'e', -1, 64)
	case event.Decimal:
		return append(dst, v.Bytes...)
	case event.String, event.Text, event.JSON:
		return appendText(dst, v.Bytes)
	case event.Bytes:
		return appendBinary(dst, v.Bytes)
	case event.Date:
		dst = append(dst, '\'')
		dst = appendDate(dst, v.Int)
		return append(dst, '\'')
	case event.Datetime:
		dst = append(dst, '\'')
		dst = appendDatetime(dst, v.Int)
		return append(dst, '\'')
	}
	panic("kind without a literal: " + strconv.Itoa(int(kind)))
}

// zeroLiteral is what a deleted row holds in a column that cannot be NULL.
func zeroLiteral(c event.Column) string {
	switch c.Type.Kind {
	case event.Float64:
		return "0e0"
	case event.String, event.Text:
		return "''"
	case event.Bytes:
		return "x''"
	case event.Date:
		return "'1970-01-01'"
	case event.Datetime:
		return "'1970-01-01 00:00:00'"
	case event.JSON:
		return "'null'"
	}
	return "0"
}

// appendDate appends YYYY-MM-DD of a day since 1970-01-01, year 0 to 9999.
func appendDate(dst []byte, day int64) []byte {
	y, m, d := civil(day)
	return append(dst,
		byte('0'+y/1000), byte('0'+y/100%10), byte('0'+y/10%10), byte('0'+y%10), '-',
		byte('0'+m/10), byte('0'+m%10), '-', byte('0'+d/10), byte('0'+d%10))
}

// appendDatetime appends YYYY-MM-DD hh:mm:ss.ffffff of microseconds since the Unix epoch.
func appendDatetime(dst []byte, micros int64) []byte {
	const perDay = int64(24 * time.Hour / time.Microsecond)
	day, rest := micros/perDay, micros%perDay
	if rest < 0 {
		day, rest = day-1, rest+perDay
	}
	dst = appendDate(dst, day)
	second, fraction := int(rest/1e6), int(rest%1e6)
	h, m, s := second/3600, second/60%60, second%60
	dst = append(dst, ' ', byte('0'+h/10), byte('0'+h%10), ':', byte('0'+m/10), byte('0'+m%10), ':', byte('0'+s/10), byte('0'+s%10), '.')
	for div := 100_000; div > 0; div /= 10 {
		dst = append(dst, byte('0'+fraction/div%10))
	}
	return dst
}

// civil is the proleptic Gregorian date of a day since 1970-01-01: eras of 400 years that begin on 1 March, so that the
// leap day comes last.
func civil(day int64) (year, month, dayOfMonth int) {
	day += 719468 // days from 0000-03-01 to 1970-01-01
	era := day / 146097
	if day < 0 {
		era = (day - 146096) / 146097
	}
	dayOfEra := day - era*146097
	yearOfEra := (dayOfEra - dayOfEra/1460 + dayOfEra/36524 - dayOfEra/146096) / 365
	dayOfYear := dayOfEra - (365*yearOfEra + yearOfEra/4 - yearOfEra/100)
	shifted := (5*dayOfYear + 2) / 153 // months since March
	dayOfMonth = int(dayOfYear-(153*shifted+2)/5) + 1
	month = int(shifted) + 3
	if month > 12 {
		month -= 12
	}
	year = int(yearOfEra + era*400)
	if month <= 2 {
		year++
	}
	return year, month, dayOfMonth
}
