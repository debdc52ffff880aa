package integration

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/integration/harness"
)

// A column that is added to a table in the file reaches all month tables of all shards, and ClickHouse, by apply, while
// the sinks run: those of the old file go on, whatever the column, and those of the new one write it.
func TestAddAColumnWhileTheSinkRuns(t *testing.T) {
	harness.Proof(t)
	w := newLine(t, sharedServers(t), "")
	months := []string{"2013-01", "2013-02", "2013-03"}
	id := uint64(0)
	emit := func(more string) {
		t.Helper()
		var events []event.Event
		for _, month := range months {
			for _, carrier := range []string{"UA", "DL", "AA", "EV"} { // slots of both shards
				id++
				body := flightBody(carrier, id, month+"-03T04:05:06.000000Z", `"LAX"`, "1")
				e := rawEvent(carrier, id, 0, strings.TrimSuffix(body, "}")+more+"}")
				e.Month = 0
				events = append(events, e)
			}
		}
		w.append(t, events...)
		w.waitDrained(t, time.Minute)
	}
	count := func(where string) (n int) {
		t.Helper()
		for _, db := range w.shards {
			rows, err := db.Query("SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE 'flights\\_2013%'")
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			for rows.Next() {
				var name string
				var c int
				if err := rows.Scan(&name); err != nil {
					t.Fatal(err)
				}
				if err := db.QueryRow("SELECT COUNT(*) FROM " + name + " WHERE " + where).Scan(&c); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				n += c
			}
		}
		return n
	}
	old := w.start(t, "run")
	emit("")
	w.edit(t, "dep_delay:", `gate: "string(4)?", seats: "int32", note: text, seen: datetime, tags: json, dep_delay:`)
	out := w.run(t, 0, "apply")
	for _, says := range []string{"flights_201301 .. ", "ADD COLUMN `gate`", "restart the sinks", "! flights.seats"} {
		if !strings.Contains(out, says) {
			t.Errorf("apply does not say %q:\n%s", says, out)
		}
	}
	emit("") // the sinks still run from the old file, and so do the services
	if n := count("gate IS NULL AND seats = 0 AND note = '' AND JSON_TYPE(tags) = 'NULL' AND seen = '1970-01-01'"); n != 24 {
		t.Errorf("%d rows hold what a new column holds in old rows, want 24", n)
	}
	if s := w.status(t); len(s.Halted) != 0 {
		t.Errorf("halted: %+v", s.Halted)
	}
	if r := old.Stop(t, 30*time.Second); r.Code != 0 {
		t.Errorf("slotline run ended with status %d", r.Code)
	}
	run := w.start(t, "run")
	emit(`,"gate":"B12","seats":180,"note":"full","seen":"2013-04-01T00:00:00.000000Z","tags":["x"]`)
	if n := count("gate = 'B12' AND seats = 180 AND note = 'full'"); n != 12 {
		t.Errorf("%d rows have the new columns, want 12", n)
	}
	if letters := w.letters(t); len(letters) != 0 {
		t.Errorf("dead letters: %+v", letters)
	}
	if r := run.Stop(t, 30*time.Second); r.Code != 0 {
		t.Errorf("slotline run ended with status %d", r.Code)
	}

	// In the wrong order: a sink with the new file before apply halts and says so, and goes on after apply by itself.
	w.edit(t, "dep_delay:", `crew: "int32?", dep_delay:`)
	run = w.start(t, "run")
	deadline := harness.Deadline(time.Minute)
	for {
		s := w.status(t)
		if i := slices.IndexFunc(s.Halted, func(h struct {
			Sink      string `json:"sink"`
			Partition int32  `json:"partition"`
			Text      string `json:"text"`
		}) bool {
			return strings.HasPrefix(h.Sink, "mysql/")
		}); i >= 0 {
			if h := s.Halted[i]; !strings.Contains(h.Text, "column crew is not there") || !strings.Contains(h.Text, "do: slotline apply") {
				t.Errorf("halted: %s", h.Text)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the sink runs on tables that lack a column: %+v", s)
		}
	}
	w.run(t, 0, "apply")
	emit(`,"gate":"B13","seats":1,"note":"","seen":"2013-04-01T00:00:00.000000Z","tags":{},"crew":7`)
	if n := count("crew = 7"); n != 12 {
		t.Errorf("%d rows have the last column, want 12", n)
	}
	if r := run.Stop(t, 30*time.Second); r.Code != 0 {
		t.Errorf("slotline run ended with status %d", r.Code)
	}
}
