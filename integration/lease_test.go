package integration

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/lease"
)

// leaseTable is a table of one leased row, with a column that its holder changes under the guard.
type leaseTable struct {
	row lease.Row
	url string
	db  *sql.DB
}

func newLeaseTable(t *testing.T, server *harness.MySQLServer) *leaseTable {
	t.Helper()
	l := &leaseTable{
		row: lease.Row{Table: "slotline_lane", Where: "lane = ?", Args: []any{3}},
		url: server.URL(server.NewDatabase(t, harness.Name(t))),
	}
	l.db = l.open(t, mysqldb.Options{})
	for _, statement := range []string{
		"CREATE TABLE slotline_lane (lane INT PRIMARY KEY, " + lease.Columns + ", writes BIGINT NOT NULL DEFAULT 0)",
		"INSERT INTO slotline_lane (lane) VALUES (2), (3)",
	} {
		if _, err := l.db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func (l *leaseTable) open(t *testing.T, o mysqldb.Options) *sql.DB {
	t.Helper()
	dsn, err := config.ParseDSN("outbox.dsn", l.url)
	if err != nil {
		t.Fatal(err)
	}
	db, err := mysqldb.Open(dsn, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// write is what a holder does to its row: it counts if, and only if, the epoch is still the row's.
func (l *leaseTable) write(ctx context.Context, f lease.Fence) (bool, error) {
	res, err := l.db.ExecContext(ctx, "UPDATE slotline_lane SET writes = writes + 1 WHERE lane = 3 AND "+lease.Guard, f.Args()...)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n == 1, err
}

func (l *leaseTable) state(t *testing.T) (owner string, epoch, writes int64) {
	t.Helper()
	if err := l.db.QueryRow("SELECT owner, owner_epoch, writes FROM slotline_lane WHERE lane = 3").Scan(&owner, &epoch, &writes); err != nil {
		t.Fatal(err)
	}
	return owner, epoch, writes
}

// Several owners fight for one row. Now and then one stops for longer than its lease, wakes and writes: the row counts
// only the writes of whoever was the last to take it, and owner_epoch counts the take-overs.
func TestP5_LeaseOwnersFight(t *testing.T) {
	l := newLeaseTable(t, harness.MySQL(t))
	const owners, ttl = 4, 300 * time.Millisecond
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()

	var taken, written, refused, late atomic.Int64
	var latest atomic.Int64 // greatest epoch that any owner was given
	var all sync.WaitGroup
	for i := range owners {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			owner := lease.NewOwner()
			for ctx.Err() == nil {
				h, err := lease.Acquire(context.WithoutCancel(ctx), l.db, l.row, owner, ttl)
				if err != nil {
					if !fault.Is(err, fault.Fenced) {
						t.Errorf("take-over: %v", err)
						return
					}
					time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
					continue
				}
				taken.Add(1)
				for {
					seen := latest.Load()
					if h.Epoch() == seen {
						t.Errorf("epoch %d was given twice", seen)
					}
					if h.Epoch() < seen || latest.CompareAndSwap(seen, h.Epoch()) {
						break
					}
				}
				for range r.IntN(6) {
					paused := r.IntN(3) == 0
					if paused {
						time.Sleep(ttl + time.Duration(r.IntN(int(ttl))))
					}
					replaced := latest.Load() > h.Epoch() // read before the write
					alive := h.Alive()
					ok, err := l.write(context.WithoutCancel(ctx), h.Fence())
					switch {
					case err != nil:
						t.Errorf("write: %v", err)
					case ok && replaced:
						t.Errorf("a write under epoch %d after epoch %d was given", h.Epoch(), latest.Load())
					case ok:
						written.Add(1)
					case alive && h.Alive():
						t.Errorf("a write under epoch %d was refused while the lease ran", h.Epoch())
					default:
						refused.Add(1)
					}
					if paused {
						late.Add(1)
						if err := h.Renew(context.WithoutCancel(ctx)); !fault.Is(err, fault.Fenced) {
							t.Errorf("a lease that had run out was renewed: %v", err)
						}
					} else if err := h.Renew(context.WithoutCancel(ctx)); err != nil && !fault.Is(err, fault.Fenced) {
						t.Errorf("renewal: %v", err)
					}
				}
				if r.IntN(2) == 0 {
					if err := h.Release(context.WithoutCancel(ctx)); err != nil {
						t.Errorf("release: %v", err)
					}
				}
			}
		})
	}
	all.Wait()
	_, epoch, writes := l.state(t)
	if epoch != taken.Load() || writes != written.Load() {
		t.Errorf("owner_epoch %d after %d take-overs, %d writes of %d that succeeded", epoch, taken.Load(), writes, written.Load())
	}
	if taken.Load() < 10 || refused.Load() == 0 || late.Load() == 0 {
		t.Errorf("too little happened: %d take-overs, %d writes refused, %d pauses", taken.Load(), refused.Load(), late.Load())
	}
	t.Logf("%d take-overs, %d writes, %d refused, %d pauses", taken.Load(), written.Load(), refused.Load(), late.Load())
	var other int64
	if err := l.db.QueryRow("SELECT owner_epoch FROM slotline_lane WHERE lane = 2").Scan(&other); err != nil || other != 0 {
		t.Errorf("another row has owner_epoch %d (%v)", other, err)
	}
}

// The statements against an obvious twin: every grant ever made, in a list. The database's clock is the test's, and
// jumps; the leases are long by the clock here, so that what is refused is refused by the row.
func TestLeaseStatementsAgreeWithTheirTwin(t *testing.T) {
	l := newLeaseTable(t, harness.MySQL(t))
	db := l.open(t, mysqldb.Options{MaxConns: 1}) // one session: its clock can be set
	const steps, owners, ttl = 1500, 3, time.Minute
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))

	type grant struct {
		owner string
		until time.Time
		freed bool
	}
	var grants []grant
	last := func() *grant {
		if len(grants) == 0 {
			return &grant{freed: true}
		}
		return &grants[len(grants)-1]
	}
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	held := make([]*lease.Held, owners)
	for step := range steps {
		if r.IntN(4) == 0 {
			now = now.Add(time.Duration(r.IntN(int(4*ttl))) - ttl)
		} else {
			now = now.Add(time.Duration(r.IntN(int(ttl / 4))))
		}
		now = now.Truncate(time.Microsecond)
		if g := last(); !g.freed && r.IntN(10) == 0 {
			now = g.until // the very microsecond
		}
		if _, err := db.ExecContext(t.Context(), fmt.Sprintf("SET timestamp = %d.%06d", now.Unix(), now.Nanosecond()/1000)); err != nil {
			t.Fatal(err)
		}
		i := r.IntN(owners)
		owner := fmt.Sprint("owner", i)
		what := ""
		var err error
		var may bool
		switch g := last(); r.IntN(5) {
		case 0, 1:
			what, may = "take-over", g.freed || g.owner == owner || !now.Before(g.until)
			var h *lease.Held
			if h, err = lease.Acquire(t.Context(), db, l.row, owner, ttl); err == nil {
				held[i] = h
				grants = append(grants, grant{owner: owner, until: now.Add(ttl)})
				if h.Epoch() != int64(len(grants)) {
					t.Fatalf("step %d: owner epoch %d after %d take-overs", step, h.Epoch(), len(grants))
				}
			}
		case 2, 3:
			if held[i] == nil {
				continue
			}
			what, may = "renewal", held[i].Epoch() == int64(len(grants)) && !g.freed && now.Before(g.until) && held[i].Alive()
			if err = held[i].Renew(t.Context()); err == nil {
				g.until = now.Add(ttl)
			}
		case 4:
			if held[i] == nil {
				continue
			}
			what, may = "release", true
			if err = held[i].Release(t.Context()); err == nil && held[i].Epoch() == int64(len(grants)) {
				g.freed = true
			}
		}
		if may != (err == nil) || err != nil && !fault.Is(err, fault.Fenced) {
			t.Fatalf("step %d at %v: %s by %s: %v; the last of %d grants is %+v", step, now, what, owner, err, len(grants), *last())
		}
		if _, epoch, _ := l.state(t); epoch != int64(len(grants)) {
			t.Fatalf("step %d: the row has owner epoch %d after %d take-overs", step, epoch, len(grants))
		}
	}
	if len(grants) < steps/20 {
		t.Errorf("only %d take-overs", len(grants))
	}
}

