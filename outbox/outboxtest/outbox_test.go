package outboxtest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/outbox"
	"github.com/slotline/slotline/outbox/outboxtest"
	"github.com/slotline/slotline/producer"
)

// printer is a test that prints what it fails with.
type printer struct {
	testing.TB // nil: what it does not have must not be called
	cleanups   []func()
	mu         sync.Mutex
	text       string
	quiet      bool
}

func (p *printer) Helper()                  {}
func (p *printer) Context() context.Context { return context.Background() }
func (p *printer) Cleanup(f func())         { p.cleanups = append(p.cleanups, f) }
func (p *printer) Errorf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	p.text += text + "\n"
	if !p.quiet {
		fmt.Println("FAIL " + text)
	}
}
func (p *printer) end() {
	for _, f := range p.cleanups {
		f()
	}
	p.cleanups = nil
}

// said is what the test failed with since the last time.
func (p *printer) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := p.text
	p.text = ""
	return text
}

type Flight struct {
	Carrier  string    `slotline:"carrier,tenant"`
	FlightID uint64    `slotline:"flight_id,id"`
	SchedDep time.Time `slotline:"sched_dep,month"`
	Status   string    `slotline:"status"`
	ArrDelay *int32    `slotline:"arr_delay"`
}

type Counter struct {
	Owner string `slotline:"owner,tenant"`
	N     int64  `slotline:"n,id"`
	V     int64  `slotline:"v,version"`
}

type Airport struct {
	Code string `slotline:"code,id"`
	Name string `slotline:"name"`
}

// line is a service's side of a line.
type line struct {
	p        *producer.Producer
	flights  *producer.Table[Flight]
	counters *producer.Table[Counter]
	airports *producer.Table[Airport]
}

func newLine(t testing.TB) (*config.Config, *line) {
	t.Helper()
	cfg, err := config.Parse("slotline.yaml", []byte(`
line: flights
kafka: { brokers: [127.0.0.1:9092] }
outbox: { dsn: "mysql://app:secret@127.0.0.1/flights", event_bytes_max: 2KiB }
shards: { s1: { dsn: "mysql://slotline:secret@127.0.0.1/flights_s1", slots: 0-1023 } }
tables:
  flights:
    { tenant: carrier, id: flight_id, month: sched_dep,
      columns: { carrier: string(2), flight_id: uint64, sched_dep: datetime, status: text, arr_delay: "int32?" } }
  counters: { tenant: owner, id: n, version: v, columns: { owner: string(20), n: int64, v: int64 } }
  airports: { id: code, columns: { code: string(3), name: string(80) } }
`))
	if err != nil {
		t.Fatal(err)
	}
	p := producer.New(cfg)
	return cfg, &line{p, producer.MustRegister[Flight](p, "flights"), producer.MustRegister[Counter](p, "counters"), producer.MustRegister[Airport](p, "airports")}
}

var dep = time.Now().UTC()

func flight(carrier string, id uint64, status string) Flight {
	return Flight{Carrier: carrier, FlightID: id, SchedDep: dep, Status: status}
}

