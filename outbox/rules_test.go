package outbox

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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
			r := judgeTail(c.entries, state(), database{serverUUID: c.uuid, stored: stored, next: 111}, 0)
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
	if r := judgeTail(nil, &laneState{generations: generations{{1, 1}}}, database{serverUUID: "a"}, 0); r.newGeneration {
		t.Error("the first take-over of all begins a generation")
	}
}

// Ids at or below the cursor that are given out again move it back, to where topic and table agree.
func TestP2_TailRuleGoesBack(t *testing.T) {
	state := func() *laneState {
		return &laneState{serverUUID: "a", cursor: 100, hot: []idRange{{90, 91}}, cold: []idRange{{50, 60}},
			parked: map[event.Partition]*bucketSet{{Topic: "t"}: {idSet: idSet{[]idRange{{95, 95}}}}}, generations: generations{{1, 1}, {81, 2}}}
	}
	entry := func(gen int64, id uint64) tailEntry {
		return tailEntry{ID: id, Generation: gen, EventID: eventID(int(id))}
	}
	for _, c := range []struct {
		name    string
		entries []tailEntry
		other   []uint64 // rows with another event
		same    []uint64
		next    uint64
		suspect string
		back    bool
		agreed  uint64
	}{
		{name: "drained, in order", entries: []tailEntry{entry(2, 99), entry(2, 100)}, same: []uint64{99, 100}, next: 101, agreed: 100},
		{name: "deleted rows", entries: []tailEntry{entry(2, 99), entry(2, 100)}, next: 101},
		{name: "deleted rows, a server that does not tell its counter", entries: []tailEntry{entry(2, 99)}},
		{name: "the counter alone", next: 100, back: true},
		{name: "the counter, and rows that stayed", entries: []tailEntry{entry(1, 60), entry(1, 70), entry(2, 99)}, same: []uint64{60, 70}, next: 71, back: true, agreed: 70},
		{name: "other rows beyond the cursor", entries: []tailEntry{entry(2, 99), entry(2, 100)}, other: []uint64{99}, next: 300, back: true},
		{name: "other rows, judged before", entries: []tailEntry{entry(1, 70)}, other: []uint64{70}, next: 300},
		{name: "what the session before saw", next: 300, suspect: "row 7", back: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			stored := map[uint64]event.ID{}
			for _, id := range c.same {
				stored[id] = eventID(int(id))
			}
			for _, id := range c.other {
				stored[id] = eventID(5000)
			}
			r := judgeTail(c.entries, state(), database{serverUUID: "a", stored: stored, next: c.next, suspect: c.suspect}, 0)
			if r.back != c.back || r.newGeneration != c.back || (r.why != "") != c.back || r.agreed != c.agreed || len(r.lost) > 0 || len(r.skip) > 0 {
				t.Errorf("%+v", r)
			}
		})
	}
	s := state()
	s.goBack(55)
	if s.cursor != 55 || len(s.hot) != 0 || fmt.Sprint(s.cold) != "[{50 55}]" || !s.parked[event.Partition{Topic: "t"}].empty() {
		t.Errorf("%+v", s)
	}
	for id := uint64(56); id <= 100; id++ {
		if s.counted(id) {
			t.Errorf("id %d counts as published", id)
		}
	}
}

// What the reader remembers of a table tells every table that began anew, and none whose rows were only deleted.
func TestP2_KnownRowsTellATableThatBeganAnew(t *testing.T) {
	rnd := random(t)
	for range 300 {
		table := map[uint64]event.ID{}
		var k knownRows
		var gaps gapTracker
		read, serial := uint64(0), 0
		last := func(n int, from uint64) (rows []knownRow) { // up to read, descending
			for id := read; id > 0 && id >= from && len(rows) < n; id-- {
				if e, ok := table[id]; ok {
					rows = append(rows, knownRow{id, e})
				}
			}
			return rows
		}
		look := func() bool { // as lookBack, without the counter
			now := last(4*knownMax, k.newest())
			slices.Reverse(now)
			intact, foreign := k.judge(now, gaps.has)
			if foreign == 0 && !intact && len(k.rows) > 0 {
				if _, foreign = k.judge(last(4*knownMax, 0), gaps.has); foreign == 0 {
					foreign = k.keep(last(4*knownMax, 0), gaps.has)
				}
			}
			return foreign == 0
		}
		for range 30 {
			switch rnd.IntN(4) {
			case 0, 1: // read rows, with gaps
				var ids []uint64
				for id := read + 1; id <= read+uint64(1+rnd.IntN(30)); id++ {
					if rnd.IntN(4) > 0 {
						serial++
						table[id] = eventID(serial)
						ids = append(ids, id)
					}
				}
				if !look() {
					t.Fatal("reading is taken for a table that began anew")
				}
				gaps.observe(ids, ^uint64(0), 0, time.Time{})
				for _, id := range ids {
					k.add(id, table[id])
				}
				read = gaps.read
			case 2: // a gap is filled, and seen before it is read
				if len(gaps.hot) > 0 {
					serial++
					table[gaps.hot[rnd.IntN(len(gaps.hot))].From] = eventID(serial)
				}
			case 3: // the oldest are deleted, or all, or some
				from, one := read*uint64(rnd.IntN(4))/3, rnd.IntN(3) == 0
				for id := range table {
					if id <= from || one && id%5 == 0 {
						delete(table, id)
					}
				}
			}
			if !look() {
				t.Fatalf("cursor %d: deleted rows are taken for a table that began anew", read)
			}
		}
		if read == 0 {
			continue
		}
		// TRUNCATE, and rows up to some id: the last of them is no gap.
		clear(table)
		n := uint64(1 + rnd.IntN(int(read)))
		if gaps.has(n) {
			continue
		}
		for id := uint64(1); id <= n; id++ {
			serial++
			table[id] = eventID(serial)
		}
		if look() {
			t.Fatalf("cursor %d: a table that began anew, with rows up to %d, is not told", read, n)
		}
	}
}

