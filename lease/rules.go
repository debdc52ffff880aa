package lease

import "time"

// state is the row as one statement saw it, and the database's time in that statement.
type state struct {
	owner string
	epoch int64
	until time.Time
	now   time.Time
}

// open says whether owner may take the row over: it is free, expired, or its own already (an Acquire whose answer was
// lost, or a second start within one process). takeSQL says the same in SQL, and the database decides.
func (s state) open(owner string) bool {
	return s.owner == "" || s.owner == owner || !s.until.After(s.now)
}

// renewable says whether a holder may extend its lease: nobody took over, and it has not expired. An expired lease
// is not renewed even if nobody took it yet, so that "expired" is the end of it for holder and waiter alike.
func (s state) renewable(owner string, epoch int64) bool {
	return s.owner == owner && s.epoch == epoch && s.until.After(s.now)
}

// renewEvery is a third of the lease: two renewals may fail before it runs out.
func renewEvery(ttl time.Duration) time.Duration { return ttl / 3 }

// retryAfter is the wait after a failed renewal: short, so that one lost connection costs one of many tries.
func retryAfter(ttl time.Duration) time.Duration { return ttl / 12 }
