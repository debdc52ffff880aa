package outbox

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

func names(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("relay-%02d", i))
	}
	return list
}

// fewestMoves is the slow, obvious twin: of all even ways to spread the lanes it finds how many lanes must leave a live
// owner at least.
func fewestMoves(owners []string, peers []peer) int {
	least := len(owners) + 1
	load := make([]int, len(peers))
	var try func(lane, moves int)
	try = func(lane, moves int) {
		if lane == len(owners) {
			if slices.Max(load)-slices.Min(load) <= 1 {
				least = min(least, moves)
			}
			return
		}
		live := slices.ContainsFunc(peers, func(p peer) bool { return p.owner == owners[lane] })
		for i, p := range peers {
			load[i]++
			if live && p.owner != owners[lane] {
				try(lane+1, moves+1)
			} else {
				try(lane+1, moves)
			}
			load[i]--
		}
	}
	try(0, 0)
	return least
}

// moved counts the lanes that leave a live owner.
func moved(owners, target []string, peers []peer) (n int) {
	for lane, owner := range owners {
		if target[lane] != owner && slices.ContainsFunc(peers, func(p peer) bool { return p.owner == owner }) {
			n++
		}
	}
	return n
}

func load(target []string, peers []peer) map[string]int {
	count := map[string]int{}
	for _, p := range peers {
		count[p.owner] = 0
	}
	for _, owner := range target {
		if owner != "" {
			count[owner]++
		}
	}
	return count
}

func uneven(count map[string]int) int {
	counts := slices.Collect(maps.Values(count))
	return slices.Max(counts) - slices.Min(counts)
}

func TestAssignIsEvenAndMovesTheFewest(t *testing.T) {
	rnd := random(t)
	for range 4000 {
		all := names(4)
		var owners []string
		for range 1 + rnd.IntN(6) {
			owners = append(owners, append(all, "", "dead")[rnd.IntN(len(all)+2)])
		}
		var peers []peer
		for _, name := range all[:1+rnd.IntN(len(all))] {
			peers = append(peers, peer{owner: name, settled: true})
		}
		rnd.Shuffle(len(peers), func(i, j int) { peers[i], peers[j] = peers[j], peers[i] })
		target := assign(owners, peers)
		if slices.Contains(target, "") || uneven(load(target, peers)) > 1 {
			t.Fatalf("%q over %v is not even: %q", owners, peers, target)
		}
		if n, least := moved(owners, target, peers), fewestMoves(owners, peers); n != least {
			t.Fatalf("%q over %v: %d lanes move, %d would do: %q", owners, peers, n, least, target)
		}
	}
}

// What a relay runs beyond its share stays with it while the only one that lacks lanes is not settled: nothing moves to
// others that have theirs.
func TestAssignMovesNothingWhereNobodyHasRoom(t *testing.T) {
	n := names(3)
	owners := []string{n[1], n[1], n[0], n[1], n[0], n[1]}
	peers := []peer{{owner: n[0], settled: true}, {owner: n[1], settled: true}, {owner: n[2]}}
	if target := assign(owners, peers); !slices.Equal(target, owners) {
		t.Errorf("%q becomes %q", owners, target)
	}
	peers[2].settled = true
	if target := assign(owners, peers); moved(owners, target, peers) != 2 || uneven(load(target, peers)) > 0 {
		t.Errorf("%q becomes %q", owners, target)
	}
}

