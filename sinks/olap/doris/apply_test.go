package doris

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/sinks/olap/doris/doristest"
	"github.com/slotline/slotline/sinks/olap/intent"
	"github.com/slotline/slotline/sinks/olap/rollup"
)

// scripted is a group whose answers a test chooses.
type scripted struct {
	group
	pending       *intent.Intent
	begin, commit error
	begun         int
	ranges        []event.Range
	confirmed     *intent.Intent
}

func (g *scripted) Pending() *intent.Intent { return g.pending }

func (g *scripted) Begin(_ context.Context, ranges []event.Range, excluded []intent.Excluded) (*intent.Intent, error) {
	g.begun++
	return &intent.Intent{Ranges: ranges, Excluded: excluded}, g.begin
}

func (g *scripted) CommitTouched(_ context.Context, i *intent.Intent, ranges []event.Range, _ []rollup.Touched) error {
	g.confirmed, g.ranges = i, ranges
	return g.commit
}

// rows are columns of a table or view, sorted, "|" between.
func rows(t testing.TB, s *Sink, columns, from string) []string {
	t.Helper()
	names := strings.Split(columns, ",")
	list, err := s.rows(t.Context(), "SELECT "+identList(names)+" FROM "+ident(from), len(names))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range list {
		out = append(out, strings.Join(r, "|"))
	}
	slices.Sort(out)
	return out
}

