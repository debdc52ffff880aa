package intent

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/sinks/olap/rollup"
)

const (
	codeUnreadable = "SL4201" // slotline_intent holds what this package did not write
	codeNewer      = "SL4202" // slotline_intent, or an intent in it, is of a later release
	codeNotSeeded  = "SL4203" // apply has not made the rows
	codeDatabase   = "SL4204" // the state database failed
	codeFenced     = "SL4205" // another owner took the group over
	codeForeign    = "SL4206" // progress was moved by something else, or a batch came out of turn
)

// Options of a State. All but Rollups are needed.
type Options struct {
	DB        *sql.DB       // as package mysqldb opens it; not closed here
	Place     string        // how a person names the database: "db0/flights"
	Heading   string        // how apply does: "outbox db0/flights"
	Sink      string        // names the rows
	Owner     string        // unique to this process: lease.NewOwner()
	LeaseTime time.Duration // of a group
	Codec     int           // format of the rows that the engine makes of events
	Rollups   []*config.Rollup
}

// OptionsOf are the options of a sink of a line.
func OptionsOf(c *config.Config, db *sql.DB, sink, owner string, codec int) Options {
	o := Options{DB: db, Place: c.Sinks.State.Place(), Sink: sink, Owner: owner, LeaseTime: c.Outbox.LeaseTime, Codec: codec, Rollups: c.Rollups}
	o.Heading = "state " + o.Place
	if c.Sinks.State.Key() == c.Outbox.DSN.Key() {
		o.Heading = "outbox " + o.Place
	}
	return o
}

// State is the state of one OLAP sink. It is safe for concurrent use.
type State struct {
	o     Options
	store store

	mu      sync.Mutex // held through the check's I/O
	checked bool
}

// New makes a State. It does no I/O.
func New(o Options) *State { return &State{o: o, store: sqlStore{o.DB, o.Sink}} }

// Worker keeps the rollups of the sink in its engine.
func (s *State) Worker(e rollup.Engine, log *slog.Logger) *rollup.Worker {
	return &rollup.Worker{DB: s.o.DB, Sink: s.o.Sink, Rollups: s.o.Rollups, Engine: e, Owner: s.o.Owner, LeaseTime: s.o.LeaseTime, Logger: log}
}

// WantFill asks for a fill of one rollup.
func (s *State) WantFill(ctx context.Context, name string) error {
	return rollup.WantFill(ctx, s.o.DB, s.where(), s.o.Sink, name)
}

// Halt records that a partition has stopped, and why, for status to show.
func (s *State) Halt(ctx context.Context, p event.Partition, cause *fault.Error) error {
	return s.wrap(progress.Halt(ctx, s.o.DB, s.key(p), cause.Code, cause.Error()))
}

// Resume ends the record of a halt whose reason is gone.
func (s *State) Resume(ctx context.Context, p event.Partition) error {
	return s.wrap(progress.Resume(ctx, s.o.DB, s.key(p)))
}

func (s *State) key(p event.Partition) progress.Key {
	return progress.Key{Sink: s.o.Sink, Partition: p}
}

// TakeOver makes this process the owner of a group, if it is free or its lease has run out: fault.Fenced otherwise. The
// lease is kept until Release.
func (s *State) TakeOver(ctx context.Context, group int, parts []event.Partition) (*Group, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	h, err := s.store.acquire(ctx, group, s.o.Owner, s.o.LeaseTime)
	if err != nil {
		return nil, err // package lease says what and where
	}
	g := &Group{state: s, number: group, parts: parts, hold: h}
	rand.Read(g.run[:])
	if err := g.learn(ctx); err != nil {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		return nil, errors.Join(s.wrap(err), g.letGo(end))
	}
	g.keep()
	return g, nil
}

// releaseTimeout bounds the courtesy of letting another in after a failed take-over.
const releaseTimeout = 2 * time.Second

// check refuses tables of a later release, once.
func (s *State) check(ctx context.Context) error {
	if s.o.DB == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.checked {
		return nil
	}
	if err := progress.CheckFormat(ctx, s.o.DB, s.where()); err != nil {
		return s.wrap(err)
	}
	if err := s.checkFormat(ctx); err != nil {
		return s.wrap(err)
	}
	s.checked = true
	return nil
}

func (s *State) checkFormat(ctx context.Context) error {
	var comment string
	err := s.o.DB.QueryRowContext(ctx, "SELECT TABLE_COMMENT FROM information_schema.TABLES WHERE TABLE_SCHEMA=DATABASE() "+
		"AND TABLE_NAME='"+Table+"'").Scan(&comment)
	if errors.Is(err, sql.ErrNoRows) || err == nil && comment == "" { // an engine that does not keep comments
		return nil
	}
	if err != nil {
		return err
	}
	number, ok := strings.CutPrefix(comment, "slotline intent format ")
	if format, err := strconv.Atoi(number); ok && err == nil && format <= Format {
		return nil
	}
	return newer(fmt.Sprintf("%s: table %s says %q, this release reads format %d", s.where(), Table, comment, Format))
}

func newer(what string) error {
	return &fault.Error{Code: codeNewer, Class: fault.Fatal, What: what, Do: "run the release that wrote it, or a later one"}
}

// where names the database in errors.
func (s *State) where() string { return s.o.Sink + " state in " + s.o.Place }

func (s *State) wrap(err error) error { return mysqldb.Wrap(err, codeDatabase, s.where()) }

func unreadable(sink string, group int, column string, err error) error {
	return &fault.Error{Code: codeUnreadable, Class: fault.Fatal, Err: err,
		What: fmt.Sprintf("%s of sink %s, group %d: column %s cannot be read: %s", Table, sink, group, column, err),
		Why:  "something other than slotline wrote it",
		Do:   "find out what did; setting confirmed=1 in that row is safe: its batch is cut anew and the versions of rows decide"}
}
