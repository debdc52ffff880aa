package intake

import (
	"errors"
	"fmt"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
)

// Outage counts the tries of a batch that waits, so that a person sees since when and how often. The zero value is none.
// It is not safe for concurrent use.
type Outage struct {
	since time.Time // of the first failure since the last success; zero: none
	tries int       // failures since
}

// Over ends it.
func (o *Outage) Over() { *o = Outage{} }

// Waits counts a try that failed, and makes e its error. e has Code, What, Do and Err; what wrapped, the same error with
// the server's meaning, says is put in their place if it is a fault.
func (o *Outage) Waits(now time.Time, e *fault.Error, wrapped error, p event.Partition, offset int64) *fault.Error {
	if o.tries++; o.since.IsZero() {
		o.since = now
	}
	e.Class, e.Why = fault.Transient, "no event is lost and none goes to the dead-letter topic"
	if f, ok := errors.AsType[*fault.Error](wrapped); ok {
		e.What = f.What
		if f.Why != "" {
			e.Why = f.Why + "; " + e.Why
		}
		if f.Do != "" {
			e.Do = f.Do
		}
	}
	e.What = fmt.Sprintf("%s; %s partition %d offset %d waits since %s, tries: %d",
		e.What, p.Topic, p.Number, offset, o.since.UTC().Format("15:04:05"), o.tries)
	return e
}
