package outbox

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/slotline/slotline/event"
)

// The simulated purge takes the steps of purger: it waits for the lane table alone, takes a partition's rows away, puts
// back what is not settled, forgets the gaps, and drops the partition, with anything else happening between two steps.

const simPartition = 20 // ids

type simStage int

const (
	simIdle simStage = iota
	simWaiting
	simAway
	simForget
)

type simPurge struct {
	stage   simStage
	bound   uint64
	low     uint64 // bound of the lowest partition that is there
	ordered bool
	dropped int // partitions
	late    int // rows that were put back
}

func (s *sim) bounds() (bounds []uint64) {
	if s.purge.low == 0 {
		s.purge.low = simPartition + 1
	}
	for b := s.purge.low; b < s.nextID+10*simPartition; b += simPartition {
		bounds = append(bounds, b)
	}
	return bounds
}

func (s *sim) maxID() (id uint64) {
	for _, r := range s.rows {
		if r != nil && r.committed && !r.away && !r.purged {
			id = r.id
		}
	}
	return id
}

// open says that a transaction holds the lane table's metadata lock.
func (s *sim) open() bool {
	for _, r := range s.rows {
		if r != nil && !r.committed && !r.gone {
			return true
		}
	}
	return false
}

func (s *sim) purgeStep() {
	p := &s.purge
	switch p.stage {
	case simIdle:
		bound, why := planPurge(s.bounds(), s.load(), s.maxID())
		if bound > 0 && why == "" {
			p.stage, p.bound, p.ordered = simWaiting, bound, false
		}
	case simWaiting:
		switch {
		case !s.open():
			p.stage = simAway
			for _, r := range s.rows {
				if r != nil && r.id < p.bound && r.committed && !r.purged {
					r.away = true
				}
			}
			s.note("rows below %d are away", p.bound)
		case s.rnd.IntN(8) == 0:
			p.stage = simIdle
		}
	case simAway:
		if s.rnd.IntN(4) > 0 {
			return
		}
		if s.opts.crashes && s.rnd.IntN(4) == 0 {
			s.note("crash while rows are away")
			s.takeOver()
			return
		}
		if s.settlePrivate() > 0 {
			p.stage = simIdle
			s.sweep()
			return
		}
		p.stage = simForget
	case simForget:
		if !p.ordered {
			p.ordered = true
			s.relay.gaps.forget(p.bound)
		}
		if len(s.load().unsettled(0, p.bound-1)) > 0 {
			return
		}
		for _, r := range s.rows {
			if r != nil && r.id < p.bound {
				r.purged = true
			}
		}
		s.note("partition below %d is dropped", p.bound)
		p.stage, p.low = simIdle, p.bound+simPartition
		p.dropped++
	}
}

// settlePrivate empties the private table, and returns how many rows it puts back.
func (s *sim) settlePrivate() (late int) {
	open := idSet{s.load().unsettled(0, ^uint64(0))}
	for _, r := range s.rows {
		if r == nil || !r.away {
			continue
		}
		r.away = false
		if open.contains(r.id) {
			late++
			s.note("row %d is put back", r.id)
		} else {
			r.purged = true
		}
	}
	s.purge.late += late
	return late
}

// recoverPurge is what a take-over does first.
func (s *sim) recoverPurge() {
	s.settlePrivate()
	s.purge.stage = simIdle
}

// purged says that nothing is left to purge.
func (s *sim) purged() bool {
	bound, _ := planPurge(s.bounds(), s.load(), s.maxID())
	return s.purge.stage == simIdle && bound == 0
}

func runPurgeSim(t *testing.T, seeds, steps int, opts simOptions) {
	dropped, late := 0, 0
	opts.purge = true
	// One run in ten puts rows back: where none of all did, which chance brings about, there are more.
	for round := 0; round == 0 || round < 20 && (dropped == 0 || late == 0); round++ {
		for _, seed := range simSeeds(t, seeds) {
			s := simulate(t, seed, steps, opts)
			for _, r := range s.load().cold {
				if r.From < s.purge.low-simPartition {
					s.fatalf("gap %v of a purged partition is kept", r)
				}
			}
			dropped += s.purge.dropped
			late += s.purge.late
		}
		if os.Getenv("SIM_SEED") != "" {
			return
		}
	}
	t.Logf("%d partitions purged, %d rows put back", dropped, late)
	if dropped == 0 {
		t.Error("nothing was purged")
	}
	if late == 0 {
		t.Error("no row committed late: the test tries nothing")
	}
}

// P1, P2: purging among late commits, crashes at each step, refusals and failovers loses nothing, repeats nothing, and
// begins no generation by itself.
func TestP2_SimulatedPurge(t *testing.T) {
	runPurgeSim(t, 60, 4000, simOptions{events: 400, slowInserts: true, crashes: true})
}

func TestP1_SimulatedPurgeWhilePartitionsRefuse(t *testing.T) {
	runPurgeSim(t, 80, 5000, simOptions{events: 400, slowInserts: true, crashes: true, breakage: true, big: true})
}

func TestP1_SimulatedPurgeAndFailovers(t *testing.T) {
	runPurgeSim(t, 60, 4000, simOptions{events: 400, slowInserts: true, crashes: true, breakage: true, failovers: true})
}

