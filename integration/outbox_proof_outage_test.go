package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/integration/harness"
)

// P7, P10: the broker is away under full load. Admission refuses before the outbox holds much more than its bound, the
// relay's process stays within its memory, nothing becomes a dead letter, and when the broker is back everything is
// published, once and in the order of the commits.
func TestP10_OutboxProofBrokerOutage(t *testing.T) {
	harness.Proof(t)
	k, m := harness.PrivateKafka(t), harness.MySQL(t)
	const lanes, memory = 2, 64 << 20
	bound := int64(size(600, 100_000))
	l := newOutboxLine(t, k, m, fmt.Sprintf(", lanes: %d, lease_time: 2s, backlog_events_max: %d", lanes, bound))
	l.yaml += "limits: { memory_bytes_max: 64MiB }\n"
	file := l.applied(m)
	rnd := seeded(t)
	h := newHistory()
	const accounts = 400
	l.makeAccounts(accounts)
	relay := harness.Command{Args: []string{"-c", file, "relay"}, Name: "relay-" + l.cfg.Line}.Start(t)
	load := newRunningLoad(proofLoad{l: l, h: h, writers: 32, accounts: accounts, padBytes: 4000}, rnd)
	h.waitCommitted(t, 300)
	l.waitPublished(300, time.Minute)

	before, refusedBefore, began := h.count(committed), h.refusals(), time.Now()
	k.Kill(t)
	most, fastest, refusedAfter := int64(0), 0.0, time.Duration(0)
	last, lastAt := before, began
	outage := time.Duration(size(8, 120)) * time.Second
	for time.Since(began) < outage || refusedAfter == 0 {
		time.Sleep(100 * time.Millisecond)
		if time.Since(began) > outage+2*time.Minute {
			t.Fatalf("no transaction is refused after %v: %v", time.Since(began), h)
		}
		for _, b := range l.backlogs() {
			most = max(most, b.Events())
		}
		if refusedAfter == 0 && h.refusals() > refusedBefore {
			refusedAfter = time.Since(began)
		}
		if now, n := time.Now(), h.count(committed); now.Sub(lastAt) > 500*time.Millisecond {
			fastest = max(fastest, float64(n-last)/now.Sub(lastAt).Seconds())
			last, lastAt = n, now
		}
	}
	away := time.Since(began)
	stored := h.count(committed) - before
	k.Start(t)
	back := time.Now()
	h.waitCommitted(t, h.count(committed)+200) // admission opens by itself
	load.end()
	l.waitAllPublished(2 * time.Minute)
	t.Logf("away for %v at up to %.0f events/s: first refused after %v, %d events stored, at most %d in a lane whose bound is %d, %d transactions refused; drained %v after the broker was back",
		away.Round(time.Millisecond), fastest, refusedAfter.Round(time.Millisecond), stored, most, bound, h.refusals(), time.Since(back).Round(time.Millisecond))
	peak := relay.PeakBytes(t)
	t.Logf("the relay's process had at most %d MiB resident", peak>>20)
	if limit := int64(memory + 64<<20); peak > limit {
		t.Errorf("%d MiB resident, %d allowed", peak>>20, limit>>20)
	}
	// What is known of the lanes is up to 250 ms old, and a transaction that was let in may take a while.
	if slack := int64(fastest); most > bound+slack {
		t.Errorf("a lane held %d unpublished events, its bound is %d", most, bound)
	}
	if most < bound*9/10 {
		t.Errorf("the outage did not meet the bound of %d: %v", bound, h)
	}
	if r := relay.Stop(t, 30*time.Second); r.Code != 0 {
		t.Errorf("slotline relay ended with status %d after SIGTERM", r.Code)
	}
	l.checkProof(h, false)
	var dead int
	if err := l.db.QueryRow("SELECT COUNT(*) FROM slotline_dead").Scan(&dead); err != nil || dead > 0 {
		t.Errorf("%d dead letters, %v", dead, err)
	}
	if n := strings.Count(relay.Stderr(), "\n"); n > 2000 {
		t.Errorf("the relay wrote %d lines about one outage", n)
	}
}

func (h *history) refusals() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refused
}