// Events count when their transaction commits, in its order; odd bytes, every role and both ways to emit come through.
func TestEventsOfCommittedTransactionsCount(t *testing.T) {
	cfg, l := newLine(t)
	out := outboxtest.New(t, cfg)
	odd := "it's \\ \"naïve\"\n\x01"
	err := l.p.Run(t.Context(), out.DB, func(tx *producer.Tx) error {
		return l.p.Emit(t.Context(), tx, l.flights.Upsert(flight("UA", 1, odd)), l.airports.Upsert(Airport{"JFK", "Kennedy"}),
			l.flights.Delete(flight("DL", 2, "")), l.counters.Upsert(Counter{"ann's \\ naïve\n", -7, 42}))
	})
	if err != nil {
		t.Fatal(err)
	}
	first, err := out.DB.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		t.Fatal(err)
	}
	second, err := out.DB.Begin()
	if err != nil {
		t.Fatal(err)
	}
	third, err := out.DB.Begin()
	if err != nil {
		t.Fatal(err)
	}
	for status, tx := range map[string]*sql.Tx{"first": first, "second": second, "third": third} {
		if err := l.p.Emit(t.Context(), tx, l.flights.Upsert(flight("UA", 1, status))); err != nil {
			t.Fatal(err)
		}
	}
	third.Rollback()
	second.Commit()
	first.Commit()
	events := out.Take()
	if n := len(events); n != 6 {
		t.Fatalf("%d events", n)
	}
	for _, e := range events {
		if e.ID == (event.ID{}) || time.Since(e.Time) > time.Minute {
			t.Errorf("event %v at %v", e.ID, e.Time)
		}
	}
	// The same again, compared: tenants in any order, a tenant's own in order of commits.
	for range 2 {
		if err := l.p.Run(t.Context(), out.DB, func(tx *producer.Tx) error {
			return l.p.Emit(t.Context(), tx, l.flights.Upsert(flight("UA", 1, odd)), l.counters.Upsert(Counter{"ann's \\ naïve\n", -7, 42}))
		}); err != nil {
			t.Fatal(err)
		}
		out.Want(t, l.counters.Upsert(Counter{"ann's \\ naïve\n", -7, 42}), l.flights.Upsert(flight("UA", 1, odd)))
	}
	out.Want(t)
}

// Each way in which what was committed may not be what is wanted is told, and nothing else.
func TestWantTellsDifferences(t *testing.T) {
	cfg, l := newLine(t)
	eleven := int32(11)
	late := flight("UA", 1, "x")
	late.SchedDep = dep.AddDate(0, 1, 0)
	for name, c := range map[string]struct {
		got, want []producer.Event
		text      []string // in this order; none: no failure
	}{
		"equal":   {got: []producer.Event{l.flights.Upsert(flight("UA", 1, "x"))}, want: []producer.Event{l.flights.Upsert(flight("UA", 1, "x"))}},
		"nothing": {},
		"missing": {want: []producer.Event{l.flights.Upsert(flight("UA", 1, "x"))},
			text: []string{`tenant "UA": 0 events were committed, 1 wanted`, `1. missing     upsert flights/UA/1 {"carrier":"UA"`}},
		"not wanted": {got: []producer.Event{l.airports.Delete(Airport{Code: "JFK"})},
			text: []string{"broadcast tables: 1 events were committed, 0 wanted", `1. not wanted  delete airports//JFK {"code":"JFK"}`}},
		"column": {got: []producer.Event{l.flights.Upsert(flight("UA", 1, "x"))},
			want: []producer.Event{l.flights.Upsert(Flight{Carrier: "UA", FlightID: 1, SchedDep: dep, Status: "y", ArrDelay: &eleven})},
			text: []string{"upsert flights/UA/1", `column status is "x", wanted "y"`, "column arr_delay is null, wanted 11"}},
		"order": {got: []producer.Event{l.flights.Upsert(flight("UA", 1, "x")), l.flights.Delete(flight("UA", 1, ""))},
			want: []producer.Event{l.flights.Delete(flight("UA", 1, "")), l.flights.Upsert(flight("UA", 1, "x"))},
			text: []string{"1. is          upsert flights/UA/1", "wanted      delete flights/UA/1", "2. is          delete"}},
		"version": {got: []producer.Event{l.counters.Upsert(Counter{"a", 1, 2})}, want: []producer.Event{l.counters.Upsert(Counter{"a", 1, 3})},
			text: []string{"version is 2, wanted 3", "column v is 2, wanted 3"}},
		"version of a delete": {got: []producer.Event{l.counters.Delete(Counter{"a", 1, 2})}, want: []producer.Event{l.counters.Delete(Counter{"a", 1, 3})},
			text: []string{"version is 2, wanted 3"}},
		"month": {got: []producer.Event{l.flights.Upsert(late)}, want: []producer.Event{l.flights.Upsert(flight("UA", 1, "x"))},
			text: []string{"month is ", "column sched_dep is "}},
		"tenant": {got: []producer.Event{l.flights.Upsert(flight("DL", 1, "x"))}, want: []producer.Event{l.flights.Upsert(flight("UA", 1, "x"))},
			text: []string{`tenant "DL"`, "not wanted", `tenant "UA"`, "missing"}},
		"wanted cannot be": {want: []producer.Event{l.flights.Upsert(flight("too long", 1, "x"))}, text: []string{"wanted event 1", "column carrier"}},
	} {
		t.Run(name, func(t *testing.T) {
			out := outboxtest.New(t, cfg)
			if err := l.p.Run(t.Context(), out.DB, func(tx *producer.Tx) error { return l.p.Emit(t.Context(), tx, c.got...) }); err != nil {
				t.Fatal(err)
			}
			var wanted []outboxtest.Wanted
			for _, e := range c.want {
				wanted = append(wanted, e)
			}
			failing := &printer{quiet: true}
			out.Want(failing, wanted...)
			said := failing.said()
			if len(c.text) == 0 && said != "" {
				t.Errorf("said %s", said)
			}
			rest := said
			for _, text := range c.text {
				_, after, found := strings.Cut(rest, text)
				if !found {
					t.Errorf("%q is not in order in:\n%s", text, said)
				}
				rest = after
			}
		})
	}
}

