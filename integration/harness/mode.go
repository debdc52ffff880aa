package harness

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
)

// Mode is what the switch SLOTLINE_INTEGRATION says.
type Mode string

// The three states of the switch.
const (
	Off  Mode = "off"  // no integration test runs
	Auto Mode = "auto" // those run whose servers can be had; the others are listed
	Must Mode = "must" // a server that cannot be had fails the test
)

const modeVariable = "SLOTLINE_INTEGRATION"

func parseMode(s string) (Mode, error) {
	switch m := Mode(s); m {
	case "":
		return Auto, nil
	case Off, Auto, Must:
		return m, nil
	}
	return "", fmt.Errorf("%s=%q is not a mode\n  write: off, auto or must", modeVariable, s)
}

func mode(t testing.TB) Mode {
	t.Helper()
	m, err := parseMode(os.Getenv(modeVariable))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// skips remembers the tests that were skipped, by reason, for the summary at the end.
var skips struct {
	sync.Mutex
	tests map[string][]string
}

// unavailable ends the test: it fails where integration must run, else it skips and is listed.
func unavailable(t testing.TB, why string) {
	t.Helper()
	if mode(t) == Must {
		t.Fatalf("%s\n  %s=must: this test may not be skipped", why, modeVariable)
	}
	skip(t, why)
}

// skip skips a test, which the summary lists.
func skip(t testing.TB, why string) {
	t.Helper()
	skips.Lock()
	if skips.tests == nil {
		skips.tests = make(map[string][]string)
	}
	skips.tests[why] = append(skips.tests[why], t.Name())
	skips.Unlock()
	t.Skip(why)
}

// need skips the test where integration tests are switched off.
func need(t testing.TB) {
	t.Helper()
	if mode(t) == Off {
		unavailable(t, modeVariable+"=off")
	}
}

func printSkips(w io.Writer) {
	skips.Lock()
	defer skips.Unlock()
	for why, tests := range skips.tests {
		fmt.Fprintf(w, "integration: %d tests were skipped: %s\n  because %s\n", len(tests), strings.Join(tests, " "), why)
	}
}
