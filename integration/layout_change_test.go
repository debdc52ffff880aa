package integration

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/producer"
)

// A shard and partitions are added to a line under load, and nothing is restarted: what there was stays, new shops are in
// the new shard, each with its orders, and the broadcast rows of before are there too. A layout that would move rows is
// refused, and says whose.
func TestP3_ShardAndPartitionsAreAddedWhileTheLineRuns(t *testing.T) {
	harness.Proof(t)
	w := newLayoutLine(t)
	p := producer.New(w.cfg)
	whole := w.start(t, "run")
	second := harness.Command{Args: []string{"-c", w.file, "sink", "mysql"}, Name: "second"}.Start(t)
	for _, process := range []*harness.Process{whole, second} { // with the file of layout epoch 1
		process.WaitOutput(t, "msg=running", 10*time.Second)
	}
	old := append(w.shopsIn(0, 511, 3), w.shopsIn(512, 767, 3)...)
	fresh := w.shopsIn(768, 1023, 4)
	stop := w.traffic(t, old)
	w.emitCountries(t, p, "before", "AT", "BR", "CH", "DE") // some of them never again
	until(t, "rows in s2", 30*time.Second, func() bool { return count(t, w.shards["s2"], "SELECT COUNT(*) FROM accounts") > 3 })

	moving := w.beside(t, layoutFile{epoch: 2, partitions: 4, slots: map[string]string{"s1": "0-511", "s2": "1000-1023", "s3": "512-999"}})
	r := w.runWith(t, moving, "apply")
	for _, want := range []string{"layout epoch 2 would move tenants that have rows; nothing was changed [SL1818]", "shard s2 -> s3: 3 tenants with rows, slots ",
		`"` + old[3] + `"`, "without rows, of the slots that would change their shard, are s3: 5"} {
		if r.Code != 2 || !strings.Contains(r.Stderr, want) {
			t.Fatalf("a layout that moves rows: exit status %d, stderr does not say %q\n%s", r.Code, want, r.Stderr)
		}
	}
	if got := w.inForce(t).Epoch(); got != 1 {
		t.Fatalf("layout epoch %d is in force after a refused apply", got)
	}

	next := layoutFile{epoch: 2, partitions: 6, slots: map[string]string{"s1": "0-511", "s2": "512-767", "s3": "768-1023"}}
	w.put(t, next)
	if plan := w.run(t, 3, "apply", "--dry-run"); !strings.Contains(plan, "shard s2 -> s3: slots 768-1023 (256)") || !strings.Contains(plan, "partitions 4 -> 6") {
		t.Errorf("the plan does not say what changes:\n%s", plan)
	}
	t.Logf("%s", w.run(t, 0, "apply"))
	for step := range uint64(20) { // published by whichever layout the relay has
		for _, shop := range fresh {
			w.emit(t, p, shop, step+1)
		}
	}
	w.emitCountries(t, p, "after", "DE", "EG")
	for _, process := range []*harness.Process{whole, second} {
		process.WaitOutput(t, `layout_epoch=2`, 10*time.Second)
	}
	for step := range uint64(20) {
		for _, shop := range fresh {
			w.emit(t, p, shop, step+21)
		}
	}
	stop()
	w.waitDrained(t, time.Minute)
	w.check(t)

	layout := w.layout
	if layout.Epoch() != 2 || layout.Partitions() != 6 {
		t.Fatalf("layout epoch %d with %d partitions is in force", layout.Epoch(), layout.Partitions())
	}
	used := map[int32]bool{}
	for _, shop := range fresh {
		used[layout.Route(shop, "").Partition] = true
	}
	if !used[4] && !used[5] {
		t.Errorf("no new shop is in a new partition: %v", used)
	}
	if n := count(t, w.shards["s3"], "SELECT COUNT(*) FROM slotline_progress WHERE sink = 'mysql' AND part IN (4, 5) AND next_off > 0"); n == 0 {
		t.Error("nothing of a new partition is applied to s3")
	}
	if n := count(t, w.outbox, "SELECT COUNT(*) FROM slotline_progress WHERE sink = 'clickhouse' AND part IN (4, 5) AND next_off > 0"); n == 0 {
		t.Error("nothing of a new partition is applied to ClickHouse")
	}
	// Children are beside their tenant's other rows: a JOIN needs one shard.
	joined := count(t, w.shards["s3"], `SELECT COUNT(*) FROM accounts a JOIN (SELECT * FROM orders_202609 UNION ALL SELECT * FROM orders_202610) o
		ON o.shop = a.shop AND o.account = a.id WHERE a.shop = ?`, fresh[0])
	if joined != 80 {
		t.Errorf("%d orders of %s join their account in s3, want 80", joined, fresh[0])
	}
	if s := w.status(t); len(s.Halted) > 0 {
		t.Errorf("halted: %+v", s.Halted)
	}
	for _, process := range []*harness.Process{whole, second} {
		if r := process.Stop(t, 20*time.Second); r.Code != 0 {
			t.Errorf("exit status %d", r.Code)
		}
	}

	before := w.beside(t, twoShards)
	r = w.runWith(t, before, "sink", "mysql")
	if r.Code != 2 || !strings.Contains(r.Stderr, "put the file that was applied last, of layout epoch 2, in its place") {
		t.Errorf("a sink with the old file: exit status %d\n%s", r.Code, r.Stderr)
	}
}

