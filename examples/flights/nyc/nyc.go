// Package nyc is real input for slotline: every flight that left New York City in 2013 (CC0, see DATA.md), the life of
// each as a sequence of events, and the figures that any store of them must show at the end.
//
// The scheduled departure is read in UTC: time_hour (UTC) plus the minute. The reference computes it another way, from
// the local date and hour in America/New_York, by code that shares nothing with the events; so a month that is off by
// a zone shows.
package nyc

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	_ "embed"
	"encoding/csv"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"time"
)

//go:embed flights.csv.bz2
var compressed []byte

// Count is the number of flights in the data.
const Count = 336_776

// CSV returns the data as CSV text with a header line.
func CSV() io.Reader { return bufio.NewReaderSize(bzip2.NewReader(bytes.NewReader(compressed)), 1<<16) }

// Flight is one line of the data.
type Flight struct {
	ID       uint64 // 1..Count, the line's number
	Carrier  string // two letters: the tenant
	Origin   string
	Dest     string
	SchedDep time.Time // UTC
	DepDelay *int32    // minutes; nil when it did not depart
	ArrDelay *int32    // minutes; nil when it did not arrive
	Distance int32     // miles
}

// Cancelled reports whether the flight never departed.
func (f *Flight) Cancelled() bool { return f.DepDelay == nil }

// Flights returns the flights for which keep is true, in the order of the data. A nil keep keeps all.
func Flights(keep func(id uint64) bool) ([]Flight, error) {
	r := csv.NewReader(CSV())
	r.ReuseRecord = true
	header, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("flights.csv: %w", err)
	}
	at := make(map[string]int, len(header))
	for i, name := range header {
		at[name] = i
	}
	var out []Flight
	for id := uint64(1); ; id++ {
		rec, err := r.Read()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("flights.csv line %d: %w", id+1, err)
		}
		if keep != nil && !keep(id) {
			continue
		}
		hour, err := time.Parse(time.RFC3339, rec[at["time_hour"]])
		if err != nil {
			return nil, fmt.Errorf("flights.csv line %d: %w", id+1, err)
		}
		minute, err := strconv.Atoi(rec[at["minute"]])
		if err != nil {
			return nil, fmt.Errorf("flights.csv line %d: %w", id+1, err)
		}
		f := Flight{ID: id, Carrier: rec[at["carrier"]], Origin: rec[at["origin"]], Dest: rec[at["dest"]],
			SchedDep: hour.Add(time.Duration(minute) * time.Minute)}
		distance, err := minutes(rec[at["distance"]])
		if err != nil || distance == nil {
			return nil, fmt.Errorf("flights.csv line %d: distance %q", id+1, rec[at["distance"]])
		}
		f.Distance = *distance
		if f.DepDelay, err = minutes(rec[at["dep_delay"]]); err != nil {
			return nil, fmt.Errorf("flights.csv line %d: %w", id+1, err)
		}
		if f.ArrDelay, err = minutes(rec[at["arr_delay"]]); err != nil {
			return nil, fmt.Errorf("flights.csv line %d: %w", id+1, err)
		}
		out = append(out, f)
	}
}

func minutes(s string) (*int32, error) {
	if s == "NA" || s == "" {
		return nil, nil
	}
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		return nil, err
	}
	v := int32(n)
	return &v, nil
}

// Row is the image that a flight's events carry: the table flights of the examples.
type Row struct {
	Carrier   string    `slotline:"carrier,tenant"`
	FlightID  uint64    `slotline:"flight_id,id,spread"`
	SchedDep  time.Time `slotline:"sched_dep,month"`
	Origin    string    `slotline:"origin"`
	Dest      string    `slotline:"dest"`
	Status    string    `slotline:"status"`
	Cancelled bool      `slotline:"cancelled"`
	DepDelay  *int32    `slotline:"dep_delay"`
	ArrDelay  *int32    `slotline:"arr_delay"`
	Distance  int32     `slotline:"distance"`
}

// Columns is the columns block of slotline.yaml that Row fits.
const Columns = `{ carrier: string(2), flight_id: uint64, sched_dep: datetime, origin: string(3), dest: string(3),
               status: string(10), cancelled: bool, dep_delay: "int32?", arr_delay: "int32?", distance: int32 }`

// Airport is a row of the broadcast table airports.
type Airport struct {
	Code    string `slotline:"code,id"`
	Flights int32  `slotline:"flights"`
}

// AirportColumns is the columns block that Airport fits.
const AirportColumns = `{ code: string(3), flights: int32 }`

// Airports counts the departures and arrivals of each airport in flights, in order of first appearance.
func Airports(flights []Flight) []Airport {
	at := map[string]int{}
	var out []Airport
	for i := range flights {
		for _, code := range [2]string{flights[i].Origin, flights[i].Dest} {
			k, ok := at[code]
			if !ok {
				k = len(out)
				at[code] = k
				out = append(out, Airport{Code: code})
			}
			out[k].Flights++
		}
	}
	return out
}

// Step is one event of a flight's life.
type Step struct {
	Row    Row
	Delete bool
}

// GhostOffset is added to a flight's id to name its ghost: an entity that is scheduled and deleted again, and that no
// figure may count.
const GhostOffset = 1_000_000

// Life is the sequence of events of one flight: scheduled, delayed, departed, arrived or cancelled. One flight in 40 is
// deleted and scheduled anew on the way; one in 20 has a ghost. The last image equals the data. rng decides only
// which flights those are.
func Life(f *Flight, rng *rand.Rand) []Step {
	row := Row{Carrier: f.Carrier, FlightID: f.ID, SchedDep: f.SchedDep, Origin: f.Origin, Dest: f.Dest,
		Status: "scheduled", Distance: f.Distance}
	steps := make([]Step, 0, 6)
	add := func(deleted bool) { steps = append(steps, Step{row, deleted}) }
	add(false)
	if rng.IntN(40) == 0 {
		add(true)
		add(false)
	}
	if rng.IntN(20) == 0 {
		ghost := row
		ghost.FlightID += GhostOffset
		steps = append(steps, Step{ghost, false}, Step{ghost, true})
	}
	if f.Cancelled() {
		row.Status, row.Cancelled = "cancelled", true
		add(false)
		return steps
	}
	row.DepDelay = f.DepDelay
	if *f.DepDelay > 15 {
		row.Status = "delayed"
		add(false)
	}
	row.Status = "departed"
	add(false)
	row.Status, row.ArrDelay = "arrived", f.ArrDelay
	if f.ArrDelay == nil {
		row.Status = "diverted"
	}
	add(false)
	return steps
}
