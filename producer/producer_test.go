package producer_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/producer"
)

// Flight is an image of table flights of testConfig.
type Flight struct {
	Carrier  string    `slotline:"carrier,tenant"`
	FlightID uint64    `slotline:"flight_id,id"`
	SchedDep time.Time `slotline:"sched_dep,month"`
	Status   string    `slotline:"status"`
}

func newProducer(t *testing.T, opts ...producer.Option) (*fakeDB, *sql.DB, *producer.Producer, *producer.Table[Flight]) {
	t.Helper()
	fake := newFakeDB()
	db := fake.open()
	t.Cleanup(func() { db.Close() })
	p := producer.New(testConfig(), opts...)
	return fake, db, p, producer.MustRegister[Flight](p, "flights")
}

func flight(id uint64) Flight {
	return Flight{Carrier: "UA", FlightID: id, SchedDep: time.Now(), Status: "x"}
}

func TestRunRollsBackOnErrorAndPanic(t *testing.T) {
	fake, db, p, flights := newProducer(t)
	boom := errors.New("boom")
	err := p.Run(t.Context(), db, func(tx *producer.Tx) error {
		if err := p.Emit(t.Context(), tx, flights.Upsert(flight(1))); err != nil {
			t.Error(err)
		}
		return boom
	})
	if err != boom {
		t.Errorf("Run returned %v", err)
	}
	func() {
		defer func() {
			if r := recover(); r != "panicked" {
				t.Errorf("recovered %v", r)
			}
		}()
		p.Run(t.Context(), db, func(tx *producer.Tx) error { panic("panicked") })
	}()
	if want := []string{"BEGIN", "ROLLBACK", "BEGIN", "ROLLBACK"}; !slices.Equal(fake.statements(), want) {
		t.Errorf("statements %q", fake.statements())
	}
}

// A function that ignores what Emit says commits nothing: the row would be there and its event not.
func TestP1_RunRollsBackWhenAnEmitFailed(t *testing.T) {
	lost := &mysql.MySQLError{Number: 1142, Message: "INSERT command denied"}
	long, big, huge := flight(1), flight(1), flight(1)
	long.Carrier = "too long"
	big.Status = strings.Repeat("x", 3000)
	huge.Status = strings.Repeat("x", 1500)
	for name, c := range map[string]struct {
		flight Flight
		empty  bool
		times  int // so often that the events are written before the end
		behind bool
		want   error
	}{
		"invalid value": {flight: long, times: 1, want: producer.ErrInvalidValue},
		"too large":     {flight: big, times: 1, want: producer.ErrTooLarge},
		"empty event":   {empty: true, times: 1, want: producer.ErrInvalidValue},
		"backlogged":    {flight: flight(1), times: 1, behind: true, want: producer.ErrBacklogged},
		"INSERT":        {flight: huge, times: 6000, want: lost},
	} {
		t.Run(name, func(t *testing.T) {
			fake, db, p, flights := newProducer(t)
			if c.behind {
				fake.oldest, fake.maxID = 11*time.Minute, 10
				fake.empty = []int{partitioner.Lane("AA", fake.lanes)}
			}
			fake.fail["INSERT"] = lost
			err := p.Run(t.Context(), db, func(tx *producer.Tx) error {
				if _, err := tx.ExecContext(t.Context(), "UPDATE flight SET x = 1"); err != nil {
					return err
				}
				event := flights.Upsert(c.flight)
				if c.empty {
					event = producer.Event{}
				}
				for range c.times {
					p.Emit(t.Context(), tx, event)
				}
				// A later Emit that is taken does not make up for it.
				fake.fail["INSERT"] = nil
				return p.Emit(t.Context(), tx, flights.Delete(Flight{Carrier: "AA", FlightID: 2, SchedDep: time.Now()}))
			})
			if !errors.Is(err, c.want) {
				t.Errorf("Run returned %v", err)
			}
			got := fake.statements()
			if slices.Contains(got, "COMMIT") || got[len(got)-1] != "ROLLBACK" {
				t.Errorf("statements %.60q", got)
			}
		})
	}
}

