package mysql

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/slotline/slotline/event"
)

// readLiteral is what a server makes of a string literal, with backslash escapes or without.
func readLiteral(s string, backslash bool) (value []byte, err error) {
	if digits, ok := strings.CutPrefix(strings.TrimPrefix(s, "_utf8mb4 "), "x'"); ok {
		end, closed := strings.CutSuffix(digits, "'")
		if !closed {
			return nil, errors.New("hex literal without end")
		}
		return hex.DecodeString(end)
	}
	if len(s) < 2 || s[0] != '\'' {
		return nil, errors.New("not a literal")
	}
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '\\' && backslash:
			return nil, errors.New("a backslash escapes what follows")
		case s[i] == '\'' && i+1 < len(s) && s[i+1] == '\'':
			i++
			value = append(value, '\'')
		case s[i] == '\'':
			if i+1 != len(s) {
				return nil, errors.New("the literal ends early: " + s[:i+1])
			}
			return value, nil
		default:
			value = append(value, s[i])
		}
	}
	return nil, errors.New("literal without end")
}

// Whatever the text, its literal means that text, under either sql_mode, and holds no statement's end.
func FuzzTextLiteral(f *testing.F) {
	for _, s := range []string{"", "a", "'", "''", "\\", "\\'", "'; DROP TABLE x; --", "\x00", "a\x1a\n\r\t", "é'日本", "_utf8mb4 x'00'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) {
			return // event refuses it
		}
		for _, literal := range [][]byte{appendText(nil, []byte(s)), appendText([]byte("prefix"), []byte(s))[len("prefix"):]} {
			for _, backslash := range []bool{true, false} {
				got, err := readLiteral(string(literal), backslash)
				if err != nil || string(got) != s {
					t.Errorf("%q became %s, read as %q, %v", s, literal, got, err)
				}
			}
		}
	})
}

func FuzzBinaryLiteral(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, '\'', '\\', 0xff})
	f.Fuzz(func(t *testing.T, s []byte) {
		got, err := readLiteral(string(appendBinary(nil, s)), true)
		if err != nil || !bytes.Equal(got, s) {
			t.Errorf("%x became %s, %v", s, appendBinary(nil, s), err)
		}
	})
}

// The calendar agrees with time.Time on every day that a DATE can hold.
func TestP12_DatesAgreeWithTime(t *testing.T) {
	at := time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)
	for ; at.Year() < 10_000; at = at.AddDate(0, 0, 1) {
		if got := string(appendDate(nil, at.Unix()/86400)); got != at.Format(time.DateOnly) {
			t.Fatalf("%s is written %s", at.Format(time.DateOnly), got)
		}
	}
	random := seeded(t)
	for range 100_000 {
		micros := random.Int64N(253402300800e6+62135596800e6) - 62135596800e6
		want := time.UnixMicro(micros).UTC().Format("2006-01-02 15:04:05.000000")
		if got := string(appendDatetime(nil, micros)); got != want {
			t.Fatalf("%d is written %s, it is %s", micros, got, want)
		}
	}
}

func TestP12_ValueLiterals(t *testing.T) {
	for _, c := range []struct {
		kind event.Kind
		v    event.Value
		want string
	}{
		{event.Bool, event.Value{Int: 1}, "1"},
		{event.Int32, event.Value{Int: -2147483648}, "-2147483648"},
		{event.Int64, event.Value{Int: -9223372036854775808}, "-9223372036854775808"},
		{event.Uint64, event.Value{Uint: 18446744073709551615}, "18446744073709551615"},
		{event.Float64, event.Value{Float: 0.1}, "1e-01"},
		{event.Float64, event.Value{Float: 1.7976931348623157e308}, "1.7976931348623157e+308"},
		{event.Float64, event.Value{Float: 5e-324}, "5e-324"},
		{event.Decimal, event.Value{Bytes: []byte("-12.50")}, "-12.50"},
		{event.Date, event.Value{Int: -1}, "'1969-12-31'"},
		{event.Datetime, event.Value{Int: -1}, "'1969-12-31 23:59:59.999999'"},
		{event.Bytes, event.Value{Bytes: []byte{}}, "x''"},
		{event.JSON, event.Value{Bytes: []byte(`{"a":"b\n"}`)}, `_utf8mb4 x'7B2261223A22625C6E227D'`},
	} {
		if got := string(appendValue(nil, c.kind, &c.v)); got != c.want {
			t.Errorf("kind %d: %s, wanted %s", c.kind, got, c.want)
		}
	}
	for f := range strconv.IntSize {
		v := event.Value{Float: 1 / float64(int64(1)<<f) * 3}
		back, err := strconv.ParseFloat(string(appendValue(nil, event.Float64, &v)), 64)
		if err != nil || back != v.Float {
			t.Errorf("%g reads back as %g, %v", v.Float, back, err)
		}
	}
}
