package integration

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/outbox"
	"github.com/slotline/slotline/producer"
)

// purgedLine is a line whose lane tables are purged: a trigger keeps the ids of committed events elsewhere.
type purgedLine struct{ *outboxLine }

func newPurgedLine(t testing.TB, m *harness.MySQLServer, outboxKeys string) *purgedLine {
	t.Helper()
	l := &purgedLine{newOutboxLine(t, harness.Kafka(t), m, outboxKeys)}
	l.timing.Split = 30 * time.Millisecond
	l.exec("CREATE TABLE emitted (event_id BINARY(16) PRIMARY KEY)")
	for lane := range l.cfg.Outbox.Lanes {
		l.exec(fmt.Sprintf("CREATE TRIGGER emitted_%d AFTER INSERT ON %s FOR EACH ROW INSERT IGNORE INTO emitted VALUES (NEW.event_id)", lane, outbox.LaneTable(lane)))
	}
	return l
}

func (l *purgedLine) exec(statement string, args ...any) {
	l.t.Helper()
	if _, err := l.db.Exec(statement, args...); err != nil {
		l.t.Fatalf("%s: %v", statement, err)
	}
}

func (l *purgedLine) number(query string, args ...any) (n int) {
	l.t.Helper()
	if err := l.db.QueryRow(query, args...).Scan(&n); err != nil {
		l.t.Fatalf("%s: %v", query, err)
	}
	return n
}

func (l *purgedLine) emitted() int { return l.number("SELECT COUNT(*) FROM emitted") }

// lowest is the id after lane 0's lowest partition.
func (l *purgedLine) lowest() int {
	return l.number("SELECT MIN(CAST(partition_description AS UNSIGNED)) FROM information_schema.partitions" +
		" WHERE table_schema = DATABASE() AND table_name = 'slotline_outbox_00' AND partition_description <> 'MAXVALUE'")
}

// aheadOfIDs counts lane 0's partitions that lie beyond its ids, the last apart.
func (l *purgedLine) aheadOfIDs() int {
	return l.number("SELECT COUNT(*) FROM information_schema.partitions WHERE table_schema = DATABASE() AND table_name = 'slotline_outbox_00'"+
		" AND partition_description <> 'MAXVALUE' AND CAST(partition_description AS UNSIGNED) > (SELECT COALESCE(MAX(id), 0) FROM slotline_outbox_00)") - 1
}

func (l *purgedLine) wait(what string, limit time.Duration, ok func() bool) {
	l.t.Helper()
	for deadline := harness.Deadline(limit); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			l.t.Fatalf("after %v not yet: %s", limit, what)
		}
	}
}

// checkAll compares the topic with what committed: each event once, in generation 1, versions of an entity rising unless
// orderless; and the lanes at rest have no gap and no private table below their lowest partition.
func (l *purgedLine) checkAll(orderless bool) {
	l.t.Helper()
	want := map[event.ID]bool{}
	rows, err := l.db.Query("SELECT event_id FROM emitted")
	if err != nil {
		l.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var raw []byte
		if err := rows.Scan(&raw); err != nil {
			l.t.Fatal(err)
		}
		want[event.ID(raw)] = true
	}
	if err := rows.Err(); err != nil {
		l.t.Fatal(err)
	}
	last, got := map[string]int64{}, l.topic()
	left := len(want)
	for _, e := range got {
		key := e.Tenant + "/" + e.EntityID
		switch seen, ok := want[e.ID]; {
		case !ok:
			l.t.Errorf("the topic holds %+v, which did not commit", e.Outbox)
		case !seen:
			l.t.Errorf("event %s, %+v, is in the topic twice", e.ID, e.Outbox)
		case e.Outbox.Generation != 1:
			l.t.Errorf("generation %d began: %+v", e.Outbox.Generation, e.Outbox)
		case last[key] >= e.Version && !orderless:
			l.t.Errorf("entity %s: version %d follows %d", key, e.Version, last[key])
		default:
			left--
		}
		want[e.ID] = false
		last[key] = e.Version
	}
	if left > 0 {
		l.t.Errorf("%d of %d committed events are not in the topic", left, len(want))
	}
	l.t.Logf("%d committed, %d in the topic; %d rows are left in lane 0, its lowest partition ends before %d", len(want), len(got),
		l.number("SELECT COUNT(*) FROM slotline_outbox_00"), l.lowest())
}

