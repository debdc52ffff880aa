package integration

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/internal/line"
	"github.com/slotline/slotline/partitioner"
)

// benchRows are the load's rows in both shards, and those that are not deleted; the same of ClickHouse.
func (w *wholeLine) benchRows(t *testing.T) (all, live [2]int) {
	t.Helper()
	now := partitioner.MonthOf(time.Now())
	for _, db := range w.shards {
		for _, m := range []partitioner.Month{now.Add(-1), now} { // a load may begin in one month and end in the next
			var rows, left int
			err := db.QueryRow(fmt.Sprintf("SELECT COUNT(*), COALESCE(SUM(NOT _deleted), 0) FROM flights_%s WHERE carrier LIKE '~%%'", m)).Scan(&rows, &left)
			if err != nil && !strings.Contains(err.Error(), "1146") {
				t.Fatal(err)
			}
			all[0] += rows
			live[0] += left
		}
	}
	out := w.run(t, 0, "query", "SELECT count(), countIf(_deleted = 0) FROM flights FINAL WHERE startsWith(carrier, '~')", "-o", "csv")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if _, err := fmt.Sscanf(lines[len(lines)-1], "%d,%d", &all[1], &live[1]); err != nil {
		t.Fatalf("%v of %q", err, out)
	}
	return all, live
}

// within polls until what is said is so.
func within(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := harness.Deadline(30 * time.Second); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// bench measures each store, deletes what it wrote, also when a person ends it, and refuses a line without a relay.
func TestBenchOfALine(t *testing.T) {
	t.Parallel()
	w := newLine(t, sharedServers(t), "")
	bench := func(status int, args ...string) (done line.Bench, text string) {
		t.Helper()
		r := harness.Command{Args: append([]string{"-c", w.file, "bench", "-o", "json"}, args...), Name: "bench"}.Run(t, 2*time.Minute)
		if r.Code != status {
			t.Fatalf("slotline bench %v: exit status %d, want %d\n%s%s", args, r.Code, status, r.Stdout, r.Stderr)
		}
		if r.Stdout != "" {
			if err := json.Unmarshal([]byte(r.Stdout), &done); err != nil {
				t.Fatal(err)
			}
		}
		return done, r.Stderr
	}
	if _, text := bench(1, "--yes"); !strings.Contains(text, "no relay owns outbox lane 00") || !strings.Contains(text, "SL9032") {
		t.Errorf("without a relay: %s", text)
	}
	run := w.start(t, "run")
	within(t, "every lane has a relay", func() bool {
		return !slices.ContainsFunc(w.statusOf(t, 0).Lanes, func(l line.LaneStatus) bool { return l.Owner == "" })
	})
	if _, text := bench(1); !strings.Contains(text, "Nothing was written.") {
		t.Errorf("without an answer: %s", text)
	}
	if _, text := bench(2, "--table", "airports", "--yes"); !strings.Contains(text, "table airports: it has no tenant") {
		t.Errorf("a broadcast table: %s", text)
	}

	done, _ := bench(0, "--rate", "200", "--for", "2s", "--tenants", "50", "--writers", "4", "--yes")
	if done.Events < 1 || done.Events > 400 || done.Entities > done.Events || done.Tenants != 50 || done.Transaction.Samples != int(done.Events) || done.Left != 0 || len(done.Stores) != 3 {
		t.Fatalf("%+v", done)
	}
	for _, s := range done.Stores {
		if s.CaughtUp < 0 || s.Problem != "" || s.CommitToRow.Samples == 0 || s.CommitToRow.P50 <= 0 || s.CommitToRow.P99 < s.CommitToRow.P50 || s.CommitToRow.Max < s.CommitToRow.P99 {
			t.Errorf("%+v", s)
		}
	}
	w.waitDrained(t, time.Minute)
	all, live := w.benchRows(t)
	if want := int(done.Entities); all != [2]int{want, want} || live != [2]int{} {
		t.Errorf("%d entities were written and deleted: rows in shards and ClickHouse %v, live %v", want, all, live)
	}

	// Kept ones are there when it ends: caught up is caught up.
	kept, _ := bench(0, "--rate", "0", "--for", "500ms", "--writers", "4", "--keep", "--yes")
	if kept.Left != kept.Entities || kept.Tenants != 62 {
		t.Errorf("%+v", kept)
	}
	if _, live = w.benchRows(t); live != [2]int{int(kept.Entities), int(kept.Entities)} {
		t.Errorf("%d entities were kept, live in shards and ClickHouse are %v", kept.Entities, live)
	}

	// A person ends it: what was written is deleted all the same.
	proc := w.start(t, "bench", "--rate", "100", "--for", "1h", "--yes", "--table", "flights")
	within(t, "events of the load are applied", func() bool {
		all, _ = w.benchRows(t)
		return all[0] > int(done.Entities+kept.Entities)+20
	})
	if r := proc.Stop(t, time.Minute); r.Code != 1 || !strings.Contains(r.Stdout, "the load ended early: interrupted") || !strings.Contains(r.Stdout, "its entities are deleted again") {
		t.Errorf("interrupted: status %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	w.waitDrained(t, time.Minute)
	if _, live = w.benchRows(t); live != [2]int{int(kept.Entities), int(kept.Entities)} {
		t.Errorf("after an interrupt %v entities are live, %d were kept before", live, kept.Entities)
	}
	if r := run.Stop(t, 30*time.Second); r.Code != 0 {
		t.Errorf("slotline run ended with status %d", r.Code)
	}
}
