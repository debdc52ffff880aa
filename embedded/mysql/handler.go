package mysql

import (
	"context"
	"sync"

	vitess "github.com/dolthub/vitess/go/mysql"
	"github.com/dolthub/vitess/go/sqltypes"
	querypb "github.com/dolthub/vitess/go/vt/proto/query"
)

// handler puts the lock around the engine's statements. Its methods are called by the connection's own goroutine.
type handler struct {
	vitess.Handler
	lock    locker
	rewrite *rewriter
	conns   *connections
}

func (h *handler) NewConnection(c *vitess.Conn) {
	h.conns.add(c)
	h.Handler.NewConnection(c)
}

func (h *handler) ConnectionClosed(c *vitess.Conn) {
	h.Handler.ConnectionClosed(c) // its session, and what it had not committed, is dropped
	h.lock.unlock(c.ConnectionID)
	h.conns.remove(c)
}

func (h *handler) ComQuery(ctx context.Context, c *vitess.Conn, query string, callback vitess.ResultSpoolFn) error {
	if firstWord(query) == "KILL" { // what it kills may hold the lock
		return h.Handler.ComQuery(ctx, c, query, callback)
	}
	return h.locked(ctx, c, func() error { return h.Handler.ComQuery(ctx, c, h.rewrite.statement(query), callback) })
}

// ComMultiQuery runs the first statement of several and returns the rest.
func (h *handler) ComMultiQuery(ctx context.Context, c *vitess.Conn, query string, callback vitess.ResultSpoolFn) (string, error) {
	first, rest := cutStatement(query)
	return rest, h.ComQuery(ctx, c, first, func(r *sqltypes.Result, _ bool) error { return callback(r, rest != "") })
}

func (h *handler) ComPrepare(ctx context.Context, c *vitess.Conn, query string, p *vitess.PrepareData) (fields []*querypb.Field, err error) {
	err = h.locked(ctx, c, func() error {
		p.PrepareStmt = h.rewrite.statement(query)
		fields, err = h.Handler.ComPrepare(ctx, c, p.PrepareStmt, p)
		return err
	})
	return fields, err
}

func (h *handler) ComStmtExecute(ctx context.Context, c *vitess.Conn, p *vitess.PrepareData, callback func(*sqltypes.Result) error) error {
	return h.locked(ctx, c, func() error { return h.Handler.ComStmtExecute(ctx, c, p, callback) })
}

func (h *handler) ComResetConnection(c *vitess.Conn) error {
	defer h.lock.unlock(c.ConnectionID)
	c.StatusFlags &^= vitess.ServerInTransaction
	return h.Handler.ComResetConnection(c)
}

// locked runs one statement under the lock, and keeps the lock while a transaction is open.
func (h *handler) locked(ctx context.Context, c *vitess.Conn, statement func() error) error {
	if err := h.lock.lock(ctx, c.ConnectionID); err != nil {
		return err
	}
	err := numbered(recovered(statement))
	if open := c.StatusFlags&vitess.ServerInTransaction != 0; open { // as the last statement that succeeded left it
		return err
	}
	if err != nil {
		// After some errors the engine leaves the transaction of an autocommit statement open: the next statement would
		// work on what the tables were then.
		_ = h.Handler.ComQuery(ctx, c, "ROLLBACK", func(*sqltypes.Result, bool) error { return nil })
	}
	h.lock.unlock(c.ConnectionID)
	return err
}

// recovered runs a statement; where the engine panics, it is an error of the statement, and the connection lives on.
func recovered(statement func() error) (err error) {
	defer func() {
		if x := recover(); x != nil {
			err = vitess.NewSQLError(vitess.ERUnknownError, vitess.SSUnknownSQLState, "the engine panicked: %v", x)
		}
	}()
	return statement()
}

// connections are those that are open.
type connections struct {
	mu     sync.Mutex
	open   map[*vitess.Conn]struct{}
	closed bool
	wg     sync.WaitGroup
}

func (s *connections) add(c *vitess.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c.Close()
		return
	}
	if s.open == nil {
		s.open = map[*vitess.Conn]struct{}{}
	}
	s.open[c] = struct{}{}
	s.wg.Add(1)
}

func (s *connections) remove(c *vitess.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.open[c]; ok {
		delete(s.open, c)
		s.wg.Done()
	}
}

func (s *connections) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.open {
		c.Close()
	}
}

func (s *connections) wait() { s.wg.Wait() }