// A lease outlives a restart of the server that is shorter than it, under the same epoch; and one that is killed for
// longer ends the lease here while it is down, for whoever comes first afterwards.
func TestLeaseOverRestarts(t *testing.T) {
	t.Parallel()
	server := harness.PrivateMySQL(t)
	l := newLeaseTable(t, server)
	ctx := t.Context()

	long, err := lease.Acquire(ctx, l.db, l.row, "host/1/long", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	server.Kill(t)
	if err := long.Renew(ctx); err == nil || fault.Is(err, fault.Fenced) {
		t.Errorf("renewal while the server is down: %v", err)
	}
	server.Start(t)
	if err := long.Renew(ctx); err != nil || !long.Alive() {
		t.Errorf("renewal after the restart: %v", err)
	}
	if ok, err := l.write(ctx, long.Fence()); !ok || err != nil {
		t.Errorf("write after the restart: %v, %v", ok, err)
	}
	if err := long.Release(ctx); err != nil {
		t.Fatal(err)
	}

	short, err := lease.Acquire(ctx, l.db, l.row, "host/1/short", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	kept := make(chan error, 1)
	go func() { kept <- short.Keep(ctx) }()
	server.Pause(t) // it answers nothing, connections stay open
	deadline := short.Deadline()
	select {
	case <-short.Lost():
		if late := time.Since(deadline); late > 500*time.Millisecond {
			t.Errorf("lost %v after the deadline", late)
		}
	case <-time.After(harness.Patience * 20 * time.Second):
		t.Fatal("the lease is not lost while the server is frozen")
	}
	if err := <-kept; !fault.Is(err, fault.Fenced) || short.Alive() {
		t.Errorf("Keep ended with %v", err)
	}
	server.Resume(t)
	var next *lease.Held
	for try := time.Now(); ; {
		// A renewal that was under way may have reached the server: then the row opens a lease time later.
		if next, err = lease.Acquire(ctx, l.db, l.row, "host/2/next", time.Second); err == nil {
			break
		}
		if !fault.Is(err, fault.Fenced) || time.Since(try) > 10*time.Second {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if next.Epoch() != short.Epoch()+1 {
		t.Errorf("owner epoch went from %d to %d", short.Epoch(), next.Epoch())
	}
	if ok, err := l.write(ctx, short.Fence()); ok || err != nil {
		t.Errorf("the former owner's write: %v, %v", ok, err)
	}
	if ok, err := l.write(ctx, next.Fence()); !ok || err != nil {
		t.Errorf("the owner's write: %v, %v", ok, err)
	}
}

// A renewal that waits for a lock on the row ends with the lease, not with the lock.
func TestLeaseRenewalDoesNotWaitPastItsDeadline(t *testing.T) {
	l := newLeaseTable(t, harness.MySQL(t))
	h, err := lease.Acquire(t.Context(), l.db, l.row, lease.NewOwner(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := l.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.Exec("UPDATE slotline_lane SET writes = writes WHERE lane = 3"); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := h.Keep(t.Context()); !fault.Is(err, fault.Fenced) {
		t.Errorf("Keep ended with %v", err)
	}
	if took := time.Since(start); took > harness.Patience*3*time.Second || h.Alive() {
		t.Errorf("noticed after %v, alive %v", took, h.Alive())
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	for try := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		next, err := lease.Acquire(t.Context(), l.db, l.row, lease.NewOwner(), time.Second)
		if err == nil {
			if next.Epoch() != h.Epoch()+1 {
				t.Errorf("owner epoch went from %d to %d", h.Epoch(), next.Epoch())
			}
			return
		}
		if !fault.Is(err, fault.Fenced) || time.Since(try) > 10*time.Second {
			t.Fatal(err)
		}
	}
}
