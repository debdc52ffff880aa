package mysqldb

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/slotline/slotline/fault"
)

var update = flag.Bool("update", false, "rewrite docs/mysql-errors.md")

const doc = "../../docs/mysql-errors.md"

// The document is what a person reads at night; it must say what the code does.
func TestErrorDocument(t *testing.T) {
	want := document()
	if *update {
		if err := os.WriteFile(doc, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s differs from the code; go test ./internal/mysqldb -update rewrites it", doc)
	}
}

func document() string {
	var b strings.Builder
	b.WriteString(`# MySQL's errors

What slotline does with each error of a MySQL or MariaDB server. Numbers and names are the servers' own. This file is
written from the code (` + "`go test ./internal/mysqldb -update`" + `) and a test compares them.

`)
	titles := []struct {
		class       fault.Class
		title, text string
	}{
		{fault.Data, "Data", "This one row cannot be held. The batch is searched for it; it alone becomes a dead letter, and the rest goes on."},
		{fault.Transient, "Transient", "An outage or a conflict. The whole transaction is tried again, for ever, with backoff, and `slotline status` shows it. No event goes to the dead-letter topic."},
		{fault.Fatal, "Fatal", "Retrying cannot help, and skipping would lose rows. The partition halts and says so; the others go on."},
		{fault.Unknown, "Unknown", "Treated as transient by everything that runs, and as a failure by commands."},
	}
	for _, s := range titles {
		fmt.Fprintf(&b, "## %s\n%s\n\n| number | name | meaning | do |\n|---|---|---|---|\n", s.title, s.text)
		var list []uint16
		for n, what := range numbers {
			if what.class == s.class {
				list = append(list, n)
			}
		}
		slices.SortFunc(list, func(a, b uint16) int { return cmp.Compare(a, b) })
		for _, n := range list {
			fmt.Fprintf(&b, "| %d | %s | %s | %s |\n", n, numbers[n].name, numbers[n].meaning, numbers[n].do)
		}
		b.WriteString("\n")
	}
	b.WriteString("## Numbers that are in no table\nare classed by the first two characters of their SQLSTATE; any other is unknown.\n\n| SQLSTATE | class | meaning |\n|---|---|---|\n")
	for _, s := range states {
		fmt.Fprintf(&b, "| %s… | %s | %s |\n", s.prefix, s.class, s.meaning)
	}
	b.WriteString("\n## Without an answer of a server\n| error | class | meaning |\n|---|---|---|\n| any net.Error | transient | the network: refused, reset, timed out, no such host |\n")
	for _, g := range goErrors {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", g.name, g.class, g.meaning)
	}
	return b.String()
}
