// Package line is one line in one process: it opens what the file names, and applies, runs and reports on it. The
// command line, the demo, the benches and the whole-line tests all go through it.
//
// It promises that nothing runs on a layout that was not applied, and that Run ends only when each part has drained.
// Its errors are package fault's. It decides nothing about events: that is the packages' below.
package line

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/partitioner"
)

// Line is an opened line. Close it.
type Line struct {
	Config *config.Config
	Log    *slog.Logger

	outbox *sql.DB
	state  *sql.DB // the outbox's unless sinks.state names another
	shards []*sql.DB
	layout *partitioner.Layout // in force; nil until loadLayout
	closes []func()            // what a plan keeps open until it was applied
}

// Open reads the file and makes the pools; it does no network I/O.
func Open(file string, log *slog.Logger) (*Line, error) {
	cfg, err := config.Load(file)
	if err != nil {
		return nil, err
	}
	return New(cfg, log), nil
}

// New is Open for a Config that is there already.
func New(cfg *config.Config, log *slog.Logger) *Line { return &Line{Config: cfg, Log: log} }

// Close closes all pools.
func (l *Line) Close() error {
	for _, end := range l.closes {
		end()
	}
	var errs []error
	if l.state != nil && l.state != l.outbox {
		errs = append(errs, l.state.Close())
	}
	if l.outbox != nil {
		errs = append(errs, l.outbox.Close())
	}
	for _, db := range l.shards {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

func (l *Line) onClose(end func()) { l.closes = append(l.closes, end) }

// outboxDB is the pool of the outbox database. Secrets are resolved here, so that a command needs only those it uses.
func (l *Line) outboxDB() (*sql.DB, error) {
	if l.outbox == nil {
		db, err := mysqldb.Open(l.Config.Outbox.DSN, mysqldb.Options{MaxConns: l.outboxConnections()})
		if err != nil {
			return nil, err
		}
		l.outbox = db
	}
	return l.outbox, nil
}

// outboxConnections are the most that one process opens in the outbox database.
func (l *Line) outboxConnections() int { return 4 + 2*l.Config.Outbox.Lanes }

// shardConnections are those that are not the sink's.
const shardConnections = 2

// stateDB is the pool of the database that holds OLAP intents and progress.
func (l *Line) stateDB() (*sql.DB, error) {
	if l.Config.Sinks.State.Key() == l.Config.Outbox.DSN.Key() {
		return l.outboxDB()
	}
	if l.state == nil {
		db, err := mysqldb.Open(l.Config.Sinks.State, mysqldb.Options{})
		if err != nil {
			return nil, err
		}
		l.state = db
	}
	return l.state, nil
}

// tableNames are the tables of the file.
func (l *Line) tableNames() (names []string) {
	for _, t := range l.Config.Tables {
		names = append(names, t.Name)
	}
	return names
}

func (l *Line) shardDB(i int) (*sql.DB, error) {
	if l.shards == nil {
		l.shards = make([]*sql.DB, len(l.Config.Shards))
	}
	if l.shards[i] == nil {
		db, err := mysqldb.Open(l.Config.Shards[i].DSN, mysqldb.Options{MaxConns: shardConnections})
		if err != nil {
			return nil, err
		}
		l.shards[i] = db
	}
	return l.shards[i], nil
}

// openedShards is the file with those shards alone whose secrets can be resolved, and what became of the others, by index.
func (l *Line) openedShards() (*config.Config, []error) {
	cfg, errs := *l.Config, make([]error, len(l.Config.Shards))
	cfg.Shards = nil
	for i, shard := range l.Config.Shards {
		if _, errs[i] = l.shardDB(i); errs[i] == nil {
			cfg.Shards = append(cfg.Shards, shard)
		}
	}
	return &cfg, errs
}

// loadLayout takes the layout in force from the outbox database and refuses a file that differs from it.
func (l *Line) loadLayout(ctx context.Context) error {
	applied, err := l.appliedLayout(ctx)
	if err != nil {
		return err
	}
	l.layout, err = agree(l.Config.File, l.Config.Layout, l.Config.Kafka.Partitions, applied)
	return err
}

// kafkaClient opens a client and has an answer from a broker.
func (l *Line) kafkaClient(ctx context.Context, role string) (*kgo.Client, error) {
	return kafka.Open(ctx, l.Config, role, l.Log)
}
