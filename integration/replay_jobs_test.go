package integration

import (
	"database/sql"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/slotline/slotline/examples/flights/nyc"
	"github.com/slotline/slotline/integration/harness"
)

// replayCommand runs a command of slotline replay to its end, whatever its exit status.
func (w *wholeLine) replayCommand(t *testing.T, args ...string) harness.Result {
	t.Helper()
	return harness.Command{Args: append([]string{"-c", w.file, "replay"}, args...), Name: "replay-" + args[0]}.Run(t, time.Minute)
}

// One table is rebuilt and another is not, while events keep coming; more events come after the swap, and then it is
// undone: nothing is lost or repeated in either table.
func TestP11_UndoAfterFurtherEvents(t *testing.T) {
	harness.Proof(t)
	w := newLine(t, sharedServers(t), "")
	flights, want := replayFlights(t, 60, 3)
	run := w.start(t, "run")
	w.emit(t, flights[0], 1)
	w.waitDrained(t, time.Minute)

	if r := w.replayCommand(t, "plan", "--shard", "s1", "--tables", "flights"); r.Code != 0 || !strings.Contains(r.Stdout, "complete from offset 0") ||
		!strings.Contains(r.Stdout, " for all tables of the shard\n") {
		t.Errorf("plan ends with %d:\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	// Nobody says yes: the end of input is a no.
	if r := w.replayCommand(t, "rebuild", "--shard", "s1"); r.Code != 1 || !strings.Contains(r.Stderr, "Nothing was changed.") {
		t.Errorf("rebuild that nobody confirmed ends with %d:\n%s", r.Code, r.Stderr)
	}
	if r := w.replayCommand(t, "rebuild", "--shard", "s1", "--tables", "boats"); r.Code != 2 || !strings.Contains(r.Stderr, "SL7504") {
		t.Errorf("rebuild of no table ends with %d:\n%s", r.Code, r.Stderr)
	}
	stop := watch(t, w.shards["s1"], w.monthTables(t, w.shards["s1"], "flights"))
	var emitting sync.WaitGroup
	emitting.Go(func() { w.emit(t, flights[1], 2) })
	p, job := w.replaying(t, "rebuild", "--shard", "s1", "--tables", "flights", "--yes", "--detach")
	if r := p.Wait(t, time.Minute); r.Code != 0 {
		t.Fatalf("rebuild ends with %d:\n%s", r.Code, r.Stderr)
	}
	t.Logf("%s", p.Stderr())
	emitting.Wait()
	emitting.Go(func() { w.emit(t, flights[2], 3) })
	if r := w.replayCommand(t, "rebuild", "--shard", "s1", "--tables", "flights", "--yes"); r.Code != 2 || !strings.Contains(r.Stderr, "SL7505") {
		t.Errorf("a second job for the same table ends with %d:\n%s", r.Code, r.Stderr)
	}
	if r := w.replayCommand(t, "abort", job); r.Code != 2 || !strings.Contains(r.Stderr, "SL7507") {
		t.Errorf("abort after the swap ends with %d:\n%s", r.Code, r.Stderr)
	}
	if out := w.run(t, 0, "replay", "status"); !strings.Contains(out, job) || !strings.Contains(out, "accept | undo") {
		t.Errorf("status:\n%s", out)
	}
	r := w.replayCommand(t, "undo", job)
	if r.Code != 0 {
		t.Fatalf("undo ends with %d:\n%s", r.Code, r.Stderr)
	}
	t.Logf("%s", r.Stderr)
	quiet(t, p.Stderr())
	quiet(t, r.Stderr)
	stop()
	emitting.Wait()
	w.waitDrained(t, time.Minute)
	run.Stop(t, time.Minute)
	compare(t, "shards after undo", w.shardFigures(t), want)
	w.checkPlaces(t)
	w.nothingLeft(t, job)
	if out := w.run(t, 0, "replay", "status", "-o", "json"); !strings.Contains(out, `"stage": "undone"`) {
		t.Errorf("status:\n%s", out)
	}
}

// A job is killed at each stage and goes on in another process; the swap waits for who reads a table; the job's first
// process and a sink sleep through the swap, and change nothing when they wake.
func TestP11_KilledAtEveryStage(t *testing.T) {
	harness.Proof(t)
	w := newLine(t, sharedServers(t), "")
	flights, want := replayFlights(t, 60, 3)
	relay, sink := w.startShards(t, flights[0])
	db := w.shards["s1"]

	var emitting sync.WaitGroup
	emitting.Go(func() { w.emit(t, flights[1], 2) })
	p, job := w.replaying(t, "rebuild", "--shard", "s1", "--rate", "3000", "--yield-above", "0", "--yes")
	p.Kill(t) // in shadow, or as replay begins
	again := func(until string) *harness.Process {
		t.Helper()
		p := w.start(t, "replay", "resume", job, "--yes")
		p.WaitOutput(t, until, time.Minute)
		return p
	}
	again("replay   [").Kill(t)
	sleeper := again("replay   [")
	sleeper.Signal(t, syscall.SIGSTOP)

	// From now on somebody reads a table of the shard: the swap cannot have its lock.
	reader := holdTable(t, db, "flights_201304")
	p = again("verify ")
	if r := w.replayCommand(t, "resume", job, "--yes"); r.Code != 1 || !strings.Contains(r.Stderr, "SL7001") {
		t.Errorf("a second process with the job ends with %d:\n%s", r.Code, r.Stderr)
	}
	until(t, "the job is at its swap", time.Minute, func() bool {
		return count(t, db, "SELECT COUNT(*) FROM slotline_job WHERE job=? AND stage='swap'", job) == 1
	})
	p.WaitOutput(t, "waits for the tables, which others have: connection ", time.Minute)
	p.Kill(t)
	// As if it had come so far that the progress was given away, and not the tables.
	if _, err := db.Exec("UPDATE slotline_progress SET sink=? WHERE sink=?", "mysql__old_"+job, "mysql__rb_"+job); err != nil {
		t.Fatal(err)
	}
	emitting.Wait()
	w.emit(t, flights[2], 3) // which neither side has yet
	p = again("has caught up")
	until(t, "the job is at its swap again", time.Minute, func() bool {
		return count(t, db, "SELECT COUNT(*) FROM slotline_job WHERE job=? AND stage='swap' AND lease_until>UTC_TIMESTAMP(6)", job) == 1
	})
	sink.Signal(t, syscall.SIGSTOP)
	reader()
	p.WaitOutput(t, "observe ", time.Minute)
	text := p.Stderr()
	p.Kill(t)
	t.Logf("%s", text)
	sink.Signal(t, syscall.SIGCONT)
	sleeper.Signal(t, syscall.SIGCONT)
	if r := sleeper.Wait(t, time.Minute); r.Code != 1 {
		t.Errorf("the job's process that slept through the swap ends with %d:\n%s", r.Code, r.Stderr)
	}
	p = again("observe ")
	w.waitShards(t)
	p.Signal(t, syscall.SIGTERM)
	if r := p.Wait(t, time.Minute); r.Code != 0 {
		t.Errorf("the observer ends with %d:\n%s", r.Code, r.Stderr)
	}
	w.run(t, 0, "replay", "accept", job)
	w.stopShards(t, relay, sink, want)
	w.checkPlaces(t)
	w.nothingLeft(t, job)
}

// A job is paused, resumed and aborted: nothing of it is left, and no reader or sink has noticed.
func TestReplayPauseAndAbort(t *testing.T) {
	harness.Proof(t)
	w := newLine(t, sharedServers(t), "limits: { drain_timeout: 1m }")
	flights, want := replayFlights(t, 80, 1)
	relay, sink := w.startShards(t, flights[0])
	p, job := w.replaying(t, "rebuild", "--shard", "s2", "--rate", "100", "--yes") // a minute, so that it is still at it when it is aborted
	w.run(t, 0, "replay", "pause", job)
	// Not a whole drain_timeout: its batches wait for their turn at the job's rate.
	if r := p.Wait(t, 12*time.Second); r.Code != 0 || !strings.Contains(r.Stderr, "paused") {
		t.Errorf("a paused job ends with %d:\n%s", r.Code, r.Stderr)
	}
	p = w.start(t, "replay", "resume", job, "--yes")
	p.WaitOutput(t, "replay ", time.Minute)
	w.run(t, 0, "replay", "abort", job)
	if r := p.Wait(t, 12*time.Second); r.Code != 0 {
		t.Errorf("the process of an aborted job ends with %d:\n%s", r.Code, r.Stderr)
	}
	w.nothingLeft(t, job)
	if r := w.replayCommand(t, "resume", job); r.Code != 2 || !strings.Contains(r.Stderr, "SL7507") {
		t.Errorf("resume of an aborted job ends with %d:\n%s", r.Code, r.Stderr)
	}
	if r := w.replayCommand(t, "resume", "rb0000x"); r.Code != 2 || !strings.Contains(r.Stderr, "SL7506") {
		t.Errorf("resume of no job ends with %d:\n%s", r.Code, r.Stderr)
	}
	w.stopShards(t, relay, sink, want)
}

// holdTable reads a table in a transaction that stays open, and with it the table's lock, until it is ended.
func holdTable(t *testing.T, db *sql.DB, table string) (end func()) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := tx.QueryRow("SELECT COUNT(*) FROM " + table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return func() { _ = tx.Rollback() }
}

// startShards starts a relay and the shards' sink, and has them apply flights.
func (w *wholeLine) startShards(t *testing.T, flights []nyc.Flight) (relay, sink *harness.Process) {
	t.Helper()
	relay, sink = w.start(t, "relay"), w.start(t, "sink", "mysql")
	w.emit(t, flights, 1)
	w.waitShards(t)
	return relay, sink
}

// stopShards ends both: the shards hold what the flights make.
func (w *wholeLine) stopShards(t *testing.T, relay, sink *harness.Process, want map[nyc.Bucket]nyc.Figures) {
	t.Helper()
	relay.Stop(t, time.Minute)
	sink.Stop(t, time.Minute)
	compare(t, "shards", w.shardFigures(t), want)
}

// waitShards waits until the outbox is published and the shards have applied all of it, twice in a row.
func (w *wholeLine) waitShards(t *testing.T) {
	t.Helper()
	quiet := 0
	until(t, "the shards are drained", time.Minute, func() bool {
		s := w.status(t)
		busy := len(s.Lanes) == 0
		for _, l := range s.Lanes {
			busy = busy || l.Backlog > 0
		}
		for _, k := range s.Sinks {
			busy = busy || strings.HasPrefix(k.Name, "mysql/") && k.Lag > 0
		}
		if quiet++; busy {
			quiet = 0
		}
		return quiet == 2
	})
}

// What a job was begun with is kept with it: one that repairs and was killed repairs when it is resumed, and says what one that
// ran through says. A repair that is declined changes nothing, says so, and leaves no job behind that others wait for.
func TestReplayResumeKeepsWhatWasAsked(t *testing.T) {
	harness.Proof(t)
	w := newLine(t, sharedServers(t), "")
	flights, want := replayFlights(t, 100, 1)
	relay, sink := w.startShards(t, flights[0])
	damage(t, w.shards["s1"])
	harmed, whole := "1 differ, 2 missing, 2 extra\n", "0 differ, 0 missing, 0 extra\n"
	killed := func() string {
		p, job := w.replaying(t, "verify", "--shard", "s1", "--repair", "--rate", "2000", "--yes")
		p.Kill(t)
		return job
	}
	job := killed()
	r := w.replayCommand(t, "resume", job) // nobody says yes
	if r.Code != 3 || !strings.Contains(r.Stderr, "declined: the live rows are as they were") || !strings.HasSuffix(r.Stdout, harmed) {
		t.Errorf("a repair that is declined ends with %d:\n%s%s", r.Code, r.Stderr, r.Stdout)
	}
	w.nothingLeft(t, job)
	job = killed()
	if r := w.replayCommand(t, "resume", job, "--accept-dead"); r.Code != 2 || !strings.Contains(r.Stderr, "SL7507") {
		t.Errorf("a repair that is to accept what cannot be applied ends with %d:\n%s", r.Code, r.Stderr)
	}
	r = w.replayCommand(t, "resume", job, "--yes")
	if r.Code != 0 || !strings.Contains(r.Stderr, "5 live rows are as the log makes them now") || !strings.HasSuffix(r.Stdout, whole) {
		t.Errorf("a repair that was killed and resumed ends with %d:\n%s%s", r.Code, r.Stderr, r.Stdout)
	}
	w.nothingLeft(t, job)
	w.stopShards(t, relay, sink, want)
}
