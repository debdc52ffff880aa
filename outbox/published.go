package outbox

import (
	"time"

	"github.com/slotline/slotline/event"
)

// Published is a group of events of one lane that Kafka acknowledged at about the same time.
type Published struct {
	Lane   int
	Events int
	Since  time.Time // when the first of them was sent
	Until  time.Time // when the last was acknowledged
	// Traces are the W3C traceparents, without repeats, of those that were emitted in a sampled trace; the first 128.
	// What publishes them links to these.
	Traces []string
}

// tell calls Options.Published with what the answers say, if it is set.
func (s *session) tell(answers []Answer, now time.Time) {
	to := s.relay.o.Published
	if to == nil {
		return
	}
	p := Published{Lane: s.lane, Since: now, Until: now}
	for i := range answers {
		if answers[i].Err == nil {
			it := answers[i].Out.item
			p.add(&it.out.Record, it.sentAt)
		}
	}
	if p.Events > 0 {
		to(p)
	}
}

func (p *Published) add(rec *event.Record, sent time.Time) {
	p.Events++
	if sent.Before(p.Since) {
		p.Since = sent
	}
	p.Traces = event.AppendTrace(p.Traces, rec)
}
