package doristest

import (
	"crypto/sha1"
	"database/sql"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// Version is what the server says it is.
const Version = "doris-2.1.7-rc03-443e87e203"

// User and Password are the one account.
const (
	User     = "slotline"
	Password = "s3cr3t@/:%#"
)

// Server is one frontend and one backend. It ends with the test.
type Server struct {
	fe, be, query net.Listener

	mu        sync.Mutex
	databases map[string]*database
	next      int64 // transaction id
	fault     func(Load) Fault
	loads     []Load
	bytes     int64             // of bodies, read
	logs      map[string]string // error logs
	statement int               // statements that define something
	conns     map[net.Conn]bool // of the MySQL protocol
	open      func(database string) *sql.DB
	lose      bool // what goes into temporary partitions
	closed    bool
	backends  []bool // whether each is alive, as SHOW BACKENDS has it
}

// Backends says how many SHOW BACKENDS shows, and which are alive. Loads go on.
func (s *Server) Backends(alive ...bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backends = alive
}

// Load is one attempt to load, as a fault is asked about it.
type Load struct {
	Label, Table string
	Try          int         // of this label, from 1
	Header       http.Header // of the request
}

// Fault says what goes wrong with one attempt. The zero value: nothing.
type Fault struct {
	FE         *Answer // the frontend answers this in place of its redirect
	CutFE      bool    // the frontend closes the connection without an answer
	RedirectTo string  // host:port in place of the backend's

	BE       *Answer         // the backend answers this before it begins
	CutBegin bool            // the backend closes the connection before it begins
	CutBody  int             // the backend closes the connection after so many bytes of the body, and aborts
	Hold     <-chan struct{} // the backend waits for this after it has read the body; with Fail or without
	Fail     string          // the backend reads the body, aborts and answers Fail with this message
	Orphan   bool            // with CutBody: the transaction stays in PREPARE until Abort

	PublishTimeout <-chan struct{} // committed, answered so, and visible when this is closed
	CutReply       bool            // committed, and the connection is closed without an answer
	Reply          *Answer         // committed, and this is answered

	BadRow     func(line []byte) string // why a row is refused; "" where it is not
	NoErrorLog bool                     // the answer does not say where refused rows are written down
}

// Answer is a whole HTTP answer.
type Answer struct {
	Status int
	Body   string
}

type txnState string

const (
	prepare   txnState = "PREPARE"
	committed txnState = "COMMITTED"
	visible   txnState = "VISIBLE"
	aborted   txnState = "ABORTED"
)

type database struct {
	tables map[string]*table
	views  map[string]*view
	txns   []*txn
	engine *engine // nil until a SELECT needs it
}

type txn struct {
	id    int64
	label string
	state txnState
	table *table         // nil where a test began it
	begun map[string]int // by month, how often its partition had been replaced
}

// New starts a server.
func New(t testing.TB) *Server {
	t.Helper()
	s := &Server{databases: map[string]*database{}, logs: map[string]string{}, conns: map[net.Conn]bool{}, backends: []bool{true}}
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	s.fe, s.be, s.query = listen(), listen(), listen()
	fe, be := &http.Server{Handler: http.HandlerFunc(s.serveFE)}, &http.Server{Handler: http.HandlerFunc(s.serveBE)}
	var wg sync.WaitGroup
	wg.Go(func() { _ = fe.Serve(s.fe) })
	wg.Go(func() { _ = be.Serve(s.be) })
	wg.Go(s.serveQueries)
	t.Cleanup(func() {
		_ = fe.Close()
		_ = be.Close()
		_ = s.query.Close()
		s.mu.Lock()
		s.closed = true
		for c := range s.conns {
			c.Close()
		}
		s.mu.Unlock()
		wg.Wait()
	})
	return s
}

// FE is the frontend's HTTP address, BE the backend's, whose host has another name; both host:port.
func (s *Server) FE() string { return s.fe.Addr().String() }

func (s *Server) BE() string { return fmt.Sprintf("localhost:%d", s.be.Addr().(*net.TCPAddr).Port) }

// QueryPort is the frontend's port of the MySQL protocol.
func (s *Server) QueryPort() int { return s.query.Addr().(*net.TCPAddr).Port }

// NewDatabase makes a database.
func (s *Server) NewDatabase(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.databases[name] = &database{tables: map[string]*table{}, views: map[string]*view{}}
}

// Inject has every attempt to load from now on ask what goes wrong. It is called outside of the server's lock.
func (s *Server) Inject(fault func(Load) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// faultOf asks what goes wrong with an attempt. One at a backend, or at a frontend that does not redirect, is counted.
func (s *Server) faultOf(r *http.Request, table string, count bool) Fault {
	s.mu.Lock()
	label := r.Header.Get("label")
	l := Load{Label: label, Table: table, Try: 1, Header: r.Header}
	for _, before := range s.loads {
		if before.Label == label {
			l.Try++
		}
	}
	if count {
		s.loads = append(s.loads, l)
	}
	fault := s.fault
	s.mu.Unlock()
	if fault == nil {
		return Fault{}
	}
	return fault(l)
}

// LoseTemporary has rows that are inserted into temporary partitions be lost, in silence.
func (s *Server) LoseTemporary(lose bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose = lose
}

// Loads are the attempts so far, in order: those that reached the backend.
func (s *Server) Loads() []Load {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Load(nil), s.loads...)
}

// BodyBytes is how much of all loads' bodies was read.
func (s *Server) BodyBytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// Statements counts the statements that defined something.
func (s *Server) Statements() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.statement
}

