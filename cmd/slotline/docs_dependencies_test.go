package main

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// directRequirements are the modules that a go.mod requires without "// indirect".
func directRequirements(t *testing.T, file string) []string {
	t.Helper()
	out, err := exec.Command("go", "mod", "edit", "-json", root+"/"+file).Output()
	if err != nil {
		t.Fatalf("go mod edit -json %s: %v", file, err)
	}
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, r := range mod.Require {
		if !r.Indirect {
			list = append(list, r.Path)
		}
	}
	slices.Sort(list)
	return list
}

// docs/dependencies.md gives a reason for each direct dependency of each module, and lists no other.
func TestDependenciesHaveReasons(t *testing.T) {
	text := readFile(t, "docs/dependencies.md")
	for heading, file := range map[string]string{
		"## slotline": "go.mod", "## embedded": "embedded/go.mod", "## integration": "integration/go.mod", "## bench": "bench/go.mod"} {
		var listed []string
		for _, row := range tableRows(section(t, text, heading)) {
			if row[0] == "module" {
				continue
			}
			if len(row) != 3 || row[1] == "" || row[2] == "" {
				t.Errorf("docs/dependencies.md, %s: %s needs a place and a reason", heading, row[0])
			}
			listed = append(listed, row[0])
		}
		slices.Sort(listed)
		required := directRequirements(t, file)
		if len(required) == 0 {
			t.Errorf("%s requires nothing directly: run go mod tidy in its module", file)
		}
		if !slices.Equal(listed, required) {
			t.Errorf("docs/dependencies.md, %s lists\n  %s\n%s requires\n  %s", heading,
				strings.Join(listed, "\n  "), file, strings.Join(required, "\n  "))
		}
	}
}
