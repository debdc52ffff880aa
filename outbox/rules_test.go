package outbox

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/slotline/slotline/event"
)

func TestP3_VersionsGrowWithGenerations(t *testing.T) {
	rnd := random(t)
	for range 200 {
		g := generations{{1, 1}}
		cursor := uint64(0)
		last := int64(0)
		for range 20 {
			n := uint64(rnd.IntN(5)) // ids passed under this generation
			for id := cursor + 1; id <= cursor+n; id++ {
				if v := g.version(id); v <= last {
					t.Fatalf("version %d of id %d under %v does not exceed %d", v, id, g, last)
				} else {
					last = v
				}
			}
			fixed := map[uint64]int64{}
			for id := uint64(1); id <= cursor+n; id++ {
				fixed[id] = g.version(id)
			}
			cursor += n
			var err error
			tail := int64(rnd.IntN(30))
			if g, err = g.begin(cursor+1, tail); err != nil {
				t.Fatal(err)
			}
			if g.last() <= tail {
				t.Fatalf("generation %d does not lie above the tail's %d", g.last(), tail)
			}
			for id, v := range fixed {
				if g.version(id) != v {
					t.Fatalf("the version of id %d changed when %v began", id, g)
				}
			}
			back, err := parseGenerations(g.String())
			if err != nil || !slices.Equal(back, g) {
				t.Fatalf("%s: %v %v", g, back, err)
			}
		}
	}
	for _, text := range []string{"", "1", "1:0", "1:1,1:2", "2:2,1:3", "1:2,5:2", "1:-1", "1:32769", "x:1", "1:1,"} {
		if g, err := parseGenerations(text); err == nil {
			t.Errorf("%q is read as %v", text, g)
		}
	}
	if v := (generations{{1, generationMax}}).version(idMax); v <= 0 || v > event.VersionMax {
		t.Errorf("the greatest version is %d", v)
	}
	if _, err := (generations{{1, generationMax}}).begin(2, 0); err == nil {
		t.Error("a generation beyond the last")
	}
}

func eventID(n int) (id event.ID) { copy(id[:], fmt.Sprintf("event-%010d", n)); return id }

func TestP1_TailRule(t *testing.T) {
	state := func() *laneState {
		return &laneState{serverUUID: "a", cursor: 100, hot: []idRange{{90, 91}}, cold: []idRange{{50, 50}},
			parked:      map[event.Partition]*bucketSet{{Topic: "t"}: {idSet: idSet{[]idRange{{95, 95}}}}},
			generations: generations{{1, 1}, {81, 2}}}
	}
	stored := map[uint64]event.ID{}
	for id := uint64(1); id <= 110; id++ {
		stored[id] = eventID(int(id))
	}
	entry := func(gen int64, id uint64) tailEntry {
		return tailEntry{ID: id, Generation: gen, EventID: eventID(int(id))}
	}
	for _, c := range []struct {
		name          string
		uuid          string
		entries       []tailEntry
		newGeneration bool
		skip          []uint64
		lost          int
	}{
		{name: "an empty tail", uuid: "a"},
		{name: "counted ids are not skipped again", uuid: "a", entries: []tailEntry{entry(2, 99), entry(2, 100)}},
		{name: "unread, hot, cold and parked ids are skipped", uuid: "a",
			entries: []tailEntry{entry(2, 101), entry(2, 90), entry(1, 50), entry(2, 95)}, skip: []uint64{50, 90, 95, 101}},
		{name: "another server", uuid: "b", entries: []tailEntry{entry(2, 101)}, newGeneration: true},
		{name: "an id that the database has not reached", uuid: "a", entries: []tailEntry{entry(2, 101), entry(2, 111)}, newGeneration: true, lost: 1},
		{name: "an id that was given out twice", uuid: "a", entries: []tailEntry{{ID: 105, Generation: 2, EventID: eventID(999)}}, newGeneration: true, lost: 1},
		{name: "a later generation than the row knows", uuid: "a", entries: []tailEntry{entry(3, 101)}, newGeneration: true},
		{name: "an earlier generation's loss was judged before", uuid: "a", entries: []tailEntry{entry(1, 111)}},
		{name: "a record under an earlier generation is published again", uuid: "a", entries: []tailEntry{entry(1, 101)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := judgeTail(c.entries, stored, state(), c.uuid)
			var skip []uint64
			for _, s := range r.skip {
				skip = append(skip, s.id)
			}
			slices.Sort(skip)
			if r.newGeneration != c.newGeneration || len(r.lost) != c.lost || !slices.Equal(skip, c.skip) {
				t.Errorf("%+v", r)
			}
			if r.newGeneration != (r.why != "") {
				t.Errorf("why is %q", r.why)
			}
		})
	}
	if r := judgeTail(nil, nil, &laneState{generations: generations{{1, 1}}}, "a"); r.newGeneration {
		t.Error("the first take-over of all begins a generation")
	}
}

