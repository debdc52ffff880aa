package outboxtest

import (
	"database/sql"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
)

// Outbox is the database that a service under test emits into. It is safe for concurrent use.
type Outbox struct {
	// DB is for the service: pass it where production passes the database that holds the outbox.
	DB *sql.DB

	cfg *config.Config

	mu         sync.Mutex
	answer     func(statement string, args []any) (Answer, error)
	backlogged bool
	committed  []event.Event
	open       int      // transactions
	faults     []string // of the code under test; shown by the next Want, or at the end
}

// Answer is what a statement of the service's own gets.
type Answer struct {
	Columns      []string // of a query
	Rows         [][]any  // of a query: one value per column, of the types that a MySQL driver returns
	Affected     int64    // rows that a change affected
	LastInsertID int64
}

// New makes an empty outbox for the line of a file. What is left open is reported, and DB is closed, when t ends.
func New(t testing.TB, cfg *config.Config) *Outbox {
	t.Helper()
	o := &Outbox{cfg: cfg}
	o.DB = sql.OpenDB(connector{o})
	t.Cleanup(func() {
		t.Helper()
		if o.openTransactions() > 0 {
			t.Errorf("outboxtest: %d transactions were neither committed nor rolled back", o.openTransactions())
		}
		o.report(t)
		o.DB.Close()
	})
	return o
}

// Answer makes f answer the statements that the service sends from now on: its own ones, and the words BEGIN and COMMIT.
// An error is what the statement fails with, a COMMIT's too: its events are then not committed. The INSERTs of Emit are
// shown to f as well, and fail with its error; the rest of that answer is not used. f may be called by several
// goroutines at once. Nil is the beginning: each statement affects one row and finds none.
func (o *Outbox) Answer(f func(statement string, args []any) (Answer, error)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answer = f
}

// Backlogged says whether the relay is behind: Run and Emit then return ErrBacklogged. true takes effect at once; after
// false a Producer may believe for another 250 ms what it has read, as in production (with testing/synctest they pass
// at once).
func (o *Outbox) Backlogged(behind bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.backlogged = behind
}

// Take returns the events that were committed since the last Take or Want: in order of commits, and in one transaction
// by lane, as Emit writes them. For one tenant that is the order of Emit. Bodies are row images, as JSON.
func (o *Outbox) Take() []event.Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	events := o.committed
	o.committed = nil
	return events
}

// Wanted is an event that Table.Upsert or Table.Delete of package producer made.
type Wanted interface {
	Row() (event.Event, error)
}

// Want takes the events that were committed since the last Take or Want and compares them with those wanted; without any
// it wants that there are none. Table, tenant, id, op, version, month, spread and every column of the image must be
// equal. The events of one tenant must be in the wanted order; between tenants there is none to promise. Event ids,
// times and trace contexts are not compared: Take has them.
func (o *Outbox) Want(t testing.TB, events ...Wanted) {
	t.Helper()
	want := make([]event.Event, len(events))
	for i, w := range events {
		var err error
		if want[i], err = w.Row(); err != nil {
			t.Errorf("outboxtest: the wanted event %d cannot be emitted: %v", i+1, err)
			return
		}
	}
	o.report(t)
	if text := o.diff(o.Take(), want); text != "" {
		t.Errorf("outboxtest: %s", text)
	}
}

// report shows what the code under test did that no database would have forgiven.
func (o *Outbox) report(t testing.TB) {
	t.Helper()
	o.mu.Lock()
	faults := o.faults
	o.faults = nil
	o.mu.Unlock()
	for _, text := range faults {
		t.Errorf("outboxtest: %s", text)
	}
}

func (o *Outbox) openTransactions() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.open
}

func (o *Outbox) begin() error {
	if _, err := o.ask("BEGIN", nil); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open++
	return nil
}

// end is of a transaction; events are empty after a rollback.
func (o *Outbox) end(events []event.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open--
	o.committed = append(o.committed, events...)
}

// ask is the answer to one statement.
func (o *Outbox) ask(statement string, args []any) (Answer, error) {
	o.mu.Lock()
	f := o.answer
	o.mu.Unlock()
	if f == nil {
		return Answer{Affected: 1}, nil
	}
	return f(statement, args)
}

func (o *Outbox) fault(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.faults = append(o.faults, text)
}

// lanes answers the question of admission. While nothing is behind it fails as in an outage, which admission lets pass
// and does not remember: so a backlog shows at once.
func (o *Outbox) lanes(query string) (*table, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.backlogged {
		return nil, mysql.ErrInvalidConn
	}
	return laneRows(o.cfg, query), nil
}

// isLane says that a statement is about the outbox's own tables.
func isLane(statement string) bool { return strings.Contains(statement, "slotline_lane") }

// tenants are those of two lists of events, sorted.
func tenants(lists ...[]event.Event) []string {
	var names []string
	for _, list := range lists {
		for i := range list {
			names = append(names, list[i].Tenant)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
