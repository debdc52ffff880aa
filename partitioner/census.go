package partitioner

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Census collects the tenants that have rows, and says what a newer layout would do to them. The zero value is not
// valid; see NewCensus. A tenant may be added many times.
type Census struct {
	old   *Layout
	slots map[Slot]bool // hash slots of tenants that are placed by hash and have rows
}

// NewCensus is one without tenants, under the layout in force.
func NewCensus(old *Layout) *Census { return &Census{old: old, slots: make(map[Slot]bool)} }

// Add says that a tenant has a row.
func (c *Census) Add(tenant string) {
	if r := c.old.Route(tenant, ""); r.Slot < FirstPlacedSlot {
		c.slots[r.Slot] = true
	}
}

// Free are the hash slots that no tenant with rows is in.
func (c *Census) Free() []SlotRange {
	var used []SlotRange
	for slot := range c.slots {
		used = append(used, SlotRange{slot, slot})
	}
	return subtractRanges(c.old.spec.hashRange(), mergeRanges(used))
}

// Moved are the tenants with rows that a newer layout would route otherwise. A layout is allowed only if there is none.
type Moved struct {
	old, next *Layout
	groups    map[movedKey]*movedGroup
}

// movedKey is where such tenants are and would be: "shard s2 -> s3".
type movedKey struct{ what, from, to string }

type movedGroup struct {
	tenants map[string]bool
	slots   []SlotRange
}

// NewMoved is one without tenants.
func NewMoved(old, next *Layout) *Moved {
	return &Moved{old: old, next: next, groups: make(map[movedKey]*movedGroup)}
}

// Add says that a tenant has a row.
func (m *Moved) Add(tenant string) {
	if SameRoutes(m.old, m.next, tenant) {
		return
	}
	key := m.key(tenant)
	g := m.groups[key]
	if g == nil {
		g = &movedGroup{tenants: make(map[string]bool)}
		m.groups[key] = g
	}
	if g.tenants[tenant] {
		return
	}
	g.tenants[tenant] = true
	for _, r := range m.old.Routes(tenant) {
		g.slots = append(g.slots, SlotRange{r.Slot, r.Slot})
	}
}

// key names the dearest of what would change for a tenant.
func (m *Moved) key(tenant string) movedKey {
	list := func(l *Layout, name func(Route) string) string {
		var names []string
		for _, r := range l.Routes(tenant) {
			names = append(names, name(r))
		}
		return strings.Join(eachOnce(names), ", ")
	}
	of := func(what string, was, is func(Route) string) movedKey {
		return movedKey{what, list(m.old, was), list(m.next, is)}
	}
	shard := of("shard", func(r Route) string { return m.old.shards[r.Shard] }, func(r Route) string { return m.next.shards[r.Shard] })
	if shard.from != shard.to {
		return shard
	}
	number := func(r Route) string { return fmt.Sprint(r.Partition) }
	if partition := of("partition", number, number); partition.from != partition.to {
		return partition
	}
	slot := func(r Route) string { return fmt.Sprint(r.Slot) }
	return of("slot", slot, slot)
}

// Empty says that nobody would be routed otherwise.
func (m *Moved) Empty() bool { return len(m.groups) == 0 }

// tenantsNamedMax tenants of a group are named.
const tenantsNamedMax = 3

// Lines name the tenants, those that go the same way in a line: `shard s2 -> s3: 2 tenants with rows, slots 700,801:
// "AA", "WN"`.
func (m *Moved) Lines() []string {
	var t changesText
	keys := slices.SortedFunc(maps.Keys(m.groups), func(a, b movedKey) int {
		return cmp.Or(cmp.Compare(m.groups[a].least(), m.groups[b].least()), strings.Compare(a.from, b.from), strings.Compare(a.to, b.to))
	})
	for _, key := range keys[:min(len(keys), linesMax)] {
		g := m.groups[key]
		names := slices.Sorted(maps.Keys(g.tenants))
		noun, more := "tenants", ""
		if len(names) == 1 {
			noun = "tenant"
		}
		if n := len(names) - tenantsNamedMax; n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		for i, name := range names[:min(len(names), tenantsNamedMax)] {
			names[i] = quoteBounded(name)
		}
		t.line("%s %s -> %s: %d %s with rows, %s: %s%s", key.what, key.from, key.to, len(g.tenants), noun,
			slotWords(mergeRanges(g.slots)), strings.Join(names[:min(len(names), tenantsNamedMax)], ", "), more)
	}
	t.more(len(keys), "such ways")
	return t
}

func (g *movedGroup) least() Slot {
	return slices.MinFunc(g.slots, func(a, b SlotRange) int { return cmp.Compare(a.First, b.First) }).First
}

// spareRangesMax ranges are written out, to be copied into a file.
const spareRangesMax = 64

// Spare are, of the slots that would change their shard, those without rows, by the shard that they would go to: "s3:
// 768-1023".
func (m *Moved) Spare() []string {
	var held []SlotRange
	for _, g := range m.groups {
		held = append(held, g.slots...)
	}
	held = mergeRanges(held)
	by := make(map[string][]SlotRange)
	for _, move := range Diff(m.old, m.next).ShardMoves {
		by[move.To] = append(by[move.To], subtractRanges(move.Slots, held)...)
	}
	var list []string
	for _, shard := range slices.Sorted(maps.Keys(by)) {
		spare := mergeRanges(by[shard])
		switch {
		case len(spare) > spareRangesMax:
			list = append(list, shard+": "+slotWords(spare))
		case len(spare) > 0:
			list = append(list, shard+": "+FormatSlotRanges(spare))
		}
	}
	return list
}