func wantRows(t testing.TB, s *Sink, columns, from string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := rows(t, s, columns, from); !slices.Equal(got, want) {
		t.Errorf("%s has\n  %s\nwanted\n  %s", from, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// apply applies a batch as consumers do: rejected messages are excluded and the batch is prepared again. It tries again
// at most tries times, and returns what was rejected, and the last error.
func apply(t testing.TB, o *owned, b *event.Batch, tries int) (all []event.Rejected, last error) {
	t.Helper()
	p, err := o.Prepare(b)
	if err != nil {
		t.Fatal(err)
	}
	for range tries {
		r, err := p.Apply(t.Context())
		last = err
		if err != nil {
			if !fault.Is(err, fault.Transient) {
				return all, err
			}
			continue
		}
		if len(r) == 0 {
			return all, nil
		}
		all = append(all, r...)
		if b.Excluded == nil {
			b.Excluded = map[int]bool{}
		}
		for _, x := range r {
			if b.Excluded[x.Index] {
				t.Fatalf("message %d is rejected twice", x.Index)
			}
			b.Excluded[x.Index] = true
		}
		if p, err = o.Prepare(b); err != nil {
			t.Fatal(err)
		}
		last = errors.New("not applied within the tries")
	}
	return all, last
}

func twoFlights(t testing.TB, s *Sink) *event.Batch {
	m := &maker{t: t, sink: s}
	return batchOf(m.flight(1, 1, november, "JFK"), m.flight(2, 1, november, "LAX"))
}

// A load as it is meant: the frontend's redirect to another host is followed with our own user and password, the body
// goes once, and rows of every type are what they were.
func TestLoad(t *testing.T) {
	s, server := served(t)
	m := &maker{t: t, sink: s}
	messages := []event.Message{m.flight(1, 1, november, "JFK"), m.flight(2, 1, november.AddDate(0, -1, 0), "LAX"),
		m.message("flights", event.Delete, 4, event.Value{Bytes: []byte("UA")}, event.Value{Uint: 3}, event.Value{Int: november.UnixMicro()},
			event.Value{Null: true}, event.Value{Null: true}, event.Value{Null: true}, event.Value{Null: true}),
		m.message("passengers", event.Upsert, 1, event.Value{Null: true}, event.Value{Bytes: []byte("UA")}, event.Value{Uint: 1<<64 - 1}, event.Value{Bytes: []byte("\\N\x01\"\n")})}
	g := &scripted{}
	if r, err := apply(t, &owned{sink: s, group: g}, batchOf(messages...), 1); err != nil || len(r) > 0 {
		t.Fatalf("%v, %v", r, err)
	}
	wantRows(t, s, "carrier,flight_id,sched_dep,origin,cancelled,arr_delay,fare,_month,_ver", "flights_now",
		"UA|1|2026-11-30 12:00:00.000000|JFK|1||12.50|2026-11-01|2", "UA|2|2026-10-30 12:00:00.000000|LAX|1||12.50|2026-10-01|2")
	wantRows(t, s, "flight_id,origin,_ver,_deleted", "flights", "1|JFK|2|0", "2|LAX|2|0", "3||9|1")
	wantRows(t, s, "passenger_id,name", "passengers_now", "18446744073709551615|\\N\x01\"\n")
	loads := server.Loads()
	if len(loads) != 2 {
		t.Fatalf("%d loads for two tables", len(loads))
	}
	got := loads[0].Header.Clone()
	for _, name := range []string{"Authorization", "Label", "User-Agent", "Content-Length", "Accept-Encoding", "Connection"} {
		got.Del(name)
	}
	want := http.Header{"Expect": {"100-continue"}, "Format": {"json"}, "Read_json_by_line": {"true"}, "Strict_mode": {"true"}, "Max_filter_ratio": {"0"},
		"Timezone": {"UTC"}, "Timeout": {"600"}, "Columns": {s.tables[0].columns}, "Content-Type": {"text/plain"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("headers\n%v, wanted\n%v", got, want)
	}
	if g.begun != 1 || g.confirmed == nil {
		t.Errorf("%+v", g)
	}
}

// Where a frontend redirects to, whatever stands in the address before the host, and however it is written.
func TestRedirected(t *testing.T) {
	from, err := url.Parse("https://fe1:8030/api/d/t/_stream_load")
	if err != nil {
		t.Fatal(err)
	}
	for location, want := range map[string]string{
		"http://ro%40ot:a:b@10.0.0.5:8040/api/d/t/_stream_load?":      "http://10.0.0.5:8040/api/d/t/_stream_load?",
		"http://root:@[fe80::1]:8040/api/d/t/_stream_load?":           "http://[fe80::1]:8040/api/d/t/_stream_load?",
		"http://u%2Fx:%zz+&=p@be:8040/api/d/t/_stream_load?label=x%2": "http://be:8040/api/d/t/_stream_load?label=x%2",
		"https://be:8040/x": "https://be:8040/x",
		"/api/d/t/other":    "https://fe1:8030/api/d/t/other",
		"":                  "",
		"ftp://u:p@be/x":    "",
		"http://u:p@[bad/x": "",
		"http:///x":         "",
	} {
		got, err := redirected(from, location)
		if got != want || (err == nil) != (want != "") || err != nil && err.Error() != "a redirect to nowhere" {
			t.Errorf("%q: %q, %v; wanted %q", location, got, err, want)
		}
	}
}

// An entity is found by its key, deleted or not, whatever its texts hold.
func TestFind(t *testing.T) {
	s, _ := served(t)
	m := &maker{t: t, sink: s}
	const odd = `it's \ "x"`
	b := batchOf(m.flight(1, 3, november, "JFK"),
		m.message("scans", event.Upsert, 2, event.Value{Bytes: []byte(odd)}, event.Value{Int: november.Sub(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)).Milliseconds() << 22},
			event.Value{}, event.Value{Null: true}, event.Value{}, event.Value{}),
		m.message("airports", event.Delete, 4, event.Value{Bytes: []byte("JFK")}, event.Value{Null: true}))
	if r, err := apply(t, &owned{sink: s, group: &scripted{}}, b, 1); err != nil || len(r) > 0 {
		t.Fatal(r, err)
	}
	scan := fmt.Sprint(november.Sub(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)).Milliseconds() << 22)
	for _, c := range []struct {
		table      int
		tenant, id string
		want       int64
	}{{0, "UA", "1", 6}, {0, "UA", "2", 0}, {0, "DL", "1", 0}, {2, odd, scan, 4}, {4, "", "JFK", 9}, {4, "", "LAX", 0}} {
		if got, err := s.Find(t.Context(), s.tables[c.table].Table, c.tenant, c.id); got != c.want || err != nil {
			t.Errorf("%s %s %s: %d, %v, wanted %d", s.tables[c.table].Name, c.tenant, c.id, got, err, c.want)
		}
	}
}

// Each thing that can go wrong with one attempt, once: the batch is applied by the next tries, the rows are there once,
// and nothing became a dead letter. P9: label and sequence make it safe to send again whatever was lost.
func TestP9_DorisLoadIsSentAgain(t *testing.T) {
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	success := func(label string) string {
		return fmt.Sprintf(`{"Label":%q,"Status":"Success","Message":"OK","NumberTotalRows":2,"NumberLoadedRows":2,"NumberFilteredRows":0}`, label)
	}
	for name, c := range map[string]struct {
		fault doristest.Fault
		says  string // of the error of the first try; "" if there is none
		loads int    // that reach a backend in all
	}{
		"reply lost after the commit":           {doristest.Fault{CutReply: true}, "waits since", 2},
		"wrong answer after the commit":         {doristest.Fault{Reply: &doristest.Answer{Status: 200, Body: success("another")}}, "another", 2},
		"a page after the commit":               {doristest.Fault{Reply: &doristest.Answer{Status: 502, Body: "<html><h1>Bad Gateway</h1>"}}, "Bad Gateway", 2},
		"a proxy's 503":                         {doristest.Fault{BE: &doristest.Answer{Status: 503, Body: "<html>no upstream"}}, "503", 2},
		"a frontend's proxy's 503":              {doristest.Fault{FE: &doristest.Answer{Status: 503, Body: "<html>no upstream"}}, "503", 2},
		"no backend":                            {doristest.Fault{FE: &doristest.Answer{Status: 200, Body: `{"status":"FAILED","msg":"errCode = 2, detailMessage = No backend available for load"}`}}, "No backend", 2},
		"a frontend that hangs up":              {doristest.Fault{CutFE: true}, "waits since", 1},
		"307 to a dead backend":                 {doristest.Fault{RedirectTo: dead.Addr().String()}, "refused", 1},
		"a backend that hangs up":               {doristest.Fault{CutBegin: true}, "waits since", 2},
		"network cut in the body":               {doristest.Fault{CutBody: 50}, "", 2},
		"too many versions":                     {doristest.Fault{Fail: "[INTERNAL_ERROR]tablet error: [E-235]failed to init rowset builder. version count: 2001"}, "compaction", 2},
		"transaction timed out":                 {doristest.Fault{Fail: "[ANALYSIS_ERROR]TStatus: errCode = 2, detailMessage = transaction [1] is already aborted. abort reason: timeout by txn manager"}, "aborted", 2},
		"something new":                         {doristest.Fault{Fail: "[INTERNAL_ERROR]odd"}, "odd", 2},
		"publish timeout is no failure":         {doristest.Fault{PublishTimeout: closed()}, "", 1},
		"redirect to nowhere, with a password":  {doristest.Fault{RedirectTo: "[bad"}, "nowhere", 1},
		"an answer that the network cut short":  {doristest.Fault{Reply: &doristest.Answer{Status: 200, Body: `{"Label":"x","Status":"Succ`}}, "not Doris's", 2},
		"a success with no rows, under a label": {doristest.Fault{BE: &doristest.Answer{Status: 200, Body: success("other")}}, "other", 2},
	} {
		t.Run(name, func(t *testing.T) {
			s, server := served(t)
			var first atomic.Value // label
			var tried atomic.Bool
			server.Inject(func(l doristest.Load) doristest.Fault {
				// A frontend is asked before its backend: both belong to one try.
				first.CompareAndSwap(nil, l.Label)
				if l.Try == 1 && !tried.Load() {
					return c.fault
				}
				return doristest.Fault{}
			})
			o := &owned{sink: s, group: &scripted{}}
			p, err := o.Prepare(twoFlights(t, s))
			if err != nil {
				t.Fatal(err)
			}
			_, err = p.Apply(t.Context())
			tried.Store(true)
			if c.says != "" {
				if !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), c.says) || fault.CodeOf(err) != codeWaits {
					t.Fatalf("the first try: %v; wanted %q", err, c.says)
				}
				if strings.Contains(err.Error(), doristest.Password) || strings.Contains(err.Error(), "s3cr3t") {
					t.Fatalf("the error holds the password: %v", err)
				}
			}
			for range 50 { // until the server has noticed what was cut
				if err == nil {
					break
				}
				if _, err = p.Apply(t.Context()); err != nil && !fault.Is(err, fault.Transient) {
					t.Fatal(err)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(10 * time.Second); server.State("flights", first.Load().(string)) == "COMMITTED" && time.Now().Before(end); {
				time.Sleep(time.Millisecond) // what was committed is published a moment later
			}
			wantRows(t, s, "flight_id,origin,_ver", "flights_now", "1|JFK|2", "2|LAX|2")
			loads := server.Loads()
			if len(loads) < c.loads || c.loads == 1 && len(loads) > 1 {
				t.Errorf("%d loads reached a backend, wanted %d", len(loads), c.loads)
			}
			for _, l := range loads {
				if l.Label != first.Load() {
					t.Errorf("sent again under another label: %s, first %v", l.Label, first.Load())
				}
			}
			if got := server.State("flights", first.Load().(string)); got != "VISIBLE" {
				t.Errorf("the label's load is %s", got)
			}
		})
	}
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// The body is not sent where it cannot be used: for a label that is taken, and to the frontend.
func TestLoadOfATakenLabelCostsNoUpload(t *testing.T) {
	s, server := served(t)
	server.Inject(func(l doristest.Load) doristest.Fault { return doristest.Fault{CutReply: l.Try == 1} })
	o := &owned{sink: s, group: &scripted{}}
	p, err := o.Prepare(twoFlights(t, s))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Apply(t.Context()); !fault.Is(err, fault.Transient) {
		t.Fatal(err)
	}
	uploaded := server.BodyBytes()
	if _, size := p.Size(); uploaded != int64(size) {
		t.Errorf("%d bytes were uploaded for %d", uploaded, size)
	}
	if _, err := p.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	if server.BodyBytes() != uploaded {
		t.Error("the body of a taken label was uploaded again")
	}
}

// A server that answers, or hangs up, before it has the whole body: once Apply returns, the buffers are used for other
// rows, so nothing may read them any more. The race detector sees it.
func TestBuffersAreFreeAfterAnEarlyAnswer(t *testing.T) {
	s, server := served(t)
	server.Inject(func(l doristest.Load) doristest.Fault { return doristest.Fault{CutBody: 1000} })
	m := &maker{t: t, sink: s}
	var messages []event.Message
	for i := range uint64(2000) {
		messages = append(messages, m.message("scans", event.Upsert, 1, event.Value{Bytes: []byte("c")}, event.Value{Int: int64(november.Sub(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)).Milliseconds()<<22 + int64(i))},
			event.Value{Bytes: make([]byte, 100)}, event.Value{Null: true}, event.Value{Bytes: []byte(strings.Repeat("long ", 1000))}, event.Value{Float: 1.5}))
	}
	p, err := (&owned{sink: s, group: &scripted{}}).Prepare(batchOf(messages...))
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := p.Apply(t.Context()); !fault.Is(err, fault.Transient) {
			t.Fatal(err)
		}
		for i := range p.(*prepared).set {
			clear(p.(*prepared).set[i].data)
		}
	}
}

// A label whose load runs: it is waited for, whatever it ends with. A load that was sent by somebody who died ends by
// Doris's time-out, and ours follows under the same label.
func TestLoadWaitsForItsLabel(t *testing.T) {
	for _, end := range []string{"VISIBLE", "ABORTED"} {
		t.Run(end, func(t *testing.T) {
			s, server := served(t)
			release := make(chan struct{})
			var held doristest.Fault
			server.Inject(func(l doristest.Load) doristest.Fault {
				if l.Try == 1 {
					return held
				}
				return doristest.Fault{}
			})
			held = doristest.Fault{Hold: release}
			if end == "ABORTED" {
				held.Fail = "[INTERNAL_ERROR]cancelled"
			}
			b := twoFlights(t, s)
			prepared := func() event.Prepared {
				p, err := (&owned{sink: s, group: &scripted{}}).Prepare(b)
				if err != nil {
					t.Fatal(err)
				}
				return p
			}
			first, second := make(chan error, 1), make(chan error, 1)
			go func() {
				_, err := prepared().Apply(t.Context())
				first <- err
			}()
			waitFor(t, func() bool { return server.BodyBytes() > 0 })
			go func() {
				p := prepared()
				_, err := p.Apply(t.Context())
				if err != nil { // it was aborted: again
					_, err = p.Apply(t.Context())
				}
				second <- err
			}()
			waitFor(t, func() bool { return len(server.Loads()) == 2 })
			select {
			case err := <-second:
				t.Fatalf("a running load was taken for one that ended: %v", err)
			default:
			}
			close(release)
			if err := <-first; (err == nil) != (end == "VISIBLE") {
				t.Errorf("the first: %v", err)
			}
			if err := <-second; err != nil {
				t.Errorf("the second: %v", err)
			}
			wantRows(t, s, "flight_id", "flights_now", "1", "2")
		})
	}
}

// A label that Doris has forgotten loads its rows again, which changes nothing: also when newer rows came meanwhile.
func TestP9_DorisForgottenLabelChangesNothing(t *testing.T) {
	s, server := served(t)
	b := twoFlights(t, s)
	o := &owned{sink: s, group: &scripted{}}
	if _, err := apply(t, o, b, 1); err != nil {
		t.Fatal(err)
	}
	m := &maker{t: t, sink: s, next: 10}
	if _, err := apply(t, o, batchOf(m.flight(1, 7, november, "EWR")), 1); err != nil {
		t.Fatal(err)
	}
	want := []string{"1|EWR|14", "2|LAX|2"}
	wantRows(t, s, "flight_id,origin,_ver", "flights_now", want...)
	server.ForgetLabels("flights")
	before := server.BodyBytes()
	if _, err := apply(t, o, b, 1); err != nil {
		t.Fatal(err)
	}
	if server.BodyBytes() == before {
		t.Error("the label was not forgotten: the test shows nothing")
	}
	wantRows(t, s, "flight_id,origin,_ver", "flights_now", want...)
}

// Frontends are tried in turn, and the one that answered is asked first from then on.
func TestFrontendsFailOver(t *testing.T) {
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	made, server := served(t)
	_ = made
	s := sinkAt(t, server.QueryPort(), dead.Addr().String(), server.FE())
	var log strings.Builder
	s.loader.log = slog.New(slog.NewTextHandler(&log, nil))
	for round := range 3 {
		m := &maker{t: t, sink: s, next: int64(10 * round)}
		if _, err := apply(t, &owned{sink: s, group: &scripted{}}, batchOf(m.flight(uint64(round), 1, november, "JFK")), 1); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), "using the next"); n != 1 || strings.Contains(log.String(), "s3cr3t") {
		t.Errorf("said %d times:\n%s", n, &log)
	}
	if got := len(rows(t, s, "flight_id", "flights_now")); got != 3 {
		t.Errorf("%d rows", got)
	}
}

