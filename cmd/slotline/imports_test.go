package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
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
	{"producer", "reader"},
	{"outbox/kafka", "outbox/outboxtest"},
	{"outbox"},
	{"internal/kafka", "internal/progress", "internal/intake", "internal/rowsum", "internal/load"},
	{"lease", "internal/plan", "internal/deadletter", "internal/inforce"},
	{"internal/mysqldb"},
	{"internal/checkup"},
	{"config", "sinks/olap"},
	{"event"},
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

// Every program gets its Kafka clients from one function: one that made its own would forget kafka.tls and kafka.sasl, and
// work wherever brokers ask for neither. Tests, and the harness, speak with servers of their own.
func TestOneFunctionMakesKafkaClients(t *testing.T) {
	const kgo, only = "github.com/twmb/franz-go/pkg/kgo", "internal/kafka/client.go"
	root, made, files := "../..", map[string]int{}, 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name := filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "integration" || d.Name() == ".git" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		files++
		for _, imp := range file.Imports {
			if imp.Path.Value != `"`+kgo+`"` {
				continue
			}
			as := "kgo"
			if imp.Name != nil {
				as = imp.Name.Name
			}
			if as == "." {
				t.Errorf("%s imports all names of %s", name, kgo)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && strings.HasPrefix(s.Sel.Name, "New") && strings.Contains("NewClient NewGroupTransactSession", s.Sel.Name) {
					if x, ok := s.X.(*ast.Ident); ok && x.Name == as {
						made[name]++
					}
				}
				return true
			})
		}
		return nil
	})
	if err != nil || files < 200 {
		t.Fatalf("%d files, %v: the test looks at the wrong place", files, err)
	}
	if made[only] != 2 { // NewClient, and Decompressor's, which is never connected
		t.Errorf("%s makes %d clients, not two", only, made[only])
	}
	delete(made, only)
	for name := range made {
		t.Errorf("%s makes a Kafka client of its own: use kafka.NewClient or kafka.Open", name)
	}
}