func TestRunWritesOneInsertPerLaneJustBeforeCommit(t *testing.T) {
	var woken []int
	fake, db, p, flights := newProducer(t, producer.WithWake(func(lane int) { woken = append(woken, lane) }))
	err := p.Run(t.Context(), db, func(tx *producer.Tx) error {
		for i := range 20 {
			f := flight(uint64(i))
			f.Carrier = []string{"UA", "AA"}[i%2]
			if err := p.Emit(t.Context(), tx, flights.Upsert(f)); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(t.Context(), "UPDATE flight SET x = 1")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	got := fake.statements()
	if len(got) != 5 || got[0] != "BEGIN" || got[1] != "UPDATE flight SET x = 1" || got[4] != "COMMIT" {
		t.Fatalf("statements %.60q", got)
	}
	for _, insert := range got[2:4] {
		if n := strings.Count(insert, "),("); n != 9 {
			t.Errorf("%d rows in %.60q", n+1, insert)
		}
	}
	if len(woken) != 2 || !slices.IsSorted(woken) {
		t.Errorf("woken %v", woken)
	}
}

// Events that are too many to be held back are written before the end; their lanes are woken after the commit all the same.
func TestRunWakesTheLanesOfEventsWrittenBeforeTheEnd(t *testing.T) {
	var woken []int
	fake, db, p, flights := newProducer(t, producer.WithWake(func(lane int) { woken = append(woken, lane) }))
	inserts := func() (n int) {
		for _, s := range fake.statements() {
			if strings.HasPrefix(s, "INSERT") {
				n++
			}
		}
		return n
	}
	err := p.Run(t.Context(), db, func(tx *producer.Tx) error {
		large := flight(1)
		large.Status = strings.Repeat("x", 1500)
		for i := uint64(0); inserts() == 0; i++ {
			if large.FlightID = i; i > 10_000 {
				t.Fatal("nothing is written before the end")
			}
			if err := p.Emit(t.Context(), tx, flights.Upsert(large)); err != nil {
				return err
			}
		}
		other := flight(1)
		other.Carrier = "AA"
		return p.Emit(t.Context(), tx, flights.Upsert(other))
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []int{partitioner.Lane("UA", fake.lanes), partitioner.Lane("AA", fake.lanes)}
	slices.Sort(want)
	if want[0] == want[1] || !slices.Equal(woken, want) {
		t.Errorf("woken %v, wanted %v", woken, want)
	}
}

// What is not an open transaction is refused before any SQL.
func TestEmitRefusesWhatIsNotATransaction(t *testing.T) {
	fake, db, p, flights := newProducer(t)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var kept *producer.Tx
	if err := p.Run(t.Context(), db, func(tx *producer.Tx) error { kept = tx; return nil }); err != nil {
		t.Fatal(err)
	}
	done, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	done.Rollback()
	before := len(fake.statements())
	for _, tx := range []producer.Transaction{db, conn, kept, done, nil, (*producer.Tx)(nil), (*sql.Tx)(nil), pool{db}} {
		err := p.Emit(t.Context(), tx, flights.Upsert(flight(1)))
		if !errors.Is(err, producer.ErrNotInTransaction) || fault.CodeOf(err) == "" {
			t.Errorf("%T: %v", tx, err)
		}
	}
	if got := fake.statements(); len(got) != before {
		t.Errorf("statements %q", got[before:])
	}
	// A library's wrapper of a transaction is one.
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Emit(t.Context(), wrapped{tx}, flights.Upsert(flight(1))); err != nil {
		t.Error(err)
	}
}

// In sqlc's generated code queries run on a DBTX: one that holds a transaction is taken, one that holds a pool is refused.
func TestEmitTakesSqlcsDBTX(t *testing.T) {
	fake, db, p, flights := newProducer(t)
	type DBTX interface { // as sqlc generates it
		ExecContext(context.Context, string, ...interface{}) (sql.Result, error)
		PrepareContext(context.Context, string) (*sql.Stmt, error)
		QueryContext(context.Context, string, ...interface{}) (*sql.Rows, error)
		QueryRowContext(context.Context, string, ...interface{}) *sql.Row
	}
	sqlTx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	var tx DBTX = sqlTx
	if err := p.Emit(t.Context(), tx, flights.Upsert(flight(1))); err != nil {
		t.Error(err)
	}
	if got := fake.statements(); len(got) != 2 || !strings.HasPrefix(got[1], "INSERT INTO slotline_outbox_") {
		t.Errorf("statements %.60q", got)
	}
	tx = db
	if err := p.Emit(t.Context(), tx, flights.Upsert(flight(1))); !errors.Is(err, producer.ErrNotInTransaction) {
		t.Error(err)
	}
	// And Run's Tx is one itself.
	if err := p.Run(t.Context(), db, func(tx *producer.Tx) error { var _ DBTX = tx; return nil }); err != nil {
		t.Error(err)
	}
}

// An event's month lies from months.from to two months after now, both included: sinks hold to the same bounds.
func TestEmitBoundsTheMonth(t *testing.T) {
	_, db, p, flights := newProducer(t)
	emit := func(m partitioner.Month) error {
		f := flight(1)
		f.SchedDep = m.Start()
		return p.Run(t.Context(), db, func(tx *producer.Tx) error { return p.Emit(t.Context(), tx, flights.Upsert(f)) })
	}
	from := testConfig().Months.From
	for again := true; again; {
		now := partitioner.MonthOf(time.Now())
		first, before, last, after := emit(from), emit(from.Add(-1)), emit(now.Add(2)), emit(now.Add(3))
		if again = partitioner.MonthOf(time.Now()) != now; again { // it began meanwhile
			continue
		}
		if first != nil || last != nil {
			t.Errorf("%v: %v; two months after %v: %v", from, first, now, last)
		}
		if !errors.Is(before, producer.ErrInvalidValue) || !errors.Is(after, producer.ErrInvalidValue) {
			t.Errorf("before %v: %v; three months after %v: %v", from, before, now, after)
		}
	}
}

// Each error that errors.go exports comes about, is found by errors.Is and carries a fault with the code that
// docs/errors.md lists beside it.
func TestTypedErrors(t *testing.T) {
	_, db, p, flights := newProducer(t)
	emit := func(p *producer.Producer, db *sql.DB, f Flight) error {
		return p.Run(t.Context(), db, func(tx *producer.Tx) error { return p.Emit(t.Context(), tx, flights.Upsert(f)) })
	}
	wrong, large, early := flight(1), flight(1), flight(1)
	wrong.Carrier, large.Status, early.SchedDep = "too long", strings.Repeat("x", 3000), time.Date(1815, 6, 18, 11, 35, 0, 0, time.UTC)
	behind := newFakeDB()
	behind.oldest, behind.maxID = time.Hour, 10
	cut := newFakeDB()
	cut.fail["COMMIT"] = mysql.ErrInvalidConn
	_, unknown := producer.Register[Flight](p, "flight")
	cases := []struct {
		name, code string
		is, err    error
	}{
		{"ErrBacklogged", "SL5101", producer.ErrBacklogged, emit(producer.New(testConfig()), behind.open(), flight(1))},
		{"ErrCommitUnknown", "SL5102", producer.ErrCommitUnknown, emit(producer.New(testConfig()), cut.open(), flight(1))},
		{"ErrTooLarge", "SL5103", producer.ErrTooLarge, emit(p, db, large)},
		{"ErrUnknownTable", "SL5104", producer.ErrUnknownTable, unknown},
		{"ErrNotInTransaction", "SL5105", producer.ErrNotInTransaction, p.Emit(t.Context(), db, flights.Upsert(flight(1)))},
		{"ErrInvalidValue", "SL5106", producer.ErrInvalidValue, emit(p, db, early)},
		{"ErrInvalidValue", "SL5109", producer.ErrInvalidValue, p.Run(t.Context(), db, func(tx *producer.Tx) error { return p.Emit(t.Context(), tx, producer.Event{}) })},
		{"ErrInvalidValue", "SL1121", producer.ErrInvalidValue, emit(p, db, wrong)},
	}
	page, err := os.ReadFile("../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{}
	for _, c := range cases {
		tested[c.name] = true
		if !errors.Is(c.err, c.is) || fault.CodeOf(c.err) != c.code {
			t.Errorf("%s: %v with code %s, wanted %s", c.name, c.err, fault.CodeOf(c.err), c.code)
		}
		for _, other := range cases {
			if other.is != c.is && errors.Is(c.err, other.is) {
				t.Errorf("%v is %s too", c.err, other.name)
			}
		}
		if !slices.ContainsFunc(strings.Split(string(page), "\n"), func(line string) bool {
			return strings.HasPrefix(line, "| "+c.code+" |") && strings.Contains(line, "`"+c.name+"`")
		}) {
			t.Errorf("docs/errors.md has no line of %s with `%s`", c.code, c.name)
		}
	}
	source, err := os.ReadFile("errors.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\t(Err\w+) += errors\.New`).FindAllStringSubmatch(string(source), -1) {
		if !tested[m[1]] {
			t.Errorf("%s has no case here", m[1])
		}
		delete(tested, m[1])
	}
	if len(tested) > 0 {
		t.Errorf("errors.go does not export %v", tested)
	}
}

type pool struct{ *sql.DB }
type wrapped struct{ *sql.Tx }

func TestEmitNamesTheColumnOfABadValue(t *testing.T) {
	fake, db, p, flights := newProducer(t)
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	f := flight(1)
	f.Carrier = "too long"
	early, late := flight(2), flight(3)
	early.SchedDep = time.Date(1999, 12, 31, 23, 59, 59, 0, time.UTC)
	late.SchedDep = time.Now().AddDate(0, 4, 0)
	big := flight(4)
	big.Status = strings.Repeat("x", 3000)
	before := len(fake.statements())
	for _, c := range []struct {
		event  producer.Event
		want   error
		column string // or another word that says what is wrong
	}{
		{flights.Upsert(f), producer.ErrInvalidValue, "carrier"},
		{flights.Upsert(early), producer.ErrInvalidValue, "sched_dep"},
		{flights.Upsert(late), producer.ErrInvalidValue, "sched_dep"},
		{flights.Upsert(big), producer.ErrTooLarge, "flights"},
		{producer.Event{}, producer.ErrInvalidValue, "empty"},
	} {
		// A good event of the same call is not written either.
		err := p.Emit(t.Context(), tx, flights.Upsert(flight(9)), c.event)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.column) || fault.CodeOf(err) == "" {
			t.Errorf("%v, wanted %v about %q", err, c.want, c.column)
		}
	}
	if got := fake.statements(); len(got) != before {
		t.Errorf("statements %.60q", got[before:])
	}
	if _, err := producer.Register[Flight](p, "flight"); !errors.Is(err, producer.ErrUnknownTable) {
		t.Error(err)
	}
}

// Admission: nothing is sent once the lanes are behind, and the state is asked for four times a second at most.
func TestBackloggedBeforeAnySQL(t *testing.T) {
	fake, db, p, flights := newProducer(t)
	emit := func() error {
		return p.Run(t.Context(), db, func(tx *producer.Tx) error {
			return p.Emit(t.Context(), tx, flights.Upsert(flight(1)))
		})
	}
	for range 100 {
		if err := emit(); err != nil {
			t.Fatal(err)
		}
	}
	if fake.queries > 10 {
		t.Errorf("%d admission queries for 100 transactions", fake.queries)
	}
	before := len(fake.statements())
	fake.mu.Lock()
	fake.oldest, fake.maxID = 11*time.Minute, 10
	fake.mu.Unlock()
	p = producer.New(testConfig()) // knows nothing yet
	if err := emit(); !errors.Is(err, producer.ErrBacklogged) || !strings.Contains(err.Error(), "11m") {
		t.Errorf("%v", err)
	}
	if got := fake.statements(); len(got) != before {
		t.Errorf("statements %q", got[before:])
	}
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Emit(t.Context(), tx, flights.Upsert(flight(1))); !errors.Is(err, producer.ErrBacklogged) {
		t.Errorf("%v", err)
	}
	fake.mu.Lock()
	fake.oldest, fake.maxID = time.Second, 6_000_000
	fake.mu.Unlock()
	p = producer.New(testConfig())
	if err := emit(); !errors.Is(err, producer.ErrBacklogged) || !strings.Contains(err.Error(), "backlog_events_max") {
		t.Errorf("%v", err)
	}
}

// In a transaction of the caller's own a lane table is not read before it is written to: the relay's DDL could come in
// between, and the INSERT would be the victim of a deadlock. What the read says is still obeyed, and remembered.
func TestBackloggedInTheCallersTransaction(t *testing.T) {
	fake, db, p, flights := newProducer(t)
	fake.oldest, fake.maxID = 11*time.Minute, 10
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Emit(t.Context(), tx, flights.Upsert(flight(1))); !errors.Is(err, producer.ErrBacklogged) {
		t.Errorf("%v", err)
	}
	want := []string{"BEGIN", "INSERT", "SELECT"}
	if got := fake.words(); !slices.Equal(got, want) {
		t.Errorf("statements %q, wanted %q", got, want)
	}
	if err := p.Emit(t.Context(), tx, flights.Upsert(flight(1))); !errors.Is(err, producer.ErrBacklogged) {
		t.Errorf("the next one: %v", err)
	}
	if got := fake.words(); !slices.Equal(got, want) {
		t.Errorf("statements %q: what is known is not asked again", got)
	}
}

// One lane is behind, the others are empty: its own tenants are refused, all others are served.
func TestP13_OneLaneBehindRefusesItsOwnTenantsAlone(t *testing.T) {
	fake, db, p, flights := newProducer(t)
	behind := partitioner.Lane("UA", fake.lanes)
	other := "AA"
	if partitioner.Lane(other, fake.lanes) == behind {
		t.Fatal("the two tenants are in one lane")
	}
	fake.oldest, fake.maxID = 11*time.Minute, 10
	for lane := range fake.lanes {
		if lane != behind {
			fake.empty = append(fake.empty, lane)
		}
	}
	emit := func(carrier string) error {
		f := flight(1)
		f.Carrier = carrier
		return p.Run(t.Context(), db, func(tx *producer.Tx) error { return p.Emit(t.Context(), tx, flights.Upsert(f)) })
	}
	if err := emit(other); err != nil {
		t.Errorf("a tenant of an empty lane: %v", err)
	}
	if err := emit("UA"); !errors.Is(err, producer.ErrBacklogged) {
		t.Errorf("a tenant of the lane that is behind: %v", err)
	}
	if got := fake.statements(); len(got) != 5 || got[2] != "COMMIT" || got[4] != "ROLLBACK" {
		t.Errorf("statements %.60q", got)
	}
	// Once every lane is behind nothing is begun.
	fake.empty = nil
	p = producer.New(testConfig())
	if err := emit(other); !errors.Is(err, producer.ErrBacklogged) || len(fake.statements()) != 5 {
		t.Errorf("%v, statements %.60q", err, fake.statements())
	}
}

// The struct that README shows fits the file that `slotline init` writes, and its event is the row image.
func TestOrderFitsTheFirstFile(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := strings.Fields(string(readme))
	for i, typ := 0, reflect.TypeFor[Order](); i < typ.NumField(); i++ {
		f := typ.Field(i)
		at := slices.Index(shown, f.Name)
		if at < 0 || shown[at+1] != f.Type.String() || shown[at+2] != "`"+string(f.Tag)+"`" {
			t.Errorf("README.md does not show %s %v `%s`", f.Name, f.Type, f.Tag)
		}
	}
	cfg, err := config.Parse("slotline.yaml", []byte(config.Example()))
	if err != nil {
		t.Fatal(err)
	}
	fake := newFakeDB()
	fake.lanes = cfg.Outbox.Lanes
	db := fake.open()
	defer db.Close()
	p := producer.New(cfg)
	orders, err := producer.Register[Order](p, "orders")
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	placed := time.Now().UTC().Truncate(time.Microsecond)
	if err := p.Emit(t.Context(), tx, orders.Upsert(Order{"UA", 9041113, placed, "149.90"})); err != nil {
		t.Fatal(err)
	}
	body := fmt.Sprintf(`{"carrier":"UA","order_id":9041113,"placed_at":"%s","total":"149.90"}`, placed.Format("2006-01-02T15:04:05.000000Z"))
	got := fake.statements()
	if len(got) != 2 || !strings.Contains(got[1], hex.EncodeToString([]byte(body))) {
		t.Errorf("statements %q, wanted the image %s", got, body)
	}
}

func TestCommitUnknownOnlyWhereItIs(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		err     error
		unknown bool
	}{
		{mysql.ErrInvalidConn, true},
		{fmt.Errorf("read tcp: %w", context.DeadlineExceeded), true},
		{&mysql.MySQLError{Number: 1053, Message: "Server shutdown in progress"}, true},
		{driver.ErrBadConn, false},
		{&mysql.MySQLError{Number: 1213, Message: "Deadlock found"}, false},
		{&mysql.MySQLError{Number: 3101, Message: "rolled back by group replication"}, false},
	} {
		fake, db, p, flights := newProducer(t)
		fake.fail["COMMIT"] = c.err
		err := p.Run(t.Context(), db, func(tx *producer.Tx) error { return p.Emit(t.Context(), tx, flights.Upsert(flight(1))) })
		if err == nil || errors.Is(err, producer.ErrCommitUnknown) != c.unknown || !errors.Is(err, c.err) {
			t.Errorf("COMMIT failed with %v, Run with %v", c.err, err)
		}
	}
	// A context that ended before COMMIT was sent: database/sql rolled back.
	_, db, p, _ := newProducer(t)
	err := p.Run(ctx, db, func(tx *producer.Tx) error { return nil })
	if err == nil || errors.Is(err, producer.ErrCommitUnknown) {
		t.Errorf("%v", err)
	}
}

func TestTraceParentIsCaptured(t *testing.T) {
	type key struct{}
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	fake, db, p, flights := newProducer(t, producer.WithTraceParent(func(ctx context.Context) string {
		s, _ := ctx.Value(key{}).(string)
		return s
	}))
	for _, value := range []string{trace, "not one"} {
		ctx := context.WithValue(t.Context(), key{}, value)
		err := p.Run(ctx, db, func(tx *producer.Tx) error { return p.Emit(ctx, tx, flights.Upsert(flight(1))) })
		if err != nil {
			t.Fatal(err)
		}
		insert := fake.statements()[len(fake.statements())-2]
		if got := strings.Contains(insert, hex.EncodeToString([]byte(value))); got != (value == trace) {
			t.Errorf("traceparent %q: %v in %.80s", value, got, insert)
		}
	}
}