// Refusals that no retry mends: by class, by text, and without the password.
func TestLoadThatCannotBe(t *testing.T) {
	for name, c := range map[string]struct {
		fault doristest.Fault
		class fault.Class
		code  string
		says  string
	}{
		"table":     {doristest.Fault{BE: &doristest.Answer{Status: 200, Body: `{"Status":"Fail","Message":"[NOT_FOUND]TStatus: errCode = 2, detailMessage = table not found, tableName=flights"}`}}, fault.Fatal, codeFatal, "slotline apply"},
		"database":  {doristest.Fault{BE: &doristest.Answer{Status: 200, Body: `{"Status":"Fail","Message":"[NOT_FOUND]TStatus: errCode = 2, detailMessage = unknown database, database=flights"}`}}, fault.Usage, codeDatabase, "CREATE DATABASE"},
		"user":      {doristest.Fault{FE: &doristest.Answer{Status: 200, Body: `{"msg":"Unauthorized","code":401,"data":"Access denied for user 'slotline@1.2.3.4' (using password: YES)","count":0}`}}, fault.Usage, codeLogin, "sinks.doris.password"},
		"privilege": {doristest.Fault{FE: &doristest.Answer{Status: 200, Body: `{"status":"FAILED","msg":"errCode = 2, detailMessage = Access denied; you need (at least one of) the (LOAD) privilege(s) for this operation"}`}}, fault.Fatal, codeDenied, "--grants"},
		"size":      {doristest.Fault{FE: &doristest.Answer{Status: 413, Body: "<html>Request Entity Too Large</html>"}}, fault.Fatal, codeFatal, "batch_bytes"},
		"fewer":     {doristest.Fault{Reply: &doristest.Answer{Status: 200, Body: `{"Label":"%s","Status":"Success","NumberTotalRows":1,"NumberLoadedRows":1}`}}, fault.Fatal, codeFatal, "1 of 2 rows"},
	} {
		s, server := served(t)
		server.Inject(func(l doristest.Load) doristest.Fault {
			f := c.fault
			if f.Reply != nil {
				f.Reply = &doristest.Answer{Status: 200, Body: fmt.Sprintf(f.Reply.Body, l.Label)}
			}
			return f
		})
		s.verified.Store(true)
		_, err := apply(t, &owned{sink: s, group: &scripted{}}, twoFlights(t, s), 1)
		if fault.ClassOf(err) != c.class || fault.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "table flights") {
			t.Errorf("%s: %v (%s), wanted %s %s with %q", name, err, fault.ClassOf(err), c.class, c.code, c.says)
		}
		if s.verified.Load() {
			t.Errorf("%s: the next take-over does not look at the tables", name)
		}
	}
}

