package integration

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/outbox"
	outboxkafka "github.com/slotline/slotline/outbox/kafka"
	"github.com/slotline/slotline/producer"
)

func traceParent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier.Get("traceparent")
}

// The trace of a transaction goes with its events: into the row, the record's header, and to what the relay links to.
func TestTraceFromEmitToKafka(t *testing.T) {
	l := newOutboxLine(t, harness.Kafka(t), harness.MySQL(t), ", lanes: 1")
	p := producer.New(l.cfg, producer.WithTraceParent(traceParent))
	span := func(n byte, flags trace.TraceFlags) (context.Context, string) {
		sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{n, 15: 1}, SpanID: trace.SpanID{n, 7: 2}, TraceFlags: flags})
		ctx := trace.ContextWithSpanContext(t.Context(), sc)
		return ctx, "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-" + sc.TraceFlags().String()
	}
	sampled, sampledText := span(1, trace.FlagsSampled)
	unsampled, unsampledText := span(2, 0)
	want := map[string]string{} // by entity
	emit := func(ctx context.Context, id uint64, text string) {
		t.Helper()
		if err := p.Run(ctx, l.db, func(tx *producer.Tx) error {
			return p.Emit(ctx, tx, l.accounts.Upsert(account{Owner: "a", ID: id}), l.accounts.Upsert(account{Owner: "a", ID: id + 1}))
		}); err != nil {
			t.Fatal(err)
		}
		want[string('0'+byte(id))], want[string('0'+byte(id+1))] = text, text
	}
	emit(sampled, 0, sampledText)
	emit(unsampled, 2, unsampledText)
	emit(t.Context(), 4, "")

	told := make(chan outbox.Published, 100)
	relay := outbox.New(outbox.Options{Config: l.cfg, Layout: l.layout, DB: l.open(), Timing: l.timing,
		Published: func(p outbox.Published) { told <- p },
		NewWriter: func(lane int) (outbox.Writer, error) { return outboxkafka.New(l.cfg, lane, nil) }})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	began := time.Now()
	go func() { done <- relay.Run(ctx) }()
	l.waitPublished(6, 20*time.Second)
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, e := range l.topic() {
		if e.TraceParent != want[e.EntityID] {
			t.Errorf("entity %s: header traceparent %q, wanted %q", e.EntityID, e.TraceParent, want[e.EntityID])
		}
	}
	close(told)
	events, links := 0, map[string]bool{}
	for p := range told {
		events += p.Events
		for _, text := range p.Traces {
			links[text] = true
			// What OpenTelemetry makes of it is a remote span to link to.
			remote := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(t.Context(), propagation.MapCarrier{"traceparent": text}))
			if !remote.IsRemote() || !remote.IsSampled() || remote.TraceID() != (trace.TraceID{1, 15: 1}) {
				t.Errorf("link %q is %+v", text, remote)
			}
		}
		if p.Since.Before(began) || p.Until.Before(p.Since) || p.Lane != 0 {
			t.Errorf("%+v", p)
		}
	}
	if events != 6 || len(links) != 1 || !links[sampledText] {
		t.Errorf("%d events were told of, with links to %v; wanted 6, and one to %s", events, links, sampledText)
	}
}

// docs/emit.md shows the function that is tested here.
func TestDocsShowTheTraceThatIsTested(t *testing.T) {
	docsShow(t, "emit_trace_test.go", "func traceParent")
}
