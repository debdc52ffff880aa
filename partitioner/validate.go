package partitioner

import (
	"cmp"
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

// shardWords is "s1, s2", cut where it is long.
func shardWords(shards []ShardSpec) string {
	const namesMax = 8
	var names []string
	for _, shard := range shards[:min(len(shards), namesMax)] {
		names = append(names, quoteBounded(shard.Name))
	}
	if more := len(shards) - namesMax; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
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
}

// claim is one range that a party owns.
type claim struct {
	SlotRange
	party Party
}

// claimsWithin turns a party's ranges into claims. What lies outside the slots that exist is a problem and no claim.
func claimsWithin(s Spec, party Party, ranges, exist []SlotRange, ps *Problems) []claim {
	var claims []claim
	for i, r := range ranges {
		if r.Last < r.First {
			turned := slices.Clone(ranges)
			turned[i] = SlotRange{r.Last, r.First}
			ps.add(SlotOutside, []Party{party}, []SlotRange{r}, FormatSlotRanges(turned), "%s has the reversed range %s", party, r)
			continue
		}
		one := []SlotRange{r}
		if outside := subtractRanges(one, exist); len(outside) > 0 {
			ps.add(SlotOutside, []Party{party}, outside, "", "%s has %s; %s", party, slotWords(outside), existWords(s, party, outside))
		}
		for _, inside := range intersectRanges(one, exist) {
			claims = append(claims, claim{inside, party})
		}
	}
	return claims
}

func existWords(s Spec, party Party, outside []SlotRange) string {
	if outside[0].First >= FirstPlacedSlot {
		if party.Part == PartShard {
			return "placed slots are written with their tenant"
		}
		return "no tenant has it"
	}
	return fmt.Sprintf("hash slots are %s", SlotRange{0, Slot(s.Slots) - 1})
}

// reportOverlaps returns the union of claims, and reports each claim that overlaps one before it: one problem per
// pair of parties. It compares each with the one that reaches furthest, so that it stays linear; with more than two
// owners of a slot, each still appears in a problem. slotsOf, if there is one, gives a party's ranges, to say what
// the later one should be.
func reportOverlaps(claims []claim, slotsOf func(index int) []SlotRange, ps *Problems) (union []SlotRange) {
	slices.SortStableFunc(claims, func(a, b claim) int { return cmp.Compare(a.First, b.First) })
	type pair struct{ earlier, later Party }
	overlaps := make(map[pair][]SlotRange)
	var order []pair
	var all []SlotRange
	for i, furthest := 0, 0; i < len(claims); i++ {
		all = append(all, claims[i].SlotRange)
		if i > 0 && claims[i].First <= claims[furthest].Last {
			p := pair{claims[furthest].party, claims[i].party}
			if p.earlier.Index > p.later.Index {
				p.earlier, p.later = p.later, p.earlier
			}
			if overlaps[p] == nil {
				order = append(order, p)
			}
			overlaps[p] = append(overlaps[p], SlotRange{claims[i].First, min(claims[i].Last, claims[furthest].Last)})
		}
		if claims[i].Last > claims[furthest].Last {
			furthest = i
		}
	}
	slices.SortFunc(order, func(a, b pair) int {
		return cmp.Or(cmp.Compare(a.later.Index, b.later.Index), cmp.Compare(a.earlier.Index, b.earlier.Index))
	})
	for _, p := range order {
		shared := mergeRanges(overlaps[p])
		if p.earlier == p.later {
			ps.add(SlotTwice, []Party{p.later}, shared, "", "%s names %s twice", p.later, slotWords(shared))
			continue
		}
		write := ""
		if slotsOf != nil {
			write = FormatSlotRanges(subtractRanges(mergeRanges(validRanges(slotsOf(p.later.Index))), shared))
		}
		ps.add(SlotTwice, []Party{p.earlier, p.later}, shared, write, "%s and %s both own %s",
			p.earlier.plural(), p.later.short(), slotWords(shared))
	}
	return mergeRanges(all)
}

// validRanges leaves out reversed ranges, which have their own problem.
func validRanges(ranges []SlotRange) []SlotRange {
	return slices.DeleteFunc(slices.Clone(ranges), func(r SlotRange) bool { return r.Last < r.First })
}

// String names the party: "shard s1", "partition 3".
func (p Party) String() string {
	switch p.Part {
	case PartEpoch:
		return "layout epoch"
	case PartSlots:
		return "slots"
	case PartHash:
		return "hash"
	case PartShards:
		return "shards"
	case PartShard:
		return "shard " + p.Name
	case PartTenant:
		return "tenant " + quoteBounded(p.Name)
	case PartPartitions:
		return "partitions"
	}
	return "partition " + p.short()
}

// plural and short make "shards s1" and "s2" of two shards.
func (p Party) plural() string {
	if p.Part == PartShard {
		return "shards " + p.Name
	}
	return "partitions " + p.short()
}

func (p Party) short() string {
	if p.Part == PartShard {
		return p.Name
	}
	return fmt.Sprint(p.Index)
}

// slotWords is "slot 7" or "slots 0-10,20", cut where it is long.
func slotWords(ranges []SlotRange) string {
	const rangesMax = 8
	more := ""
	if len(ranges) > rangesMax {
		more = fmt.Sprintf(" and %d more", countSlots(ranges[rangesMax:]))
		ranges = ranges[:rangesMax]
	}
	if len(ranges) == 1 && ranges[0].Len() == 1 && more == "" {
		return "slot " + ranges[0].String()
	}
	return "slots " + FormatSlotRanges(ranges) + more
}
