package line

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/consumers"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/outbox"
)

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// A collector gets a span with links, in the JSON form of OTLP, also of what waits when the relay ends.
func TestSpansReachTheCollector(t *testing.T) {
	type request struct {
		path, token string
		body        []byte
	}
	got := make(chan request, 10)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- request{r.URL.Path, r.Header.Get("Api-Token") + r.Header.Get("Content-Type"), body}
	}))
	defer collector.Close()
	e := newSpanExporter(env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL+"/", "OTEL_EXPORTER_OTLP_HEADERS", "api-token=a%20b, x=y"), "slotline/relay", "flights", slog.New(slog.DiscardHandler))
	since := time.Unix(1700000000, 123456789)
	e.published("flights.events", outbox.Published{Lane: 2, Events: 7, Since: since, Until: since.Add(time.Millisecond), Traces: []string{parent}})
	e.published("flights.events", outbox.Published{Lane: 2, Events: 7, Since: since, Until: since}) // nobody traced it
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e.run(ctx)
	r := <-got
	if r.path != "/v1/traces" || r.token != "a bapplication/json" {
		t.Errorf("%s %s", r.path, r.token)
	}
	var body struct {
		ResourceSpans []struct {
			Resource   struct{ Attributes []otlpAttr }
			ScopeSpans []struct{ Spans []otlpSpan }
		}
	}
	if err := json.Unmarshal(r.body, &body); err != nil {
		t.Fatal(err)
	}
	spans := body.ResourceSpans[0].ScopeSpans[0].Spans
	if len(spans) != 1 || len(got) != 0 {
		t.Fatalf("%d spans, %d more requests: %s", len(spans), len(got), r.body)
	}
	s := spans[0]
	if len(s.TraceID) != 32 || len(s.SpanID) != 16 || s.Kind != 4 || s.Start != "1700000000123456789" || s.End != "1700000000124456789" ||
		s.Name != "publish flights.events" || len(s.Links) != 1 || s.Links[0] != (otlpLink{"0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"}) {
		t.Errorf("%s", r.body)
	}
	for _, want := range []string{`{"key":"service.name","value":{"stringValue":"slotline"}}`, `{"key":"messaging.batch.message_count","value":{"intValue":"7"}}`,
		`{"key":"slotline.lane","value":{"intValue":"2"}}`} {
		if !strings.Contains(string(r.body), want) {
			t.Errorf("%s is not in %s", want, r.body)
		}
	}
}

// A batch of a sink is a span of a consumer, with what it applied.
func TestSpanOfAnAppliedBatch(t *testing.T) {
	e := newSpanExporter(env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://x"), "slotline/sink", "flights", slog.New(slog.DiscardHandler))
	at := func(number int32, from, to int64) event.Range {
		return event.Range{Partition: event.Partition{Topic: "flights.events", Number: number}, From: from, To: to}
	}
	e.applied(consumers.Applied{Sink: "mysql", Ranges: []event.Range{at(3, 5, 9)}, Events: 4, Rows: 2, Traces: []string{parent}})
	e.applied(consumers.Applied{Sink: "clickhouse", Ranges: []event.Range{at(3, 5, 9), at(7, 0, 2)}, Events: 6, Rows: 6, Traces: []string{parent}})
	e.applied(consumers.Applied{Sink: "mysql", Ranges: []event.Range{at(3, 9, 10)}, Events: 1, Rows: 1}) // nobody traced it
	spans, _ := e.take()
	body := string(e.body(spans))
	if len(spans) != 2 {
		t.Fatalf("%d spans: %s", len(spans), body)
	}
	for _, want := range []string{`"scope":{"name":"slotline/sink"}`, `"name":"apply flights.events","kind":5`,
		`{"key":"slotline.sink","value":{"stringValue":"mysql"}}`, `{"key":"slotline.rows","value":{"intValue":"2"}}`,
		`{"key":"messaging.batch.message_count","value":{"intValue":"4"}}`, `{"key":"messaging.destination.partition.id","value":{"stringValue":"3"}}`,
		`{"key":"slotline.offsets","value":{"stringValue":"3:5-8"}}`, `{"key":"slotline.offsets","value":{"stringValue":"3:5-8 7:0-1"}}`,
		`"links":[{"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"b7ad6b7169203331"}]`} {
		if !strings.Contains(body, want) {
			t.Errorf("%s is not in %s", want, body)
		}
	}
}

// Without a collector there are no spans; one that is away or refuses costs nothing but the spans.
func TestSpansAreDroppedWhereNoCollectorTakesThem(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for _, e := range []func(string) string{env(), env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://x", "OTEL_SDK_DISABLED", "true")} {
		if newSpanExporter(e, "slotline/relay", "l", log) != nil {
			t.Error("there is an exporter")
		}
	}
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", http.StatusTooManyRequests) }))
	defer refusing.Close()
	var said strings.Builder
	e := newSpanExporter(env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", refusing.URL+"/my/path"), "slotline/relay", "l", slog.New(slog.NewTextHandler(&said, nil)))
	for range spansWaitingMax + 100 { // never blocks
		e.published("flights.events", outbox.Published{Traces: []string{parent}})
	}
	if n := len(e.waiting); n != spansWaitingMax {
		t.Errorf("%d wait", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e.run(ctx)
	if n := strings.Count(said.String(), "spans cannot be sent"); n != 1 || !strings.Contains(said.String(), "429") {
		t.Errorf("said %s", said.String())
	}
	if fmt.Sprint(len(e.waiting)) != fmt.Sprint(spansWaitingMax-spansPerRequest) {
		t.Errorf("%d wait after one refusal", len(e.waiting))
	}
}
