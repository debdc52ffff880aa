package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/outbox"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/producer"
)

// fill appends events of bodyBytes to lane 0's tenants in transactions of 500, and rolls 5 % of the transactions back.
func (l *outboxLine) fill(events, bodyBytes int) (committed int) {
	l.t.Helper()
	rnd := rand.New(rand.NewPCG(1, 1))
	pad := strings.Repeat("x", max(0, bodyBytes-60))
	for n := 0; n < events; n += 500 {
		list := make([]event.Event, 500)
		for i := range list {
			owner := fmt.Sprintf("owner-%d", rnd.IntN(500))
			list[i] = event.Event{ID: event.NewID(), Table: "accounts", Tenant: owner, EntityID: fmt.Sprint(n + i), Op: event.Upsert,
				Time: time.Now(), Body: fmt.Appendf(nil, `{"owner":"%s","account_id":%d,"value":%d,"pad":"%s"}`, owner, n+i, i, pad)}
		}
		tx, err := l.db.Begin()
		if err != nil {
			l.t.Fatal(err)
		}
		for _, in := range outbox.Inserts(list, l.cfg.Outbox.Lanes) {
			if _, err := tx.Exec(in.SQL); err != nil {
				l.t.Fatal(err)
			}
		}
		if rnd.IntN(20) == 0 {
			tx.Rollback()
			continue
		}
		if err := tx.Commit(); err != nil {
			l.t.Fatal(err)
		}
		committed += len(list)
	}
	return committed
}

// The figures are printed, and only gross failures fail the test: the machine is shared.
func TestOutboxFigures(t *testing.T) {
	harness.Proof(t)
	l := newOutboxLine(t, harness.Kafka(t), harness.MySQL(t), ", lanes: 1, lease_time: 5s")
	l.timing = outbox.Timing{}
	n := l.fill(100_000, 512)

	began := time.Now()
	r := l.start()
	l.waitPublished(n, time.Minute)
	took := time.Since(began)
	t.Logf("drain: %d events of 512 B, one lane, 12 headers, 5%% rolled back: %.0f events/s (start and take-over included)", n, float64(n)/took.Seconds())
	r.stop()

	// Commit to acknowledgement, with the relay in the emitting process.
	r = l.start()
	l.producer = producer.New(l.cfg, producer.WithWake(r.Wake))
	time.Sleep(500 * time.Millisecond)
	before := r.Lanes()[0]
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	var alone, emitting []time.Duration
	tick := time.NewTicker(5 * time.Millisecond) // 200 transactions/s
	defer tick.Stop()
	if _, err := l.db.Exec("CREATE TABLE own (id BIGINT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(100))"); err != nil {
		t.Fatal(err)
	}
	for i := 0; ctx.Err() == nil; i++ {
		<-tick.C
		began := time.Now()
		err := l.producer.Run(t.Context(), l.db, func(tx *producer.Tx) error {
			if _, err := tx.ExecContext(t.Context(), "INSERT INTO own (v) VALUES ('x')"); err != nil || i%2 == 0 {
				return err
			}
			return l.producer.Emit(t.Context(), tx, l.accounts.Upsert(account{Owner: "o", ID: uint64(i), Pad: strings.Repeat("x", 400)}))
		})
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			alone = append(alone, time.Since(began))
		} else {
			emitting = append(emitting, time.Since(began))
		}
	}
	time.Sleep(300 * time.Millisecond)
	after := r.Lanes()[0]
	t.Logf("append to ack at 100 events/s, bounds in s: %s", quantiles(before.Latency, after.Latency))
	slices.Sort(alone)
	slices.Sort(emitting)
	t.Logf("a transaction with one INSERT: p50 %v p99 %v; with one event more: p50 %v p99 %v (%d each)",
		alone[len(alone)/2], alone[len(alone)*99/100], emitting[len(emitting)/2], emitting[len(emitting)*99/100], len(alone))

	r.stop()
}

// quantiles are the bucket bounds below which 50 and 99 % of the events between two states lie.
func quantiles(before, after []uint64) string {
	total, counts := uint64(0), make([]uint64, len(after))
	for i := range after {
		counts[i] = after[i] - before[i]
		total += counts[i]
	}
	bound := func(share float64) string {
		sum := uint64(0)
		for i, c := range counts {
			if sum += c; float64(sum) >= share*float64(total) && i < len(outbox.LatencyBounds) {
				return fmt.Sprint(outbox.LatencyBounds[i])
			}
		}
		return "more"
	}
	return fmt.Sprintf("p50 <= %s, p99 <= %s of %d", bound(0.5), bound(0.99), total)
}

