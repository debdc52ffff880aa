package integration

import (
	"context"
	"database/sql"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/replay"
)

// eachTable calls do for every table whose name is like a pattern.
func eachTable(t *testing.T, db *sql.DB, like string, do func(name string)) {
	t.Helper()
	var names []string
	each(t, db, "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA=DATABASE() AND TABLE_NAME LIKE '"+like+"' ORDER BY 1", func(scan func(...any)) {
		var name string
		scan(&name)
		names = append(names, name)
	})
	for _, name := range names {
		do(name)
	}
	if len(names) == 0 {
		t.Fatalf("no table is like %s", like)
	}
}

// A rebuild passes over what has a newer version in the log. Where the tables refuse that version, they hold the next lower
// one, as the live ones do, though the process that has passed it over was killed, and so was the one that looked for it again.
func TestP7_RebuildWhereTheNewestVersionIsRefused(t *testing.T) {
	harness.Proof(t)
	w := newLine(t, sharedServers(t), "dead_letters: { halt_per_minute: 100000 }")
	flights, _ := replayFlights(t, 60, 2)
	relay, sink := w.startShards(t, flights[0])
	db := w.shards["s1"]
	exec := func(statement string) {
		t.Helper()
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	const refused = "flight_id % 3000 = 1" // none of the first flights
	check := func(like string) {
		eachTable(t, db, like, func(name string) {
			exec("ALTER TABLE " + name + " ADD CHECK (status <> 'arrived' OR NOT (" + refused + "))")
		})
	}
	check(`flights\_2013__`)
	w.emit(t, flights[1], 2)
	w.waitShards(t)
	held := func() (n int) {
		t.Helper()
		eachTable(t, db, `flights\_2013__`, func(name string) {
			n += count(t, db, "SELECT COUNT(*) FROM "+name+" WHERE "+refused+" AND NOT _deleted AND status NOT IN ('arrived', 'cancelled')")
		})
		return n
	}
	before := held()
	if before == 0 {
		t.Fatal("no row stands at an older version")
	}
	eachTable(t, db, `flights\_2013__`, func(name string) { exec("ANALYZE TABLE " + name) })

	// The job's tables refuse what the live ones do, from the moment they are there.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	jobs, err := replay.Open(replay.Options{Config: w.cfg, Layout: w.layout, Shard: "s1", Say: func(l replay.Line) {
		if l.Stage == string(replay.StageShadow) {
			check(`flights\_2013__\_\_rb%`)
			cancel()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer jobs.Close()
	j, err := jobs.Begin(t.Context(), replay.Spec{PerSecond: 1500})
	if err != nil {
		t.Fatal(err)
	}
	if err := jobs.Run(ctx, j.Name); err == nil {
		t.Fatal("the job ran to its end")
	}
	again := func(until string) *harness.Process {
		t.Helper()
		p := w.start(t, "replay", "resume", j.Name, "--yes")
		p.WaitOutput(t, until, time.Minute)
		return p
	}
	p := again("replay   [")
	p.Kill(t)
	if !strings.Contains(p.Stderr(), "are passed over") {
		t.Errorf("nothing is passed over:\n%s", p.Stderr())
	}
	again("events were refused").Kill(t)
	p = again("observe ")
	text := p.Stderr()
	t.Log(regexp.MustCompile(`(?m)^time=.*\n`).ReplaceAllString(text, ""))
	if !strings.Contains(text, "0 differ, 0 missing, 0 extra") || !strings.Contains(text, "are dead letters of the live sink, 0 are not") {
		t.Error("the rebuilt tables are not as the live ones")
	}
	p.Signal(t, syscall.SIGTERM)
	if r := p.Wait(t, time.Minute); r.Code != 0 {
		t.Errorf("the observer ends with %d:\n%s", r.Code, r.Stderr)
	}
	if after := held(); after != before {
		t.Errorf("%d rows stand at an older version after the swap, %d did before", after, before)
	}
	w.run(t, 0, "replay", "accept", j.Name)
	w.nothingLeft(t, j.Name)
	relay.Stop(t, time.Minute)
	sink.Stop(t, time.Minute)
	w.checkPlaces(t)
}
