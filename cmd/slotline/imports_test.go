package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/slotline/slotline/"

// levels is DESIGN's import order from the top down: a package imports only packages of lower lines.
var levels = [][]string{
	{"cmd/slotline", "examples/flights", "examples/languages"},
	{"internal/line"},
	{"replay"},
	{"sinks/sinktest"},
	{"consumers", "archive"},
	{"sinks/mysql", "sinks/olap/clickhouse", "sinks/olap/doris"},
	{"sinks/olap/intent"},
	{"sinks/olap/rollup"},
	{"producer"},
	{"outbox/kafka", "outbox/outboxtest"},
	{"outbox"},
	{"internal/kafka", "internal/progress", "internal/intake", "internal/rowsum"},
	{"lease", "internal/plan", "internal/deadletter"},
	{"internal/mysqldb"},
	{"config"},
	{"event", "sinks/olap"},
	{"partitioner"},
	{"fault"},
	{"examples/flights/nyc", "sinks/olap/doris/doristest"},
}

type goPackage struct {
	ImportPath string
	Imports    []string
}

func list(t *testing.T, args ...string) []goPackage {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v: %v\n%s", args, err, &stderr)
	}
	var pkgs []goPackage
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var p goPackage
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return pkgs
		}
		if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

func level(pkg string) int {
	for i, names := range levels {
		for _, name := range names {
			if pkg == module+name {
				return i
			}
		}
	}
	return -1
}

// Imports point downwards, and packages on one line do not import each other.
func TestImportDirection(t *testing.T) {
	pkgs := list(t, module+"...")
	if len(pkgs) < 10 {
		t.Fatalf("only %d packages found: the test looks at the wrong place", len(pkgs))
	}
	for _, p := range pkgs {
		from := level(p.ImportPath)
		if from < 0 {
			t.Errorf("%s has no place in the import order: add it to levels and to docs/architecture.md", p.ImportPath)
			continue
		}
		for _, imp := range p.Imports {
			if !strings.HasPrefix(imp, module) {
				continue
			}
			if to := level(imp); to <= from {
				t.Errorf("%s imports %s, which is not below it", p.ImportPath, imp)
			}
		}
	}
}

// The operators' binary links no test server, and no test library.
func TestBinaryLinksNoTestServer(t *testing.T) {
	deps := map[string]bool{}
	for _, p := range list(t, "-deps", module+"cmd/slotline") {
		deps[p.ImportPath] = true
	}
	if !deps["github.com/twmb/franz-go/pkg/kgo"] {
		t.Fatal("the binary does not link franz-go: the test looks at the wrong place")
	}
	for dep := range deps {
		for _, banned := range []string{"kfake", "go-mysql-server", "testcontainers", "sinktest", "doristest", "outboxtest", "testify", "slotline/embedded", "memsink", "examples/"} {
			if strings.Contains(dep, banned) {
				t.Errorf("cmd/slotline links %s", dep)
			}
		}
		if dep == "testing" {
			t.Error("cmd/slotline links package testing")
		}
	}
}
