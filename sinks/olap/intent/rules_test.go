package intent

import (
	"flag"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/lease"
	"github.com/slotline/slotline/partitioner"
)

var update = flag.Bool("update", false, "rewrite testdata")

func golden(t *testing.T, file, got string) {
	t.Helper()
	path := "testdata/" + file
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (-update rewrites it); got\n%s", path, got)
	}
}

// The statements, as a DBA reviews them.
func TestSQLIsGolden(t *testing.T) {
	a := progress.Advance{Key: progress.Key{Sink: "clickhouse", Partition: event.Partition{Topic: "flights.events", Number: 3}},
		Owner: "a", OwnerEpoch: 7, Start: 100, End: 200, LeaderEpoch: 5}
	golden(t, "statements.sql", strings.Join([]string{
		"-- apply", DDL() + ";", seedSQL + ";",
		"-- take-over, after the lease (package lease)", readSQL + ";",
		"-- store", putSQL + ";",
		"-- confirm and advance: one transaction", confirmSQL + ";", string(a.AppendSQL(nil)) + ";",
		"-- advance over a batch without rows: in place of the confirmation", guardSQL + ";", "",
	}, "\n"))
	if !strings.Contains(DDL(), lease.Columns) {
		t.Error("the table lacks the lease's columns")
	}
}

func sample() Intent {
	return Intent{Run: Run{1, 2, 3, 15: 9}, Seq: 42, Codec: 1,
		Ranges: []event.Range{
			{Partition: event.Partition{Topic: "flights.events", Number: 1}, From: 0, To: 10, LeaderEpoch: -1},
			{Partition: event.Partition{Topic: "flights.events", Number: 5}, From: 1 << 40, To: 1<<40 + 7, LeaderEpoch: 3, TopicID: event.TopicID{0xab, 15: 1}},
		},
		Excluded: []Excluded{{event.Partition{Topic: "flights.events", Number: 5}, []int64{1 << 40, 1<<40 + 3}}}}
}

// The token is part of the format: another one for the same intent would have what was sent before an upgrade taken
// twice.
func TestTokenIsGolden(t *testing.T) {
	i := sample()
	golden(t, "token.txt", i.Token("flights", 202611)+"\n"+rangesText(i.Ranges)+"\n"+excludedTexts(i.Excluded)+"\n")
}

// Whatever differs gives another token; what says nothing about the rows does not.
func TestTokenTellsIntentsApart(t *testing.T) {
	first := sample()
	seen := map[string]string{first.Token("flights", 202611): "the intent itself"}
	check := func(what string, token string) {
		if other, ok := seen[token]; ok {
			t.Errorf("%s has the token of %s", what, other)
		}
		seen[token] = what
	}
	check("another table", first.Token("flight", 202611))
	check("another month", first.Token("flights", 202612))
	check("no month", first.Token("flights", partitioner.NoMonth))
	for what, change := range map[string]func(*Intent){
		"another run":       func(i *Intent) { i.Run[0]++ },
		"another from":      func(i *Intent) { i.Ranges[0].From++ },
		"another to":        func(i *Intent) { i.Ranges[1].To++ },
		"another partition": func(i *Intent) { i.Ranges[1].Number++ },
		"another topic":     func(i *Intent) { i.Ranges[0].Topic = "flights.event" },
		"one range":         func(i *Intent) { i.Ranges = i.Ranges[:1] },
		"nothing excluded":  func(i *Intent) { i.Excluded = nil },
		"one excluded":      func(i *Intent) { i.Excluded[0].Offsets = i.Excluded[0].Offsets[:1] },
		"another excluded":  func(i *Intent) { i.Excluded[0].Offsets[1]++ },
	} {
		i := sample()
		change(&i)
		check(what, i.Token("flights", 202611))
	}
	same := sample()
	same.Seq, same.Ranges[0].LeaderEpoch, same.Ranges[0].TopicID = 99, 8, event.TopicID{1}
	if same.Token("flights", 202611) != first.Token("flights", 202611) {
		t.Error("the sequence number or a leader epoch changed the token")
	}
}

