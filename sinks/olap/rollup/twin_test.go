package rollup

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/slotline/slotline/config"
)

// change is one event of the twin's log: an image of an entity, whose pair never changes.
type change struct {
	entity  int
	pair    Pair
	dim     int // may change
	amount  int
	ver     int
	deleted bool
}

// twinState is sinks.state, one statement at a time.
type twinState struct {
	progress int    // offset in the log
	intent   [2]int // from and to of the stored batch
	pending  bool   // not confirmed
	owner    string
	epoch    int
	left     bool // a batch was given up: TakeGroup says so at the next take-over
	version  int64
	wanted   uint64
	done     uint64
	marked   map[Pair]uint64
}

func (s twinState) copy() twinState {
	s.marked = maps.Clone(s.marked)
	return s
}

// figures are those of one slice, by dimension: count and sum.
type figures map[int][2]int

// slice is a tenant's bucket.
type slice struct {
	tenant string
	bucket int32
}

type written struct {
	version int64
	figures figures
}

// world is the twins and what is random about them. A process is a sequence of steps: others act between any two, and
// one that is stopped has crashed.
type world struct {
	random *rand.Rand
	log    []change
	state  twinState
	base   map[int]change
	sent   int // how far the log has reached the base
	rollup map[slice]written
	days   int32 // of a bucket
	clock  int64
	mark   uint64
	fail   bool // calls fail, and answers are lost
	number int  // of processes so far
	// restores counts them: a fill that was under way fails, as the database was away.
	restores int
}

var (
	errCrashed = errors.New("this process has crashed")
	errLost    = errors.New("connection lost")
)

func newWorld(random *rand.Rand) *world {
	w := &world{random: random, base: map[int]change{}, rollup: map[slice]written{}, days: []int32{1, 3}[random.IntN(2)]}
	w.state.marked = map[Pair]uint64{}
	w.state.wanted = 1
	vers := map[int]int{}
	for range 10 + random.IntN(60) {
		entity := random.IntN(12)
		vers[entity]++
		w.log = append(w.log, change{entity, Pair{string(rune('a' + entity%2)), int32(entity / 2)}, random.IntN(3), random.IntN(100),
			vers[entity], random.IntN(4) == 0})
	}
	return w
}

func (w *world) sliceOf(p Pair) slice { return slice{p.Tenant, p.Day / w.days} }

// fold is a slice of the base, the obvious way.
func (w *world) fold(at slice) figures {
	f := figures{}
	for _, c := range w.base {
		if !c.deleted && w.sliceOf(c.pair) == at {
			f[c.dim] = [2]int{f[c.dim][0] + 1, f[c.dim][1] + c.amount}
		}
	}
	return f
}

// process is one member; each of its calls is a step.
type process struct {
	w       *world
	name    string
	yield   func(struct{}) bool
	crashed bool
	filling int // restores when its fill began
}

func (p *process) step() error {
	if p.crashed || !p.yield(struct{}{}) {
		p.crashed = true
		return errCrashed
	}
	p.w.clock++
	return nil
}

// call is one statement: others may act before it, it may fail before it acts, and its answer may be lost.
func (p *process) call(act func()) error {
	if err := p.step(); err != nil {
		return err
	}
	if p.w.fail && p.w.random.IntN(12) == 0 {
		return errLost
	}
	act()
	if err := p.step(); err != nil {
		return err
	}
	if p.w.fail && p.w.random.IntN(12) == 0 {
		return errLost
	}
	return nil
}

// sink is the life of an owner: it takes over, and sends batches until it is fenced or its connection fails.
func (p *process) sink() {
	w := p.w
	for !p.crashed {
		epoch := 0
		if p.call(func() {
			w.state.owner = p.name
			w.state.epoch++
			epoch = w.state.epoch
			if w.state.left {
				w.state.left = false
				w.state.wanted = max(w.state.wanted+1, uint64(w.clock))
			}
		}) != nil {
			continue
		}
		for p.batch(epoch) {
		}
	}
}

