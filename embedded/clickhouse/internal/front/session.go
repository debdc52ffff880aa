package front

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/slotline/slotline/embedded/clickhouse/internal/chdb"
	"github.com/slotline/slotline/embedded/clickhouse/internal/statement"
	"github.com/slotline/slotline/embedded/clickhouse/internal/wire"
)

// session is one client connection. One goroutine, locked to its thread, reads packets, calls the engine and
// answers. While the engine works and the client has nothing to send, a second goroutine (watch) waits for the
// client's cancel or end; the two never read at once.
type session struct {
	server *Server
	conn   net.Conn
	tag    string // log_comment of everything that this session runs
	raw    *wire.Source
	answer *answer
	// data reads blocks: raw itself, or what its compressed frames hold.
	data       *wire.Source
	frames     *wire.Source
	compressed bool
	blockBuf   []byte

	engine   *chdb.Conn
	settings map[string]string

	// ending is set when the server drains: no further statement is read.
	ending atomic.Bool
}

// helloTimeout bounds a connection that says nothing.
const helloTimeout = 10 * time.Second

func newSession(server *Server, conn net.Conn, number uint64) *session {
	return &session{
		server: server, conn: conn, tag: fmt.Sprintf("slotline-front-%d", number),
		raw: wire.NewSource(conn), answer: newAnswer(conn), settings: map[string]string{},
	}
}

// endWhenIdle makes the session end after the statement that it runs.
func (s *session) endWhenIdle() {
	s.ending.Store(true)
	_ = s.conn.SetReadDeadline(time.Unix(1, 0))
}

