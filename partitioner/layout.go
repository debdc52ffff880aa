package partitioner

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
)

// Layout says where each tenant is. It is immutable; a newer one replaces it as a whole.
type Layout struct {
	spec   Spec // canonical
	body   []byte
	digest string

	hash     Hash
	slots    uint64
	slotMask uint64 // slots-1 where slots is a power of two, which spares a division; else 0
	targets  []target
	placed   placedTable

	shards          []string
	partitionShards [][]int32
	shardPartitions [][]int32
}

// target is where a slot is.
type target struct{ partition, shard int32 }

// New makes the layout of a spec, or says all that is wrong with it, as Problems. It keeps nothing of s.
func New(s Spec) (*Layout, error) {
	if problems := validate(s, withPartitions); len(problems) > 0 {
		return nil, problems
	}
	spec := s.canonical()
	body, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(body)
	l := &Layout{
		spec:            spec,
		body:            body,
		digest:          hex.EncodeToString(sum[:]),
		hash:            spec.Hash,
		slots:           uint64(spec.Slots),
		targets:         make([]target, spec.Slots),
		partitionShards: make([][]int32, len(spec.Partitions)),
		shardPartitions: make([][]int32, len(spec.Shards)),
	}
	if isPowerOfTwo(spec.Slots) {
		l.slotMask = l.slots - 1
	}
	shardIndex := make(map[string]int32, len(spec.Shards))
	for i, shard := range spec.Shards {
		l.shards = append(l.shards, shard.Name)
		shardIndex[shard.Name] = int32(i)
		for _, r := range shard.Slots {
			for slot := r.First; slot <= r.Last; slot++ {
				l.targets[slot].shard = int32(i)
			}
		}
	}
	placedPartition := make(map[Slot]int32)
	for i, ranges := range spec.Partitions {
		for _, r := range ranges {
			for slot := r.First; slot <= r.Last; slot++ {
				if slot < FirstPlacedSlot {
					l.targets[slot].partition = int32(i)
				} else {
					placedPartition[slot] = int32(i)
				}
			}
		}
	}
	l.placed = newPlacedTable(spec, shardIndex, placedPartition)
	l.meet()
	return l, nil
}

// meet fills which partitions and shards meet: those that share a slot, or did in an earlier layout as far as events may
// be left of it, and the broadcast partition all shards.
func (l *Layout) meet() {
	met := make(map[target]bool)
	for shard := range l.shards {
		met[target{broadcastPartition, int32(shard)}] = true
	}
	for _, t := range l.targets {
		met[t] = true
	}
	for _, route := range l.placed.routes {
		met[target{route.Partition, route.Shard}] = true
	}
	for _, m := range l.spec.Met {
		shard, _ := l.ShardIndex(m.Shard)
		met[target{int32(m.Partition), shard}] = true
	}
	for t := range met {
		l.partitionShards[t.partition] = append(l.partitionShards[t.partition], t.shard)
		l.shardPartitions[t.shard] = append(l.shardPartitions[t.shard], t.partition)
	}
	for _, list := range slices.Concat(l.partitionShards, l.shardPartitions) {
		slices.Sort(list)
	}
}

// Epoch is the layout epoch, at least 1.
func (l *Layout) Epoch() int64 { return l.spec.Epoch }

// Slots is the number of hash slots.
func (l *Layout) Slots() int { return l.spec.Slots }

// Hash is the function that places tenants.
func (l *Layout) Hash() Hash { return l.hash }

// Partitions is the number of Kafka partitions.
func (l *Layout) Partitions() int { return len(l.partitionShards) }

// Shards are the names of the shards, in order of name whatever the order of the file; Route.Shard is an index into
// it.
func (l *Layout) Shards() []string { return slices.Clone(l.shards) }

// ShardName is Shards()[shard], or "" if there is no such shard.
func (l *Layout) ShardName(shard int32) string {
	if shard < 0 || int(shard) >= len(l.shards) {
		return ""
	}
	return l.shards[shard]
}

// ShardIndex is the index of a shard by name.
func (l *Layout) ShardIndex(name string) (shard int32, ok bool) {
	i, ok := slices.BinarySearch(l.shards, name)
	return int32(i), ok
}

// Spec is the data of the layout in its canonical form: shards and tenants by name, ranges in order. It is a copy.
func (l *Layout) Spec() Spec { return l.spec.canonical() }

// Body is the canonical JSON of the layout, as it is stored: json.Marshal(l.Spec()). It is a copy.
func (l *Layout) Body() []byte { return slices.Clone(l.body) }

// Digest is the SHA-256 of Body, in hex. Equal digests mean equal layouts.
func (l *Layout) Digest() string { return l.digest }

// PartitionShards are the shards that a partition meets, ascending: those that own one of its slots, those that events
// of earlier layouts in it may belong to, and for the broadcast partition all. nil if there is no such partition.
func (l *Layout) PartitionShards(partition int32) []int32 {
	return listAt(l.partitionShards, partition)
}

// ShardPartitions are the partitions that meet a shard, ascending, the broadcast partition always among them. nil
// if there is no such shard.
func (l *Layout) ShardPartitions(shard int32) []int32 { return listAt(l.shardPartitions, shard) }

func listAt(lists [][]int32, i int32) []int32 {
	if i < 0 || int(i) >= len(lists) {
		return nil
	}
	return slices.Clone(lists[i])
}
