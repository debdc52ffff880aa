package integration

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/outbox"
)

// relayProcess starts a relay as a process of its own.
func relayProcess(t *testing.T, file, name string) *harness.Process {
	t.Helper()
	p := harness.Command{Args: []string{"-c", file, "relay"}, Name: name}.Start(t)
	t.Cleanup(func() {
		if p.Running() {
			p.Signal(t, syscall.SIGCONT) // one that is stopped would not see its end
		}
	})
	return p
}

// holds is how many lanes each owner has.
func (l *outboxLine) holds() map[string]int {
	count := map[string]int{}
	for _, b := range l.backlogs() {
		count[b.Owner]++
	}
	return count
}

// waitSpread waits until the lanes are spread as told, most first, and none is free.
func (l *outboxLine) waitSpread(limit time.Duration, want ...int) {
	l.t.Helper()
	began := time.Now()
	for {
		count := l.holds()
		if got := slices.Sorted(maps.Values(count)); count[""] == 0 && slices.Equal(got, want) {
			l.t.Logf("lanes are spread %v after %v", want, time.Since(began).Round(10*time.Millisecond))
			return
		}
		if time.Since(began) > limit {
			l.t.Fatalf("lanes are not spread %v after %v: %v", want, limit, count)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// steadyLoad emits to all lanes until stopped.
func (l *outboxLine) steadyLoad() (stop func()) {
	ctx, cancel := context.WithCancel(l.t.Context())
	var wg sync.WaitGroup
	load := &outboxLine{}
	*load = *l
	for i := range 3 {
		wg.Go(func() {
			w := &writers{rollbackShare: 0.1, think: 8 * time.Millisecond}
			rnd := rand.New(rand.NewPCG(uint64(i), 1))
			for ctx.Err() == nil {
				w.one(load, rnd, 40)
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

// delays are, by lane, the longest time from an append to its publishing; by what the relay stamped on the record.
func (l *outboxLine) delays() map[int]time.Duration {
	l.t.Helper()
	client, err := kafka.Open(l.t.Context(), l.cfg, "test", nil)
	if err != nil {
		l.t.Fatal(err)
	}
	defer client.Close()
	longest := map[int]time.Duration{}
	ends, err := kadm.NewClient(client).ListEndOffsets(l.t.Context(), l.cfg.Kafka.Topic)
	if err != nil {
		l.t.Fatal(err)
	}
	from, to := map[event.Partition]int64{}, map[event.Partition]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		p := event.Partition{Topic: o.Topic, Number: o.Partition}
		from[p], to[p] = 0, o.Offset
	})
	if err := kafka.Scan(l.t.Context(), l.cfg, "test", nil, from, to, func(r *kgo.Record) {
		var e event.Event
		rec := event.Record{Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			rec.Headers = append(rec.Headers, event.Header(h))
		}
		if err := event.ParseRecord(rec, &e); err == nil {
			longest[e.Outbox.Lane] = max(longest[e.Outbox.Lane], r.Timestamp.Sub(e.Time))
		}
	}); err != nil {
		l.t.Fatal(err)
	}
	return longest
}

// P1, P2: relays join and leave while events flow: the lanes are spread evenly, with drained hand-overs: nothing is lost,
// nothing is published twice, and the order holds.
func TestP1_OutboxLanesSpreadOverRelays(t *testing.T) {
	harness.Proof(t)
	m := harness.MySQL(t)
	l := newOutboxLine(t, harness.Kafka(t), m, ", lanes: 6, lease_time: 1500ms")
	file := l.applied(m)
	l.makeAccounts(40)
	stop := l.steadyLoad()
	a := relayProcess(t, file, "relay-a")
	l.waitSpread(20*time.Second, 6)
	b := relayProcess(t, file, "relay-b")
	l.waitSpread(20*time.Second, 3, 3)
	c := relayProcess(t, file, "relay-c")
	l.waitSpread(20*time.Second, 2, 2, 2)
	if r := a.Stop(t, 20*time.Second); r.Code != 0 {
		t.Errorf("relay a: exit status %d\n%s", r.Code, r.Stderr)
	}
	l.waitSpread(20*time.Second, 3, 3)
	stop()
	l.waitAllPublished(30 * time.Second)
	l.check(false, false)
	t.Logf("longest time from append to publishing, by lane, hand-overs included: %v", l.delays())
	for _, p := range []*harness.Process{b, c} {
		p.Signal(t, syscall.SIGTERM)
	}
	for _, p := range []*harness.Process{b, c} {
		if r := p.Wait(t, 20*time.Second); r.Code != 0 {
			t.Errorf("exit status %d\n%s", r.Code, r.Stderr)
		}
	}
	var rows int
	if err := l.db.QueryRow("SELECT COUNT(*) FROM slotline_relay").Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d rows of relays that have left, %v", rows, err)
	}
}

// The lanes of a relay that is killed are taken over within 6 s, with the lease time that a file has unless it says
// otherwise.
func TestP1_OutboxKilledRelaysLanesAreTakenOver(t *testing.T) {
	harness.Proof(t)
	m := harness.MySQL(t)
	l := newOutboxLine(t, harness.Kafka(t), m, ", lanes: 4")
	if l.cfg.Outbox.LeaseTime != 5*time.Second {
		t.Fatalf("the lease time is %v", l.cfg.Outbox.LeaseTime)
	}
	file := l.applied(m)
	l.makeAccounts(40)
	a := relayProcess(t, file, "relay-a")
	l.waitSpread(20*time.Second, 4)
	relayProcess(t, file, "relay-b")
	l.waitSpread(30*time.Second, 2, 2)
	stop := l.steadyLoad()
	time.Sleep(500 * time.Millisecond)
	a.Kill(t)
	killed := time.Now()
	dead := fmt.Sprintf("/%d/", a.Pid())
	stood := time.Duration(0) // the longest time that this machine let this loop stand
	for {
		left := 0
		for _, b := range l.backlogs() {
			if b.Owner == "" || strings.Contains(b.Owner, dead) {
				left++
			}
		}
		if left == 0 {
			break
		}
		before := time.Now()
		time.Sleep(20 * time.Millisecond)
		stood = max(stood, time.Since(before)-20*time.Millisecond)
		if time.Since(killed) > 20*time.Second {
			t.Fatalf("%d lanes are not taken over", left)
		}
	}
	took := time.Since(killed)
	t.Logf("all lanes of the killed relay were taken over %v after the kill; this test stood still for %v at most", took.Round(time.Millisecond), stood)
	if took > 6*time.Second+2*stood {
		t.Errorf("that took %v", took)
	}
	time.Sleep(500 * time.Millisecond)
	stop()
	l.waitAllPublished(30 * time.Second)
	l.check(false, false)
	t.Logf("longest time from append to publishing, by lane: %v", l.delays())
}

// A lane that halts at a relay whose file is behind runs at another.
func TestP7_OutboxHaltedLaneRunsElsewhere(t *testing.T) {
	harness.Proof(t)
	l := newOutboxLine(t, harness.Kafka(t), harness.MySQL(t), ", lanes: 2, lease_time: 1s")
	old := *l
	cfg := *l.cfg
	cfg.Tables = nil
	cfg.Dead.HaltPerMinute = 1
	old.cfg = &cfg
	l.emit(0, 40, 1)
	stale := old.start()
	l.waitViews(func(v []outbox.View) bool { return v[0].HaltCode == "SL5008" || v[1].HaltCode == "SL5008" })
	r := l.start()
	l.waitPublished(40, 20*time.Second)
	r.stop()
	stale.cancel()
	if err := <-stale.done; fault.CodeOf(err) != "SL5008" {
		t.Errorf("the relay with the stale file returned %v", err)
	}
	stale.done <- nil
	l.check(false, false)
}
