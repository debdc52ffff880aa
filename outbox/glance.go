package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// glance looks for new rows in all lanes of a relay that are idle, with one statement: so an idle lane needs no reads of
// its own. It only wakes readers; what they then find is theirs to judge.
type glance struct {
	last  func(ctx context.Context, lanes []int) (map[int]uint64, error) // lastIDs of the outbox database
	every time.Duration
	wake  func(lane int)

	mu    sync.Mutex
	idle  map[int]uint64 // by lane: the greatest id read
	added chan struct{}  // has a value when there is something to look for
}

func newGlance(last func(context.Context, []int) (map[int]uint64, error), every time.Duration, wake func(lane int)) *glance {
	return &glance{last: last, every: every, wake: wake, idle: map[int]uint64{}, added: make(chan struct{}, 1)}
}

// watch wakes the lane once it has rows after read, or may have them, until ignore.
func (g *glance) watch(lane int, read uint64) {
	g.mu.Lock()
	g.idle[lane] = read
	g.mu.Unlock()
	select {
	case g.added <- struct{}{}:
	default:
	}
}

func (g *glance) ignore(lane int) {
	g.mu.Lock()
	delete(g.idle, lane)
	g.mu.Unlock()
}

// readOf is the greatest id read of a lane, if it is idle.
func (g *glance) readOf(lane int) (read uint64, idle bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	read, idle = g.idle[lane]
	return read, idle
}

// run looks until ctx ends, and not at all while no lane is idle.
func (g *glance) run(ctx context.Context) {
	for {
		select {
		case <-g.added:
		case <-ctx.Done():
			return
		}
		for g.watched() > 0 {
			if !sleep(ctx, g.every) {
				return
			}
			g.look(ctx)
		}
	}
}

func (g *glance) watched() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.idle)
}

func (g *glance) look(ctx context.Context) {
	g.mu.Lock()
	lanes := make([]int, 0, len(g.idle))
	for lane := range g.idle {
		lanes = append(lanes, lane)
	}
	g.mu.Unlock()
	if len(lanes) == 0 {
		return
	}
	slices.Sort(lanes) // one statement for the server's statistics, not one for each order
	last, err := g.last(ctx, lanes)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, lane := range lanes {
		// After an error each reader looks for itself: it says what is wrong, and waits it out.
		if read, idle := g.idle[lane]; idle && (err != nil || last[lane] > read) {
			g.wake(lane)
		}
	}
}

// lastIDs are the greatest committed ids of lanes; a lane whose table is empty has none.
func lastIDs(ctx context.Context, db *sql.DB, lanes []int) (map[int]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	rows, err := db.QueryContext(ctx, lastIDsSQL(lanes))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	last := make(map[int]uint64, len(lanes))
	for rows.Next() {
		var lane int
		var id sql.Null[uint64]
		if err := rows.Scan(&lane, &id); err != nil {
			return nil, err
		}
		last[lane] = id.V
	}
	return last, rows.Err()
}

func lastIDsSQL(lanes []int) string {
	parts := make([]string, len(lanes))
	for i, lane := range lanes {
		parts[i] = fmt.Sprintf("SELECT %d, MAX(id) FROM %s", lane, LaneTable(lane))
	}
	return strings.Join(parts, " UNION ALL ")
}
