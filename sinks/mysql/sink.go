package mysql

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/intake"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/partitioner"
)

// Options of a sink. Config and Layout are needed; the rest has defaults.
type Options struct {
	Config *config.Config
	Layout *partitioner.Layout
	// Sink names its progress rows; "mysql" unless set. A rebuild's is "mysql__rb_<job>".
	Sink string
	// Owner names this process in progress rows, for people: the epoch is what fences.
	Owner  string
	Logger *slog.Logger
	// Now is the clock that months.ahead counts from; time.Now unless set. Applying events never reads it.
	Now func() time.Time
}

// Sink applies events to MySQL shards. Its methods may be called from any goroutine.
type Sink struct {
	name       string
	owner      string
	line       string
	topics     []string
	tables     []*table
	rules      *intake.Rules
	tableIndex map[string]int
	monthsFrom partitioner.Month
	ahead      int
	// statementBytes is the longest text around the tuples of a statement.
	statementBytes int64
	log            *slog.Logger
	now            func() time.Time

	connections int
	shards      map[string]*shard // of the file, by name; not written after New

	state atomic.Pointer[state]

	// broadcast is held while a batch with broadcast rows is applied: such batches hold a connection in each shard, and
	// two of them could wait for each other's.
	broadcast sync.Mutex
}

// state is what a batch is placed by: one layout, with its shards by the layout's own numbers.
type state struct {
	layout *partitioner.Layout
	shards []*shard
}

// table is a table of the file with what its statements need.
type table struct {
	*event.Table
	zeros []string // by column: the literal that a deleted row holds
}

// New makes a sink. It does no I/O.
func New(o Options) (*Sink, error) {
	s := &Sink{
		name: o.Sink, owner: o.Owner, line: o.Config.Line, topics: o.Config.Topics(),
		tableIndex: make(map[string]int), monthsFrom: o.Config.Months.From, ahead: o.Config.Months.Ahead,
		log: o.Logger, now: o.Now,
		connections: o.Config.Sinks.MySQL.ConnectionsPerShard, shards: make(map[string]*shard),
	}
	if s.name == "" {
		s.name = "mysql"
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	var err error
	if s.rules, err = intake.New(o.Config.Tables, &event.LimitsMySQL, s.monthsFrom); err != nil {
		return nil, err
	}
	for i, t := range o.Config.Tables {
		zeros := make([]string, len(t.Columns))
		for j, c := range t.Columns {
			zeros[j] = zeroLiteral(c)
		}
		s.tables = append(s.tables, &table{t, zeros})
		s.tableIndex[t.Name] = i
	}
	for _, t := range s.tables {
		u := newUpsert(t.Table, partitioner.Month(999912), dialect{RowAlias: true})
		s.statementBytes = max(s.statementBytes, int64(len(u.head)+len(u.tail)))
	}
	for _, c := range o.Config.Shards {
		sh, err := newShard(s, c)
		if err != nil {
			return nil, err
		}
		s.shards[c.Name] = sh
	}
	s.SetLayout(o.Layout)
	return s, nil
}

// Name is what progress rows, metrics and dead letters call it.
func (s *Sink) Name() string { return s.name }

// SetLayout takes a layout in place of the one before, for batches prepared from then on. A shard that it names and the
// file does not fails at its first use.
func (s *Sink) SetLayout(l *partitioner.Layout) {
	st := &state{layout: l}
	for _, name := range l.Shards() {
		sh, known := s.shards[name]
		if !known {
			sh = &shard{sink: s, name: name}
		}
		st.shards = append(st.shards, sh)
	}
	s.state.Store(st)
}

// Close closes all connections.
func (s *Sink) Close() error {
	var errs []error
	for _, sh := range s.shards {
		errs = append(errs, sh.close())
	}
	return errors.Join(errs...)
}

// Halt records in each shard that the partition meets that it has stopped, and why, for status to show. It asks nothing
// of the shard's tables: that they are not as they should be may be why.
func (s *Sink) Halt(ctx context.Context, part event.Partition, cause *fault.Error) error {
	return s.record(part, func(sh *shard) error {
		return progress.Halt(ctx, sh.control, s.key(part), cause.Code, cause.Error())
	})
}

// Resume ends the record of a halt whose reason is gone.
func (s *Sink) Resume(ctx context.Context, part event.Partition) error {
	return s.record(part, func(sh *shard) error { return progress.Resume(ctx, sh.control, s.key(part)) })
}

// record has each shard that the partition meets write something down, all at once: one that does not answer must not
// keep the others from it.
func (s *Sink) record(part event.Partition, do func(*shard) error) error {
	st := s.state.Load()
	var met []*shard
	for _, i := range st.layout.PartitionShards(part.Number) {
		met = append(met, st.shards[i])
	}
	return together(met, func(sh *shard) error {
		if err := sh.known(); err != nil {
			return err
		}
		return sh.wrap(do(sh))
	})
}

func (s *Sink) key(part event.Partition) progress.Key {
	return progress.Key{Sink: s.name, Partition: part}
}
