package partitioner

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestDiffOfALayoutWithItselfIsEmpty(t *testing.T) {
	r := random(t)
	for range 300 {
		l := randomLayout(t, r)
		c := Diff(l, l)
		if !c.Empty() || c.MovesData() || c.Err() != nil {
			t.Fatalf("%s\n%s%v", l.Body(), c, c.Err())
		}
		s := l.Spec()
		s.Epoch++
		later, err := New(s)
		if err != nil {
			t.Fatal(err)
		}
		if c := Diff(l, later); !c.Empty() || c.Err() != nil {
			t.Fatalf("only the epoch is greater, but\n%s%v", c, c.Err())
		}
		if c := Diff(later, l); c.Err() == nil {
			t.Fatal("the epoch went back")
		}
	}
}

// changed is s with random differences, made as apply makes them (After) or anew.
func changed(t *testing.T, r *rand.Rand, s Spec, applied *Layout) *Layout {
	t.Helper()
	n := applied.Partitions()
	if r.IntN(3) == 0 {
		s = changedTenants(r, s, applied)
	}
	if r.IntN(3) == 0 {
		s.Shards = append(s.Shards, ShardSpec{Name: "new"})
	}
	if r.IntN(3) == 0 {
		dealSlots(r, &s)
	}
	if r.IntN(3) == 0 && len(s.Tenants) > 0 {
		placed := s.Tenants[r.IntN(len(s.Tenants))].Placed
		placed[r.IntN(len(placed))].Shard = s.Shards[r.IntN(len(s.Shards))].Name
		r.Shuffle(len(placed), func(i, j int) { placed[i], placed[j] = placed[j], placed[i] })
	}
	if r.IntN(3) == 0 {
		n = randomPartitions(r, s)
	}
	if r.IntN(4) == 0 {
		return mustLayout(t, s, n)
	}
	return mustFollow(t, s, applied, n)
}

// Applying the changes to the old layout gives the new one, slot by slot.
func TestDiffNamesExactlyWhatChanges(t *testing.T) {
	r := random(t)
	empty, moving := 0, 0
	for range 2000 {
		s := randomSpec(r)
		old := mustLayout(t, s, randomPartitions(r, s))
		new := changed(t, r, s.canonical(), old)
		c := Diff(old, new)

		oldSpec, newSpec := old.Spec(), new.Spec()
		oldSpec.Epoch, newSpec.Epoch = 1, 1
		a, errA := New(oldSpec)
		b, errB := New(newSpec)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if same := a.Digest() == b.Digest(); c.Empty() != same {
			t.Fatalf("Empty %v, digests the same %v\n%s\n%s\n%s", c.Empty(), same, old.Body(), new.Body(), c)
		} else if same {
			empty++
		}

		checkMoves(t, old, new, c)

		if got := movesByRouting(r, old, new); got && !c.MovesData() {
			t.Fatalf("a row moves, but MovesData is false\n%s\n%s\n%s", old.Body(), new.Body(), c)
		} else if got {
			moving++
		}
		if !c.MovesData() != strings.HasSuffix(c.String(), "no row moves\n") && !(c.Empty() && c.OldEpoch == c.NewEpoch) {
			t.Fatalf("String does not say whether rows move:\n%s", c)
		}

		back := Diff(new, old)
		if back.MovesData() != c.MovesData() || len(back.ShardMoves) != len(c.ShardMoves) ||
			len(back.PartitionMoves) != len(c.PartitionMoves) || len(back.Tenants) != len(c.Tenants) ||
			!slices.Equal(back.ShardsAdded, c.ShardsRemoved) || !slices.Equal(back.ShardsRemoved, c.ShardsAdded) {
			t.Fatalf("there:\n%s and back:\n%s", c, back)
		}
		for i, there := range c.Tenants {
			again := back.Tenants[i]
			if there.Tenant != again.Tenant || there.Moves != again.Moves || there.Old != again.New || !slices.Equal(there.From, again.To) {
				t.Fatalf("%+v there, %+v back", there, again)
			}
		}
	}
	if empty < 20 || moving < 200 {
		t.Errorf("%d empty, %d moving: hardly tested", empty, moving)
	}
}

