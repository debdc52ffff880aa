package replay

import (
	"maps"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
)

func TestParseAsOf(t *testing.T) {
	topics := []string{"flights.events", "other"}
	at := func(topic string, n int32) event.Partition { return event.Partition{Topic: topic, Number: n} }
	for text, want := range map[string]AsOf{
		"":                                 {},
		"2026-11-30T12:00:00Z":             {Time: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)},
		"2026-11-30T12:00:00.000001+00:00": {Time: time.Date(2026, 11, 30, 12, 0, 0, 1000, time.UTC)},
		"0=12,3=0":                         {Offsets: map[event.Partition]int64{at("flights.events", 0): 12, at("flights.events", 3): 0}},
		"other/1=5,1=7":                    {Offsets: map[event.Partition]int64{at("other", 1): 5, at("flights.events", 1): 7}},
	} {
		got, err := ParseAsOf(text, topics)
		if err != nil || !got.Time.Equal(want.Time) || !maps.Equal(got.Offsets, want.Offsets) {
			t.Errorf("%q is %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"yesterday", "2026-11-30", "0", "0=", "=1", "0=-1", "-1=5", "0=1,0=2", "nowhere/0=1", "0=1,", "99999999999=1"} {
		if got, err := ParseAsOf(text, topics); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
}