// P10: an idle relay of four lanes asks less than two queries a second per lane, and takes less than a hundredth of a core;
// the first event after that, from another process, waits half a second at most.
func TestOutboxIdleRelay(t *testing.T) {
	harness.Proof(t)
	const lanes = 4
	m := harness.PrivateMySQL(t)
	l := newOutboxLine(t, harness.Kafka(t), m, fmt.Sprintf(", lanes: %d", lanes))
	file := l.applied(m)
	p := harness.Command{Args: []string{"-c", file, "relay"}}.Start(t)
	l.accountsIn(lanes, 0)
	l.waitPublished(lanes, time.Minute)
	settles := 25 * time.Second // then partitions were looked at once more (each 20 s), and the reads have slowed down
	time.Sleep(settles)

	// idle measures a while in which nothing is emitted.
	idle := func() (asked, bytes float64, used time.Duration) {
		status := func() (questions, received int64) {
			rows, err := l.db.Query("SHOW GLOBAL STATUS WHERE Variable_name IN ('Bytes_received', 'Questions')")
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			for rows.Next() {
				var name string
				var n int64
				if err := rows.Scan(&name, &n); err != nil {
					t.Fatal(err)
				}
				if name == "Questions" {
					questions = n
				} else {
					received = n
				}
			}
			return questions, received
		}
		cpu, began := p.CPU(t), time.Now()
		q, b := status()
		time.Sleep(time.Minute) // what comes each 2, 10, 20 and 60 s is in it as often in each
		q2, b2 := status()
		took := time.Since(began)
		asked, bytes = float64(q2-q-1)/took.Seconds()/lanes, float64(b2-b)/took.Seconds()/lanes
		used = (p.CPU(t) - cpu) * time.Second / took
		t.Logf("idle: %.2f queries/s and %.0f B/s per lane of %d, %.2f %% of a core", asked, bytes, lanes, 100*used.Seconds())
		return asked, bytes, used
	}
	asked, bytes, used := idle()
	if asked >= 2 {
		t.Errorf("an idle relay asks %.2f queries/s per lane", asked)
	}
	if used > time.Second/50 { // twice what is promised: a loaded machine makes the same work dearer
		t.Errorf("an idle relay computes for %v in a second", used)
	}
	var slowest time.Duration
	for i := 1; i <= 4; i++ {
		time.Sleep(1500 * time.Millisecond)
		began := time.Now()
		l.accountsIn(1, i)
		l.waitPublished(lanes+i, time.Minute)
		slowest = max(slowest, time.Since(began))
	}
	t.Logf("the first event after idling, from another process: %v at most", slowest.Round(time.Millisecond))
	if slowest > 1500*time.Millisecond { // half a second, and what a loaded machine adds
		t.Errorf("an idle relay needed %v for an event", slowest)
	}

	// 5 % of the ids of a while were rolled back, each by itself.
	const gaps = 3000
	n := lanes + 4
	for range gaps {
		rolledBack, err := l.db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		l.insertInto(rolledBack, "owner-0", 1)
		rolledBack.Rollback()
		l.insertInto(l.db, "owner-0", 19)
		n += 19
	}
	l.waitPublished(n, 2*time.Minute)
	for deadline := harness.Deadline(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		var hot string
		var cold int
		if err := l.db.QueryRow("SELECT hot, (SELECT COUNT(*) FROM slotline_lane_gap g WHERE g.lane = l.lane AND ids <> '') FROM slotline_lane l WHERE lane = ?",
			partitioner.Lane("owner-0", lanes)).Scan(&hot, &cold); err != nil {
			t.Fatal(err)
		}
		if hot == "" && cold > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("gaps stay hot: %.100s", hot)
		}
	}
	time.Sleep(settles)
	askedAfter, bytesAfter, _ := idle()
	t.Logf("after %d ids that were rolled back, an idle lane asks %.2f times as often and sends %.2f times the bytes", gaps, askedAfter/asked, bytesAfter/bytes)
	if askedAfter > 1.2*asked || bytesAfter > 2*bytes { // a sweep of the cold gaps may be among them
		t.Errorf("rolled-back ids make an idle relay dearer")
	}
	if r := p.Stop(t, 30*time.Second); r.Code != 0 {
		t.Errorf("slotline relay ended with status %d after SIGTERM", r.Code)
	}
}

// insertInto appends events of a tenant by hand.
func (l *outboxLine) insertInto(tx producer.Transaction, owner string, n int) {
	l.t.Helper()
	list := make([]event.Event, n)
	for i := range list {
		list[i] = event.Event{ID: event.NewID(), Table: "accounts", Tenant: owner, EntityID: fmt.Sprint(i), Op: event.Upsert,
			Time: time.Now(), Body: fmt.Appendf(nil, `{"owner":"%s","account_id":%d,"value":%d,"pad":""}`, owner, i, i)}
	}
	for _, in := range outbox.Inserts(list, l.cfg.Outbox.Lanes) {
		if _, err := tx.ExecContext(l.t.Context(), in.SQL); err != nil {
			l.t.Fatal(err)
		}
	}
}

// accountsIn emits one account into each of the first lanes.
func (l *outboxLine) accountsIn(lanes, id int) {
	l.t.Helper()
	for i, found := 0, map[int]bool{}; len(found) < lanes; i++ {
		owner := fmt.Sprintf("owner-%d", i)
		lane := partitioner.Lane(owner, l.cfg.Outbox.Lanes)
		if lane >= lanes || found[lane] {
			continue
		}
		found[lane] = true
		err := l.producer.Run(l.t.Context(), l.db, func(tx *producer.Tx) error {
			return l.producer.Emit(l.t.Context(), tx, l.accounts.Upsert(account{Owner: owner, ID: uint64(id)}))
		})
		if err != nil {
			l.t.Fatal(err)
		}
	}
}