// randomState is a lane's state over ids up to 3 partitions.
func randomState(rnd *rand.Rand) *laneState {
	s := &laneState{cursor: uint64(rnd.IntN(70)), parked: map[event.Partition]*bucketSet{}}
	parked := &bucketSet{}
	var hot, cold idSet
	for id := uint64(1); id <= s.cursor; id++ {
		switch rnd.IntN(40) {
		case 0:
			hot.add(idRange{id, id}, nil)
		case 1, 2, 3:
			cold.add(idRange{id, id}, nil)
		case 4:
			parked.idSet.add(idRange{id, id}, nil)
		}
	}
	s.hot, s.cold = hot.ranges, cold.ranges
	s.parked[event.Partition{Topic: "t", Number: 1}] = parked
	return s
}

func TestPlanPurgeAgainstTwin(t *testing.T) {
	rnd := random(t)
	purges, waits := 0, 0
	for range 20_000 {
		s := randomState(rnd)
		maxID := uint64(rnd.IntN(80))
		var bounds []uint64
		for b := uint64(11 + 10*rnd.IntN(3)); b < 100; b += 10 {
			bounds = append(bounds, b)
		}
		rnd.Shuffle(len(bounds), func(i, j int) { bounds[i], bounds[j] = bounds[j], bounds[i] })
		bound, why := planPurge(bounds, s, maxID)

		low := bounds[0]
		for _, b := range bounds {
			low = min(low, b)
		}
		wholly, clean := true, true
		for id := uint64(0); id < low; id++ {
			wholly = wholly && id < s.cursor && id < maxID
			clean = clean && !contains(s.hot, id) && !s.parked[event.Partition{Topic: "t", Number: 1}].contains(id)
		}
		// The cursor's row and the greatest id are in later partitions.
		wholly = wholly && s.cursor >= low && maxID >= low
		clean = clean && maxID >= s.cursor
		if (bound > 0) != wholly || bound > 0 && bound != low || bound > 0 && (why == "") != clean || bound == 0 && why != "" {
			t.Fatalf("bounds %v, greatest id %d, state %+v: partition below %d, %q", bounds, maxID, s, bound, why)
		}
		if bound > 0 && why == "" {
			purges++
		} else if bound > 0 {
			waits++
		}
	}
	if purges == 0 || waits == 0 {
		t.Errorf("%d purges, %d waits: the test tries nothing", purges, waits)
	}
}

func TestUnsettledIsWhatIsNotCounted(t *testing.T) {
	rnd := random(t)
	for range 3000 {
		s := randomState(rnd)
		first := uint64(rnd.IntN(80))
		last := first + uint64(rnd.IntN(40))
		open := idSet{s.unsettled(first, last)}
		for id := uint64(0); id < 130; id++ {
			if want := id >= first && id <= last && !s.counted(id); open.contains(id) != want {
				t.Fatalf("id %d of %d to %d is unsettled: %v; state %+v", id, first, last, !want, s)
			}
		}
	}
}

// Forgetting changes what is stored as it changes the set: whatever buckets the ranges lie in, and reach into.
func TestForgetIsStored(t *testing.T) {
	rnd := random(t)
	for range 2000 {
		var g gapTracker
		twin := map[uint64]bool{}
		for range rnd.IntN(8) {
			from := rnd.Uint64N(5 << bucketShift)
			to := from + rnd.Uint64N(1+rnd.Uint64N(2<<bucketShift))
			g.cold.add(idRange{from, to})
		}
		stored := map[uint64]string{}
		for b, text := range g.cold.takeDirty() {
			stored[b] = text
		}
		points := []uint64{}
		for range 200 {
			id := rnd.Uint64N(8 << bucketShift)
			points = append(points, id)
			twin[id] = g.cold.contains(id)
		}
		below := rnd.Uint64N(6 << bucketShift)
		g.forget(below)
		for b, text := range g.cold.takeDirty() {
			stored[b] = text
		}
		var back idSet
		for _, text := range stored {
			ranges, err := parseRanges(text)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range ranges {
				back.add(r, nil)
			}
		}
		for _, id := range points {
			if want := twin[id] && id >= below; g.cold.contains(id) != want || back.contains(id) != want {
				t.Fatalf("id %d after forgetting those below %d: gap %v, stored %v, wanted %v", id, below, g.cold.contains(id), back.contains(id), want)
			}
		}
	}
}

func TestGoldenPurgeSQL(t *testing.T) {
	name := purgeTable(0, 0xabcd)
	list := append(makePurgeSQL(0, name), exchangeSQL(0, idPartition{1001}, name), fmt.Sprintf(idsOfSQL, name),
		lateSQL(name, []idRange{{7, 7}, {9, 12}}, foundRows), putBackSQL(0, name, []idRange{{9, 9}}), dropPartitionSQL(0, idPartition{1001}),
		purgeTablesSQL, fmt.Sprintf(anchorSQL, LaneTable(0)), partitionSQL, partitionSizesSQL, ddlLockSQL, holdersSQL)
	golden(t, "purge.sql", strings.Join(list, ";\n")+";\n")
}
