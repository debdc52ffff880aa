// Package plan holds one type: a step that `slotline apply` would take, so that each engine can say what it would do
// before anything is done. It does no I/O of its own; a Change fails as its Do fails.
package plan

import "context"

// Signs of a Change, as they are printed at the start of its line.
const (
	Create = '+' // makes something that is not there
	Alter  = '~' // changes something that is there
	Note   = '!' // worth knowing; nothing is done
	Decide = 'x' // needs a decision of a person; apply does nothing about it
)

// Change is one line of a plan.
type Change struct {
	Where string // the heading it stands under: "shard s1 db1/flights_s1 (MySQL 8.4.3)"
	Sign  byte   // Create, Alter, Note or Decide
	What  string // "topic flights.events"
	Note  string // the right-hand column: "16 partitions, replication 3"; may be empty
	// Do makes the change; it must be safe to repeat. Nil for Note and Decide.
	Do func(ctx context.Context) error
}

// Apply makes the change. It does nothing for a Note or a Decide.
func (c Change) Apply(ctx context.Context) error {
	if c.Do == nil {
		return nil
	}
	return c.Do(ctx)
}
