package chdb

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"
)

// Library is libchdb, loaded. There is one per process, because the engine is one per process.
type Library struct {
	c *binding
	// connecting orders the opening and closing of connections: both change process-wide signal handlers.
	connecting sync.Mutex
}

// Open loads the library. It starts no engine.
func Open(path string) (*Library, error) {
	c, err := load(path)
	if err != nil {
		return nil, err
	}
	l := &Library{c: c}
	saved := saveSignalActions()
	l.c.setSignalHandlers(0)
	saved.restore()
	return l, nil
}

// Version is the engine's own, such as "26.7.3".
func (l *Library) Version() string { return l.c.version() }

// Shutdown joins the engine's threads. All connections must have been closed.
func (l *Library) Shutdown() error {
	l.connecting.Lock()
	defer l.connecting.Unlock()
	if l.c.shutdown() != 0 {
		return errors.New("the engine could not stop all of its threads")
	}
	return nil
}

// Conn is one session: it has its own settings and current database.
type Conn struct {
	l     *Library
	outer unsafe.Pointer // what chdb_connect returned
	inner unsafe.Pointer // what every other call wants
}

// Connect opens a session. The first one starts the engine with the server options among args (--path=DIR and
// others); later ones must name the same directory.
func (l *Library) Connect(args ...string) (*Conn, error) {
	argv := newCStrings(append([]string{"clickhouse"}, args...))
	l.connecting.Lock()
	saved := saveSignalActions()
	outer := l.c.connect(int32(len(argv.pointers)-1), unsafe.Pointer(&argv.pointers[0]))
	saved.restore()
	l.connecting.Unlock()
	runtime.KeepAlive(argv)
	if outer == nil {
		return nil, errors.New("the engine refused the connection (its reason is on standard error)")
	}
	inner := *(*unsafe.Pointer)(outer)
	if inner == nil {
		return nil, errors.New("the engine returned an empty connection")
	}
	return &Conn{l: l, outer: outer, inner: inner}, nil
}

// Close ends the session. Closing the last one of the process stops the engine.
func (c *Conn) Close() {
	if c.outer == nil {
		return
	}
	c.l.connecting.Lock()
	defer c.l.connecting.Unlock()
	saved := saveSignalActions()
	c.l.c.close(c.outer)
	saved.restore()
	c.outer, c.inner = nil, nil
}

// Param is a value for a {name:Type} placeholder, in the engine's escaped text form.
type Param struct{ Name, Value string }

// Error is what the engine said, with its "Code: N." still in front.
type Error struct{ Text string }

func (e *Error) Error() string { return e.Text }

// Result is the whole answer to a statement, in memory of the engine.
type Result struct {
	l      *Library
	handle unsafe.Pointer
}

// Bytes is the answer in the format that was asked for. It is valid until Close.
func (r *Result) Bytes() []byte {
	n := r.l.c.resultLength(r.handle)
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(r.l.c.resultBuffer(r.handle)), n)
}

// Rows counts the rows of the answer.
func (r *Result) Rows() uint64 { return r.l.c.resultRows(r.handle) }

// RowsWritten counts the rows that an INSERT wrote, those of materialized views included.
func (r *Result) RowsWritten() uint64 { return r.l.c.resultWritten(r.handle) }

// Close frees the memory.
func (r *Result) Close() {
	if r.handle != nil {
		r.l.c.resultDestroy(r.handle)
		r.handle = nil
	}
}

func (l *Library) result(handle unsafe.Pointer) (*Result, error) {
	if handle == nil {
		return nil, &Error{Text: "Code: 49. DB::Exception: the engine returned no result (LOGICAL_ERROR)"}
	}
	r := &Result{l: l, handle: handle}
	if text := l.c.resultError(handle); text != nil {
		err := &Error{Text: goString(text)}
		r.Close()
		return nil, err
	}
	return r, nil
}

