package consumers

import (
	"math/rand/v2"
	"time"
)

// backoff bounds the pause between two tries. It doubles from First to Max; the jitter keeps those that failed together
// from trying together.
type backoff struct {
	first, max time.Duration
	tries      int
}

// next is the pause before the next try: between half and all of first*2^tries, at most max.
func (b *backoff) next() time.Duration {
	d := b.max
	if b.tries < 30 && b.first<<b.tries < b.max {
		d = b.first << b.tries
	}
	b.tries++
	return d/2 + rand.N(d/2+1)
}

func (b *backoff) reset() { b.tries = 0 }
