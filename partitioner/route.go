package partitioner

import "slices"

// Route is where an event goes.
type Route struct {
	Slot      Slot
	Partition int32
	Shard     int32 // index into Layout.Shards
}

// broadcastPartition takes the events of broadcast tables; it meets every shard.
const broadcastPartition = 0

// Route is where the events of a tenant go. spread is the canonical text of the row's spread field; it counts only
// for a tenant that is spread over n placed slots, whose slot is placed[H(spread) mod n]. Route allocates nothing.
func (l *Layout) Route(tenant, spread string) Route {
	sum := l.hash.Sum(tenant)
	if l.placed.mask != 0 {
		if p := l.placed.find(sum, tenant); p != nil {
			i := p.first
			if p.count > 1 {
				i += uint32(l.hash.Sum(spread) % uint64(p.count))
			}
			return l.placed.routes[i]
		}
	}
	slot := sum & l.slotMask
	if l.slotMask == 0 {
		slot = sum % l.slots
	}
	t := l.targets[slot]
	return Route{Slot: Slot(slot), Partition: t.partition, Shard: t.shard}
}

// RouteBytes is Route of the same bytes; it keeps neither.
func (l *Layout) RouteBytes(tenant, spread []byte) Route { return l.Route(view(tenant), view(spread)) }

// Routes are all the routes that a tenant's events can take: one, or one per placed slot in spread order. It is a
// copy.
func (l *Layout) Routes(tenant string) []Route {
	if p := l.placedTenant(tenant); p != nil {
		return slices.Clone(l.placed.of(p))
	}
	return []Route{l.Route(tenant, "")}
}

// SpreadCount is the number of a tenant's placed slots: 0 if it is shared (placed by hash), 1 if dedicated, n if
// spread(n).
func (l *Layout) SpreadCount(tenant string) int {
	if p := l.placedTenant(tenant); p != nil {
		return int(p.count)
	}
	return 0
}

func (l *Layout) placedTenant(tenant string) *placedTenant {
	if l.placed.mask == 0 {
		return nil
	}
	return l.placed.find(l.hash.Sum(tenant), tenant)
}

// Placement is how a tenant is placed.
func (l *Layout) Placement(tenant string) Placement { return Placement(l.SpreadCount(tenant)) }

// Broadcast is the partition that takes the events of broadcast tables. It meets every shard.
func (l *Layout) Broadcast() (partition int32) { return broadcastPartition }
