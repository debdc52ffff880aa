package partitioner

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// TenantBytesMax is the greatest length of a tenant: it fits VARBINARY(64).
	TenantBytesMax = 64
	// ShardNameBytesMax is the greatest length of a shard's name.
	ShardNameBytesMax = 64
	// PartitionsMax is the greatest number of partitions. A topic with more is beyond what brokers are run with.
	PartitionsMax = 10_000
)

// scope says how much of a Spec is validated.
type scope bool

const (
	withoutPartitions scope = false // before they are computed
	withPartitions    scope = true
)

func validate(s Spec, scope scope) Problems {
	var ps Problems
	slotsValid := validateNumbers(s, &ps)
	validateShards(s, slotsValid, &ps)
	placedValid := validateTenants(s, &ps)
	validateRetired(s, &ps)
	if scope == withPartitions && slotsValid && placedValid {
		validatePartitions(s, &ps)
	}
	return ps
}

// validateNumbers says whether Slots can be used to check the rest.
func validateNumbers(s Spec, ps *Problems) (slotsValid bool) {
	if s.Epoch < 1 {
		ps.add(EpochInvalid, []Party{{Part: PartEpoch}}, nil, "1", "layout epoch is %d; it begins with 1", s.Epoch)
	}
	if !s.Hash.Valid() {
		ps.add(HashInvalid, []Party{{Part: PartHash}}, nil, XXH64.String(), "hash %d is not known", uint8(s.Hash))
	}
	if s.Slots < 1 || s.Slots > SlotsMax {
		ps.add(SlotsInvalid, []Party{{Part: PartSlots}}, nil, "1024", "%d slots; there can be 1 to %d", s.Slots, SlotsMax)
		return false
	}
	if s.Hash.NeedsPowerOfTwo() && !isPowerOfTwo(s.Slots) {
		power := 1 << bits.Len(uint(s.Slots-1))
		ps.add(SlotsInvalid, []Party{{Part: PartHash}, {Part: PartSlots}}, nil, fmt.Sprint(power),
			"%d slots is not a power of two, which hash %s needs", s.Slots, s.Hash)
	}
	return true
}

func isPowerOfTwo(n int) bool { return n > 0 && n&(n-1) == 0 }

func validateShards(s Spec, slotsValid bool, ps *Problems) {
	if len(s.Shards) == 0 {
		ps.add(ShardNone, []Party{{Part: PartShards}}, nil, "", "there is no shard; every hash slot needs one")
		return
	}
	first := make(map[string]int, len(s.Shards))
	var claims []claim
	for i, shard := range s.Shards {
		party := Party{PartShard, shard.Name, i}
		if !validShardName(shard.Name) {
			ps.add(ShardNameInvalid, []Party{party}, nil, "",
				"shard name %s is not 1 to %d letters, digits, '-', '_' or '.', beginning with a letter or digit",
				quoteBounded(shard.Name), ShardNameBytesMax)
		}
		if earlier, twice := first[shard.Name]; twice {
			ps.add(ShardTwice, []Party{{PartShard, shard.Name, earlier}, party}, nil, "", "there are two shards %s", shard.Name)
		} else {
			first[shard.Name] = i
		}
		if slotsValid {
			claims = append(claims, claimsWithin(s, party, shard.Slots, s.hashRange(), ps)...)
		}
	}
	if !slotsValid {
		return
	}
	owned := reportOverlaps(claims, func(i int) []SlotRange { return s.Shards[i].Slots }, ps)
	if missing := subtractRanges(s.hashRange(), owned); len(missing) > 0 {
		ps.add(SlotMissing, []Party{{Part: PartShards}}, missing, "", "no shard owns %s", slotWords(missing))
	}
}