// A running process whose file lacks the new shard goes on with all that does not meet it, and says what to do; with the
// file in its place it goes on with the rest.
func TestP13_FileThatLacksTheNewShardHoldsUpWhatMeetsItAlone(t *testing.T) {
	harness.Proof(t)
	w := newLayoutLine(t)
	p := producer.New(w.cfg)
	relay, olap := w.start(t, "relay"), w.start(t, "sink", "clickhouse")
	old := w.beside(t, twoShards)
	sink := harness.Command{Args: []string{"-c", old, "sink", "mysql"}, Name: "old-file"}.Start(t)
	for _, process := range []*harness.Process{relay, olap, sink} {
		process.WaitOutput(t, "msg=running", 10*time.Second)
	}
	next := layoutFile{epoch: 2, partitions: 4, slots: map[string]string{"s1": "0-511", "s2": "512-895", "s3": "896-1023"}}
	w.put(t, next)
	w.run(t, 0, "apply")
	relay.WaitOutput(t, `layout_epoch=2`, 10*time.Second)
	sink.WaitOutput(t, `is older than the layout in force`, 10*time.Second)

	// Partition 3 meets s3, partition 1 does not.
	fresh, other := w.shopsIn(896, 1023, 1)[0], w.shopsIn(256, 511, 1)[0]
	for step := range uint64(5) {
		w.emit(t, p, fresh, step+1)
		w.emit(t, p, other, step+1)
	}
	until(t, "the other shop's accounts", 20*time.Second, func() bool {
		return count(t, w.shards["s1"], "SELECT COUNT(*) FROM accounts WHERE shop = ?", other) == 5
	})
	until(t, "status names the shard", 30*time.Second, func() bool {
		for _, h := range w.status(t).Halted {
			if h.Partition == 3 && strings.Contains(h.Text, "places slots in shard s3, which the file of this process does not name") {
				return true
			}
		}
		return false
	})
	putText(t, old, w.text(next))
	w.waitDrained(t, 30*time.Second)
	w.check(t)
	if d := count(t, w.outbox, "SELECT COUNT(*) FROM slotline_dead"); d > 0 {
		t.Errorf("%d dead letters", d)
	}
	for _, process := range []*harness.Process{relay, olap, sink} {
		if r := process.Stop(t, 20*time.Second); r.Code != 0 {
			t.Errorf("exit status %d", r.Code)
		}
	}
}

// An apply that dies after it has switched the shards, and before the layout is in force, leaves nothing that goes on by
// the older layout where it could misplace a row; another apply ends it, or takes it back.
func TestP6_ApplyThatDiesHalfwayIsEndedOrTakenBack(t *testing.T) {
	harness.Proof(t)
	w := newLayoutLine(t)
	p := producer.New(w.cfg)
	whole := w.start(t, "run")
	whole.WaitOutput(t, "msg=running", 10*time.Second)
	shops := append(w.shopsIn(0, 511, 2), w.shopsIn(512, 1023, 2)...)
	die := func(f layoutFile) {
		t.Helper()
		w.put(t, f)
		lock, err := w.outbox.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		if _, err := lock.ExecContext(t.Context(), "LOCK TABLES slotline_layout READ"); err != nil {
			t.Fatal(err)
		}
		apply := w.start(t, "apply")
		until(t, "the shards are switched", 30*time.Second, func() bool {
			return count(t, w.shards["s2"], "SELECT MAX(epoch) FROM slotline_layout") == f.epoch &&
				count(t, w.shards["s1"], "SELECT MAX(epoch) FROM slotline_layout") == f.epoch
		})
		apply.Signal(t, syscall.SIGKILL)
		<-apply.Done()
		// The server runs the statement of a client that is gone: it must not, as it would not have been sent.
		each(t, w.outbox, "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND state LIKE '%lock%' AND id <> CONNECTION_ID()", func(scan func(...any)) {
			var id int64
			scan(&id)
			if _, err := lock.ExecContext(t.Context(), fmt.Sprintf("KILL %d", id)); err != nil {
				t.Log(err)
			}
		})
		if _, err := lock.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
			t.Fatal(err)
		}
	}
	next := layoutFile{epoch: 2, partitions: 4, slots: map[string]string{"s1": "0-511", "s2": "512-1023", "s3": ""},
		tenants: "  tenants: { big: { slots: { 100000: s3 } } }\n"}

	die(next)
	for step := range uint64(10) {
		for _, shop := range shops {
			w.emit(t, p, shop, step+1)
		}
	}
	whole.WaitOutput(t, "has layout epoch 2, the one in force is 1", 20*time.Second)
	third := next
	third.tenants = "  tenants: { huge: { slots: { 100000: s3 } } }\n"
	if r := w.runWith(t, w.beside(t, third), "apply"); r.Code != 2 || !strings.Contains(r.Stderr, "an apply of layout epoch 2 did not end") {
		t.Errorf("a third layout: exit status %d\n%s", r.Code, r.Stderr)
	}
	w.put(t, twoShards)
	if out := w.run(t, 0, "apply"); !strings.Contains(out, "is taken back") {
		t.Errorf("the plan does not say that it takes the layout back:\n%s", out)
	}
	w.waitDrained(t, 30*time.Second)
	w.check(t)
	if w.layout.Epoch() != 1 {
		t.Fatalf("layout epoch %d is in force", w.layout.Epoch())
	}

	die(third)
	for step := range uint64(10) {
		for _, shop := range append(shops, "huge") {
			w.emit(t, p, shop, step+11)
		}
	}
	w.run(t, 0, "apply")
	w.waitDrained(t, 30*time.Second)
	w.check(t)
	if shard := w.layout.ShardName(w.layout.Route("huge", "").Shard); shard != "s3" {
		t.Errorf("the dedicated shop is in %s", shard)
	}
	whole.Stop(t, 20*time.Second)
}
