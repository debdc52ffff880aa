package partitioner

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Spec is the data of a layout, as it is written in the file (shards and tenants) and stored by apply (with the
// partitions too). It is not validated; New does that. Its JSON is the stored body, see testdata/spec.golden.json.
type Spec struct {
	Epoch   int64        // at least 1; greater in each layout that differs
	Slots   int          // number of hash slots, 1 to SlotsMax; never changes
	Hash    Hash         // never changes
	Shards  []ShardSpec  // which hash slots each shard owns
	Tenants []TenantSpec // the tenants that are not placed by hash
	// Partitions lists, per Kafka partition, the slots (hash and placed) that it owns. nil until WithPartitions or
	// After has computed it.
	Partitions [][]SlotRange
	// Retired lists the placed slot numbers that tenants of earlier layouts had and none has now. They are never
	// given to a tenant again. After keeps this list.
	Retired []SlotRange
	// Met lists the partitions that hold events of an earlier layout, or may, whose rows are in a shard now that none of
	// the partition's slots is in. After keeps this list, and adds to it.
	Met []Meeting
}

// Meeting is a partition and a shard that it meets: events in it are of rows in the shard.
type Meeting struct {
	Partition int
	Shard     string
}

// ShardSpec is one shard and the hash slots that it owns. It may own none: then only placed slots live there.
type ShardSpec struct {
	Name  string
	Slots []SlotRange
}

// TenantSpec is the placement of one tenant: one placed slot (dedicated) or several (spread), in spread order.
type TenantSpec struct {
	Tenant string
	Placed []PlacedSlot
}

// PlacedSlot is a slot that was given to one tenant, and the shard that it is in.
type PlacedSlot struct {
	Slot  Slot
	Shard string
}

// Place expands ranges of placed slots, in order, into slots of one shard: what a line such as
// "100001-100002: s1" in the file stands for. It refuses more than PlacedSlotsMax.
func Place(ranges []SlotRange, shard string) ([]PlacedSlot, error) {
	count := 0
	for _, r := range ranges {
		if count += r.Len(); count > PlacedSlotsMax {
			return nil, fmt.Errorf("slots %s are more than the %d placed slots that a layout can hold", r, PlacedSlotsMax)
		}
	}
	placed := make([]PlacedSlot, 0, count)
	for _, r := range ranges {
		for i := range r.Len() {
			placed = append(placed, PlacedSlot{r.First + Slot(i), shard})
		}
	}
	return placed, nil
}

// specFormat is the number of the stored form; a greater one was written by a later release.
const specFormat = 1

// The stored form: fields in this order, ranges as text. Names never change within a format.
type specJSON struct {
	Format     int          `json:"format"`
	Epoch      int64        `json:"epoch"`
	Slots      int          `json:"slots"`
	Hash       Hash         `json:"hash"`
	Shards     []shardJSON  `json:"shards"`
	Tenants    []tenantJSON `json:"tenants,omitempty"`
	Partitions []rangesText `json:"partitions,omitempty"`
	Retired    rangesText   `json:"retired,omitempty"`
	Met        []metJSON    `json:"met,omitempty"`
}

type shardJSON struct {
	Name  string     `json:"name"`
	Slots rangesText `json:"slots"`
}

type tenantJSON struct {
	Tenant string       `json:"tenant"`
	Placed []placedJSON `json:"placed"`
}

type metJSON struct {
	Partition int    `json:"partition"`
	Shard     string `json:"shard"`
}

type placedJSON struct {
	Slot  Slot   `json:"slot"`
	Shard string `json:"shard"`
}

// rangesText is a list of ranges as "0-10,20", the empty list as "".
type rangesText []SlotRange

func (r rangesText) MarshalText() ([]byte, error) { return []byte(FormatSlotRanges(r)), nil }

func (r *rangesText) UnmarshalText(text []byte) (err error) {
	*r = nil
	if len(text) > 0 {
		*r, err = ParseSlotRanges(string(text))
	}
	return err
}

// MarshalJSON is the stored form.
func (s Spec) MarshalJSON() ([]byte, error) {
	out := specJSON{Format: specFormat, Epoch: s.Epoch, Slots: s.Slots, Hash: s.Hash, Retired: s.Retired,
		Shards: make([]shardJSON, 0, len(s.Shards))}
	for _, shard := range s.Shards {
		out.Shards = append(out.Shards, shardJSON{shard.Name, shard.Slots})
	}
	for _, tenant := range s.Tenants {
		placed := make([]placedJSON, 0, len(tenant.Placed))
		for _, p := range tenant.Placed {
			placed = append(placed, placedJSON(p))
		}
		out.Tenants = append(out.Tenants, tenantJSON{tenant.Tenant, placed})
	}
	for _, ranges := range s.Partitions {
		out.Partitions = append(out.Partitions, ranges)
	}
	for _, m := range s.Met {
		out.Met = append(out.Met, metJSON(m))
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads the stored form. It refuses a greater format, an unknown field; it does not validate (New does).
func (s *Spec) UnmarshalJSON(data []byte) error {
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return fmt.Errorf("layout: %w", err)
	}
	if head.Format > specFormat {
		return fmt.Errorf("layout has format %d, this release reads up to %d; run the release that wrote it, or a later one",
			head.Format, specFormat)
	}
	if head.Format < 1 {
		return fmt.Errorf("layout has no format number: it was not written by slotline")
	}
	var in specJSON
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&in); err != nil {
		return fmt.Errorf("layout: %w", err)
	}
	*s = Spec{Epoch: in.Epoch, Slots: in.Slots, Hash: in.Hash, Retired: in.Retired}
	for _, shard := range in.Shards {
		s.Shards = append(s.Shards, ShardSpec{shard.Name, shard.Slots})
	}
	for _, tenant := range in.Tenants {
		var placed []PlacedSlot
		for _, p := range tenant.Placed {
			placed = append(placed, PlacedSlot(p))
		}
		s.Tenants = append(s.Tenants, TenantSpec{tenant.Tenant, placed})
	}
	for _, ranges := range in.Partitions {
		s.Partitions = append(s.Partitions, ranges)
	}
	for _, m := range in.Met {
		s.Met = append(s.Met, Meeting(m))
	}
	return nil
}

// ParseSpec reads the stored form; text after it is an error.
func ParseSpec(body []byte) (Spec, error) {
	var s Spec
	err := json.Unmarshal(body, &s)
	return s, err
}

// canonical is the one Spec among all that mean the same: shards and tenants in order of name, ranges joined and
// in order, nothing shared with s. Only the order of a tenant's placed slots means something, and stays. The ranges
// of s must be valid.
func (s Spec) canonical() Spec {
	c := Spec{Epoch: s.Epoch, Slots: s.Slots, Hash: s.Hash, Retired: mergeRanges(s.Retired)}
	for _, shard := range s.Shards {
		c.Shards = append(c.Shards, ShardSpec{shard.Name, mergeRanges(shard.Slots)})
	}
	slices.SortFunc(c.Shards, func(a, b ShardSpec) int { return strings.Compare(a.Name, b.Name) })
	for _, tenant := range s.Tenants {
		c.Tenants = append(c.Tenants, TenantSpec{tenant.Tenant, slices.Clone(tenant.Placed)})
	}
	slices.SortFunc(c.Tenants, func(a, b TenantSpec) int { return strings.Compare(a.Tenant, b.Tenant) })
	for _, ranges := range s.Partitions {
		c.Partitions = append(c.Partitions, mergeRanges(ranges))
	}
	c.Met = slices.Clone(s.Met)
	slices.SortFunc(c.Met, compareMeetings)
	c.Met = slices.Compact(c.Met)
	return c
}

// placedRanges is the set of the tenants' placed slots.
func (s Spec) placedRanges() []SlotRange {
	var all []SlotRange
	for _, tenant := range s.Tenants {
		for _, p := range tenant.Placed {
			all = append(all, SlotRange{p.Slot, p.Slot})
		}
	}
	return mergeRanges(all)
}

// retiredBy is the set of placed slots that are retired once next follows s.
func (s Spec) retiredBy(next Spec) []SlotRange {
	return mergeRanges(slices.Concat(s.Retired, subtractRanges(s.placedRanges(), next.placedRanges())))
}

// hashRange is the set of hash slots; Slots must be valid.
func (s Spec) hashRange() []SlotRange { return []SlotRange{{0, Slot(s.Slots) - 1}} }
