package mysqldb

import (
	"context"
	"database/sql/driver"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/fault"
)

func dsn(t *testing.T, text string) config.DSN {
	t.Helper()
	d, err := config.ParseDSN("shards.s1.dsn", text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDriverConfig(t *testing.T) {
	t.Setenv("S1_PASSWORD", "p@ss/w:rd?#%zz")
	a, err := dsn(t, "mysql://slotline:${S1_PASSWORD}@db1/flights_s1?tls=true").Resolve()
	if err != nil {
		t.Fatal(err)
	}
	c, err := driverConfig(a, Options{MultiStatements: true})
	if err != nil {
		t.Fatal(err)
	}
	if c.Addr != "db1:3306" || c.User != "slotline" || c.Passwd != "p@ss/w:rd?#%zz" || c.DBName != "flights_s1" || c.TLSConfig != "true" {
		t.Errorf("%s %s %s %s", c.Addr, c.User, c.DBName, c.TLSConfig)
	}
	if !c.ClientFoundRows || !c.ParseTime || !c.InterpolateParams || !c.MultiStatements || c.Loc != time.UTC {
		t.Errorf("%+v", c)
	}
	if c.Timeout <= 0 || c.WriteTimeout <= 0 || c.ReadTimeout <= 50*time.Second {
		t.Errorf("time-outs %v %v %v", c.Timeout, c.WriteTimeout, c.ReadTimeout)
	}
	if c, _ = driverConfig(a, Options{ReadTimeout: time.Hour}); c.ReadTimeout != time.Hour || c.MultiStatements {
		t.Errorf("options are not taken: %v %v", c.ReadTimeout, c.MultiStatements)
	}
	ch, err := dsn(t, "clickhouse://u@ch1/db").Resolve()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := driverConfig(ch, Options{}); err == nil {
		t.Error("a clickhouse:// URL was taken")
	}
}

func TestOpenNamesTheMissingVariable(t *testing.T) {
	_, err := Open(dsn(t, "mysql://slotline:${SLOTLINE_TEST_NOT_SET}@db1/flights_s1"), Options{})
	if !fault.Is(err, fault.Usage) || !strings.Contains(err.Error(), "SLOTLINE_TEST_NOT_SET") || !strings.Contains(err.Error(), "shards.s1.dsn") {
		t.Errorf("%v", err)
	}
}

// Idle connections go before the server would close them, and the server closes them soon.
func TestIdleTimeoutsNest(t *testing.T) {
	if idleTimeout >= sessionWaitTimeout || defaultReadTimeout >= 2*sessionWaitTimeout {
		t.Errorf("idle %v, session %v, read %v", idleTimeout, sessionWaitTimeout, defaultReadTimeout)
	}
}

// scripted is a connection that records statements and fails at one.
type scripted struct {
	driver.Conn
	failAt string
	ran    []string
	closed bool
}

var errScripted = errors.New("scripted")

func (s *scripted) ExecContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	s.ran = append(s.ran, query)
	if s.failAt != "" && strings.Contains(query, s.failAt) {
		return nil, errScripted
	}
	return driver.ResultNoRows, nil
}

func (s *scripted) Close() error { s.closed = true; return nil }

type scriptedConnector struct {
	driver.Connector
	conn *scripted
}

func (c scriptedConnector) Connect(context.Context) (driver.Conn, error) { return c.conn, nil }

func TestNoConnectionWithoutItsSession(t *testing.T) {
	good := &scripted{}
	if _, err := (connector{scriptedConnector{conn: good}, connectTimeout}).Connect(t.Context()); err != nil || good.closed {
		t.Fatal(err)
	}
	all := strings.Join(good.ran, ";")
	for _, rule := range []string{"NAMES utf8mb4", "READ COMMITTED", "STRICT_ALL_TABLES", "time_zone = '+00:00'", "wait_timeout = 60", "autocommit = 1"} {
		if !strings.Contains(all, rule) {
			t.Errorf("%q is not set: %s", rule, all)
		}
	}
	for _, statement := range good.ran {
		bad := &scripted{failAt: statement}
		conn, err := (connector{scriptedConnector{conn: bad}, connectTimeout}).Connect(t.Context())
		if conn != nil || !errors.Is(err, errScripted) || !bad.closed {
			t.Errorf("%s failed, and the connection was handed out or left open (%v)", statement, err)
		}
	}
}

// A server that takes connections and says nothing, as one that is paused, is not waited for as for a statement. What a
// caller waits less for is its own to say, and what a person interrupts too.
func TestSilentServer(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel takes the connections: nobody accepts them
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	db, err := Open(dsn(t, "mysql://u@"+silent.Addr().String()+"/d"), Options{ReadTimeout: time.Hour, connectTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var one int
	err = db.QueryRowContext(t.Context(), "SELECT 1").Scan(&one)
	if !errors.Is(err, ErrNoAnswer) || Classify(err) != fault.Transient {
		t.Fatalf("a server that says nothing: %v", err)
	}
	if text := Wrap(err, "SL1", "shard s2 db2/flights_s2").Error(); !strings.HasPrefix(text, "shard s2 db2/flights_s2: no answer within 50ms [SL1]") ||
		!strings.Contains(text, "takes connections there and says nothing") || !strings.Contains(text, "do: see the server's log") {
		t.Errorf("a person reads:\n%s", text)
	}

	patient, err := Open(dsn(t, "mysql://u@"+silent.Addr().String()+"/d"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer patient.Close()
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err = patient.PingContext(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a caller with a limit of its own: %v", err)
	}
	if text := Wrap(err, "SL1", "outbox").Error(); !strings.HasPrefix(text, "outbox: no answer in time [SL1]") {
		t.Errorf("a person reads:\n%s", text)
	}
	over, stop := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, stop)
	if err = patient.PingContext(over); !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupted caller: %v", err)
	}
	if text := Wrap(err, "SL1", "outbox").Error(); !strings.HasPrefix(text, "outbox: interrupted before it had answered [SL1]") {
		t.Errorf("a person reads:\n%s", text)
	}
}

func TestIdent(t *testing.T) {
	if got := Ident("a`b"); got != "`a``b`" {
		t.Error(got)
	}
}
