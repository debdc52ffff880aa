package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/slotline/slotline/embedded/clickhouse"
	"github.com/slotline/slotline/examples/flights/nyc"
)

func TestMain(m *testing.M) {
	clickhouse.RunIfChild() // the engine is this program started again
	os.Exit(m.Run())
}

var errNoLibrary = errors.New("npm is not installed")

func noLibrary(context.Context, string, clickhouse.Progress) (string, error) { return "", errNoLibrary }

// small is a demo with a few hundred flights.
func small(get library) (*demo, *bytes.Buffer) {
	var out bytes.Buffer
	return &demo{out: &out, every: 1000, library: get}, &out
}

// needLibrary says why the engine cannot be tested, where it cannot.
func needLibrary(t *testing.T) library {
	t.Helper()
	path, err := clickhouse.EnsureLibrary(t.Context(), "", nil)
	if err != nil {
		t.Skipf("ClickHouse's library is not here: %v", err)
	}
	return func(context.Context, string, clickhouse.Progress) (string, error) { return path, nil }
}

func TestWithClickHouse(t *testing.T) {
	d, out := small(needLibrary(t))
	agree, err := d.run(t.Context())
	if err != nil || !agree {
		t.Fatalf("agree %v, %v\n%s", agree, err, out)
	}
	for _, want := range []string{" figures agree", ", ClickHouse 26", "by ClickHouse, 0 dead letters", "UA is dedicated (", " in s1)"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report does not say %q\n%s", want, out)
		}
	}
	if _, err := os.Stat(d.dir); !os.IsNotExist(err) {
		t.Errorf("%s is left behind: %v", d.dir, err)
	}
}

func TestWithoutClickHouse(t *testing.T) {
	d, out := small(noLibrary)
	agree, err := d.run(t.Context())
	if err != nil || !agree {
		t.Fatalf("agree %v, %v\n%s", agree, err, out)
	}
	for _, want := range []string{" figures agree", "ClickHouse is missing: npm is not installed", "the shards"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report does not say %q\n%s", want, out)
		}
	}
}

// Every figure that a store could get wrong is compared: each of these changes shows, and is named.
func TestDifferenceIsFound(t *testing.T) {
	d, out := small(noLibrary)
	d.alter = func(r *report) {
		r.olap, r.olapAirports = map[nyc.Bucket]answer{}, r.airports // as a ClickHouse that has everything
		for b, a := range r.stored.answers {
			r.olap[b] = a
		}
		if c := r.check(); len(c.differ) > 0 {
			t.Errorf("before: %v", c.differ)
		}
		ua := nyc.Bucket{Carrier: "UA", Month: "201303"}
		change := func(m map[nyc.Bucket]answer, how func(*answer)) func() func() {
			return func() func() {
				was := m[ua]
				now := was
				how(&now)
				m[ua] = now
				return func() { m[ua] = was }
			}
		}
		count := func(n *int64) func() func() {
			return func() func() { *n++; return func() { *n-- } }
		}
		for want, alter := range map[string]func() func(){
			"ClickHouse, UA 2013-03, flights:":             change(r.olap, func(a *answer) { a.flights++ }),
			"ClickHouse, UA 2013-03, cancelled:":           change(r.olap, func(a *answer) { a.cancelled++ }),
			"ClickHouse, UA 2013-03, mean arrival delay:":  change(r.olap, func(a *answer) { a.delay += 0.001 }),
			"the shards, UA 2013-03, flights:":             change(r.stored.answers, func(a *answer) { a.flights-- }),
			"events in the topic:":                         count(&r.published.distinct),
			"rolled-back events in the topic:":             count(&r.published.poison),
			"dead letters:":                                count(&r.deadLetters),
			"rows of s1 that the layout places elsewhere:": count(&r.stored.shards[0].misplace),
			"airports in s2:":                              count(&r.stored.shards[1].airports),
			"airports in ClickHouse:":                      count(&r.olapAirports),
			"flights that the shards show as poison: 1, expected": func() func() {
				r.stored.statuses[poison] = 1
				return func() { delete(r.stored.statuses, poison) }
			},
			"ClickHouse, XX 2013-02, flights: 1": func() func() { // a bucket that nobody asked for
				xx := nyc.Bucket{Carrier: "XX", Month: "201302"}
				r.olap[xx] = answer{flights: 1}
				return func() { delete(r.olap, xx) }
			},
		} {
			undo := alter()
			if c := r.check(); len(c.differ) == 0 || !strings.HasPrefix(c.differ[0], want) {
				t.Errorf("%q is not found: %v", want, c.differ)
			}
			undo()
		}
		delete(r.olap, ua)
	}
	agree, err := d.run(t.Context())
	if err != nil || agree {
		t.Fatalf("agree %v, %v\n%s", agree, err, out)
	}
	for _, want := range []string{"DIFFERS  ClickHouse, UA 2013-03, flights: 0, expected ", " figures differ", "<- differs"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report does not say %q\n%s", want, out)
		}
	}
	if strings.Contains(out.String(), "figures agree") {
		t.Errorf("the report says that all agree\n%s", out)
	}
}

func TestInterruptEndsTheRun(t *testing.T) {
	d, out := small(noLibrary)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	agree, err := d.run(ctx)
	if agree || !errors.Is(err, context.Canceled) {
		t.Fatalf("agree %v, %v\n%s", agree, err, out)
	}
}
