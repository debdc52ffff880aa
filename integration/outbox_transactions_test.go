package integration

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/outbox"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/producer"
)

// slowHands keep what a relay hands to Kafka until they are told to let go, as if the relay was paused between reading
// and sending.
type slowHands struct {
	mu    sync.Mutex
	slow  bool
	held  []func() // each sends what was handed over at once
	count int      // records held, or that were
	heard int      // answers
	lost  error    // the last that a producer was lost with
}

type slowWriter struct {
	outbox.Writer
	h *slowHands
}

func (w slowWriter) Produce(outs []*outbox.Out) {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	if w.h.slow {
		w.h.held = append(w.h.held, func() { w.Writer.Produce(outs) })
		w.h.count += len(outs)
		return
	}
	w.Writer.Produce(outs)
}

func (w slowWriter) Answers(dst []outbox.Answer) []outbox.Answer {
	before := len(dst)
	dst = w.Writer.Answers(dst)
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	for _, a := range dst[before:] {
		w.h.heard++
		if errors.Is(a.Err, outbox.ErrProducerLost) {
			w.h.lost = a.Err
		}
	}
	return dst
}

func (h *slowHands) letGo() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.slow = false
	for _, send := range h.held {
		send()
	}
	h.held = nil
}

// until waits for a condition on what the hands hold and hear.
func (h *slowHands) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := harness.Deadline(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		h.mu.Lock()
		done := ok()
		h.mu.Unlock()
		if done {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// P5: a relay that has lost a lane, and does not know it, sends what it had read. With transactional lanes the broker
// refuses it: it adds nothing to the topic, changes no lease, says why, and recovers by itself. Without, it adds repeats.
func TestP5_OutboxZombieThatDoesNotKnow(t *testing.T) {
	harness.Proof(t)
	for _, transactional := range []bool{false, true} {
		t.Run(fmt.Sprintf("transactional %v", transactional), func(t *testing.T) {
			// The lease is so long that its end tells the zombie nothing.
			l := newOutboxLine(t, harness.Kafka(t), harness.MySQL(t), fmt.Sprintf(", lanes: 2, lease_time: 60s, transactional: %v", transactional))
			tenant := ""
			for i := 0; tenant == ""; i++ {
				if s := fmt.Sprintf("tenant-%d", i); partitioner.Lane(s, 2) == 1 {
					tenant = s
				}
			}
			emit := func(from, to int) { // in one transaction, so that one read finds them
				if err := l.producer.Run(t.Context(), l.db, func(tx *producer.Tx) error {
					for i := from; i < to; i++ {
						if err := l.producer.Emit(t.Context(), tx, l.accounts.Upsert(account{Owner: tenant, ID: uint64(i), Value: 1})); err != nil {
							return err
						}
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			hands := &slowHands{}
			paused := *l
			paused.wrap = func(w outbox.Writer) outbox.Writer { return slowWriter{w, hands} }
			paused.timing.Drain = time.Minute
			zombie := paused.start()
			l.waitSpread(20*time.Second, 2)
			emit(0, 5)
			l.waitAllPublished(20 * time.Second)
			hands.until(t, "five answers", func() bool { hands.slow = true; return hands.heard == 5 })
			emit(5, 25)
			hands.until(t, "the zombie has read what it will send", func() bool { return hands.count == 20 })

			before := l.backlogs()[1]
			if _, err := l.db.Exec("UPDATE slotline_lane SET owner = '', lease_until = '1970-01-01 00:00:01' WHERE lane = 1"); err != nil {
				t.Fatal(err)
			}
			b := l.start() // has none of two lanes, so this one is its own
			l.waitAllPublished(20 * time.Second)
			after := l.backlogs()[1]
			if after.Owner == "" || after.Owner == before.Owner || after.OwnerEpoch != before.OwnerEpoch+1 {
				t.Fatalf("lane 1 went from %s, epoch %d, to %s, epoch %d", before.Owner, before.OwnerEpoch, after.Owner, after.OwnerEpoch)
			}
			hands.letGo()
			hands.until(t, "the zombie hears of what it sent", func() bool { return hands.lost != nil || hands.heard == 25 })
			if v := l.backlogs()[1]; v.Owner != after.Owner || v.OwnerEpoch != after.OwnerEpoch {
				t.Errorf("lane 1 went from %s, epoch %d, to %s, epoch %d", after.Owner, after.OwnerEpoch, v.Owner, v.OwnerEpoch)
			}
			if transactional {
				if fault.CodeOf(hands.lost) != "SL5015" || !strings.Contains(hands.lost.Error(), "another relay has taken the lane over") {
					t.Errorf("the zombie hears: %v", hands.lost)
				}
				t.Logf("the zombie hears: %v", hands.lost)
			}
			b.stop()
			emit(25, 30) // the zombie is an ordinary relay again, and takes the lane over
			l.waitAllPublished(30 * time.Second)
			if v := l.backlogs()[1]; v.Owner != before.Owner {
				t.Errorf("lane 1 is %s's", v.Owner)
			}
			zombie.stop()
			if repeats := len(l.check(!transactional, !transactional)) - 30; !transactional && repeats != 20 {
				t.Errorf("%d repeats: the zombie sent 20 events", repeats)
			}
		})
	}
}

// P5: a process that was stopped and wakes after its lanes were taken over. With transactional lanes the topic holds
// nothing twice, whatever was under way.
func TestP5_OutboxStoppedProcessWakes(t *testing.T) {
	harness.Proof(t)
	for _, transactional := range []bool{false, true} {
		t.Run(fmt.Sprintf("transactional %v", transactional), func(t *testing.T) {
			m := harness.MySQL(t)
			l := newOutboxLine(t, harness.Kafka(t), m, fmt.Sprintf(", lanes: 2, lease_time: 2s, transactional: %v", transactional))
			file := l.applied(m)
			l.makeAccounts(40)
			relays := []*harness.Process{relayProcess(t, file, "relay-a"), relayProcess(t, file, "relay-b")}
			l.waitSpread(30*time.Second, 1, 1)
			stop := l.steadyLoad()
			for round := range size(2, 10) {
				p := relays[round%2]
				mine := fmt.Sprintf("/%d/", p.Pid())
				p.Signal(t, syscall.SIGSTOP)
				before := l.waitViews(func(v []outbox.View) bool {
					return v[0].Owner != "" && v[1].Owner != "" && !strings.Contains(v[0].Owner+v[1].Owner, mine)
				})
				p.Signal(t, syscall.SIGCONT)
				time.Sleep(300 * time.Millisecond) // within the time that it must be live to be handed a lane
				for i, v := range l.backlogs() {
					if v.OwnerEpoch != before[i].OwnerEpoch || v.Owner != before[i].Owner {
						t.Errorf("lane %d: %s under epoch %d was replaced by %s under %d when the zombie woke", i, before[i].Owner, before[i].OwnerEpoch, v.Owner, v.OwnerEpoch)
					}
				}
				l.waitSpread(30*time.Second, 1, 1) // it recovers by itself, and is handed a lane
			}
			stop()
			l.waitAllPublished(30 * time.Second)
			l.check(!transactional, !transactional)
		})
	}
}

// P1 with transactional lanes: relays that die with transactions open leave neither a hole nor a repeat.
func TestP1_OutboxTransactionalRelayKilled(t *testing.T) {
	harness.Proof(t)
	l := newOutboxLine(t, harness.Kafka(t), harness.MySQL(t), ", lanes: 2, lease_time: 500ms, transactional: true")
	l.makeAccounts(40)
	rnd := seeded(t)
	stop := l.steadyLoad()
	r := l.start()
	for range size(4, 40) {
		time.Sleep(time.Duration(200+rnd.IntN(600)) * time.Millisecond)
		r.kill()
		r = l.start()
	}
	stop()
	l.waitAllPublished(30 * time.Second)
	r.stop()
	l.check(false, false)
}

// P7, P13 with transactional lanes: a partition that refuses does not hold up the others, and its events come in order
// when it takes records again.
func TestP13_OutboxTransactionalPartitionRefuses(t *testing.T) {
	harness.Proof(t)
	l := newOutboxLine(t, harness.Kafka(t), harness.MySQL(t), ", lanes: 1, lease_time: 2s, transactional: true")
	noise := make([]byte, 60_000) // does not compress
	for i := range noise {
		noise[i] = byte('!' + rand.IntN(90))
	}
	r := l.start()
	l.emit(0, 10, 1)
	l.waitAllPublished(20 * time.Second)
	l.limitTopic(20_000)
	large, small := account{Owner: "a", ID: 7, Pad: string(noise)}, account{Owner: "b", ID: 8}
	if l.layout.Route("a", "").Partition == l.layout.Route("b", "").Partition {
		t.Fatal("both tenants are in one partition")
	}
	for i := range 10 {
		large.Value, small.Value = int64(i), int64(i)
		l.emitOne(large)
		l.emitOne(small)
	}
	l.waitViews(func(v []outbox.View) bool {
		return v[0].Parked == 10 && v[0].HaltCode == "SL2005" && v[0].Cursor == v[0].MaxID
	})
	l.limitTopic(0)
	l.waitAllPublished(30 * time.Second)
	l.waitViews(func(v []outbox.View) bool { return v[0].Parked == 0 && v[0].HaltedAt == nil })
	r.stop()
	l.check(false, false)
}

// The drain of a backlog through one lane, without and with transactions. The figures are printed.
func TestOutboxTransactionalFigures(t *testing.T) {
	harness.Proof(t)
	var rate [2]float64
	for i, transactional := range []bool{false, true} {
		l := newOutboxLine(t, harness.Kafka(t), harness.MySQL(t), fmt.Sprintf(", lanes: 1, transactional: %v", transactional))
		l.timing = outbox.Timing{}
		n := l.fill(size(40_000, 400_000), 512)
		r := l.start()
		began := time.Time{}
		for r.Lanes()[0].Published == 0 {
			time.Sleep(time.Millisecond)
		}
		began = time.Now()
		at := r.Lanes()[0].Published
		for r.Lanes()[0].Published < uint64(n) {
			time.Sleep(time.Millisecond)
			if time.Since(began) > time.Minute {
				t.Fatalf("%d of %d after a minute", r.Lanes()[0].Published, n)
			}
		}
		rate[i] = float64(uint64(n)-at) / time.Since(began).Seconds()
		before := r.Lanes()[0]
		for v := range size(40, 400) {
			l.emitOne(account{Owner: "o", ID: 1, Value: int64(v), Pad: strings.Repeat("x", 400)})
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(500 * time.Millisecond)
		t.Logf("transactional %v: %.0f events/s of 512 B, one lane; append to ack of single events, not woken, bounds in s: %s",
			transactional, rate[i], quantiles(before.Latency, r.Lanes()[0].Latency))
		r.stop()
	}
	t.Logf("with transactions %.2f of the throughput without", rate[1]/rate[0])
}

func (l *outboxLine) emitOne(a account) {
	l.t.Helper()
	if err := l.producer.Run(l.t.Context(), l.db, func(tx *producer.Tx) error {
		return l.producer.Emit(l.t.Context(), tx, l.accounts.Upsert(a))
	}); err != nil {
		l.t.Fatal(err)
	}
}

// limitTopic sets max.message.bytes of the line's topic; 0: to what the file says.
func (l *outboxLine) limitTopic(n int) {
	l.t.Helper()
	if n == 0 {
		n = kafka.RecordBytesMax(l.cfg)
	}
	client, err := kafka.Open(l.t.Context(), l.cfg, "test", nil)
	if err != nil {
		l.t.Fatal(err)
	}
	defer client.Close()
	text := strconv.Itoa(n)
	if _, err := kadm.NewClient(client).AlterTopicConfigs(l.t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &text}}, l.cfg.Kafka.Topic); err != nil {
		l.t.Fatal(err)
	}
}
