package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// entry is one key of a file beside what keys says of it.
type entry struct {
	*keyNode
	path   string // "shards.s1.dsn"
	parent *entry
	key    *yaml.Node // nil for the root and for a key that the file does not hold
	node   *yaml.Node // its value; nil if the file does not hold it, or holds something that was reported
	kids   []*entry   // in file order
}

// get is the child of that name, whether the file holds it or not.
func (e *entry) get(name string) *entry {
	for _, k := range e.kids {
		if k.key.Value == name {
			return k
		}
	}
	return &entry{keyNode: e.keyNode.kid(name), path: join(e.path, name), parent: e}
}

// at is the node to show for it: its own key, or that of the nearest key above.
func (e *entry) at() *yaml.Node {
	for ; e != nil; e = e.parent {
		if e.key != nil {
			return e.key
		}
	}
	return nil
}

func (e *entry) present() bool { return e.node != nil }

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

const (
	fileBytesMax = 1 << 20 // a file that is larger is not a slotline.yaml
	fileWord     = "a map of the keys line, kafka, outbox, shards and tables"
)

// readTree parses YAML and compares its keys with the table. What is wrong is in r; the tree is nil if nothing of the
// file can be used.
func readTree(r *report, data []byte) *entry {
	doc := readYAML(r, data)
	if doc == nil || !plainYAML(r, doc) {
		return nil
	}
	root := &entry{keyNode: keyTree, node: doc}
	checkEntry(r, root)
	return root
}