func (p *process) batch(epoch int) bool {
	w := p.w
	ours := func() bool { return w.state.owner == p.name && w.state.epoch == epoch }
	var batch [2]int
	fenced := false
	if p.call(func() {
		if fenced = !ours(); fenced {
			return
		}
		if batch = w.state.intent; !w.state.pending {
			batch = [2]int{w.state.progress, min(w.state.progress+1+w.random.IntN(4), len(w.log))}
			w.state.intent, w.state.pending = batch, batch[0] < batch[1]
		}
	}) != nil || fenced {
		return false
	}
	if batch[0] == batch[1] {
		return true
	}
	touched := map[Pair]bool{}
	if p.call(func() {
		for _, c := range w.log[batch[0]:batch[1]] {
			touched[c.pair] = true
			if c.ver > w.base[c.entity].ver {
				w.base[c.entity] = c
			}
		}
		w.sent = max(w.sent, batch[1])
	}) != nil {
		return false
	}
	return p.call(func() {
		if fenced = !ours() || !w.state.pending || w.state.intent != batch; fenced {
			return
		}
		w.state.progress, w.state.pending = batch[1], false
		w.mark++
		for pair := range touched {
			w.state.marked[pair] = w.mark
		}
	}) == nil && !fenced
}

// worker is the life of a worker, which needs no lease.
func (p *process) worker() {
	for !p.crashed {
		_ = round(context.Background(), p, p, &config.Rollup{Name: "r"})
	}
}

func (p *process) fill(context.Context) (number uint64, err error) {
	err = p.call(func() {
		p.filling = p.w.restores
		if p.w.state.done < p.w.state.wanted {
			number = p.w.state.wanted
		}
	})
	return number, err
}

func (p *process) filled(_ context.Context, number uint64) error {
	if p.filling != p.w.restores {
		return errLost
	}
	return p.call(func() {
		if p.filling == p.w.restores {
			p.w.state.done = max(p.w.state.done, number)
		}
	})
}

func (p *process) mark(_ context.Context, touched []Touched) error {
	return p.call(func() {
		p.w.mark++
		for _, t := range touched {
			p.w.state.marked[t.Pair] = p.w.mark
		}
	})
}

func (p *process) marks(_ context.Context, most int) (list []marked, _ string, err error) {
	err = p.call(func() {
		for pair, mark := range p.w.state.marked {
			if len(list) < most {
				list = append(list, marked{pair, mark})
			}
		}
	})
	return list, "", err
}

func (p *process) version(context.Context) (version int64, err error) {
	err = p.call(func() {
		p.w.state.version = max(p.w.state.version+1, p.w.clock)
		version = p.w.state.version
	})
	return version, err
}

func (p *process) clear(_ context.Context, list []marked, _ string) error {
	return p.call(func() {
		for _, m := range list {
			if p.w.state.marked[m.Pair] == m.mark {
				delete(p.w.state.marked, m.Pair)
			}
		}
	})
}

// Pairs reads all at once, and tells them later.
func (p *process) Pairs(_ context.Context, _ *config.Rollup, each func(Pair) error) error {
	pairs := map[Pair]bool{}
	if err := p.call(func() {
		for _, c := range p.w.base {
			pairs[c.pair] = true
		}
	}); err != nil {
		return err
	}
	for pair := range pairs {
		if err := each(pair); err != nil {
			return err
		}
	}
	return nil
}

