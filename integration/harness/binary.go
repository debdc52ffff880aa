package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// slotlineVariable names a binary to test instead of one that is built from the sources.
const slotlineVariable = "SLOTLINE_TEST_BINARY"

var binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(slotlineVariable); path != "" {
		return path, nil
	}
	root, err := Root()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "slotline-test-")
	if err != nil {
		return "", err
	}
	atEnd(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "slotline")
	cmd := exec.Command("go", "build", "-o", path, "./cmd/slotline")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./cmd/slotline: %w\n%s", err, out)
	}
	return path, nil
})

// Binary returns the path of the slotline binary, built once from the sources.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
