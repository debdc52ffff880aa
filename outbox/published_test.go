package outbox

import (
	"fmt"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
)

// Published links to each sampled trace once, to 128 at most, and spans the whole group.
func TestPublishedLinksSampledTraces(t *testing.T) {
	now := time.Now()
	p := Published{Since: now, Until: now}
	add := func(trace string, ago time.Duration) {
		e := event.Event{Table: "t", Tenant: "a", EntityID: "1", Op: event.Upsert, Version: 1, Time: now, TraceParent: trace}
		_, rec := e.AppendRecord(nil, "slotline/x")
		p.add(&rec, now.Add(-ago))
	}
	trace := func(n, flags int) string { return fmt.Sprintf("00-%032x-%016x-%02x", n, n, flags) }
	add("", time.Second)
	add(trace(1, 1), 3*time.Second)
	add(trace(1, 1), 2*time.Second) // of the same transaction
	add(trace(2, 0), 0)             // nobody records it
	add("not one", 0)               // another language's emitter wrote it
	for n := 3; n < 300; n++ {
		add(trace(n, 3), 0)
	}
	if p.Events != 302 || len(p.Traces) != 128 || p.Traces[0] != trace(1, 1) || p.Traces[1] != trace(3, 3) {
		t.Errorf("%d events, %d links, the first %v", p.Events, len(p.Traces), p.Traces[:2])
	}
	if !p.Since.Equal(now.Add(-3*time.Second)) || !p.Until.Equal(now) {
		t.Errorf("from %v to %v", p.Since, p.Until)
	}
}
