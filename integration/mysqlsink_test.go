package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/internal/progress"
)

// The newest version of an entity wins, in its shard and month table, whatever the order and however often it comes.
func TestP3_MySQLSinkFoldsToTheGreatestVersion(t *testing.T) {
	l := newShardLine(t, harness.MySQL(t), shardLineTables, "")
	o := l.takeOver(l.sink("a"), 1)
	a := l.tenantIn(1, "s1")
	first := []event.Message{
		l.message(1, "items", event.Upsert, 5, item(a, 1, "five")),
		l.message(1, "items", event.Upsert, 3, item(a, 1, "three")),
		l.message(1, "items", event.Upsert, 4, item(a, -2, "minus")),
		l.message(1, "items", event.Delete, 4, item(a, -2, "")),
		l.message(1, "notes", event.Delete, 9, []event.Value{text(a), text("n1"), {}}),
	}
	if r := l.applyBatch(o, l.batch(0, first...)); len(r) > 0 {
		t.Fatal(r)
	}
	columns := "owner,item,name,amount,n,_ver,_deleted"
	l.wantRows("s1", "items_202611", columns, a+"|1|five|1.00|7|10|0", a+"|-2||9|1")
	l.wantRows("s1", "notes", "owner,note,body,_ver", a+"|n1||19")

	second := []event.Message{
		l.message(1, "items", event.Upsert, 4, item(a, 1, "four, late")),
		l.message(1, "notes", event.Upsert, 8, []event.Value{text(a), text("n1"), text("late")}),
		l.message(1, "notes", event.Upsert, 8, []event.Value{text(a), text("N1 "), text("it's a \\ \n \x00")}),
	}
	l.applyBatch(o, l.batch(5, second...))
	l.wantRows("s1", "items_202611", columns, a+"|1|five|1.00|7|10|0", a+"|-2||9|1")
	l.wantRows("s1", "notes", "owner,note,body,_ver", a+"|n1||19", a+"|N1 |it's a \\ \n \x00|16")
	if r := l.progress("s1", 1); r.Next != 8 || r.Applied != 8 || r.LeaderEpoch != 3 {
		t.Errorf("progress %+v", r)
	}
}

