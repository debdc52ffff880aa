package producer

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/outbox"
	"github.com/slotline/slotline/partitioner"
)

// Transaction is an open transaction: the *Tx of Run, or the caller's own *sql.Tx, *sqlx.Tx, sqlc's DBTX that holds one,
// or gorm's tx.Statement.ConnPool. A pool or a connection (*sql.DB, *sqlx.DB, *sql.Conn, gorm's outside of a
// transaction) is refused with ErrNotInTransaction; a *gorm.DB does not compile. The caller's own must be of the
// database that holds the outbox.
type Transaction interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Emit writes events into the transaction. In Run's Tx they are buffered, and written by one INSERT per lane just
// before COMMIT. In a transaction of the caller's own they are inserted at once: write, and so lock, the entity's row
// first; the INSERT changes what LAST_INSERT_ID() says on that connection; and there is no wake, so that a relay finds
// the events at its next poll.
//
// Either all events are taken or, with an error, none. Run then rolls back, whatever its function returns; a transaction
// of the caller's own is the caller's to roll back.
func (p *Producer) Emit(ctx context.Context, tx Transaction, events ...Event) error {
	own, buffered := tx.(*Tx)
	if buffered && (own == nil || own.ended) {
		return notInTransaction("the transaction of Run has ended", "emit inside the function that Run calls, and do not keep its tx")
	}
	if !buffered {
		tx = unprepared(tx)
		if err := checkTransaction(tx); err != nil {
			return err
		}
	}
	err := p.emit(ctx, tx, own, events)
	if err != nil && buffered && own.failed == nil {
		own.failed = err
	}
	return err
}

// emit is Emit into what is a transaction; own is nil for one of the caller's own.
func (p *Producer) emit(ctx context.Context, tx Transaction, own *Tx, events []Event) error {
	now := p.now()
	list := make([]event.Event, len(events))
	for i := range events {
		if err := p.check(ctx, &events[i], now); err != nil {
			return err
		}
		list[i] = events[i].e
	}
	if len(list) == 0 {
		return nil
	}
	var lanes []int
	for i := range list {
		if lane := partitioner.Lane(list[i].Tenant, p.cfg.Outbox.Lanes); !slices.Contains(lanes, lane) {
			lanes = append(lanes, lane)
		}
	}
	var unknown []int // lanes of which only the caller's own transaction can tell
	q, ok := tx.(outbox.Querier)
	if own == nil && ok {
		unknown = p.stale(lanes)
	}
	for _, lane := range lanes {
		if slices.Contains(unknown, lane) {
			continue
		}
		if err := p.admit(lane); err != nil {
			return err
		}
	}
	if own != nil {
		return own.buffer(ctx, list)
	}
	if _, err := p.insert(ctx, tx, list); err != nil {
		return err
	}
	// Not before the INSERT: a lane table that was only read would be locked for reading until the transaction ends, and
	// if the relay's DDL on it came next, the INSERT would be the victim of a deadlock.
	if err := p.refresh(ctx, q, unknown); err != nil {
		return err
	}
	for _, lane := range unknown {
		if err := p.admit(lane); err != nil {
			return err
		}
	}
	return nil
}

// unprepared is the transaction below gorm's PreparedStmtTX, which would prepare each INSERT, whose text never comes
// again, and keep it on the server for a day.
func unprepared(tx Transaction) Transaction {
	if _, gorms := tx.(interface{ GetDBConn() (*sql.DB, error) }); !gorms {
		return tx
	}
	if s := reflect.Indirect(reflect.ValueOf(tx)); s.Kind() == reflect.Struct {
		if f := s.FieldByName("Tx"); f.IsValid() && f.CanInterface() {
			if below, ok := f.Interface().(Transaction); ok {
				return below
			}
		}
	}
	return tx
}

// checkTransaction refuses what would write outside a transaction.
func checkTransaction(tx Transaction) error {
	switch tx := tx.(type) {
	case nil:
		return notInTransaction("the transaction is nil", "pass the transaction that writes the entity")
	case *sql.Tx:
		if tx == nil {
			return notInTransaction("the transaction is nil", "pass the transaction that writes the entity")
		}
		return nil
	case interface {
		Commit() error
		Rollback() error
	}:
		return nil // sqlx, gorm, and wrappers of either
	case *sql.DB:
		return notInTransaction("a *sql.DB is not a transaction", "begin one, db.BeginTx, or use Run")
	case *sql.Conn:
		return notInTransaction("a *sql.Conn does not say whether a transaction is open on it", "begin one with conn.BeginTx, and pass that")
	}
	return notInTransaction(fmt.Sprintf("a %T has no Commit and Rollback, so it is not a transaction", tx),
		"pass the *sql.Tx, or what the library gives inside its transaction (gorm: tx.Statement.ConnPool)")
}

// insert runs the INSERTs and returns the lanes that they wrote to.
func (p *Producer) insert(ctx context.Context, tx Transaction, list []event.Event) (lanes []int, err error) {
	for _, in := range outbox.Inserts(list, p.cfg.Outbox.Lanes) {
		if _, err := tx.ExecContext(ctx, in.SQL); err != nil {
			if errors.Is(err, sql.ErrTxDone) {
				return nil, notInTransaction("the transaction has been committed or rolled back already", "emit before the commit")
			}
			return nil, mysqldb.Wrap(err, codeInsert, "cannot write "+outbox.LaneTable(in.Lane))
		}
		lanes = append(lanes, in.Lane)
	}
	return lanes, nil
}
