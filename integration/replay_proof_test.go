package integration

import (
	"context"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/examples/flights/nyc"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/producer"
)

// A job waits while the live sink is far behind, and says so; a month table that is made meanwhile is rebuilt with the others.
func TestReplayProofYieldsAndTakesANewMonth(t *testing.T) {
	harness.Proof(t)
	w := newLine(t, sharedServers(t), "")
	flights, want := replayFlights(t, 100, 2)
	relay, sink := w.startShards(t, flights[0])
	p, job := w.replaying(t, "rebuild", "--shard", "s1", "--rate", "1000", "--yield-above", "1s", "--yes", "--detach")
	sink.Signal(t, syscall.SIGSTOP)
	var emitting sync.WaitGroup
	emitting.Go(func() {
		w.emit(t, flights[1], 2)
		e := rawEvent("UA", 9_000_000, 201405, `{"carrier":"UA","flight_id":9000000,"sched_dep":"2014-05-03T04:05:06.000000Z"}`)
		e.Op = event.Delete // it makes a row all the same, which no figure counts
		w.append(t, e)
	})
	p.WaitOutput(t, " above 1 s; the job waits", time.Minute)
	emitting.Wait()
	sink.Signal(t, syscall.SIGCONT)
	p.WaitOutput(t, "yield    over: live lag ", time.Minute)
	if r := p.Wait(t, 2*time.Minute); r.Code != 0 {
		t.Fatalf("rebuild ends with %d:\n%s", r.Code, r.Stderr)
	}
	t.Logf("%s", p.Stderr())
	if n := count(t, w.shards["s1"], "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA=DATABASE() AND TABLE_NAME=?", "flights_201405__old_"+job); n != 1 {
		t.Error("the new month was not swapped")
	}
	w.waitShards(t)
	if n := count(t, w.shards["s1"], "SELECT COUNT(*) FROM flights_201405"); n != 1 {
		t.Errorf("the new month has %d rows, wanted 1", n)
	}
	w.run(t, 0, "replay", "accept", job)
	w.stopShards(t, relay, sink, want)
	w.checkPlaces(t)
	w.nothingLeft(t, job)
}

// A long query that has a table at the swap: nothing is changed, it is said who it is, and the job is resumed once it is gone.
func TestReplayProofLongQueryAtTheSwap(t *testing.T) {
	harness.Proof(t)
	w := newLine(t, sharedServers(t), "")
	flights, want := replayFlights(t, 100, 1)
	relay, sink := w.startShards(t, flights[0])
	ctx, end := context.WithCancel(t.Context())
	var query sync.WaitGroup
	query.Go(func() { _, _ = w.shards["s1"].ExecContext(ctx, "DO (SELECT SLEEP(600) FROM flights_201304 LIMIT 1)") })
	defer query.Wait()
	defer end()
	p, job := w.replaying(t, "rebuild", "--shard", "s1", "--yes", "--detach")
	p.WaitOutput(t, "waits for the tables, which others have: connection ", time.Minute)
	r := p.Wait(t, 2*time.Minute)
	if r.Code != 1 || !strings.Contains(r.Stderr, "SL7511") || !strings.Contains(r.Stderr, "nothing was changed") || !strings.Contains(r.Stderr, "DO (SELECT SLEEP(600)") {
		t.Errorf("a swap that has no lock ends with %d:\n%s", r.Code, r.Stderr)
	}
	quiet(t, r.Stderr)
	end()
	if r := w.replayCommand(t, "resume", job, "--yes", "--detach"); r.Code != 0 {
		t.Fatalf("resumed it ends with %d:\n%s", r.Code, r.Stderr)
	}
	w.run(t, 0, "replay", "accept", job)
	w.stopShards(t, relay, sink, want)
	w.nothingLeft(t, job)
}

// A layout that comes into force before the swap ends the job, which says so and cannot be resumed: what came to the shard since
// is not in its tables. The live ones are as they were.
func TestReplayProofNewLayoutEndsTheJob(t *testing.T) {
	harness.Proof(t)
	w := newLayoutLine(t)
	run := w.start(t, "run")
	p := producer.New(w.cfg)
	shops := w.shopsIn(0, 511, 2)
	emit := func(from, to uint64) {
		for step := from; step < to; step++ {
			for _, shop := range shops {
				w.emit(t, p, shop, step)
			}
		}
	}
	emit(1, 20)
	w.emitCountries(t, p, "before", "AT", "BR")
	w.waitShards(t)
	reader := holdTable(t, w.shards["s1"], "accounts") // the swap waits
	job, name := w.replaying(t, "rebuild", "--shard", "s1", "--yes", "--detach")
	job.WaitOutput(t, "waits for the tables", time.Minute)
	w.put(t, layoutFile{epoch: 2, partitions: 4, slots: map[string]string{"s1": "0-511", "s2": "512-895", "s3": "896-1023"}})
	w.run(t, 0, "apply")
	run.WaitOutput(t, `layout_epoch=2`, time.Minute)
	emit(20, 25)
	if r := job.Wait(t, 2*time.Minute); r.Code != 1 || !strings.Contains(r.Stderr, "SL7513") {
		t.Errorf("a job whose layout is replaced ends with %d:\n%s", r.Code, r.Stderr)
	}
	reader()
	if r := w.replayCommand(t, "resume", name, "--yes"); r.Code != 1 || !strings.Contains(r.Stderr, "SL7513") {
		t.Errorf("resumed it ends with %d:\n%s", r.Code, r.Stderr)
	}
	w.run(t, 0, "replay", "abort", name)
	w.nothingLeft(t, name)
	w.waitShards(t)
	w.check(t)
	_, name = w.replaying(t, "verify", "--shard", "s1", "--yes") // begun anew
	until(t, "the shard is verified by the newer layout", time.Minute, func() bool {
		return count(t, w.shards["s1"], "SELECT COUNT(*) FROM slotline_job WHERE job=? AND stage='verified'", name) == 1
	})
	run.Stop(t, time.Minute)
}

