package integration

import (
	"testing"
	"time"

	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/outbox"
)

// P1, P2: whatever the order of commits, what committed is published once and what rolled back is not; a transaction
// held open for the whole run delays nobody and is published when it commits.
func TestP2_OutboxOutOfOrderCommits(t *testing.T) {
	l := newOutboxLine(t, harness.Kafka(t), harness.MySQL(t), ", lanes: 2, lease_time: 1s")
	r := l.start()
	held, err := l.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Rollback()
	for i := range 3 {
		if err := l.producer.Emit(t.Context(), held, l.accounts.Upsert(account{Owner: "held-open", ID: uint64(i), Value: 1})); err != nil {
			t.Fatal(err)
		}
	}
	for _, ownTx := range []bool{true, false} {
		w := &writers{count: 24, transactions: 1500, rollbackShare: 0.2, think: 15 * time.Millisecond, ownTx: ownTx}
		w.run(l, seeded(t).Uint64())
		if n := w.unknown.Load(); n > 0 {
			t.Errorf("%d transactions failed", n)
		}
	}
	l.waitPublished(len(l.committed()), 10*time.Second)
	for _, b := range l.backlogs() {
		if b.OldestAge > 0 && b.Cursor < b.MaxID {
			t.Logf("lane %d: %+v", b.Lane, b)
		}
	}
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
