package consumers

import "time"

// deadRate counts dead letters of the last minute: past the limit it is a fault of a release, not of rows.
type deadRate struct {
	perMinute int
	counts    []deadCount
}

type deadCount struct {
	at time.Time
	n  int
}

// admit says whether n more dead letters are within the limit, and counts them if so. A flood that arrives as one
// batch is refused whole: nothing of it was written.
func (d *deadRate) admit(now time.Time, n int) bool {
	recent, sum := d.counts[:0], 0
	for _, c := range d.counts {
		if now.Sub(c.at) < time.Minute {
			recent = append(recent, c)
			sum += c.n
		}
	}
	d.counts = recent
	if sum+n > d.perMinute {
		return false
	}
	d.counts = append(d.counts, deadCount{now, n})
	return true
}
