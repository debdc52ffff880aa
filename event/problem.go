package event

import "strings"

// Problem is one thing that is wrong with a table's declaration. The caller who read it from a file adds the line.
type Problem struct {
	Code  string // SLnnnn
	Table string
	// Key is the key below the table that is at fault, as a path: "", "tenant", "id", "month", "spread", "version",
	// "columns.total", "indexes.0".
	Key   string
	What  string // "column total: …", without the table's name
	Why   string // may be empty
	Write string // the text to write instead; may be empty
}

// Problems is every problem of a table, in the order of its keys.
type Problems []Problem

func (ps Problems) Error() string {
	var b strings.Builder
	for i, p := range ps {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString("table " + p.Table + ": " + p.What + " [" + p.Code + "]")
		if p.Why != "" {
			b.WriteString("\n  " + p.Why)
		}
		if p.Write != "" {
			b.WriteString("\n  write: " + p.Write)
		}
	}
	return b.String()
}