// State is what get_load_state says of a label.
func (s *Server) State(db, label string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stateLocked(db, label)
}

func (s *Server) stateLocked(db, label string) string {
	state := "UNKNOWN"
	if d := s.databases[db]; d != nil {
		for _, x := range d.txns {
			if x.label == label {
				state = string(x.state)
			}
		}
	}
	return state
}

// Abort ends the transaction of a label that is under way, as its time-out does.
func (s *Server) Abort(db, label string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.databases[db].txns {
		if x.label == label && x.state == prepare {
			x.state = aborted
		}
	}
}

// Begin takes a label for a transaction that is under way, as a load does whose sender is gone.
func (s *Server) Begin(db, label string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.databases[db].txns = append(s.databases[db].txns, &txn{id: s.next, label: label, state: prepare})
}

// Commit takes a label for a transaction that is committed, as a load is whose answer is Publish Timeout; it is visible once
// publish is called.
func (s *Server) Commit(db, label string) (publish func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	x := &txn{id: s.next, label: label, state: committed}
	s.databases[db].txns = append(s.databases[db].txns, x)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		x.state = visible
	}
}

// ForgetLabels evicts the labels of loads that have ended.
func (s *Server) ForgetLabels(db string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.databases[db]
	kept := d.txns[:0]
	for _, x := range d.txns {
		if x.state == prepare || x.state == committed {
			kept = append(kept, x)
		}
	}
	d.txns = kept
}

// Labels are the labels that are known, those of ended loads too.
func (s *Server) Labels(db string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	for _, x := range s.databases[db].txns {
		list = append(list, x.label)
	}
	return list
}

// scramble is what mysql_native_password sends.
func scramble(password string, seed []byte) []byte {
	if password == "" {
		return nil
	}
	stage1 := sha1.Sum([]byte(password))
	stage2 := sha1.Sum(stage1[:])
	h := sha1.New()
	h.Write(seed)
	h.Write(stage2[:])
	out := h.Sum(nil)
	for i := range out {
		out[i] ^= stage1[i]
	}
	return out
}

// splitPath takes "/api/{db}/{table}/_stream_load" apart.
func splitPath(path string) []string { return strings.Split(strings.Trim(path, "/"), "/") }

// after is how long a lost connection's transaction lives on before it is rolled back.
const after = 10 * time.Millisecond
