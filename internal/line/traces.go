package line

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/slotline/slotline/consumers"
	"github.com/slotline/slotline/outbox"
)

// Spans go to an OpenTelemetry collector, where the environment names one by OpenTelemetry's own variables: OTLP over
// HTTP in JSON, which needs no client library. A span is one group of events that Kafka acknowledged, or one batch that a
// sink applied, and links to the traces that emitted them. Spans are information: where the collector is away or slow they
// are dropped, and work goes on.

const (
	spansWaitingMax = 1024 // beyond it they are dropped: at 128 links about 20 MiB
	spansPerRequest = 128
	spansEvery      = time.Second
	spansTimeout    = 3 * time.Second // of one request, and of the last one when the part ends
)

// spanExporter sends the spans of one part of a process.
type spanExporter struct {
	url     string
	headers http.Header
	service string
	scope   string // slotline/relay, slotline/sink
	line    string
	log     *slog.Logger
	waiting chan span
}

// span is one that waits to be sent.
type span struct {
	name         string
	kind         int
	since, until time.Time
	attributes   []otlpAttr
	traces       []string // traceparents that it links to
}

// newSpanExporter reads the environment; nil means that it names no collector.
func newSpanExporter(getenv func(string) string, scope, line string, log *slog.Logger) *spanExporter {
	to := getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if base := getenv("OTEL_EXPORTER_OTLP_ENDPOINT"); to == "" && base != "" {
		to = strings.TrimSuffix(base, "/") + "/v1/traces"
	}
	if to == "" || getenv("OTEL_SDK_DISABLED") == "true" {
		return nil
	}
	e := &spanExporter{url: to, headers: http.Header{"Content-Type": {"application/json"}}, service: getenv("OTEL_SERVICE_NAME"),
		scope: scope, line: line, log: log, waiting: make(chan span, spansWaitingMax)}
	if e.service == "" {
		e.service = "slotline"
	}
	for _, pair := range strings.Split(getenv("OTEL_EXPORTER_OTLP_HEADERS"), ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if plain, err := url.PathUnescape(value); ok && err == nil {
			e.headers.Set(name, plain)
		}
	}
	return e
}

// published makes a span of what a lane's owner tells of. A group that nobody traced makes none.
func (e *spanExporter) published(topic string, p outbox.Published) {
	if len(p.Traces) > 0 {
		e.add(span{name: "publish " + topic, kind: spanKindProducer, since: p.Since, until: p.Until, traces: p.Traces,
			attributes: append(e.messaging("send", topic, p.Events), intAttr("slotline.lane", p.Lane))})
	}
}

// applied makes a span of what a partition's or group's owner tells of. A batch that nobody traced makes none.
func (e *spanExporter) applied(a consumers.Applied) {
	if len(a.Traces) == 0 {
		return
	}
	topic := a.Ranges[0].Topic
	attributes := append(e.messaging("process", topic, a.Events), textAttr("slotline.sink", a.Sink), intAttr("slotline.rows", a.Rows))
	if len(a.Ranges) == 1 {
		attributes = append(attributes, textAttr("messaging.destination.partition.id", strconv.Itoa(int(a.Ranges[0].Number))))
	}
	var offsets strings.Builder
	for i, r := range a.Ranges {
		if i > 0 {
			offsets.WriteByte(' ')
		}
		if r.Topic != topic {
			offsets.WriteString(r.Topic + "/")
		}
		fmt.Fprintf(&offsets, "%d:%d-%d", r.Number, r.From, r.To-1)
	}
	e.add(span{name: "apply " + topic, kind: spanKindConsumer, since: a.Since, until: a.Until, traces: a.Traces,
		attributes: append(attributes, textAttr("slotline.offsets", offsets.String()))})
}

// messaging are the attributes that both kinds have, by OpenTelemetry's conventions and our own.
func (e *spanExporter) messaging(operation, topic string, events int) []otlpAttr {
	return []otlpAttr{textAttr("messaging.system", "kafka"), textAttr("messaging.operation.type", operation),
		textAttr("messaging.destination.name", topic), intAttr("messaging.batch.message_count", events), textAttr("slotline.line", e.line)}
}

