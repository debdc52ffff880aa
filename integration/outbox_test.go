package integration

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/outbox"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/producer"
)

// P1, P2: whatever the order of commits, what committed is published once and what rolled back is not; a transaction
// held open for the whole run delays nobody and is published when it commits.
func TestP2_OutboxOutOfOrderCommits(t *testing.T) {
	t.Parallel() // long
	l := newOutboxLine(t, harness.Kafka(t), harness.MySQL(t), ", lanes: 2, lease_time: 5s")
	r := l.start()
	run := func(ownTx bool) (latency string) {
		before := r.Lanes()
		w := &writers{count: 24, transactions: 1500, rollbackShare: 0.2, think: 15 * time.Millisecond, ownTx: ownTx}
		w.run(l, seeded(t).Uint64())
		if n := w.unknown.Load(); n > 0 {
			t.Errorf("%d transactions failed", n)
		}
		l.waitPublished(len(l.committed()), 10*time.Second)
		after := r.Lanes()
		return quantiles(before[0].Latency, after[0].Latency)
	}
	t.Logf("append to ack without a long transaction, bounds in s: %s", run(true))
	held := l.hold()
	for i := range 20 {
		if err := l.producer.Emit(t.Context(), held, l.accounts.Upsert(account{Owner: fmt.Sprintf("held-open-%d", i%2), ID: uint64(i), Value: 1})); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("append to ack beside a transaction held open: %s", run(true))
	run(false)
	l.waitPublished(len(l.committed()), 10*time.Second)
	if got := len(l.check(false, false)); got < 2000 {
		t.Errorf("only %d events: the writers did not do their part", got)
	}
	if err := held.Commit(); err != nil {
		t.Fatal(err)
	}
	l.waitPublished(len(l.committed()), 10*time.Second)
	r.stop()
	l.check(false, false)
	for _, s := range r.Lanes() {
		t.Logf("lane %d: published %d, hot %d, cold %d", s.Lane, s.Published, s.GapsHot, s.GapsCold)
	}
}

func (l *outboxLine) backlogs() []outbox.Backlog {
	l.t.Helper()
	list, err := outbox.Backlogs(l.t.Context(), l.db, l.cfg.Outbox.Lanes)
	if err != nil {
		l.t.Fatal(err)
	}
	return list
}

// P1: a relay that dies with records under way leaves neither a hole nor a repeat: the next owner scans the topic's tail.
func TestP1_OutboxRelayKilledAndTakenOver(t *testing.T) {
	t.Parallel() // long
	l := newOutboxLine(t, harness.Kafka(t), harness.MySQL(t), ", lanes: 2, lease_time: 500ms")
	emitting := make(chan struct{})
	go func() {
		defer close(emitting)
		w := &writers{count: 12, transactions: 6000, rollbackShare: 0.1, think: 3 * time.Millisecond}
		w.run(l, 1)
	}()
	rnd := seeded(t)
	r := l.start()
	for kills := 0; ; kills++ {
		select {
		case <-emitting:
			if kills < 3 {
				t.Errorf("the writers ended after %d kills", kills)
			}
			l.waitPublished(len(l.committed()), 20*time.Second)
			r.stop()
			l.check(false, false)
			t.Logf("%d kills", kills)
			return
		case <-time.After(time.Duration(300+rnd.IntN(900)) * time.Millisecond):
		}
		r.kill()
		r = l.start()
	}
}

// Two relays on the same lanes: one owner each; the drained hand-over takes no lease time.
func TestOutboxHandOverIsDrained(t *testing.T) {
	l := newOutboxLine(t, harness.Kafka(t), harness.MySQL(t), ", lanes: 2, lease_time: 60s")
	a := l.start()
	w := &writers{count: 8, transactions: 500}
	w.run(l, 1)
	b := l.start()
	w = &writers{count: 8, transactions: 500}
	go func() {
		time.Sleep(50 * time.Millisecond)
		a.stop()
	}()
	w.run(l, 2)
	began := time.Now()
	l.waitPublished(len(l.committed()), 5*time.Second) // far below the lease time
	t.Logf("drained %v after the last emit", time.Since(began).Round(time.Millisecond))
	b.stop()
	l.check(false, false)
}

// P1: the server that holds the outbox is killed and comes back, and so is the broker, while events are emitted.
func TestP1_OutboxServersRestart(t *testing.T) {
	harness.LeaveToCI(t) // TestWholeLine_Kills restarts servers too
	k, m := harness.PrivateKafka(t), harness.PrivateMySQL(t)
	l := newOutboxLine(t, k, m, ", lanes: 2, lease_time: 5s")
	r := l.start()
	w := &writers{count: 8, transactions: math.MaxInt, rollbackShare: 0.1, think: 20 * time.Millisecond}
	emitting := make(chan struct{})
	go func() {
		defer close(emitting)
		w.run(l, 1)
	}()
	// further waits until more transactions are committed.
	further := func(n int64) {
		t.Helper()
		begun := w.committed.Load()
		until(t, fmt.Sprintf("%d more transactions are committed", n), time.Minute, func() bool { return w.committed.Load() >= begun+n })
	}
	further(200)
	m.Kill(t)
	m.Start(t)
	further(200)
	k.Kill(t)
	k.Start(t)
	further(200)
	w.enough.Store(true)
	<-emitting
	l.waitPublished(len(l.committed()), 60*time.Second)
	r.stop()
	t.Logf("%d transactions failed while the servers were away", w.unknown.Load())
	l.check(false, false)
}

// What the relay cannot publish is kept with its reason before the cursor passes it, and its neighbours go on.
func TestP7_OutboxDeadLetters(t *testing.T) {
	l := newOutboxLine(t, harness.Kafka(t), harness.MySQL(t), ", lanes: 1, lease_time: 1s")
	emit := func(a account) {
		t.Helper()
		if err := l.producer.Run(t.Context(), l.db, func(tx *producer.Tx) error { return l.producer.Emit(t.Context(), tx, l.accounts.Upsert(a)) }); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 50 {
		emit(account{Owner: "a", ID: uint64(i), Value: 1, Pad: "small"})
		if i == 25 {
			// Larger than the producer lets through.
			_, err := l.db.Exec("INSERT INTO slotline_outbox_00 (event_id, tbl, tenant, entity_id, op, codec, created_at, payload)"+
				" VALUES ('large-event-0001', 'accounts', 'a', '1000', 1, 1, UTC_TIMESTAMP(6), REPEAT('x', ?))", kafka.RecordBytesMax(l.cfg))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	bad := []struct{ reason, values string }{
		{outbox.ReasonUnknownTable, "'nosuch', 'a', '1', 1, NULL, 1"},
		{outbox.ReasonBadRow, "'accounts', '', '1', 1, NULL, 1"},
		{outbox.ReasonBadRow, "'accounts', 'a', '', 1, NULL, 1"},
		{outbox.ReasonBadRow, "'accounts', 'a', '1', 3, NULL, 1"},
		{outbox.ReasonBadRow, "'accounts', 'a', '1', 1, NULL, 9"},
		{outbox.ReasonBadVersion, "'accounts', 'a', '1', 1, 77, 1"},
	}
	for i, b := range bad {
		_, err := l.db.Exec("INSERT INTO slotline_outbox_00 (event_id, tbl, tenant, entity_id, op, version, codec, created_at, payload) VALUES (?, "+
			b.values+", UTC_TIMESTAMP(6), '{}')", fmt.Appendf(nil, "bad-event-%06d", i))
		if err != nil {
			t.Fatal(err)
		}
	}
	emit(account{Owner: "a", ID: 2000, Value: 1})
	r := l.start()
	l.waitPublished(51, 20*time.Second)
	// The one that is too large is sent once more, alone, before that is said of it; its neighbours do not wait for it.
	until(t, "each bad row is a dead letter", 20*time.Second, func() bool {
		return number(t, l.db, "SELECT COUNT(*) FROM slotline_dead") == int64(len(bad)+1)
	})
	r.stop()
	if n := len(l.topic()); n != 51 {
		t.Errorf("%d records, wanted 51", n)
	}
	rows, err := l.db.Query("SELECT reason, detail, LENGTH(payload) FROM slotline_dead ORDER BY reason = 'too_large' DESC, id")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for rows.Next() {
		var reason, detail string
		var size int
		if err := rows.Scan(&reason, &detail, &size); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %s", reason, detail)
		got = append(got, reason)
	}
	want := []string{outbox.ReasonTooLarge}
	for _, b := range bad {
		want = append(want, b.reason)
	}
	if !slices.Equal(got, want) {
		t.Errorf("dead letters %v, wanted %v", got, want)
	}
	for _, b := range l.backlogs() {
		if b.Cursor != b.MaxID || b.Hot != "" {
			t.Errorf("at rest: %+v", b)
		}
	}
}

// A topic that was narrowed by hand while the relay runs makes no dead letters of good events: they wait, status names
// topic and setting, and all are published in order when the topic is as the file says again.
func TestP7_OutboxNarrowedTopic(t *testing.T) {
	l := newOutboxLine(t, harness.Kafka(t), harness.MySQL(t), ", lanes: 1, lease_time: 1s")
	client, err := kafka.Open(t.Context(), l.cfg, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	limit := func(n int) {
		t.Helper()
		text := strconv.Itoa(n)
		if _, err := kadm.NewClient(client).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &text}}, l.cfg.Kafka.Topic); err != nil {
			t.Fatal(err)
		}
	}
	noise := make([]byte, 60_000) // does not compress
	for i := range noise {
		noise[i] = byte('!' + rand.IntN(90))
	}
	r := l.start()
	l.emit(0, 10, 1)
	l.waitPublished(10, 10*time.Second)
	limit(20_000)
	for i := range 20 {
		if err := l.producer.Run(t.Context(), l.db, func(tx *producer.Tx) error {
			return l.producer.Emit(t.Context(), tx, l.accounts.Upsert(account{Owner: "a", ID: 7, Value: int64(i), Pad: string(noise)}))
		}); err != nil {
			t.Fatal(err)
		}
	}
	views := l.waitViews(func(v []outbox.View) bool { return v[0].Parked > 0 && v[0].HaltCode == "SL2005" })
	if text := views[0].HaltText; !strings.Contains(text, l.cfg.Kafka.Topic) || !strings.Contains(text, "max.message.bytes") {
		t.Errorf("status says %s", text)
	}
	limit(kafka.RecordBytesMax(l.cfg))
	l.waitPublished(30, 20*time.Second)
	l.waitViews(func(v []outbox.View) bool { return v[0].Parked == 0 && v[0].HaltedAt == nil })
	r.stop()
	l.check(false, false)
	var dead int
	if err := l.db.QueryRow("SELECT COUNT(*) FROM slotline_dead").Scan(&dead); err != nil || dead > 0 {
		t.Errorf("%d dead letters, %v", dead, err)
	}
}

// A flood of bad events is the fault of a release: the lane halts before any of it is passed, and says so.
func TestP7_OutboxFloodHaltsTheLane(t *testing.T) {
	l := newOutboxLine(t, harness.Kafka(t), harness.MySQL(t), ", lanes: 2, lease_time: 1s")
	tenant := ""
	for i := 0; tenant == ""; i++ {
		if s := fmt.Sprintf("flood-%d", i); partitioner.Lane(s, 2) == 1 {
			tenant = s
		}
	}
	for i := range 300 {
		if _, err := l.db.Exec("INSERT INTO slotline_outbox_01 (event_id, tbl, tenant, entity_id, op, codec, created_at, payload) VALUES (?, 'newtable', ?, '1', 1, 1, UTC_TIMESTAMP(6), '{}')",
			fmt.Appendf(nil, "flood-event-%04d", i), tenant); err != nil {
			t.Fatal(err)
		}
	}
	r := l.start()
	w := &writers{count: 4, transactions: 200}
	w.run(l, 1)
	var other int
	if err := l.db.QueryRow("SELECT COUNT(*) FROM slotline_outbox_00").Scan(&other); err != nil {
		t.Fatal(err)
	}
	l.waitPublished(other, 10*time.Second) // lane 0 goes on
	deadline := harness.Deadline(10 * time.Second)
	for l.backlogs()[1].HaltedAt == nil && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	b := l.backlogs()[1]
	if b.HaltCode != "SL5008" || b.Cursor != 0 {
		t.Errorf("lane 1: %+v", b)
	}
	t.Log(b.HaltText)
	r.cancel()
	if err := <-r.done; fault.CodeOf(err) != "SL5008" {
		t.Errorf("Run returned %v", err)
	}
	r.done <- nil
	var dead int
	if err := l.db.QueryRow("SELECT COUNT(*) FROM slotline_dead").Scan(&dead); err != nil || dead != 0 {
		t.Errorf("%d dead letters, %v", dead, err)
	}
}

// A database that went back (a restore, a replica that lacked the last commits) gives out ids a second time. Nothing of
// the new history is skipped, its versions win over those of the lost one, and what was lost is listed.
func TestP1_OutboxDatabaseWentBack(t *testing.T) {
	l := newOutboxLine(t, harness.Kafka(t), harness.MySQL(t), ", lanes: 1, lease_time: 1s")
	emit := func(from, to int, value int64) {
		t.Helper()
		for i := from; i < to; i++ {
			if err := l.producer.Run(t.Context(), l.db, func(tx *producer.Tx) error {
				return l.producer.Emit(t.Context(), tx, l.accounts.Upsert(account{Owner: "a", ID: uint64(i), Value: value}))
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := l.start()
	emit(0, 100, 1)
	l.waitPublished(100, 10*time.Second)
	r.stop()
	// The backup: the lane's row as of now.
	exec := func(statement string, args ...any) {
		t.Helper()
		if _, err := l.db.Exec(statement, args...); err != nil {
			t.Fatal(statement, err)
		}
	}
	exec("CREATE TABLE backup_lane AS SELECT * FROM slotline_lane")
	r = l.start()
	emit(0, 50, 2) // ids 101 to 150: these commits will be lost
	l.waitPublished(150, 10*time.Second)
	r.stop()
	exec("DELETE FROM slotline_outbox_00 WHERE id > 100")
	exec("ALTER TABLE slotline_outbox_00 AUTO_INCREMENT = 101")
	exec("UPDATE slotline_lane l JOIN backup_lane b ON b.lane = l.lane SET l.cursor_id = b.cursor_id, l.hot = b.hot, l.offsets = b.offsets, l.generations = b.generations")
	emit(40, 70, 3) // ids 101 to 130 again
	r = l.start()
	l.waitPublished(180, 10*time.Second)
	r.stop()
	if n := r.Lanes()[0].Lost; n != 50 {
		t.Errorf("%d lost events are counted for the alarm, wanted 50", n)
	}

	newest := map[string]published{}
	for _, e := range l.topic() {
		if e.Version > newest[e.EntityID].Version {
			newest[e.EntityID] = e
		}
	}
	for i := 40; i < 70; i++ {
		e := newest[fmt.Sprint(i)]
		if !bytes.Contains(e.Body, []byte(`"value":3`)) || e.Outbox.Generation != 2 {
			t.Errorf("entity %d: the newest event is %s, %+v", i, e.Body, e.Outbox)
		}
	}
	var lost int
	if err := l.db.QueryRow("SELECT COUNT(*) FROM slotline_dead WHERE reason = ?", outbox.ReasonLost).Scan(&lost); err != nil || lost != 50 {
		t.Errorf("%d lost events are listed, wanted 50; %v", lost, err)
	}
	// The next owner finds nothing to do.
	r = l.start()
	time.Sleep(300 * time.Millisecond)
	r.stop()
	if n := len(l.topic()); n != 180 {
		t.Errorf("%d records after another take-over, wanted 180", n)
	}
}

// Partitions are made ahead of need while MAXVALUE is empty, and a transaction that holds the table does not block.
func TestOutboxPartitionsAhead(t *testing.T) {
	t.Parallel() // long
	l := newPurgedLine(t, harness.MySQL(t), ", lanes: 1, lease_time: 3s, purge_rows: 1000")
	l.timing.Split = 50 * time.Millisecond
	r := l.start()
	w := &writers{count: 8, transactions: 3000}
	emitting := make(chan struct{})
	go func() { defer close(emitting); w.run(l.outboxLine, 1) }()
	held := l.hold()
	if err := l.producer.Emit(t.Context(), held, l.accounts.Upsert(account{Owner: "held", ID: 1})); err != nil {
		t.Fatal(err)
	}
	<-emitting
	if n := w.unknown.Load(); n > 0 {
		t.Errorf("%d transactions failed", n)
	}
	if err := held.Commit(); err != nil {
		t.Fatal(err)
	}
	deadline := harness.Deadline(20 * time.Second)
	for {
		var rows int
		last := l.number("SELECT MAX(CAST(partition_description AS UNSIGNED)) FROM information_schema.partitions" +
			" WHERE table_schema = DATABASE() AND table_name = 'slotline_outbox_00' AND partition_description <> 'MAXVALUE'")
		if err := l.db.QueryRow("SELECT COUNT(*) FROM slotline_outbox_00 PARTITION (pmax)").Scan(&rows); err != nil {
			t.Fatal(err)
		}
		if rows > 0 {
			t.Fatalf("pmax holds %d rows", rows)
		}
		if last > 8000 {
			t.Logf("partitions up to id %d", last)
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("partitions up to id %d, and no more are made", last)
		}
		time.Sleep(50 * time.Millisecond)
	}
	l.waitPublished(l.emitted(), 10*time.Second)
	r.stop()
	l.checkAll(false)
}

// P5: a relay whose lease was taken by another saves nothing and closes its producer; it comes back when the lease is
// free again, and goes on without a hole or a repeat.
func TestP5_OutboxLostLeaseFallsSilent(t *testing.T) {
	l := newOutboxLine(t, harness.Kafka(t), harness.MySQL(t), ", lanes: 1, lease_time: 600ms")
	l.taken = 1
	closed := make(chan struct{}, 10)
	l.wrap = func(w outbox.Writer) outbox.Writer { return closeTeller{w, closed} }
	r := l.start()
	w := &writers{count: 8, transactions: 2500, rollbackShare: 0.1, think: 8 * time.Millisecond}
	emitting := make(chan struct{})
	go func() { defer close(emitting); w.run(l, 1) }()
	time.Sleep(500 * time.Millisecond)
	if _, err := l.db.Exec("UPDATE slotline_lane SET owner = 'thief', owner_epoch = owner_epoch + 1, lease_until = UTC_TIMESTAMP(6) + INTERVAL 1200000 MICROSECOND"); err != nil {
		t.Fatal(err)
	}
	stolen := l.backlogs()[0].Cursor
	select {
	case <-closed:
	case <-time.After(time.Second):
		t.Error("the producer is not closed within the lease time")
	}
	if now := l.backlogs()[0]; now.Cursor != stolen || now.Owner != "thief" {
		t.Errorf("the lane moved from %d to %d under %s", stolen, now.Cursor, now.Owner)
	}
	<-emitting
	l.waitPublished(len(l.committed()), 20*time.Second)
	r.stop()
	l.check(false, false)
}

// closeTeller says when a writer is closed.
type closeTeller struct {
	outbox.Writer
	closed chan<- struct{}
}

func (c closeTeller) Close() {
	select {
	case c.closed <- struct{}{}:
	default:
	}
	c.Writer.Close()
}

// A connection that is cut after COMMIT was sent: Run says that it does not know, and the event is published.
func TestProducerConnectionCutInCommit(t *testing.T) {
	m := harness.MySQL(t)
	l := newOutboxLine(t, harness.Kafka(t), m, ", lanes: 1, lease_time: 1s")
	cut := newWire(t, m.Addr, func(sent []byte) bool { return bytes.Contains(sent, []byte("COMMIT")) })
	c, err := mysqldriver.ParseDSN(m.DSN(l.cfg.Outbox.DSN.Database()))
	if err != nil {
		t.Fatal(err)
	}
	c.Addr = cut.addr()
	db, err := sql.Open("mysql", c.FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = l.producer.Run(t.Context(), db, func(tx *producer.Tx) error {
		return l.producer.Emit(t.Context(), tx, l.accounts.Upsert(account{Owner: "a", ID: 1}))
	})
	if !errors.Is(err, producer.ErrCommitUnknown) || fault.CodeOf(err) == "" {
		t.Errorf("Run returned %v", err)
	}
	r := l.start()
	l.waitPublished(1, 10*time.Second)
	r.stop()
	l.check(false, false)
}

// P10: a backlog of events that are as large as they may be does not make the relay hold more than its few batches.
func TestP10_OutboxLargeEventsStayBounded(t *testing.T) {
	l := newOutboxLine(t, harness.Kafka(t), harness.MySQL(t), ", lanes: 1, lease_time: 2s")
	n := l.fill(6000, 200) // small ones first: the relay reads thousands at once
	const large = 100
	noise := make([]byte, 850<<10)
	for i := range noise {
		noise[i] = byte('!' + rand.IntN(90))
	}
	for i := range large {
		if err := l.producer.Run(t.Context(), l.db, func(tx *producer.Tx) error {
			return l.producer.Emit(t.Context(), tx, l.accounts.Upsert(account{Owner: "a", ID: uint64(i), Pad: string(noise)}))
		}); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	before, most := m.HeapAlloc, uint64(0)
	r := l.start()
	done := make(chan struct{})
	go func() { defer close(done); l.waitPublished(n+large, time.Minute) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		case <-time.After(5 * time.Millisecond):
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
		}
	}
	r.stop()
	t.Logf("heap grew by %d MiB at most, garbage included, for %d MiB of events", (most-min(most, before))>>20, large*len(noise)>>20)
	if most > before+96<<20 {
		t.Errorf("the heap grew from %d to %d MiB", before>>20, most>>20)
	}
	l.check(false, false)
}
