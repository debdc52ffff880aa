package mysql

import (
	"context"
	"errors"
	"log/slog"
	"maps"
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
	// Shadow has the sink keep tables beside the live ones; nil: the live ones.
	Shadow *Shadow
	// Owner names this process in progress rows, for people: the epoch is what fences.
	Owner  string
	Logger *slog.Logger
	// Now is the clock that months.ahead counts from; time.Now unless set. Applying events never reads it.
	Now func() time.Time
	// StagingRows is from how many rows of one table on a batch goes by the staging path, where the server lets it: 0
	// means 2000, less than 0 never. Tests and benches choose a path by it.
	StagingRows int
}

// Shadow names the tables that a rebuild keeps beside the live ones, in one shard. Rows of other shards and events of
// other tables are passed over, and count as applied.
type Shadow struct {
	Shard  string
	Tables []string // logical
	Suffix string   // behind each physical table's name: "__rb_rb7f3a"
	// Bare has tables made without secondary indexes, which cost less when they are added to a full table.
	Bare bool
}

// Sink applies events to MySQL shards. Its methods may be called from any goroutine.
type Sink struct {
	name       string
	owner      string
	line       string
	topics     []string
	broadcasts []string // those of them that broadcast tables use
	tables     []*table
	rules      *intake.Rules
	tableIndex map[string]int
	monthsFrom partitioner.Month
	ahead      int
	keep       int // months.keep; 0 for ever
	// statementBytes is the longest text around the tuples of a statement.
	statementBytes int64
	log            *slog.Logger
	now            func() time.Time

	connections int
	stagingRows int
	shadow      *Shadow // nil: the live tables

	placing sync.Mutex        // held while shards and state change
	shards  map[string]*shard // of the file, by name; replaced, never written
	state   atomic.Pointer[state]

	ownsMu sync.Mutex
	owns   map[event.Partition]*owned // that this process took over last and has not released; for metrics

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
		tableIndex: make(map[string]int), monthsFrom: o.Config.Months.From, ahead: o.Config.Months.Ahead, keep: o.Config.Months.Keep,
		log: o.Logger, now: o.Now, shadow: o.Shadow,
		connections: o.Config.Sinks.MySQL.ConnectionsPerShard, shards: make(map[string]*shard),
		owns: make(map[event.Partition]*owned),
	}
	if s.name == "" {
		s.name = "mysql"
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.log = s.log.With("sink", s.name)
	if s.now == nil {
		s.now = time.Now
	}
	if s.stagingRows = o.StagingRows; s.stagingRows == 0 {
		s.stagingRows = stagingRowsMin
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
		if t.Broadcast() {
			s.broadcasts = append(s.broadcasts, o.Config.Topic(t))
		}
	}
	for _, t := range s.tables {
		u := newUpsert(t.Table, partitioner.Month(999912), dialect{RowAlias: true})
		s.statementBytes = max(s.statementBytes, int64(len(u.head)+len(u.tail)))
	}
	if err = s.AddShards(o.Config.Shards); err != nil {
		return nil, err
	}
	s.SetLayout(o.Layout)
	return s, nil
}

// Name is what progress rows, metrics and dead letters call it.
func (s *Sink) Name() string { return s.name }

// SetLayout takes a layout in place of the one before, for batches prepared from then on; an older one is ignored. A
// shard that it names and the file does not fails at its first use.
func (s *Sink) SetLayout(l *partitioner.Layout) {
	s.placing.Lock()
	defer s.placing.Unlock()
	if st := s.state.Load(); st == nil || st.layout.Epoch() <= l.Epoch() {
		s.place(l)
	}
}

// AddShards takes the shards that a newer file names in addition. Those that are known stay as they are.
func (s *Sink) AddShards(list []config.Shard) error {
	s.placing.Lock()
	defer s.placing.Unlock()
	shards := maps.Clone(s.shards)
	for _, c := range list {
		if shards[c.Name] != nil {
			continue
		}
		sh, err := newShard(s, c)
		if err != nil {
			return err
		}
		shards[c.Name] = sh
	}
	s.shards = shards
	if st := s.state.Load(); st != nil {
		s.place(st.layout)
	}
	return nil
}

func (s *Sink) place(l *partitioner.Layout) {
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
	s.placing.Lock()
	defer s.placing.Unlock()
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
// keep the others from it. One that the file does not name, which may be what is to be written down, cannot.
func (s *Sink) record(part event.Partition, do func(*shard) error) error {
	st := s.state.Load()
	var met []*shard
	for _, i := range s.met(st.layout, part.Number) {
		if st.shards[i].known() == nil {
			met = append(met, st.shards[i])
		}
	}
	return together(met, func(sh *shard) error { return sh.wrap(do(sh)) })
}

func (s *Sink) key(part event.Partition) progress.Key {
	return progress.Key{Sink: s.name, Partition: part}
}