func (l *purgedLine) privateTables() int {
	return l.number("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name LIKE '%\\_purge\\_%'")
}

// rollBack draws n ids and rolls them back; it returns the first.
func (l *purgedLine) rollBack(n int) uint64 {
	l.t.Helper()
	tx, err := l.db.BeginTx(l.t.Context(), nil)
	if err != nil {
		l.t.Fatal(err)
	}
	defer tx.Rollback()
	for i := range n {
		if err := l.producer.Emit(l.t.Context(), tx, l.accounts.Upsert(account{Owner: "rolled-back", ID: uint64(i)})); err != nil {
			l.t.Fatal(err)
		}
	}
	var id uint64
	if err := tx.QueryRow("SELECT MIN(id) FROM slotline_outbox_00 WHERE tenant = 'rolled-back'").Scan(&id); err != nil {
		l.t.Fatal(err)
	}
	return id
}

// emitMany emits n events of different entities in one transaction.
func (l *purgedLine) emitMany(from, n int) {
	l.t.Helper()
	if err := l.producer.Run(l.t.Context(), l.db, func(tx *producer.Tx) error {
		for i := range n {
			if err := l.producer.Emit(l.t.Context(), tx, l.accounts.Upsert(account{Owner: fmt.Sprintf("o%d", i%7), ID: uint64(from + i), Value: 1})); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		l.t.Error(err)
	}
}

// insertLate writes a row under an id that was drawn long ago: what an INSERT does that takes longer than the margin.
func (l *purgedLine) insertLate(id uint64) {
	l.t.Helper()
	l.exec("INSERT INTO slotline_outbox_00 (id, event_id, tbl, tenant, entity_id, op, codec, created_at, payload)"+
		" VALUES (?, ?, 'accounts', 'late', '1', 1, 1, UTC_TIMESTAMP(6), '{\"owner\":\"late\",\"account_id\":1,\"value\":1,\"pad\":\"\"}')",
		id, fmt.Appendf(nil, "late-event-%05d", id))
}

// P2: rows that committed late in a range that the purge wants, where no sweep has found them, are published; only then
// the range goes, and its gaps are forgotten.
func TestP2_OutboxPurgePublishesLateCommits(t *testing.T) {
	l := newPurgedLine(t, harness.MySQL(t), ", lanes: 1, lease_time: 5s, purge_rows: 100")
	l.timing.Sweep = time.Hour
	l.emitMany(0, 20)
	gap := l.rollBack(5)
	l.emitMany(20, 50)
	timing := l.timing
	l.timing.Split = time.Hour // not yet purged
	r := l.start()
	l.waitPublished(70, 10*time.Second)
	l.wait("the gaps are cold", 10*time.Second, func() bool {
		v, err := outbox.Views(t.Context(), l.db, 1)
		return err == nil && v[0].GapsCold == 5 && v[0].GapsHot == 0
	})
	l.insertLate(gap + 1)
	l.insertLate(gap + 3)
	l.emitMany(70, 230)
	l.waitPublished(300, 10*time.Second) // the late ones are not seen
	if n := len(l.topic()); n != 300 {
		t.Fatalf("%d records: the late rows are published already, the test tries nothing", n)
	}
	r.stop()
	l.timing = timing
	l.timing.Sweep = time.Hour
	r = l.start()
	l.waitPublished(302, 10*time.Second)
	l.wait("the partitions behind the cursor are purged", 10*time.Second, func() bool { return l.lowest() == 401 })
	r.stop()
	l.checkAll(true)
	if s := r.Lanes()[0]; s.PurgedPartitions != 3 || s.PurgedRows < 290 || s.PurgeHeld != nil {
		t.Errorf("the relay says %+v", s)
	}
	if v, err := outbox.Views(t.Context(), l.db, 1); err != nil || v[0].GapsCold+v[0].GapsHot > 0 {
		t.Errorf("gaps of purged partitions are kept: %+v, %v", v, err)
	}
	if n := l.privateTables(); n > 0 {
		t.Errorf("%d private tables are left", n)
	}
}

// P1, P2: relays that are killed in the middle of the purge, and anywhere else, leave neither a hole nor a repeat, and
// begin no generation.
func TestP1_OutboxPurgeAndKills(t *testing.T) {
	harness.Proof(t)
	l := newPurgedLine(t, harness.MySQL(t), ", lanes: 1, lease_time: 4s, purge_rows: 200")
	kills := 2
	if harness.Soak() {
		kills = 60
	}
	stop := make(chan struct{})
	emitting := make(chan struct{})
	go func() {
		defer close(emitting)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			if l.aheadOfIDs() < 2 { // a loaded machine alters tables slowly
				time.Sleep(10 * time.Millisecond)
				continue
			}
			l.emitMany(n*20, 20)
			if n%4 == 0 {
				l.rollBack(2)
			}
		}
	}()
	rnd := seeded(t)
	left := 0
	r := l.start()
	for i := range kills {
		// Half of them where a private table is there, the others at any moment.
		l.wait("a partition is purged", 30*time.Second, func() bool { return l.privateTables() > 0 || i%2 == 1 })
		time.Sleep(time.Duration(rnd.IntN(30+300*(i%2))) * time.Millisecond)
		r.kill()
		left += l.privateTables()
		r = l.start()
		low := l.lowest()
		l.wait("the next owner purges", 60*time.Second, func() bool { return l.lowest() > low })
	}
	close(stop)
	<-emitting
	l.waitPublished(l.emitted(), 30*time.Second)
	l.wait("all that lies behind is purged", 30*time.Second, func() bool {
		return l.lowest() > l.number("SELECT cursor_id FROM slotline_lane WHERE lane = 0") && l.privateTables() == 0
	})
	r.stop()
	l.checkAll(false)
	t.Logf("%d kills, %d private tables were left by them", kills, left)
}

// A prepared XA transaction keeps its ids through a restart of the server: the purge waits for it, and what it wrote is
// published when it commits.
func TestP2_OutboxPurgeWaitsForPreparedXA(t *testing.T) {
	harness.Proof(t)
	m := harness.PrivateMySQL(t)
	l := newPurgedLine(t, m, ", lanes: 1, lease_time: 5s, purge_rows: 100")
	l.emitMany(0, 10)
	conn, err := l.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{"XA START 'late'",
		"INSERT INTO slotline_outbox_00 (event_id, tbl, tenant, entity_id, op, codec, created_at, payload) VALUES ('prepared-event-1', 'accounts', 'xa', '1', 1, 1, UTC_TIMESTAMP(6), '{\"owner\":\"xa\",\"account_id\":1,\"value\":1,\"pad\":\"\"}')",
		"XA END 'late'", "XA PREPARE 'late'"} {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	conn.Raw(func(any) error { return sql.ErrConnDone })
	conn.Close()
	l.emitMany(10, 240)
	r := l.start()
	l.waitPublished(250, 10*time.Second)
	m.Restart(t)
	l.emitMany(250, 100)
	l.waitPublished(350, 30*time.Second)
	time.Sleep(time.Second) // many looks at the partitions
	if low := l.lowest(); low != 101 {
		t.Errorf("the partition that the prepared transaction wrote to is purged; the lowest ends before %d", low)
	}
	l.exec("XA COMMIT 'late'")
	l.waitPublished(351, 10*time.Second)
	l.wait("the partitions are purged", 20*time.Second, func() bool { return l.lowest() > 300 })
	r.stop()
	l.checkAll(true)
}

// Writers whose own transactions always take longer than the purge waits at first, with never a moment without one: it waits
// longer each time, and gets through.
func TestOutboxPurgeBehindSlowTransactions(t *testing.T) {
	t.Parallel() // most of it is waiting
	l := newPurgedLine(t, harness.MySQL(t), ", lanes: 1, lease_time: 5s, purge_rows: 100")
	r := l.start()
	var writers sync.WaitGroup
	done := make(chan struct{})
	for i := range 8 {
		writers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				list := make([]producer.Event, 10)
				for k := range list {
					list[k] = l.accounts.Upsert(account{Owner: fmt.Sprintf("w%d", i), ID: uint64(10*n + k), Value: 1})
				}
				tx, err := l.db.BeginTx(t.Context(), nil) // Run would insert at its end
				if err == nil {
					err = l.producer.Emit(t.Context(), tx, list...)
					time.Sleep(time.Duration(200+rand.IntN(200)) * time.Millisecond) // what the service does meanwhile; never all at once
					err = errors.Join(err, tx.Commit())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	began := time.Now()
	l.wait("something is purged", time.Minute, func() bool { return r.Lanes()[0].PurgedPartitions > 0 })
	t.Logf("purged after %v", time.Since(began))
	close(done)
	writers.Wait()
	l.waitPublished(l.emitted(), 30*time.Second)
	r.stop()
	l.checkAll(true)
}

// Purging while 20,000 events a second arrive: no deadlock, and the p99 of a transaction that emits is within 60 ms of its
// value on a line that is not purged. While a reader keeps a transaction open nothing is purged, and writers do not wait
// for it either.
func TestOutboxPurgeUnderLoad(t *testing.T) {
	harness.Proof(t)
	const (
		writers = 8
		events  = 50 // of a transaction
		rate    = 20_000
		lasts   = 4 * time.Second
		rounds  = 3
		// A slow machine, which is far from the rate, fills a few partitions too.
		purgeRows = 10_000
	)
	m := harness.MySQL(t)
	kept := newPurgedLine(t, m, ", lanes: 1, lease_time: 5s, purge_rows: 1000000")
	purged := newPurgedLine(t, m, fmt.Sprintf(", lanes: 1, lease_time: 5s, purge_rows: %d", purgeRows))
	relays := map[*purgedLine]*runningRelay{}
	for _, l := range []*purgedLine{kept, purged} {
		l.timing.Split = 300 * time.Millisecond
		relays[l] = l.start()
	}
	purges := func(l *purgedLine) uint64 { return relays[l].Lanes()[0].PurgedPartitions }
	var id atomic.Uint64
	var reached float64
	load := func(l *purgedLine, what string) (p99 time.Duration) {
		var mu sync.Mutex
		var took []time.Duration
		began, before := time.Now(), purges(l)
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() {
				tick := time.NewTicker(time.Second * writers * events / rate)
				defer tick.Stop()
				for time.Since(began) < lasts {
					<-tick.C
					list := make([]producer.Event, events)
					for k := range list {
						list[k] = l.accounts.Upsert(account{Owner: fmt.Sprintf("w%d", i), ID: id.Add(1), Pad: strings.Repeat("x", 300)})
					}
					began := time.Now()
					err := l.producer.Run(t.Context(), l.db, func(tx *producer.Tx) error { return l.producer.Emit(t.Context(), tx, list...) })
					if err != nil {
						t.Errorf("%s: %v", what, err) // a deadlock too
						return
					}
					mu.Lock()
					took = append(took, time.Since(began))
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		slices.Sort(took)
		p99, reached = took[len(took)*99/100], float64(events*len(took))/time.Since(began).Seconds()
		t.Logf("%s: %.0f events/s, a transaction of %d events: p50 %v p99 %v; %d partitions purged", what, reached, events, took[len(took)/2], p99, purges(l)-before)
		return p99
	}
	load(kept, "warming up")
	reader := purged.hold()
	if _, err := reader.Exec("SELECT COUNT(*) FROM slotline_outbox_00"); err != nil {
		t.Fatal(err)
	}
	without := load(kept, "not purged")
	held := load(purged, "purging, a reader keeps a transaction open")
	if n := purges(purged); n > 0 {
		t.Errorf("%d partitions were purged under an open transaction", n)
	}
	reader.Rollback()
	var least time.Duration // the least of the rounds: other work on the machine only adds
	for range rounds {
		without = min(without, load(kept, "not purged"))
		with := load(purged, "purging")
		if least == 0 || with < least {
			least = with
		}
	}
	if limit := without + 60*time.Millisecond; least > limit || held > limit {
		t.Errorf("p99 without purge %v; with %v, with a reader %v: more than 60 ms above", without, least, held)
	}
	due := uint64(purged.emitted()/purgeRows) - 1 // the last whole one may hold the cursor or the greatest id
	if due < 1 {
		t.Fatalf("only %d events: no partition of %d was filled", purged.emitted(), purgeRows)
	}
	purged.wait("partitions are purged", 20*time.Second, func() bool { return purges(purged) >= due })
	for _, l := range []*purgedLine{kept, purged} {
		l.waitPublished(l.emitted(), time.Minute)
		relays[l].stop()
		l.checkAll(true)
	}
}
