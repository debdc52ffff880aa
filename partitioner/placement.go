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

// placedTable finds the placed tenants by the hash that Route has computed anyway: open addressing, at most an
// eighth full, four bytes a cell, so that a tenant that is not placed (most are not) costs one load. A Go map would
// hash the tenant a second time, which costs more than all the rest of Route.
type placedTable struct {
	mask    uint64   // len(cells)-1; 0 if no tenant is placed
	cells   []uint32 // 0: free; else tag<<placedBits | index into tenants + 1
	tenants []placedTenant
	routes  []Route // of all tenants, each in spread order
}

type placedTenant struct {
	name         string
	first, count uint32 // in routes
}

// placedBits hold a number up to PlacedSlotsMax; the bits above hold a part of the tenant's hash.
const placedBits = 17

func placedTag(sum uint64) uint32 { return uint32(sum>>16) << placedBits }

func newPlacedTable(s Spec, shardIndex map[string]int32, partitions map[Slot]int32) placedTable {
	if len(s.Tenants) == 0 {
		return placedTable{}
	}
	size := 8
	for size < 8*len(s.Tenants) {
		size *= 2
	}
	t := placedTable{mask: uint64(size - 1), cells: make([]uint32, size)}
	for i, tenant := range s.Tenants {
		t.tenants = append(t.tenants, placedTenant{tenant.Tenant, uint32(len(t.routes)), uint32(len(tenant.Placed))})
		for _, p := range tenant.Placed {
			t.routes = append(t.routes, Route{p.Slot, partitions[p.Slot], shardIndex[p.Shard]})
		}
		sum := s.Hash.Sum(tenant.Tenant)
		at := sum & t.mask
		for t.cells[at] != 0 {
			at = (at + 1) & t.mask
		}
		t.cells[at] = placedTag(sum) | uint32(i+1)
	}
	return t
}

// find returns a placed tenant, nil if it is not placed. It must not be called on an empty table. It ends, since most
// cells are free.
func (t *placedTable) find(sum uint64, tenant string) *placedTenant {
	tag := placedTag(sum)
	for at := sum & t.mask; ; at = (at + 1) & t.mask {
		cell := t.cells[at]
		if cell == 0 {
			return nil
		}
		if cell>>placedBits<<placedBits != tag {
			continue
		}
		if p := &t.tenants[cell&(1<<placedBits-1)-1]; p.name == tenant {
			return p
		}
	}
}

// of are the routes of a tenant in the table.
func (t *placedTable) of(p *placedTenant) []Route { return t.routes[p.first : p.first+p.count] }
