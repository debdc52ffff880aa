package integration

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/internal/line"
	"github.com/slotline/slotline/partitioner"
)

// httpAt is where a process serves /metrics.
var httpAt = regexp.MustCompile(`127\.0\.0\.1:\d+`)

func (w *wholeLine) metrics(t *testing.T, p *harness.Process) string {
	t.Helper()
	var address string
	for l := range strings.SplitSeq(p.Stderr(), "\n") {
		if strings.Contains(l, "/metrics") {
			address = httpAt.FindString(l)
		}
	}
	if address == "" {
		t.Fatalf("the log does not say where /metrics is:\n%s", p.Stderr())
	}
	resp, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// Months are retired while the line runs: asked first, named, dropped; events that come late are passed over and counted,
// and every command says so. Each batch that was applied is a span with links to what emitted its events.
func TestRetireMonthsOfALine(t *testing.T) {
	harness.Proof(t)
	var mu sync.Mutex
	var spans strings.Builder
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		spans.Write(body)
	}))
	defer collector.Close()

	w := newLine(t, sharedServers(t), "")
	r := harness.Command{Args: []string{"-c", w.file, "tables", "retire"}, Name: "keep-forever"}.Run(t, time.Minute)
	if r.Code != 2 || !strings.Contains(r.Stderr, "SL9021") {
		t.Errorf("keep forever: exit status %d\n%s", r.Code, r.Stderr)
	}
	w.file = w.write(t, strings.Replace(w.text(t), "ahead: 1 }", "ahead: 1, keep: 12 }", 1))
	now := time.Now().UTC()
	at := func(id uint64, when time.Time) event.Event {
		e := rawEvent("UA", id, partitioner.MonthOf(when), flightBody("UA", id, when.Format("2006-01-02T15:04:05.000000Z"), `"LAX"`, "1"))
		e.TraceParent = fmt.Sprintf("00-%032x-%016x-01", id, id)
		return e
	}
	february, march := time.Date(2013, 2, 3, 4, 5, 6, 0, time.UTC), time.Date(2013, 3, 3, 4, 5, 6, 0, time.UTC)
	w.append(t, at(1, february), at(2, march), at(3, now))
	run := harness.Command{Args: []string{"-c", w.file, "run"}, Env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL}}.Start(t)
	w.waitDrained(t, time.Minute)

	old := []string{"flights_201302", "flights_201303"}
	tables := func() (names []string) {
		for _, name := range w.monthTables(t, w.shards["s1"], "flights") {
			if strings.HasPrefix(name, "flights_2013") && len(name) == len("flights_201302") {
				names = append(names, name)
			}
		}
		return names
	}
	below := partitioner.MonthOf(now).Add(-12).String()
	if out := w.run(t, 3, "tables", "retire", "--dry-run"); !strings.Contains(out, old[0]) || !strings.Contains(out, old[1]) ||
		!strings.Contains(out, "would be dropped") || !strings.Contains(out, "before "+below) {
		t.Errorf("dry run:\n%s", out)
	}
	if refused := (harness.Command{Args: []string{"-c", w.file, "tables", "retire"}, Name: "not-confirmed"}).Run(t, time.Minute); refused.Code != 1 ||
		!strings.Contains(refused.Stderr, "Nothing was changed") {
		t.Errorf("not confirmed: exit status %d\n%s", refused.Code, refused.Stderr)
	}
	if got := tables(); !slices.Equal(got, old) {
		t.Fatalf("tables %v", got)
	}
	// A rebuild has tables of these months too.
	job := harness.Command{Args: []string{"-c", w.file, "replay", "rebuild", "--shard", "s1", "--tables", "flights", "--detach", "--yes"}, Name: "rebuild"}.Run(t, time.Minute)
	if job.Code != 0 {
		t.Fatalf("rebuild: exit status %d\n%s%s", job.Code, job.Stdout, job.Stderr)
	}
	if out := w.run(t, 1, "tables", "retire", "--yes"); !strings.Contains(out, "SL9022") || !slices.Equal(tables(), old) {
		t.Errorf("retire beside a rebuild: tables %v\n%s", tables(), out)
	}
	w.run(t, 0, "replay", "accept", regexp.MustCompile(`rb[0-9a-f]{4}`).FindString(job.Stdout+job.Stderr))
	if out := w.run(t, 0, "tables", "retire", "--yes", "--who", "ann"); !strings.Contains(out, old[0]) || !strings.Contains(out, "are retired") {
		t.Errorf("retire:\n%s", out)
	}
	w.append(t, at(4, march), at(5, now))
	w.waitDrained(t, time.Minute)
	if got := tables(); len(got) != 0 {
		t.Errorf("tables %v after a late event", got)
	}
	if out := w.run(t, 0, "tables", "retire", "--dry-run"); strings.Contains(out, "dropped") {
		t.Errorf("once more:\n%s", out)
	}
	if all := w.metrics(t, run); !strings.Contains(all, `slotline_sink_shard_retired_events_total{shard="s1",sink="mysql"} 1`) ||
		!strings.Contains(all, `slotline_sink_shard_rows_total{shard="s1",sink="mysql"} 4`) ||
		!strings.Contains(all, `slotline_sink_shard_lag_events{shard="s1",sink="mysql"} 0`) {
		t.Errorf("metrics:\n%s", all)
	}
	for id, want := range map[string]string{"1": line.VerdictRetired, "4": line.VerdictRetired, "5": line.VerdictApplied} {
		found := w.where(t, 0, "flights", "UA", id)
		if got := verdicts(found); !slices.Equal(got, []string{"mysql/s1 " + want, "clickhouse applied"}) {
			t.Errorf("entity %s: %v: %s", id, got, found.Stores[0].Text)
		}
	}
	said := fmt.Sprintf("RETIRED  mysql/s1: months before %s, on ", below)
	for _, command := range [][]string{{"status"}, {"tables"}} {
		if out := w.run(t, 0, command...); !strings.Contains(out, said) || !strings.Contains(out, "by ann") {
			t.Errorf("%v:\n%s", command, out)
		}
	}
	// The whole log, read again beside the live tables, has no more of these months than they have.
	if out := w.run(t, 0, "replay", "verify", "--shard", "s1", "--repair", "--yes"); len(tables()) != 0 {
		t.Errorf("verified against the log: tables %v\n%s", tables(), out)
	}
	if dead := w.run(t, 0, "dlq", "list", "-o", "json"); strings.Contains(dead, "UA") {
		t.Errorf("dead letters:\n%s", dead)
	}
	if r := run.Stop(t, 30*time.Second); r.Code != 0 {
		t.Errorf("slotline run ended with status %d", r.Code)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{`"name":"apply ` + w.cfg.Kafka.Topic + `"`, `"slotline.sink","value":{"stringValue":"mysql"}`,
		`"slotline.sink","value":{"stringValue":"clickhouse"}`, `"name":"publish ` + w.cfg.Kafka.Topic + `"`} {
		if !strings.Contains(spans.String(), want) {
			t.Errorf("no span with %s in\n%s", want, &spans)
		}
	}
	for id := 1; id <= 5; id++ { // linked to by the relay and both sinks
		if n := strings.Count(spans.String(), fmt.Sprintf(`{"traceId":"%032x","spanId":"%016x"}`, id, id)); n != 3 {
			t.Errorf("trace %d has %d links, wanted 3", id, n)
		}
	}
}
