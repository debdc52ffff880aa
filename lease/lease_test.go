package lease

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slotline/slotline/fault"
)

const ttl = time.Second

// bubble runs a test on a clock that stands still while anything runs.
func bubble(t *testing.T, f func(t *testing.T, m *memStore)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, &memStore{}) })
}

func take(t *testing.T, m *memStore, owner string) *Held {
	t.Helper()
	h, err := acquire(t.Context(), m, "row", owner, ttl)
	if err != nil {
		t.Fatalf("%s: %v", owner, err)
	}
	return h
}

func lost(h *Held) bool {
	synctest.Wait()
	select {
	case <-h.Lost():
		return true
	default:
		return false
	}
}

func wantFault(t *testing.T, err error, code string, class fault.Class) {
	t.Helper()
	if fault.CodeOf(err) != code || fault.ClassOf(err) != class {
		t.Fatalf("error is %s (%v), want %s (%v): %v", fault.CodeOf(err), fault.ClassOf(err), code, class, err)
	}
}

func TestP5_PausedOwnerChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, m *memStore) {
		a := take(t, m, "a")
		time.Sleep(ttl + time.Millisecond) // a is stopped for longer than its lease
		b := take(t, m, "b")
		if b.Epoch() != a.Epoch()+1 {
			t.Errorf("owner epoch went from %d to %d", a.Epoch(), b.Epoch())
		}
		if a.Alive() || !lost(a) {
			t.Error("a does not know that its lease ran out")
		}
		if m.write(a.Fence()) {
			t.Error("a wrote after b took over")
		}
		if !m.write(b.Fence()) {
			t.Error("b cannot write")
		}
		wantFault(t, a.Renew(t.Context()), "SL7002", fault.Fenced)
		if err := a.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if m.st.owner != "b" || !b.Alive() {
			t.Error("a's release took b's lease away")
		}
		b.Release(t.Context())
	})
}

func TestHeldRowIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, m *memStore) {
		a := take(t, m, "host/1/aa")
		defer a.Release(context.WithoutCancel(t.Context()))
		time.Sleep(ttl - time.Millisecond)
		_, err := acquire(t.Context(), m, "slotline_lane (lane = 3)", "b", ttl)
		wantFault(t, err, "SL7001", fault.Fenced)
		for _, part := range []string{"slotline_lane (lane = 3)", "host/1/aa", "owner epoch 1", "1ms"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q is not in: %v", part, err)
			}
		}
		time.Sleep(time.Millisecond)
		b := take(t, m, "b") // expired to the microsecond
		b.Release(t.Context())
	})
}

// The holder must stop before the database lets another in, however slow the network: its deadline counts from before
// the request was sent, the database's from when it arrived.
func TestP5_AliveEndsBeforeTheRowOpens(t *testing.T) {
	for _, delay := range []time.Duration{0, 10 * time.Millisecond, 250 * time.Millisecond} {
		t.Run(delay.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, m *memStore) {
				m.there, m.back = delay, delay/2
				a := take(t, m, "a")
				for range 3 {
					if end := m.st.until.Add(-m.skew); a.Deadline().After(end) {
						t.Fatalf("alive until %v, the row opens at %v", a.Deadline(), end)
					}
					if err := a.Renew(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				a.Release(t.Context())
			})
		})
	}
}

func TestLostClosesAtTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, m *memStore) {
		a := take(t, m, "a")
		time.Sleep(ttl - time.Nanosecond)
		if !a.Alive() || lost(a) {
			t.Error("lost before the deadline")
		}
		time.Sleep(time.Nanosecond)
		if a.Alive() || !lost(a) {
			t.Error("not lost at the deadline")
		}
	})
}

// A renewal whose answer comes after the deadline is of no use: Lost was closed, and the holder may have stopped.
func TestLateRenewalDoesNotRevive(t *testing.T) {
	bubble(t, func(t *testing.T, m *memStore) {
		a := take(t, m, "a")
		time.Sleep(ttl / 2)
		m.set(func(m *memStore) { m.back = ttl })
		if err := a.Renew(t.Context()); err == nil {
			t.Error("a renewal that was answered after the deadline succeeded")
		}
		if a.Alive() || !lost(a) {
			t.Error("alive after the deadline")
		}
	})
}

