package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ClickHouse/ch-go"

	"github.com/slotline/slotline/embedded/clickhouse"
	"github.com/slotline/slotline/embedded/kafka"
	"github.com/slotline/slotline/embedded/mysql"
	"github.com/slotline/slotline/examples/flights/nyc"
)

// servers are everything that a line needs, on free ports of loopback. The shards are servers of their own.
type servers struct {
	kafka  *kafka.Broker
	outbox *mysql.Server
	s1, s2 *mysql.Server
	engine *clickhouse.Engine // nil where there is none
	http   net.Listener       // holds the address of /metrics until the line listens there
}

const (
	outboxDatabase = "flights"
	olapDatabase   = "flights"
	lanes          = 2
	partitions     = 8

	// fetchTimeout bounds npm where the network swallows what it sends.
	fetchTimeout = 10 * time.Minute
	stopTimeout  = 10 * time.Second
)

// library returns the path of ClickHouse's library: clickhouse.EnsureLibrary, or a test's.
type library func(ctx context.Context, cacheDir string, progress clickhouse.Progress) (string, error)

// start starts all servers. missing says why there is no ClickHouse: the demo goes on without it.
func (s *servers) start(ctx context.Context, dir string, get library, g *stage) (missing error, err error) {
	if s.kafka, err = kafka.Start(); err != nil {
		return nil, err
	}
	for _, m := range []struct {
		server   **mysql.Server
		database string
	}{{&s.outbox, outboxDatabase}, {&s.s1, "s1"}, {&s.s2, "s2"}} {
		if *m.server, err = mysql.Start(mysql.Options{Databases: []string{m.database}}); err != nil {
			return nil, err
		}
	}
	if s.http, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	path, missing := fetch(ctx, get, g)
	g.move(0, 0, "starting ClickHouse")
	if missing != nil {
		return missing, ctx.Err()
	}
	s.engine, missing = clickhouse.Start(ctx, clickhouse.Options{DataDir: filepath.Join(dir, "clickhouse"), Library: path})
	if missing != nil {
		s.engine = nil
		return missing, ctx.Err()
	}
	return nil, s.createOLAPDatabase(ctx)
}

func fetch(ctx context.Context, get library, g *stage) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	return get(ctx, "", func(stage clickhouse.Stage, done, total int64) {
		if stage == clickhouse.StageFetch {
			g.note("fetching the ClickHouse engine through npm, once (178 MB)")
			return
		}
		g.move(done, total, fmt.Sprintf("unpacking ClickHouse, %d of %d MB", done>>20, total>>20))
	})
}

func (s *servers) createOLAPDatabase(ctx context.Context) error {
	client, err := ch.Dial(ctx, ch.Options{Address: s.engine.Addr()})
	if err != nil {
		return fmt.Errorf("clickhouse engine: %w", err)
	}
	defer client.Close()
	return client.Do(ctx, ch.Query{Body: "CREATE DATABASE " + olapDatabase})
}

// stop ends what was started.
func (s *servers) stop() error {
	var errs []error
	if s.engine != nil {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		errs = append(errs, s.engine.Stop(ctx))
	}
	for _, m := range []*mysql.Server{s.outbox, s.s1, s.s2} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	if s.kafka != nil {
		s.kafka.Close()
	}
	if s.http != nil {
		s.http.Close() // again, where the line took it over
	}
	return errors.Join(errs...)
}

// String names what runs.
func (s *servers) String() string {
	text := "Kafka (kfake), MySQL x3 (go-mysql-server)"
	if s.engine != nil {
		text += ", ClickHouse " + s.engine.Version()
	}
	return text
}

// write writes the line's configuration.
func (s *servers) write(file string) error {
	var b strings.Builder
	fmt.Fprintf(&b, `line: flights
kafka: { brokers: [%q], partitions: %d, replication: 1 }
layout:
  epoch: 1
  tenants:
    UA: { slots: { 100000: s1 } }                              # dedicated: a slot of its own
    DL: { slots: { 100001-100002: s1, 100003-100004: s2 } }    # spread over four slots by flight_id
shards:
  s1: { dsn: %q, slots: 0-511 }
  s2: { dsn: %q, slots: 512-1023 }
tables:
  flights:
    tenant: carrier
    id: flight_id
    month: sched_dep
    spread: flight_id
    columns: %s
    indexes: [[carrier, origin, sched_dep]]
  airports: { id: code, columns: %s }                          # no tenant: in every shard
months: { from: 2013-01 }
outbox: { dsn: %q, lanes: %d }
`, s.kafka.Addr(), partitions, s.s1.URL("s1"), s.s2.URL("s2"), nyc.Columns, nyc.AirportColumns, s.outbox.URL(outboxDatabase), lanes)
	b.WriteString("sinks:\n  mysql: { batch_age: 100ms }                                  # fewer statements: the in-memory engine is slow\n")
	if s.engine != nil {
		fmt.Fprintf(&b, "  clickhouse: { dsn: \"clickhouse://default@%s/%s\", groups: 2, batch_age: 200ms }\n", s.engine.Addr(), olapDatabase)
	}
	fmt.Fprintf(&b, "http: { listen: %q }\n", s.http.Addr())
	return os.WriteFile(file, []byte(b.String()), 0o600)
}
