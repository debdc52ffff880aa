package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// calls are the command lines in a document: code spans and lines of code that begin with slotline.
var calls = regexp.MustCompile("(?m)(?:`|^(?: {4}|\t)(?:\\$ )?)slotline ([a-z-][^`#|\n]*)")

// Every command and flag that the documents name is there.
func TestDocumentedCommandsExist(t *testing.T) {
	documents, err := filepath.Glob(root + "/docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range documents {
		documents[i] = "docs/" + filepath.Base(d)
	}
	documents = append(documents, "README.md", "README.zh.md", "compose/README.md", "examples/flights/README.md")
	found := 0
	for _, document := range documents {
		for _, m := range calls.FindAllStringSubmatch(readFile(t, document), -1) {
			for _, call := range strings.Split(m[1], "&&") {
				words := strings.Fields(strings.TrimPrefix(strings.TrimSpace(call), "slotline "))
				if n := len(words); n == 0 || n > 1 && words[n-2] == "format" {
					continue // the comment of a table: `slotline table format 1`
				}
				found++
				all := rootCommand()
				all.InitDefaultCompletionCmd()
				cmd, _, err := all.Find(words)
				if err != nil || !strings.HasPrefix(words[0], "-") && cmd.Name() == "slotline" {
					t.Errorf("%s speaks of `slotline %s`, which there is not", document, strings.Join(words, " "))
					continue
				}
				cmd.InitDefaultHelpFlag()
				for _, w := range words {
					name, isFlag := strings.CutPrefix(w, "--")
					name, _, _ = strings.Cut(name, "=")
					if isFlag && cmd.Flags().Lookup(name) == nil && cmd.InheritedFlags().Lookup(name) == nil {
						t.Errorf("%s speaks of `slotline %s`; %s has no flag --%s", document, strings.Join(words, " "), cmd.Name(), name)
					}
				}
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d command lines found: the test looks at the wrong text", found)
	}
}
