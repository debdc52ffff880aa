// Package deadletter is what the dead letters of the relay and of the sinks have in common: how a person settles one.
// It is pure.
package deadletter

import "time"

// Action is what a person did with a dead letter.
type Action string

// The actions. An open letter has none.
const (
	Redriven  Action = "redriven"  // published again; versions decide what comes of it
	Discarded Action = "discarded" // given up
)

// Known says that a text is an action.
func (a Action) Known() bool { return a == Redriven || a == Discarded }

// Settled says how a dead letter was settled.
type Settled struct {
	Action Action
	At     time.Time
	By     string // at most ByBytesMax
	Why    string // at most WhyBytesMax; may be empty for a redrive
}

// Bounds of what is recorded.
const (
	ByBytesMax  = 255
	WhyBytesMax = 4 << 10
)
