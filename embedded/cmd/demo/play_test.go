package main

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/slotline/slotline/examples/flights/nyc"
)

// Each flight's steps come in their order from one writer, nothing of them is missing, and rolled-back transactions of
// both kinds hold nothing but poison.
func TestPlaysAreTheLivesOfFlights(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	flights, err := nyc.Flights(func(id uint64) bool { return id%100 == 0 })
	if err != nil {
		t.Fatal(err)
	}
	all := plays(flights, seed)
	if !reflect.DeepEqual(all, plays(flights, seed)) {
		t.Error("the same seed gives other plays")
	}
	fates := map[fate]int{}
	last := map[uint64]nyc.Step{}
	writer := map[uint64]int{}
	for w, list := range all {
		for _, tx := range list {
			fates[tx.fate]++
			if n := len(tx.steps); n < 1 || n > stepsMax {
				t.Errorf("a transaction of %d events", n)
			}
			for _, s := range tx.steps {
				if is := s.Row.Status == poison; is != (tx.fate != commits) {
					t.Fatalf("fate %d has status %s", tx.fate, s.Row.Status)
				}
				if tx.fate != commits {
					continue
				}
				id := s.Row.FlightID
				if before, ok := last[id]; ok && writer[id] != w {
					t.Fatalf("flight %d has two writers", id)
				} else if !ok && s.Row.Status != "scheduled" {
					t.Fatalf("flight %d begins as %s", id, s.Row.Status)
				} else if ok && before.Row.Status == "arrived" {
					t.Fatalf("flight %d goes on after it arrived", id)
				}
				last[id], writer[id] = s, w
			}
		}
	}
	if fates[failsInRun] == 0 || fates[rollsBackLate] == 0 {
		t.Errorf("transactions by fate: %v", fates)
	}
	for i := range flights {
		s, ok := last[flights[i].ID]
		if !ok || s.Delete || s.Row.Cancelled != flights[i].Cancelled() || s.Row.ArrDelay != flights[i].ArrDelay {
			t.Errorf("flight %d ends as %+v", flights[i].ID, s)
		}
	}
}

// A terminal's lines are drawn again in place and stay once all have ended; a file gets each line once.
func TestScreen(t *testing.T) {
	for _, live := range []bool{true, false} {
		var out bytes.Buffer
		s := &screen{out: &out, live: live}
		a, b := s.stage("emit", "waiting"), s.stage("publish", "waiting")
		a.move(5, 10, "5 of 10")
		b.end("3 of 10")
		a.move(10, 10, "10 of 10")
		a.end("10 of 10")
		c := s.stage("check", "reading")
		c.end("done")
		text := out.String()
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		if up := strings.Contains(text, "\x1b["); up != live {
			t.Errorf("live %v: %q", live, text)
		}
		if !live && len(lines) != 3 {
			t.Errorf("%d lines, want 3: %q", len(lines), text)
		}
		if !strings.Contains(text, "emit       ["+strings.Repeat("#", barWidth)+"] 10 of 10") || !strings.Contains(lines[len(lines)-1], "check      done") {
			t.Errorf("live %v: %q", live, text)
		}
	}
}

func TestNumber(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 336776: "336,776", 1234567: "1,234,567"} {
		if got := number(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}
