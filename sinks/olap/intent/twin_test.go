package intent

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/lease"
	"github.com/slotline/slotline/sinks/olap/rollup"
)

// The twin of the state database: rows in memory, one statement at a time, each as docs and SQL say it, without the rules
// under test.
type twinDB struct {
	row      row
	until    int64 // of the lease, in ticks
	progress []progress.Row
}

func (db *twinDB) copy() twinDB {
	c := *db
	c.progress = slices.Clone(db.progress)
	return c
}

// twinEngine takes rows once per token, as long as it remembers it.
type twinEngine struct {
	window   int
	tokens   []string
	accepted map[event.Partition]map[int64]int // how often it took the row of an offset
	sent     map[string][]message              // by token: an intent fixes the rows
}

type message struct {
	part   event.Partition
	offset int64
}

// world is the twins, a clock, and the processes that take turns.
type world struct {
	random *rand.Rand
	db     twinDB
	engine twinEngine
	clock  int64
	ttl    int64
	logEnd map[event.Partition]int64
	bad    map[message]bool // cannot be held: dead letters
	given  map[message]bool // given up by a person
	fail   bool             // calls fail, and answers are lost
	faults []string
}

// process is one member; its store calls are where others may come in between.
type process struct {
	w       *world
	name    string
	turn    chan bool // true: go on; false: you have crashed
	done    chan bool // true: it has ended
	crashed bool
}

var (
	errCrashed = errors.New("this process has crashed")
	errLost    = errors.New("connection lost")
)

// step hands the turn over, and returns when it comes back.
func (p *process) step() error {
	if p.crashed {
		return errCrashed
	}
	p.done <- false
	if !<-p.turn {
		p.crashed = true
		return errCrashed
	}
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

type twinHold struct {
	p     *process
	fence lease.Fence
	until int64
	lost  chan struct{}
}

func (h *twinHold) Fence() lease.Fence { return h.fence }

// Lost tells what the process can know: a paused one finds out when it looks.
func (h *twinHold) Lost() <-chan struct{} {
	if h.p.w.clock >= h.until && h.lost != nil {
		close(h.lost)
		closed := h.lost
		h.lost = nil
		return closed
	}
	if h.lost == nil {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	return h.lost
}

func (h *twinHold) Keep(context.Context) error { return nil }

func (h *twinHold) Release(context.Context) error {
	return h.p.call(func() {
		if db := &h.p.w.db; db.row.fence == h.fence {
			db.row.fence.Owner, db.until = "", 0
		}
	})
}

func (p *process) acquire(_ context.Context, _ int, owner string, _ time.Duration) (hold, error) {
	var h *twinHold
	err := p.call(func() {
		db := &p.w.db
		if was := db.row.fence.Owner; was == "" || was == owner || p.w.clock >= db.until {
			db.row.fence.Owner, db.until = owner, p.w.clock+p.w.ttl
			db.row.fence.Epoch++
			h = &twinHold{p: p, fence: db.row.fence, until: db.until, lost: make(chan struct{})}
		}
	})
	if err == nil && h == nil {
		err = &fault.Error{Code: "SL7001", Class: fault.Fenced, What: "held"}
	}
	if err != nil {
		return nil, err
	}
	return h, nil
}

func (p *process) takeProgress(_ context.Context, part event.Partition, owner string) (r progress.Row, err error) {
	err = p.call(func() {
		at := &p.w.db.progress[find(p.w.db.progress, part)]
		at.OwnerEpoch++
		at.Owner = owner
		r = *at
	})
	return r, err
}

func (p *process) releaseProgress(_ context.Context, part event.Partition, fence lease.Fence) error {
	return p.call(func() {
		if at := &p.w.db.progress[find(p.w.db.progress, part)]; at.OwnerEpoch == fence.Epoch && at.Owner == fence.Owner {
			at.Owner = ""
		}
	})
}

func (p *process) read(_ context.Context, _ int, parts []event.Partition) (r row, stand []progress.Row, err error) {
	err = p.call(func() {
		r = p.w.db.row
		for _, part := range parts {
			stand = append(stand, p.w.db.progress[find(p.w.db.progress, part)])
		}
	})
	return r, stand, err
}

func (p *process) put(_ context.Context, _ int, fence lease.Fence, i Intent) (found bool, err error) {
	err = p.call(func() {
		if found = p.w.db.row.fence == fence; found {
			p.w.db.row.intent, p.w.db.row.confirmed = i, false
		}
	})
	return found, err
}

func (p *process) takeRollups(context.Context, int, string, bool) error { return nil }

func (p *process) commit(_ context.Context, _ int, fence lease.Fence, confirm *Intent, advances []progress.Advance, _ []rollup.Touched) (done bool, err error) {
	err = p.call(func() {
		after := p.w.db.copy()
		if after.row.fence != fence {
			return
		}
		if confirm != nil {
			if after.row.intent.Seq != confirm.Seq || after.row.intent.Run != confirm.Run {
				return
			}
			after.row.confirmed = true
		}
		for _, a := range advances {
			at := &after.progress[find(after.progress, a.Partition)]
			if at.OwnerEpoch != a.OwnerEpoch || at.Owner != a.Owner || at.Next != a.Start {
				return
			}
			at.Next = a.End
		}
		p.w.checkMoved(advances)
		p.w.db, done = after, true
	})
	return done, err
}

// checkMoved is the promise itself: progress passes nothing that the engine has not taken, dead letters and what a
// person gave up apart.
func (w *world) checkMoved(advances []progress.Advance) {
	for _, a := range advances {
		for o := a.Start; o < a.End; o++ {
			m := message{a.Partition, o}
			if !w.bad[m] && !w.given[m] && w.engine.accepted[a.Partition][o] == 0 {
				w.faults = append(w.faults, "progress passed an offset that the engine does not have")
			}
		}
	}
}

// send gives the engine the rows of one token.
func (p *process) send(token string, rows []message) error {
	return p.call(func() {
		e := &p.w.engine
		if before, ok := e.sent[token]; ok && !slices.Equal(before, rows) {
			p.w.faults = append(p.w.faults, "one token came with two sets of rows")
		}
		e.sent[token] = rows
		if slices.Contains(e.tokens, token) {
			return
		}
		e.tokens = append(e.tokens, token)
		if len(e.tokens) > e.window {
			e.tokens = e.tokens[1:]
		}
		for _, m := range rows {
			if p.w.bad[m] {
				p.w.faults = append(p.w.faults, "an excluded offset was sent")
			}
			e.accepted[m.part][m.offset]++
		}
	})
}
