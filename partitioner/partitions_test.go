package partitioner

import (
	"fmt"
	"slices"
	"testing"
)

// slowPartitions is the twin of WithPartitions: the rule as it is written, slot by slot.
func slowPartitions(s Spec, n int) map[Slot]int {
	owner := make(map[Slot]int)
	for i := range n {
		for slot := i * s.Slots / n; slot < (i+1)*s.Slots/n; slot++ {
			owner[Slot(slot)] = i
		}
	}
	shard := make(map[Slot]string)
	for _, sh := range s.Shards {
		for _, r := range sh.Slots {
			for slot := r.First; slot <= r.Last; slot++ {
				shard[slot] = sh.Name
			}
		}
	}
	for _, tenant := range s.Tenants {
		for _, p := range tenant.Placed {
			shard[p.Slot] = p.Shard
		}
	}
	for slot := FirstPlacedSlot; slot < FirstPlacedSlot+1000; slot++ {
		if shard[slot] == "" {
			continue
		}
		best, bestMeets, bestPlaced := -1, false, 0
		for i := range n {
			if i == 0 && n > 1 {
				continue
			}
			meets, placed := false, 0
			for other, partition := range owner {
				if partition == i {
					meets = meets || shard[other] == shard[slot]
					if other >= FirstPlacedSlot {
						placed++
					}
				}
			}
			if best < 0 || meets && !bestMeets || meets == bestMeets && placed < bestPlaced {
				best, bestMeets, bestPlaced = i, meets, placed
			}
		}
		owner[slot] = best
	}
	return owner
}

func TestWithPartitionsFollowsItsRule(t *testing.T) {
	r := random(t)
	for range 300 {
		s := randomSpec(r)
		n := randomPartitions(r, s)
		want := slowPartitions(s, n)
		l := mustLayout(t, shuffled(r, s), n)
		got := make(map[Slot]int)
		smallest, greatest := s.Slots, 0
		for i, ranges := range l.Spec().Partitions {
			hashSlots := 0
			for _, r := range ranges {
				for slot := r.First; slot <= r.Last; slot++ {
					got[slot] = i
					if slot < FirstPlacedSlot {
						hashSlots++
					}
				}
			}
			smallest, greatest = min(smallest, hashSlots), max(greatest, hashSlots)
			if len(intersectRanges(ranges, s.hashRange())) != 1 {
				t.Fatalf("the hash slots of partition %d are not contiguous: %v", i, ranges)
			}
			if i == 0 && n > 1 && ranges[len(ranges)-1].Last >= FirstPlacedSlot {
				t.Fatalf("the broadcast partition has placed slots: %v", ranges)
			}
		}
		if greatest-smallest > 1 {
			t.Fatalf("partitions of %d and of %d slots", smallest, greatest)
		}
		if len(got) != len(want) {
			t.Fatalf("%d slots, want %d", len(got), len(want))
		}
		for slot, partition := range want {
			if got[slot] != partition {
				t.Fatalf("%s\n%d partitions: slot %d is in %d, want %d", l.Body(), n, slot, got[slot], partition)
			}
		}
	}
}

