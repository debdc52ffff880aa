package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		list []float64
		want float64
	}{
		{[]float64{3}, 3},
		{[]float64{4, 1}, 2.5},
		{[]float64{9, 1, 5}, 5},
		{[]float64{1, 100, 2, 3}, 2.5},
	} {
		before := slices.Clone(c.list)
		if got := median(c.list); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.list, got, c.want)
		}
		if !slices.Equal(c.list, before) {
			t.Errorf("median reorders its list: %v became %v", before, c.list)
		}
	}
	if !math.IsNaN(median(nil)) || !math.IsNaN(quantile(nil, 0.5)) {
		t.Error("of an empty list there is a figure")
	}
}

func TestQuantileIsTheSmallestValueThatTheShareDoesNotExceed(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		list := make([]float64, 1+random.IntN(300))
		for i := range list {
			list[i] = float64(random.IntN(100))
		}
		for _, q := range []float64{0, 0.5, 0.99, 1} {
			got := quantile(list, q)
			below, upto := 0, 0
			for _, v := range list {
				if v < got {
					below++
				}
				if v <= got {
					upto++
				}
			}
			need := q * float64(len(list))
			if !slices.Contains(list, got) || float64(upto) < need || q > 0 && float64(below) >= need {
				t.Fatalf("seed %d: quantile %v of %d values is %v, with %d below and %d up to it", seed, q, len(list), got, below, upto)
			}
		}
	}
}

func TestTheRatioIsTheMedianOfTheRoundsOwn(t *testing.T) {
	// The machine is half as fast in the second and third round: the medians' ratio would be 50/100.
	r := summarize("x", "rows/s", []round{{ours: 90, bare: 100}, {ours: 45, bare: 50}, {ours: 50, bare: 100}, {ours: 180, bare: 200}}, "")
	if r.Ratio != 0.9 || r.ratioMin != 0.5 || r.ratioMax != 0.9 || r.Ours != 70 || r.Bare != 100 || r.Rounds != 4 {
		t.Errorf("%+v", r)
	}
}

func TestRoundsAlternateAndSwapTheirOrder(t *testing.T) {
	var order []string
	say := func(what string) func(int) float64 {
		return func(i int) float64 { order = append(order, what); return float64(i) }
	}
	forever := func() bool { return true }
	rounds := alternate(4, forever, func(int) { order = append(order, "-") }, say("ours"), say("bare"))
	if want := []string{"-", "ours", "bare", "-", "bare", "ours", "-", "ours", "bare", "-", "bare", "ours"}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
	for i, r := range rounds {
		if r.ours != float64(i) || r.bare != float64(i) {
			t.Errorf("round %d has %v", i, r)
		}
	}
	if n := len(alternate(9, func() bool { return false }, nil, say(""), say(""))); n != roundsMin {
		t.Errorf("%d rounds where there is no time, want %d", n, roundsMin)
	}

	work := func(int) float64 {
		for from := cpu(); cpu()-from < 5*time.Millisecond; {
		}
		return 1
	}
	if r := alternate(1, forever, nil, work, func(int) float64 { return 1 })[0]; r.oursCPU < 5*time.Millisecond || r.bareCPU >= r.oursCPU {
		t.Errorf("a side that used 5 ms of CPU is said to have used %s, an idle one %s", r.oursCPU, r.bareCPU)
	}
	if got, want := cpuPerRow([]round{{oursCPU: 3 * time.Second, bareCPU: time.Second}}, 1_000_000), "CPU of this process per row: 3.00 µs, bare 1.00 µs"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
