package producer

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
)

// bufferBytesMax bounds the events that a Tx holds back; beyond it they are written before the end.
const bufferBytesMax = 8 << 20

// Beginner is a *sql.DB, a *sql.Conn or what embeds one (*sqlx.DB).
type Beginner interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Tx is a transaction of Run. It is for one goroutine, and for the time of the function that Run calls.
type Tx struct {
	p      *Producer
	tx     *sql.Tx
	events []event.Event
	bytes  int
	lanes  []int // written to
	failed error // of the first Emit that failed
	ended  bool
}

// ExecContext is that of *sql.Tx.
func (t *Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return t.tx.ExecContext(ctx, query, args...)
}

// QueryContext is that of *sql.Tx.
func (t *Tx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return t.tx.QueryContext(ctx, query, args...)
}

// QueryRowContext is that of *sql.Tx.
func (t *Tx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return t.tx.QueryRowContext(ctx, query, args...)
}

// PrepareContext is that of *sql.Tx.
func (t *Tx) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	return t.tx.PrepareContext(ctx, query)
}

func (t *Tx) buffer(ctx context.Context, list []event.Event) error {
	t.events = append(t.events, list...)
	for i := range list {
		t.bytes += len(list[i].Body)
	}
	if t.bytes > bufferBytesMax {
		return t.flush(ctx)
	}
	return nil
}

func (t *Tx) flush(ctx context.Context) error {
	lanes, err := t.p.insert(ctx, t.tx, t.events)
	t.events, t.bytes = nil, 0
	t.lanes = append(t.lanes, lanes...)
	return err
}

// Run calls fn in a transaction and commits when fn returns nil; events that fn emitted are written just before, so
// that their ids follow the order of commits for every row that fn wrote. When fn returns an error or panics the
// transaction is rolled back, and Run returns that error or panics on. So it does when an Emit into tx failed and fn
// returns nil all the same: a row is never committed without its event.
//
// ErrBacklogged is returned before anything is sent where every lane is behind, and by Emit where the event's lane is:
// the other lanes' tenants go on. ErrCommitUnknown means that the
// connection was lost in COMMIT. With any other error nothing was committed.
func (p *Producer) Run(ctx context.Context, db Beginner, fn func(tx *Tx) error) error {
	if err := p.refreshAll(ctx, db); err != nil {
		return err
	}
	if err := p.admitAny(); err != nil {
		return err
	}
	sqlTx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	t := &Tx{p: p, tx: sqlTx}
	defer func() { // also when fn panics, or ends its goroutine
		t.ended = true
		sqlTx.Rollback() // does nothing after Commit
	}()
	if err := fn(t); err != nil {
		return err
	}
	if t.failed != nil {
		return t.failed
	}
	if len(t.events) > 0 {
		if err := t.flush(ctx); err != nil {
			return err
		}
	}
	if err := sqlTx.Commit(); err != nil {
		return commitError(ctx, err)
	}
	if p.wake != nil {
		slices.Sort(t.lanes)
		for _, lane := range slices.Compact(t.lanes) {
			p.wake(lane)
		}
	}
	return nil
}

// commitError tells a COMMIT that failed from one whose outcome is not known.
func commitError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, driver.ErrBadConn): // the driver's word for: nothing was sent
		return err
	case errors.Is(err, sql.ErrTxDone), ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return err // database/sql rolled back and did not try
	}
	const serverShutdown = 1053
	if n := mysqldb.Number(err); n != 0 && n != serverShutdown {
		return err // the server says that it did not commit
	}
	return &fault.Error{Code: codeCommitUnknown, Class: fault.Transient, Err: errors.Join(ErrCommitUnknown, err),
		What: "the connection was lost in COMMIT: " + err.Error(),
		Why:  "the transaction and its events are either all there or all missing",
		Do:   "read the row that the transaction wrote, on a new connection, then decide whether to run it again"}
}