func readYAML(r *report, data []byte) *yaml.Node {
	if len(data) > fileBytesMax {
		r.addLines(codeSyntax, "", []int{1}, "", fmt.Sprintf("the file has %d bytes, more than %s", len(data), formatSize(fileBytesMax)))
		return nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	err := decoder.Decode(&doc)
	if err == nil {
		if err = decoder.Decode(&more); err == nil {
			r.add(codeSyntax, "one document, without ---", []*yaml.Node{&more}, "a second YAML document begins here")
			return nil
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	switch {
	case errors.Is(err, io.EOF), err == nil && (len(doc.Content) == 0 || doc.Content[0].Tag == "!!null"):
		r.addLines(codeSyntax, fileWord+"; slotline init writes one", []int{1}, "", "the file is empty")
		return nil
	case err != nil:
		addSyntax(r, err)
		return nil
	}
	if top := doc.Content[0]; top.Kind != yaml.MappingNode && top.Kind != yaml.AliasNode {
		r.add(codeSyntax, fileWord, []*yaml.Node{top}, "the file is %s, not a map", kindWord(top))
		return nil
	}
	return doc.Content[0]
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// addSyntax says in our words what YAML's parser says in its own.
func addSyntax(r *report, err error) {
	line, what := 1, err.Error()
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		what = m[2]
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = n
		}
	}
	// The parser counts lines from 0 here, and gives the line where the map or list began; elsewhere from 1.
	unclosed := strings.HasPrefix(what, "did not find expected")
	if unclosed && line > 1 || unclosed && strings.Contains(err.Error(), "line 1:") {
		line++
	}
	line = min(line, len(r.lines))
	for i, text := range r.lines {
		if indent := text[:len(text)-len(strings.TrimLeft(text, " \t"))]; strings.Contains(indent, "\t") {
			r.addLines(codeSyntax, "spaces", []int{i + 1}, "", "the line is indented with a tab, which YAML does not allow")
			return
		}
		if unclosed && unquotedVariable.MatchString(text) {
			r.addLines(codeSyntax, `dsn: "mysql://user:${PASSWORD}@host/database"`, []int{i + 1}, "",
				"inside { } a value that holds ${…} must stand in double quotes")
			return
		}
		if unclosed && unquotedNullable.MatchString(text) {
			r.addLines(codeSyntax, `"int32?", or one column per line`, []int{i + 1}, "",
				"inside { } a type that ends in ? must stand in double quotes")
			return
		}
	}
	why := ""
	switch {
	case strings.Contains(what, "mapping values are not allowed"):
		why = "the line is indented differently from those above, or holds a value with \": \" that must stand in quotes"
	case unclosed, strings.Contains(what, "end of stream"):
		why = "from here on a quote, [ or { is not closed, or a line is indented differently from its neighbours"
	}
	r.addLines(codeSyntax, "", []int{line}, why, "not YAML: "+what)
}

var (
	unquotedVariable = regexp.MustCompile(`\{[^"']*:\s*[^"'\s,}]*\$\{`)
	unquotedNullable = regexp.MustCompile(`:\s*[a-z0-9()]+\?\s*[,}]`)
)

// plainYAML refuses what would make one line of the file mean something that stands elsewhere.
func plainYAML(r *report, n *yaml.Node) bool {
	ok := true
	switch {
	case n.Kind == yaml.AliasNode:
		r.add(codeSyntax, "", []*yaml.Node{n}, "*%s: aliases are not read; write the value out", n.Value)
		return false
	case n.Anchor != "":
		r.add(codeSyntax, "", []*yaml.Node{n}, "&%s: anchors are not read; write each value out", n.Anchor)
		ok = false
	case n.Style&yaml.TaggedStyle != 0:
		r.add(codeSyntax, "", []*yaml.Node{n}, "%s: tags are not read", n.Tag)
		ok = false
	}
	for _, kid := range n.Content {
		ok = plainYAML(r, kid) && ok
	}
	return ok
}

func kindWord(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a map"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!null":
		return "empty"
	}
	return "a single value"
}

// checkEntry compares an entry and all below it with the table. Where the value has the wrong form it is reported and
// taken away, so that it is not reported again.
func checkEntry(r *report, e *entry) {
	empty := e.node.Kind == yaml.ScalarNode && e.node.Tag == "!!null"
	if empty && e.kind == section && e.parent != nil {
		// A heading with nothing below it: all its keys are commented out.
		e.node = &yaml.Node{Kind: yaml.MappingNode, Line: e.node.Line}
		empty = false
	}
	fits := true
	switch e.kind {
	case section, names, placement:
		fits = e.node.Kind == yaml.MappingNode
	case listOf, indexList:
		fits = e.node.Kind == yaml.SequenceNode
	case slotsOf:
		fits = e.node.Kind == yaml.SequenceNode || e.node.Kind == yaml.ScalarNode
	case monthRole:
		fits = e.node.Kind == yaml.MappingNode || e.node.Kind == yaml.ScalarNode
	default:
		fits = e.node.Kind == yaml.ScalarNode
	}
	if empty || !fits {
		what := "is " + kindWord(e.node) + "; here stands " + e.wants()
		if empty {
			what = "has no value"
		}
		r.add(codeValue, e.write(), []*yaml.Node{e.key}, "%s %s", e.path, what)
		e.node = nil
		return
	}
	switch e.kind {
	case listOf:
		checkTexts(r, e, e.node.Content)
	case slotsOf:
		checkTexts(r, e, e.node.Content)
	case section, names:
		checkKids(r, e)
	}
}

// checkTexts reports members of a list that are not single values.
func checkTexts(r *report, e *entry, members []*yaml.Node) {
	for _, m := range members {
		if m.Kind != yaml.ScalarNode || m.Tag == "!!null" {
			r.add(codeValue, e.write(), []*yaml.Node{m}, "%s holds %s; here stands %s", e.path, kindWord(m), e.wants())
			e.node = nil
			return
		}
	}
}

func (e *entry) wants() string {
	return map[kind]string{section: "a map", names: "a map", scalar: "a single value", count: "a whole number",
		size: "a size such as 4MiB", span: "a duration such as 10s", choice: orList(e.choices), listOf: "a list: [a, b]",
		address: "a URL", slotsOf: "a range of slots such as 0-511, or a list of them", placement: "a map of slots to shards",
		monthRole: "a column, or { snowflake: column, epoch: time }", indexList: "a list of lists of columns"}[e.kind]
}

// write is what to write instead, as far as the table knows.
func (e *entry) write() string {
	switch {
	case e.example != "":
		return e.example
	case e.def != "" && !strings.HasPrefix(e.def, "<"):
		return e.key.Value + ": " + e.def
	}
	return ""
}

func checkKids(r *report, e *entry) {
	seen := map[string]*yaml.Node{}
	for i := 0; i+1 < len(e.node.Content); i += 2 {
		key, value := e.node.Content[i], e.node.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			r.add(codeValue, "", []*yaml.Node{key}, "%s has %s as a key", inside(e), kindWord(key))
			continue
		}
		if first, twice := seen[key.Value]; twice {
			r.add(codeTwice, "it once", []*yaml.Node{first, key}, "%s stands twice, first in line %d", join(e.path, key.Value), first.Line)
			continue
		}
		seen[key.Value] = key
		n := e.keyNode.kid(key.Value)
		switch {
		case n == nil:
			if meant := unknownKey(r, e, key); meant != "" && seen[meant] == nil {
				seen[meant] = key // not missing, but misspelt
			}
		case n.later != "" && n.kind != choice:
			r.add(codeLater, "nothing: leave "+join(e.path, key.Value)+" out", []*yaml.Node{key}, "%s: %s", join(e.path, key.Value), n.later)
		default:
			kid := &entry{keyNode: n, path: join(e.path, key.Value), parent: e, key: key, node: value}
			e.kids = append(e.kids, kid)
			checkEntry(r, kid)
		}
	}
	for _, n := range e.keyNode.kids {
		if n.required && seen[n.name] == nil {
			at := e.at()
			if at == nil {
				at = e.node
			}
			what, _, _ := strings.Cut(lowerFirst(n.meaning), ". ")
			r.add(codeMissing, n.example, []*yaml.Node{at}, "%s is missing (%s)", join(e.path, n.name), what)
		}
	}
}

