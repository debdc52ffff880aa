package partitioner

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Changes is what a newer layout does to an older one. The zero value changes nothing.
type Changes struct {
	OldEpoch, NewEpoch           int64
	OldSlots, NewSlots           int
	OldHash, NewHash             Hash
	OldPartitions, NewPartitions int
	ShardsAdded, ShardsRemoved   []string // by name
	// ShardMoves are the slots, hash and placed, that are in both layouts and change shard, per pair of shards.
	ShardMoves []ShardMove
	// PartitionMoves are the slots, hash and placed, that are in both layouts and change partition, per pair of
	// partitions. They move no row.
	PartitionMoves []PartitionMove
	// Tenants are the tenants whose placed slots, their order or their shards change, by name.
	Tenants []TenantChange
	// Reused are placed slots that belonged to one tenant and now belong to another.
	Reused []SlotReuse
	// Retired are the placed slots that no tenant has any more: their numbers are never used again.
	Retired []SlotRange
	// Forgotten are numbers that were used once and that the newer layout knows nothing of, so that they could be
	// used again. A spec made by After forgets none.
	Forgotten []SlotRange
}

// ShardMove is a set of slots that goes from one shard to another.
type ShardMove struct {
	Slots    []SlotRange
	From, To string
}

// PartitionMove is a set of slots that goes from one partition to another.
type PartitionMove struct {
	Slots    []SlotRange
	From, To int32
}

// TenantChange is a tenant that is placed otherwise.
type TenantChange struct {
	Tenant   string
	Old, New Placement
	From, To []string // the shards that its rows were and will be in, each once, in spread order
	Moves    bool     // whether some of its rows would be in another shard
}

// SlotReuse is a placed slot that changes its tenant.
type SlotReuse struct {
	Slot     Slot
	Old, New string
}

// Diff says what new changes against old.
func Diff(old, new *Layout) Changes {
	c := Changes{
		OldEpoch: old.Epoch(), NewEpoch: new.Epoch(),
		OldSlots: old.Slots(), NewSlots: new.Slots(),
		OldHash: old.Hash(), NewHash: new.Hash(),
		OldPartitions: old.Partitions(), NewPartitions: new.Partitions(),
		ShardsAdded:   without(new.shards, old.shards),
		ShardsRemoved: without(old.shards, new.shards),
		Retired:       subtractRanges(new.spec.Retired, old.spec.Retired),
		Forgotten:     subtractRanges(old.spec.retiredBy(new.spec), new.spec.Retired),
	}
	oldSlots, newSlots := old.placedRoutes(), new.placedRoutes()
	c.diffSlots(old, new, oldSlots, newSlots)
	c.diffTenants(old, new)
	for _, slot := range slices.Sorted(maps.Keys(oldSlots)) {
		was, is := oldSlots[slot].tenant, newSlots[slot].tenant
		if is != "" && was != is {
			c.Reused = append(c.Reused, SlotReuse{slot, was, is})
		}
	}
	return c
}

// without returns what is in a and not in b; both are sorted, and so is the result.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool {
		_, in := slices.BinarySearch(b, s)
		return in
	})
}

type placedRoute struct {
	tenant string
	target
}

func (l *Layout) placedRoutes() map[Slot]placedRoute {
	routes := make(map[Slot]placedRoute)
	for i := range l.placed.tenants {
		tenant := &l.placed.tenants[i]
		for _, r := range l.placed.of(tenant) {
			routes[r.Slot] = placedRoute{tenant.name, target{r.Partition, r.Shard}}
		}
	}
	return routes
}

// diffSlots compares the slots that both layouts have, one by one.
func (c *Changes) diffSlots(old, new *Layout, oldPlaced, newPlaced map[Slot]placedRoute) {
	type shards struct{ from, to string }
	type partitions struct{ from, to int32 }
	shardMoves := make(map[shards][]SlotRange)
	partitionMoves := make(map[partitions][]SlotRange)
	compare := func(slot Slot, was, is target) {
		one := SlotRange{slot, slot}
		if s := (shards{old.shards[was.shard], new.shards[is.shard]}); s.from != s.to {
			shardMoves[s] = append(shardMoves[s], one)
		}
		if p := (partitions{was.partition, is.partition}); p.from != p.to {
			partitionMoves[p] = append(partitionMoves[p], one)
		}
	}
	for slot := range min(len(old.targets), len(new.targets)) {
		compare(Slot(slot), old.targets[slot], new.targets[slot])
	}
	for slot, was := range oldPlaced {
		if is, ok := newPlaced[slot]; ok {
			compare(slot, was.target, is.target)
		}
	}
	for s, slots := range shardMoves {
		c.ShardMoves = append(c.ShardMoves, ShardMove{mergeRanges(slots), s.from, s.to})
	}
	for p, slots := range partitionMoves {
		c.PartitionMoves = append(c.PartitionMoves, PartitionMove{mergeRanges(slots), p.from, p.to})
	}
	slices.SortFunc(c.ShardMoves, func(a, b ShardMove) int { return cmp.Compare(a.Slots[0].First, b.Slots[0].First) })
	slices.SortFunc(c.PartitionMoves, func(a, b PartitionMove) int { return cmp.Compare(a.Slots[0].First, b.Slots[0].First) })
}