func TestKeepRenewsUntilStopped(t *testing.T) {
	bubble(t, func(t *testing.T, m *memStore) {
		m.there = 5 * time.Millisecond
		a := take(t, m, "a")
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Keep(ctx) }()
		for range 50 {
			time.Sleep(ttl / 4)
			if !a.Alive() {
				t.Fatal("not alive while kept")
			}
		}
		// An outage of two thirds of the lease is survived.
		m.set(func(m *memStore) { m.down = true })
		time.Sleep(ttl * 6 / 10)
		m.set(func(m *memStore) { m.down = false })
		time.Sleep(ttl)
		if !a.Alive() {
			t.Error("an outage shorter than the lease lost it")
		}
		stop()
		if err := <-done; err != nil {
			t.Errorf("Keep after its context ended: %v", err)
		}
		if !a.Alive() {
			t.Error("Keep released the lease")
		}
		if err := a.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestKeepEndsWhenLost(t *testing.T) {
	for name, breaks := range map[string]func(m *memStore){
		"the database is gone":        func(m *memStore) { m.down = true },
		"another took over":           func(m *memStore) { m.st.owner, m.st.epoch = "b", m.st.epoch+1 },
		"the database's clock jumped": func(m *memStore) { m.skew += time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, m *memStore) {
				a := take(t, m, "a")
				done := make(chan error)
				go func() { done <- a.Keep(t.Context()) }()
				m.set(breaks)
				start := time.Now()
				wantFault(t, <-done, "SL7002", fault.Fenced)
				if time.Since(start) > ttl || a.Alive() || !lost(a) {
					t.Errorf("noticed after %v, alive %v", time.Since(start), a.Alive())
				}
			})
		})
	}
}

func TestReleaseOpensTheRowAndKeepsTheEpoch(t *testing.T) {
	bubble(t, func(t *testing.T, m *memStore) {
		a := take(t, m, "a")
		if err := a.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if a.Alive() || !lost(a) || m.st.epoch != a.Epoch() {
			t.Errorf("after release: alive %v, epoch %d", a.Alive(), m.st.epoch)
		}
		wantFault(t, a.Renew(t.Context()), "SL7002", fault.Fenced)
		b := take(t, m, "b")
		if b.Epoch() != a.Epoch()+1 {
			t.Errorf("owner epoch went from %d to %d", a.Epoch(), b.Epoch())
		}
		b.Release(t.Context())
	})
}

// The database took the row for us, and the connection broke before it said so. Our next try must get it at once, under
// a new epoch: nobody knows whether somebody works under the first.
func TestLostAnswerOfATakeOver(t *testing.T) {
	bubble(t, func(t *testing.T, m *memStore) {
		m.st = state{owner: "a", epoch: 7, until: time.Now().Add(ttl)}
		a := take(t, m, "a")
		if a.Epoch() != 8 {
			t.Errorf("owner epoch is %d", a.Epoch())
		}
		again := take(t, m, "a")
		wantFault(t, a.Renew(t.Context()), "SL7002", fault.Fenced)
		again.Release(t.Context())
	})
}

func TestOnlyOneOfManyGetsTheRow(t *testing.T) {
	bubble(t, func(t *testing.T, m *memStore) {
		m.there, m.back = time.Millisecond, time.Millisecond // all read before any takes
		got := make(chan *Held)
		const tries = 8
		for i := range tries {
			go func() {
				h, err := acquire(t.Context(), m, "row", fmt.Sprint("owner", i), ttl)
				if err != nil {
					wantFault(t, err, "SL7001", fault.Fenced)
				}
				got <- h
			}()
		}
		holders := 0
		for range tries {
			if h := <-got; h != nil {
				holders++
				defer h.Release(context.WithoutCancel(t.Context()))
			}
		}
		if holders != 1 || m.st.epoch != 1 {
			t.Errorf("%d holders, owner epoch %d", holders, m.st.epoch)
		}
	})
}

func TestErrors(t *testing.T) {
	bubble(t, func(t *testing.T, m *memStore) {
		m.absent = true
		_, err := acquire(t.Context(), m, "row", "a", ttl)
		wantFault(t, err, "SL7003", fault.Fatal)
		m.absent, m.down = false, true
		if _, err = acquire(t.Context(), m, "row", "a", ttl); fault.CodeOf(err) != "SL7004" {
			t.Error(err)
		}
		for _, bad := range []struct {
			owner string
			ttl   time.Duration
		}{{"", ttl}, {strings.Repeat("x", 129), ttl}, {"a", 0}, {"a", TTLMax + 1}} {
			if _, err := acquire(t.Context(), m, "row", bad.owner, bad.ttl); err == nil {
				t.Errorf("owner %q, ttl %v was taken", bad.owner, bad.ttl)
			}
		}
	})
}

func TestNewOwner(t *testing.T) {
	a, b := NewOwner(), NewOwner()
	if a == b || len(a) > ownerBytesMax || strings.Count(a, "/") < 2 {
		t.Errorf("%q, %q", a, b)
	}
}

// Two renewals are under way; the answer to the earlier one comes last. It ends the lease no sooner than the later one said.
func TestRenewalsMayOvertakeEachOther(t *testing.T) {
	bubble(t, func(t *testing.T, m *memStore) {
		h := take(t, m, "a")
		m.back = 300 * time.Millisecond
		done := make(chan error)
		go func() { done <- h.Renew(t.Context()) }()
		synctest.Wait()
		time.Sleep(100 * time.Millisecond)
		m.back = 0
		later := time.Now()
		if err := h.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if want := later.Add(ttl); !h.Deadline().Equal(want) {
			t.Errorf("the lease runs out %v before the later renewal says", want.Sub(h.Deadline()))
		}
		h.end()
	})
}
