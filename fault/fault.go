// Package fault is the error that a person meets at three in the morning: a code to search for, what happened and
// where, why it matters, and what to do. Its class tells the program what to do with it.
//
// It is pure and stands below every other package.
package fault

import (
	"errors"
	"strings"
)

// Class says how a caller must treat an error.
type Class uint8

const (
	Unknown   Class = iota // not classified: treated as Transient by loops, as failure by commands
	Data                   // this one event cannot be held: a dead letter, the rest goes on
	Transient              // an outage: retry for ever with backoff, visibly; never a dead letter
	Fatal                  // halt this partition or lane; the others go on
	Fenced                 // another owner took over: stop writing, take over again only if still assigned
	Usage                  // wrong use or wrong file: exit status 2
)

func (c Class) String() string {
	return [...]string{"unknown", "data", "transient", "fatal", "fenced", "usage"}[c]
}

// Error is printed as
//
//	<What> [<Code>]
//	  <Why, any number of lines>
//	  do: <Do>
type Error struct {
	Code  string // SLnnnn, one meaning each, listed in docs/errors.md
	Class Class
	What  string // what happened and where: topic, partition, offset, shard, table
	Why   string // why it matters or how it usually comes about; may be empty
	Do    string // what to do next; may be empty
	Write string // for files: the text to write instead; printed as "write: …"
	Err   error  // the cause; may be nil. It is not printed: What says what of it a person needs
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.What)
	b.WriteString(" [" + e.Code + "]")
	for line := range strings.SplitSeq(e.Why, "\n") {
		if line != "" {
			b.WriteString("\n  " + line)
		}
	}
	if e.Write != "" {
		b.WriteString("\n  write: " + e.Write)
	}
	if e.Do != "" {
		b.WriteString("\n  do: " + e.Do)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// ClassOf is the class of the first *Error in err's tree, or Unknown.
func ClassOf(err error) Class {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return Unknown
}

// CodeOf is the code of the first *Error in err's tree, or "".
func CodeOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// Is reports whether err is of class c.
func Is(err error, c Class) bool { return ClassOf(err) == c }
