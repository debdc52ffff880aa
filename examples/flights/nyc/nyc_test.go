package nyc

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
)

// figuresOf folds the lives of all flights: the last image of each entity counts.
func figuresOf(flights []Flight, rng *rand.Rand) (map[Bucket]Figures, int) {
	last := map[uint64]Step{}
	events := 0
	for i := range flights {
		for _, s := range Life(&flights[i], rng) {
			last[s.Row.FlightID] = s
			events++
		}
	}
	out := map[Bucket]Figures{}
	for _, s := range last {
		if s.Delete {
			continue
		}
		b := Bucket{s.Row.Carrier, s.Row.SchedDep.Format("200601")}
		f := out[b]
		f.Flights++
		f.Distance += int64(s.Row.Distance)
		if s.Row.Cancelled {
			f.Cancelled++
		}
		if s.Row.ArrDelay != nil {
			f.ArrDelaySum += int64(*s.Row.ArrDelay)
			f.ArrDelayCount++
		}
		out[b] = f
	}
	return out, events
}

// The fold of the events equals what other code computes straight from the CSV, and the whole is a million events.
func TestLifeEndsAtTheData(t *testing.T) {
	flights, err := Flights(nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(flights) != Count {
		t.Fatalf("%d flights, want %d", len(flights), Count)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	got, events := figuresOf(flights, rand.New(rand.NewPCG(seed, 0)))
	want, err := Reference(CSV(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got, want) {
		for b := range want {
			if got[b] != want[b] {
				t.Errorf("%v: folded %+v, reference %+v", b, got[b], want[b])
			}
		}
		t.Fatalf("%d buckets folded, %d in the reference", len(got), len(want))
	}
	if events < 1_000_000 {
		t.Errorf("%d events, want at least 1,000,000", events)
	}
	var flightsSum, cancelled int64
	for _, f := range want {
		flightsSum += f.Flights
		cancelled += f.Cancelled
	}
	if got := fmt.Sprint(flightsSum, cancelled); got != "336776 8255" {
		t.Errorf("flights and cancelled: %s", got)
	}
	// 2013-12-31 23:59 in New York is in January 2014 by UTC.
	if want[Bucket{"B6", "201401"}].Flights == 0 {
		t.Error("no B6 flight in 201401: the departure was read in local time")
	}
}

func TestAirportsCountEveryEnd(t *testing.T) {
	flights, err := Flights(func(id uint64) bool { return id <= 1000 })
	if err != nil {
		t.Fatal(err)
	}
	var ends int32
	for _, a := range Airports(flights) {
		ends += a.Flights
	}
	if ends != 2000 {
		t.Errorf("%d ends, want 2000", ends)
	}
}
