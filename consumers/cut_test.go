package consumers

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/event"
)

// read is one offset of a model log.
type read struct {
	offset int64
	epoch  int32
	marker bool
	bytes  int
}

// randomLog has holes, markers, and leader epochs that grow.
func randomLog(r *rand.Rand, from int64, n int) (log []read) {
	epoch := int32(0)
	for range n {
		from += 1 + max(0, r.Int64N(6)-4)
		if r.IntN(15) == 0 {
			epoch += 1 + r.Int32N(2)
		}
		log = append(log, read{from, epoch, r.IntN(7) == 0, 1 + r.IntN(40)})
	}
	return log
}

// Whatever is read when, and however batches are cut: ranges follow each other without a gap or an overlap, hold every
// message once and in order, keep to the limits, and never span an epoch that was not asked about.
func TestCutsCoverTheLog(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 3000 {
		limits := Limits{Rows: 1 + r.IntN(20), Bytes: int64(1 + r.IntN(400)), Age: time.Duration(r.IntN(50)) * time.Millisecond}
		parts := 1 + r.IntN(4)
		var queues []*queue
		logs, feed := make([][]read, parts), make([]int, parts)
		wantNext, asked := make([]int64, parts), make([]int32, parts)
		got := make([][]int64, parts)
		for i := range parts {
			logs[i] = randomLog(r, 10, r.IntN(60))
			epoch := int32(-1)
			if r.IntN(2) == 0 {
				epoch = 0
			}
			q := newQueue(event.Position{Partition: event.Partition{Topic: "t", Number: int32(i)}, Next: 10, LeaderEpoch: epoch})
			queues, wantNext[i], asked[i] = append(queues, &q), 10, epoch
		}
		now := time.Unix(0, 0)
		for turn := 0; ; turn++ {
			now = now.Add(time.Duration(r.IntN(20)) * time.Millisecond)
			left := false
			for i, q := range queues {
				for range r.IntN(8) {
					if feed[i] == len(logs[i]) {
						break
					}
					e := logs[i][feed[i]]
					feed[i]++
					if e.marker {
						q.pass(e.offset, e.epoch, now.UnixNano())
						continue
					}
					q.push(item{rec: &kgo.Record{Offset: e.offset, LeaderEpoch: e.epoch}, bytes: e.bytes, arrived: now.UnixNano()})
				}
				if r.IntN(10) == 0 { // the throttle takes the end away; it is read again
					if q.trim(int64(r.IntN(100))) > 0 {
						for feed[i] > 0 && logs[i][feed[i]-1].offset >= q.end {
							feed[i]--
						}
					}
				}
				if epoch, blocked := q.blocked(); blocked {
					if q.epoch < 0 || epoch == q.epoch {
						t.Fatalf("epoch %d is asked about while %d is known", epoch, q.epoch)
					}
					q.unblock(epoch)
					asked[i] = epoch
				}
				left = left || feed[i] < len(logs[i]) || q.end > q.next
			}
			if !left {
				break
			}
			plan := planCut(queues, limits, now, turn)
			if plan.take == nil {
				if !plan.at.IsZero() && !plan.at.After(now) {
					t.Fatalf("nothing is cut at %v, though it was due at %v", now, plan.at)
				}
				if plan.at.IsZero() && slices.ContainsFunc(queues, func(q *queue) bool { _, b := q.blocked(); return !b && q.end > q.next }) {
					t.Fatal("something was read, and nobody will look at it")
				}
				now = now.Add(time.Duration(r.IntN(600)) * time.Millisecond)
				continue
			}
			rows, bytes := 0, int64(0)
			for i, q := range queues {
				if !q.takes(plan.take[i]) {
					if plan.take[i] > 0 {
						t.Fatal("items are taken of a queue that is no part of the batch")
					}
					continue
				}
				rg, messages, b := q.take(nil, plan.take[i])
				if rg.From != wantNext[i] || rg.To <= rg.From {
					t.Fatalf("range %d to %d, want it from %d", rg.From, rg.To, wantNext[i])
				}
				wantNext[i] = rg.To
				rows, bytes = rows+len(messages), bytes+b
				for _, m := range messages {
					if m.Offset < rg.From || m.Offset >= rg.To {
						t.Fatalf("offset %d in a range from %d to %d", m.Offset, rg.From, rg.To)
					}
					if asked[i] < 0 {
						asked[i] = m.LeaderEpoch
					}
					if m.LeaderEpoch != asked[i] || rg.LeaderEpoch != asked[i] {
						t.Fatalf("epoch %d in a range of epoch %d, asked about %d", m.LeaderEpoch, rg.LeaderEpoch, asked[i])
					}
					got[i] = append(got[i], m.Offset)
				}
				if r.IntN(4) == 0 && asked[i] < 0 {
					asked[i] = rg.LeaderEpoch
				}
				if asked[i] < 0 {
					asked[i] = rg.LeaderEpoch
				}
			}
			if rows > limits.Rows || rows > 1 && bytes > limits.Bytes {
				t.Fatalf("%d rows and %d bytes in a batch of %+v", rows, bytes, limits)
			}
		}
		for i, log := range logs {
			var want []int64
			for _, e := range log {
				if !e.marker {
					want = append(want, e.offset)
				}
			}
			if !slices.Equal(want, got[i]) {
				t.Fatalf("partition %d: got %v, want %v", i, got[i], want)
			}
			if n := len(log); n > 0 && wantNext[i] != log[n-1].offset+1 {
				t.Fatalf("partition %d ends at %d, its log at %d", i, wantNext[i], log[n-1].offset+1)
			}
			if queues[i].bytes != 0 || queues[i].ready != 0 {
				t.Fatalf("an empty queue counts %d bytes and %d ready", queues[i].bytes, queues[i].ready)
			}
		}
	}
}

