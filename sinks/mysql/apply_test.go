package mysql

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/progress"
)

// What several shards say of one batch becomes one answer: an ended ownership before a halt, both before a step back,
// that before what is bad in the batch, and that before an outage.
func TestOutcomeOfSeveralShards(t *testing.T) {
	fenced := &fault.Error{Class: fault.Fenced, What: "fenced"}
	fatal := &fault.Error{Class: fault.Fatal, What: "fatal"}
	outage := &fault.Error{Class: fault.Transient, What: "outage"}
	rewound := &event.Rewound{}
	bad := []event.Rejected{{Index: 7}, {Index: 3}}
	for _, c := range []struct {
		name     string
		tasks    []*task
		rejected []int
		err      error
	}{
		{"all well", []*task{{}, {}}, nil, nil},
		{"one down", []*task{{}, {err: outage}}, nil, outage},
		{"one stopped for one down", []*task{{err: errStopped}, {err: outage}}, nil, outage},
		{"bad rows in two", []*task{{rejected: bad}, {rejected: bad[:1]}}, []int{3, 7}, nil},
		{"bad rows and one down", []*task{{err: outage}, {rejected: bad}}, []int{3, 7}, nil},
		{"bad rows and one stopped", []*task{{err: errStopped}, {rejected: bad}}, []int{3, 7}, nil},
		{"bad rows and one fenced", []*task{{rejected: bad}, {err: fenced}}, nil, fenced},
		{"bad rows and one halted", []*task{{rejected: bad}, {err: fatal}}, nil, fatal},
		{"bad rows and one back", []*task{{rejected: bad}, {err: rewound}}, nil, rewound},
		{"halted and fenced", []*task{{err: fatal}, {err: fenced}}, nil, fenced},
		{"down and halted", []*task{{err: outage}, {err: fatal}}, nil, fatal},
		{"not classified and back", []*task{{err: errors.New("x")}, {err: rewound}}, nil, rewound},
	} {
		t.Run(c.name, func(t *testing.T) {
			rejected, err := (&owned{}).outcome(c.tasks)
			var got []int
			for _, r := range rejected {
				got = append(got, r.Index)
			}
			if err != c.err || !slices.Equal(got, c.rejected) {
				t.Errorf("rejected %v, error %v; wanted %v, %v", got, err, c.rejected, c.err)
			}
		})
	}
}

// P6: of the transactions of a broadcast batch either all commit or, when one cannot, none does; whatever the order in
// which they come to the gate, fail before it, or find their part done.
func TestP6_GateLetsAllPassOrNone(t *testing.T) {
	random := seeded(t)
	for range 2000 {
		tasks := make([]*task, 1+random.IntN(4))
		g := newGate(len(tasks))
		fails := 0
		var passed, came atomic.Int32
		var wg sync.WaitGroup
		for i := range tasks {
			tasks[i] = &task{gate: g}
			what := random.IntN(6)
			if what == 0 {
				fails++
			}
			wg.Go(func() {
				task := tasks[i]
				defer g.leave(task)
				switch what {
				case 0:
					task.err = errors.New("down")
				case 1: // its part was done before
				default:
					came.Add(1)
					for range 1 + i%2 { // a second time after an unknown COMMIT
						if !g.pass(context.Background(), task) {
							task.err = errStopped
							return
						}
					}
					passed.Add(1)
				}
			})
		}
		wg.Wait()
		want := came.Load()
		if fails > 0 {
			want = 0
		}
		if passed.Load() != want {
			t.Fatalf("%d of %d at the gate passed, %d of %d failed", passed.Load(), came.Load(), fails, len(tasks))
		}
	}
}

// Nobody waits at the gate for ever.
func TestGateEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if newGate(2).pass(ctx, &task{}) {
		t.Error("passed alone")
	}
	var open *gate
	if !open.pass(ctx, &task{}) {
		t.Error("a batch without broadcast rows waits for nothing")
	}
}

// SL3101 says what, where, since when and how often, and what a person need not fear.
func TestOutageTextSaysSinceWhenAndHowOften(t *testing.T) {
	s := testSink(t)
	o, _ := benchBatch(t, s, 1)
	task := &task{owned: o, shard: s.shards["s2"]}
	task.advance.Start = 48100
	readOnly := &mysql.MySQLError{Number: 1290, Message: "The MySQL server is running with the --read-only option"}
	var err error
	for range 37 {
		err = o.waits(task, readOnly)
	}
	for _, part := range []string{"mysql/s2: ", "(error 1290)", "test.events partition 0 offset 48100 waits since ", "tries: 37",
		"[SL3101]", "no event is lost and none goes to the dead-letter topic", "do: "} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in\n%v", part, err)
		}
	}
	if !fault.Is(err, fault.Transient) || !errors.Is(err, readOnly) {
		t.Errorf("%v is of class %s", err, fault.ClassOf(err))
	}
}

// Each shard is sent what it lacks of a batch, from where it stands: nothing that it has, and nothing where it lacks what
// lies below.
func TestP4_ShardsAreSentWhatTheyLack(t *testing.T) {
	const from, to = 10, 20
	for _, c := range []struct {
		next  [2]int64 // where s1 and s2 stand
		start map[string]int64
		back  bool
	}{
		{[2]int64{10, 10}, map[string]int64{"s1": 10, "s2": 10}, false},
		{[2]int64{20, 10}, map[string]int64{"s2": 10}, false},
		{[2]int64{15, 25}, map[string]int64{"s1": 15}, false},
		{[2]int64{20, 21}, nil, false},
		{[2]int64{10, 9}, nil, true},
		{[2]int64{0, 20}, nil, true},
	} {
		part := event.Partition{Topic: "t.events"}
		st := &state{shards: []*shard{{name: "s1"}, {name: "s2"}}}
		o := &owned{sink: &Sink{name: "mysql"}, part: part, holds: map[string]*hold{}}
		for i, sh := range st.shards {
			o.holds[sh.name] = &hold{shard: sh, row: progress.Row{Key: progress.Key{Partition: part}, Next: c.next[i], LeaderEpoch: 2}}
		}
		buffer := &rows{}
		for i, shard := range []int32{0, 0, 1} {
			buffer.entries = append(buffer.entries, entry{place: newPlace(shard, 0, 0), message: int32(i)})
		}
		p := &prepared{owned: o, state: st, at: event.Range{Partition: part, From: from, To: to, LeaderEpoch: -1}, buffer: buffer, shards: []int32{0, 1}}
		tasks, err := o.tasks(t.Context(), p)
		var rewound *event.Rewound
		if errors.As(err, &rewound) != c.back || !c.back && err != nil {
			t.Errorf("shards at %v: %v", c.next, err)
			continue
		}
		if c.back && rewound.Positions[0].Next != min(c.next[0], c.next[1]) {
			t.Errorf("shards at %v: back to %v", c.next, rewound.Positions)
		}
		got := map[string]int64{}
		for _, task := range tasks {
			got[task.shard.name] = task.advance.Start
			first, n := 0, 2 // its own entries
			if task.shard.name == "s2" {
				first, n = 2, 1
			}
			if task.advance.End != to || task.advance.LeaderEpoch != 2 || len(task.entries) != n || task.entries[0].message != int32(first) {
				t.Errorf("shards at %v: %s is sent %+v up to %d", c.next, task.shard.name, task.entries, task.advance.End)
			}
		}
		if !maps.Equal(got, c.start) {
			t.Errorf("shards at %v: sent from %v, wanted %v", c.next, got, c.start)
		}
	}
}