func (c *Changes) diffTenants(old, new *Layout) {
	names := make(map[string]bool)
	for _, l := range []*Layout{old, new} {
		for _, t := range l.spec.Tenants {
			names[t.Tenant] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, is := old.placedOf(name), new.placedOf(name)
		if slices.Equal(was, is) {
			continue
		}
		wasShards, isShards := old.shardsOf(name), new.shardsOf(name)
		c.Tenants = append(c.Tenants, TenantChange{
			Tenant: name, Old: Placement(len(was)), New: Placement(len(is)),
			From: eachOnce(wasShards), To: eachOnce(isShards),
			Moves: spreadMoves(wasShards, isShards) || !c.sameHashing(),
		})
	}
}

func (l *Layout) placedOf(tenant string) []PlacedSlot {
	i, ok := slices.BinarySearchFunc(l.spec.Tenants, tenant, func(t TenantSpec, name string) int { return strings.Compare(t.Tenant, name) })
	if !ok {
		return nil
	}
	return l.spec.Tenants[i].Placed
}

// shardsOf are the names of the shards that a tenant's rows are in, in spread order.
func (l *Layout) shardsOf(tenant string) []string {
	var names []string
	for _, r := range l.Routes(tenant) {
		names = append(names, l.shards[r.Shard])
	}
	return names
}

func eachOnce(names []string) []string {
	var once []string
	for _, name := range names {
		if !slices.Contains(once, name) {
			once = append(once, name)
		}
	}
	return once
}

// spreadMoves says whether a row can be in another shard when the list that its spread hash picks from changes from
// was to is. A hash picks was[i] and is[j] for some row exactly if i and j are equal modulo the greatest common
// divisor of the lengths; so per such class all entries of both lists must be one shard.
func spreadMoves(was, is []string) bool {
	classes := gcd(len(was), len(is))
	for i, name := range was {
		if name != was[i%classes] {
			return true
		}
	}
	for j, name := range is {
		if name != was[j%classes] {
			return true
		}
	}
	return false
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func (c Changes) sameHashing() bool { return c.OldSlots == c.NewSlots && c.OldHash == c.NewHash }

// Empty says whether the two layouts are the same but for the epoch.
func (c Changes) Empty() bool {
	return c.sameHashing() && c.OldPartitions == c.NewPartitions &&
		len(c.ShardsAdded)+len(c.ShardsRemoved)+len(c.ShardMoves)+len(c.PartitionMoves)+len(c.Tenants)+
			len(c.Retired)+len(c.Forgotten) == 0
}

// MovesData says whether rows that exist under the old layout could be in another shard under the new one.
func (c Changes) MovesData() bool {
	if !c.sameHashing() || len(c.ShardMoves) > 0 {
		return true
	}
	return slices.ContainsFunc(c.Tenants, func(t TenantChange) bool { return t.Moves })
}

// Err is why the new layout may never follow the old, as Problems; nil if it may. It does not object to moving rows:
// see MovesData.
func (c Changes) Err() error {
	var ps Problems
	if c.OldSlots != c.NewSlots {
		ps.add(SlotsChanged, []Party{{Part: PartSlots}}, nil, fmt.Sprint(c.OldSlots),
			"slots changes from %d to %d, which would place every tenant anew; it never changes", c.OldSlots, c.NewSlots)
	}
	if c.OldHash != c.NewHash {
		ps.add(HashChanged, []Party{{Part: PartHash}}, nil, c.OldHash.String(),
			"hash changes from %s to %s, which would place every tenant anew; it never changes", c.OldHash, c.NewHash)
	}
	if c.NewPartitions < c.OldPartitions {
		ps.add(PartitionsRemoved, []Party{{Part: PartPartitions}}, nil, fmt.Sprint(c.OldPartitions),
			"partitions changes from %d to %d; Kafka cannot take a partition away", c.OldPartitions, c.NewPartitions)
	}
	for _, r := range c.Reused {
		ps.add(PlacedSlotReused, []Party{{Part: PartTenant, Name: r.New}}, []SlotRange{{r.Slot, r.Slot}}, "",
			"tenant %s is given slot %d, which belonged to tenant %s; take a number that was never used",
			quoteBounded(r.New), r.Slot, quoteBounded(r.Old))
	}
	if len(c.Forgotten) > 0 {
		ps.add(PlacedSlotReused, nil, c.Forgotten, "",
			"the layout no longer knows that %s were used, so a tenant could be given them again", slotWords(c.Forgotten))
	}
	if c.NewEpoch < c.OldEpoch || c.NewEpoch == c.OldEpoch && !c.Empty() {
		ps.add(EpochNotGreater, []Party{{Part: PartEpoch}}, nil, fmt.Sprint(c.OldEpoch+1),
			"layout epoch is %d, the applied layout has %d; a layout that differs needs a greater one", c.NewEpoch, c.OldEpoch)
	}
	return ps.err()
}
