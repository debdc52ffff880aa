package producer_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/outbox"
	"github.com/slotline/slotline/producer"
)

// fakeDB is a database that notes what it is told, answers the admission query, and can be made to fail.
type fakeDB struct {
	mu      sync.Mutex
	log     []string
	all     []string // first words, of queries too
	queries int
	fail    map[string]error // by the statement's first word
	oldest  time.Duration    // age of each lane's first unpublished row; 0: none
	empty   []int            // lanes without unpublished rows all the same
	maxID   int64
	lanes   int
}

func newFakeDB() *fakeDB { return &fakeDB{fail: map[string]error{}, lanes: 4} }

func (f *fakeDB) open() *sql.DB { return sql.OpenDB(f) }

func (f *fakeDB) note(statement string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, statement)
	word, _, _ := strings.Cut(statement, " ")
	f.all = append(f.all, word)
	return f.fail[word]
}

func (f *fakeDB) statements() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.log...)
}

// words are the first words of all statements, queries among them.
func (f *fakeDB) words() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.all...)
}

// print shows the first words of each statement.
func (f *fakeDB) print() {
	for _, statement := range f.statements() {
		words := strings.Fields(statement)
		fmt.Println(strings.Join(words[:min(3, len(words))], " "))
	}
}

func (f *fakeDB) Connect(context.Context) (driver.Conn, error) { return fakeConn{f}, nil }
func (f *fakeDB) Driver() driver.Driver                        { return nil }

type fakeConn struct{ f *fakeDB }

func (c fakeConn) Prepare(string) (driver.Stmt, error) { panic("nothing is prepared") }
func (c fakeConn) Close() error                        { return nil }
func (c fakeConn) Begin() (driver.Tx, error)           { return c, c.f.note("BEGIN") }
func (c fakeConn) Rollback() error                     { return c.f.note("ROLLBACK") }
func (c fakeConn) Commit() error                       { return c.f.note("COMMIT") }

func (c fakeConn) ExecContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(1), c.f.note(query)
}

func (c fakeConn) QueryContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.f.queries++
	c.f.all = append(c.f.all, "SELECT")
	if err := c.f.fail["SELECT"]; err != nil {
		return nil, err
	}
	return &fakeRows{f: c.f, query: query}, nil
}

// fakeRows is the answer to the admission query.
type fakeRows struct {
	f     *fakeDB
	query string
	lane  int
}

func (r *fakeRows) Columns() []string {
	return strings.Split("lane cursor max oldest saved owner epoch until hot halted code text now", " ")
}
func (r *fakeRows) Close() error { return nil }
func (r *fakeRows) Next(v []driver.Value) error {
	for r.lane < r.f.lanes && !strings.Contains(r.query, outbox.LaneTable(r.lane)) {
		r.lane++
	}
	if r.lane == r.f.lanes {
		return io.EOF
	}
	now := time.Now().UTC()
	v[0], v[1], v[2], v[4], v[5], v[6], v[7], v[8], v[12] = int64(r.lane), int64(0), r.f.maxID, now, "", int64(1), now, "", now
	v[3], v[9], v[10], v[11] = nil, nil, nil, nil
	if r.f.oldest > 0 {
		v[3] = now.Add(-r.f.oldest)
	}
	if slices.Contains(r.f.empty, r.lane) {
		v[2], v[3] = int64(0), nil
	}
	r.lane++
	return nil
}

var _ producer.Beginner = (*sql.DB)(nil)

func testConfig() *config.Config {
	cfg, err := config.Parse("slotline.yaml", []byte(`
line: flights
kafka: { brokers: [127.0.0.1:9092] }
outbox: { dsn: "mysql://app:secret@127.0.0.1/flights", event_bytes_max: 2KiB }
shards: { s1: { dsn: "mysql://slotline:secret@127.0.0.1/flights_s1", slots: 0-1023 } }
tables:
  flights:
    tenant: carrier
    id: flight_id
    month: sched_dep
    columns: { carrier: string(2), flight_id: uint64, sched_dep: datetime, status: text }
  airports: { id: code, columns: { code: string(3), name: string(80) } }
`))
	if err != nil {
		panic(err)
	}
	return cfg
}