// The tail scan believes events of this line's relays alone: whoever can write to the topic can write anything.
func TestP1_TailScanPassesOverForeignRecords(t *testing.T) {
	ev := goldenEvents()[0]
	ev.Version, ev.LayoutEpoch, ev.Outbox = 7, 1, event.OutboxPosition{Generation: 12, Lane: 3, ID: 18204551}
	record := func(name, value string) *event.Record {
		var rec event.Record
		ev.AppendRecordTo(nil, "slotline/flights", &rec)
		for i := range rec.Headers {
			if rec.Headers[i].Key == name {
				rec.Headers[i].Value = []byte(value)
			}
		}
		return &rec
	}
	pos, id, ok := identify(record("", ""), "slotline/flights")
	if !ok || pos != ev.Outbox || id != ev.ID {
		t.Errorf("%+v %v %v", pos, id, ok)
	}
	if pos, _, ok := identify(record("ce_outbox", "32767.00/140737488355327"), "slotline/flights"); !ok {
		t.Errorf("the greatest position, %+v, is refused", pos)
	}
	for _, text := range []string{"", "1", "1.00", "1/5", "1.00/", "x.00/5", "1.x/5", "1.00/x", "0.00/5", "1.-1/5", "1.00/0",
		"9223372036854775807.01/1", "32768.00/5", "1.00/140737488355328", "1.00/18446744073709551615"} {
		if pos, _, ok := identify(record("ce_outbox", text), "slotline/flights"); ok {
			t.Errorf("%q is read as %+v", text, pos)
		}
	}
	if _, _, ok := identify(record("", ""), "slotline/freights"); ok {
		t.Error("another line's record is taken for one of this line")
	}
	garbage := &event.Record{Key: []byte("x"), Value: []byte("{}"), Headers: []event.Header{{Key: "ce_source", Value: []byte("slotline/flights")},
		{Key: "ce_id", Value: []byte(ev.ID.String())}, {Key: "ce_outbox", Value: []byte("1.03/5")}}}
	if _, _, ok := identify(garbage, "slotline/flights"); ok {
		t.Error("a record that is no event is taken for one")
	}
	for _, tail := range []int64{generationMax, 1<<63 - 1} {
		if g, err := (generations{{1, 1}}).begin(2, tail); err == nil {
			t.Errorf("after generation %d begins %v", tail, g)
		}
	}
}

// Many gaps that a transaction holds open hide none of the others: each pass asks for all.
func TestP2_EveryGapIsSuspectedInEachPass(t *testing.T) {
	g := gapTracker{margin: time.Second}
	now := time.Unix(1e9, 0)
	var ids []uint64
	for id := uint64(2); id <= 2000; id += 2 {
		ids = append(ids, id)
	}
	g.observe(ids, ^uint64(0), 0, now)
	now = now.Add(2 * time.Second)
	open := func(id uint64) bool { return id < 700 }
	for pass, more := 0, true; more; pass++ {
		var suspects []idRange
		suspects, more = g.suspects(now, 100)
		if len(suspects) > 100 || pass > 10 {
			t.Fatalf("pass %d: %d suspects", pass, len(suspects))
		}
		var found []uint64
		for _, s := range suspects {
			if open(s.From) {
				found = append(found, s.From)
			}
		}
		g.uncommitted(suspects, found, ^uint64(0))
	}
	g.observe(nil, ^uint64(0), 0, now)
	if cold, hot := g.cold.count(), countIDs(g.hotRanges()); cold != 650 || hot != 350 {
		t.Errorf("%d gaps are cold and %d hot, wanted 650 and 350", cold, hot)
	}
	if again, _ := g.suspects(now, 1000); len(again) != 350 {
		t.Errorf("the next pass asks for %d", len(again))
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
