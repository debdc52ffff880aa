package front

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slotline/slotline/embedded/clickhouse/internal/chdb"
)

// Config of a Server.
type Config struct {
	Library *chdb.Library
	// EngineArgs go to every connection of the engine: --path=DIR and server options.
	EngineArgs []string
	Log        *slog.Logger
	// DrainTimeout is how long running statements may go on once Serve is told to end; then they are killed.
	DrainTimeout time.Duration
}

// connectionsMax bounds threads: each connection holds one of its own, and the engine some more per statement.
const connectionsMax = 1024

// Server accepts connections of the native protocol.
type Server struct {
	cfg     Config
	control *control
	engine  identity

	mu       sync.Mutex
	sessions map[*session]struct{}
	next     atomic.Uint64
	wait     sync.WaitGroup
}

// identity is what the engine says of itself.
type identity struct {
	version             string
	major, minor, patch int
	timezone            string
}

// New starts the engine.
func New(cfg Config) (*Server, error) {
	control, err := newControl(cfg)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, control: control, sessions: map[*session]struct{}{}}
	if s.engine, err = control.identity(); err != nil {
		control.close()
		return nil, err
	}
	return s, nil
}

// Version is the engine's.
func (s *Server) Version() string { return s.engine.version }

// Serve accepts until ctx ends, then lets running statements end, kills those that do not within the drain timeout,
// and stops the engine.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	var failed error
	for {
		conn, err := listener.Accept()
		if err == nil {
			s.start(conn)
			continue
		}
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, net.ErrClosed) {
			failed = fmt.Errorf("accept connections: %w", err)
			break
		}
		// Out of file descriptors or the like: it passes when connections close.
		s.cfg.Log.Warn("a connection could not be accepted", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	if !s.drain() {
		// The engine still works on what it was told to give up. Only the end of the process stops it.
		return errors.Join(failed, fmt.Errorf("statements did not end within %v of being killed", killTimeout))
	}
	s.control.close()
	return failed
}

func (s *Server) start(conn net.Conn) {
	c := newSession(s, conn, s.next.Add(1))
	s.mu.Lock()
	full := len(s.sessions) >= connectionsMax
	if !full {
		s.sessions[c] = struct{}{}
		s.wait.Add(1)
	}
	s.mu.Unlock()
	if full {
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		_ = c.answer.exception(refuse(codeTooManyQueries, "Too many connections: the limit is %d", connectionsMax))
		_ = conn.Close()
		return
	}
	go func() {
		defer s.wait.Done()
		c.run()
		s.mu.Lock()
		delete(s.sessions, c)
		s.mu.Unlock()
	}()
}

// killTimeout bounds how long a statement may take to end once it is killed. The engine looks for a kill between
// blocks, so milliseconds are usual.
const killTimeout = 10 * time.Second

// drain ends the idle sessions at once and the others when their statement has ended; after the drain timeout it
// kills the statements. It reports whether all sessions have ended.
func (s *Server) drain() bool {
	s.mu.Lock()
	for c := range s.sessions {
		c.endWhenIdle()
	}
	s.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		s.wait.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return true
	case <-time.After(s.cfg.DrainTimeout):
	}
	s.mu.Lock()
	left := make([]*session, 0, len(s.sessions))
	for c := range s.sessions {
		left = append(left, c)
		_ = c.conn.Close() // ends a write that nobody reads
	}
	s.mu.Unlock()
	s.cfg.Log.Warn("statements are killed: they did not end within the drain timeout", "statements", len(left))
	ticker := time.NewTicker(killEvery)
	defer ticker.Stop()
	for deadline := time.Now().Add(killTimeout); time.Now().Before(deadline); {
		for _, c := range left {
			if err := s.control.kill(c.tag); err != nil {
				s.cfg.Log.Warn("a statement could not be killed", "error", err)
			}
		}
		select {
		case <-ended:
			return true
		case <-ticker.C:
		}
	}
	return false
}

// control is the session that never closes, so that the engine stays up, and through which others are killed.
type control struct {
	requests chan func(*chdb.Conn)
	ended    chan struct{}
}

func newControl(cfg Config) (*control, error) {
	c := &control{requests: make(chan func(*chdb.Conn)), ended: make(chan struct{})}
	opened := make(chan error)
	go func() { // owned by control; ends when requests is closed
		defer close(c.ended)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		conn, err := cfg.Library.Connect(cfg.EngineArgs...)
		opened <- err
		if err != nil {
			return
		}
		defer conn.Close()
		for f := range c.requests {
			f(conn)
		}
	}()
	if err := <-opened; err != nil {
		return nil, fmt.Errorf("start the ClickHouse engine: %w", err)
	}
	return c, nil
}

func (c *control) do(f func(*chdb.Conn) error) error {
	done := make(chan error)
	c.requests <- func(conn *chdb.Conn) { done <- f(conn) }
	return <-done
}

func (c *control) close() {
	close(c.requests)
	<-c.ended
}

// kill stops what the tagged session runs. A statement that the engine has not registered yet is missed: the
// caller repeats.
func (c *control) kill(tag string) error {
	return c.do(func(conn *chdb.Conn) error {
		return conn.Exec("KILL QUERY WHERE Settings['log_comment'] = " + quoteString(tag) + " ASYNC")
	})
}

func (c *control) identity() (identity, error) {
	var id identity
	err := c.do(func(conn *chdb.Conn) error {
		r, err := conn.Query("SELECT version(), timezone()", "JSONCompactEachRow")
		if err != nil {
			return err
		}
		defer r.Close()
		var row [2]string
		if err := json.Unmarshal(r.Bytes(), &row); err != nil {
			return err
		}
		id.version, id.timezone = row[0], row[1]
		for i, part := range strings.Split(id.version, ".") {
			n, _ := strconv.Atoi(part)
			switch i {
			case 0:
				id.major = n
			case 1:
				id.minor = n
			case 2:
				id.patch = n
			}
		}
		return nil
	})
	if err != nil {
		return id, fmt.Errorf("ask the engine for its version: %w", err)
	}
	return id, nil
}

// lostClient wraps an error of writing to the client: nobody is there to be told.
type lostClient struct{ err error }

func (l *lostClient) Error() string { return "write to the client: " + l.err.Error() }
func (l *lostClient) Unwrap() error { return l.err }

// gone reports whether an error means that the client has left.
func gone(err error) bool {
	var lost *lostClient
	var network net.Error
	return errors.As(err, &lost) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.As(err, &network)
}