// P7: single rows that the server refuses become dead letters, whether it names them or not; the others are loaded, and
// of their entities the next lower versions.
func TestP7_DorisBadRowsAlone(t *testing.T) {
	for _, named := range []bool{true, false} {
		t.Run(fmt.Sprintf("named %t", named), func(t *testing.T) {
			s, server := served(t)
			server.Inject(func(doristest.Load) doristest.Fault {
				return doristest.Fault{NoErrorLog: !named, BadRow: func(line []byte) string {
					if strings.Contains(string(line), `"BAD"`) {
						return "column(origin) value is incorrect"
					}
					return ""
				}}
			})
			m := &maker{t: t, sink: s}
			var messages []event.Message
			var want []string
			for i := range uint64(40) {
				messages = append(messages, m.flight(i, 1, november, "JFK"))
				if i == 7 || i == 8 || i == 33 {
					messages = append(messages, m.flight(i, 2, november, "BAD"))
				}
				want = append(want, fmt.Sprintf("%d|JFK|2", i))
			}
			messages = append(messages, m.flight(99, 1, november, "BAD")) // nothing is left of this entity
			g := &scripted{}
			r, err := apply(t, &owned{sink: s, group: g}, batchOf(messages...), 5)
			if err != nil || len(r) != 4 {
				t.Fatalf("%d rejected: %v, %v", len(r), r, err)
			}
			for _, x := range r {
				if !strings.Contains(string(messages[x.Index].Value), "BAD") || x.Reason != "refused" || !fault.Is(x.Err, fault.Data) || fault.CodeOf(x.Err) != codeRow {
					t.Errorf("message %d: %s %v", x.Index, x.Reason, x.Err)
				}
				if named && !strings.Contains(x.Err.Error(), "column(origin) value is incorrect") {
					t.Errorf("the reason is lost: %v", x.Err)
				}
			}
			wantRows(t, s, "flight_id,origin,_ver", "flights_now", want...)
			if g.confirmed == nil || len(g.confirmed.Excluded) != 1 || len(g.confirmed.Excluded[0].Offsets) != 4 {
				t.Errorf("confirmed %+v", g.confirmed)
			}
			if n := len(server.Loads()); named && n > 2 {
				t.Errorf("%d loads, though the rows were named", n)
			}
		})
	}
}

