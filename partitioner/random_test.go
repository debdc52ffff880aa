package partitioner

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// random gives a test its own source of random numbers; SEED=n repeats a run.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("SEED=%s: %v", text, err)
		}
	}
	t.Logf("SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// randomText is short, often multi-byte and sometimes not valid UTF-8.
func randomText(r *rand.Rand) string {
	alphabets := []func() string{
		func() string { return string(rune('a' + r.IntN(26))) },
		func() string { return string(rune(r.IntN(0x110000))) }, // surrogates become U+FFFD
		func() string { return string([]byte{byte(r.IntN(256))}) },
	}
	letter := alphabets[r.IntN(len(alphabets))]
	text := ""
	for range r.IntN(20) {
		text += letter()
	}
	return text
}

// randomSpec is valid, small, and without partitions: slots are dealt to shards in random runs, a shard may own
// none, placed slots have holes between them.
func randomSpec(r *rand.Rand) Spec {
	s := Spec{Epoch: 1 + r.Int64N(9), Hash: Hash(r.IntN(len(hashNames))), Slots: 1 + r.IntN(80)}
	if s.Hash.NeedsPowerOfTwo() || r.IntN(2) == 0 {
		s.Slots = 1 << r.IntN(8)
	}
	for i := range 1 + r.IntN(5) {
		s.Shards = append(s.Shards, ShardSpec{Name: fmt.Sprintf("s%d", i)})
	}
	dealSlots(r, &s)
	slot := FirstPlacedSlot
	for i := range r.IntN(6) {
		tenant := TenantSpec{Tenant: fmt.Sprintf("tenant%d", i)}
		for range 1 + r.IntN(4) {
			slot += Slot(r.IntN(2))
			tenant.Placed = append(tenant.Placed, PlacedSlot{slot, s.Shards[r.IntN(len(s.Shards))].Name})
			slot++
		}
		r.Shuffle(len(tenant.Placed), func(i, j int) {
			tenant.Placed[i], tenant.Placed[j] = tenant.Placed[j], tenant.Placed[i]
		})
		s.Tenants = append(s.Tenants, tenant)
	}
	return s
}

// dealSlots gives every hash slot to some shard anew.
func dealSlots(r *rand.Rand, s *Spec) {
	for i := range s.Shards {
		s.Shards[i].Slots = nil
	}
	for first := 0; first < s.Slots; {
		last := first + r.IntN(s.Slots-first)
		shard := &s.Shards[r.IntN(len(s.Shards))]
		shard.Slots = append(shard.Slots, SlotRange{Slot(first), Slot(last)})
		first = last + 1
	}
}

func randomPartitions(r *rand.Rand, s Spec) int { return 1 + r.IntN(min(s.Slots, 20)) }

func randomLayout(t *testing.T, r *rand.Rand) *Layout {
	t.Helper()
	s := randomSpec(r)
	return mustLayout(t, s, randomPartitions(r, s))
}

// mustLayout is the layout of s with a new map to n partitions.
func mustLayout(t testing.TB, s Spec, n int) *Layout {
	t.Helper()
	s, err := s.WithPartitions(n)
	if err != nil {
		t.Fatal(err)
	}
	l, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// changedTenants is the next epoch of a file: some tenants go, some come with slots that were never used.
func changedTenants(r *rand.Rand, s Spec, applied *Layout) Spec {
	s = s.canonical()
	s.Epoch++
	used := mergeRanges(append(applied.Spec().placedRanges(), applied.Spec().Retired...))
	slot := FirstPlacedSlot
	if len(used) > 0 {
		slot = used[len(used)-1].Last + 1
	}
	s.Tenants = slices.DeleteFunc(s.Tenants, func(TenantSpec) bool { return r.IntN(4) == 0 })
	for range r.IntN(3) {
		tenant := TenantSpec{Tenant: fmt.Sprintf("tenant%d.%d", s.Epoch, slot)}
		for range 1 + r.IntN(3) {
			tenant.Placed = append(tenant.Placed, PlacedSlot{slot, s.Shards[r.IntN(len(s.Shards))].Name})
			slot += 1 + Slot(r.IntN(2))
		}
		s.Tenants = append(s.Tenants, tenant)
	}
	return s
}
