package producer

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/outbox"
	"github.com/slotline/slotline/partitioner"
)

// Execer is what Emit needs of a transaction: *Tx, *sql.Tx, sqlx's, sqlc's DBTX, gorm's tx.Statement.ConnPool.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Tx is the transaction of Run. It is used by one goroutine at a time, and not after the function has returned.
type Tx struct {
	tx       *sql.Tx
	producer *Producer
	events   []event.Event // to be inserted just before COMMIT
	ended    bool
}

// ExecContext, QueryContext, QueryRowContext and PrepareContext are those of the *sql.Tx.
func (t *Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return t.tx.ExecContext(ctx, query, args...)
}

func (t *Tx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return t.tx.QueryContext(ctx, query, args...)
}

func (t *Tx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return t.tx.QueryRowContext(ctx, query, args...)
}

func (t *Tx) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	return t.tx.PrepareContext(ctx, query)
}

// Run runs fn in a transaction of db, which is the outbox database, and commits when fn returns nil. Events emitted in
// fn are buffered and written by one INSERT per lane just before COMMIT. When fn returns an error or panics, all is
// rolled back. With ErrBacklogged nothing was begun.
func (p *Producer) Run(ctx context.Context, db *sql.DB, fn func(*Tx) error) error {
	if err := p.admit(ctx, db, nil); err != nil {
		return err
	}
	sqlTx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	tx := &Tx{tx: sqlTx, producer: p}
	defer func() {
		tx.ended = true
		_ = sqlTx.Rollback() // after COMMIT this does nothing; after a panic or an error it is all that is left to do
	}()
	if err := fn(tx); err != nil {
		return err
	}
	if err := insert(ctx, sqlTx, p.cfg.Outbox.Lanes, tx.events); err != nil {
		return err
	}
	if err := sqlTx.Commit(); err != nil {
		if mysqldb.OutcomeUnknown(err) {
			return &fault.Error{Code: codeCommitUnknown, Class: fault.Transient,
				What: fmt.Sprintf("the connection was lost in COMMIT: %v", err),
				Why:  "the transaction has either committed whole, events included, or not at all",
				Do:   "read a row that it wrote, then answer or try again",
				Err:  fmt.Errorf("%w: %w", ErrCommitUnknown, err)}
		}
		return err
	}
	woken := make([]bool, p.cfg.Outbox.Lanes)
	for i := range tx.events {
		if lane := partitioner.Lane(tx.events[i].Tenant, len(woken)); !woken[lane] {
			woken[lane] = true
			p.wake(lane)
		}
	}
	return nil
}

// Emit appends events to the outbox in tx. Inside Run they are buffered until COMMIT; in a transaction of the caller's
// own they are inserted at once, so Emit must follow the write that locks the entity. One event that is wrong keeps
// all of the call out. A pool or a connection is refused: ErrNotInTransaction.
func (p *Producer) Emit(ctx context.Context, tx Execer, events ...Event) error {
	for i := range events {
		if events[i].err != nil {
			return events[i].err
		}
	}
	if own, ok := tx.(*Tx); ok {
		if own == nil || own.ended || own.producer != p {
			return notInTransaction("a *producer.Tx whose Run has ended, or of another Producer")
		}
		if err := p.admit(ctx, nil, events); err != nil { // Run has just asked
			return err
		}
		for i := range events {
			own.events = append(own.events, events[i].event)
		}
		return nil
	}
	// *sql.DB, *sql.Conn, *sqlx.DB and gorm's pools can begin a transaction, so they are none.
	if tx == nil {
		return notInTransaction("nil")
	}
	if _, begins := reflect.TypeOf(tx).MethodByName("BeginTx"); begins {
		return notInTransaction(fmt.Sprintf("a %T", tx))
	}
	if q, ok := tx.(outbox.Querier); ok {
		if err := p.admit(ctx, q, events); err != nil {
			return err
		}
	}
	list := make([]event.Event, len(events))
	for i := range events {
		list[i] = events[i].event
	}
	return insert(ctx, tx, p.cfg.Outbox.Lanes, list)
}

func notInTransaction(what string) error {
	return &fault.Error{Code: codeNotInTransaction, Class: fault.Usage, Err: ErrNotInTransaction,
		What: "Emit was given " + what + ", not a transaction; nothing was written",
		Why:  "an event outside a transaction could be published without the change that it tells of",
		Do:   "use producer.Run, or pass the *sql.Tx of your own transaction"}
}

func insert(ctx context.Context, tx Execer, lanes int, events []event.Event) error {
	for _, ins := range outbox.Inserts(events, lanes) {
		if _, err := tx.ExecContext(ctx, ins.SQL); err != nil {
			return fmt.Errorf("outbox %s: %w", outbox.LaneTable(ins.Lane), err)
		}
	}
	return nil
}
