package outboxtest

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/outbox"
)

// The database/sql driver: it parses nothing but the INSERTs into lane tables.

type connector struct{ o *Outbox }

func (c connector) Connect(context.Context) (driver.Conn, error) { return &conn{o: c.o}, nil }
func (c connector) Driver() driver.Driver                        { return c }
func (c connector) Open(string) (driver.Conn, error)             { return &conn{o: c.o}, nil }

// conn is one connection. database/sql gives it to one goroutine at a time.
type conn struct {
	o       *Outbox
	inTx    bool
	pending []event.Event // of the open transaction
}

func (c *conn) Close() error                              { return nil }
func (c *conn) Prepare(query string) (driver.Stmt, error) { return stmt{c, query}, nil }
func (c *conn) Begin() (driver.Tx, error)                 { return c.BeginTx(context.Background(), driver.TxOptions{}) }

func (c *conn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	if err := c.o.begin(); err != nil {
		return nil, err
	}
	c.inTx = true
	return c, nil
}

func (c *conn) Commit() error {
	events := c.pending
	_, err := c.o.ask("COMMIT", nil)
	if err != nil {
		events = nil
	}
	c.finish(events)
	return err
}

func (c *conn) Rollback() error {
	c.finish(nil)
	return nil
}

func (c *conn) finish(events []event.Event) {
	c.o.end(events)
	c.inTx, c.pending = false, nil
}

func (c *conn) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	values := plain(args)
	lane, insert := laneOf(query)
	a, err := c.o.ask(query, values)
	if err != nil {
		return nil, err
	}
	if !insert {
		return result{a}, nil
	}
	events, err := parseInsert(query, values, lane, c.o.cfg.Outbox.Lanes)
	if err != nil {
		c.o.fault(err.Error())
		return nil, err
	}
	if !c.inTx {
		c.o.fault(fmt.Sprintf("an event of table %s was inserted outside of a transaction: it is published whatever becomes of the change that it tells of", events[0].Table))
	} else {
		c.pending = append(c.pending, events...)
	}
	return result{Answer{Affected: int64(len(events)), LastInsertID: 1}}, nil
}

func (c *conn) QueryContext(_ context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if isLane(query) {
		return c.o.lanes(query)
	}
	a, err := c.o.ask(query, plain(args))
	if err != nil {
		return nil, err
	}
	return &table{columns: a.Columns, rows: a.Rows}, nil
}

// CheckNamedValue takes what the MySQL driver takes beyond database/sql's own: integers of all of uint64, also behind
// pointers.
func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	if _, ok := v.Value.(driver.Valuer); !ok {
		r := reflect.ValueOf(v.Value)
		for r.Kind() == reflect.Pointer && !r.IsNil() {
			r = r.Elem()
		}
		if r.IsValid() && r.CanUint() {
			v.Value = r.Uint()
			return nil
		}
	}
	var err error
	v.Value, err = driver.DefaultParameterConverter.ConvertValue(v.Value)
	return err
}

type stmt struct {
	c     *conn
	query string
}

func (s stmt) Close() error  { return nil }
func (s stmt) NumInput() int { return -1 }
func (s stmt) Exec([]driver.Value) (driver.Result, error) {
	return nil, errors.New("outboxtest: Exec without a context")
}
func (s stmt) Query([]driver.Value) (driver.Rows, error) {
	return nil, errors.New("outboxtest: Query without a context")
}
func (s stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.c.ExecContext(ctx, s.query, args)
}
func (s stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.c.QueryContext(ctx, s.query, args)
}

type result struct{ a Answer }

func (r result) LastInsertId() (int64, error) { return r.a.LastInsertID, nil }
func (r result) RowsAffected() (int64, error) { return r.a.Affected, nil }

// table is a result set.
type table struct {
	columns []string
	rows    [][]any
}

func (t *table) Columns() []string { return t.columns }
func (t *table) Close() error      { return nil }
func (t *table) Next(dest []driver.Value) error {
	if len(t.rows) == 0 {
		return io.EOF
	}
	if len(t.rows[0]) != len(dest) {
		return fmt.Errorf("outboxtest: an answer's row has %d values for %d columns", len(t.rows[0]), len(dest))
	}
	for i, v := range t.rows[0] {
		dest[i] = v
	}
	t.rows = t.rows[1:]
	return nil
}

func plain(args []driver.NamedValue) []any {
	values := make([]any, len(args))
	for i, a := range args {
		values[i] = a.Value
	}
	return values
}

// laneRows is the answer to admission when every lane is behind: no relay has run for longer than the file allows.
func laneRows(cfg *config.Config, query string) *table {
	now := time.Now().UTC()
	oldest := now.Add(-cfg.Outbox.BacklogAgeMax - time.Minute)
	t := &table{columns: []string{"lane", "cursor_id", "max_id", "oldest", "saved_at", "owner", "owner_epoch", "lease_until",
		"hot", "halted_at", "halt_code", "halt_text", "now"}}
	for lane := range cfg.Outbox.Lanes {
		if !strings.Contains(query, outbox.LaneTable(lane)) {
			continue
		}
		t.rows = append(t.rows, []any{int64(lane), int64(0), int64(1), oldest, oldest, "", int64(1), oldest, "", nil, nil, nil, now})
	}
	return t
}
