package partitioner

import (
	"slices"
	"strings"
	"testing"
)

// A layout is allowed exactly if the rows of every tenant that has some stay where they are, and a slot is free exactly
// if none of them is in it: both by looking at each tenant.
func TestCensusAgreesWithItsTwin(t *testing.T) {
	r := random(t)
	refused, allowed := 0, 0
	for range 1000 {
		file := randomSpec(r)
		old := mustLayout(t, file, randomPartitions(r, file))
		next := changed(t, r, file.canonical(), old)
		var tenants []string
		for range r.IntN(4) {
			tenants = append(tenants, randomText(r))
		}
		for _, tenant := range old.Spec().Tenants {
			if r.IntN(3) == 0 {
				tenants = append(tenants, tenant.Tenant)
			}
		}
		census, moved := NewCensus(old), NewMoved(old, next)
		taken, stay := make(map[Slot]bool), true
		for _, tenant := range append(tenants, tenants...) {
			census.Add(tenant)
			moved.Add(tenant)
			for _, route := range old.Routes(tenant) {
				taken[route.Slot] = true
			}
			for range 40 {
				spread := randomText(r)
				a, b := old.Route(tenant, spread), next.Route(tenant, spread)
				stay = stay && a.Slot == b.Slot && a.Partition == b.Partition && old.ShardName(a.Shard) == next.ShardName(b.Shard)
			}
		}
		if moved.Empty() != stay {
			t.Fatalf("tenants %q stay %v\n%s\n%s\n%q", tenants, stay, old.Body(), next.Body(), moved.Lines())
		} else if stay {
			allowed++
		} else {
			refused++
		}
		free := census.Free()
		for slot := range Slot(old.Slots()) {
			is := slices.ContainsFunc(free, func(r SlotRange) bool { return r.Contains(slot) })
			if is == taken[slot] {
				t.Fatalf("tenants %q: slot %d is free: %v", tenants, slot, is)
			}
		}
	}
	if refused < 100 || allowed < 100 {
		t.Errorf("%d refused, %d allowed: hardly tested", refused, allowed)
	}
}

func TestMovedLines(t *testing.T) {
	old := mustLayout(t, flightsSpec(), 4)
	s := flightsSpec()
	s.Epoch = 2
	s.Shards[1].Slots[0].Last = 1020
	s.Shards = append(s.Shards, ShardSpec{Name: "s3", Slots: []SlotRange{{1021, 1023}}})
	s.Shards[0].Slots[0].Last, s.Shards[1].Slots[0].First = 255, 256
	s.Tenants = append(s.Tenants, TenantSpec{"WN", []PlacedSlot{{100_005, "s1"}}})
	moved := NewMoved(old, mustFollow(t, s, old, 4))
	var names []string
	for a := 'A'; a <= 'Z'; a++ {
		for b := 'A'; b <= 'Z'; b++ {
			names = append(names, string([]rune{a, b}))
		}
	}
	for _, name := range names {
		moved.Add(name)
	}
	golden(t, "moved.golden.txt", strings.Join(append(moved.Lines(), moved.Spare()...), "\n")+"\n")
}
