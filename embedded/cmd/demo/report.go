package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/slotline/slotline/examples/flights/nyc"
)

// report is everything that the demo found.
type report struct {
	committed, rolledBack tally
	published             published
	applied               sample
	deadLetters           int64
	stored                *stored
	board                 map[string]int64
	airports              int64                 // expected in every store
	olap                  map[nyc.Bucket]answer // nil without ClickHouse
	olapAirports          int64
	missing               error // why there is no ClickHouse
	reference             map[nyc.Bucket]answer
}

// check compares all figures.
func (r *report) check() *checks {
	c := &checks{}
	c.equal("events in the topic", r.published.distinct, r.committed.events)
	c.equal("rolled-back events in the topic", r.published.poison, 0)
	c.equal("dead letters", r.deadLetters, 0)
	c.counts("flights that the shards show as", r.stored.statuses, r.board)
	for _, s := range r.stored.shards {
		c.equal("rows of "+s.name+" that the layout places elsewhere", s.misplace, 0)
		c.equal("airports in "+s.name, s.airports, r.airports)
	}
	c.answers("the shards", r.stored.answers, r.reference)
	if r.olap != nil {
		c.equal("airports in ClickHouse", r.olapAirports, r.airports)
		c.answers("ClickHouse", r.olap, r.reference)
	}
	return c
}

// write prints the report for a person.
func (r *report) write(w io.Writer, c *checks) {
	r.writeEvents(w)
	r.writeRows(w)
	r.writeAnswers(w)
	fmt.Fprintln(w)
	if len(c.differ) == 0 {
		fmt.Fprintf(w, "all %s figures agree\n", number(c.compared))
	} else {
		const shown = 20
		for _, d := range c.differ[:min(shown, len(c.differ))] {
			fmt.Fprintf(w, "DIFFERS  %s\n", d)
		}
		fmt.Fprintf(w, "%s of %s figures differ\n", number(len(c.differ)), number(c.compared))
	}
	if r.missing != nil {
		fmt.Fprintf(w, "\nClickHouse is missing: %v\nThe answers above come from the shards instead, one by one; no store was asked across tenants.\n", r.missing)
	}
	fmt.Fprint(w, "\nNot proved here: Kafka and MySQL were in memory inside this process, so nothing was durable, nothing failed over,\n"+
		"and ids of rolled-back rows were used again, as no MySQL does. `make test` runs the line on real servers and kills them.\n")
}

func (r *report) writeEvents(w io.Writer) {
	fmt.Fprintf(w, "\nEVENTS\n")
	line := func(what string, n int64, text string) {
		fmt.Fprintf(w, "  %-11s %7s  %s\n", what, number(n), strings.TrimSpace(text))
	}
	line("emitted", r.committed.events, fmt.Sprintf("in %s transactions: %s", number(r.committed.transactions), kinds(r.committed.kinds)))
	line("rolled back", r.rolledBack.events, fmt.Sprintf("in %s transactions, with false images of the same flights", number(r.rolledBack.transactions)))
	line("published", r.published.records, fmt.Sprintf("records in flights.events: %s events, %s of them rolled back", number(r.published.distinct), number(r.published.poison)))
	applied := "by the shards"
	if r.olap != nil {
		applied += fmt.Sprintf(", %s by ClickHouse", number(r.applied.clickhouse))
	}
	line("applied", r.applied.shards, fmt.Sprintf("%s, %s dead letters", applied, number(r.deadLetters)))
}

// kinds lists counts in the order of a flight's life.
func kinds(counts map[string]int64) string {
	var parts []string
	for _, k := range []string{"scheduled", "delayed", "departed", "arrived", "diverted", "cancelled", "deleted"} {
		if counts[k] > 0 {
			parts = append(parts, number(counts[k])+" "+k)
		}
	}
	return strings.Join(parts, ", ")
}

