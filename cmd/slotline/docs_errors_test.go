package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	codeLiteral = regexp.MustCompile(`^SL\d{4}$`)
	codeMention = regexp.MustCompile(`SL\d{4}\b`)
)

// codeUse is what the code says of one error code.
type codeUse struct {
	packages map[string]bool // that have it as a literal
	classes  map[string]bool // that it is made with where code and class stand side by side
}

// codesInCode reads all Go files of this module but tests. mentions are the codes in comments and longer texts.
func codesInCode(t *testing.T) (uses map[string]*codeUse, mentions map[string]string) {
	t.Helper()
	uses, mentions = map[string]*codeUse{}, map[string]string{}
	use := func(code, pkg string) *codeUse {
		if uses[code] == nil {
			uses[code] = &codeUse{packages: map[string]bool{}, classes: map[string]bool{}}
		}
		uses[code].packages[pkg] = true
		return uses[code]
	}
	files := goFiles(t, func(p string) bool { return !isNested(p) && !strings.HasSuffix(p, "_test.go") })
	parsed := map[string]*ast.File{}
	constants := map[string]string{} // package directory and name of a constant → its code
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed[file] = f
		for _, code := range codeMention.FindAllString(readFile(t, file), -1) {
			mentions[code] = file
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				if code := literalCode(n); code != "" {
					use(code, path.Dir(file))
				}
			case *ast.ValueSpec:
				for i, v := range n.Values {
					if code := literalCode(v); code != "" && i < len(n.Names) {
						constants[path.Dir(file)+"."+n.Names[i].Name] = code
					}
				}
			}
			return true
		})
	}
	for file, f := range parsed {
		ast.Inspect(f, func(n ast.Node) bool {
			lit, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			code, class := "", ""
			for _, e := range lit.Elts {
				kv, ok := e.(*ast.KeyValueExpr)
				if !ok {
					continue
				}
				switch key, _ := kv.Key.(*ast.Ident); {
				case key == nil:
				case key.Name == "Code":
					if code = literalCode(kv.Value); code == "" {
						if name, ok := kv.Value.(*ast.Ident); ok {
							code = constants[path.Dir(file)+"."+name.Name]
						}
					}
				case key.Name == "Class":
					class = "varies" // computed
					if s, ok := kv.Value.(*ast.SelectorExpr); ok {
						class = strings.ToLower(s.Sel.Name)
					}
				}
			}
			if typeName(lit.Type) == "DataError" {
				class = "data"
			}
			if code != "" && class != "" {
				use(code, path.Dir(file)).classes[class] = true
			}
			return true
		})
	}
	return uses, mentions
}

func literalCode(e ast.Expr) string {
	if b, ok := e.(*ast.BasicLit); ok && b.Kind == token.STRING {
		if s, err := strconv.Unquote(b.Value); err == nil && codeLiteral.MatchString(s) {
			return s
		}
	}
	return ""
}

func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// docs/errors.md lists every code that the code can make and no other, each with one meaning and its class.
func TestErrorCodesAreListed(t *testing.T) {
	uses, mentions := codesInCode(t)
	if len(uses) < 100 {
		t.Fatalf("only %d codes found: the test looks at the wrong place", len(uses))
	}
	type entry struct{ class, meaning, do string }
	listed := map[string]entry{}
	text := readFile(t, "docs/errors.md")
	last := ""
	for _, row := range tableRows(text) {
		if !codeLiteral.MatchString(row[0]) {
			continue
		}
		if len(row) != 4 || row[2] == "" || row[3] == "" {
			t.Errorf("docs/errors.md: %s needs a class, a meaning and what to do", row[0])
			continue
		}
		if row[0] <= last {
			t.Errorf("docs/errors.md: %s comes after %s", row[0], last)
		}
		last = row[0]
		listed[row[0]] = entry{row[1], row[2], row[3]}
	}
	classes := []string{"data", "transient", "fatal", "fenced", "usage", "varies", "-"}
	for _, code := range slices.Sorted(maps.Keys(uses)) {
		use := uses[code]
		if len(use.packages) > 1 {
			t.Errorf("%s is made by %s: a code has one meaning, give one of them another code",
				code, strings.Join(slices.Sorted(maps.Keys(use.packages)), " and "))
		}
		e, ok := listed[code]
		if !ok {
			t.Errorf("docs/errors.md does not list %s of %s", code, slices.Sorted(maps.Keys(use.packages))[0])
			continue
		}
		if !slices.Contains(classes, e.class) {
			t.Errorf("docs/errors.md: %s has class %q, which is none", code, e.class)
		}
		for class := range use.classes {
			if class == "unknown" {
				class = "-"
			}
			if e.class != class && e.class != "varies" {
				t.Errorf("docs/errors.md says %s is %s, the code makes it %s", code, e.class, class)
			}
		}
	}
	for _, code := range slices.Sorted(maps.Keys(listed)) {
		if uses[code] == nil {
			t.Errorf("docs/errors.md lists %s, which no code makes", code)
		}
	}
	documents, err := filepath.Glob(root + "/docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range documents {
		d = "docs/" + filepath.Base(d)
		for _, code := range codeMention.FindAllString(readFile(t, d), -1) {
			mentions[code] = d
		}
	}
	for code, where := range mentions {
		if uses[code] == nil {
			t.Errorf("%s speaks of %s, which no code makes", where, code)
		}
	}
}
