// Command images finds or builds the images of all test servers, in the order that the tests use, and prints them as
// shell assignments, so that every later step of a run uses the same ones without asking again:
//
//	eval "$(go run ./cmd/images)"
//
// It exits with 1 when one cannot be had, after printing those that can.
package main

import (
	"fmt"
	"os"

	"github.com/slotline/slotline/integration/harness"
)

func main() {
	found, err := harness.Images()
	for variable, ref := range found {
		fmt.Printf("export %s='%s'\n", variable, ref)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