// Whatever the relays are like: it depends on the state alone, comes to rest at once, runs no lane at a relay that
// declines it, leaves none that a relay accepts, and takes none from a live relay for one that is not settled.
func TestAssignHoldsForAnyState(t *testing.T) {
	rnd := random(t)
	for range 20_000 {
		all := names(6)
		var owners []string
		for range 1 + rnd.IntN(64) {
			owners = append(owners, append(all, "", "dead")[rnd.IntN(len(all)+2)])
		}
		var peers []peer
		for _, name := range all {
			if rnd.IntN(3) == 0 {
				continue
			}
			p := peer{owner: name, settled: rnd.IntN(4) > 0}
			if rnd.IntN(3) == 0 {
				p.declines = rnd.Uint64() & rnd.Uint64()
			}
			if rnd.IntN(12) == 0 {
				p.declines = ^uint64(0)
			}
			peers = append(peers, p)
		}
		target := assign(owners, peers)
		fail := func(format string, args ...any) {
			t.Helper()
			t.Fatalf("%q over %+v: %q: %s", owners, peers, target, fmt.Sprintf(format, args...))
		}
		byName := map[string]peer{}
		for _, p := range peers {
			byName[p.owner] = p
		}
		for lane, owner := range target {
			to, from := byName[owner], byName[owners[lane]]
			accepted := slices.ContainsFunc(peers, func(p peer) bool { return p.accepts(lane) })
			switch {
			case (owner != "") != accepted:
				fail("lane %d goes to %q", lane, owner)
			case owner != "" && (to.owner == "" || !to.accepts(lane)):
				fail("lane %d goes to %q, which declines it or is dead", lane, owner)
			case owner != owners[lane] && from.owner != "" && from.accepts(lane) && !to.settled:
				fail("lane %d is taken from a live relay for %q, which is not settled", lane, owner)
			}
		}
		rnd.Shuffle(len(peers), func(i, j int) { peers[i], peers[j] = peers[j], peers[i] })
		if again := assign(owners, peers); !slices.Equal(again, target) {
			fail("in another order of relays %q", again)
		}
		if again := assign(target, peers); !slices.Equal(again, target) {
			fail("not at rest: then %q", again)
		}
	}
}

// Relays join, leave, die and stutter, and each acts on what it saw some time ago. What they do to each other meanwhile
// ends: once nothing changes any more the lanes are spread evenly, and each move along the way had a reason.
func TestAssignWithStaleViewsComesToRest(t *testing.T) {
	rnd := random(t)
	for range 400 {
		seed := rnd.Uint64()
		simulateAssign(t, seed)
	}
}

func simulateAssign(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	type relay struct {
		live, settled bool
		owners        []string // as it last saw them
		peers         []peer
	}
	lanes := 1 + rnd.IntN(16)
	owners := make([]string, lanes)
	relays := map[string]*relay{}
	order := names(5)
	for _, name := range order {
		relays[name] = &relay{}
	}
	look := func(name string) {
		r := relays[name]
		r.owners, r.peers = slices.Clone(owners), nil
		for _, n := range order {
			if relays[n].live {
				r.peers = append(r.peers, peer{owner: n, settled: relays[n].settled})
			}
		}
	}
	handedOver := 0
	act := func(name string) {
		r := relays[name]
		if !r.live || r.owners == nil {
			return
		}
		for lane, to := range assign(r.owners, r.peers) {
			switch {
			case to != name && owners[lane] == name: // drained and given back
				owners[lane] = ""
				handedOver++
			case to == name && r.owners[lane] == "" && owners[lane] == "": // the lease decides
				owners[lane] = name
			}
		}
	}
	changes := 0
	for range 300 {
		name := order[rnd.IntN(len(order))]
		r := relays[name]
		switch k := rnd.IntN(40); {
		case k == 0 && !r.live:
			changes++
			*r = relay{live: true}
		case k == 1 && r.live: // dies: its leases run out
			changes++
			*r = relay{}
			for lane := range owners {
				if owners[lane] == name {
					owners[lane] = ""
				}
			}
		case k < 5:
			r.settled = r.live
		case k < 22:
			look(name)
		default:
			act(name)
		}
	}
	relays[order[0]].live = true
	for _, r := range relays {
		r.settled = r.live
	}
	// A look is at most a beat old; each beat the relays act in some order.
	before := 0
	for round := range 12 {
		if round == 8 {
			before = handedOver
		}
		rnd.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, name := range order {
			look(name)
			if rnd.IntN(3) > 0 {
				act(name)
			}
		}
		for _, name := range order {
			act(name)
		}
	}
	look(order[0])
	if slices.Contains(owners, "") || uneven(load(owners, relays[order[0]].peers)) > 1 || handedOver != before {
		t.Fatalf("seed %d: not at rest: %q over %+v, %d handed over, %d before", seed, owners, relays[order[0]].peers, handedOver, before)
	}
	if most := (changes + 2) * lanes; handedOver > most {
		t.Fatalf("seed %d: %d lanes were handed over for %d changes of %d lanes", seed, handedOver, changes, lanes)
	}
}

func BenchmarkAssign(b *testing.B) {
	owners := make([]string, 64)
	var peers []peer
	for i, name := range names(8) {
		peers = append(peers, peer{owner: name, settled: true})
		for lane := i; lane < 64; lane += 9 {
			owners[lane] = name
		}
	}
	for b.Loop() {
		assign(owners, peers)
	}
}
