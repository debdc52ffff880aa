package partitioner

import (
	"cmp"
	"slices"
	"strings"
)

// metAfter is what partitions meet in next because of layouts before it. An event stays in the partition that it was
// published to, while a sink places it by the newest layout: so where a slot or a tenant has been, the shard that it is
// in now is met for good. By induction it is enough to look at the layout before and at its own list: the events of a
// tenant lie in its present partition, or in one that the list has with its present shard.
func metAfter(old, next *Layout) []Meeting {
	met := slices.Clone(old.spec.Met)
	add := func(partition int, shard string) {
		if partition != broadcastPartition { // it meets all
			met = append(met, Meeting{partition, shard})
		}
	}
	// follow is called for what was routed to one place and is routed to another.
	follow := func(was target, shard string) {
		add(int(was.partition), shard)
		for _, m := range old.spec.Met {
			if m.Shard == old.shards[was.shard] {
				add(m.Partition, shard)
			}
		}
	}
	for slot := range min(len(old.targets), len(next.targets)) {
		if was, is := old.targets[slot], next.targets[slot]; old.shards[was.shard] != next.shards[is.shard] || was.partition != is.partition {
			follow(was, next.shards[is.shard])
		}
	}
	for _, l := range []*Layout{old, next} {
		for _, t := range l.spec.Tenants {
			if SameRoutes(old, next, t.Tenant) {
				continue
			}
			for _, was := range old.Routes(t.Tenant) {
				for _, shard := range eachOnce(next.shardsOf(t.Tenant)) {
					follow(target{was.Partition, was.Shard}, shard)
				}
			}
		}
	}
	met = slices.DeleteFunc(met, func(m Meeting) bool { return !slices.Contains(next.shards, m.Shard) })
	slices.SortFunc(met, compareMeetings)
	return slices.Compact(met)
}

func compareMeetings(a, b Meeting) int {
	return cmp.Or(cmp.Compare(a.Partition, b.Partition), strings.Compare(a.Shard, b.Shard))
}

// SameRoutes says whether all events of a tenant go where they went: to the same slots, partitions and shards, for each
// value of the spread field.
func SameRoutes(old, next *Layout, tenant string) bool {
	was, is := old.Routes(tenant), next.Routes(tenant)
	return slices.EqualFunc(was, is, func(a, b Route) bool {
		return a.Slot == b.Slot && a.Partition == b.Partition && old.shards[a.Shard] == next.shards[b.Shard]
	})
}