func TestWithPartitionsExamples(t *testing.T) {
	texts := func(s Spec, n int) (texts []string) {
		t.Helper()
		for _, ranges := range mustLayout(t, s, n).Spec().Partitions {
			texts = append(texts, FormatSlotRanges(ranges))
		}
		return texts
	}
	s := flightsSpec()
	s.Slots, s.Shards[0].Slots[0].Last, s.Shards[1].Slots[0] = 16, 7, SlotRange{8, 15}
	for n, want := range map[int][]string{
		1: {"0-15,100000-100004"},
		2: {"0-7", "8-15,100000-100004"}, // not in 0, although it owns slots of s1
		4: {"0-3", "4-7,100000-100002", "8-11,100003", "12-15,100004"},
		5: {"0-2", "3-5,100000,100002", "6-8,100001", "9-11,100003", "12-15,100004"},
	} {
		if got := texts(s, n); !slices.Equal(got, want) {
			t.Errorf("%d partitions: %q, want %q", n, got, want)
		}
	}
	// A shard without hash slots shares as few partitions as there must be.
	s.Shards = append(s.Shards, ShardSpec{Name: "s3"})
	s.Tenants = []TenantSpec{{"UA", []PlacedSlot{{100_000, "s3"}, {100_001, "s3"}}}}
	if got, want := texts(s, 4), []string{"0-3", "4-7,100000-100001", "8-11", "12-15"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestWithPartitionsRefuses(t *testing.T) {
	s := flightsSpec()
	for n, kind := range map[int]Kind{-1: PartitionsInvalid, 0: PartitionsInvalid, 1025: PartitionsInvalid, PartitionsMax + 1: PartitionsInvalid} {
		if _, err := s.WithPartitions(n); err == nil || ProblemsOf(err)[0].Kind != kind {
			t.Errorf("%d partitions: %v", n, err)
		}
	}
	s.Shards[1].Slots[0].First = 500
	s.Epoch = 0
	if _, err := s.WithPartitions(0); len(ProblemsOf(err)) != 3 {
		t.Errorf("want three problems, got: %v", err)
	}
	if _, err := s.After(mustLayout(t, flightsSpec(), 4), 4, nil); len(ProblemsOf(err)) != 2 {
		t.Errorf("want two problems, got: %v", err)
	}
}

// The file says nothing of partitions; After must find the applied layout in it again.
func TestAfterOfTheSameFileIsTheAppliedLayout(t *testing.T) {
	r := random(t)
	for range 300 {
		file := randomSpec(r)
		n := randomPartitions(r, file)
		applied := mustLayout(t, file, n)
		for range r.IntN(4) { // a history, so that the stored map is no longer that of WithPartitions
			file = changedTenants(r, file, applied)
			applied = mustFollow(t, file, applied, n)
		}
		again := mustFollow(t, shuffled(r, file), applied, n)
		if again.Digest() != applied.Digest() {
			t.Fatalf("%s\nand again\n%s", applied.Body(), again.Body())
		}
	}
}

func TestAfterMovesNoSlotToAnotherPartition(t *testing.T) {
	r := random(t)
	for range 300 {
		file := randomSpec(r)
		n := randomPartitions(r, file)
		applied := mustLayout(t, file, n)
		used := applied.Spec().placedRanges()
		for range 4 {
			file = changedTenants(r, file, applied)
			dealSlots(r, &file)
			next := mustFollow(t, file, applied, n)
			if changes := Diff(applied, next); len(changes.PartitionMoves) > 0 || len(changes.Forgotten) > 0 {
				t.Fatalf("%s\nthen\n%s\n%s", applied.Body(), next.Body(), changes)
			}
			s := next.Spec()
			used = mergeRanges(append(used, s.placedRanges()...))
			if retired := subtractRanges(used, s.placedRanges()); !slices.Equal(retired, s.Retired) {
				t.Fatalf("retired %v, want %v", s.Retired, retired)
			}
			applied = next
		}
	}
}

func TestAfterWithMorePartitionsTakesFreeSlotsAlone(t *testing.T) {
	s := flightsSpec()
	applied := mustLayout(t, s, 4)
	s.Epoch = 2
	for _, c := range []struct {
		free string
		want []string
	}{
		{"0-1023", []string{"0-169", "256-425,100000-100002", "512-681,100003", "768-937,100004", "170-255,426-511", "682-767,938-1023"}},
		{"0-10,200,900-1023", []string{"11-199,201-255", "256-511,100000-100002", "512-767,100003", "768-937,100004", "0-10,200,938-974", "975-1023"}},
		{"", []string{"0-255", "256-511,100000-100002", "512-767,100003", "768-1023,100004", "", ""}},
	} {
		var free []SlotRange
		if c.free != "" {
			free, _ = ParseSlotRanges(c.free)
		}
		spec, err := s.After(applied, 6, free)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, ranges := range spec.Partitions {
			got = append(got, FormatSlotRanges(ranges))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("free %s: %q, want %q", c.free, got, c.want)
		}
	}
}

// slowWiden is the twin of After's rule for new partitions: slot by slot.
func slowWiden(old *Layout, n int, free map[Slot]bool) map[Slot]int {
	owner := make(map[Slot]int)
	counts := make([]int, old.Partitions())
	for slot, to := range old.targets {
		owner[Slot(slot)] = int(to.partition)
		counts[to.partition]++
	}
	var given []Slot
	for slot := old.Slots() - 1; slot >= 0; slot-- {
		if p := owner[Slot(slot)]; free[Slot(slot)] && counts[p] > old.Slots()/n {
			counts[p]--
			given = append(given, Slot(slot))
		}
	}
	slices.Reverse(given)
	takers := n - old.Partitions()
	for taker := range takers {
		for _, slot := range given[taker*len(given)/takers : (taker+1)*len(given)/takers] {
			owner[slot] = old.Partitions() + taker
		}
	}
	return owner
}

func TestAfterWidensAsItsTwin(t *testing.T) {
	r := random(t)
	moved := 0
	for range 500 {
		file := randomSpec(r)
		old := mustLayout(t, file, randomPartitions(r, file))
		n := old.Partitions() + r.IntN(file.Slots-old.Partitions()+1)
		free := make(map[Slot]bool)
		var ranges []SlotRange
		for slot := range Slot(file.Slots) {
			if r.IntN(3) == 0 {
				free[slot] = true
				ranges = append(ranges, SlotRange{slot, slot})
			}
		}
		r.Shuffle(len(ranges), func(i, j int) { ranges[i], ranges[j] = ranges[j], ranges[i] })
		file.Epoch++
		spec, err := shuffled(r, file).After(old, n, ranges)
		if err != nil {
			t.Fatal(err)
		}
		next, err := New(spec)
		if err != nil {
			t.Fatal(err)
		}
		want := slowWiden(old, n, free)
		for slot, to := range next.targets {
			if int(to.partition) != want[Slot(slot)] {
				t.Fatalf("%s\n%d partitions, free %s: slot %d is in %d, want %d", old.Body(), n, FormatSlotRanges(mergeRanges(ranges)),
					slot, to.partition, want[Slot(slot)])
			}
			if to.partition != old.targets[slot].partition {
				moved++
			}
		}
	}
	if moved < 1000 {
		t.Errorf("%d slots changed partition: hardly tested", moved)
	}
}

// Wherever an event of a tenant was ever published, its partition meets the shard that the tenant is in now.
func TestAfterMeetsTheShardOfEveryEarlierEvent(t *testing.T) {
	r := random(t)
	type row struct{ tenant, spread string }
	beyond := 0
	for range 200 {
		file := randomSpec(r)
		applied := mustLayout(t, file, randomPartitions(r, file))
		published := make(map[row]map[int32]bool)
		for step := range 6 {
			if step > 0 {
				file = changedTenants(r, file, applied)
				if r.IntN(2) == 0 {
					file.Shards = append(file.Shards, ShardSpec{Name: fmt.Sprintf("new%d", step)})
				}
				if r.IntN(2) == 0 {
					dealSlots(r, &file)
				}
				applied = mustFollow(t, file, applied, min(applied.Partitions()+r.IntN(2)*r.IntN(4), file.Slots))
			}
			for _, tenant := range file.Tenants { // rows of those that are placed now, and of others
				for range 4 {
					published[row{tenant.Tenant, randomText(r)}] = make(map[int32]bool)
				}
			}
			for range 10 {
				published[row{randomText(r), ""}] = make(map[int32]bool)
			}
			for at, in := range published {
				route := applied.Route(at.tenant, at.spread)
				in[route.Partition] = true
				for p := range in {
					if !slices.Contains(applied.PartitionShards(p), route.Shard) {
						t.Fatalf("%s\npartition %d has events of tenant %q, whose shard %s it does not meet", applied.Body(), p, at.tenant,
							applied.ShardName(route.Shard))
					}
				}
			}
		}
		beyond += len(applied.spec.Met)
		if spec, err := ParseSpec(applied.Body()); err != nil || mustNew(t, spec).Digest() != applied.Digest() {
			t.Fatalf("%s is not read as it was written: %v", applied.Body(), err)
		}
	}
	if beyond < 100 {
		t.Errorf("%d meetings of earlier layouts: hardly tested", beyond)
	}
}

func TestSameRoutesAgreesWithRouting(t *testing.T) {
	r := random(t)
	same, other := 0, 0
	for range 500 {
		file := randomSpec(r)
		old := mustLayout(t, file, randomPartitions(r, file))
		next := changed(t, r, file.canonical(), old)
		var tenants []string
		for _, tenant := range append(old.Spec().Tenants, next.Spec().Tenants...) {
			tenants = append(tenants, tenant.Tenant)
		}
		for _, tenant := range append(tenants, randomText(r), randomText(r)) {
			equal := true
			for range 60 {
				spread := randomText(r)
				a, b := old.Route(tenant, spread), next.Route(tenant, spread)
				equal = equal && a.Slot == b.Slot && a.Partition == b.Partition && old.ShardName(a.Shard) == next.ShardName(b.Shard)
			}
			if got := SameRoutes(old, next, tenant); got != equal {
				t.Fatalf("tenant %q: %v, by routing %v\n%s\n%s", tenant, got, equal, old.Body(), next.Body())
			} else if got {
				same++
			} else {
				other++
			}
		}
	}
	if same < 100 || other < 100 {
		t.Errorf("%d same, %d other: hardly tested", same, other)
	}
}

func TestRetiredSlotsAreNeverGivenAgain(t *testing.T) {
	s := flightsSpec()
	applied := mustLayout(t, s, 4)
	s.Epoch, s.Tenants = 2, s.Tenants[:1]
	applied = mustFollow(t, s, applied, 4)
	if got := FormatSlotRanges(applied.Spec().Retired); got != "100000" {
		t.Fatalf("retired %s", got)
	}
	s.Epoch, s.Tenants = 3, append(s.Tenants[:1:1], TenantSpec{"AA", []PlacedSlot{{100_000, "s1"}}})
	for _, n := range []int{4, 8} {
		if _, err := s.After(applied, n, s.hashRange()); err == nil || ProblemsOf(err)[0].Kind != PlacedSlotReused {
			t.Errorf("slot 100000 was given again: %v", err)
		}
	}
}

func mustFollow(t *testing.T, s Spec, applied *Layout, n int) *Layout {
	t.Helper()
	s, err := s.After(applied, n, s.hashRange())
	if err != nil {
		t.Fatal(err)
	}
	return mustNew(t, s)
}

func mustNew(t *testing.T, s Spec) *Layout {
	t.Helper()
	l, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
