package consumers

// load is one partition's part of the memory, for throttle.
type load struct {
	bytes  int64 // read and not yet applied
	paused bool
	slow   bool // its batch has been in flight, or could not be sent, for longer than slowAfter
}

// throttle decides which partitions to fetch, and whether to poll at all (P10, P13).
//
// A partition that moves is not paused, since pausing throws away what the client has fetched of it: when the memory is
// full of partitions that move, polling waits for them. A partition that does not move is paused once it holds its
// share, and what it holds beyond is dropped and read again later, so that it cannot fill the memory and stop the
// others; it is fetched again when it has half of its share, or moves.
func throttle(loads []load, budget int64) (paused []bool, share int64, poll bool) {
	paused = make([]bool, len(loads))
	if len(loads) == 0 {
		return paused, budget, true
	}
	share, total := budget/int64(len(loads)), int64(0)
	for i, l := range loads {
		if l.slow && (l.bytes >= share || l.paused && l.bytes > share/2) {
			paused[i] = true
			total += min(l.bytes, share)
			continue
		}
		total += l.bytes
	}
	return paused, share, total < budget
}
