package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// capture runs the command as main does and returns its status, stdout and stderr.
func capture(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	oldOut, oldErr := os.Stdout, os.Stderr
	defer func() { os.Stdout, os.Stderr = oldOut, oldErr }()
	var out, errs bytes.Buffer
	done := make(chan struct{}, 2)
	pipe := func(to *bytes.Buffer) *os.File {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = io.Copy(to, r)
			done <- struct{}{}
		}()
		return w
	}
	o, e := pipe(&out), pipe(&errs)
	os.Stdout, os.Stderr = o, e
	status = run(t.Context(), args)
	o.Close()
	e.Close()
	<-done
	<-done
	return status, out.String(), errs.String()
}

func TestInitWritesAFileThatRoutes(t *testing.T) {
	for _, example := range []bool{false, true} {
		file := filepath.Join(t.TempDir(), "slotline.yaml")
		args := []string{"init", "-c", file}
		if example {
			args = append(args, "--example")
		}
		if status, _, stderr := capture(t, args...); status != 0 || !strings.Contains(stderr, "databases and the users") ||
			!strings.Contains(stderr, "slotline -c "+file+" apply --grants") {
			t.Fatalf("init: status %d\n%s", status, stderr)
		}
		if status, out, stderr := capture(t, "apply", "--grants", "-c", file); status != 0 || !strings.Contains(out, "GRANT ") {
			t.Errorf("apply --grants before there is a password: status %d\n%s%s", status, out, stderr)
		}
		status, out, stderr := capture(t, "route", "UA", "-c", file, "-o", "json")
		if status != 0 || !strings.Contains(out, `"shard"`) {
			t.Errorf("route: status %d\n%s%s", status, out, stderr)
		}
		if status, _, stderr := capture(t, args...); status != 2 || !strings.Contains(stderr, "is there already") {
			t.Errorf("a second init: status %d, want 2\n%s", status, stderr)
		}
	}
}

func TestGenNeedsNoServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "slotline.yaml")
	if status, _, stderr := capture(t, "init", "-c", file); status != 0 {
		t.Fatal(stderr)
	}
	if status, out, stderr := capture(t, "gen", "go", "orders", "-c", file, "--package", "events"); status != 0 || stderr != "" ||
		!strings.HasPrefix(out, "package events\n") || !strings.Contains(out, "\tOrderID  uint64    `slotline:\"order_id,id\"`") {
		t.Errorf("gen go: status %d\n%s%s", status, out, stderr)
	}
	if status, out, stderr := capture(t, "gen", "schema", "-c", file+".none"); status != 0 || stderr != "" || !json.Valid([]byte(out)) {
		t.Errorf("gen schema: status %d\n%s%s", status, out, stderr)
	}
}