// A second Plan finds nothing to do, and a shard that is added later starts at the least offset of the others.
func TestMySQLSinkPlanIsDoneOnce(t *testing.T) {
	l := newShardLine(t, harness.MySQL(t), shardLineTables, "")
	s := l.sink("a")
	for _, c := range l.plan(s) {
		t.Errorf("%s\n  %c %s  %s", c.Where, c.Sign, c.What, c.Note)
	}
	o := l.takeOver(s, 0)
	l.applyBatch(o, l.batch(0, l.message(0, "notes", event.Upsert, 1, []event.Value{text(l.tenantIn(0, "s1")), text("n"), text("b")})))
	for _, statement := range []string{"DELETE FROM slotline_progress WHERE part=0", "DROP TABLE notes"} {
		if _, err := l.dbs["s2"].Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.sink("b").TakeOver(t.Context(), []event.Partition{l.part(0)}); fault.CodeOf(err) != "SL6203" {
		t.Errorf("take-over without a progress row: %v", err)
	}
	changes := l.plan(s)
	if len(changes) != 2 || !strings.Contains(changes[0].What, "slotline_progress (1 rows)") || changes[1].What != "notes" {
		t.Fatalf("plan %+v", changes)
	}
	l.apply(s)
	// Partition 0 has the broadcast table's events: a new shard needs all of them.
	if r := l.progress("s2", 0); r.Next != 0 || r.OwnerEpoch != 0 {
		t.Errorf("the new shard's row is %+v, wanted offset 0", r)
	}
}

// Offsets that are lost for good are passed by accept-gap alone: it says who and why, fences what runs, ends the halt.
func TestP8_ProgressAcceptGap(t *testing.T) {
	l := newShardLine(t, harness.MySQL(t), shardLineTables, "")
	s := l.sink("a")
	o := l.takeOver(s, 1)
	halt := &fault.Error{Code: "SL2999", Class: fault.Fatal, What: "offsets are gone"}
	if err := s.Halt(t.Context(), l.part(1), halt); err != nil {
		t.Fatal(err)
	}
	if r := l.progress("s1", 1); r.HaltCode != "SL2999" || !strings.Contains(r.HaltText, "offsets are gone") || r.HaltedAt.IsZero() {
		t.Errorf("halted %+v", r)
	}
	gap := progress.Gap{Key: progress.Key{Sink: "mysql", Partition: l.part(1)}, From: 0, To: 50, LeaderEpoch: 4, By: "ada", Reason: "disk lost"}
	if err := progress.AcceptGap(t.Context(), l.dbs["s1"], gap); err != nil {
		t.Fatal(err)
	}
	if r := l.progress("s1", 1); r.Next != 50 || r.LeaderEpoch != 4 || !r.HaltedAt.IsZero() || r.OwnerEpoch != 2 {
		t.Errorf("after the gap %+v", r)
	}
	if err := progress.AcceptGap(t.Context(), l.dbs["s1"], gap); fault.CodeOf(err) != "SL6201" {
		t.Errorf("the same gap again: %v", err)
	}
	l.wantRows("s1", "slotline_gap", "sink,topic,part,from_off,to_off,owner_epoch,accepted_by,reason",
		"mysql|"+l.part(1).Topic+"|1|0|50|2|ada|disk lost")
	_, err := applyAll(t.Context(), o, l.batch(0, l.message(1, "items", event.Upsert, 1, item(l.tenantIn(1, "s1"), 1, "x"))))
	if !fault.Is(err, fault.Fenced) {
		t.Errorf("the owner from before the gap: %v", err)
	}
	if pos := l.takeOver(s, 1).Positions()[0]; pos.Next != 50 {
		t.Errorf("after take-over %+v", pos)
	}
}

// How long a partition has stood still is counted by the database's clock, from the making of its row on; a take-over is
// no move.
func TestMySQLSinkProgressSaysSinceWhenItStands(t *testing.T) {
	l := newShardLine(t, harness.MySQL(t), shardLineTables, "")
	now := func() (at time.Time) {
		if err := l.dbs["s1"].QueryRow("SELECT UTC_TIMESTAMP(6)").Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	made := l.progress("s1", 1).UpdatedAt
	if age := now().Sub(made); age < 0 || age > time.Minute || made.Location() != time.UTC {
		t.Errorf("the row was made at %s, %s ago", made, age)
	}
	if here := time.Since(made); here < -time.Minute || here > time.Minute {
		t.Errorf("the row was made %s ago by the clock of this process", here)
	}
	o := l.takeOver(l.sink("a"), 1)
	if at := l.progress("s1", 1).UpdatedAt; !at.Equal(made) {
		t.Errorf("a take-over changed updated_at from %s to %s", made, at)
	}
	before := now()
	l.applyBatch(o, l.batch(0, l.message(1, "items", event.Upsert, 1, item(l.tenantIn(1, "s1"), 1, "x"))))
	if at := l.progress("s1", 1).UpdatedAt; at.Before(before) || at.After(now()) {
		t.Errorf("a batch applied after %s: updated_at is %s", before, at)
	}
}

// A process that drains leaves no name: status must not show an owner that is gone. One that lets go late takes nobody
// else's.
func TestMySQLSinkReleaseTakesTheNameOut(t *testing.T) {
	l := newShardLine(t, harness.MySQL(t), shardLineTables, "")
	first := l.takeOver(l.sink("first"), 1)
	second := l.takeOver(l.sink("second"), 1)
	for _, c := range []struct {
		o    event.Owned
		want string
	}{{first, "second"}, {second, ""}} {
		if err := c.o.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if r := l.progress("s1", 1); r.Owner != c.want || r.OwnerEpoch != 2 {
			t.Errorf("owned by %q at epoch %d, wanted %q at 2", r.Owner, r.OwnerEpoch, c.want)
		}
	}
}

// One partition whose row is locked by a paused writer does not keep others from being taken over.
func TestP13_MySQLSinkTakeOversWhileOneIsLocked(t *testing.T) {
	l := newShardLine(t, harness.MySQL(t), shardLineTables, "")
	for _, shard := range []string{"s1", "s2"} {
		zombie, err := l.dbs[shard].Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer zombie.Close()
		for _, statement := range []string{"START TRANSACTION", "UPDATE slotline_progress SET owner='zombie' WHERE part=0"} {
			if _, err := zombie.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	s := l.sink("a")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for n := range int32(4) {
		wg.Go(func() {
			if _, err := s.TakeOver(ctx, []event.Partition{l.part(n)}); err != nil {
				t.Errorf("partition %d: %v", n, err)
			}
		})
	}
	wg.Wait()
	for n := range int32(4) {
		shard := "s1"
		if n > 1 {
			shard = "s2"
		}
		if r := l.progress(shard, n); r.OwnerEpoch != 1 || r.Owner != "a" {
			t.Errorf("partition %d: %+v", n, r)
		}
	}
}

// P5: an owner that was replaced changes nothing, whether it was about to begin, paused inside its transaction, or
// holds the progress row's lock, which the take-over must not wait for.
func TestP5_MySQLSinkZombieInsideATransaction(t *testing.T) {
	l := newShardLine(t, harness.MySQL(t), shardLineTables, "")
	a := l.tenantIn(1, "s1")
	old := l.takeOver(l.sink("old"), 1)
	l.applyBatch(old, l.batch(0, l.message(1, "items", event.Upsert, 1, item(a, 1, "one"))))
	late := l.batch(1, l.message(1, "items", event.Upsert, 9, item(a, 1, "zombie")))
	prepared, err := old.Prepare(late)
	if err != nil {
		t.Fatal(err)
	}

	// The zombie: its transaction has moved the progress row and written, and does not go on.
	zombie, err := l.dbs["s1"].Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer zombie.Close()
	row := l.progress("s1", 1)
	for _, statement := range []string{"START TRANSACTION",
		"UPDATE slotline_progress SET next_off=2 WHERE part=1 AND owner_epoch=1 AND next_off=1",
		"UPDATE items_202611 SET name='zombie', _ver=18"} {
		if _, err := zombie.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	started := time.Now()
	fresh := l.takeOver(l.sink("new"), 1)
	if took := time.Since(started); took > 20*time.Second {
		t.Errorf("the take-over waited %s for a paused transaction", took)
	}
	if _, err := zombie.ExecContext(context.WithoutCancel(t.Context()), "COMMIT"); err == nil {
		t.Error("the paused transaction was committed after the take-over")
	}
	_, err = prepared.Apply(t.Context())
	if !fault.Is(err, fault.Fenced) {
		t.Errorf("the replaced owner's batch: %v", err)
	}
	if r := l.progress("s1", 1); r.OwnerEpoch != row.OwnerEpoch+1 || r.Next != 1 || r.Owner != "new" {
		t.Errorf("progress %+v", r)
	}
	l.wantRows("s1", "items_202611", "item,name,_ver", "1|one|2")
	l.next[1] = 1
	l.applyBatch(fresh, l.batch(1, l.message(1, "items", event.Upsert, 2, item(a, 1, "two"))))
	l.wantRows("s1", "items_202611", "item,name,_ver", "1|two|4")
}

// go-sql-driver/mysql#582: the connection is lost after COMMIT was sent. The batch is committed once, and the sink finds
// out by the progress row.
func TestP4_MySQLSinkConnectionCutAfterCommit(t *testing.T) {
	server := harness.MySQL(t)
	var armed atomic.Bool
	w := newWire(t, server.Addr, func(sent []byte) bool {
		return bytes.Contains(sent, []byte("COMMIT")) && armed.CompareAndSwap(true, false)
	})
	l := newShardLine(t, server, shardLineTables, w.addr())
	a := l.tenantIn(1, "s1")
	o := l.takeOver(l.sink("a"), 1)
	for i := range int64(3) {
		armed.Store(i == 1)
		l.applyBatch(o, l.batch(i, l.message(1, "items", event.Upsert, i+1, item(a, i, "x"))))
		if armed.Load() {
			t.Fatal("the connection was not cut")
		}
		if got := o.Positions()[0].Next; got != i+1 {
			t.Fatalf("after batch %d the sink stands at %d", i, got)
		}
	}
	l.wantRows("s1", "items_202611", "item,_ver", "0|2", "1|4", "2|6")
}

// The connection is cut inside the transaction instead: nothing was committed, and the same batch is sent again.
func TestP4_MySQLSinkConnectionCutInsideTransaction(t *testing.T) {
	server := harness.MySQL(t)
	var armed atomic.Bool
	w := newWire(t, server.Addr, func(sent []byte) bool {
		return bytes.Contains(sent, []byte("START TRANSACTION")) && armed.CompareAndSwap(true, false)
	})
	l := newShardLine(t, server, shardLineTables, w.addr())
	a := l.tenantIn(1, "s1")
	o := l.takeOver(l.sink("a"), 1)
	armed.Store(true)
	p, err := o.Prepare(l.batch(0, l.message(1, "items", event.Upsert, 1, item(a, 1, "x"))))
	if err != nil {
		t.Fatal(err)
	}
	rejected, err := p.Apply(t.Context())
	if !fault.Is(err, fault.Transient) || len(rejected) > 0 {
		t.Fatalf("rejected %v, error %v; wanted an outage", rejected, err)
	}
	if _, err = p.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.wantRows("s1", "items_202611", "item,_ver", "1|2")
}

// P7: the rows that the server refuses are found by halving; neighbours and the next lower version are applied.
func TestP7_MySQLSinkBisectsToTheBadRows(t *testing.T) {
	l := newShardLine(t, harness.MySQL(t), shardLineTables, "")
	l.makeNovember("s1")
	if _, err := l.dbs["s1"].Exec("ALTER TABLE items_202611 ADD CONSTRAINT no_bad CHECK (name <> 'bad')"); err != nil {
		t.Fatal(err)
	}
	o := l.takeOver(l.sink("a"), 1)
	a := l.tenantIn(1, "s1")
	random := seeded(t)
	var messages []event.Message
	var want []string
	bad := map[int]bool{}
	for id := range int64(300) {
		messages = append(messages, l.message(1, "items", event.Upsert, 1, item(a, id, "good")))
		ver := 2
		if random.IntN(20) == 0 {
			bad[len(messages)] = true
			messages = append(messages, l.message(1, "items", event.Upsert, 2, item(a, id, "bad")))
		}
		want = append(want, fmt.Sprintf("%d|good|%d", id, ver))
	}
	rejected := l.applyBatch(o, l.batch(0, messages...))
	for i, r := range rejected {
		if !bad[i] || r.Reason != "check_constraint" || !strings.Contains(r.Err.Error(), "items_202611") {
			t.Errorf("message %d was rejected: %s, %v", i, r.Reason, r.Err)
		}
	}
	if len(rejected) != len(bad) {
		t.Errorf("%d rejected, %d are bad", len(rejected), len(bad))
	}
	l.wantRows("s1", "items_202611", "item,name,_ver", want...)
}

// P7: what the codec refuses never reaches the server, and concerns that message alone.
func TestP7_MySQLSinkRejectsWhatATableCannotHold(t *testing.T) {
	l := newShardLine(t, harness.MySQL(t), shardLineTables, "")
	o := l.takeOver(l.sink("a"), 1)
	a := l.tenantIn(1, "s1")
	far := item(a, 3, "x")
	far[2] = moment(november.AddDate(0, 3, 0))
	early := item(a, 4, "x")
	early[2] = moment(time.Date(1999, 12, 31, 23, 59, 59, 999999000, time.UTC))
	edge := item(a, 5, "edge")
	edge[2] = moment(time.Date(2027, 1, 31, 23, 59, 59, 999999000, time.UTC))
	long := l.message(1, "items", event.Upsert, 2, item(a, 1, "x"))
	long.Value = bytes.Replace(long.Value, []byte(`"name":"x"`), []byte(`"name":"`+strings.Repeat("x", 21)+`"`), 1)
	stranger := l.message(1, "items", event.Upsert, 1, item(l.tenantIn(2, "s2"), 6, "x"))
	messages := []event.Message{
		l.message(1, "items", event.Upsert, 1, item(a, 1, "below")), long, stranger,
		l.message(1, "items", event.Upsert, 1, far), l.message(1, "items", event.Upsert, 1, early),
		l.message(1, "items", event.Upsert, 1, edge),
	}
	for i := range messages {
		messages[i].Offset = int64(i)
	}
	got := map[int]string{}
	for i, r := range l.applyBatch(o, l.batch(0, messages...)) {
		got[i] = r.Reason
	}
	want := map[int]string{1: "too_long", 2: "wrong_partition", 3: "out_of_range", 4: "out_of_range"}
	if !maps.Equal(got, want) {
		t.Errorf("rejected %v, wanted %v", got, want)
	}
	l.wantRows("s1", "items_202611", "item,name", "1|below")
	l.wantRows("s1", "items_202701", "item,at", "5|2027-01-31 23:59:59.999999")
}

// kafka-connect-jdbc#575: a secondary UNIQUE key is refused before anything is written, and named.
func TestMySQLSinkRefusesSecondaryUniqueKey(t *testing.T) {
	l := newShardLine(t, harness.MySQL(t), shardLineTables, "")
	l.makeNovember("s1")
	if _, err := l.dbs["s1"].Exec("ALTER TABLE items_202611 ADD UNIQUE KEY uk_name (name)"); err != nil {
		t.Fatal(err)
	}
	_, err := l.sink("a").TakeOver(t.Context(), []event.Partition{l.part(1)})
	if fault.CodeOf(err) != "SL3002" || !strings.Contains(err.Error(), "uk_name (name)") || !strings.Contains(err.Error(), "DROP KEY uk_name") {
		t.Errorf("take-over: %v", err)
	}
	// What halts the partition does not keep the halt from being recorded: by a sink that never came to open the shard.
	why, _ := errors.AsType[*fault.Error](err)
	if err := l.sink("c").Halt(t.Context(), l.part(1), why); err != nil {
		t.Errorf("recording the halt: %v", err)
	}
	if r := l.progress("s1", 1); r.HaltCode != "SL3002" || r.HaltText != why.Error() || r.HaltedAt.IsZero() {
		t.Errorf("halted %+v", r)
	}
	since := l.progress("s1", 1).HaltedAt
	again := &fault.Error{Code: "SL6001", Class: fault.Fatal, What: "another reason"}
	if err := l.sink("c").Halt(t.Context(), l.part(1), again); err != nil {
		t.Error(err)
	}
	if r := l.progress("s1", 1); r.HaltCode != "SL6001" || !r.HaltedAt.Equal(since) {
		t.Errorf("halted again %+v, first at %s", r, since)
	}
	if err := l.sink("c").Resume(t.Context(), l.part(1)); err != nil {
		t.Error(err)
	}
	if r := l.progress("s1", 1); r.HaltCode != "" || r.HaltText != "" || !r.HaltedAt.IsZero() {
		t.Errorf("resumed %+v", r)
	}
	if changes := l.plan(l.sink("b")); len(changes) != 1 || changes[0].Sign != 'x' || !strings.Contains(changes[0].Note, "uk_name") {
		t.Errorf("plan: %+v", changes)
	}
}

// Two sinks that need the same month at once both go on.
func TestMySQLSinkMonthTableMadeByTwoAtOnce(t *testing.T) {
	l := newShardLine(t, harness.MySQL(t), shardLineTables, "")
	var wg sync.WaitGroup
	const partitions = 2 // 0 and 1 meet s1
	for n := range int32(partitions) {
		o := l.takeOver(l.sink(fmt.Sprint(n)), n)
		var batches []*event.Batch
		for m := range 12 {
			values := item(l.tenantIn(n, "s1"), int64(m), "x")
			values[2] = moment(time.Date(2020, time.Month(m+1), 1, 0, 0, 0, 0, time.UTC))
			batches = append(batches, l.batch(int64(m), l.message(n, "items", event.Upsert, 1, values)))
		}
		wg.Go(func() {
			for _, b := range batches {
				if _, err := applyAll(t.Context(), o, b); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for m := range 12 {
		if rows := l.rows("s1", fmt.Sprintf("items_2020%02d", m+1), "item"); len(rows) != partitions {
			t.Errorf("month %d has rows %v", m+1, rows)
		}
	}
}

// A month table that is gone is made again.
func TestMySQLSinkMonthTableGone(t *testing.T) {
	l := newShardLine(t, harness.MySQL(t), shardLineTables, "")
	o := l.takeOver(l.sink("a"), 1)
	a := l.tenantIn(1, "s1")
	l.applyBatch(o, l.batch(0, l.message(1, "items", event.Upsert, 1, item(a, 1, "x"))))
	if _, err := l.dbs["s1"].Exec("DROP TABLE items_202611"); err != nil {
		t.Fatal(err)
	}
	l.applyBatch(o, l.batch(1, l.message(1, "items", event.Upsert, 1, item(a, 2, "x"))))
	l.wantRows("s1", "items_202611", "item", "2")
}

// P7: a server that becomes read-only is an outage: nothing is rejected, and the same batch goes through afterwards.
func TestP7_MySQLSinkReadOnlyIsAnOutage(t *testing.T) {
	t.Parallel()
	l := newShardLine(t, harness.PrivateMySQL(t), shardLineTables, "")
	o := l.takeOver(l.sink("a"), 1)
	p, err := o.Prepare(l.batch(0, l.message(1, "items", event.Upsert, 1, item(l.tenantIn(1, "s1"), 1, "x"))))
	if err != nil {
		t.Fatal(err)
	}
	set := func(statement string) {
		if _, err := l.dbs["s1"].Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	set("SET GLOBAL super_read_only=ON")
	for try := range 2 {
		rejected, err := p.Apply(t.Context())
		if !fault.Is(err, fault.Transient) || len(rejected) > 0 {
			t.Fatalf("rejected %v, error %v; wanted an outage", rejected, err)
		}
		if text := err.Error(); !strings.Contains(text, "1290") || !strings.Contains(text, "partition 1 offset 0") ||
			!strings.Contains(text, fmt.Sprintf("tries: %d", try+1)) || !strings.Contains(text, "dead-letter") {
			t.Errorf("try %d: %v", try, err)
		}
	}
	set("SET GLOBAL super_read_only=OFF")
	set("SET GLOBAL read_only=OFF")
	if _, err := p.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.wantRows("s1", "items_202611", "item", "1")
}

// P13: while one of two servers is down, partitions that do not meet it go on; the others wait and lose nothing.
func TestP13_MySQLSinkShardRestart(t *testing.T) {
	t.Parallel()
	shared, private := harness.MySQL(t), harness.PrivateMySQL(t)
	l := newShardLineBare(t, shared, shardLineTables, "")
	l.names["s2"] = private.NewDatabase(t, l.names["s2"])
	l.dbs["s2"] = private.Open(t, l.names["s2"])
	dsn, err := config.ParseDSN("shards.s2.dsn", private.URL(l.names["s2"]))
	if err != nil {
		t.Fatal(err)
	}
	l.cfg.Shards[1].DSN = dsn
	s := l.sink("a")
	l.apply(s)
	one, three := l.takeOver(s, 1), l.takeOver(s, 3)
	private.Kill(t)
	l.applyBatch(one, l.batch(0, l.message(1, "items", event.Upsert, 1, item(l.tenantIn(1, "s1"), 1, "x"))))
	p, err := three.Prepare(l.batch(0, l.message(3, "items", event.Upsert, 1, item(l.tenantIn(3, "s2"), 1, "x"))))
	if err != nil {
		t.Fatal(err)
	}
	if rejected, err := p.Apply(t.Context()); !fault.Is(err, fault.Transient) || len(rejected) > 0 {
		t.Fatalf("rejected %v, error %v; wanted an outage", rejected, err)
	}
	private.Start(t)
	for {
		_, err := p.Apply(t.Context())
		if err == nil {
			break
		}
		if !fault.Is(err, fault.Transient) {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond) // between tries, as the consumer's backoff
	}
	l.wantRows("s2", "items_202611", "item", "1")
	if pos := three.Positions()[0]; pos.Next != 1 {
		t.Errorf("position %+v", pos)
	}
}

// P6: a broadcast row is once in every shard; P4: where one shard refuses it, it is in none.
func TestP6_MySQLSinkBroadcast(t *testing.T) {
	l := newShardLine(t, harness.MySQL(t), shardLineTables, "")
	if _, err := l.dbs["s2"].Exec("ALTER TABLE places ADD CONSTRAINT no_bad CHECK (name <> 'bad')"); err != nil {
		t.Fatal(err)
	}
	o := l.takeOver(l.sink("a"), 0)
	rejected := l.applyBatch(o, l.batch(0,
		l.message(0, "places", event.Upsert, 1, []event.Value{text("JFK"), text("Kennedy")}),
		l.message(0, "places", event.Upsert, 1, []event.Value{text("BAD"), text("bad")}),
		l.message(0, "items", event.Upsert, 1, item(l.tenantIn(0, "s1"), 1, "x"))))
	if len(rejected) != 1 || rejected[1].Reason != "check_constraint" {
		t.Errorf("rejected %v", rejected)
	}
	for _, shard := range []string{"s1", "s2"} {
		l.wantRows(shard, "places", "code,name,_ver", "JFK|Kennedy|2")
		if r := l.progress(shard, 0); r.Next != 3 {
			t.Errorf("%s stands at %d", shard, r.Next)
		}
	}
}

// A database that was restored to an earlier state is noticed, and the consumer is sent back there.
func TestP4_MySQLSinkDatabaseWentBack(t *testing.T) {
	l := newShardLine(t, harness.MySQL(t), shardLineTables, "")
	o := l.takeOver(l.sink("a"), 1)
	a := l.tenantIn(1, "s1")
	l.applyBatch(o, l.batch(0, l.message(1, "items", event.Upsert, 1, item(a, 1, "x")), l.message(1, "items", event.Upsert, 1, item(a, 2, "x"))))
	if _, err := l.dbs["s1"].Exec("UPDATE slotline_progress SET next_off=1 WHERE part=1"); err != nil {
		t.Fatal(err)
	}
	_, err := applyAll(t.Context(), o, l.batch(2, l.message(1, "items", event.Upsert, 1, item(a, 3, "x"))))
	rewound, ok := errors.AsType[*event.Rewound](err)
	if !ok || rewound.Positions[0].Next != 1 {
		t.Fatalf("error %v", err)
	}
	if pos := o.Positions()[0]; pos.Next != 1 {
		t.Errorf("position %+v", pos)
	}
	l.wantRows("s1", "items_202611", "item", "1", "2")
}

// A column that the file gained reaches every table by apply, while a sink with the older file runs.
func TestMySQLSinkAddColumnEverywhere(t *testing.T) {
	l := newShardLine(t, harness.MySQL(t), shardLineTables, "")
	l.makeNovember("s1") // a table that both files know
	running := l.takeOver(l.sink("old"), 1)
	a := l.tenantIn(1, "s1")
	old := item(a, 1, "x")
	old[2] = moment(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))
	l.applyBatch(running, l.batch(0, l.message(1, "items", event.Upsert, 1, old)))

	newer := *l
	newer.cfg = mustParse(t, l, strings.Replace(shardLineTables, "name: string(20),", `name: string(30), added: "date?",`, 1))
	_, err := newer.sink("too early").TakeOver(t.Context(), []event.Partition{l.part(2)})
	if fault.CodeOf(err) != "SL3003" || !strings.Contains(err.Error(), "slotline apply") {
		t.Errorf("before apply: %v", err)
	}
	newer.apply(newer.sink("applier"))
	l.applyBatch(running, l.batch(1, l.message(1, "items", event.Upsert, 1, item(a, 2, "x"))))
	o := newer.takeOver(newer.sink("new"), 1)
	values := []event.Value{text(a), integer(3), moment(november), text(strings.Repeat("y", 30)), integer(20_000), text("1.00"), integer(7)}
	newer.applyBatch(o, newer.batch(2, newer.message(1, "items", event.Upsert, 1, values)))
	l.wantRows("s1", "items_202001", "item,COALESCE(added,'-')", "1|-")
	l.wantRows("s1", "items_202611", "item,COALESCE(added,'-')", "2|-", "3|2024-10-04")
	if changes := newer.plan(newer.sink("again")); len(changes) > 0 {
		t.Errorf("plan after apply: %+v", changes)
	}
}

// A privilege that is missing is named with the GRANT that gives it.
func TestMySQLSinkMissingPrivilege(t *testing.T) {
	server := harness.MySQL(t)
	l := newShardLine(t, server, shardLineTables, "")
	user := harness.Name(t)
	for _, statement := range []string{
		"CREATE USER " + user + "@'%' IDENTIFIED BY 'p'",
		"GRANT SELECT, INSERT, UPDATE ON `" + l.names["s1"] + "`.* TO " + user + "@'%'",
	} {
		if _, err := l.dbs["s1"].Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { server.Open(t, "").Exec("DROP USER " + user + "@'%'") })
	var err error
	l.cfg.Shards[0].DSN, err = config.ParseDSN("shards.s1.dsn", "mysql://"+user+":p@"+server.Addr+"/"+l.names["s1"])
	if err != nil {
		t.Fatal(err)
	}
	o := l.takeOver(l.sink("a"), 1)
	values := item(l.tenantIn(1, "s1"), 1, "x")
	values[2] = moment(time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC))
	_, err = applyAll(t.Context(), o, l.batch(0, l.message(1, "items", event.Upsert, 1, values)))
	if !fault.Is(err, fault.Fatal) || fault.CodeOf(err) != "SL3107" || !strings.Contains(err.Error(), "GRANT SELECT, INSERT, UPDATE, CREATE") {
		t.Errorf("making a month table without CREATE: %v", err)
	}
}

// Wide rows go through a small max_allowed_packet, several statements and packets in one transaction; a row that does
// not fit even alone is a dead letter, and no packet is ever refused.
func TestP7_MySQLSinkSmallPackets(t *testing.T) {
	t.Parallel()
	l := newShardLine(t, harness.PrivateMySQL(t, "--max-allowed-packet=1M"), shardLineTables, "")
	o := l.takeOver(l.sink("a"), 1)
	a := l.tenantIn(1, "s1")
	random := seeded(t)
	var messages []event.Message
	var want []string
	for i := range 40 {
		size := random.IntN(300_000)
		if i == 7 {
			size = 1 << 20
		} else {
			want = append(want, fmt.Sprintf("n%d|%d", i, size))
		}
		messages = append(messages, l.message(1, "notes", event.Upsert, 1,
			[]event.Value{text(a), text(fmt.Sprintf("n%d", i)), text(strings.Repeat("x", size))}))
	}
	rejected := l.applyBatch(o, l.batch(0, messages...))
	if len(rejected) != 1 || rejected[7].Reason != "too_long" || !strings.Contains(rejected[7].Err.Error(), "max_allowed_packet") {
		t.Errorf("rejected %v", rejected)
	}
	l.wantRows("s1", "notes", "note,LENGTH(body)", want...)
}
