package harness

import (
	"os"
	"testing"
	"time"
)

// Patience is how many times as long as a test says the harness waits for what must come, before it calls it hung: a limit
// is what a machine with little else to do needs, with room, and a run of all tests keeps every CPU busy. A limit that is
// itself the claim of a test (a take-over within 6 s) is not stretched.
const Patience = 4

// Deadline is when a wait with that limit has been in vain.
func Deadline(limit time.Duration) time.Time { return time.Now().Add(Patience * limit) }

// Soak tells whether the run is `make soak`: whole data sets and long times, where other runs take a part.
func Soak() bool { return os.Getenv("SLOTLINE_SOAK") != "" }

const proofsVariable = "SLOTLINE_PROOFS"

func proofs() bool { return os.Getenv(proofsVariable) != "" || Soak() }

// Whole tells whether `make test` plays all of its data and runs all of its tests: in CI (CI is set), with the long
// proofs, and in a soak. Elsewhere a person waits for the run's end: a part of the data goes the same way.
func Whole() bool { return os.Getenv("CI") != "" || proofs() }

// LeaveToCI is called first by a test that takes long and whose promise a shorter one shows too: it runs where the run is
// Whole. Elsewhere it is skipped, and listed.
func LeaveToCI(t *testing.T) {
	t.Helper()
	t.Parallel()
	if !Whole() {
		skip(t, "CI is not set: CI and make proofs run it too")
	}
}

// Proof is called first by a test of minutes' worth of faults: it runs where SLOTLINE_PROOFS is set, as in `make
// proofs`, and in a soak. Elsewhere it is skipped, and listed. Such tests run two at a time.
func Proof(t *testing.T) {
	t.Helper()
	t.Parallel()
	if !proofs() {
		skip(t, proofsVariable+" is not set: make proofs runs them too")
	}
}
