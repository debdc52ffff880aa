package partitioner

import (
	"fmt"
	"strings"
)

// linesMax bounds each list in Changes.String: a decision needs no thousand lines.
const linesMax = 12

// String is what would change, for a person who decides; see testdata/diff.golden.txt. It ends with a newline.
func (c Changes) String() string {
	if c.Empty() && c.OldEpoch == c.NewEpoch {
		return fmt.Sprintf("layout epoch %d, unchanged\n", c.OldEpoch)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "layout epoch %d -> %d\n", c.OldEpoch, c.NewEpoch)
	for _, line := range c.Lines() {
		b.WriteString("  " + line + "\n")
	}
	if c.MovesData() {
		b.WriteString("  rows would have to move between shards\n")
	} else {
		b.WriteString("  no row moves\n")
	}
	return b.String()
}

// Lines are what would change, each in a line, without a verdict: whether rows move depends on where there are rows.
func (c Changes) Lines() []string {
	t := changesText{}
	if c.OldSlots != c.NewSlots {
		t.line("slots %d -> %d", c.OldSlots, c.NewSlots)
	}
	if c.OldHash != c.NewHash {
		t.line("hash %s -> %s", c.OldHash, c.NewHash)
	}
	if c.OldPartitions != c.NewPartitions {
		t.line("partitions %d -> %d", c.OldPartitions, c.NewPartitions)
	}
	if c.sameHashing() { // else nothing stays where it is, and no list of it helps
		t.shards(c)
		t.tenants(c)
		t.partitions(c)
	}
	return t
}

type changesText []string

func (t *changesText) line(format string, args ...any) { *t = append(*t, fmt.Sprintf(format, args...)) }

// more says how many of a list were left out.
func (t *changesText) more(count int, what string) {
	if count > linesMax {
		t.line("and %d more %s", count-linesMax, what)
	}
}

func (t *changesText) shards(c Changes) {
	for _, name := range c.ShardsAdded {
		t.line("+ shard %s", name)
	}
	for _, name := range c.ShardsRemoved {
		t.line("- shard %s", name)
	}
	for _, m := range c.ShardMoves[:min(len(c.ShardMoves), linesMax)] {
		t.line("shard %s -> %s: %s", m.From, m.To, countedSlots(m.Slots))
	}
	t.more(len(c.ShardMoves), "moves between shards")
}

func (t *changesText) tenants(c Changes) {
	for _, change := range c.Tenants[:min(len(c.Tenants), linesMax)] {
		moves := ""
		if change.Moves {
			moves = ", its rows move"
		}
		t.line("tenant %s: %s on %s -> %s on %s%s", quoteBounded(change.Tenant), change.Old, strings.Join(change.From, ", "),
			change.New, strings.Join(change.To, ", "), moves)
	}
	t.more(len(c.Tenants), "tenants")
	for _, r := range c.Reused[:min(len(c.Reused), linesMax)] {
		t.line("slot %d of tenant %s is given to tenant %s", r.Slot, quoteBounded(r.Old), quoteBounded(r.New))
	}
	t.more(len(c.Reused), "such slots")
	if len(c.Retired) > 0 {
		t.line("retired for good: %s", countedSlots(c.Retired))
	}
	if len(c.Forgotten) > 0 {
		t.line("no longer known as used: %s", countedSlots(c.Forgotten))
	}
}

// partitions lists a few moves, but only counts many: with another number of partitions nearly all change.
func (t *changesText) partitions(c Changes) {
	count := 0
	for _, m := range c.PartitionMoves {
		count += countSlots(m.Slots)
		if len(c.PartitionMoves) <= linesMax {
			t.line("partition %d -> %d: %s", m.From, m.To, countedSlots(m.Slots))
		}
	}
	if len(c.PartitionMoves) > linesMax {
		t.line("%d slots change partition", count)
	}
}

// countedSlots is "slots 0-10,20 (12)".
func countedSlots(ranges []SlotRange) string {
	return fmt.Sprintf("%s (%d)", slotWords(ranges), countSlots(ranges))
}
