package event

import (
	"regexp"
	"testing"
	"time"
)

// Every day of the years 0001 to 9999, against package time.
func TestDatesAgreeWithPackageTime(t *testing.T) {
	day := time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	var text []byte
	for days := int64(dateMin); days <= dateMax; days++ {
		year, month, d := day.Date()
		if got := daysOf(year, int(month), d); got != days {
			t.Fatalf("%s is day %d, wanted %d", day, got, days)
		}
		if y, m, dd := civil(days); y != year || m != int(month) || dd != d {
			t.Fatalf("day %d is %d-%d-%d, wanted %s", days, y, m, dd, day)
		}
		text = AppendDate(text[:0], days)
		if got, ok := parseDate(text); !ok || got != days {
			t.Fatalf("day %d is written %s, which reads as %d, %v", days, text, got, ok)
		}
		day = day.AddDate(0, 0, 1)
	}
	if day.Year() != 10_000 {
		t.Fatalf("the last day is followed by %s", day)
	}
}

func TestDatetimesAgreeWithPackageTime(t *testing.T) {
	random := newRandom(t)
	const layout = "2006-01-02T15:04:05.000000Z"
	for range 100_000 {
		micros := datetimeMin + random.Int64N(datetimeMax-datetimeMin+1)
		text := string(AppendDatetime(nil, micros))
		if want := time.UnixMicro(micros).UTC().Format(layout); text != want {
			t.Fatalf("%d is written %s, wanted %s", micros, text, want)
		}
		if got, ok := parseDatetime([]byte(text)); !ok || got != micros {
			t.Fatalf("%s reads as %d, %v; wanted %d", text, got, ok, micros)
		}
	}
}

// The forms are strict: one byte changed to any other gives another value or none.
func TestDateFormsAreStrict(t *testing.T) {
	for _, text := range []string{"2024-02-29", "2023-12-31"} {
		for i := range text {
			for c := range 256 {
				changed := []byte(text)
				changed[i] = byte(c)
				days, ok := parseDate(changed)
				if ok && string(AppendDate(nil, days)) != string(changed) {
					t.Fatalf("%q was read", changed)
				}
				_, err := time.Parse("2006-01-02", string(changed))
				if ok != (err == nil && string(changed[:4]) != "0000") {
					t.Fatalf("%q: %v, package time says %v", changed, ok, err)
				}
			}
		}
	}
}

func TestDatetimeFormIsStrict(t *testing.T) {
	form := regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$`)
	random := newRandom(t)
	check := func(changed []byte) {
		t.Helper()
		want, err := time.Parse("2006-01-02T15:04:05.000000Z", string(changed))
		wanted := err == nil && form.Match(changed) && string(changed[:4]) != "0000"
		micros, ok := parseDatetime(changed)
		if ok != wanted || ok && micros != want.UnixMicro() {
			t.Fatalf("%q reads as %d, %v; package time says %v, %v", changed, micros, ok, want, err)
		}
	}
	for _, text := range []string{"2024-02-29T23:59:59.999999Z", "2023-12-31T00:00:00.000000Z"} {
		for i := range text {
			for c := range 256 {
				changed := []byte(text)
				changed[i] = byte(c)
				check(changed)
				changed[random.IntN(len(text))] = byte(random.IntN(256))
				check(changed)
			}
			check([]byte(text[:i]))
			check([]byte(text[:i] + "0" + text[i:]))
		}
	}
}
