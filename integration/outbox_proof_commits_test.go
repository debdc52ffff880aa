package integration

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/slotline/slotline/integration/harness"
)

// P1, P2: 64 writers draw ids and commit in any order, a fifth of the transactions is rolled back. One transaction is held
// open for the whole run and committed at the end, another is prepared, outlives a restart of the server, and is
// committed after it. Each committed event is published once, and each account's events are in the order of its
// commits.
func TestP2_OutboxProofOutOfOrderCommits(t *testing.T) {
	harness.Proof(t)
	m := harness.PrivateMySQL(t)
	l := newOutboxLine(t, harness.Kafka(t), m, ", lanes: 4, lease_time: 2s")
	rnd := seeded(t)
	h := newHistory()
	const accounts = 200
	l.makeAccounts(accounts + 2)
	r := l.start()
	load := proofLoad{l: l, h: h, writers: 64, transactions: size(1200, 200_000), accounts: accounts, rollbackShare: 0.2, think: 15 * time.Millisecond, padBytes: 200}

	ctx := t.Context()
	prepared := preparedTransaction{l.conn()}
	prepared.exec(t, "XA START 'prepared'")
	preparedMark, err := l.change(ctx, prepared, h, accounts, "")
	if err != nil {
		t.Fatal(err)
	}
	prepared.exec(t, "XA END 'prepared'")
	prepared.exec(t, "XA PREPARE 'prepared'")
	held := l.hold()
	heldMark, err := l.change(ctx, held, h, accounts+1, "")
	if err != nil {
		t.Fatal(err)
	}

	began := time.Now()
	load.run(rnd)
	t.Logf("64 writers in %v: %v", time.Since(began).Round(time.Millisecond), h)
	if err := held.Commit(); err != nil {
		t.Fatal(err)
	}
	h.end([]string{heldMark}, committed)
	l.waitPublished(len(l.committed()), time.Minute)
	l.checkGaps(r)

	// The restart rolls back what is open, and keeps what is prepared.
	load.transactions /= 3
	running := make(chan struct{})
	go func() { defer close(running); load.run(rnd) }()
	time.Sleep(200 * time.Millisecond) // into the load, wherever that is
	m.Kill(t)
	m.Start(t)
	<-running
	l.waitPublished(len(l.committed()), time.Minute)
	time.Sleep(2 * l.timing.GapMargin) // older than a gap that turns cold
	for _, e := range l.topic() {
		if mark, _ := e.marked(t); mark == preparedMark {
			t.Fatal("the event of a prepared transaction is published before its commit")
		}
	}
	after := preparedTransaction{l.conn()}
	after.exec(t, "XA COMMIT 'prepared'")
	h.end([]string{preparedMark}, committed)
	l.waitPublished(len(l.committed()), time.Minute)
	r.stop()
	t.Log(h)
	l.checkProof(h, false)
	if n := h.count(committed); n < size(1200, 150_000) || h.count(rolledBack) < n/10 {
		t.Errorf("the writers did not do their part: %v", h)
	}
}

// checkGaps says how many gaps were met, and that not all became cold at once: those of the prepared transaction are hot.
func (l *outboxLine) checkGaps(r *runningRelay) {
	l.t.Helper()
	hot, cold := uint64(0), uint64(0)
	for _, s := range r.Lanes() {
		hot, cold = hot+s.GapsHot, cold+s.GapsCold
	}
	l.t.Logf("gaps: %d hot, %d cold", hot, cold)
	if hot == 0 || cold == 0 {
		l.t.Errorf("%d gaps are hot and %d cold; a transaction is open, and others were rolled back", hot, cold)
	}
}

func (l *outboxLine) conn() *sql.Conn {
	l.t.Helper()
	conn, err := l.db.Conn(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { conn.Close() })
	return conn
}

// preparedTransaction is an XA transaction on a connection, shown to Emit as a transaction.
type preparedTransaction struct{ *sql.Conn }

func (preparedTransaction) Commit() error   { return nil }
func (preparedTransaction) Rollback() error { return nil }

func (p preparedTransaction) exec(t *testing.T, statement string) {
	t.Helper()
	if _, err := p.ExecContext(context.WithoutCancel(t.Context()), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}
