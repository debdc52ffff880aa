package harness

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"os"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/moby/moby/client"
)

// MySQLServer is one MySQL server with local_infile on. A commit outlives a kill of it; only MakeDurable has it wait for
// the disk. User may do everything.
type MySQLServer struct {
	Outage
	Addr     string // host:port
	User     string
	Password string
}

const mysqlVariable = "SLOTLINE_TEST_MYSQL" // mysql://user:password@host:port/

var sharedMySQL = sync.OnceValues(func() (*MySQLServer, error) {
	if v := os.Getenv(mysqlVariable); v != "" {
		u, err := url.Parse(v)
		if err != nil || u.Scheme != "mysql" || u.Port() == "" {
			return nil, fmt.Errorf("%s is not a URL of a MySQL server\n  write: mysql://user:password@host:port/", mysqlVariable)
		}
		password, _ := u.User.Password()
		m := &MySQLServer{Addr: u.Host, User: u.User.Username(), Password: password}
		ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
		defer cancel()
		if err := m.ready(ctx); err != nil {
			return nil, fmt.Errorf("%s, server %s: %w", mysqlVariable, m.Addr, err)
		}
		return m, nil
	}
	m, err := startMySQL(mysqlImage, nil)
	if err != nil {
		return nil, err
	}
	m.Outage = Outage{}
	return m, nil
})

// MySQL returns the server that the tests of this binary share.
func MySQL(t testing.TB) *MySQLServer {
	t.Helper()
	need(t)
	m, err := sharedMySQL()
	if err != nil {
		unavailable(t, err.Error())
	}
	return m
}

// PrivateMySQL starts a server that this test alone uses, and may stop, kill and pause. The args are added to mysqld's.
func PrivateMySQL(t testing.TB, args ...string) *MySQLServer {
	t.Helper()
	return privateMySQL(t, mysqlImage, nil, args...)
}

// PrivateMariaDB is PrivateMySQL with MariaDB, whose image is built at the first use.
func PrivateMariaDB(t testing.TB, args ...string) *MySQLServer {
	t.Helper()
	return privateMySQL(t, mariadbImage, nil, args...)
}

// SmallDisk is where a server of PrivateMySQLWithSmallDisk has a disk of SmallDiskBytes, for tables that say DATA DIRECTORY.
const (
	SmallDisk      = "/small"
	SmallDiskBytes = 16 << 20
)

// PrivateMySQLWithSmallDisk is PrivateMySQL with a second, small disk, which a test may fill.
func PrivateMySQLWithSmallDisk(t testing.TB) *MySQLServer {
	t.Helper()
	return privateMySQL(t, mysqlImage, map[string]string{SmallDisk: fmt.Sprintf("size=%d", SmallDiskBytes)}, "--innodb-directories="+SmallDisk)
}

func privateMySQL(t testing.TB, image imageSpec, tmpfs map[string]string, args ...string) *MySQLServer {
	t.Helper()
	need(t)
	m, err := startMySQL(image, tmpfs, args...)
	if err != nil {
		unavailable(t, err.Error())
	}
	t.Cleanup(m.s.remove)
	return m
}

// MakeDurable has each commit wait for the disk, as MySQL does unless told otherwise. A server that the environment names
// keeps its settings.
func (m *MySQLServer) MakeDurable(t testing.TB) {
	t.Helper()
	if os.Getenv(mysqlVariable) != "" {
		return
	}
	if _, err := m.Open(t, "").Exec("SET GLOBAL sync_binlog = 1, GLOBAL innodb_flush_log_at_trx_commit = 1"); err != nil {
		t.Fatalf("mysql %s: %v", m.Addr, err)
	}
}

// DSN names a database of the server in the form that github.com/go-sql-driver/mysql takes; db may be empty.
func (m *MySQLServer) DSN(db string) string { return m.config(db).FormatDSN() }

func (m *MySQLServer) config(db string) *mysql.Config {
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User, c.Passwd, c.DBName, c.ParseTime = "tcp", m.Addr, m.User, m.Password, db, true
	return c
}

// InsideAddr is the address, host:port, at which other containers reach a private server.
func (m *MySQLServer) InsideAddr(t testing.TB) string {
	t.Helper()
	var host string
	m.act(t, "inspect", func(ctx context.Context, d *client.Client, id string) error {
		c, err := d.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
		if err != nil {
			return err
		}
		for _, n := range c.Container.NetworkSettings.Networks {
			host = n.IPAddress.String()
		}
		return nil
	}, false)
	return net.JoinHostPort(host, "3306")
}

// URL names a database of the server in the form that slotline.yaml takes, password included.
func (m *MySQLServer) URL(db string) string {
	u := url.URL{Scheme: "mysql", User: url.UserPassword(m.User, m.Password), Host: m.Addr, Path: "/" + db}
	return u.String()
}

// Open returns connections to a database, which are closed when the test ends; db may be empty.
func (m *MySQLServer) Open(t testing.TB, db string) *sql.DB {
	t.Helper()
	pool, err := sql.Open("mysql", m.DSN(db))
	if err != nil {
		t.Fatalf("mysql %s: %v", m.Addr, err)
	}
	t.Cleanup(func() { pool.Close() })
	return pool
}

// NewDatabase makes an empty database, which is dropped when the test ends.
func (m *MySQLServer) NewDatabase(t testing.TB, name string) string {
	t.Helper()
	pool := m.Open(t, "")
	exec := func(query string) error {
		ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
		defer cancel()
		_, err := pool.ExecContext(ctx, query)
		return err
	}
	if err := exec("CREATE DATABASE `" + name + "`"); err != nil {
		t.Fatalf("mysql %s: creating database %s: %v", m.Addr, name, err)
	}
	if m.s == nil { // a private server takes its databases with it
		t.Cleanup(func() {
			if err := exec("DROP DATABASE IF EXISTS `" + name + "`"); err != nil {
				t.Errorf("mysql %s: dropping database %s: %v", m.Addr, name, err)
			}
		})
	}
	return name
}

func (m *MySQLServer) ready(ctx context.Context) error {
	c := m.config("")
	c.Logger = &mysql.NopLogger{} // a server that starts refuses many times before it answers
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return err
	}
	pool := sql.OpenDB(connector)
	defer pool.Close()
	return pool.PingContext(ctx)
}

func startMySQL(image imageSpec, tmpfs map[string]string, args ...string) (*MySQLServer, error) {
	m := &MySQLServer{User: "root", Password: "root-" + randomHex(8)}
	s, err := spec{
		image: image,
		port:  3306,
		tmpfs: tmpfs,
		env:   func(int, ...int) map[string]string { return map[string]string{"MYSQL_ROOT_PASSWORD": m.Password} },
		args: append([]string{
			// What is acknowledged outlives a kill of the server, as the system has it; the machine is not killed. Waiting
			// for the disk took two thirds of a test run's time on slow disks.
			"--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2",
			"--local-infile=ON", "--max-connections=500", "--innodb-buffer-pool-size=512M",
		}, args...),
		ready: func(port int) func(context.Context) error {
			m.Addr = loopback(port)
			return m.ready
		},
	}.start()
	if err != nil {
		return nil, err
	}
	m.Outage = Outage{s}
	return m, nil
}
