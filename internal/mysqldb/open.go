package mysqldb

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/slotline/slotline/config"
)

// Options of a pool. The zero value is valid.
type Options struct {
	MaxConns        int           // connections at most; 0 means DefaultMaxConns
	MultiStatements bool          // several statements in one packet; only for SQL built by slotline
	ReadTimeout     time.Duration // longest wait for one answer; 0 means 70 s. DDL on large tables needs more

	connectTimeout time.Duration // 0 means the default; for tests
}

// DefaultMaxConns are the most connections of a pool that names no other number.
const DefaultMaxConns = 8

const (
	dialTimeout = 5 * time.Second
	// connectTimeout is how long a new session may take until it is set up. The read time-out says nothing of that: a
	// server that is paused takes connections, and a person would wait for a minute before a command says so.
	connectTimeout = 8 * time.Second
	// The server answers a statement that waits for a row lock with error 1205 after 50 s (its default): the time-out
	// is longer, so that the answer is read and the connection lives on.
	defaultReadTimeout = 70 * time.Second
	writeTimeout       = 30 * time.Second

	// sessionWaitTimeout is how long the server keeps a session, and its locks, that says nothing.
	sessionWaitTimeout = 60 * time.Second
	// idleTimeout is shorter, so that a pool never hands out a connection that the server is about to close.
	idleTimeout = 45 * time.Second
	// lifetime bounds how long a pool stays with a server that is no longer the one its name points at.
	lifetime = 5 * time.Minute
)

// sqlMode is strict: a value that does not fit is an error, never altered. ANSI_QUOTES and NO_BACKSLASH_ESCAPES, which
// would change what statements mean, are off.
const sqlMode = "STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"

// sessionSQL sets a session up, whatever the server's defaults: what statements mean does not depend on them. The isolation
// level is a statement of its own because MariaDB before 11.1 has no variable transaction_isolation and MySQL has no
// tx_isolation.
var sessionSQL = []string{
	"SET NAMES utf8mb4",
	"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
	fmt.Sprintf("SET SESSION autocommit = 1, completion_type = 0, sql_safe_updates = 0, sql_select_limit = %d, sql_mode = '%s', time_zone = '+00:00', wait_timeout = %d",
		math.MaxInt64, sqlMode, int(sessionWaitTimeout/time.Second)),
}

// Open returns a pool for a mysql:// DSN. It does no I/O: what is wrong with the server shows at the first use.
func Open(dsn config.DSN, o Options) (*sql.DB, error) {
	a, err := dsn.Resolve()
	if err != nil {
		return nil, err
	}
	c, err := driverConfig(a, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dsn.Place(), err)
	}
	inner, err := mysql.NewConnector(c)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dsn.Place(), err)
	}
	db := sql.OpenDB(connector{inner, cmp.Or(o.connectTimeout, connectTimeout)})
	conns := o.MaxConns
	if conns <= 0 {
		conns = DefaultMaxConns
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	db.SetConnMaxIdleTime(idleTimeout)
	db.SetConnMaxLifetime(lifetime)
	return db, nil
}

func driverConfig(a config.Address, o Options) (*mysql.Config, error) {
	if a.Scheme != "mysql" || len(a.Hosts) != 1 {
		return nil, fmt.Errorf("a mysql:// URL with one host is needed, this is %s", a)
	}
	c := mysql.NewConfig()
	c.Net, c.Addr = "tcp", a.Hosts[0]
	c.User, c.Passwd, c.DBName = a.User, a.Password, a.Database
	c.TLSConfig = a.Params["tls"]
	c.Timeout, c.ReadTimeout, c.WriteTimeout = dialTimeout, defaultReadTimeout, writeTimeout
	if o.ReadTimeout > 0 {
		c.ReadTimeout = o.ReadTimeout
	}
	c.Loc = time.UTC
	c.ParseTime = true
	c.ClientFoundRows = true // an UPDATE that finds its row counts 1, also when it changes nothing
	c.InterpolateParams = true
	c.MultiStatements = o.MultiStatements
	c.Logger = &mysql.NopLogger{} // what it would print comes back as an error, which the caller classifies
	return c, nil
}

// connector sets each new connection up before the pool has it.
type connector struct {
	driver.Connector
	patience time.Duration
}

// ErrNoAnswer is what a use of a pool fails with when a server takes connections and says nothing.
var ErrNoAnswer = errors.New("no answer")

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	bounded, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	conn, err := c.connect(bounded)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("%w within %v", ErrNoAnswer, c.patience)
	}
	return conn, err
}

func (c connector) connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	exec := conn.(driver.ExecerContext) // the driver's connections are
	for _, statement := range sessionSQL {
		if _, err := exec.ExecContext(ctx, statement, nil); err != nil {
			conn.Close()
			return nil, fmt.Errorf("setting the session up (%s): %w", statement, err)
		}
	}
	return conn, nil
}

// Ident quotes a name for SQL.
func Ident(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// Discard closes a connection, in place of giving it back to its pool with what it holds: locks, a snapshot, settings.
func Discard(conn *sql.Conn) {
	conn.Raw(func(any) error { return driver.ErrBadConn }) // closes conn too
}
