package consumers

import (
	"time"

	"github.com/slotline/slotline/event"
)

// Applied is one batch that a sink has committed, with its progress.
type Applied struct {
	Sink   string
	Ranges []event.Range // one of a partition of the group; of a fixed group, one per partition that the batch has events of
	Events int           // examined; those that are dead letters count too
	Rows   int           // sent
	Since  time.Time     // when it was first sent
	Until  time.Time
	// Traces are the W3C traceparents, without repeats, of those events that were emitted in a sampled trace; the first
	// 128. What applied them links to these.
	Traces []string
}

// link notes the traces of messages, unless nobody asks for them.
func (u *unit) link(f *flight, messages []event.Message) {
	if u.loop.opts.Applied == nil {
		return
	}
	for i := range messages {
		f.traces = event.AppendTrace(f.traces, &messages[i].Record)
	}
}

// tell calls Options.Applied of a batch that is committed, if it is set.
func (u *unit) tell(f *flight) {
	to := u.loop.opts.Applied
	if to == nil {
		return
	}
	if !f.gathered { // else link was called with each piece
		f.rows = len(f.batch.Messages)
		u.link(f, f.batch.Messages)
	}
	rows, _ := f.prepared.Size()
	to(Applied{Sink: u.loop.sink.Name(), Ranges: f.batch.Ranges, Events: f.rows, Rows: rows, Since: f.sent, Until: time.Now(),
		Traces: f.traces})
}