func (s *session) run() {
	runtime.LockOSThread() // the engine keeps state per thread
	defer runtime.UnlockOSThread()
	defer func() { _ = s.conn.Close() }()
	log := s.server.cfg.Log.With("client", s.conn.RemoteAddr().String())
	defer func() {
		// A fault of this front on what one client sent must not end the others.
		if p := recover(); p != nil {
			log.Error("the connection was closed after a fault", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	defer func() {
		if s.engine != nil {
			s.engine.Close()
		}
	}()
	err := s.serve()
	switch {
	case err == nil, s.ending.Load():
	case gone(err):
		log.Debug("the client has left", "error", err)
	default:
		log.Info("the connection was closed", "error", err)
		_ = s.conn.SetWriteDeadline(time.Now().Add(time.Second))
		_ = s.answer.exception(asProtocolError(err))
	}
}

// asProtocolError gives errors that have no code the one of a packet that makes no sense.
func asProtocolError(err error) error {
	var r *refusal
	var engine *chdb.Error
	if errors.As(err, &r) || errors.As(err, &engine) {
		return err
	}
	return refuse(codeUnknownPacket, "%v", err)
}

// serve returns nil when the client has left between statements.
func (s *session) serve() error {
	if err := s.handshake(); err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	for !s.ending.Load() {
		code, err := s.raw.Peek()
		if err != nil {
			return err
		}
		if _, err := s.raw.Byte(); err != nil {
			return err
		}
		switch proto.ClientCode(code) {
		case proto.ClientCodePing:
			proto.ServerCodePong.Encode(&s.answer.buf)
			err = s.answer.flush()
		case proto.ClientCodeQuery:
			err = s.query()
		case proto.ClientCodeCancel:
			// Of a statement that has ended in the meantime.
		case proto.ClientCodeData:
			// The rest of an INSERT that was answered with an error.
			err = s.skipData()
		default:
			err = refuse(codeUnknownPacket, "Unknown packet %d from client", code)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *session) handshake() error {
	_ = s.conn.SetReadDeadline(time.Now().Add(helloTimeout))
	code, err := s.raw.UVarInt()
	if err != nil {
		return err
	}
	if code != uint64(proto.ClientCodeHello) {
		return refuse(codeUnexpectedPacket, "Unexpected packet %d from client, expected Hello of the native protocol", code)
	}
	h, err := readHello(s.raw)
	if err != nil {
		return err
	}
	if h.revision < revision {
		return refuse(codeNotImplemented, "Client %q speaks revision %d; this front speaks %d: use a client of 2023 or later",
			h.name, h.revision, revision)
	}
	if s.engine, err = s.server.cfg.Library.Connect(s.server.cfg.EngineArgs...); err != nil {
		return err
	}
	if err := s.engine.Exec("SET log_comment = " + quoteString(s.tag)); err != nil {
		return err
	}
	if h.database != "" {
		if err := s.engine.Exec("USE " + quoteName(h.database)); err != nil {
			return err
		}
	}
	id := s.server.engine
	(&proto.ServerHello{
		Name: "ClickHouse", Major: id.major, Minor: id.minor, Patch: id.patch, Revision: revision,
		Timezone: id.timezone, DisplayName: "slotline embedded engine",
	}).EncodeAware(&s.answer.buf, revision)
	if err := s.answer.flush(); err != nil {
		return err
	}
	if _, err := s.raw.String("quota key", helloBytesMax); err != nil {
		return err
	}
	_ = s.conn.SetReadDeadline(time.Time{})
	if s.ending.Load() {
		s.endWhenIdle() // it may have come before the deadline was lifted
	}
	return nil
}

// query reads and runs one statement. It returns an error only when the connection cannot go on.
func (s *session) query() error {
	q, err := readQuery(s.raw)
	if err != nil {
		return err
	}
	s.setCompression(q.compressed)
	if err := s.externalTables(); err != nil {
		return err
	}
	err = s.runStatement(q)
	if err == nil || gone(err) {
		return err
	}
	var broken *brokenStream
	if errors.As(err, &broken) {
		return err
	}
	s.answer.buf.Reset()
	return s.answer.exception(err)
}

func (s *session) runStatement(q query) error {
	if err := s.applySettings(q.settings); err != nil {
		return err
	}
	params := make([]chdb.Param, len(q.parameters))
	for i, p := range q.parameters {
		params[i] = chdb.Param{Name: p.name, Value: parameterValue(p.value)}
	}
	st := statement.Parse(q.body)
	switch st.Kind {
	case statement.Many:
		return refuse(codeSyntax, "Syntax error (Multi-statements are not allowed)")
	case statement.Insert:
		return s.insert(st, params)
	case statement.Select:
		return s.selectStream(st.Text, params)
	default:
		return s.whole(st.Text, params)
	}
}

// setCompression chooses how the blocks of the coming statement look in both directions.
func (s *session) setCompression(on bool) {
	s.compressed = on
	s.data = s.raw
	if on {
		if s.frames == nil {
			s.frames = wire.NewFrames(s.raw)
		}
		s.data = s.frames
	}
}

// externalTables goes over the data that follows a query: empty unless the client sends tables along.
func (s *session) externalTables() error {
	code, err := s.raw.UVarInt()
	if err != nil {
		return err
	}
	if code != uint64(proto.ClientCodeData) {
		return refuse(codeUnexpectedPacket, "Unexpected packet %d from client, expected Data", code)
	}
	name, err := s.raw.String("table name", tableNameBytes)
	if err != nil {
		return err
	}
	shape, err := s.block(&wire.Carrier{Flush: discard})
	if err != nil {
		return err
	}
	if shape.Columns > 0 {
		return refuse(codeNotImplemented, "External table %q: this front takes none", name)
	}
	return nil
}

func discard([]byte) error { return nil }

// block reads one block through c.
func (s *session) block(c *wire.Carrier) (wire.Shape, error) {
	if err := skipBlockInfo(s.data); err != nil {
		return wire.Shape{}, err
	}
	out, shape, err := c.FromWire(s.data, s.blockBuf[:0])
	s.blockBuf = out
	if err != nil {
		return shape, err
	}
	if s.compressed && s.data.Buffered() {
		return shape, fmt.Errorf("%w: bytes after a block in its compressed frame", wire.ErrFormat)
	}
	if len(out) > 0 && c.Flush != nil {
		return shape, c.Flush(out)
	}
	return shape, nil
}

// skipData goes over one Data packet whose code has been read.
func (s *session) skipData() error {
	if s.data == nil {
		return refuse(codeUnexpectedPacket, "Unexpected packet Data from client, expected Query")
	}
	if _, err := s.raw.String("table name", tableNameBytes); err != nil {
		return err
	}
	_, err := s.block(&wire.Carrier{Flush: discard})
	return err
}

// brokenStream says that the position in the client's bytes is lost.
type brokenStream struct{ err error }

func (b *brokenStream) Error() string { return b.err.Error() }
func (b *brokenStream) Unwrap() error { return b.err }