func validShardName(name string) bool {
	if name == "" || len(name) > ShardNameBytesMax || strings.ContainsRune("-_.", rune(name[0])) {
		return false
	}
	for _, c := range []byte(name) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

// validateTenants says whether the set of placed slots can be used to check partitions.
func validateTenants(s Spec, ps *Problems) (placedValid bool) {
	shards := make(map[string]bool, len(s.Shards))
	for _, shard := range s.Shards {
		shards[shard.Name] = true
	}
	known := shardWords(s.Shards)
	first := make(map[string]int, len(s.Tenants))
	owner := make(map[Slot]Party)
	placedValid = true
	count := 0
	for i, tenant := range s.Tenants {
		party := Party{PartTenant, tenant.Tenant, i}
		name := quoteBounded(tenant.Tenant)
		if why := tenantFault(tenant.Tenant); why != "" {
			ps.add(TenantInvalid, []Party{party}, nil, "", "tenant %s %s", name, why)
		}
		if earlier, twice := first[tenant.Tenant]; twice {
			ps.add(TenantTwice, []Party{{PartTenant, tenant.Tenant, earlier}, party}, nil, "", "tenant %s is placed twice", name)
		} else {
			first[tenant.Tenant] = i
		}
		if len(tenant.Placed) == 0 {
			ps.add(TenantNotPlaced, []Party{party}, nil, "",
				"tenant %s is listed without a slot; leave it out to place it by hash", name)
		}
		count += len(tenant.Placed)
		for _, p := range tenant.Placed {
			slot := []SlotRange{{p.Slot, p.Slot}}
			if p.Slot < FirstPlacedSlot || p.Slot > LastPlacedSlot {
				placedValid = false
				ps.add(PlacedSlotInvalid, []Party{party}, slot, "",
					"tenant %s is placed in slot %d; placed slots are %d to %d", name, p.Slot, FirstPlacedSlot, LastPlacedSlot)
			}
			if !shards[p.Shard] {
				ps.add(ShardUnknown, []Party{party}, slot, "", "tenant %s has slot %d in shard %s, which does not exist; the shards are %s",
					name, p.Slot, quoteBounded(p.Shard), known)
			}
			switch other, taken := owner[p.Slot]; {
			case !taken:
				owner[p.Slot] = party
			case other == party:
				ps.add(SlotTwice, []Party{party}, slot, "", "tenant %s names slot %d twice", name, p.Slot)
			default:
				ps.add(SlotTwice, []Party{other, party}, slot, "", "tenants %s and %s both own slot %d",
					quoteBounded(other.Name), name, p.Slot)
			}
		}
	}
	if count > PlacedSlotsMax {
		ps.add(PlacedSlotsTooMany, nil, nil, "", "%d placed slots; there can be %d", count, PlacedSlotsMax)
	}
	return placedValid
}

func tenantFault(tenant string) string {
	switch {
	case tenant == "":
		return "is empty"
	case len(tenant) > TenantBytesMax:
		return fmt.Sprintf("has %d bytes; there can be %d", len(tenant), TenantBytesMax)
	case !utf8.ValidString(tenant):
		return "is not valid UTF-8"
	case strings.ContainsRune(tenant, 0):
		return "contains a NUL byte, which separates the parts of a record's key"
	}
	return ""
}

func validateRetired(s Spec, ps *Problems) {
	for _, r := range s.Retired {
		if r.Last < r.First || r.First < FirstPlacedSlot || r.Last > LastPlacedSlot {
			ps.add(PlacedSlotInvalid, nil, []SlotRange{r}, "", "retired slots %s are not placed slots", r)
			return
		}
	}
	retired := mergeRanges(s.Retired)
	for i, tenant := range s.Tenants {
		for _, p := range tenant.Placed {
			if _, found := slices.BinarySearchFunc(retired, p.Slot, compareToSlot); found {
				ps.add(PlacedSlotReused, []Party{{PartTenant, tenant.Tenant, i}}, []SlotRange{{p.Slot, p.Slot}}, "",
					"tenant %s is given slot %d, which belonged to a tenant of an earlier layout; take a number that was never used",
					quoteBounded(tenant.Tenant), p.Slot)
			}
		}
	}
}

// compareToSlot is 0 where a range contains the slot.
func compareToSlot(r SlotRange, slot Slot) int {
	switch {
	case r.Last < slot:
		return -1
	case r.First > slot:
		return 1
	}
	return 0
}

func validatePartitions(s Spec, ps *Problems) {
	whole := []Party{{Part: PartPartitions}}
	switch n := len(s.Partitions); {
	case s.Partitions == nil:
		ps.add(PartitionsInvalid, whole, nil, "", "the slots have no partitions yet")
		return
	case n < 1 || n > PartitionsMax:
		ps.add(PartitionsInvalid, whole, nil, "", "%d partitions; there can be 1 to %d", n, PartitionsMax)
		return
	}
	exist := append(s.hashRange(), s.placedRanges()...)
	var claims []claim
	for i, ranges := range s.Partitions {
		claims = append(claims, claimsWithin(s, Party{PartPartition, "", i}, ranges, exist, ps)...)
	}
	owned := reportOverlaps(claims, nil, ps)
	if missing := subtractRanges(exist, owned); len(missing) > 0 {
		ps.add(SlotMissing, whole, missing, "", "no partition owns %s", slotWords(missing))
	}
	for _, m := range s.Met {
		known := slices.ContainsFunc(s.Shards, func(shard ShardSpec) bool { return shard.Name == m.Shard })
		if !known || m.Partition < 0 || m.Partition >= len(s.Partitions) {
			ps.add(PartitionsInvalid, whole, nil, "", "partition %d is said to have met shard %s: one of them is not there",
				m.Partition, quoteBounded(m.Shard))
		}
	}
}
