package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	metricName   = regexp.MustCompile(`^slotline_(outbox|relay|sink)_[a-z_]+[a-z]$`)
	metricPrefix = regexp.MustCompile(`^slotline_(outbox|relay|sink)_$`)
	metricInDocs = regexp.MustCompile(`\bslotline_(outbox|relay|sink)_[a-z_]+[a-z]\b`)
)

// metricsInCode are the names that files which import Prometheus's client make: whole as a literal, or in a local
// function that puts a prefix before its argument.
func metricsInCode(t *testing.T) map[string]string {
	t.Helper()
	names := map[string]string{}
	for _, file := range goFiles(t, func(p string) bool { return !isNested(p) && !strings.HasSuffix(p, "_test.go") }) {
		if !strings.Contains(readFile(t, file), `"github.com/prometheus/client_golang/prometheus"`) {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				if s, err := strconv.Unquote(n.Value); err == nil && metricName.MatchString(s) {
					names[s] = file
				}
			case *ast.FuncDecl:
				for name := range prefixedNames(n) {
					names[name] = file
				}
			}
			return true
		})
	}
	return names
}

// prefixedNames follows `counter := func(name, …) { … "slotline_sink_" + name … }` to the calls of counter in one
// function.
func prefixedNames(f *ast.FuncDecl) map[string]bool {
	prefixes := map[string]string{} // the local function → its prefix
	ast.Inspect(f, func(n ast.Node) bool {
		assign, ok := n.(*ast.AssignStmt)
		if !ok || len(assign.Lhs) != 1 {
			return true
		}
		name, ok := assign.Lhs[0].(*ast.Ident)
		literal, isFunc := assign.Rhs[0].(*ast.FuncLit)
		if !ok || !isFunc {
			return true
		}
		ast.Inspect(literal, func(n ast.Node) bool {
			if b, ok := n.(*ast.BasicLit); ok {
				if s, err := strconv.Unquote(b.Value); err == nil && metricPrefix.MatchString(s) {
					prefixes[name.Name] = s
				}
			}
			return true
		})
		return true
	})
	names := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		name, ok := call.Fun.(*ast.Ident)
		if !ok || prefixes[name.Name] == "" {
			return true
		}
		if b, ok := call.Args[0].(*ast.BasicLit); ok {
			if s, err := strconv.Unquote(b.Value); err == nil {
				names[prefixes[name.Name]+s] = true
			}
		}
		return true
	})
	return names
}

// docs/metrics.md lists every metric that the code makes and no other, and its alarms use no others.
func TestMetricsAreListed(t *testing.T) {
	made := metricsInCode(t)
	if len(made) < 15 {
		t.Fatalf("only %d metrics found: the test looks at the wrong place: %v", len(made), made)
	}
	text := readFile(t, "docs/metrics.md")
	listed := map[string]bool{}
	for _, row := range tableRows(text) {
		name := strings.Trim(row[0], "`")
		if !metricName.MatchString(name) || len(row) != 4 {
			continue
		}
		if !slices.Contains([]string{"gauge", "counter", "histogram"}, row[1]) || row[3] == "" {
			t.Errorf("docs/metrics.md: %s needs a type, labels and a meaning", name)
		}
		if (row[1] == "counter") != strings.HasSuffix(name, "_total") {
			t.Errorf("docs/metrics.md: %s is a %s: the names of counters, and no others, end in _total", name, row[1])
		}
		listed[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(made)) {
		if !listed[name] {
			t.Errorf("docs/metrics.md does not list %s of %s", name, made[name])
		}
	}
	for _, name := range metricInDocs.FindAllString(text, -1) {
		if made[name] == "" {
			t.Errorf("docs/metrics.md speaks of %s, which no code makes", name)
		}
	}
}
