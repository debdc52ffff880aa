package harness

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"sync"
	"testing"

	"github.com/ClickHouse/ch-go"
)

// ClickHouseServer is one ClickHouse, or its engine behind the native protocol where the image is a built one.
type ClickHouseServer struct {
	Outage
	Addr     string // host:port of the native protocol
	User     string
	Password string
}

const clickhouseVariable = "SLOTLINE_TEST_CLICKHOUSE" // clickhouse://user:password@host:port/

var sharedClickHouse = sync.OnceValues(func() (*ClickHouseServer, error) {
	if v := os.Getenv(clickhouseVariable); v != "" {
		u, err := url.Parse(v)
		if err != nil || u.Scheme != "clickhouse" || u.Port() == "" {
			return nil, fmt.Errorf("%s is not a URL of a ClickHouse server\n  write: clickhouse://user:password@host:port/", clickhouseVariable)
		}
		password, _ := u.User.Password()
		c := &ClickHouseServer{Addr: u.Host, User: u.User.Username(), Password: password}
		ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
		defer cancel()
		if err := c.ready(ctx); err != nil {
			return nil, fmt.Errorf("%s, server %s: %w", clickhouseVariable, c.Addr, err)
		}
		return c, nil
	}
	c, err := startClickHouse()
	if err != nil {
		return nil, err
	}
	c.Outage = Outage{}
	return c, nil
})

// ClickHouse returns the server that the tests of this binary share.
func ClickHouse(t testing.TB) *ClickHouseServer {
	t.Helper()
	need(t)
	c, err := sharedClickHouse()
	if err != nil {
		unavailable(t, err.Error())
	}
	return c
}

// PrivateClickHouse starts a server that this test alone uses, and may stop, kill and pause.
func PrivateClickHouse(t testing.TB) *ClickHouseServer {
	t.Helper()
	need(t)
	c, err := startClickHouse()
	if err != nil {
		unavailable(t, err.Error())
	}
	t.Cleanup(c.s.remove)
	return c
}

// URL names a database of the server in the form that slotline.yaml takes, password included.
func (c *ClickHouseServer) URL(db string) string {
	u := url.URL{Scheme: "clickhouse", User: url.UserPassword(c.User, c.Password), Host: c.Addr, Path: "/" + db}
	return u.String()
}

// Dial returns a connection that is closed when the test ends; db may be empty.
func (c *ClickHouseServer) Dial(t testing.TB, db string) *ch.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
	defer cancel()
	conn, err := c.dial(ctx, db)
	if err != nil {
		t.Fatalf("clickhouse %s: %v", c.Addr, err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// NewDatabase makes an empty database, which is dropped when the test ends.
func (c *ClickHouseServer) NewDatabase(t testing.TB, name string) string {
	t.Helper()
	if err := c.exec("CREATE DATABASE `" + name + "`"); err != nil {
		t.Fatalf("clickhouse %s: creating database %s: %v", c.Addr, name, err)
	}
	if c.s == nil { // a private server takes its databases with it
		t.Cleanup(func() {
			if err := c.exec("DROP DATABASE IF EXISTS `" + name + "`"); err != nil {
				t.Errorf("clickhouse %s: dropping database %s: %v", c.Addr, name, err)
			}
		})
	}
	return name
}

func (c *ClickHouseServer) exec(query string) error {
	ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
	defer cancel()
	conn, err := c.dial(ctx, "")
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Do(ctx, ch.Query{Body: query})
}

func (c *ClickHouseServer) dial(ctx context.Context, db string) (*ch.Client, error) {
	return ch.Dial(ctx, ch.Options{Address: c.Addr, User: c.User, Password: c.Password, Database: db})
}

func (c *ClickHouseServer) ready(ctx context.Context) error {
	conn, err := c.dial(ctx, "")
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Ping(ctx)
}

func startClickHouse() (*ClickHouseServer, error) {
	c := &ClickHouseServer{User: "slotline", Password: "clickhouse-" + randomHex(8)}
	s, err := spec{
		image: clickhouseImage,
		port:  9000,
		env: func(int, ...int) map[string]string {
			return map[string]string{"CLICKHOUSE_USER": c.User, "CLICKHOUSE_PASSWORD": c.Password, "CLICKHOUSE_DEFAULT_ACCESS_MANAGEMENT": "1"}
		},
		ready: func(port int) func(context.Context) error {
			c.Addr = loopback(port)
			return c.ready
		},
	}.start()
	if err != nil {
		return nil, err
	}
	c.Outage = Outage{s}
	return c, nil
}
