package intent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/partitioner"
)

var twinParts = []event.Partition{{Topic: "t", Number: 1}, {Topic: "t", Number: 3}}

func newWorld(random *rand.Rand, window int) *world {
	w := &world{random: random, ttl: 40, logEnd: map[event.Partition]int64{}, bad: map[message]bool{}, given: map[message]bool{},
		engine: twinEngine{window: window, accepted: map[event.Partition]map[int64]int{}, sent: map[string][]message{}}}
	w.db.row.confirmed = true
	for _, part := range twinParts {
		w.db.progress = append(w.db.progress, progress.Row{Key: progress.Key{Sink: "x", Partition: part}, LeaderEpoch: -1})
		w.engine.accepted[part] = map[int64]int{}
		w.logEnd[part] = 20 + random.Int64N(40)
		for o := range w.logEnd[part] {
			w.bad[message{part, o}] = random.IntN(9) == 0
		}
	}
	return w
}

// work is a process's life: own the group, apply batches, until all is applied.
func (p *process) work(random *rand.Rand) {
	s := &State{o: Options{Sink: "x", Place: "twin", Owner: p.name, LeaseTime: time.Second, Codec: 1}, store: p}
	for !p.crashed {
		g, err := s.TakeOver(context.Background(), 0, twinParts)
		if err != nil {
			continue
		}
		for p.applyOne(g, random) {
		}
		if p.crashed || random.IntN(2) == 0 {
			continue // leaves without a word
		}
		_ = g.Release(context.Background())
		if p.w.drained() {
			return
		}
	}
}

func (w *world) drained() bool {
	for _, r := range w.db.progress {
		if r.Next < w.logEnd[r.Partition] {
			return false
		}
	}
	return true
}

// applyOne applies one batch, as often as it takes; false when the ownership is over.
func (p *process) applyOne(g *Group, random *rand.Rand) bool {
	var ranges []event.Range
	if pending := g.Pending(); pending != nil {
		ranges = pending.Ranges
	} else {
		for _, at := range g.Positions() {
			to := min(at.Next+random.Int64N(8), p.w.logEnd[at.Partition])
			if to > at.Next {
				ranges = append(ranges, event.Range{Partition: at.Partition, From: at.Next, To: to, LeaderEpoch: 1})
			}
		}
	}
	if len(ranges) == 0 {
		return !p.w.drained() && random.IntN(4) > 0
	}
	// Bad messages are found one by one, as dead letters are made.
	b := &event.Batch{Ranges: ranges, Excluded: map[int]bool{}}
	for _, r := range ranges {
		for o := r.From; o < r.To; o++ {
			if p.w.bad[message{r.Partition, o}] {
				b.Excluded[len(b.Messages)] = true
			}
			b.Messages = append(b.Messages, event.Message{Partition: r.Partition, Offset: o})
		}
	}
	excluded := ExcludedOf(b)
	if pending := g.Pending(); pending != nil && pending.Covers(ranges) {
		excluded = MergeExcluded(excluded, pending.Excluded)
	}
	blocks := map[int][]message{} // by table: offsets of two tables take turns
	for _, m := range b.Messages {
		if !Excludes(excluded, m.Partition, m.Offset) {
			blocks[int(m.Offset%2)] = append(blocks[int(m.Offset%2)], message{m.Partition, m.Offset})
		}
	}
	sent := map[int]bool{}
	for try := 0; ; try++ {
		err := p.tryOnce(g, ranges, excluded, blocks, sent)
		if err == nil {
			return true
		}
		if p.crashed || fault.Is(err, fault.Fenced) {
			return false
		}
		if _, rewound := errors.AsType[*event.Rewound](err); rewound {
			return true // the next batch is cut from where it stands now
		}
		if fault.Is(err, fault.Fatal) {
			p.w.faults = append(p.w.faults, "halted: "+err.Error())
			return false
		}
	}
}

func (p *process) tryOnce(g *Group, ranges []event.Range, excluded []Excluded, blocks map[int][]message, sent map[int]bool) error {
	var i *Intent
	if len(blocks) > 0 || g.Pending() != nil {
		var err error
		if i, err = g.Begin(context.Background(), ranges, excluded); err != nil {
			return err
		}
	}
	for table := range 2 {
		if rows := blocks[table]; len(rows) > 0 && !sent[table] {
			if err := p.send(i.Token(fmt.Sprint("table", table), partitioner.NoMonth), rows); err != nil {
				return err
			}
			sent[table] = true
		}
	}
	return g.Commit(context.Background(), i, ranges)
}