// What is stored is read back, and what was cut short is refused.
func TestTextsAreReadBack(t *testing.T) {
	i := sample()
	text := rangesText(i.Ranges)
	ranges, err := parseRanges(text)
	if err != nil || !reflect.DeepEqual(ranges, i.Ranges) {
		t.Errorf("%s is read as %+v, %v", text, ranges, err)
	}
	for n := range len(text) {
		if _, err := parseRanges(text[:n]); err == nil {
			t.Errorf("%q is read without an error", text[:n])
		}
	}
	text = excludedTexts(i.Excluded)
	excluded, err := parseExcluded(text)
	if err != nil || !reflect.DeepEqual(excluded, i.Excluded) {
		t.Errorf("%s is read as %+v, %v", text, excluded, err)
	}
	for n := range len(text) {
		if _, err := parseExcluded(text[:n]); err == nil {
			t.Errorf("%q is read without an error", text[:n])
		}
	}
	for _, bad := range []string{`[{"topic":"t","part":1,"from":5,"to":4,"topic_id":"00000000000000000000000000000000"}]`,
		`[{"topic":"t","part":1,"from":-1,"to":4,"topic_id":"00000000000000000000000000000000"}]`,
		`[{"topic":"t","part":1,"from":1,"to":4,"topic_id":"00"}]`} {
		if _, err := parseRanges(bad); err == nil {
			t.Errorf("%s is read without an error", bad)
		}
	}
}

// Excluded sets against a plain map.
func TestExcludedAgainstATwin(t *testing.T) {
	seeds(t, func(t *testing.T, random *rand.Rand) {
		twin := map[message]bool{}
		draw := func() []Excluded {
			b := &event.Batch{Excluded: map[int]bool{}}
			for range random.IntN(20) {
				m := event.Message{Partition: event.Partition{Topic: string(rune('a' + random.IntN(2))), Number: random.Int32N(3)}, Offset: random.Int64N(30)}
				if random.IntN(2) == 0 {
					b.Excluded[len(b.Messages)] = true
					twin[message{m.Partition, m.Offset}] = true
				}
				b.Messages = append(b.Messages, m)
			}
			return ExcludedOf(b)
		}
		x, y := draw(), draw()
		merged := MergeExcluded(x, y)
		n := 0
		for _, e := range merged {
			n += len(e.Offsets)
			if !slices.IsSorted(e.Offsets) {
				t.Errorf("offsets are not sorted: %v", e.Offsets)
			}
		}
		if n != len(twin) {
			t.Errorf("%v and %v make %v, wanted %v", x, y, merged, twin)
		}
		for m := range twin {
			if !Excludes(merged, m.part, m.offset) {
				t.Errorf("%v is not in %v", m, merged)
			}
		}
		if again := MergeExcluded(y, x); !reflect.DeepEqual(again, merged) {
			t.Errorf("the other way round: %v, not %v", again, merged)
		}
	})
}

// Groups are disjoint, cover everything, and depend on the partition number alone.
func TestGroupsCoverEachPartitionOnce(t *testing.T) {
	topics := []string{"z.events", "a.events"}
	for partitions := 1; partitions <= 20; partitions++ {
		for count := 1; count <= 24; count++ {
			groups := Groups(topics, partitions, count)
			seen := map[event.Partition]int{}
			for g, parts := range groups {
				if len(parts) == 0 {
					t.Errorf("%d partitions in %d groups: group %d is empty", partitions, count, g)
				}
				for _, p := range parts {
					seen[p]++
					if int(p.Number)%count != g {
						t.Errorf("partition %d is in group %d of %d", p.Number, g, count)
					}
				}
				reversed := slices.Clone(parts)
				slices.Reverse(reversed)
				if n, err := GroupOf(groups, reversed); err != nil || n != g {
					t.Errorf("group %d is found as %d, %v", g, n, err)
				}
			}
			if len(seen) != partitions*len(topics) {
				t.Errorf("%d partitions in %d groups: %d are in one", partitions, count, len(seen))
			}
			if _, err := GroupOf(groups, []event.Partition{{Topic: "other"}}); err == nil {
				t.Error("a foreign partition is in a group")
			}
		}
	}
}

