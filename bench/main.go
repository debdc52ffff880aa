// Bench measures each part of a line beside the same work done by a bare loop, on the real servers that the
// integration tests use, and prints one table.
//
//	make bench                  all of them
//	make bench BENCH=NAME       one; a name that does not exist lists those that do
//
// It promises a ratio, not a speed: ours and bare run in alternated rounds of the same run, the order swapped each
// round, and what is printed is the median of the ratios of each round with their range. A shared machine drifts by a
// factor of two within minutes; rounds that follow each other see the same machine.
//
// It drives the real code: the producer, the relay, consumers.Run with a sink. Nothing of it is copied here; the bare
// loops are what someone would write who has the rows in memory and needs none of the promises.
//
// BENCH_SCALE multiplies rows and times (default 1: some minutes on two busy cores), BENCH_SEED repeats a run's rows,
// BENCH_PROFILE names a file for a CPU profile in which our side has the label side=ours. Where the servers come from,
// and the variables that name others, is the harness's (integration/README.md). bench/out/latest.json holds the last
// run. The exit status is 1 when a bench failed, 2 when it was called wrongly.
package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/integration/harness"
)

// outFile is beside the sources: make bench runs in this folder.
const outFile = "out/latest.json"

func main() { harness.Program(func() int { return run(os.Getenv, os.Stdout, os.Stderr) }) }

// gcPercent is that of the slotline program, for both sides.
const gcPercent = 400

// run is main with its surroundings passed in.
func run(env func(string) string, stdout, stderr io.Writer) int {
	chosen, err := choose(env("BENCH"))
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	s, err := parseSettings(env)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	if s.profile != "" {
		stop, err := profile(s.profile)
		if err != nil {
			fmt.Fprintln(stderr, err)
			return 2
		}
		defer stop()
	}
	fmt.Fprintf(stdout, "%s\nseed %d, scale %g\n", machine(), s.seed, s.scale)
	if env("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	var results []Result
	failed := 0
	for _, b := range chosen {
		fmt.Fprintf(stderr, "bench: %s\n", b.name)
		began := time.Now()
		err := harness.Part(b.name, func(t testing.TB) {
			results = append(results, b.run(&bench{TB: t, settings: s, random: rand.New(rand.NewPCG(s.seed, 1)), until: time.Now().Add(s.lasts(roundsFor))})...)
		})
		if err != nil {
			fmt.Fprintln(stderr, err)
			failed++
		}
		fmt.Fprintf(stderr, "bench: %s took %s\n", b.name, time.Since(began).Round(time.Second))
	}
	fmt.Fprintln(stdout, versions())
	writeTable(stdout, results)
	if len(results) > 0 {
		if err := writeJSON(outFile, results); err != nil {
			fmt.Fprintln(stderr, err)
			return 1
		}
	}
	if failed > 0 {
		fmt.Fprintf(stderr, "%d of %d benches failed\n", failed, len(chosen))
		return 1
	}
	return 0
}

// bench is what one bench is given.
type bench struct {
	testing.TB
	settings
	random *rand.Rand
	until  time.Time // no further round begins after it
}

// roundsFor bounds the rounds of one bench where the machine is slow.
const roundsFor = 45 * time.Second

// alternate is the function of that name, within the bench's time.
func (b *bench) alternate(n int, before func(i int), ours, bare func(i int) float64) []round {
	return alternate(n, func() bool { return time.Now().Before(b.until) }, before, ours, bare)
}

type settings struct {
	scale   float64
	seed    uint64
	profile string
}

const (
	scaleMin = 0.01
	scaleMax = 100
)

func parseSettings(env func(string) string) (settings, error) {
	s := settings{scale: 1, seed: rand.Uint64(), profile: env("BENCH_PROFILE")}
	var err error
	if v := env("BENCH_SCALE"); v != "" {
		if s.scale, err = strconv.ParseFloat(v, 64); err != nil || !(s.scale >= scaleMin && s.scale <= scaleMax) {
			return s, fmt.Errorf("BENCH_SCALE=%s is not a number from %g to %d", v, scaleMin, scaleMax)
		}
	}
	if v := env("BENCH_SEED"); v != "" {
		if s.seed, err = strconv.ParseUint(v, 10, 64); err != nil {
			return s, fmt.Errorf("BENCH_SEED=%s is not a seed that a run has printed", v)
		}
	}
	return s, nil
}

// rows scales a number of rows.
func (s settings) rows(n int) int { return max(1, int(float64(n)*s.scale)) }

// lasts scales a time.
func (s settings) lasts(d time.Duration) time.Duration { return time.Duration(float64(d) * s.scale) }

// choose is the benches to run: all, or the one that BENCH names.
func choose(name string) ([]benchmark, error) {
	if name == "" {
		return benches, nil
	}
	var names []string
	for _, b := range benches {
		if b.name == name {
			return []benchmark{b}, nil
		}
		names = append(names, "  "+b.name+strings.Repeat(" ", max(1, 22-len(b.name)))+b.about)
	}
	return nil, fmt.Errorf("there is no bench %s; there are\n%s", name, strings.Join(names, "\n"))
}

func profile(path string) (stop func(), err error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return func() { pprof.StopCPUProfile(); f.Close() }, nil
}
