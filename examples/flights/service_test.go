package main

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
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
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/producer"
)

// fakeDB answers no query; fail says what each statement fails with.
type fakeDB struct{ fail func(statement string) error }

func (f fakeDB) Connect(context.Context) (driver.Conn, error) { return f, nil }
func (f fakeDB) Driver() driver.Driver                        { return nil }
func (f fakeDB) Prepare(string) (driver.Stmt, error)          { panic("nothing is prepared") }
func (f fakeDB) Close() error                                 { return nil }
func (f fakeDB) Begin() (driver.Tx, error)                    { return f, f.fail("BEGIN") }
func (f fakeDB) Rollback() error                              { return nil }
func (f fakeDB) Commit() error                                { return f.fail("COMMIT") }
func (f fakeDB) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return nil, mysql.ErrInvalidConn
}
func (f fakeDB) ExecContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(1), f.fail(query)
}

// ask sends one request to a service whose statements fail as fail says, and returns the answer and what was logged.
func ask(t *testing.T, fail func(string) error, method, path, body string) (status int, text, logged string) {
	t.Helper()
	cfg, err := config.Load("slotline.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cfg.File = "/etc/secret-path/slotline.yaml"
	s, err := newService(cfg, sql.OpenDB(fakeDB{fail}))
	if err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	log.SetOutput(&lines)
	defer log.SetOutput(os.Stderr)
	w := httptest.NewRecorder()
	s.routes().ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	var answer struct{ Error string }
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%s: %v", w.Body, err)
	}
	return w.Code, answer.Error, lines.String()
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
		{name: "backlogged", method: "POST", path: "/flights", body: now, failing: "BEGIN",
			with:   &fault.Error{Code: "SL5101", Err: producer.ErrBacklogged, What: "lane 02 is behind", Do: "slotline relay"},
			status: 503, text: "try again later", logged: "slotline relay"},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, text, logged := ask(t, func(statement string) error {
				if c.failing != "" && strings.HasPrefix(statement, c.failing) {
					return c.with
				}
				return nil
			}, c.method, c.path, c.body)
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
