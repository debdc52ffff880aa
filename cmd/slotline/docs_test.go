package main

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var update = flag.Bool("update", false, "write the lists of docs that are made from the code")

// root is the repository, seen from this package.
const root = "../.."

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// goFiles are the paths of all Go files that keep says yes to, from the repository's root, nested modules included.
func goFiles(t *testing.T, keep func(path string) bool) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		path, err = filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin") {
			return filepath.SkipDir
		}
		if !d.IsDir() && strings.HasSuffix(name, ".go") && keep(filepath.ToSlash(path)) {
			list = append(list, filepath.ToSlash(path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// isNested says whether a path belongs to a nested module.
func isNested(path string) bool {
	top, _, _ := strings.Cut(path, "/")
	return top == "embedded" || top == "integration" || top == "bench"
}

// tableRows are the cells of a document's tables, by row, without headings.
func tableRows(text string) [][]string {
	var rows [][]string
	for _, line := range proseLines(text) {
		if !strings.HasPrefix(line, "|") || strings.Trim(line, "|-: ") == "" {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	return rows
}

// proseLines are the lines outside of fenced code; those inside are empty.
func proseLines(text string) []string {
	lines := strings.Split(text, "\n")
	fenced := false
	for i, line := range lines {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if fence {
			fenced = !fenced
		}
		if fence || fenced {
			lines[i] = ""
		}
	}
	return lines
}

// section is the part of a document below a heading, up to the next one of its level or above.
func section(t *testing.T, text, heading string) string {
	t.Helper()
	_, rest, ok := strings.Cut("\n"+text, "\n"+heading+"\n")
	if !ok {
		t.Fatalf("there is no heading %q", heading)
	}
	level := strings.Count(strings.SplitN(heading, " ", 2)[0], "#")
	var kept []string
	for _, line := range strings.Split(rest, "\n") {
		if hashes, _, ok := strings.Cut(line, " "); ok && hashes != "" && strings.Trim(hashes, "#") == "" && len(hashes) <= level {
			break
		}
		kept = append(kept, line)
	}
	return strings.Join(kept, "\n")
}

var (
	linkPattern    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	codeSpan       = regexp.MustCompile("`[^`]*`")
	headingPattern = regexp.MustCompile(`^#{1,6} (.+)$`)
	schemePattern  = regexp.MustCompile(`^[a-z]+:`)
)

// anchors are the fragments that a document's headings can be linked by, as GitHub makes them.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, line := range proseLines(text) {
		m := headingPattern.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		var slug strings.Builder
		for _, r := range strings.ToLower(m[1]) {
			switch {
			case r == ' ':
				slug.WriteByte('-')
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				slug.WriteRune(r)
			}
		}
		found[slug.String()] = true
	}
	return found
}

// Every relative link leads to a file that is there, and to a heading of it where one is named.
func TestLinksLeadSomewhere(t *testing.T) {
	documents := []string{"README.md", "README.zh.md", "CONTRIBUTING.md", "compose/README.md", "examples/flights/README.md",
		"integration/README.md"}
	inDocs, err := filepath.Glob(root + "/docs/*.md")
	if err != nil || len(inDocs) < 10 {
		t.Fatalf("%d documents found (%v): the test looks at the wrong place", len(inDocs), err)
	}
	for _, path := range inDocs {
		documents = append(documents, "docs/"+filepath.Base(path))
	}
	links := 0
	for _, document := range documents {
		for i, line := range proseLines(readFile(t, document)) {
			for _, m := range linkPattern.FindAllStringSubmatch(codeSpan.ReplaceAllString(line, ""), -1) {
				if schemePattern.MatchString(m[1]) {
					continue
				}
				links++
				path, anchor, _ := strings.Cut(m[1], "#")
				target := document
				if path != "" {
					target = filepath.Join(filepath.Dir(document), path)
				}
				if _, err := os.Stat(filepath.Join(root, target)); err != nil {
					t.Errorf("%s:%d links to %s, which is not there", document, i+1, m[1])
				} else if anchor != "" && !anchors(readFile(t, target))[anchor] {
					t.Errorf("%s:%d links to %s, and %s has no such heading", document, i+1, m[1], target)
				}
			}
		}
	}
	if links < 50 {
		t.Errorf("only %d links found: the test looks at the wrong text", links)
	}
}