func inside(e *entry) string {
	if e.path == "" {
		return "the file"
	}
	return e.path
}

// unknownKey reports a key and returns the one that was probably meant; "" if none is near.
func unknownKey(r *report, e *entry, key *yaml.Node) (meant string) {
	if key.Value == "<<" {
		r.add(codeUnknownKey, "the keys themselves", []*yaml.Node{key}, "<<: merge keys are not read")
		return ""
	}
	var here []string
	for _, n := range e.keyNode.kids {
		here = append(here, n.name)
	}
	hint := ""
	meant = nearest(key.Value, here)
	if meant == "" || slices.ContainsFunc(e.node.Content, func(n *yaml.Node) bool { return n.Value == meant }) {
		meant = ""
		if places := elsewhere(key.Value); len(places) > 0 {
			hint = "; it belongs into " + orList(places)
		} else {
			hint = "; " + inside(e) + " has " + strings.Join(here, ", ")
		}
	}
	write := meant
	if slotKey.MatchString(key.Value) && slices.Contains(here, "slots") {
		write, hint = "slots: [0-255, "+key.Value+"]", ": inside { } a comma ends a value"
	}
	r.add(codeUnknownKey, write, []*yaml.Node{key}, "%s is not a key%s", quoteKey(join(e.path, key.Value)), hint)
	return meant
}

var slotKey = regexp.MustCompile(`^[0-9]+(-[0-9]+)?$`)

// elsewhere lists where else the file has a key of this name.
func elsewhere(name string) (places []string) {
	for _, k := range keys {
		if above, last := cutLast(k.path); last == name && above != "" && k.later == "" {
			places = append(places, above)
		}
	}
	return places
}

func cutLast(path string) (above, last string) {
	i := strings.LastIndexByte(path, '.')
	if i < 0 {
		return "", path
	}
	return path[:i], path[i+1:]
}

// quoteKey quotes what is not plainly a key, and cuts what is too long.
func quoteKey(text string) string {
	const keyBytesMax = 100
	if len(text) > keyBytesMax {
		text = text[:keyBytesMax] + "…"
	}
	if strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") == "" && text != "" {
		return text
	}
	return strconv.Quote(text)
}

func lowerFirst(text string) string {
	if len(text) > 1 && 'A' <= text[0] && text[0] <= 'Z' && 'a' <= text[1] && text[1] <= 'z' {
		return strings.ToLower(text[:1]) + text[1:]
	}
	return text
}
