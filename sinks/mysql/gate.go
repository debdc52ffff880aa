package mysql

import (
	"context"
	"errors"
	"sync"
)

// errStopped ends a shard's transaction because another shard could not go on.
var errStopped = errors.New("another shard of the batch could not go on")

// gate lets the transactions of a broadcast batch commit once all of them are ready to, and none if one is not. A nil
// gate lets everybody pass.
type gate struct {
	mu     sync.Mutex
	absent int           // tasks that are neither at the gate nor gone
	failed bool          // one left before it came to the gate
	opened chan struct{} // closed when absent is 0
}

func newGate(tasks int) *gate { return &gate{absent: tasks, opened: make(chan struct{})} }

// pass waits for the others, and says whether all are ready. Sent again after an unknown COMMIT, a task passes again.
func (g *gate) pass(ctx context.Context, t *task) bool {
	if g == nil {
		return true
	}
	g.arrive(t, false)
	select {
	case <-g.opened:
	case <-ctx.Done():
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.failed
}

// leave is called when a task has ended; one that ended well without a COMMIT of its own found its part done.
func (g *gate) leave(t *task) {
	if g != nil {
		g.arrive(t, t.err != nil || len(t.rejected) > 0)
	}
}

// arrive counts a task once.
func (g *gate) arrive(t *task, failed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.arrived {
		return
	}
	t.arrived = true
	g.failed = g.failed || failed
	if g.absent--; g.absent == 0 {
		close(g.opened)
	}
}