func checkMoves(t *testing.T, old, new *Layout, c Changes) {
	t.Helper()
	where := func(l *Layout) (shards map[Slot]string, partitions map[Slot]int32) {
		shards, partitions = make(map[Slot]string), make(map[Slot]int32)
		s := l.Spec()
		for _, shard := range s.Shards {
			for _, r := range shard.Slots {
				for slot := r.First; slot <= r.Last; slot++ {
					shards[slot] = shard.Name
				}
			}
		}
		for _, tenant := range s.Tenants {
			for _, p := range tenant.Placed {
				shards[p.Slot] = p.Shard
			}
		}
		for i, ranges := range s.Partitions {
			for _, r := range ranges {
				for slot := r.First; slot <= r.Last; slot++ {
					partitions[slot] = int32(i)
				}
			}
		}
		return shards, partitions
	}
	oldShards, oldPartitions := where(old)
	newShards, newPartitions := where(new)
	for _, m := range c.ShardMoves {
		for _, r := range m.Slots {
			for slot := r.First; slot <= r.Last; slot++ {
				if oldShards[slot] != m.From || m.From == m.To {
					t.Fatalf("slot %d does not move from %s to %s", slot, m.From, m.To)
				}
				oldShards[slot] = m.To
			}
		}
	}
	for _, m := range c.PartitionMoves {
		for _, r := range m.Slots {
			for slot := r.First; slot <= r.Last; slot++ {
				if oldPartitions[slot] != m.From || m.From == m.To {
					t.Fatalf("slot %d does not move from partition %d to %d", slot, m.From, m.To)
				}
				oldPartitions[slot] = m.To
			}
		}
	}
	for slot, shard := range newShards {
		if was, ok := oldShards[slot]; ok && was != shard {
			t.Fatalf("slot %d was in %s and is in %s, the changes say nothing", slot, was, shard)
		}
		if was, ok := oldPartitions[slot]; ok && was != newPartitions[slot] {
			t.Fatalf("slot %d was in partition %d and is in %d, the changes say nothing", slot, was, newPartitions[slot])
		}
	}
}

// movesByRouting is the twin of MovesData: route many rows by both layouts.
func movesByRouting(r *rand.Rand, old, new *Layout) bool {
	tenants := []string{}
	for _, l := range []*Layout{old, new} {
		for _, t := range l.Spec().Tenants {
			tenants = append(tenants, t.Tenant)
		}
	}
	for range 50 {
		tenants = append(tenants, randomText(r))
	}
	for _, tenant := range tenants {
		for range 20 {
			spread := randomText(r)
			if old.ShardName(old.Route(tenant, spread).Shard) != new.ShardName(new.Route(tenant, spread).Shard) {
				return true
			}
		}
	}
	return false
}

// spreadMoves must be exact, in both directions: a false alarm would refuse a harmless change.
func TestSpreadMovesAgreesWithEveryHash(t *testing.T) {
	r := random(t)
	lists := func() []string {
		list := make([]string, 1+r.IntN(6))
		for i := range list {
			list[i] = []string{"s1", "s2"}[r.IntN(2)]
			if r.IntN(2) == 0 {
				list[i] = "s1"
			}
		}
		return list
	}
	still := 0
	for range 5000 {
		was, is := lists(), lists()
		want := false
		for hash := range len(was) * len(is) {
			want = want || was[hash%len(was)] != is[hash%len(is)]
		}
		if got := spreadMoves(was, is); got != want {
			t.Fatalf("%v -> %v moves %v, want %v", was, is, got, want)
		}
		if !want {
			still++
		}
	}
	if still < 100 {
		t.Errorf("only %d do not move", still)
	}
}

