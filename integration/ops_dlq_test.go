package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/outbox"
)

type opsLetter struct {
	Key    string `json:"key"`
	Sink   string `json:"sink"`
	Reason string `json:"reason"`
	ID     string `json:"id"`
	State  string `json:"state"`
}

func (w *wholeLine) letters(t *testing.T, args ...string) (letters []opsLetter) {
	t.Helper()
	var list struct {
		Letters []opsLetter `json:"letters"`
	}
	if err := json.Unmarshal([]byte(w.run(t, 0, append([]string{"dlq", "list", "-o", "json"}, args...)...)), &list); err != nil {
		t.Fatal(err)
	}
	return list.Letters
}

// A dead letter of a sink that is redriven after the column was widened is applied, a newer event of its entity still
// wins, and redriving it again changes nothing. One that is discarded is listed no more.
func TestP3_RedriveSinksDeadLetters(t *testing.T) {
	harness.Proof(t)
	w := newLine(t, sharedServers(t), "")
	const dep, month = "2013-02-03T04:05:06.000000Z", 201302
	wide := func(id uint64) event.Event {
		return rawEvent("AA", id, month, flightBody("AA", id, dep, `"LAXX"`, "1"))
	}
	w.append(t, wide(11), wide(12), rawEvent("AA", 12, month, flightBody("AA", 12, dep, `"LAX"`, "2")), wide(13))
	run := w.start(t, "run")
	w.waitDrained(t, time.Minute)
	if l := w.letters(t, "--reason", event.ReasonTooLong); len(l) != 6 { // three of each sink
		t.Fatalf("letters: %+v", l)
	}
	// Nothing is mended yet: nothing is published, and all stay open.
	if out := w.run(t, 1, "dlq", "redrive", "--sink", "mysql", "--yes"); !strings.Contains(out, "3 left open") || !strings.Contains(out, "dest") {
		t.Errorf("redrive before the column is wider:\n%s", out)
	}
	if r := run.Stop(t, 30*time.Second); r.Code != 0 {
		t.Fatalf("slotline run ended with status %d", r.Code)
	}
	w.edit(t, "dest: string(3)", "dest: string(4)")
	w.run(t, 0, "apply")
	run = w.start(t, "run")
	discarded := w.letters(t, "--sink", "mysql")[2]
	w.run(t, 0, "dlq", "discard", discarded.Key, "--why", "test data", "--who", "the test", "--yes")
	for range 2 { // the second finds them settled, so it is given a key
		args := []string{"dlq", "redrive", "--sink", "mysql", "--yes"}
		w.run(t, 0, args...)
	}
	for _, l := range w.letters(t, "--sink", "clickhouse") { // the same events once more, through the other sink's letters
		w.run(t, 0, "dlq", "redrive", l.Key, "--yes")
	}
	w.waitDrained(t, time.Minute)

	shard := w.shards[w.layout.ShardName(w.layout.Route("AA", "").Shard)]
	for id, want := range map[uint64]string{11: "LAXX/1", 12: "LAX/2", 13: "LAXX/1"} {
		var got string
		if err := shard.QueryRow("SELECT CONCAT(dest,'/',arr_delay) FROM flights_201302 WHERE carrier='AA' AND flight_id=?", id).Scan(&got); err != nil || got != want {
			t.Errorf("flight %d is %q, %v; want %q", id, got, err, want)
		}
	}
	if f := w.clickhouseFigures(t); len(f) != 1 {
		t.Errorf("clickhouse: %+v", f)
	} else {
		for _, bucket := range f {
			if bucket.Flights != 3 || bucket.ArrDelaySum != 4 {
				t.Errorf("clickhouse: %+v, want 3 flights", f)
			}
		}
	}
	if open := w.letters(t); len(open) != 0 {
		t.Errorf("open are %+v", open)
	}
	states := map[string]int{}
	for _, l := range w.letters(t, "--all") {
		states[l.Sink+" "+l.State]++
	}
	if fmt.Sprint(states) != "map[clickhouse redriven:3 mysql discarded:1 mysql redriven:2]" {
		t.Errorf("states: %v", states)
	}
	if shown := w.run(t, 0, "dlq", "show", discarded.Key); !strings.Contains(shown, "discarded") || !strings.Contains(shown, "by the test: test data") {
		t.Errorf("show of a discarded letter:\n%s", shown)
	}
	if r := run.Stop(t, 30*time.Second); r.Code != 0 {
		t.Errorf("slotline run ended with status %d", r.Code)
	}
}

