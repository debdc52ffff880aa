package consumers

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
)

// Halt is one halted partition.
type Halt struct {
	event.Partition
	Since time.Time
	Why   *fault.Error

	next, stable int64 // where the sink stands, and the log ends; stable is 0 until it is known
}

// lag is how many offsets, and at least how much time, the partition is behind.
func (h Halt) lag(now time.Time) (events int64, behind time.Duration) {
	return max(0, h.stable-h.next), now.Sub(h.Since)
}

// Halted is what Run returns when partitions are halted at its end. The exit status of the command is 4.
type Halted struct {
	Sink  string
	Halts []Halt // by topic and partition
}

// Error has one paragraph for all partitions of a topic that are halted for the same reason, since the first of them was.
func (h *Halted) Error() string {
	type group struct {
		topic, why string
		since      time.Time
		parts      []int32
	}
	var groups []*group
	for _, p := range h.Halts {
		why := p.Why.Error()
		i := slices.IndexFunc(groups, func(g *group) bool { return g.topic == p.Topic && g.why == why })
		if i < 0 {
			i = len(groups)
			groups = append(groups, &group{topic: p.Topic, why: why, since: p.Since})
		}
		g := groups[i]
		g.parts = append(g.parts, p.Number)
		if p.Since.Before(g.since) {
			g.since = p.Since
		}
	}
	var b strings.Builder
	for i, g := range groups {
		if i > 0 {
			b.WriteByte('\n')
		}
		noun := "partition"
		if len(g.parts) > 1 {
			noun = "partitions"
		}
		fmt.Fprintf(&b, "%s, %s %s %s halted since %s: %s", h.Sink, g.topic, noun, spans(g.parts),
			g.since.UTC().Format("15:04:05Z"), g.why)
	}
	return b.String()
}

// Unwrap lets fault.CodeOf find the first partition's code.
func (h *Halted) Unwrap() error { return h.Halts[0].Why }

// halts is the register of halted partitions of one loop.
type halts struct {
	mu sync.Mutex
	by map[event.Partition]Halt
}

// verdicts are the codes of judge and of what is asked with it, before anything is read: these halts end as soon as the log is found to continue
// what was applied. The others end when a batch is applied, or when there is nothing to apply.
var verdicts = map[string]bool{"SL6001": true, "SL6002": true, "SL6003": true, "SL6004": true, "SL6012": true}

// add registers a halt and says whether it is new or has another reason than before.
func (h *halts) add(p event.Partition, next int64, why *fault.Error, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	old, ok := h.by[p]
	if ok && old.Why.Error() == why.Error() {
		return false
	}
	if h.by == nil {
		h.by = map[event.Partition]Halt{}
	}
	if ok {
		now = old.Since
	}
	h.by[p] = Halt{Partition: p, Since: now, Why: why, next: next, stable: old.stable}
	return true
}

// clear ends a halt; it says whether there was one.
func (h *halts) clear(p event.Partition) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.by[p]
	delete(h.by, p)
	return ok
}

// isVerdict says whether a partition's halt is one that judge had spoken.
func (h *halts) isVerdict(p event.Partition) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	old, ok := h.by[p]
	return ok && verdicts[old.Why.Code]
}

// look notes where the log of a halted partition ends.
func (h *halts) look(p event.Partition, stable int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if old, ok := h.by[p]; ok {
		old.stable = stable
		h.by[p] = old
	}
}

func (h *halts) list() []Halt {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.by))
}

func (h *halts) has(p event.Partition) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.by[p]
	return ok
}

// err is *Halted, or nil.
func (h *halts) err(sink string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.by) == 0 {
		return nil
	}
	return &Halted{Sink: sink, Halts: slices.SortedFunc(maps.Values(h.by), func(a, b Halt) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return int(a.Number) - int(b.Number)
	})}
}
