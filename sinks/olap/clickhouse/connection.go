package clickhouse

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ClickHouse/ch-go"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/fault"
)

const (
	dialTimeout      = 3 * time.Second
	handshakeTimeout = 10 * time.Second
	// pollInterval is how often the client looks whether it should give up while it waits for an answer. It is no
	// time-out: those are the contexts'.
	pollInterval = time.Second
	// statementTimeout bounds a statement that reads or defines; insertTimeout one block. A server that is merely slow
	// answers sooner, and one that is gone is found by keep-alives.
	statementTimeout = time.Minute
	insertTimeout    = 5 * time.Minute
	// idleTimeout is shorter than what servers and the boxes between them allow.
	idleTimeout = time.Minute
)

// keepAlive finds a peer that is gone, but whose packets are lost, in some 25 seconds.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}

// pool is the connections to the server, or to the first of several hosts that answers. It is safe for concurrent use.
type pool struct {
	dsn config.DSN
	log *slog.Logger

	mu   sync.Mutex // guards idle; held for no I/O
	idle []*connection
}

// connection is one session. One that failed in any way is closed and never used again: what is left of the failed
// statement in its stream would be taken for the next one's.
type connection struct {
	client *ch.Client
	pool   *pool
	host   string
	usedAt time.Time
}

// get returns a connection that was used not long ago, or a new one.
func (p *pool) get(ctx context.Context) (*connection, error) {
	for {
		p.mu.Lock()
		n := len(p.idle)
		if n == 0 {
			p.mu.Unlock()
			return p.dial(ctx)
		}
		c := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		if time.Since(c.usedAt) < idleTimeout {
			return c, nil
		}
		c.close()
	}
}

// put gives a connection back whose last statement ended well.
func (p *pool) put(c *connection) {
	c.usedAt = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, c)
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.idle {
		c.close()
	}
	p.idle = nil
}

// dial tries the hosts in order. One that cannot be reached, or is on its way down, passes the turn to the next; one
// that refuses us does not: the next would as well.
func (p *pool) dial(ctx context.Context) (*connection, error) {
	a, err := p.dsn.Resolve()
	if err != nil {
		return nil, err
	}
	secure, settings := ofParams(a.Params)
	var errs []error
	for _, host := range a.Hosts {
		client, err := ch.Dial(ctx, ch.Options{
			Address: host, Database: a.Database, User: a.User, Password: a.Password, ClientName: "slotline",
			TLS: secure, Settings: settings,
			Compression: ch.CompressionLZ4, ReadTimeout: pollInterval, HandshakeTimeout: handshakeTimeout,
			Dialer: &net.Dialer{Timeout: dialTimeout, KeepAliveConfig: keepAlive},
		})
		if err == nil {
			if len(errs) > 0 {
				p.log.Warn("a ClickHouse host does not answer; using the next", "host", host, "error", errors.Join(errs...))
			}
			return &connection{client: client, pool: p, host: host}, nil
		}
		errs = append(errs, err)
		if c := Classify(err); c == fault.Usage || c == fault.Fatal || ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

// ofParams takes the parameters of a URL apart: nil without TLS; what is not about TLS is a setting of the server, which
// refuses one that it does not know.
func ofParams(params map[string]string) (secure *tls.Config, settings []ch.Setting) {
	for _, name := range slices.Sorted(maps.Keys(params)) {
		value := params[name]
		switch {
		case name != "secure":
			settings = append(settings, ch.Setting{Key: name, Value: value, Important: true})
		case value != "false":
			secure = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: value == "skip-verify"}
		}
	}
	return secure, settings
}

// do runs one statement, and gives the connection back or closes it.
func (c *connection) do(ctx context.Context, q ch.Query) error {
	// The client looks at ctx between packets only; closing the connection ends a read or write inside one.
	stop := context.AfterFunc(ctx, func() { c.client.Close() })
	err := c.client.Do(ctx, q)
	if !stop() && err == nil {
		err = ctx.Err() // closed behind its back
	}
	if err != nil {
		c.close()
		return err
	}
	c.pool.put(c)
	return nil
}

func (c *connection) close() { c.client.Close() }

// query runs a statement on a connection of its own.
func (p *pool) query(ctx context.Context, q ch.Query) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	c, err := p.get(ctx)
	if err != nil {
		return err
	}
	return c.do(ctx, q)
}

// place names the server for people: "ch1,ch2/flights".
func (p *pool) place() string { return strings.TrimSuffix(p.dsn.Place(), "/") }
