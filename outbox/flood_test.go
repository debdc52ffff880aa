package outbox

import (
	"testing"
	"time"
)

// P7: as many dead letters as a minute may have are passed, one more is a flood; the next minute starts anew.
func TestP7_FloodIsMoreThanAMinuteMayHave(t *testing.T) {
	f := flood{max: 10}
	now := time.Unix(1e9, 0)
	for _, c := range []struct {
		after time.Duration
		n     int
		flood bool
	}{{0, 4, false}, {20 * time.Second, 6, false}, {30 * time.Second, 1, true}, {2 * time.Minute, 10, false}, {time.Second, 1, true}, {time.Minute, 11, true}} {
		now = now.Add(c.after)
		if got := f.add(c.n, now); got != c.flood {
			t.Errorf("%d more at %v: flood %v", c.n, now.UTC().Format(time.TimeOnly), got)
		}
	}
}