func TestParseOutbox(t *testing.T) {
	pos, ok := parseOutbox([]byte("12.03/18204551"))
	if want := (event.OutboxPosition{Generation: 12, Lane: 3, ID: 18204551}); !ok || pos != want {
		t.Errorf("%+v %v", pos, ok)
	}
	for _, text := range []string{"", "1", "1.00", "1/5", "1.00/", "x.00/5", "1.x/5", "1.00/x", "0.00/5", "1.-1/5", "1.00/0"} {
		if pos, ok := parseOutbox([]byte(text)); ok {
			t.Errorf("%q is read as %+v", text, pos)
		}
	}
}

func TestPlanSplitKeepsPartitionsAhead(t *testing.T) {
	rnd := random(t)
	for range 500 {
		rows := uint64(1 + rnd.IntN(50))
		var bounds []uint64
		for _, p := range partitionsUpTo(0, rows, 1+rnd.IntN(8)) {
			bounds = append(bounds, p.Bound)
		}
		maxID := uint64(rnd.IntN(int(rows) * 10))
		add, overrun := planSplit(slices.Clone(bounds), maxID, rows)
		last := bounds[len(bounds)-1]
		if overrun != (maxID >= last) {
			t.Fatalf("bounds %v, id %d: overrun is %v", bounds, maxID, overrun)
		}
		if overrun {
			continue
		}
		for _, p := range add {
			if p.Bound != last+rows {
				t.Fatalf("partition %d follows %d", p.Bound, last)
			}
			last = p.Bound
		}
		ahead := 0
		for b := maxID/rows*rows + rows + 1; b < last; b += rows {
			ahead++
		}
		if maxID > 0 && maxID%rows == 0 {
			ahead++ // ids end at multiples: maxID is the last of its partition
		}
		if ahead < partitionsAhead {
			t.Fatalf("bounds %v, id %d, rows %d: adding %v leaves %d ahead", bounds, maxID, rows, add, ahead)
		}
	}
}

func TestOffsetsText(t *testing.T) {
	offsets := map[event.Partition]int64{{Topic: "b", Number: 2}: 7, {Topic: "b", Number: 0}: 12, {Topic: "a.x", Number: 1}: 0}
	text := offsetsText(offsets)
	if text != `{"a.x":[-1,0],"b":[12,-1,7]}` {
		t.Error(text)
	}
	back, err := parseOffsets(text)
	if err != nil || len(back) != 3 || back[event.Partition{Topic: "b", Number: 2}] != 7 {
		t.Errorf("%v %v", back, err)
	}
	for p := range offsets {
		if q, ok := parsePartitionName(partitionName(p)); !ok || q != p {
			t.Errorf("%v is named %s", p, partitionName(p))
		}
	}
	for _, text := range []string{"", "t", "t/", "/1", "t/-1", "t/x", coldKind} {
		if p, ok := parsePartitionName(text); ok {
			t.Errorf("%q is read as %v", text, p)
		}
	}
	if _, err := parseOffsets("[1]"); err == nil {
		t.Error("a list is read as offsets")
	}
}

func TestCutTextKeepsCodePoints(t *testing.T) {
	if got := cutText(strings.Repeat("é", 10), 5); got != "éé" {
		t.Errorf("%q", got)
	}
}