// What the real thing refuses is refused, and nothing is emitted.
func TestRefusals(t *testing.T) {
	cfg, l := newLine(t)
	out := outboxtest.New(t, cfg)
	denied := &mysql.MySQLError{Number: 1142, Message: "INSERT command denied"}
	if _, err := producer.Register[Flight](l.p, "flight"); !errors.Is(err, producer.ErrUnknownTable) {
		t.Error(err)
	}
	if err := l.p.Emit(t.Context(), out.DB, l.flights.Upsert(flight("UA", 1, "x"))); !errors.Is(err, producer.ErrNotInTransaction) {
		t.Error(err)
	}
	failWith := func(word string, err error) func() {
		return func() {
			out.Answer(func(statement string, _ []any) (outboxtest.Answer, error) {
				if strings.HasPrefix(statement, word) {
					return outboxtest.Answer{}, err
				}
				return outboxtest.Answer{Affected: 1}, nil
			})
		}
	}
	for name, c := range map[string]struct {
		event  producer.Event
		before func()
		want   error
	}{
		"invalid":   {l.flights.Upsert(flight("too long", 1, "x")), nil, producer.ErrInvalidValue},
		"month":     {l.flights.Upsert(Flight{Carrier: "UA", FlightID: 1}), nil, producer.ErrInvalidValue},
		"too large": {l.flights.Upsert(flight("UA", 1, strings.Repeat("x", 3000))), nil, producer.ErrTooLarge},
		"begin":     {l.flights.Upsert(flight("UA", 1, "x")), failWith("BEGIN", denied), denied},
		"own":       {l.flights.Upsert(flight("UA", 1, "x")), failWith("UPDATE", denied), denied},
		"insert":    {l.flights.Upsert(flight("UA", 1, "x")), failWith("INSERT INTO slotline_outbox_", denied), denied},
		"commit":    {l.flights.Upsert(flight("UA", 1, "x")), failWith("COMMIT", mysql.ErrInvalidConn), producer.ErrCommitUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			out.Answer(nil)
			if c.before != nil {
				c.before()
			}
			err := l.p.Run(t.Context(), out.DB, func(tx *producer.Tx) error {
				if _, err := tx.ExecContext(t.Context(), "UPDATE flight SET x = 1"); err != nil {
					return err
				}
				return l.p.Emit(t.Context(), tx, c.event)
			})
			if !errors.Is(err, c.want) {
				t.Errorf("%v, wanted %v", err, c.want)
			}
			out.Want(t)
		})
	}
	out.Answer(nil)
	out.Backlogged(true)
	if err := l.p.Run(t.Context(), out.DB, func(*producer.Tx) error { return nil }); !errors.Is(err, producer.ErrBacklogged) {
		t.Errorf("Run, behind: %v", err)
	}
	tx, err := out.DB.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if err := l.p.Emit(t.Context(), tx, l.flights.Upsert(flight("UA", 1, "x"))); !errors.Is(err, producer.ErrBacklogged) {
		t.Errorf("Emit, behind: %v", err)
	}
	out.Want(t)
}

