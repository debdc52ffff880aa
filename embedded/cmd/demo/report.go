package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

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
	notProved := "Not proved here: Kafka and MySQL were in memory in this process, so nothing was durable,\n" +
		"nothing failed over, and ids of rolled-back rows were given out again, as MySQL never does.\n"
	if r.missing == nil {
		notProved += "ClickHouse was its engine alone: no replication, no users, no TLS.\n"
	} else {
		fmt.Fprintf(w, "\nClickHouse is missing: %v\n"+
			"The answers come from the shards instead, added up here: no store was asked across tenants.\n", r.missing)
	}
	fmt.Fprint(w, "\n"+notProved+"`make test` runs the line on real servers, and kills them.\n")
}

func (r *report) writeEvents(w io.Writer) {
	fmt.Fprintln(w)
	line := func(what string, n int64, format string, args ...any) {
		fmt.Fprintf(w, "  %-11s%7s  %s\n", what, number(n), fmt.Sprintf(format, args...))
	}
	const indent = "\n                      "
	line("emitted", r.committed.events, "in %s transactions: %s", number(r.committed.transactions), kinds(r.committed.kinds, indent))
	line("rolled back", r.rolledBack.events, "in %s transactions, false images of the same flights", number(r.rolledBack.transactions))
	line("published", r.published.records, "records in Kafka: %s events, %s of them rolled back", number(r.published.distinct), number(r.published.poison))
	applied := "by the shards"
	if r.olap != nil {
		applied += fmt.Sprintf(", %s by ClickHouse", number(r.applied.clickhouse))
	}
	line("applied", r.applied.shards, "%s, %s dead letters", applied, number(r.deadLetters))
	var rows, deleted int64
	carriers := map[string]int64{}
	for _, s := range r.stored.shards {
		for _, n := range s.rows {
			rows += n
		}
		deleted += s.deleted
		maps.Copy(carriers, s.carriers)
	}
	line("placed", rows, "rows: UA is dedicated (%s), DL is spread (%s),"+indent+"%d carriers go by hash; %s deleted flights are kept as deleted rows",
		r.in("UA"), r.in("DL"), len(carriers)-2, number(deleted))
	line("broadcast", r.airports, "airports, in each shard")
}

// kinds lists counts in the order of a flight's life, on two lines.
func kinds(counts map[string]int64, indent string) string {
	var parts []string
	for _, k := range []string{"scheduled", "delayed", "departed", "arrived", "diverted", "cancelled", "deleted"} {
		parts = append(parts, number(counts[k])+" "+k)
	}
	parts = append(parts, number(counts["airport"])+" airports")
	const first = 3
	return strings.Join(parts[:first], ", ") + "," + indent + strings.Join(parts[first:], ", ")
}

// in says where a carrier's rows are.
func (r *report) in(carrier string) string {
	var parts []string
	for _, s := range r.stored.shards {
		if n := s.carriers[carrier]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s in %s", number(n), s.name))
		}
	}
	return strings.Join(parts, ", ")
}

// writeAnswers prints rows and answers by carrier and by month; every carrier in every month was compared.
func (r *report) writeAnswers(w io.Writer) {
	store, answers := "ClickHouse", r.olap
	if answers == nil {
		store, answers = "the shards", r.stored.answers
	}
	fmt.Fprintf(w, "\n  %-15s", "")
	for range r.stored.shards {
		fmt.Fprintf(w, "%7s", "rows")
	}
	fmt.Fprintf(w, "   %24s    %24s\n  %-15s", store+" says", "the CSV says", "")
	for _, s := range r.stored.shards {
		fmt.Fprintf(w, "%7s", "in "+s.name)
	}
	head := fmt.Sprintf("%8s%8s%8s", "flights", "cancel.", "delay")
	fmt.Fprintf(w, "   %s    %s\n", head, head)
	all := buckets(answers, r.reference)
	group := func(key func(nyc.Bucket) string, name func(string) string, rows func(*shard) map[string]int64) {
		got, want := map[string]answer{}, map[string]answer{}
		for _, b := range all {
			got[key(b)] = got[key(b)].plus(answers[b], r.reference[b])
			want[key(b)] = want[key(b)].plus(r.reference[b], r.reference[b])
		}
		for _, k := range slices.Sorted(maps.Keys(got)) {
			fmt.Fprintf(w, "  %-15s", name(k))
			for i := range r.stored.shards {
				fmt.Fprintf(w, "%7s", number(rows(&r.stored.shards[i])[k]))
			}
			mark := ""
			if got[k].cells() != want[k].cells() {
				mark = "  <- differs"
			}
			fmt.Fprintf(w, "   %s    %s%s\n", got[k].cells(), want[k].cells(), mark)
		}
	}
	group(func(b nyc.Bucket) string { return b.Carrier }, carrierName, func(s *shard) map[string]int64 { return s.carriers })
	group(func(b nyc.Bucket) string { return b.Month }, func(m string) string { return m[:4] + "-" + m[4:] },
		func(s *shard) map[string]int64 { return s.rows })
	group(func(nyc.Bucket) string { return "" }, func(string) string { return "all" }, func(s *shard) map[string]int64 {
		var sum int64
		for _, n := range s.rows {
			sum += n
		}
		return map[string]int64{"": sum}
	})
	fmt.Fprintf(w, "  delay: mean minutes late at arrival; months by UTC; compared per carrier and month\n")
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
	const tenth = 10
	delay := math.Round(a.delay*tenth) / tenth
	if delay == 0 {
		delay = 0 // not -0.0
	}
	return fmt.Sprintf("%8s%8s%8.1f", number(a.flights), number(a.cancelled), delay)
}

func carrierName(code string) string {
	names := map[string]string{"9E": "Endeavor", "AA": "American", "AS": "Alaska", "B6": "JetBlue", "DL": "Delta", "EV": "ExpressJet",
		"F9": "Frontier", "FL": "AirTran", "HA": "Hawaiian", "MQ": "Envoy", "OO": "SkyWest", "UA": "United", "US": "US Airways",
		"VX": "Virgin", "WN": "Southwest", "YV": "Mesa"}
	return strings.TrimSpace(code + " " + names[code])
}