// The transcripts show what a person reads before a layout is applied.
func TestDiffTranscripts(t *testing.T) {
	applied := mustLayout(t, flightsSpec(), 16)
	var out strings.Builder
	show := func(title string, change func(*Spec), n int) {
		s := flightsSpec()
		change(&s)
		next, err := s.After(applied, n, s.hashRange())
		if err != nil {
			t.Fatal(err)
		}
		l, err := New(next)
		if err != nil {
			t.Fatal(err)
		}
		c := Diff(applied, l)
		out.WriteString("# " + title + "\n" + c.String())
		if err := c.Err(); err != nil {
			out.WriteString("refused:\n" + err.Error() + "\n")
		}
		out.WriteString("\n")
	}
	show("nothing", func(*Spec) {}, 16)
	show("only the epoch", func(s *Spec) { s.Epoch = 2 }, 16)
	show("a shard for half of s2, the epoch forgotten", func(s *Spec) {
		s.Shards[1].Slots[0].Last = 767
		s.Shards = append(s.Shards, ShardSpec{"s3", []SlotRange{{768, 1023}}})
	}, 16)
	show("an empty shard", func(s *Spec) { s.Epoch = 2; s.Shards = append(s.Shards, ShardSpec{Name: "s3"}) }, 16)
	show("a tenant becomes dedicated where it is, another elsewhere", func(s *Spec) {
		s.Epoch = 2
		s.Tenants = append(s.Tenants, TenantSpec{"AA", []PlacedSlot{{100_010, "s2"}}}, TenantSpec{"WN", []PlacedSlot{{100_011, "s2"}}})
	}, 16)
	show("a spread tenant gets more slots", func(s *Spec) {
		s.Epoch = 2
		s.Tenants[0].Placed = append(s.Tenants[0].Placed, PlacedSlot{100_005, "s2"}, PlacedSlot{100_006, "s2"})
	}, 16)
	show("a tenant is shared again", func(s *Spec) { s.Epoch = 2; s.Tenants = s.Tenants[:1] }, 16)
	show("a tenant's slot is given to another", func(s *Spec) { s.Epoch = 2; s.Tenants[1].Tenant = "AA" }, 16)
	show("more partitions", func(s *Spec) { s.Epoch = 2 }, 20)
	show("much at once", func(s *Spec) {
		s.Epoch = 2
		s.Shards[1].Slots = nil
		for i := range 14 {
			last := 512 + 36*i + 35
			if i == 13 {
				last = 1023
			}
			s.Shards = append(s.Shards, ShardSpec{fmt.Sprintf("t%02d", i), []SlotRange{{Slot(512 + 36*i), Slot(last)}}})
			s.Tenants = append(s.Tenants, TenantSpec{fmt.Sprintf("A%02d", i), []PlacedSlot{{100_010 + Slot(i), "s1"}}})
		}
	}, 16)
	show("a shard is gone", func(s *Spec) {
		s.Epoch, s.Tenants = 2, nil
		s.Shards = []ShardSpec{{"s1", []SlotRange{{0, 1023}}}}
	}, 16)
	show("fewer partitions", func(s *Spec) { s.Epoch = 2 }, 8)
	show("other slots and hash", func(s *Spec) {
		s.Epoch, s.Slots, s.Hash, s.Shards[1].Slots[0].Last = 2, 2048, CRC32, 2047
	}, 16)
	golden(t, "diff.golden.txt", out.String())
}

// A layout that was made without After forgets which numbers are used up; it must not pass.
func TestDiffRefusesToForgetRetiredSlots(t *testing.T) {
	s := flightsSpec()
	first := mustLayout(t, s, 4)
	s.Epoch, s.Tenants = 2, s.Tenants[:1]
	if err := Diff(first, mustLayout(t, s, 4)).Err(); err == nil || ProblemsOf(err)[0].Kind != PlacedSlotReused {
		t.Errorf("slot 100000 is forgotten: %v", err)
	}
	second := mustFollow(t, s, first, 4)
	if err := Diff(first, second).Err(); err != nil {
		t.Error(err)
	}
	s.Epoch = 3
	c := Diff(second, mustLayout(t, s, 4))
	if c.Empty() || c.Err() == nil || !strings.Contains(c.String(), "no longer known as used: slot 100000 (1)") {
		t.Errorf("slot 100000 is forgotten: %v\n%s", c.Err(), c)
	}
	s.Tenants = append(s.Tenants[:1:1], TenantSpec{"AA", []PlacedSlot{{100_000, "s1"}}})
	if err := Diff(second, mustLayout(t, s, 4)).Err(); err == nil || ProblemsOf(err)[0].Kind != PlacedSlotReused {
		t.Errorf("slot 100000 is given again: %v", err)
	}
}
