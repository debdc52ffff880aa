package harness

import (
	"os"
	"testing"
)

// Soak tells whether the run is `make soak`: whole data sets and long times, where other runs take a part.
func Soak() bool { return os.Getenv("SLOTLINE_SOAK") != "" }

const proofsVariable = "SLOTLINE_PROOFS"

func proofs() bool { return os.Getenv(proofsVariable) != "" || Soak() }

// Whole tells whether the data set of `make test` is played whole: in CI (CI is set), with the long proofs, and in a
// soak. Elsewhere, where a person waits for the run's end, a part of it goes the same way.
func Whole() bool { return os.Getenv("CI") != "" || proofs() }

// Proof is called first by a test of minutes' worth of faults: it runs where SLOTLINE_PROOFS is set, as in `make
// proofs`, and in a soak. Elsewhere it is skipped, and listed. Such tests run two at a time.
func Proof(t *testing.T) {
	t.Helper()
	t.Parallel()
	if !proofs() {
		skip(t, proofsVariable+" is not set: make proofs runs them too")
	}
}
