package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const promises = 13

var (
	testFunction   = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	promiseTest    = regexp.MustCompile(`^TestP(\d+)_`)
	promiseStatus  = regexp.MustCompile(`(?m)^\*\*(Built\.|Built in part\.|Not built\.)\*\*( .|$)`)
	promiseHeading = regexp.MustCompile(`(?m)^## P(\d+): .+$`)
	testLine       = regexp.MustCompile("^- \\[([^]]+)\\]\\(\\.\\./([^)]+)\\): (`[^`]+`(?:, `[^`]+`)*)$")
	suiteCase      = regexp.MustCompile(`(?m)^\t\{"([a-z0-9_]+)", \w+\},$`)
)

// testsInCode are the test functions of all modules by file.
func testsInCode(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, file := range goFiles(t, func(p string) bool { return strings.HasSuffix(p, "_test.go") }) {
		for _, m := range testFunction.FindAllStringSubmatch(readFile(t, file), -1) {
			found[file] = append(found[file], m[1])
		}
	}
	return found
}

// promiseTests is the list of the tests named after one promise, as docs/promises.md has it.
func promiseTests(tests map[string][]string, promise int) string {
	var b strings.Builder
	for _, file := range slices.Sorted(maps.Keys(tests)) {
		var names []string
		for _, name := range tests[file] {
			if m := promiseTest.FindStringSubmatch(name); m != nil && m[1] == fmt.Sprint(promise) {
				names = append(names, "`"+name+"`")
			}
		}
		if len(names) > 0 {
			fmt.Fprintf(&b, "- [%s](../%s): %s\n", file, file, strings.Join(names, ", "))
		}
	}
	return b.String()
}

// docs/promises.md says of each promise whether it is built, names its tests, and each of them is there.
func TestPromisesHaveTests(t *testing.T) {
	const file = "docs/promises.md"
	tests := testsInCode(t)
	text := readFile(t, file)
	for p := 1; p <= promises; p++ {
		begin, end := fmt.Sprintf("<!-- TestP%d_: begin -->\n", p), fmt.Sprintf("<!-- TestP%d_: end -->", p)
		before, rest, ok := strings.Cut(text, begin)
		listed, after, closed := strings.Cut(rest, end)
		if !ok || !closed {
			if promiseTests(tests, p) != "" {
				t.Errorf("%s: P%d has tests and no place for them: %s", file, p, begin)
			}
			continue
		}
		if want := promiseTests(tests, p); listed != want && *update {
			text = before + begin + want + end + after
		} else if listed != want {
			t.Errorf("%s: P%d lists\n%sthe code has\n%swrite it: go test ./cmd/slotline -run Promises -update", file, p, listed, want)
		}
	}
	if *update {
		if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	headings := promiseHeading.FindAllString(text, -1)
	if len(headings) != promises {
		t.Fatalf("%s has %d promises, not %d", file, len(headings), promises)
	}
	cases := map[string]bool{}
	for _, m := range suiteCase.FindAllStringSubmatch(readFile(t, "sinks/sinktest/cases_fold.go"), -1) {
		cases[m[1]] = true
	}
	for i, heading := range headings {
		p := section(t, text, heading)
		if !strings.HasPrefix(heading, fmt.Sprintf("## P%d: ", i+1)) {
			t.Errorf("%s: %q is not in its place", file, heading)
		}
		if !strings.HasPrefix(p, "> ") {
			t.Errorf("%s: P%d does not say what is promised", file, i+1)
		}
		status := promiseStatus.FindStringSubmatch(p)
		if status == nil {
			t.Errorf("%s: P%d does not say whether it is built", file, i+1)
			continue
		}
		named := 0
		for _, line := range strings.Split(p, "\n") {
			if !strings.HasPrefix(line, "- ") {
				continue
			}
			m := testLine.FindStringSubmatch(line)
			if m == nil || m[1] != m[2] {
				t.Errorf("%s: P%d: %q does not name a file and its tests", file, i+1, line)
				continue
			}
			for _, name := range strings.Split(m[3], ", ") {
				name, sub, isCase := strings.Cut(strings.Trim(name, "`"), "/")
				if !slices.Contains(tests[m[1]], name) || isCase && !cases[sub] {
					t.Errorf("%s: P%d names %s/%s, and %s has no such test", file, i+1, name, sub, m[1])
				}
				named++
			}
		}
		if built := status[1] != "Not built."; built != (named > 0) {
			t.Errorf("%s: P%d is %q, and has %d tests", file, i+1, status[1], named)
		}
	}
}
