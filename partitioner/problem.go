package partitioner

import (
	"errors"
	"fmt"
	"strings"
)

// Kind says which rule a Problem breaks. Callers that give codes to problems switch on it.
type Kind uint8

const (
	EpochInvalid       Kind = iota + 1 // the epoch is less than 1
	SlotsInvalid                       // the number of hash slots is out of bounds or does not fit the hash
	HashInvalid                        // the hash is not one of the four
	ShardNone                          // there is no shard
	ShardNameInvalid                   // a shard's name is empty, too long, or has other than letters, digits, - _ .
	ShardTwice                         // two shards have one name
	ShardUnknown                       // a placed slot is in a shard that does not exist
	SlotOutside                        // a shard or partition names slots that do not exist or are of the other kind
	SlotTwice                          // two shards, partitions or tenants own one slot, or one names it twice
	SlotMissing                        // no shard, or no partition, owns a slot
	TenantInvalid                      // a tenant is empty, longer than 64 bytes, not UTF-8, or contains NUL
	TenantTwice                        // a tenant is placed twice
	TenantNotPlaced                    // a tenant is listed without a slot
	PlacedSlotInvalid                  // a tenant is placed in a slot out of the range of placed slots
	PlacedSlotsTooMany                 // there are more than PlacedSlotsMax
	PlacedSlotReused                   // a placed slot's number belonged to another tenant
	PartitionsInvalid                  // the number of partitions is out of bounds, or they are not computed yet
	PartitionsRemoved                  // a newer layout has fewer partitions: Kafka cannot take one away
	EpochNotGreater                    // a layout that differs has no greater epoch
	SlotsChanged                       // a newer layout has another number of hash slots
	HashChanged                        // a newer layout has another hash
)

// Part is a part of a Spec.
type Part uint8

const (
	PartEpoch Part = iota + 1
	PartSlots
	PartHash
	PartShards // the list of shards as a whole
	PartShard
	PartTenant
	PartPartitions // the list of partitions as a whole
	PartPartition
)

// Party is what a Problem names: a part of the Spec, and which one.
type Party struct {
	Part  Part
	Name  string // of a shard or tenant
	Index int    // in Spec.Shards, Spec.Tenants or Spec.Partitions; 0 elsewhere
}

var partNames = [...]string{
	PartEpoch: "layout epoch", PartSlots: "slots", PartHash: "hash", PartShards: "shards", PartShard: "shard",
	PartTenant: "tenant", PartPartitions: "partitions", PartPartition: "partition",
}

// String names the party: "shard s1", "partition 3", "layout epoch".
func (p Party) String() string {
	if short := p.short(); short != "" {
		return partNames[p.Part] + " " + short
	}
	return partNames[p.Part]
}

// plural and short make "shards s1" and "s2" of two shards.
func (p Party) plural() string { return partNames[p.Part] + "s " + p.short() }

func (p Party) short() string {
	switch p.Part {
	case PartShard:
		return p.Name
	case PartTenant:
		return quoteBounded(p.Name)
	case PartPartition:
		return fmt.Sprint(p.Index)
	}
	return ""
}

// Problem is one rule that a Spec breaks.
type Problem struct {
	Kind    Kind
	Parties []Party     // everything it names, in the order of the Spec; the last is the first to look at
	Slots   []SlotRange // the slots in question, if any
	What    string      // the whole sentence: "shards s1 and s2 both own slots 500-511"
	// Write is the value to write at the last party instead, if there is an obvious one: "512-1023" for a shard's
	// slots. It may be empty.
	Write string
}

// Error is What, and what to write instead where that is known.
func (p *Problem) Error() string {
	if p.Write == "" {
		return p.What
	}
	return p.What + "; write " + p.Write
}

// Problems is every problem that was found, in the order of the Spec. As an error it holds at least one.
type Problems []*Problem

// Error is one line per problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives each problem to errors.As.
func (ps Problems) Unwrap() []error {
	errs := make([]error, len(ps))
	for i, p := range ps {
		errs[i] = p
	}
	return errs
}

// ProblemsOf are the problems inside err, or nil.
func ProblemsOf(err error) Problems {
	ps, _ := errors.AsType[Problems](err)
	return ps
}

// err is nil without problems; a typed nil must not become an error.
func (ps Problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

func (ps *Problems) add(kind Kind, parties []Party, slots []SlotRange, write, format string, args ...any) {
	*ps = append(*ps, &Problem{Kind: kind, Parties: parties, Slots: slots, Write: write, What: fmt.Sprintf(format, args...)})
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