// Partitions that came after a job's swap are in what undo brings back, too.
func TestReplayProofUndoAfterNewPartitions(t *testing.T) {
	harness.Proof(t)
	w := newLayoutLine(t)
	delete(w.shards, "s3") // it is in neither layout
	run := w.start(t, "run")
	p := producer.New(w.cfg)
	emit := func(shops []string) {
		for step := range uint64(10) {
			for _, shop := range shops {
				w.emit(t, p, shop, step+1)
			}
		}
	}
	shops := w.shopsIn(512, 1023, 10)
	emit(shops[:2])
	w.emitCountries(t, p, "before", "AT", "BR")
	w.waitShards(t)
	job, name := w.replaying(t, "rebuild", "--shard", "s2", "--yes", "--detach")
	if r := job.Wait(t, 2*time.Minute); r.Code != 0 {
		t.Fatalf("rebuild ends with %d:\n%s", r.Code, r.Stderr)
	}
	more := twoShards
	more.epoch, more.partitions = 2, 6
	w.put(t, more)
	w.run(t, 0, "apply")
	run.WaitOutput(t, `layout_epoch=2`, time.Minute)
	emit(shops[2:])
	w.waitShards(t)
	if n := count(t, w.shards["s2"], "SELECT COUNT(*) FROM slotline_progress WHERE sink='mysql' AND part IN (4, 5) AND next_off>0"); n == 0 {
		t.Fatal("no shop is in a new partition")
	}
	if r := w.replayCommand(t, "undo", name); r.Code != 0 {
		t.Fatalf("undo ends with %d:\n%s", r.Code, r.Stderr)
	}
	w.waitShards(t)
	w.check(t)
	w.nothingLeft(t, name)
	run.Stop(t, time.Minute)
}

// The disk of a job's tables is full: the job says so and waits, the live sink goes on, and once there is room the job goes on.
func TestReplayProofDiskFull(t *testing.T) {
	harness.Proof(t)
	s := sharedServers(t)
	s.s1 = harness.PrivateMySQLWithSmallDisk(t)
	w := newLine(t, s, "")
	db := w.shards["s1"]
	january, err := nyc.Flights(func(id uint64) bool { return id <= 4000 })
	if err != nil {
		t.Fatal(err)
	}
	relay, sink := w.startShards(t, january[:3000])
	p, job := w.replaying(t, "rebuild", "--shard", "s1", "--tables", "flights", "--rate", "400", "--yes", "--detach") // paused before it has the 2,000 newest
	w.run(t, 0, "replay", "pause", job)
	if r := p.Wait(t, time.Minute); r.Code != 0 || !strings.Contains(r.Stderr, "paused") {
		t.Fatalf("a paused job ends with %d:\n%s", r.Code, r.Stderr)
	}
	// Its table of January goes to the small disk, empty, and the rest of that is taken.
	makeRoom := fillDiskOf(t, db, "flights_201301__rb_"+job)
	execSQL(t, db, "UPDATE slotline_progress SET next_off=0, applied_off=0 WHERE sink=?", "mysql__rb_"+job)

	p = w.start(t, "replay", "resume", job, "--yes", "--detach")
	p.WaitOutput(t, "waits: cannot apply", time.Minute)
	if !strings.Contains(p.Stderr(), "free space") {
		t.Errorf("it is not said why:\n%s", p.Stderr())
	}
	w.emit(t, january[3000:], 2)
	w.waitShards(t)
	makeRoom()
	if r := p.Wait(t, 2*time.Minute); r.Code != 0 || !strings.Contains(r.Stderr, " 0 differ, 0 missing, 0 extra") {
		t.Fatalf("once there is room the job ends with %d:\n%s", r.Code, r.Stderr)
	}
	t.Logf("%s", p.Stderr())
	w.run(t, 0, "replay", "accept", job)
	want, err := nyc.Reference(nyc.CSV(), func(id uint64) bool { return id <= 4000 })
	if err != nil {
		t.Fatal(err)
	}
	w.waitShards(t)
	w.stopShards(t, relay, sink, want)
	w.nothingLeft(t, job)
}