func (r *report) writeRows(w io.Writer) {
	months := map[string]bool{}
	carriers := map[string]bool{}
	for _, s := range r.stored.shards {
		for m := range s.rows {
			months[m] = true
		}
		for c := range s.carriers {
			carriers[c] = true
		}
	}
	sorted := slices.Sorted(maps.Keys(months))
	fmt.Fprintf(w, "\nROWS PER SHARD AND MONTH (UTC)\n  %-5s", "")
	for _, m := range sorted {
		fmt.Fprintf(w, "%6s", monthName(m))
	}
	fmt.Fprintf(w, "%8s%10s%9s\n", "all", "airports", "deleted")
	var placed []string
	for _, s := range r.stored.shards {
		fmt.Fprintf(w, "  %-5s", s.name)
		var sum int64
		for _, m := range sorted {
			fmt.Fprintf(w, "%6s", number(s.rows[m]))
			sum += s.rows[m]
		}
		fmt.Fprintf(w, "%8s%10s%9s\n", number(sum), number(s.airports), number(s.deleted))
	}
	for _, carrier := range []string{"UA", "DL"} {
		var in []string
		for _, s := range r.stored.shards {
			if n := s.carriers[carrier]; n > 0 {
				in = append(in, fmt.Sprintf("%s in %s", number(n), s.name))
			}
		}
		kind := "dedicated"
		if carrier == "DL" {
			kind = "spread"
		}
		placed = append(placed, fmt.Sprintf("%s is %s: %s", carrier, kind, strings.Join(in, ", ")))
	}
	fmt.Fprintf(w, "  %s; the other %d carriers go by hash\n", strings.Join(placed, "; "), len(carriers)-2)
}

func monthName(m string) string {
	t, err := time.Parse("200601", m)
	if err != nil {
		return m
	}
	if t.Year() != 2013 {
		return t.Format("Jan06")
	}
	return t.Format("Jan")
}

// writeAnswers prints the answers by carrier and by month; every carrier in every month was compared.
func (r *report) writeAnswers(w io.Writer) {
	store, answers := "ClickHouse", r.olap
	if answers == nil {
		store, answers = "the shards", r.stored.answers
	}
	fmt.Fprintf(w, "\nACROSS ALL TENANTS%37s%40s\n", store, "the CSV")
	head := fmt.Sprintf("%12s%12s%12s", "flights", "cancelled", "mean delay")
	fmt.Fprintf(w, "  %-14s%s    %s\n", "", head, head)
	all := buckets(answers, r.reference)
	group := func(key func(nyc.Bucket) string, name func(string) string) {
		got, want := map[string]answer{}, map[string]answer{}
		for _, b := range all {
			got[key(b)] = got[key(b)].plus(answers[b], r.reference[b])
			want[key(b)] = want[key(b)].plus(r.reference[b], r.reference[b])
		}
		for _, k := range slices.Sorted(maps.Keys(got)) {
			mark := ""
			if !got[k].shows(want[k]) {
				mark = "  <- differs"
			}
			fmt.Fprintf(w, "  %-14s%s    %s%s\n", name(k), got[k].cells(), want[k].cells(), mark)
		}
	}
	group(func(b nyc.Bucket) string { return b.Carrier }, carrierName)
	group(func(b nyc.Bucket) string { return b.Month }, func(m string) string { return m[:4] + "-" + m[4:] })
}

// plus adds another bucket's answer. A mean is weighted by the number of flights that arrived, as the reference has it.
func (a answer) plus(b, reference answer) answer {
	n := a.delayCount + reference.delayCount
	if n > 0 {
		a.delay = (a.delay*float64(a.delayCount) + b.delay*float64(reference.delayCount)) / float64(n)
	}
	a.flights, a.cancelled, a.delayCount = a.flights+b.flights, a.cancelled+b.cancelled, n
	return a
}

func (a answer) cells() string {
	return fmt.Sprintf("%12s%12s%8.1f min", number(a.flights), number(a.cancelled), a.delay)
}

func (a answer) shows(b answer) bool { return a.cells() == b.cells() }

func carrierName(code string) string {
	names := map[string]string{"9E": "Endeavor", "AA": "American", "AS": "Alaska", "B6": "JetBlue", "DL": "Delta", "EV": "ExpressJet",
		"F9": "Frontier", "FL": "AirTran", "HA": "Hawaiian", "MQ": "Envoy", "OO": "SkyWest", "UA": "United", "US": "US Airways",
		"VX": "Virgin", "WN": "Southwest", "YV": "Mesa"}
	return strings.TrimSpace(code + " " + names[code])
}