// A row that the relay could not publish is redriven once the file has its table, under the version of its id: an event
// of the same entity that came later wins. Rows that can never be published stay, and say why.
func TestP1_RedriveRelaysDeadLetters(t *testing.T) {
	harness.Proof(t)
	w := newLine(t, sharedServers(t), "")
	gate := func(id int, op event.Op) event.Event {
		return event.Event{ID: event.NewID(), Table: "gates", Tenant: "AA", EntityID: fmt.Sprint(id), Op: op, Time: time.Now().UTC().Truncate(time.Microsecond),
			Body: fmt.Appendf(nil, `{"carrier":"AA","gate":%d,"name":"early"}`, id)}
	}
	versioned := gate(3, event.Upsert)
	versioned.Version = 7
	w.append(t, gate(1, event.Upsert), gate(2, event.Upsert), versioned)
	run := w.start(t, "run")
	w.waitDrained(t, time.Minute)
	open := w.letters(t, "--sink", "outbox", "--reason", outbox.ReasonUnknownTable)
	if len(open) != 3 {
		t.Fatalf("letters: %+v", open)
	}
	if out := w.run(t, 1, "dlq", "redrive", "--all", "--yes"); !strings.Contains(out, "3 left open") || !strings.Contains(out, "no table") {
		t.Errorf("redrive before the table is in the file:\n%s", out)
	}
	if r := run.Stop(t, 30*time.Second); r.Code != 0 {
		t.Fatalf("slotline run ended with status %d", r.Code)
	}
	w.edit(t, "  airports: {", "  gates: { tenant: carrier, id: gate, columns: { carrier: string(2), gate: int64, name: string(20) } }\n  airports: {")
	// slotline_dead of an earlier release lacks the columns of settled letters: the relay does without, apply adds them.
	if _, err := w.outbox.Exec("ALTER TABLE slotline_dead DROP COLUMN settled, DROP COLUMN settled_at, DROP COLUMN settled_by, DROP COLUMN settled_why"); err != nil {
		t.Fatal(err)
	}
	if r := (harness.Command{Args: []string{"-c", w.file, "dlq", "list"}, Name: "dlq-list-old"}).Run(t, time.Minute); r.Code != 1 || !strings.Contains(r.Stderr, "SL5020") {
		t.Errorf("dlq list on a table of an earlier release: status %d\n%s", r.Code, r.Stderr)
	}
	w.run(t, 0, "apply")
	run = w.start(t, "run")
	later := gate(2, event.Upsert)
	later.Body = []byte(`{"carrier":"AA","gate":2,"name":"later"}`)
	w.append(t, later)
	w.waitDrained(t, time.Minute)
	if out := w.run(t, 1, "dlq", "redrive", "--table", "gates", "--tenant", "AA", "--yes"); !strings.Contains(out, "2 redriven, 1 left open") ||
		!strings.Contains(out, outbox.ReasonBadVersion) {
		t.Errorf("redrive:\n%s", out)
	}
	w.waitDrained(t, time.Minute)
	shard := w.shards[w.layout.ShardName(w.layout.Route("AA", "").Shard)]
	rows, err := shard.Query("SELECT gate, name FROM gates ORDER BY gate")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var got []string
	for rows.Next() {
		var id, name string
		if err := rows.Scan(&id, &name); err != nil {
			t.Fatal(err)
		}
		got = append(got, id+" "+name)
	}
	if want := []string{"1 early", "2 later"}; !slices.Equal(got, want) {
		t.Errorf("gates are %q, want %q", got, want)
	}
	w.run(t, 0, "dlq", "discard", "--reason", outbox.ReasonUnknownTable, "--why", "versioned by mistake", "--yes")
	if open := w.letters(t); len(open) != 0 {
		t.Errorf("open are %+v", open)
	}
	// A relay that takes over sees the redriven records in the topic's tail; they are no news to it.
	run.Kill(t)
	run = w.start(t, "run")
	w.append(t, gate(4, event.Upsert))
	w.waitDrained(t, time.Minute)
	for _, lane := range w.status(t).Lanes {
		if lane.Backlog != 0 {
			t.Errorf("lane %+v", lane)
		}
	}
	var generations string
	if err := w.outbox.QueryRow("SELECT GROUP_CONCAT(DISTINCT generations) FROM slotline_lane").Scan(&generations); err != nil || generations != "1:1" {
		t.Errorf("generations %q, %v: a redriven record began a new one", generations, err)
	}
	if r := run.Stop(t, 30*time.Second); r.Code != 0 {
		t.Errorf("slotline run ended with status %d", r.Code)
	}
}

// edit changes the line's file in place.
func (w *wholeLine) edit(t *testing.T, old, new string) {
	t.Helper()
	text := w.text(t)
	if !strings.Contains(text, old) {
		t.Fatalf("the file does not hold %q", old)
	}
	if err := os.WriteFile(w.file, []byte(strings.Replace(text, old, new, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}
