package config

import (
	"go.yaml.in/yaml/v3"

	"github.com/slotline/slotline/partitioner"
)

func (l loader) shards(e *entry) []Shard {
	var shards []Shard
	if e.present() && len(e.node.Content) == 0 {
		l.add(codeValue, e.example, []*yaml.Node{e.key}, "shards is empty")
	}
	for _, s := range e.kids {
		shards = append(shards, Shard{Name: s.key.Value, DSN: l.dsn(s.get("dsn"), mysqlScheme)})
	}
	return shards
}

// layout reads the spec and validates it as apply will.
func (l loader) layout(root *entry, partitions int) partitioner.Spec {
	e, shards := root.get("layout"), root.get("shards")
	before := len(l.problems)
	hash, _ := partitioner.ParseHash(l.choice(e.get("hash")))
	spec := partitioner.Spec{
		Epoch: l.number(e.get("epoch")),
		Slots: int(l.number(e.get("slots"))),
		Hash:  hash,
	}
	readable := shards.present() && len(shards.kids) > 0
	for _, s := range shards.kids {
		ranges, ok := l.slots(s.get("slots"))
		readable = readable && ok && s.present()
		spec.Shards = append(spec.Shards, partitioner.ShardSpec{Name: s.key.Value, Slots: ranges})
	}
	for _, t := range e.get("tenants").kids {
		placed, ok := l.placed(t.get("slots"))
		readable = readable && ok
		spec.Tenants = append(spec.Tenants, partitioner.TenantSpec{Tenant: t.key.Value, Placed: placed})
	}
	if !readable || len(l.problems) > before {
		return spec // comparing what was half read would name problems that are not there
	}
	if _, err := spec.WithPartitions(partitions); err != nil {
		l.layoutProblems(root, partitioner.ProblemsOf(err))
	}
	return spec
}

// slots reads "0-511", "0-10,20" or a list of these.
func (l loader) slots(e *entry) ([]partitioner.SlotRange, bool) {
	if !e.present() {
		return nil, e.key == nil
	}
	texts := []*yaml.Node{e.node}
	if e.node.Kind == yaml.SequenceNode {
		texts = e.node.Content
	}
	var all []partitioner.SlotRange
	for _, n := range texts {
		ranges, err := partitioner.ParseSlotRanges(n.Value)
		if err != nil {
			l.add(codeValue, "slots: 0-511", []*yaml.Node{n}, "%s: %v", e.path, err)
			return nil, false
		}
		all = append(all, ranges...)
	}
	return all, true
}

// placed reads { 100001-100002: s1, 100003: s2 }, in spread order.
func (l loader) placed(e *entry) (placed []partitioner.PlacedSlot, ok bool) {
	if !e.present() {
		return nil, false
	}
	ok = true
	for i := 0; i+1 < len(e.node.Content); i += 2 {
		slots, shard := e.node.Content[i], e.node.Content[i+1]
		if slots.Kind != yaml.ScalarNode || shard.Kind != yaml.ScalarNode || shard.Tag == "!!null" {
			l.add(codeValue, e.example, []*yaml.Node{slots}, "%s: here stand slots and, for each, the name of one shard", e.path)
			ok = false
			continue
		}
		ranges, err := partitioner.ParseSlotRanges(slots.Value)
		if err != nil {
			l.add(codeValue, e.example, []*yaml.Node{slots}, "%s: %v", e.path, err)
			ok = false
			continue
		}
		more, err := partitioner.Place(ranges, shard.Value)
		if err != nil {
			l.add(codeLayout, "", []*yaml.Node{slots}, "%s: %v", e.path, err)
			ok = false
			continue
		}
		placed = append(placed, more...)
		if len(placed) > partitioner.PlacedSlotsMax {
			l.add(codeLayout, "", []*yaml.Node{slots}, "%s: more than %d placed slots", e.path, partitioner.PlacedSlotsMax)
			return nil, false
		}
	}
	return placed, ok
}

// layoutProblems adds file and line to what package partitioner found.
func (l loader) layoutProblems(root *entry, problems partitioner.Problems) {
	e := root.get("layout")
	for _, p := range problems {
		at, write := []*yaml.Node{}, p.Write
		for _, party := range p.Parties {
			var of *entry
			switch party.Part {
			case partitioner.PartEpoch:
				of = e.get("epoch")
			case partitioner.PartSlots:
				of = e.get("slots")
			case partitioner.PartHash:
				of = e.get("hash")
			case partitioner.PartPartitions, partitioner.PartPartition:
				of = root.get("kafka").get("partitions")
			case partitioner.PartTenant:
				of = e.get("tenants").get(party.Name)
			case partitioner.PartShard:
				of = root.get("shards").get(party.Name).get("slots")
			default:
				of = root.get("shards")
			}
			if n := of.at(); n != nil { // nil: a default that the file does not hold
				at = append(at, n)
			}
			if p.Write != "" {
				write = of.name + ": " + p.Write
			}
		}
		if len(at) == 0 {
			at = append(at, root.get("shards").at())
		}
		l.add(codeLayout, write, at, "%s", p.What)
	}
}
