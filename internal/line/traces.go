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

	"github.com/slotline/slotline/outbox"
)

// The relay's spans go to an OpenTelemetry collector, where the environment names one by OpenTelemetry's own variables:
// OTLP over HTTP in JSON, which needs no client library. A span is one group of events that Kafka acknowledged, and links
// to the traces that emitted them. Spans are information: where the collector is away or slow they are dropped, and
// publishing goes on.

const (
	spansWaitingMax = 1024 // beyond it they are dropped: at 128 links about 20 MiB
	spansPerRequest = 128
	spansEvery      = time.Second
	spansTimeout    = 3 * time.Second // of one request, and of the last one when the relay ends
)

// spanExporter sends what published gives it.
type spanExporter struct {
	url     string
	headers http.Header
	service string
	line    string
	topic   string
	log     *slog.Logger
	waiting chan outbox.Published
}

// newSpanExporter reads the environment; nil means that it names no collector.
func newSpanExporter(getenv func(string) string, line, topic string, log *slog.Logger) *spanExporter {
	to := getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if base := getenv("OTEL_EXPORTER_OTLP_ENDPOINT"); to == "" && base != "" {
		to = strings.TrimSuffix(base, "/") + "/v1/traces"
	}
	if to == "" || getenv("OTEL_SDK_DISABLED") == "true" {
		return nil
	}
	e := &spanExporter{url: to, headers: http.Header{"Content-Type": {"application/json"}}, service: getenv("OTEL_SERVICE_NAME"),
		line: line, topic: topic, log: log, waiting: make(chan outbox.Published, spansWaitingMax)}
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

// published never blocks: it is called by the goroutine that owns a lane. A group that nobody traced makes no span.
func (e *spanExporter) published(p outbox.Published) {
	if len(p.Traces) == 0 {
		return
	}
	select {
	case e.waiting <- p:
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
			var list []outbox.Published
			list, more = e.take()
			if len(list) == 0 {
				break
			}
			err := e.send(client, list)
			if err != nil && !failing {
				e.log.Warn("spans cannot be sent; they are dropped until they can", "err", err)
			}
			if failing = err != nil; failing {
				more = false // what waits is tried at the next tick, or dropped when too much does
			}
		}
	}
}

// take is up to one request's spans; more says that others may wait.
func (e *spanExporter) take() (list []outbox.Published, more bool) {
	for len(list) < spansPerRequest {
		select {
		case p := <-e.waiting:
			list = append(list, p)
		default:
			return list, false
		}
	}
	return list, true
}

func (e *spanExporter) send(client *http.Client, list []outbox.Published) error {
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

const spanKindProducer = 4

func textAttr(key, value string) otlpAttr { return otlpAttr{key, map[string]any{"stringValue": value}} }
func intAttr(key string, n int) otlpAttr {
	return otlpAttr{key, map[string]any{"intValue": strconv.Itoa(n)}}
}

func (e *spanExporter) body(list []outbox.Published) []byte {
	spans := make([]otlpSpan, len(list))
	for i, p := range list {
		var id [24]byte
		rand.Read(id[:]) // never returns an error: the runtime ends the process instead
		s := otlpSpan{TraceID: hex.EncodeToString(id[:16]), SpanID: hex.EncodeToString(id[16:]), Name: "publish " + e.topic, Kind: spanKindProducer,
			Start: strconv.FormatInt(p.Since.UnixNano(), 10), End: strconv.FormatInt(p.Until.UnixNano(), 10),
			Attributes: []otlpAttr{textAttr("messaging.system", "kafka"), textAttr("messaging.operation.type", "send"),
				textAttr("messaging.destination.name", e.topic), intAttr("messaging.batch.message_count", p.Events),
				textAttr("slotline.line", e.line), intAttr("slotline.lane", p.Lane)}}
		for _, trace := range p.Traces { // 00-<trace id>-<span id>-01
			s.Links = append(s.Links, otlpLink{trace[3:35], trace[36:52]})
		}
		spans[i] = s
	}
	body, err := json.Marshal(map[string]any{"resourceSpans": []any{map[string]any{
		"resource":   map[string]any{"attributes": []otlpAttr{textAttr("service.name", e.service)}},
		"scopeSpans": []any{map[string]any{"scope": map[string]any{"name": "slotline/relay"}, "spans": spans}},
	}}})
	if err != nil {
		panic(err) // texts and numbers alone
	}
	return body
}