// Each answer of the rows, by hand.
func TestDecideCommit(t *testing.T) {
	at := func(part int32, epoch, next int64) progress.Row {
		return progress.Row{Key: progress.Key{Partition: event.Partition{Topic: "t", Number: part}}, OwnerEpoch: epoch, Next: next}
	}
	advances := advancesOf([]progress.Row{at(1, 4, 10), at(2, 5, 20)}, []event.Range{
		{Partition: event.Partition{Topic: "t", Number: 2}, From: 20, To: 25}, {Partition: event.Partition{Topic: "t", Number: 1}, From: 10, To: 15}})
	for _, c := range []struct {
		name     string
		owner    string
		epoch    int64
		one, two progress.Row
		want     verdict
	}{
		{"carried out", "a", 7, at(1, 4, 15), at(2, 5, 25), committed},
		{"not carried out", "a", 7, at(1, 4, 10), at(2, 5, 20), open},
		{"lease taken over, progress not yet", "a", 8, at(1, 4, 10), at(2, 5, 20), fenced},
		{"taken over after it was carried out", "a", 8, at(1, 5, 15), at(2, 6, 25), fenced},
		{"a gap was accepted", "a", 7, at(1, 5, 12), at(2, 5, 20), fenced},
		{"restored", "a", 7, at(1, 4, 3), at(2, 5, 20), wentBack},
		{"one of two", "a", 7, at(1, 4, 15), at(2, 5, 20), foreign},
		{"inside", "a", 7, at(1, 4, 12), at(2, 5, 20), foreign},
		{"restored, and taken over under the same epoch", "b", 7, at(1, 4, 15), at(2, 5, 20), fenced},
		{"another partition", "a", 7, at(1, 4, 10), at(3, 5, 20), foreign},
	} {
		if got := decideCommit(lease.Fence{Owner: "a", Epoch: 7}, advances, row{fence: lease.Fence{Owner: c.owner, Epoch: c.epoch}}, []progress.Row{c.one, c.two}); got != c.want {
			t.Errorf("%s: %s, wanted %s", c.name, got, c.want)
		}
	}
}

func TestDecideBegin(t *testing.T) {
	part := event.Partition{Topic: "t", Number: 1}
	stand := []progress.Row{{Key: progress.Key{Partition: part}, Next: 10}}
	ranges := func(from, to int64) []event.Range { return []event.Range{{Partition: part, From: from, To: to}} }
	bad := []Excluded{{part, []int64{12}}}
	stored := &Intent{Ranges: ranges(10, 15), Excluded: bad}
	for _, c := range []struct {
		name             string
		pending, current *Intent
		ranges           []event.Range
		excluded         []Excluded
		want             beginning
	}{
		{"first", nil, nil, ranges(10, 20), nil, beginNew},
		{"the earlier owner's", stored, nil, ranges(10, 15), bad, beginAgain},
		{"the earlier owner's, one more bad", stored, nil, ranges(10, 15), []Excluded{{part, []int64{12, 13}}}, beginNew},
		{"another than the earlier owner's", stored, nil, ranges(10, 16), bad, beginForeign},
		{"its own, again", nil, stored, ranges(10, 15), bad, beginAgain},
		{"its own, one more bad", nil, stored, ranges(10, 15), []Excluded{{part, []int64{11, 12}}}, beginNew},
		{"below", nil, nil, ranges(11, 20), nil, beginRewound},
		{"above", nil, nil, ranges(9, 20), nil, beginApplied},
		{"foreign partition", nil, nil, []event.Range{{Partition: event.Partition{Topic: "t", Number: 2}}}, nil, beginForeign},
	} {
		if got := decideBegin(c.pending, c.current, stand, c.ranges, c.excluded); got != c.want {
			t.Errorf("%s: %d, wanted %d", c.name, got, c.want)
		}
	}
}

func TestPendingIsVoidWhereProgressMoved(t *testing.T) {
	one, two := event.Partition{Topic: "t", Number: 1}, event.Partition{Topic: "t", Number: 2}
	stored := row{intent: Intent{Ranges: []event.Range{{Partition: one, From: 10, To: 15}, {Partition: two, From: 5, To: 9}}}}
	at := func(n1, n2 int64) []progress.Row {
		return []progress.Row{{Key: progress.Key{Partition: one}, Next: n1}, {Key: progress.Key{Partition: two}, Next: n2}}
	}
	if i := pendingOf(stored, at(10, 5)); i == nil || len(i.Ranges) != 2 {
		t.Errorf("what was not confirmed is %v", i)
	}
	for name, stand := range map[string][]progress.Row{"a gap was accepted": at(12, 5), "set back": at(10, 0),
		"the groups were changed": at(10, 5)[:1]} {
		if i := pendingOf(stored, stand); i != nil {
			t.Errorf("%s: %v is sent again", name, i)
		}
	}
	stored.confirmed = true
	if i := pendingOf(stored, at(10, 5)); i != nil {
		t.Errorf("what was confirmed is sent again: %v", i)
	}
}