// The service's own statements: what it is told of them, prepared or not.
func TestAnswers(t *testing.T) {
	cfg, _ := newLine(t)
	out := outboxtest.New(t, cfg)
	var id uint64
	if err := out.DB.QueryRow("SELECT id FROM flight").Scan(&id); err != sql.ErrNoRows {
		t.Error(err)
	}
	out.Answer(func(statement string, args []any) (outboxtest.Answer, error) {
		if statement != "SELECT ?, status" && statement != "INSERT INTO flight VALUES (?)" || len(args) != 1 || args[0] != uint64(1<<63) {
			return outboxtest.Answer{}, fmt.Errorf("%s %v", statement, args)
		}
		return outboxtest.Answer{Columns: []string{"id", "status"}, Rows: [][]any{{args[0], []byte("x")}}, Affected: 3, LastInsertID: 4}, nil
	})
	big := uint64(1 << 63)
	s, err := out.DB.Prepare("SELECT ?, status")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, row := range []*sql.Row{out.DB.QueryRow("SELECT ?, status", big), out.DB.QueryRow("SELECT ?, status", &big), s.QueryRow(big)} {
		var status string
		if err := row.Scan(&id, &status); err != nil || id != big || status != "x" {
			t.Errorf("%d %q %v", id, status, err)
		}
	}
	r, err := out.DB.Exec("INSERT INTO flight VALUES (?)", big)
	if err != nil {
		t.Fatal(err)
	}
	n, _ := r.RowsAffected()
	last, _ := r.LastInsertId()
	if n != 3 || last != 4 {
		t.Errorf("%d rows, id %d", n, last)
	}
}

// What no database forgives fails the test: a transaction left open, an event outside of one, in a wrong lane, or not
// readable.
func TestFaultsOfTheCodeUnderTest(t *testing.T) {
	cfg, l := newLine(t)
	failing := &printer{quiet: true}
	out := outboxtest.New(failing, cfg)
	if _, err := out.DB.Begin(); err != nil {
		t.Fatal(err)
	}
	row, err := l.flights.Upsert(flight("UA", 1, "x")).Row()
	if err != nil {
		t.Fatal(err)
	}
	insert := outbox.Inserts([]event.Event{row}, cfg.Outbox.Lanes)[0]
	if _, err := out.DB.Exec(insert.SQL); err != nil {
		t.Error(err)
	}
	other := fmt.Sprintf("slotline_outbox_%02d ", (insert.Lane+1)%cfg.Outbox.Lanes)
	for _, statement := range []string{
		strings.Replace(insert.SQL, outbox.LaneTable(insert.Lane)+" ", other, 1),
		insert.SQL[:len(insert.SQL)-1],
		insert.SQL + " ON DUPLICATE KEY UPDATE id = id",
		"INSERT INTO slotline_outbox_00 SELECT * FROM other",
		"INSERT INTO slotline_outbox_00 (event_id, tbl) VALUES (?, ?)",
	} {
		if _, err := out.DB.Exec(statement); err == nil {
			t.Errorf("taken: %.80s", statement)
		}
	}
	out.Want(failing) // none of these count as events
	if said := failing.said(); !strings.Contains(said, "outside of a transaction") || !strings.Contains(said, "it belongs into") ||
		strings.Count(said, "not of the form") != 4 || strings.Contains(said, "not wanted") {
		t.Error(said)
	}
	failing.end()
	if said := failing.said(); !strings.Contains(said, "1 transactions were neither") {
		t.Error(said)
	}
}
