package partitioner_test

import (
	"fmt"
	"time"

	"github.com/slotline/slotline/partitioner"
)

func spec() partitioner.Spec {
	return partitioner.Spec{
		Epoch: 1, Slots: 1024, Hash: partitioner.XXH64,
		Shards: []partitioner.ShardSpec{
			{Name: "s1", Slots: []partitioner.SlotRange{{First: 0, Last: 511}}},
			{Name: "s2", Slots: []partitioner.SlotRange{{First: 512, Last: 1023}}},
		},
		Tenants: []partitioner.TenantSpec{
			{Tenant: "UA", Placed: []partitioner.PlacedSlot{{Slot: 100_000, Shard: "s1"}}},
		},
	}
}

// The first apply computes the partitions and stores the spec; every process then routes by the stored layout.
func ExampleNew() {
	s, err := spec().WithPartitions(16)
	if err != nil {
		fmt.Println(err)
		return
	}
	layout, err := partitioner.New(s)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, tenant := range []string{"AA", "UA"} {
		r := layout.Route(tenant, "")
		fmt.Println(tenant, layout.Placement(tenant), "slot", r.Slot, "partition", r.Partition, "shard", layout.ShardName(r.Shard))
	}
	// Output:
	// AA shared slot 822 partition 12 shard s2
	// UA dedicated slot 100000 partition 1 shard s1
}

func ExampleNew_problems() {
	s := spec()
	s.Shards[1].Slots[0].First = 500
	s.Tenants[0].Placed[0].Shard = "s9"
	_, err := s.WithPartitions(16)
	for _, problem := range partitioner.ProblemsOf(err) {
		fmt.Println(problem)
	}
	// Output:
	// shards s1 and s2 both own slots 500-511; write 512-1023
	// tenant "UA" has slot 100000 in shard "s9", which does not exist; the shards are "s1", "s2"
}

// A changed file follows the applied layout: slots keep their partitions.
func ExampleDiff() {
	first, _ := spec().WithPartitions(16)
	applied, _ := partitioner.New(first)

	file := spec()
	file.Epoch = 2
	file.Shards[1].Slots[0].Last = 767
	file.Shards = append(file.Shards, partitioner.ShardSpec{Name: "s3", Slots: []partitioner.SlotRange{{First: 768, Last: 1023}}})
	second, err := file.After(applied, applied.Partitions(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	next, err := partitioner.New(second)
	if err != nil {
		fmt.Println(err)
		return
	}
	changes := partitioner.Diff(applied, next)
	fmt.Print(changes)
	fmt.Println("refused for ever:", changes.Err(), "- refused until rows can move:", changes.MovesData())
	// Output:
	// layout epoch 1 -> 2
	//   + shard s3
	//   shard s2 -> s3: slots 768-1023 (256)
	//   rows would have to move between shards
	// refused for ever: <nil> - refused until rows can move: true
}

func ExampleMonthOf() {
	departure := time.Date(2026, 12, 31, 23, 30, 0, 0, time.FixedZone("New York", -5*3600))
	fmt.Println(partitioner.MonthOf(departure))
	// Output: 202701
}
