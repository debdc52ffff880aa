package clickhouse

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/intake"
	"github.com/slotline/slotline/lease"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/olap"
	"github.com/slotline/slotline/sinks/olap/intent"
	"github.com/slotline/slotline/sinks/olap/rollup"
)

// codec is the format of the blocks that are made of events. It is stored with each intent.
const codec = 1

// Options of a sink. Config, Layout and State are needed; the rest has defaults.
type Options struct {
	Config *config.Config // with sinks.clickhouse
	Layout *partitioner.Layout
	// State is the database that sinks.state names, as package mysqldb opens it. It is not closed here.
	State *sql.DB
	// Sink names its rows there; "clickhouse" unless set.
	Sink string
	// Owner is unique to this process; lease.NewOwner() unless set.
	Owner string
	// Shadow, unless nil, is the table that the sink fills in place of the live ones. It keeps no rollups.
	Shadow *olap.Shadow
	Logger *slog.Logger
}

// Sink applies events to ClickHouse. Its methods may be called from any goroutine.
type Sink struct {
	name       string
	line       string
	topics     []string
	groups     int
	batchBytes int64
	tables     []*table
	rollups    []*config.Rollup
	rules      *intake.Rules
	state      *intent.State
	pool       *pool
	cluster    cluster
	shadow     *olap.Shadow
	file       []*event.Table
	layout     atomic.Pointer[partitioner.Layout]

	verifying sync.Mutex // held through verify's I/O
	verified  atomic.Bool
}

// table is a table of the file with its statement.
type table struct {
	*rollup.Base
	insert string
}

// New makes a sink. It does no I/O.
func New(o Options) (*Sink, error) {
	c := o.Config.Sinks.ClickHouse
	s := &Sink{name: o.Sink, line: o.Config.Line, topics: o.Config.Topics(), groups: c.Groups, batchBytes: c.BatchBytes, file: o.Config.Tables}
	if s.name == "" {
		s.name = "clickhouse"
	}
	log, owner := o.Logger, o.Owner
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	log = log.With("sink", s.name)
	if owner == "" {
		owner = lease.NewOwner()
	}
	rollups := o.Config.Rollups
	if s.shadow = o.Shadow; s.shadow != nil {
		rollups = nil
	}
	var err error
	if s.rules, err = intake.New(o.Config.Tables, &event.LimitsClickHouse, o.Config.Months.From); err != nil {
		return nil, err
	}
	for _, t := range o.Config.Tables {
		s.tables = append(s.tables, &table{rollup.BaseOf(t, rollups), insertSQL(t)})
	}
	s.rollups = rollups
	state := intent.OptionsOf(o.Config, o.State, s.name, owner, codec)
	state.Rollups = rollups
	s.state = intent.New(state)
	s.pool = &pool{dsn: c.DSN, log: log}
	s.cluster = cluster{c.Cluster, c.DSN.Database()}
	s.SetLayout(o.Layout)
	return s, nil
}

// Name is what progress rows, metrics and dead letters call it.
func (s *Sink) Name() string { return s.name }

// SetLayout takes a layout in place of the one before, for batches prepared from then on.
func (s *Sink) SetLayout(l *partitioner.Layout) { s.layout.Store(l) }

// Groups are the fixed groups of partitions: partition number mod sinks.clickhouse.groups.
func (s *Sink) Groups() [][]event.Partition {
	return intent.Groups(s.topics, s.layout.Load().Partitions(), s.groups)
}

// TakeOver makes this process the owner of a group. Before that it looks whether ClickHouse answers and its tables are
// as the file says: a process that could not send must not hold the lease.
func (s *Sink) TakeOver(ctx context.Context, parts []event.Partition) (event.Owned, error) {
	number, err := intent.GroupOf(s.Groups(), parts)
	if err != nil {
		return nil, fmt.Errorf("sink %s: %w", s.name, err)
	}
	if err := s.verify(ctx); err != nil {
		return nil, err
	}
	g, err := s.state.TakeOver(ctx, number, parts)
	if err != nil {
		return nil, err
	}
	return &owned{sink: s, group: g}, nil
}

// Halt records that a partition has stopped, and why, for status to show.
func (s *Sink) Halt(ctx context.Context, p event.Partition, cause *fault.Error) error {
	return s.state.Halt(ctx, p, cause)
}

// Resume ends the record of a halt whose reason is gone.
func (s *Sink) Resume(ctx context.Context, p event.Partition) error { return s.state.Resume(ctx, p) }

// Close closes the connections that are not in use.
func (s *Sink) Close() error {
	s.pool.close()
	return nil
}

// where names the server in errors: "clickhouse (ch1/flights)".
func (s *Sink) where() string { return s.name + " (" + s.pool.place() + ")" }
