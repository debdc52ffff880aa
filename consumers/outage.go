package consumers

import (
	"log/slog"
	"sync"
	"time"

	"github.com/slotline/slotline/fault"
)

// What a unit may be unable to do for a while.
const (
	doingTakeOver = "take over"
	doingConfirm  = "ask the group for the assignment"
	doingAsk      = "ask how the log stands"
	doingRead     = "read"
	doingPrepare  = "prepare"
	doingReload   = "load the layout"
	doingApply    = "apply"
	doingBury     = "write dead letters"
	doingResume   = "end the record of a halt"
)

// outages makes what is retried visible without flooding: a line when an outage begins, when its error changes, and
// when it is over; a counter for each try.
type outages struct {
	log     *slog.Logger
	retries func()

	mu sync.Mutex
	by map[string]*outageOf
}

type outageOf struct {
	since time.Time
	tries int
	text  string
}

func (o *outages) note(doing string, err error) {
	o.retries()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.by == nil {
		o.by = map[string]*outageOf{}
	}
	of := o.by[doing]
	if of == nil {
		of = &outageOf{since: time.Now()}
		o.by[doing] = of
	}
	of.tries++
	if text := err.Error(); text != of.text {
		of.text = text
		o.log.Warn("waits: cannot "+doing, "error", err, "code", fault.CodeOf(err), "class", fault.ClassOf(err).String(),
			"since", of.since.UTC(), "tries", of.tries)
	}
}

func (o *outages) over(doing string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if of := o.by[doing]; of != nil {
		delete(o.by, doing)
		o.log.Info("goes on: can "+doing+" again", "after", time.Since(of.since).Round(time.Millisecond), "tries", of.tries)
	}
}