// A partition with a backlog does not push the others of its unit out of the batch.
func TestCutSharesABatch(t *testing.T) {
	now := time.Unix(0, 0)
	var queues []*queue
	for i := range int32(4) {
		q := newQueue(event.Position{Partition: event.Partition{Topic: "t", Number: i}, LeaderEpoch: -1})
		n := int64(3)
		if i == 0 {
			n = 1000
		}
		for o := range n {
			q.push(item{rec: &kgo.Record{Offset: o}, bytes: 10, arrived: now.UnixNano()})
		}
		queues = append(queues, &q)
	}
	for first := range 4 {
		plan := planCut(queues, Limits{Rows: 100, Bytes: 1 << 20, Age: time.Second}, now, first)
		if want := []int{91, 3, 3, 3}; !slices.Equal(plan.take, want) || !plan.full {
			t.Errorf("first %d: took %v, want %v", first, plan.take, want)
		}
	}
}

func TestThrottle(t *testing.T) {
	for name, c := range map[string]struct {
		loads  []load
		paused []bool
		poll   bool
	}{
		"nothing":                            {nil, []bool{}, true},
		"room":                               {[]load{{bytes: 10}, {bytes: 20}}, []bool{false, false}, true},
		"full of partitions that move: wait": {[]load{{bytes: 60}, {bytes: 40}}, []bool{false, false}, false},
		"one moves not, below its share":     {[]load{{bytes: 49, slow: true}, {bytes: 20}}, []bool{false, false}, true},
		"one moves not, at its share":        {[]load{{bytes: 50, slow: true}, {bytes: 20}}, []bool{true, false}, true},
		"one moves not and holds everything": {[]load{{bytes: 500, slow: true}, {bytes: 20}}, []bool{true, false}, true},
		"it stays paused down to half":       {[]load{{bytes: 26, slow: true, paused: true}, {}}, []bool{true, false}, true},
		"below half it is read again":        {[]load{{bytes: 25, slow: true, paused: true}, {}}, []bool{false, false}, true},
		"it moves again":                     {[]load{{bytes: 50, paused: true}, {}}, []bool{false, false}, true},
		"both stand still":                   {[]load{{bytes: 50, slow: true}, {bytes: 50, slow: true}}, []bool{true, true}, false},
	} {
		paused, share, poll := throttle(c.loads, 100)
		if !slices.Equal(paused, c.paused) || poll != c.poll {
			t.Errorf("%s: paused %v, poll %v (share %d)", name, paused, poll, share)
		}
	}
}

// A partition that moves is never stopped by others that do not: there is always room for it, or what fills the memory
// are partitions that move.
func TestP13_ThrottleLeavesRoom(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	for range 20000 {
		loads := make([]load, 1+r.IntN(20))
		moving := int64(0)
		for i := range loads {
			loads[i] = load{bytes: r.Int64N(300), paused: r.IntN(2) == 0, slow: r.IntN(2) == 0}
			if !loads[i].slow {
				moving += loads[i].bytes
			}
		}
		paused, share, poll := throttle(loads, 1000)
		slow := 0
		for i, l := range loads {
			if paused[i] && !l.slow {
				t.Fatalf("seed %d: a partition that moves is paused: %+v", seed, loads)
			}
			if l.slow {
				slow++
			}
		}
		if slow < len(loads) && moving < share && !poll {
			t.Fatalf("seed %d: nothing is polled, though partitions that move hold %d: %+v", seed, moving, loads)
		}
	}
}

