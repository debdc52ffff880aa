package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/internal/progress"
)

// shard is one MySQL database and the pools that reach it.
type shard struct {
	sink    *Sink
	name    string
	dsn     config.DSN
	apply   *sql.DB // transactions of batches; several statements in one packet
	control *sql.DB // take-over, progress, new tables: never behind a batch that waits for a lock
	alter   *sql.DB // of apply's plan alone: ALTER TABLE may take long

	opened  sync.Mutex // held through open's I/O
	engine  atomic.Pointer[engine]
	taking  chan struct{} // holds a token while a row is taken over: one at a time has the two control connections
	catalog catalog
	staging stagingState
	counts  counts
	late    lateEvents
}

// engine is what was learnt of the server at first use.
type engine struct {
	dialect
	version     string
	packetBytes int64 // max_allowed_packet
}

const (
	// controlConnections are kept apart from those of batches: one that waits for a progress row's lock, one that finds
	// who holds it.
	controlConnections = 2
	// packetBytesMax bounds one multi-statement packet, and with it the buffer that each connection needs: four
	// statements of 1000 rows of 250 bytes.
	packetBytesMax = 1 << 20
	// packetSpareBytes are left of max_allowed_packet for what stands around a single row: names of up to 4096 columns
	// are the one thing that may be longer, and those are counted apart.
	packetSpareBytes = 4 << 10
	// alterTimeout is how long adding a column may take where it cannot be INSTANT.
	alterTimeout = time.Hour
)

func newShard(s *Sink, c config.Shard) (*shard, error) {
	sh := &shard{sink: s, name: c.Name, dsn: c.DSN, taking: make(chan struct{}, 1)}
	for _, pool := range []struct {
		db      **sql.DB
		options mysqldb.Options
	}{
		{&sh.apply, mysqldb.Options{MultiStatements: true, MaxConns: max(1, s.connections-controlConnections)}},
		{&sh.control, mysqldb.Options{MaxConns: controlConnections}},
		{&sh.alter, mysqldb.Options{MaxConns: 1, ReadTimeout: alterTimeout}},
	} {
		var err error
		if *pool.db, err = mysqldb.Open(c.DSN, pool.options); err != nil {
			return nil, err
		}
	}
	return sh, nil
}

func (sh *shard) close() error {
	return errors.Join(sh.apply.Close(), sh.control.Close(), sh.alter.Close())
}

// where names the shard in errors: "mysql/s2".
func (sh *shard) where() string { return sh.sink.name + "/" + sh.name }

// wrap gives an error of a control statement a code and the shard's name.
func (sh *shard) wrap(err error) error {
	if err == nil {
		return nil
	}
	if denied(err) {
		return sh.deniedError(err)
	}
	return mysqldb.Wrap(err, codeControl, sh.where())
}

// known refuses a shard that only the layout names: there is no database to reach.
func (sh *shard) known() error {
	if sh.control != nil {
		return nil
	}
	return &fault.Error{Code: codeShardUnknown, Class: fault.Fatal,
		What: fmt.Sprintf("%s: the layout places slots in shard %s, which the file of this process does not name", sh.sink.name, sh.name),
		Why:  "events for that shard wait, and what comes behind them in their partitions; other partitions go on",
		Do:   "put the file that was applied in the place of this process's own; it is read again by itself"}
}

// open learns the engine and compares the tables that are there with the schema, once.
func (sh *shard) open(ctx context.Context) (*engine, error) {
	if e := sh.engine.Load(); e != nil {
		return e, nil
	}
	if err := sh.known(); err != nil {
		return nil, err
	}
	sh.opened.Lock()
	defer sh.opened.Unlock()
	if e := sh.engine.Load(); e != nil {
		return e, nil
	}
	e, err := sh.probe(ctx)
	if err != nil {
		return nil, err
	}
	if err := sh.wrap(progress.CheckFormat(ctx, sh.control, sh.where())); err != nil {
		return nil, err
	}
	if err := sh.load(ctx, e.dialect); err != nil {
		return nil, err
	}
	sh.engine.Store(e)
	return e, nil
}

// probe asks for the engine's version, its largest packet, and whether it understands the row alias.
func (sh *shard) probe(ctx context.Context) (*engine, error) {
	e := &engine{dialect: dialect{Suffix: sh.sink.suffix(), Bare: sh.sink.shadow != nil && sh.sink.shadow.Bare}}
	err := sh.control.QueryRowContext(ctx, "SELECT VERSION(), @@max_allowed_packet").Scan(&e.version, &e.packetBytes)
	if err != nil {
		return nil, sh.wrap(err)
	}
	e.MariaDB = strings.Contains(strings.ToLower(e.version), "mariadb")
	e.RowAlias = true
	// EXPLAIN parses and resolves, and changes nothing. It needs a table: before apply there may be none.
	rows, err := sh.control.QueryContext(ctx, "EXPLAIN INSERT INTO `slotline_progress` (`sink`,`topic`,`part`) "+
		"VALUES ('','',0) AS `_n` ON DUPLICATE KEY UPDATE `part`=`_n`.`part`")
	switch mysqldb.Number(err) {
	case 0:
		if err != nil {
			return nil, sh.wrap(err)
		}
		rows.Close()
	case 1064: // a syntax error: MariaDB, TiDB, MySQL before 8.0.19
		e.RowAlias = false
	case 1146:
	default:
		return nil, sh.wrap(err)
	}
	return e, nil
}

// rowBytesMax is the longest tuple that fits a statement of its own.
func (sh *shard) rowBytesMax() int64 {
	e := sh.engine.Load()
	if e == nil {
		return arenaBytesMax
	}
	return e.packetBytes - packetSpareBytes - sh.sink.statementBytes
}

// heading is the line that the shard's changes stand under in a plan.
func (sh *shard) heading(e *engine) string {
	engine := "MySQL"
	if e.MariaDB {
		engine = "MariaDB"
	}
	version, _, _ := strings.Cut(e.version, "-")
	return fmt.Sprintf("shard %s %s (%s %s)", sh.name, sh.dsn.Place(), engine, version)
}
