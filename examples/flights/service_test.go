package main

import (
	"bytes"
	"encoding/json"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/outbox/outboxtest"
	"github.com/slotline/slotline/producer"
)

// start makes the service on a database in the test's process.
func start(t *testing.T) (*outboxtest.Outbox, *service) {
	t.Helper()
	cfg, err := config.Load("slotline.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cfg.File = "/etc/secret-path/slotline.yaml"
	out := outboxtest.New(t, cfg)
	s, err := newService(cfg, out.DB)
	if err != nil {
		t.Fatal(err)
	}
	return out, s
}

// ask sends one request, and returns the answer's status and body, and what was logged.
func ask(t *testing.T, s *service, method, path, body string) (status int, text, logged string) {
	t.Helper()
	var lines bytes.Buffer
	log.SetOutput(&lines)
	defer log.SetOutput(os.Stderr)
	w := httptest.NewRecorder()
	s.routes().ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w.Code, w.Body.String(), lines.String()
}

// Each step of a flight's life emits its image in the transaction that makes it; a step that is refused emits nothing.
func TestEachStepEmitsItsImage(t *testing.T) {
	out, s := start(t)
	stored := Flight{Carrier: "UA", FlightID: 1545, SchedDep: time.Now().UTC().Truncate(time.Second), Origin: "JFK", Status: scheduled}
	out.Answer(func(statement string, args []any) (outboxtest.Answer, error) {
		row := []any{stored.Carrier, stored.FlightID, stored.SchedDep, stored.Origin, stored.Status, nil}
		return outboxtest.Answer{Affected: 1, Columns: make([]string, len(row)), Rows: [][]any{row}}, nil
	})
	eleven := int32(11)
	for _, c := range []struct {
		from, method, path, body string
		status                   int
		want                     func(f Flight) producer.Event
	}{
		{"", "POST", "/flights", `{"carrier":"UA","flight_id":1545,"sched_dep":"` + stored.SchedDep.Format(time.RFC3339) + `","origin":"JFK"}`, 200,
			func(f Flight) producer.Event { f.Status = scheduled; return s.flights.Upsert(f) }},
		{scheduled, "POST", "/flights/UA/1545/depart", "", 200,
			func(f Flight) producer.Event { f.Status = departed; return s.flights.Upsert(f) }},
		{departed, "POST", "/flights/UA/1545/arrive", `{"arr_delay":11}`, 200,
			func(f Flight) producer.Event {
				f.Status, f.ArrDelay = arrived, &eleven
				return s.flights.Upsert(f)
			}},
		{scheduled, "POST", "/flights/UA/1545/cancel", "", 200,
			func(f Flight) producer.Event { f.Status, f.Cancelled = cancelled, true; return s.flights.Upsert(f) }},
		{scheduled, "POST", "/flights/UA/1545/arrive", "", 409, nil},
		{arrived, "POST", "/flights/UA/1545/depart", "", 409, nil},
		{scheduled, "GET", "/flights/UA/1545", "", 200, nil},
		{departed, "DELETE", "/flights/UA/1545", "", 200, func(f Flight) producer.Event { return s.flights.Delete(f) }},
		{"", "PUT", "/airports/JFK", `{"name":"Kennedy"}`, 200,
			func(Flight) producer.Event { return s.airports.Upsert(Airport{Code: "JFK", Name: "Kennedy"}) }},
	} {
		stored.Status = c.from
		status, text, _ := ask(t, s, c.method, c.path, c.body)
		if status != c.status {
			t.Errorf("%s %s: %d %s", c.method, c.path, status, text)
		}
		var want []outboxtest.Wanted
		if c.want != nil {
			want = append(want, c.want(stored))
		}
		out.Want(t, want...)
	}
}

// The answers that README.md lists. None shows a client where the file is, what MySQL said, or what an operator is to do.
func TestAnswers(t *testing.T) {
	flightAt := func(dep string) string {
		return `{"carrier":"UA","flight_id":1545,"sched_dep":"` + dep + `","origin":"JFK"}`
	}
	now := flightAt(time.Now().UTC().Format(time.RFC3339))
	tooLong := &mysql.MySQLError{Number: 1406, Message: "Data too long for column"}
	for _, c := range []struct {
		name, method, path, body string
		failing                  string // the statement's first word, or nothing
		with                     error
		behind                   bool
		status                   int
		text, logged             string // what the client is told, and what only the log says
	}{
		{name: "taken", method: "PUT", path: "/airports/JFK", body: `{"name":"Kennedy"}`, status: 200},
		{name: "code too long", method: "PUT", path: "/airports/JFKX", body: `{"name":"Kennedy"}`, failing: "INSERT", with: tooLong,
			status: 422, text: "column code"},
		{name: "month", method: "POST", path: "/flights", body: flightAt("1815-06-18T11:35:00Z"),
			status: 422, text: "column sched_dep", logged: "lower months.from in /etc/secret-path"},
		{name: "name too long", method: "PUT", path: "/airports/JFK", body: `{"name":"` + strings.Repeat("x", 81) + `"}`,
			status: 422, text: "column name"},
		{name: "no JSON", method: "POST", path: "/flights", body: "{", status: 400, text: "EOF"},
		{name: "there already", method: "POST", path: "/flights", body: now, failing: "INSERT",
			with: &mysql.MySQLError{Number: 1062, Message: "Duplicate entry"}, status: 409, text: "there already"},
		{name: "no number", method: "GET", path: "/flights/UA/x", status: 400, text: "not a number"},
		{name: "database", method: "POST", path: "/flights", body: now, failing: "INSERT",
			with: &mysql.MySQLError{Number: 1142, Message: "denied to 'app'@'10.0.0.7'"}, status: 500, text: "nothing was changed", logged: "10.0.0.7"},
		{name: "commit", method: "POST", path: "/flights", body: now, failing: "COMMIT",
			with: mysql.ErrInvalidConn, status: 500, text: "not known", logged: "SL5102"},
		{name: "backlogged", method: "POST", path: "/flights", body: now, behind: true,
			status: 503, text: "try again later", logged: "slotline relay"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, s := start(t)
			out.Backlogged(c.behind)
			out.Answer(func(statement string, _ []any) (outboxtest.Answer, error) {
				if c.failing != "" && strings.HasPrefix(statement, c.failing) {
					return outboxtest.Answer{}, c.with
				}
				return outboxtest.Answer{Affected: 1}, nil
			})
			status, body, logged := ask(t, s, c.method, c.path, c.body)
			if events := out.Take(); (len(events) > 0) != (status == http.StatusOK) {
				t.Errorf("%d events were emitted with an answer of %d", len(events), status)
			}
			var answer struct{ Error string }
			if err := json.Unmarshal([]byte(body), &answer); err != nil {
				t.Fatalf("%s: %v", body, err)
			}
			text := answer.Error
			if status != c.status || !strings.Contains(text, c.text) || !strings.Contains(logged, c.logged) {
				t.Errorf("%d %q, wanted %d with %q; logged %q, wanted %q", status, text, c.status, c.text, logged, c.logged)
			}
			for _, ours := range []string{"/etc/", "Data too long", "Duplicate entry", "denied", "do:", "slotline ", "\n"} {
				if strings.Contains(text, ours) {
					t.Errorf("a client is told %q", text)
				}
			}
			if status == http.StatusOK && logged != "" {
				t.Errorf("logged %q", logged)
			}
		})
	}
}

// Whatever FLIGHTS_DSN says, times are read as times, in UTC.
func TestConnectorReadsTimes(t *testing.T) {
	for _, dsn := range []string{"app:x@tcp(db)/flights", "app:x@tcp(db)/flights?parseTime=false&loc=Local"} {
		c, err := mysql.ParseDSN(dsn)
		if err != nil {
			t.Fatal(err)
		}
		utcTimes(c)
		if !c.ParseTime || c.Loc != time.UTC {
			t.Errorf("%s: %+v", dsn, c)
		}
	}
	_, err := connectorOf("app:hunter2@db")
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v", err)
	}
}