func TestDeadRate(t *testing.T) {
	d := deadRate{perMinute: 10}
	at := time.Unix(1000, 0)
	if !d.admit(at, 6) || !d.admit(at.Add(30*time.Second), 4) {
		t.Error("ten in a minute are refused")
	}
	if d.admit(at.Add(59*time.Second), 1) {
		t.Error("eleven in a minute are admitted")
	}
	if !d.admit(at.Add(61*time.Second), 6) {
		t.Error("six more are refused, though the first six are a minute old")
	}
	if d.admit(at.Add(200*time.Second), 11) {
		t.Error("eleven at once are admitted")
	}
	if !d.admit(at.Add(200*time.Second), 10) {
		t.Error("what was refused is counted")
	}
}

func TestBackoff(t *testing.T) {
	b := backoff{first: 100 * time.Millisecond, max: time.Second}
	for i, most := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
		most *= time.Millisecond
		if d := b.next(); d < most/2 || d > most {
			t.Errorf("pause %d is %v, want %v to %v", i, d, most/2, most)
		}
	}
	b.tries = 1000
	if d := b.next(); d < 500*time.Millisecond || d > time.Second {
		t.Errorf("after many tries %v", d)
	}
	b.reset()
	if d := b.next(); d > 100*time.Millisecond {
		t.Errorf("after a reset %v", d)
	}
}

// A range ends where offsets of another epoch may begin, also where those are markers or hold nothing: what is stored as
// applied in an epoch is compared with that epoch's end in the leader's log.
func TestP8_RangesEndWhereAnotherEpochMayBegin(t *testing.T) {
	const asked = 1
	for _, c := range []struct {
		name string
		log  []read
		take int
		to   int64
	}{
		{"the next message is of the epoch", []read{{offset: 10, epoch: 1}, {offset: 15, epoch: 1}}, 1, 15},
		{"all that was read is of the epoch", []read{{offset: 10, epoch: 1}, {offset: 15, epoch: 1}}, 2, 16},
		{"markers of the epoch follow", []read{{offset: 10, epoch: 1}, {offset: 12, epoch: 1, marker: true}}, 1, 13},
		{"a message of another follows a hole", []read{{offset: 10, epoch: 1}, {offset: 15, epoch: 2}}, 1, 11},
		{"a marker of another, and a message", []read{{offset: 10, epoch: 1}, {offset: 12, epoch: 2, marker: true}, {offset: 15, epoch: 2}}, 1, 11},
		{"a marker of another is the last", []read{{offset: 10, epoch: 1}, {offset: 12, epoch: 2, marker: true}}, 1, 11},
		{"one message is left", []read{{offset: 10, epoch: 1}, {offset: 12, epoch: 1}, {offset: 15, epoch: 2}}, 1, 12},
	} {
		q := newQueue(event.Position{Partition: event.Partition{Topic: "t"}, Next: 10, LeaderEpoch: asked})
		for _, r := range c.log {
			if r.marker {
				q.pass(r.offset, r.epoch, 0)
			} else {
				q.push(item{rec: &kgo.Record{Offset: r.offset, LeaderEpoch: r.epoch}, bytes: 1})
			}
		}
		r, messages, _ := q.take(nil, c.take)
		if r.From != 10 || r.To != c.to || r.LeaderEpoch != asked || len(messages) != c.take || q.next != c.to {
			t.Errorf("%s: %d messages, %+v; wanted it to end at %d", c.name, len(messages), r, c.to)
		}
	}
}

// A stored batch is cut once all of it was read: not before, whatever of it holds messages.
func TestP9_StoredRangesWaitUntilTheyAreRead(t *testing.T) {
	part := func(n int32) event.Partition { return event.Partition{Topic: "t", Number: n} }
	one := newQueue(event.Position{Partition: part(1), Next: 10, LeaderEpoch: 1})
	two := newQueue(event.Position{Partition: part(2), Next: 0, LeaderEpoch: 1})
	queues := []*queue{&one, &two}
	pending := []event.Range{{Partition: part(2), From: 0, To: 3}, {Partition: part(1), From: 10, To: 14}}
	push := func(q *queue, offset int64) {
		q.push(item{rec: &kgo.Record{Offset: offset, LeaderEpoch: 1}, bytes: 1})
	}
	for step, do := range []func(){func() {}, func() { push(&one, 10) }, func() { push(&one, 12) }, func() { push(&two, 1) }, func() { push(&two, 2) }} {
		if do(); step < 4 {
			if take, done := planPending(queues, pending); done {
				t.Errorf("step %d: %v is taken before all was read", step, take)
			}
		}
	}
	if _, done := planPending(queues, pending); done {
		t.Error("what is left of partition 1 was not read yet")
	}
	push(&one, 14) // beyond the batch
	take, done := planPending(queues, pending)
	if !done || !slices.Equal(take, []int{2, 2}) {
		t.Errorf("%v, %v", take, done)
	}
}
