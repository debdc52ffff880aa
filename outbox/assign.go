package outbox

import (
	"cmp"
	"slices"
)

// peer is a live relay, as the database shows it.
type peer struct {
	owner   string // its owner id in leases
	settled bool   // live without a break for long enough to be handed lanes that another runs
	// declines has a bit for each lane that it cannot run at present.
	declines uint64
}

func (p peer) accepts(lane int) bool { return p.declines>>lane&1 == 0 }

// assign says which relay is to own each lane; "" where none of them can run it. owners are the lanes' owners, by lane:
// "" for a lease that is free or has run out. Every relay computes it from what the database shows, and only ever acts
// on the lanes that are its own, or are to be: the lease decides when two of them saw different states.
//
//   - Lanes are spread evenly: two relays differ by one lane at most, unless one declines lanes or is not settled yet.
//   - As few as possible change their owner. Once each lane is where it is to be, nothing moves.
//   - A lane that nobody runs, or that runs at a relay which has left, goes to any relay. One that another runs is taken
//     from it only for a settled relay: one that stutters, or starts over and over, makes no lane move.
//   - Each lane that some relay accepts has an owner.
func assign(owners []string, peers []peer) []string {
	for range owners { // more than once only where relays decline lanes: each round makes the spread more even
		next := assignOnce(owners, peers)
		if slices.Equal(next, owners) {
			break
		}
		owners = next
	}
	return owners
}

func assignOnce(owners []string, peers []peer) []string {
	target := make([]string, len(owners))
	peers = slices.DeleteFunc(slices.Clone(peers), func(p peer) bool {
		return !slices.ContainsFunc(numbers(len(owners)), p.accepts)
	})
	if len(peers) == 0 {
		return target
	}
	index := map[string]int{}
	has := make([]int, len(peers)) // lanes that it owns and accepts
	slices.SortFunc(peers, func(a, b peer) int { return cmp.Compare(a.owner, b.owner) })
	for i, p := range peers {
		index[p.owner] = i
	}
	runs := func(lane int) (int, bool) {
		i, live := index[owners[lane]]
		return i, live && peers[i].accepts(lane)
	}
	for lane := range owners {
		if i, ok := runs(lane); ok {
			has[i]++
		}
	}
	// Where the lanes do not divide, those that have the most keep one more.
	quota := make([]int, len(peers))
	most := numbers(len(peers))
	slices.SortStableFunc(most, func(a, b int) int { return has[b] - has[a] })
	for n, i := range most {
		quota[i] = len(owners) / len(peers)
		if n < len(owners)%len(peers) {
			quota[i]++
		}
	}
	gets := make([]int, len(peers))
	give := func(lane, to int) {
		target[lane] = peers[to].owner
		gets[to]++
	}
	var surplus, open []int
	for lane := range owners {
		switch i, ok := runs(lane); {
		case !ok:
			open = append(open, lane)
		case gets[i] < quota[i]:
			give(lane, i)
		default:
			surplus = append(surplus, lane)
		}
	}
	// best is the relay that is furthest below its quota, of those that may take a lane.
	best := func(lane int, may func(i int) bool) (to int, room bool) {
		to = -1
		for i, p := range peers {
			if p.accepts(lane) && may(i) && (to < 0 || quota[i]-gets[i] > quota[to]-gets[to]) {
				to = i
			}
		}
		return to, to >= 0 && gets[to] < quota[to]
	}
	anyone := func(int) bool { return true }
	for _, lane := range open {
		if to, _ := best(lane, anyone); to >= 0 {
			give(lane, to)
		}
	}
	for _, lane := range surplus {
		if to, room := best(lane, func(i int) bool { return peers[i].settled }); room {
			give(lane, to)
			continue
		}
		i, _ := runs(lane)
		give(lane, i)
	}
	return target
}

// numbers are 0 to n-1.
func numbers(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}