// simulate lets processes take turns at random, crash and come anew, until all is applied.
func (w *world) simulate(t *testing.T, gaps, restores bool) {
	var live []*process
	number := 0
	start := func() {
		number++
		p := &process{w: w, name: fmt.Sprint("p", number), turn: make(chan bool), done: make(chan bool)}
		random := rand.New(rand.NewPCG(w.random.Uint64(), 1))
		go func() {
			if <-p.turn {
				p.work(random)
			}
			p.done <- true
		}()
		live = append(live, p)
	}
	// turn lets one process go on to its next step.
	turn := func(at int, goOn bool) {
		p := live[at]
		p.turn <- goOn
		if <-p.done {
			live = append(live[:at], live[at+1:]...)
		}
	}
	start()
	start()
	var backup *twinDB
	for steps := 0; !w.drained() || len(live) > 0; steps++ {
		if steps > 200_000 {
			t.Fatalf("not drained after %d steps: %+v", steps, w.db)
		}
		calm := steps > 3000 // the end must come
		w.fail = !calm
		if calm && w.drained() {
			turn(0, false)
			continue
		}
		if len(live) == 0 {
			start()
		}
		w.clock += w.random.Int64N(2)
		switch n := w.random.IntN(400); {
		case n < 8 && !calm:
			turn(w.random.IntN(len(live)), false)
		case n < 12 && len(live) < 4:
			start()
		case n < 14 && gaps && !calm:
			w.acceptGap()
		case n < 16 && restores && !calm:
			c := w.db.copy()
			backup = &c
		case n < 17 && backup != nil && !calm:
			w.db = backup.copy()
		case n < 100 && len(live) > 1:
			turn(1+w.random.IntN(len(live)-1), true) // the others are slow: paused for long stretches
		default:
			turn(0, true)
		}
	}
}

// acceptGap is a person who gives up what a partition cannot read.
func (w *world) acceptGap() {
	at := &w.db.progress[w.random.IntN(len(w.db.progress))]
	to := min(at.Next+w.random.Int64N(5), w.logEnd[at.Partition])
	for o := at.Next; o < to; o++ {
		w.given[message{at.Partition, o}] = true
	}
	at.Next = to
	at.OwnerEpoch++
	at.Owner = ""
}

func seeds(t *testing.T, each func(t *testing.T, random *rand.Rand)) {
	each(t, rand.New(rand.NewPCG(7810747036311416083, 7))) // a restored state gave two owners one epoch
	first, count := rand.Uint64()>>1, uint64(300)
	if text := os.Getenv("INTENT_SEED"); text != "" {
		var err error
		if first, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
		count = 1
	}
	for seed := first; seed < first+count && !t.Failed(); seed++ {
		each(t, rand.New(rand.NewPCG(seed, 7)))
		if t.Failed() {
			t.Logf("INTENT_SEED=%d", seed)
		}
	}
}

// P9, P5: processes crash and pause between any two steps, calls fail and answers are lost; every event that is not a
// dead letter is taken by the engine once, by its token alone, and progress passes nothing that was not.
func TestP9_EachEventIsTakenOnceWhateverCrashes(t *testing.T) {
	seeds(t, func(t *testing.T, random *rand.Rand) {
		w := newWorld(random, 1<<20)
		w.simulate(t, false, false)
		w.report(t)
		for part, end := range w.logEnd {
			for o := range end {
				want := 1
				if w.bad[message{part, o}] {
					want = 0
				}
				if got := w.engine.accepted[part][o]; got != want {
					t.Fatalf("the event at %v offset %d was taken %d times, wanted %d", part, o, got, want)
				}
			}
		}
	})
}

// The same where people accept gaps, backups of the state are restored, and the engine forgets tokens: nothing is
// skipped that nobody gave up, and nothing stops for good.
func TestP9_NothingIsSkippedByGapsAndRestores(t *testing.T) {
	seeds(t, func(t *testing.T, random *rand.Rand) {
		w := newWorld(random, 1+random.IntN(4))
		w.simulate(t, random.IntN(2) == 0, random.IntN(2) == 0)
		w.report(t)
		for part, end := range w.logEnd {
			for o := range end {
				m := message{part, o}
				if !w.bad[m] && !w.given[m] && w.engine.accepted[part][o] == 0 {
					t.Fatalf("the event at %v offset %d was skipped", part, o)
				}
			}
		}
	})
}

func (w *world) report(t *testing.T) {
	t.Helper()
	for _, f := range w.faults {
		t.Error(f)
	}
}
