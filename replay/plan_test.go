package replay

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A plan's time grows with all that is to be done, is never less than what the bound on the rate leaves, and is that of the
// whole shard where all of it is chosen.
func TestPlanTime(t *testing.T) {
	for _, c := range []struct {
		rows  int64
		apply time.Duration // and read
	}{
		{500_000, 50 * time.Second},
		{100_000, 10*time.Second + 9*time.Second}, // read twice, and the newest of each row applied
		{0, 50 * time.Second},                     // nobody knows how many there are
	} {
		want := c.apply + time.Duration(c.rows)*20*time.Microsecond + 3*time.Second + 3*time.Second
		if got := about(500_000, 1, c.rows, 10, 0); got != want {
			t.Errorf("500000 events, %d rows, 10 tables: %s, want %s", c.rows, got, want)
		}
	}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 1000 {
		events, rows, tables := rng.Int64N(1e9), 2+rng.Int64N(1e8), rng.IntN(500)
		share, bound := rng.Float64(), 1+rng.IntN(50_000)
		part, whole := about(events, share, rows/2, tables/2, 0), about(events, 1, rows, tables, 0)
		bounded := about(events, share, rows/2, tables/2, bound)
		least := time.Duration(min(share*float64(events), float64(rows/2)) / float64(bound) * float64(time.Second))
		if part > whole || bounded < part || bounded < least {
			t.Fatalf("seed %d: %d events, %.2f of them, %d rows, %d tables, %d a second: %s, whole %s, bounded %s", seed, events, share, rows, tables, bound, part, whole, bounded)
		}
	}
}
