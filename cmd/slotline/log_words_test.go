package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// logKeys are the keys of log lines: one word for one thing, DESIGN's where it has one, so that a search for
// partition=11 or shard=s2 finds all that was said of it.
var logKeys = func() map[string]bool {
	keys := map[string]bool{}
	for _, list := range []string{
		// Which part of a line, and where in it.
		"line part parts sink client lane topic partition partitions offset shard shards table month rollup job letter",
		// Of one of these.
		"below by cursor cursor_was events from gaps_cold gaps_hot generation id ids in_flight in_topic_already layout_epoch",
		"lost_commits next owner_epoch put_back rows tail to",
		// What is wrong, for how long, and what to do.
		"error code class reason since after tries done of count why do action listed_in",
		// Processes and servers.
		"connection file frontend group host listen",
	} {
		for key := range strings.FieldsSeq(list) {
			keys[key] = true
		}
	}
	return keys
}()

// Log lines have the keys that are listed, and text that is not one of them after each.
func TestLogLinesUseTheSameKeys(t *testing.T) {
	used := map[string][]string{}
	for _, file := range goFiles(t, func(p string) bool { return !isNested(p) && !strings.HasSuffix(p, "_test.go") }) {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			for _, key := range keysOf(call) {
				used[key] = append(used[key], file)
			}
			return true
		})
	}
	for _, key := range slices.Sorted(maps.Keys(used)) {
		if !logKeys[key] {
			t.Errorf("%s logs under the key %q, which is not listed here", used[key], key)
		}
	}
	for key := range logKeys {
		if used[key] == nil {
			t.Errorf("no log line has the key %q", key)
		}
	}
	if len(used["partition"]) < 3 {
		t.Errorf("%d lines with a partition: the test looks at the wrong text", len(used["partition"]))
	}
}

// keysOf are the keys that a call of a logger writes: every second argument after those that each method begins with.
func keysOf(call *ast.CallExpr) (keys []string) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !isLogger(method.X) {
		return nil
	}
	first, ok := map[string]int{"Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "With": 0, "Log": 3}[method.Sel.Name]
	if !ok {
		return nil
	}
	for i := first; i < len(call.Args); i += 2 {
		if lit, ok := call.Args[i].(*ast.BasicLit); ok && lit.Kind == token.STRING {
			key, _ := strconv.Unquote(lit.Value)
			keys = append(keys, key)
		}
	}
	return keys
}

// isLogger says that an expression is called as loggers are here: log, x.log, x.Log, o.Logger, and what With returns.
func isLogger(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name == "log" || e.Name == "logger"
	case *ast.SelectorExpr:
		return e.Sel.Name == "log" || e.Sel.Name == "Log" || e.Sel.Name == "Logger"
	case *ast.CallExpr:
		with, ok := e.Fun.(*ast.SelectorExpr)
		return ok && with.Sel.Name == "With" && isLogger(with.X)
	}
	return false
}