// add never blocks: it is called by the goroutines that do the work.
func (e *spanExporter) add(s span) {
	select {
	case e.waiting <- s:
	default:
	}
}

// run sends until ctx ends, and then once more.
func (e *spanExporter) run(ctx context.Context) {
	tick := time.NewTicker(spansEvery)
	defer tick.Stop()
	client := &http.Client{Timeout: spansTimeout}
	failing := false
	for ended := false; !ended; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			ended = true
		}
		for more := true; more; {
			var list []span
			list, more = e.take()
			if len(list) == 0 {
				break
			}
			err := e.send(client, list)
			if err != nil && !failing {
				e.log.Warn("spans cannot be sent; they are dropped until they can", "error", err)
			}
			if failing = err != nil; failing {
				more = false // what waits is tried at the next tick, or dropped when too much does
			}
		}
	}
}

// take is up to one request's spans; more says that others may wait.
func (e *spanExporter) take() (list []span, more bool) {
	for len(list) < spansPerRequest {
		select {
		case s := <-e.waiting:
			list = append(list, s)
		default:
			return list, false
		}
	}
	return list, true
}

func (e *spanExporter) send(client *http.Client, list []span) error {
	req, err := http.NewRequest(http.MethodPost, e.url, bytes.NewReader(e.body(list)))
	if err != nil {
		return err
	}
	req.Header = e.headers
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(res.Body, 200))
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("%s answers %s: %s", req.URL.Redacted(), res.Status, text)
	}
	return nil
}

// The JSON form of OTLP's ExportTraceServiceRequest, as far as it is used: ids in hex, 64-bit numbers as strings.
type (
	otlpLink struct {
		TraceID string `json:"traceId"`
		SpanID  string `json:"spanId"`
	}
	otlpSpan struct {
		TraceID    string     `json:"traceId"`
		SpanID     string     `json:"spanId"`
		Name       string     `json:"name"`
		Kind       int        `json:"kind"`
		Start      string     `json:"startTimeUnixNano"`
		End        string     `json:"endTimeUnixNano"`
		Attributes []otlpAttr `json:"attributes"`
		Links      []otlpLink `json:"links"`
	}
	otlpAttr struct {
		Key   string         `json:"key"`
		Value map[string]any `json:"value"`
	}
)

const (
	spanKindProducer = 4
	spanKindConsumer = 5
)

func textAttr(key, value string) otlpAttr { return otlpAttr{key, map[string]any{"stringValue": value}} }
func intAttr(key string, n int) otlpAttr {
	return otlpAttr{key, map[string]any{"intValue": strconv.Itoa(n)}}
}

func (e *spanExporter) body(list []span) []byte {
	spans := make([]otlpSpan, len(list))
	for i, p := range list {
		var id [24]byte
		rand.Read(id[:]) // never returns an error: the runtime ends the process instead
		s := otlpSpan{TraceID: hex.EncodeToString(id[:16]), SpanID: hex.EncodeToString(id[16:]), Name: p.name, Kind: p.kind,
			Start: strconv.FormatInt(p.since.UnixNano(), 10), End: strconv.FormatInt(p.until.UnixNano(), 10), Attributes: p.attributes}
		for _, trace := range p.traces { // 00-<trace id>-<span id>-01
			s.Links = append(s.Links, otlpLink{trace[3:35], trace[36:52]})
		}
		spans[i] = s
	}
	body, err := json.Marshal(map[string]any{"resourceSpans": []any{map[string]any{
		"resource":   map[string]any{"attributes": []otlpAttr{textAttr("service.name", e.service)}},
		"scopeSpans": []any{map[string]any{"scope": map[string]any{"name": e.scope}, "spans": spans}},
	}}})
	if err != nil {
		panic(err) // texts and numbers alone
	}
	return body
}
