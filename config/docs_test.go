package config

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"
)

const doc = "../docs/configuration.md"

// The table of keys in docs/configuration.md is written from the code.
func TestKeyTable(t *testing.T) {
	const begin, end = "<!-- keys: written by go test ./config -update -->\n", "<!-- end of keys -->\n"
	data, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(data), begin)
	table, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no marks around its table", doc)
	}
	want := keyTable()
	if *update && table != want {
		if err := os.WriteFile(doc, []byte(head+begin+want+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if table != want {
		t.Errorf("the table of keys in %s is not what the code says; go test ./config -update rewrites it", doc)
	}
}

// The document shows the first file as it is.
func TestDocumentShowsTheExample(t *testing.T) {
	data, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), "```yaml\n"+Example()+"```\n") {
		t.Errorf("%s does not show config.Example()", doc)
	}
}

func keyTable() string {
	var b strings.Builder
	b.WriteString("| key | type | default | meaning |\n|---|---|---|---|\n")
	for _, k := range keys {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.path, k.typeText(), k.defaultText(), strings.ReplaceAll(k.meaningText(), "|", "\\|"))
	}
	return b.String()
}

func (s *keySpec) typeText() string {
	switch s.kind {
	case count, size, span:
		return fmt.Sprintf("%s, %s", s.kind, s.bounds())
	case choice:
		return orList(s.choices)
	}
	return s.kind.String()
}

func (s *keySpec) defaultText() string {
	switch {
	case s.required:
		return "required"
	case s.later != "" && s.kind != choice:
		return "comes later"
	case s.def != "":
		return "`" + s.def + "`"
	}
	return ""
}

func (s *keySpec) meaningText() string {
	if s.later != "" && s.kind == choice {
		return s.meaning + ". Today only " + s.def + ": " + s.later
	}
	return s.meaning
}

// Each struct of Config says which section it is, and its fields name the keys that they come from: all that there are,
// and none that there is not.
func TestStructsNameTheirKeys(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "config.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var comments strings.Builder
	for _, d := range file.Decls {
		if d, ok := d.(*ast.GenDecl); ok && d.Tok == token.TYPE {
			if d.Doc == nil {
				t.Errorf("type %s has no doc comment", d.Specs[0].(*ast.TypeSpec).Name)
			}
		}
	}
	for _, c := range file.Comments {
		comments.WriteString(c.Text() + "\n")
	}
	named := map[string]bool{}
	for _, path := range regexp.MustCompile(`(kafka|shards|months|outbox|sinks|dead_letters|rollups|archive|limits|http)\.[a-z0-9_.<>-]*[a-z0-9_>]`).FindAllString(comments.String(), -1) {
		named[path] = true
	}
	for _, k := range keys {
		top, _, below := strings.Cut(k.path, ".")
		inLayout := top == "layout" || top == "tables" || k.path == "shards.<shard>.slots" // other packages' structs
		if below && k.kind != section && k.later == "" && !inLayout && !named[k.path] {
			t.Errorf("config.go does not say which field %s is", k.path)
		}
		delete(named, k.path)
	}
	for path := range named {
		t.Errorf("config.go names %s, which is no key", path)
	}
}