// Query runs one statement to its end and keeps the whole answer.
func (c *Conn) Query(sql, format string, params ...Param) (*Result, error) {
	p := newCParams(params)
	handle := c.l.c.query(c.inner, stringData(sql), uintptr(len(sql)), stringData(format), uintptr(len(format)),
		p.names, p.nameLens, p.values, p.valueLens, p.count)
	runtime.KeepAlive(sql)
	runtime.KeepAlive(format)
	runtime.KeepAlive(p)
	return c.l.result(handle)
}

// Exec runs one statement and drops its answer.
func (c *Conn) Exec(sql string, params ...Param) error {
	r, err := c.Query(sql, "Null", params...)
	if err != nil {
		return err
	}
	r.Close()
	return nil
}

// Stream is a running SELECT whose answer comes in parts.
type Stream struct {
	c      *Conn
	handle unsafe.Pointer
}

// Stream starts a SELECT. The connection takes no other statement until the stream's Close.
func (c *Conn) Stream(sql, format string, params ...Param) (*Stream, error) {
	p := newCParams(params)
	handle := c.l.c.streamQuery(c.inner, stringData(sql), uintptr(len(sql)), stringData(format), uintptr(len(format)),
		p.names, p.nameLens, p.values, p.valueLens, p.count)
	runtime.KeepAlive(sql)
	runtime.KeepAlive(format)
	runtime.KeepAlive(p)
	r, err := c.l.result(handle)
	if err != nil {
		return nil, err
	}
	return &Stream{c: c, handle: r.handle}, nil
}

// Next returns the next part, nil at the end. The caller closes it.
func (s *Stream) Next() (*Result, error) {
	r, err := s.c.l.result(s.c.l.c.streamFetch(s.c.inner, s.handle))
	if err != nil {
		return nil, err
	}
	if len(r.Bytes()) == 0 {
		r.Close()
		return nil, nil
	}
	return r, nil
}

// Cancel stops the query. Close must still be called.
func (s *Stream) Cancel() { s.c.l.c.streamStop(s.c.inner, s.handle) }

// Close frees the stream.
func (s *Stream) Close() {
	if s.handle != nil {
		s.c.l.c.resultDestroy(s.handle)
		s.handle = nil
	}
}

// Insert is a running INSERT that is fed with data.
type Insert struct {
	l      *Library
	handle unsafe.Pointer
}

// Insert starts an INSERT whose text has neither FORMAT nor data. The connection takes no other statement until
// the insert's Close.
func (c *Conn) Insert(sql, format string, params ...Param) (*Insert, error) {
	p := newCParams(params)
	handle := c.l.c.insert(c.inner, stringData(sql), uintptr(len(sql)), stringData(format), uintptr(len(format)),
		p.names, p.nameLens, p.values, p.valueLens, p.count)
	runtime.KeepAlive(sql)
	runtime.KeepAlive(format)
	runtime.KeepAlive(p)
	i := &Insert{l: c.l, handle: handle}
	if err := i.err(); err != nil {
		i.Close()
		return nil, err
	}
	return i, nil
}

func (i *Insert) err() error {
	if text := i.l.c.insertError(i.handle); text != nil {
		return &Error{Text: goString(text)}
	}
	return nil
}

// Append hands over a chunk, which the engine copies; it waits while the engine is behind. After an error the
// insert can only be closed.
func (i *Insert) Append(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	state := i.l.c.insertAppend(i.handle, unsafe.Pointer(&data[0]), uintptr(len(data)))
	runtime.KeepAlive(data)
	if state == 0 {
		return nil
	}
	if err := i.err(); err != nil {
		return err
	}
	return fmt.Errorf("the engine took no more data (state %d)", state)
}

// Done ends the data, waits until the rows are part of the table, and returns their number.
func (i *Insert) Done() (rows uint64, err error) {
	r, err := i.l.result(i.l.c.insertDone(i.handle))
	if err != nil {
		return 0, err
	}
	defer r.Close()
	return r.RowsWritten(), nil
}

// Cancel gives the insert up; blocks that the engine has already written stay.
func (i *Insert) Cancel() { i.l.c.insertCancel(i.handle) }

// Close frees the insert, cancelling it if it was not Done.
func (i *Insert) Close() {
	if i.handle != nil {
		i.l.c.insertDestroy(i.handle)
		i.handle = nil
	}
}