// Compute reads some slices, writes them some steps later, and goes on to the next: two statements.
func (p *process) Compute(_ context.Context, _ *config.Rollup, pairs []Pair, version int64) error {
	w := p.w
	for part := range 2 {
		read := map[slice]figures{}
		if err := p.call(func() {
			for _, pair := range pairs {
				if at := w.sliceOf(pair); int(at.bucket)%2 == part {
					read[at] = w.fold(at)
				}
			}
		}); err != nil {
			return err
		}
		if err := p.call(func() {
			for at, f := range read {
				if version >= w.rollup[at].version {
					w.rollup[at] = written{version, f}
				}
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// settled says that the base has nothing that is not marked or read by the rollup.
func (w *world) settled() bool {
	s := &w.state
	return len(s.marked) == 0 && s.done >= s.wanted && !s.pending && !s.left && s.progress >= w.sent
}

// difference names a slice that is not what the base has.
func (w *world) difference() string {
	all := map[slice]bool{}
	for at := range w.rollup {
		all[at] = true
	}
	for _, c := range w.base {
		all[w.sliceOf(c.pair)] = true
	}
	for at := range all {
		if got, want := w.rollup[at], w.fold(at); !maps.Equal(got.figures, want) {
			return fmt.Sprintf("slice %v is %v (version %d), the base has %v", at, got.figures, got.version, want)
		}
	}
	return ""
}

type running struct {
	next func() (struct{}, bool)
	stop func()
}

func (w *world) start(life func(*process)) running {
	w.number++
	p := &process{w: w, name: fmt.Sprint("p", w.number)}
	next, stop := iter.Pull(func(yield func(struct{}) bool) {
		p.yield = yield
		life(p)
	})
	return running{next, stop}
}

// simulate lets processes take turns at random, crash and come anew, until all is applied and the rollup has it. At
// every step between, a rollup without lag equals the base.
func (w *world) simulate(t *testing.T, gaps, restores bool) {
	lives := []func(*process){(*process).sink, (*process).worker, (*process).worker}
	var live []running
	for _, life := range lives {
		live = append(live, w.start(life))
	}
	// Zombies are sinks that were replaced and still run.
	defer func() {
		for _, r := range live {
			r.stop()
		}
	}()
	var backup *twinState
	for steps := 0; ; steps++ {
		if w.settled() {
			if d := w.difference(); d != "" {
				t.Fatalf("after %d steps: %s", steps, d)
			}
			if w.state.progress == len(w.log) {
				return
			}
		}
		if steps > 100_000 {
			t.Fatalf("not settled: %+v", w.state)
		}
		calm := steps > 1500 // the end must come
		w.fail = !calm
		at := w.random.IntN(len(live))
		if w.random.IntN(3) > 0 {
			at = steps / 40 % len(live) // the others are slow: paused for long stretches
		}
		switch n := w.random.IntN(300); {
		case n < 6 && !calm:
			live[at].stop()
			if at < len(lives) {
				live[at] = w.start(lives[at])
			} else {
				live = slices.Delete(live, at, at+1)
			}
		case n < 9 && !calm && !gaps && len(live) < 5: // a second sink takes over
			live = append(live, w.start((*process).sink))
		case n < 11 && !calm && gaps && w.state.pending: // a person gives up what cannot be read again
			for len(live) > len(lives) {
				live[len(live)-1].stop()
				live = live[:len(live)-1]
			}
			live[0].stop()
			live[0] = w.start((*process).sink)
			w.state.progress, w.state.pending, w.state.left = w.state.intent[1], false, true
		case n < 13 && !calm && restores:
			s := w.state.copy()
			backup = &s
		case n < 14 && !calm && backup != nil:
			w.state = backup.copy()
			w.restores++
		default:
			live[at].next()
		}
		if calm && len(live) > len(lives) {
			live[len(live)-1].stop()
			live = live[:len(live)-1]
		}
	}
}

func seeds(t *testing.T, each func(t *testing.T, random *rand.Rand)) {
	t.Helper()
	first, count := rand.Uint64()>>1, uint64(400)
	if text := os.Getenv("ROLLUP_SEED"); text != "" {
		var err error
		if first, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
		count = 1
	}
	for seed := first; seed < first+count; seed++ {
		ok := t.Run(fmt.Sprintf("ROLLUP_SEED=%d", seed), func(t *testing.T) { each(t, rand.New(rand.NewPCG(seed, 7))) })
		if !ok {
			return
		}
	}
}

// P9: sinks and two workers crash, pause and wake between any two steps, calls fail and answers are lost: a rollup
// without lag equals the base.
func TestP9_RollupEqualsTheBaseWhateverCrashes(t *testing.T) {
	seeds(t, func(t *testing.T, random *rand.Rand) { newWorld(random).simulate(t, false, false) })
}

// P9: the same where people accept gaps after a batch was perhaps sent, or the state is restored from a backup.
func TestP9_RollupEqualsTheBaseAfterGapsAndRestores(t *testing.T) {
	seeds(t, func(t *testing.T, random *rand.Rand) {
		gaps := random.IntN(2) == 0
		newWorld(random).simulate(t, gaps, !gaps || random.IntN(2) == 0)
	})
}
