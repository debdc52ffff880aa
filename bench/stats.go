package main

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"runtime/metrics"
	"runtime/pprof"
	"slices"
	"syscall"
	"time"
)

// round is what one round measured of each side, in the same unit, and what this process took for it.
type round struct {
	ours, bare       float64
	oursCPU, bareCPU time.Duration
	oursAllocations  uint64
}

// roundsMin are measured however long they take: fewer have no median that means anything.
const roundsMin = 3

// alternate measures both sides n times, one after the other, and swaps their order each round; after roundsMin rounds
// it ends early when more says so. before makes what a round needs and is not measured; nil: nothing. Garbage of one
// side is collected before the other begins.
func alternate(n int, more func() bool, before func(i int), ours, bare func(i int) float64) []round {
	var rounds []round
	for i := 0; i < n && (i < roundsMin || more()); i++ {
		if before != nil {
			before(i)
		}
		var r round
		sides := []func(){
			func() {
				from, count := cpu(), allocations()
				pprof.Do(context.Background(), pprof.Labels("side", "ours"), func(context.Context) { r.ours = ours(i) })
				r.oursCPU, r.oursAllocations = cpu()-from, allocations()-count
			},
			func() {
				from := cpu()
				r.bare = bare(i)
				r.bareCPU = cpu() - from
			},
		}
		if i%2 == 1 {
			slices.Reverse(sides)
		}
		for _, side := range sides {
			runtime.GC()
			side()
		}
		rounds = append(rounds, r)
	}
	return rounds
}

// cpu is what this process has used so far.
func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// allocations is how many objects this process has put on the heap so far.
func allocations() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// cpuPerRow says what the client's side of n rows costs: a figure that other load on the machine changes little.
func cpuPerRow(rounds []round, n int) string {
	micros := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / float64(n) }
	return fmt.Sprintf("CPU of this process per row: %.2f µs, bare %.2f µs",
		median(each(rounds, func(r round) float64 { return micros(r.oursCPU) })), median(each(rounds, func(r round) float64 { return micros(r.bareCPU) })))
}

// median is the middle one, or the mean of the two in the middle; NaN of none.
func median(list []float64) float64 {
	n := len(list)
	if n == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(list))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// quantile is the smallest value that at least the share q of the list does not exceed; NaN of none.
func quantile(list []float64, q float64) float64 {
	if len(list) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(list))
	return sorted[min(len(sorted)-1, max(0, int(math.Ceil(q*float64(len(sorted))))-1))]
}

// each maps rounds to numbers.
func each(rounds []round, f func(round) float64) []float64 {
	list := make([]float64, len(rounds))
	for i, r := range rounds {
		list[i] = f(r)
	}
	return list
}

func oursOf(r round) float64  { return r.ours }
func bareOf(r round) float64  { return r.bare }
func ratioOf(r round) float64 { return r.ours / r.bare }

// Result is one line of the table, and of latest.json. Ours and Bare are medians; Ratio is the median of the rounds'
// own ratios, ours ÷ bare, which need not be the ratio of the medians.
type Result struct {
	Name   string  `json:"name"`
	Unit   string  `json:"unit"`
	Ours   float64 `json:"ours"`
	Bare   float64 `json:"bare"`
	Ratio  float64 `json:"ratio"`
	Rounds int     `json:"rounds"`

	ratioMin, ratioMax float64
	note               string // what the table says below the line
}

func summarize(name, unit string, rounds []round, note string) Result {
	ratios := each(rounds, ratioOf)
	return Result{Name: name, Unit: unit, Ours: median(each(rounds, oursOf)), Bare: median(each(rounds, bareOf)),
		Ratio: median(ratios), Rounds: len(rounds), ratioMin: slices.Min(ratios), ratioMax: slices.Max(ratios), note: note}
}