func TestExitStatusOfWrongUse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "slotline.yaml")
	if status, _, stderr := capture(t, "init", "-c", file); status != 0 {
		t.Fatal(stderr)
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"route"}, "accepts 1 arg"},
		{[]string{"route", ""}, "SL9002"},
		{[]string{"route", strings.Repeat("x", 65)}, "SL9002"},
		{[]string{"route", "Lufthansa"}, "orders.carrier is string(2): that has 9 characters"},
		{[]string{"route", "-1"}, "write: slotline route -- "},
		{[]string{"where", "orders", "UA", "-1"}, "-1 is taken for a flag, and there is none\n  write: slotline where -- "},
		{[]string{"where", "orders", "UA", "-1x"}, "-1x is taken for a flag"},
		{[]string{"where", "--", "orders", "UA", "-1"}, "that is less than 0"},
		{[]string{"where", "orders", "UAL", "1"}, "column carrier is string(2), and that has 3 characters"},
		{[]string{"where", "orders", "UA", "1", "--scan", "far"}, `--scan "far": the flag takes a whole number`},
		{[]string{"where", "orders", "UA", "1", "--events", "99999999999999999999"}, "the flag takes a whole number"},
		{[]string{"sink", "accept-gap", "--partition", "1.5"}, `--partition "1.5": write numbers as slotline status shows them`},
		{[]string{"sink", "accept-gap", "--partition", "1,all", "--why", "x"}, `--partition "all": write numbers`},
		{[]string{"sink", "accept-gap", "--partition", "3,-1", "--why", "x"}, `--partition "-1": write numbers`},
		{[]string{"sink", "accept-gap", "--partition", "3,4", "--to", "7", "--why", "x"}, "--to is an offset of one partition"},
		{[]string{"status", "--watch=1ms"}, "--watch is at least 500ms"},
		{[]string{"status", "--watch=often"}, "the flag takes a duration"},
		{[]string{"bench", "--rate", "many"}, `--rate "many": the flag takes a number`},
		{[]string{"bench", "--rate", "-1"}, "--rate is 0"},
		{[]string{"bench", "--for", "2h"}, "--for is above 0"},
		{[]string{"bench", "--writers", "0"}, "--writers is 1 to 256"},
		{[]string{"bench", "--tenants", "0"}, "--tenants is 1 to"},
		{[]string{"bench", "--table", "nope", "--yes"}, "SL9030"},
		{[]string{"apply", "--dry-run=maybe"}, "the flag takes true or false"},
		{[]string{"replay", "rebuild", "--shard", "s1", "--yield-above", "soon"}, "the flag takes a duration"},
		{[]string{"dlq", "list", "--reason", "nope"}, "write one of: malformed, "},
		{[]string{"dlq", "discard", "--reason", "nope", "--why", "x"}, "SL9025"},
		{[]string{"dlq", "redrive", "--sink", "kafka"}, "write one of: outbox, mysql, "},
		{[]string{"nonsense"}, "nonsense"},
		{[]string{"completion", "nosh"}, "nosh"},
		{[]string{"dlq", "nonsense"}, "nonsense"},
		{[]string{"dlq", "redrive"}, "--all"},
		{[]string{"dlq", "redrive", "--all", "--sink", "mysql"}, "--all"},
		{[]string{"dlq", "redrive", "--sink", "mysql", "--since", "yesterday"}, "--since yesterday"},
		{[]string{"dlq", "discard", "--all"}, "--why"},
		{[]string{"dlq", "list", "--until", "-2h"}, "--until -2h"},
		{[]string{"archive", "trim"}, "--older-than is needed"},
		{[]string{"archive", "trim", "--older-than", "90"}, `--older-than "90" has no unit`},
		{[]string{"archive", "trim", "--older-than", "soon"}, "is not a duration: write it as 20ms"},
		{[]string{"archive", "trim", "--older-than", "10ms"}, "is less than 1s"},
		{[]string{"archive", "trim", "--older-than", "90d"}, "SL7607"},
		{[]string{"where", "flights"}, "between 2 and 3"},
		{[]string{"where", "flights", "UA", "1", "--month", "2026"}, "--month"},
		{[]string{"where", "flights", "UA", "1", "--scan", "0"}, "--scan"},
		{[]string{"apply", "--yes"}, "--yes"},
		{[]string{"sink", "mysql", "--instance", strings.Repeat("a", 101)}, "--instance"},
		{[]string{"relay", "--instance", "pod 1"}, "--instance"},
		{[]string{"apply", "--wrong"}, "--wrong"},
		{[]string{"status", "-o", "xml"}, "table, json or yaml"},
		{[]string{"sink", "doris"}, "sinks.doris"},
		{[]string{"sink", "olap"}, "sinks.clickhouse"},
		{[]string{"sink", "oracle"}, "oracle"},
		{[]string{"sink"}, "accepts 1 arg"},
		{[]string{"sink", "accept-gap"}, "partition"},
		{[]string{"sink", "accept-gap", "--partition", "1"}, "--why"},
		{[]string{"route", "UA", "-c", file + ".none"}, "SL1001"},
		{[]string{"gen", "go", "flights"}, `has no table flights; it has orders`},
		{[]string{"gen", "go", "orders", "--package", "my-events"}, "--package"},
		{[]string{"gen", "go", "orders", "--package", "_"}, "--package"},
		{[]string{"gen", "rust", "orders"}, "rust"},
	} {
		args := c.args
		if !slices.Contains(args, "-c") {
			args = append([]string{"-c", file}, args...)
		}
		status, _, stderr := capture(t, args...)
		if status != 2 || !strings.Contains(stderr, c.says) {
			t.Errorf("slotline %v: status %d, want 2; stderr must say %q:\n%s", c.args, status, c.says, stderr)
		}
		if strings.Contains(stderr, "strconv.") || strings.Contains(stderr, "time: invalid") {
			t.Errorf("slotline %v passes on what a library says:\n%s", c.args, stderr)
		}
	}
}

func TestCompletionOfEachShell(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		status, out, stderr := capture(t, "completion", shell)
		if status != 0 || !strings.Contains(out, "slotline") {
			t.Errorf("completion %s: status %d, %d bytes\n%s", shell, status, len(out), stderr)
		}
	}
}

func TestYAMLHasTheKeysOfJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "slotline.yaml")
	if status, _, stderr := capture(t, "init", "-c", file); status != 0 {
		t.Fatal(stderr)
	}
	status, out, _ := capture(t, "route", "UA", "-c", file, "-o", "yaml")
	if status != 0 || !strings.Contains(out, "tenant: UA\n") || !strings.Contains(out, "- slot: ") {
		t.Errorf("status %d\n%s", status, out)
	}
}

// What is drawn over an older look leaves nothing of it.
func TestRedrawn(t *testing.T) {
	if got, want := redrawn("a\n\nb c\n"), "\x1b[Ha\x1b[K\n\x1b[K\nb c\x1b[K\n\x1b[J"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
