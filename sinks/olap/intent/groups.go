package intent

import (
	"fmt"
	"slices"

	"github.com/slotline/slotline/event"
)

// Groups are the fixed groups of a line's partitions: partition number mod groups, over all topics. Those that would be
// empty are left out.
func Groups(topics []string, partitions, groups int) [][]event.Partition {
	list := make([][]event.Partition, min(groups, partitions))
	for _, topic := range topics {
		for n := range partitions {
			g := n % groups
			list[g] = append(list[g], event.Partition{Topic: topic, Number: int32(n)})
		}
	}
	for _, g := range list {
		slices.SortFunc(g, comparePartitions)
	}
	return list
}

// GroupOf is the number of the group that has exactly these partitions.
func GroupOf(groups [][]event.Partition, parts []event.Partition) (int, error) {
	sorted := slices.Clone(parts)
	slices.SortFunc(sorted, comparePartitions)
	for i, g := range groups {
		if slices.Equal(g, sorted) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%v is none of the %d groups of partitions", parts, len(groups))
}
