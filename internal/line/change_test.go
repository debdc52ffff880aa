package line

import (
	"fmt"
	"strings"
	"testing"

	"github.com/slotline/slotline/partitioner"
)

// What apply says of a layout that it refuses, and what it lets pass.
func TestRefusals(t *testing.T) {
	ranges := func(text string) []partitioner.SlotRange {
		if text == "" {
			return nil
		}
		list, err := partitioner.ParseSlotRanges(text)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	file := func(s1, s2, s3 string) partitioner.Spec {
		s := partitioner.Spec{Epoch: 2, Slots: 1024, Shards: []partitioner.ShardSpec{{Name: "s1", Slots: ranges(s1)}, {Name: "s2", Slots: ranges(s2)}}}
		if s3 != "" {
			s.Shards = append(s.Shards, partitioner.ShardSpec{Name: "s3", Slots: ranges(s3)})
		}
		return s
	}
	old := layoutOf(t, spec(1, 511), 8)
	tenants := []string{"acme", "globex", "initech", "umbrella", "hooli"}
	placed := file("0-511", "512-1023", "")
	placed.Tenants = []partitioner.TenantSpec{{Tenant: "acme", Placed: []partitioner.PlacedSlot{{Slot: 100_000, Shard: "s1"}}},
		{Tenant: "newcorp", Placed: []partitioner.PlacedSlot{{Slot: 100_001, Shard: "s2"}}}}
	otherSlots := file("0-511", "512-2047", "")
	otherSlots.Slots = 2048
	gone := file("0-1023", "", "")
	gone.Shards = gone.Shards[:1]

	var b strings.Builder
	for _, c := range []struct {
		name       string
		spec       partitioner.Spec
		partitions int
		held       []string // tenants with rows
	}{
		{"a shard for slots without rows", file("0-511", "512-1000", "1001-1023"), 8, nil},
		{"a shard for slots of which some have rows", file("0-511", "1000-1023", "512-999"), 8, tenants},
		{"nearly everything moves", file("1000-1023", "0-500", "501-999"), 8, tenants},
		{"placed tenants, one of which has rows", placed, 8, tenants},
		{"partitions for slots without rows", file("0-511", "512-1023", ""), 12, tenants},
		{"fewer partitions", file("0-511", "512-1023", ""), 4, nil},
		{"other slots", otherSlots, 8, nil},
		{"a shard is gone", gone, 8, nil},
	} {
		census := partitioner.NewCensus(old)
		for _, tenant := range c.held {
			census.Add(tenant)
		}
		fmt.Fprintf(&b, "# %s\n", c.name)
		spec, err := c.spec.After(old, c.partitions, census.Free())
		if err != nil {
			t.Fatal(err)
		}
		next, err := partitioner.New(spec)
		if err != nil {
			t.Fatal(err)
		}
		diff := partitioner.Diff(old, next)
		moved := partitioner.NewMoved(old, next)
		for _, tenant := range c.held {
			moved.Add(tenant)
		}
		if err = allowed("slotline.yaml", diff); err == nil {
			err = refuseMoved("slotline.yaml", next, moved)
		}
		if !moved.Empty() && !mayMove(diff) {
			t.Errorf("%s: rows would not be looked for", c.name)
		}
		if err == nil {
			fmt.Fprintf(&b, "allowed\n  %s\n", strings.Join(diff.Lines(), "\n  "))
		} else {
			fmt.Fprintln(&b, err)
		}
		b.WriteByte('\n')
	}
	full := partitioner.Spec{Epoch: 2, Slots: 1024, Shards: file("0-511", "512-1023", "").Shards}
	spec, err := full.After(old, 12, nil)
	if err != nil {
		t.Fatal(err)
	}
	next, err := partitioner.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "# partitions where each slot has rows\n%v\n", allowed("slotline.yaml", partitioner.Diff(old, next)))
	golden(t, "refusals.txt", []byte(b.String()))
}