// A flood of bad rows that the server does not name is not halved to its end: the dead letters of some of them halt the
// partition, or the rest is found in the next try.
func TestP7_DorisFloodOfBadRowsIsNotHalvedToItsEnd(t *testing.T) {
	s, server := served(t)
	server.Inject(func(doristest.Load) doristest.Fault {
		return doristest.Fault{NoErrorLog: true, BadRow: func([]byte) string { return "column(origin) value is incorrect" }}
	})
	m := &maker{t: t, sink: s}
	var messages []event.Message
	for i := range uint64(500) {
		messages = append(messages, m.flight(i, 1, november, "JFK"))
	}
	p, err := (&owned{sink: s, group: &scripted{}}).Prepare(batchOf(messages...))
	if err != nil {
		t.Fatal(err)
	}
	bad, err := p.Apply(t.Context())
	if err != nil || len(bad) < halvedMax || len(bad) >= 2*halvedMax {
		t.Errorf("%d rows are found, %v", len(bad), err)
	}
	if n := len(server.Loads()); n > 5*halvedMax {
		t.Errorf("%d loads to find them", n)
	}
}

// A table that somebody changes under the sink refuses rows that are good: it is halted, and no row is a dead letter.
func TestP7_DorisChangedTableIsNoRowsFault(t *testing.T) {
	s, _ := served(t)
	if err := s.verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.exec(t.Context(), "ALTER TABLE `flights` MODIFY COLUMN `origin` varchar(2) NOT NULL"); err != nil {
		t.Fatal(err)
	}
	r, err := apply(t, &owned{sink: s, group: &scripted{}}, twoFlights(t, s), 1)
	if len(r) > 0 || !fault.Is(err, fault.Fatal) || fault.CodeOf(err) != codeTable || !strings.Contains(err.Error(), "column origin is varchar(2) NOT NULL") {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := s.TakeOver(t.Context(), s.Groups()[0]); fault.CodeOf(err) != codeTable {
		t.Errorf("taken over: %v", err)
	}
}

// P7: events that no table can hold come back before anything is stored or sent; a batch of them alone then advances
// without an intent, since there is nothing to send.
func TestP7_DorisRejectedBeforeAnythingIsStored(t *testing.T) {
	s := testSink(t)
	g := &scripted{}
	o := &owned{sink: s, group: g}
	b := badBatch(t, s)
	p, err := o.Prepare(b)
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Apply(t.Context())
	if err != nil || len(r) != 1 || r[0].Index != 0 || r[0].Reason != event.ReasonMissing {
		t.Fatalf("%v, %v", r, err)
	}
	if g.begun != 0 || g.ranges != nil {
		t.Error("something was stored")
	}
	b.Excluded = map[int]bool{0: true}
	if p, err = o.Prepare(b); err != nil {
		t.Fatal(err)
	}
	for range 2 { // also again
		if r, err := p.Apply(t.Context()); err != nil || len(r) > 0 {
			t.Fatalf("%v, %v", r, err)
		}
	}
	if g.begun != 0 || g.confirmed != nil || len(g.ranges) != 1 {
		t.Errorf("an empty batch: %+v", g)
	}
}

// badBatch holds one event, which no table can hold.
func badBatch(t *testing.T, s *Sink) *event.Batch {
	m := &maker{t: t, sink: s}
	bad := m.flight(1, 1, november, "JFK")
	bad.Value = []byte("{}")
	return batchOf(bad)
}

// A batch that is pending is confirmed under its own intent even if nothing of it is left to send, and what it left out
// is left out again.
func TestPendingIsConfirmedThoughEmpty(t *testing.T) {
	s := testSink(t)
	b := badBatch(t, s)
	g := &scripted{pending: &intent.Intent{Ranges: b.Ranges, Excluded: []intent.Excluded{{Partition: b.Messages[0].Partition, Offsets: []int64{0}}}}}
	if r, err := apply(t, &owned{sink: s, group: g}, b, 1); err != nil || len(r) > 0 {
		t.Fatalf("%v, %v", r, err)
	}
	if g.begun != 1 || g.confirmed == nil || len(g.confirmed.Excluded) != 1 {
		t.Errorf("%+v", g)
	}
}

// A batch whose first table is loaded when the second fails sends only the second again.
func TestAcknowledgedBlocksAreNotSentAgain(t *testing.T) {
	s, server := served(t)
	server.Inject(func(l doristest.Load) doristest.Fault {
		if l.Table == "airports" && l.Try == 1 {
			return doristest.Fault{Fail: "[INTERNAL_ERROR]odd"}
		}
		return doristest.Fault{}
	})
	m := &maker{t: t, sink: s}
	b := batchOf(m.flight(1, 1, november, "JFK"), m.message("airports", event.Upsert, 1, event.Value{Bytes: []byte("JFK")}, event.Value{Null: true}))
	if _, err := apply(t, &owned{sink: s, group: &scripted{}}, b, 2); err != nil {
		t.Fatal(err)
	}
	var tables []string
	for _, l := range server.Loads() {
		tables = append(tables, l.Table)
	}
	if !slices.Equal(tables, []string{"flights", "airports", "airports"}) {
		t.Errorf("loads %v", tables)
	}
}

// What went wrong decides who acts: the consumer by class, a person by the text.
func TestSettle(t *testing.T) {
	s := testSink(t)
	p := &prepared{ranges: []event.Range{{Partition: event.Partition{Topic: "flights.events", Number: 3}, From: 77}}}
	insert := func(err error) error { return &insertError{&block{table: s.tables[0]}, err} }
	for _, c := range []struct {
		name  string
		err   error
		class fault.Class
		code  string
		want  string
	}{
		{"connection lost", insert(io.ErrUnexpectedEOF), fault.Transient, codeWaits, "partition 3 offset 77 waits since"},
		{"something else", insert(errors.New("odd")), fault.Transient, codeWaits, "odd"},
		{"state database", io.ErrUnexpectedEOF, fault.Transient, codeWaits, "no event is lost"},
		{"fenced", &fault.Error{Code: "SL4205", Class: fault.Fenced, What: "taken over"}, fault.Fenced, "SL4205", "taken over"},
		{"foreign progress", &fault.Error{Code: "SL4206", Class: fault.Fatal, What: "somebody"}, fault.Fatal, "SL4206", "somebody"},
		{"another table", insert(&fault.Error{Code: codeTable, Class: fault.Fatal, What: "is not there"}), fault.Fatal, codeTable, "is not there"},
	} {
		err := (&owned{sink: s}).settle(p, c.err)
		if fault.ClassOf(err) != c.class || fault.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %s\nclass %s, wanted %s %s with %q", c.name, err, fault.ClassOf(err), c.class, c.code, c.want)
		}
	}
	rewound := &event.Rewound{}
	if err := (&owned{sink: s}).settle(p, rewound); err != error(rewound) {
		t.Errorf("rewound became %v", err)
	}
	o := &owned{sink: s}
	for n := range 3 {
		if err := o.settle(p, insert(io.EOF)); n == 2 && !strings.Contains(err.Error(), "tries: 3") {
			t.Errorf("the third try says %v", err)
		}
	}
}

// waitFor waits for what another goroutine does.
func waitFor(t testing.TB, done func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); {
		if time.Now().After(end) {
			t.Fatal("it did not happen within 20 s")
		}
		time.Sleep(time.Millisecond)
	}
}
