package partitioner

import "fmt"

// Placement is how a tenant is placed: the number of its placed slots, 0 if it is placed by hash.
type Placement int

const (
	Shared    Placement = 0 // by hash, beside other tenants
	Dedicated Placement = 1 // in a slot of its own
)

// String is "shared", "dedicated" or "spread(4)".
func (p Placement) String() string {
	switch p {
	case Shared:
		return "shared"
	case Dedicated:
		return "dedicated"
	}
	return fmt.Sprintf("spread(%d)", int(p))
}

// placedTable finds the placed tenants by the hash that Route has computed anyway: open addressing, at most half
// full. A Go map would hash the tenant a second time, which costs more than all the rest of Route.
type placedTable struct {
	mask    uint64 // len(tenants)-1; 0 if no tenant is placed
	tenants []placedTenant
}

type placedTenant struct {
	sum    uint64
	tenant string
	routes []Route // in spread order; nil in a free cell
}

func newPlacedTable(s Spec, shardIndex map[string]int32, partitions map[Slot]int32) placedTable {
	if len(s.Tenants) == 0 {
		return placedTable{}
	}
	size := 2
	for size < 2*len(s.Tenants) {
		size *= 2
	}
	t := placedTable{mask: uint64(size - 1), tenants: make([]placedTenant, size)}
	for _, tenant := range s.Tenants {
		cell := placedTenant{sum: s.Hash.Sum(tenant.Tenant), tenant: tenant.Tenant}
		for _, p := range tenant.Placed {
			cell.routes = append(cell.routes, Route{p.Slot, partitions[p.Slot], shardIndex[p.Shard]})
		}
		i := cell.sum & t.mask
		for t.tenants[i].routes != nil {
			i = (i + 1) & t.mask
		}
		t.tenants[i] = cell
	}
	return t
}

// find returns a tenant's routes, nil if it is not placed. It must not be called on an empty table. A free cell
// always exists, so it ends.
func (t *placedTable) find(sum uint64, tenant string) []Route {
	for i := sum & t.mask; ; i = (i + 1) & t.mask {
		cell := &t.tenants[i]
		if cell.routes == nil || cell.sum == sum && cell.tenant == tenant {
			return cell.routes
		}
	}
}
