package sinktest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/consumers"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/partitioner"
)

// Memory is the state of an in-memory sink: rows, progress, owner epochs and, with groups, leases and intents, under
// one lock. It does exactly what a sink must, and its faults are set by tests.
type Memory struct {
	// Fault, when set, is asked before each step ("take over", "look", "intent", "apply", "halt") outside the lock; what it
	// returns is the step's error. It may block until ctx ends.
	Fault func(ctx context.Context, step string, at []event.Range) error
	// Lease is how long the owner of a fixed group is waited for; 0: a minute.
	Lease time.Duration
	// Reject, when set, is asked for each event that decodes; an error of class Data rejects it.
	Reject func(v *event.View) error

	wrong string                        // one mistake, for the test that shows that the suite finds it
	alter func(memoryEntry) memoryEntry // the same

	mu        sync.Mutex
	rows      fold
	progress  map[event.Partition]event.Position
	epochs    map[event.Partition]int64
	intents   map[event.Partition][]event.Range // by the first partition of a group
	leases    map[event.Partition]memoryLease
	halts     map[event.Partition]memoryHalt
	owns      map[*memoryOwned]bool // of sinks without groups, until released
	takeOvers int
	applied   int64 // messages
}

type memoryHalt struct {
	since time.Time
	why   *fault.Error
}

type memoryLease struct {
	epoch int64
	until time.Time
}

// NewMemory makes an empty state.
func NewMemory() *Memory {
	return &Memory{rows: fold{}, progress: map[event.Partition]event.Position{}, epochs: map[event.Partition]int64{},
		intents: map[event.Partition][]event.Range{}, leases: map[event.Partition]memoryLease{}, halts: map[event.Partition]memoryHalt{},
		owns: map[*memoryOwned]bool{}}
}

// MemoryFactory is the factory of the in-memory sink; groups is how many fixed groups it has, 0 for none.
func MemoryFactory(groups int) Factory {
	return func(t testing.TB) (Store, Setup) {
		const nowhere = "mysql://nobody@127.0.0.1:1/none"
		setup := NewSetup(t, YAML(nowhere+"1", nowhere+"2", nowhere, ""))
		m := NewMemory()
		m.Lease = 50 * time.Millisecond
		return &memoryStore{m, setup, groups}, setup
	}
}

type memoryStore struct {
	*Memory
	setup  Setup
	groups int
}

func (s *memoryStore) Open(testing.TB) consumers.Sink {
	return s.Memory.Open(s.setup.Config, s.setup.Layout, s.groups)
}

func (s *memoryStore) Rows(_ testing.TB, t *event.Table) []Row {
	s.mu.Lock()
	defer s.mu.Unlock()
	var rows []Row
	for e, w := range s.rows {
		if e.table == t.Name {
			rows = append(rows, Row{Month: w.row.Month, Values: w.row.Values, Ver: w.ver})
		}
	}
	return rows
}

// Open makes a sink over the state, as one process does. With groups above 0 it is a consumers.FixedGroups.
func (m *Memory) Open(cfg *config.Config, l *partitioner.Layout, groups int) consumers.Sink {
	s := &MemorySink{memory: m, cfg: cfg}
	s.layout.Store(l)
	if groups == 0 {
		return s
	}
	return &memoryGroups{s, groups}
}

// Positions says where partitions stand.
func (m *Memory) Positions() map[event.Partition]event.Position {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[event.Partition]event.Position{}
	for p, at := range m.progress {
		out[p] = at
	}
	return out
}

// SetPosition is what an operator or a restored backup does to progress; the owner is fenced, as accept-gap does it,
// when fence is set.
func (m *Memory) SetPosition(at event.Position, fence bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.progress[at.Partition] = at
	if fence {
		m.epochs[at.Partition]++
	}
}

// Bump takes a partition away from its owner, as another process would.
func (m *Memory) Bump(p event.Partition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.epochs[p]++
}

// Len is the number of rows, TakeOvers of take-overs, Applied of messages applied.
func (m *Memory) Len() int { m.mu.Lock(); defer m.mu.Unlock(); return len(m.rows) }

// TakeOvers counts take-overs.
func (m *Memory) TakeOvers() int { m.mu.Lock(); defer m.mu.Unlock(); return m.takeOvers }

// Applied counts messages that were applied, repeats too.
func (m *Memory) Applied() int64 { m.mu.Lock(); defer m.mu.Unlock(); return m.applied }

// Version is the version of an entity's row, 0 without one; negative when it is deleted.
func (m *Memory) Version(table, tenant, id string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	ver := m.rows[entity{table, tenant, id}].ver
	if ver&1 == 1 {
		return -(ver >> 1)
	}
	return ver >> 1
}

// Halts are the partitions recorded as halted.
func (m *Memory) Halts() map[event.Partition]*fault.Error {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[event.Partition]*fault.Error{}
	for p, h := range m.halts {
		out[p] = h.why
	}
	return out
}

// HaltedSince is when the record of a partition's halt was made; zero without one.
func (m *Memory) HaltedSince(p event.Partition) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.halts[p].since
}

func (m *Memory) fault(ctx context.Context, step string, at []event.Range) error {
	if err := ctx.Err(); err != nil {
		return &fault.Error{Code: "memory", Class: fault.Transient, What: "interrupted before: " + step, Err: err}
	}
	if m.Fault == nil {
		return nil
	}
	return m.Fault(ctx, step, at)
}

// MemorySink is one process's sink over a Memory.
type MemorySink struct {
	memory *Memory
	cfg    *config.Config
	layout atomic.Pointer[partitioner.Layout]
}

// Name implements consumers.Sink.
func (s *MemorySink) Name() string { return "memory" }

// SetLayout takes a newer layout.
func (s *MemorySink) SetLayout(l *partitioner.Layout) { s.layout.Store(l) }

// Halt implements consumers.Halter.
func (s *MemorySink) Halt(ctx context.Context, p event.Partition, why *fault.Error) error {
	if err := s.memory.fault(ctx, "halt", nil); err != nil {
		return err
	}
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	h, ok := s.memory.halts[p]
	if !ok {
		h.since = time.Now()
	}
	h.why = why
	s.memory.halts[p] = h
	return nil
}

// Resume implements consumers.Halter.
func (s *MemorySink) Resume(_ context.Context, p event.Partition) error {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	delete(s.memory.halts, p)
	return nil
}

// TakeOver implements consumers.Sink.
func (s *MemorySink) TakeOver(ctx context.Context, parts []event.Partition) (consumers.Owned, error) {
	m := s.memory
	if err := m.fault(ctx, "take over", nil); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.takeOvers++
	o := m.own(s, parts)
	m.owns[o] = true
	return o, nil
}

// Look implements consumers.Unleased.
func (s *MemorySink) Look(ctx context.Context) error {
	m := s.memory
	if err := m.fault(ctx, "look", nil); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for o := range m.owns {
		if o.sink == s && o.epochs[o.parts[0]] != m.epochs[o.parts[0]] {
			delete(m.owns, o)
			close(o.lost)
		}
	}
	return nil
}

// own bumps the epochs; the lock is held.
func (m *Memory) own(s *MemorySink, parts []event.Partition) *memoryOwned {
	o := &memoryOwned{sink: s, parts: parts, epochs: map[event.Partition]int64{}, lost: make(chan struct{})}
	for _, p := range parts {
		m.epochs[p]++
		o.epochs[p] = m.epochs[p]
		if _, ok := m.progress[p]; !ok {
			m.progress[p] = event.Position{Partition: p, LeaderEpoch: -1}
		}
	}
	return o
}

// memoryGroups is the sink with fixed groups of partitions, each under a lease, with intents.
type memoryGroups struct {
	*MemorySink
	groups int
}

// Groups implements consumers.FixedGroups.
func (s *memoryGroups) Groups() [][]event.Partition {
	groups := make([][]event.Partition, s.groups)
	for i := range s.cfg.Kafka.Partitions {
		groups[i%s.groups] = append(groups[i%s.groups], event.Partition{Topic: s.cfg.Kafka.Topic, Number: int32(i)})
	}
	return groups
}

// TakeOver implements consumers.Sink.
func (s *memoryGroups) TakeOver(ctx context.Context, parts []event.Partition) (consumers.Owned, error) {
	m := s.memory
	if err := m.fault(ctx, "take over", nil); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.leases[parts[0]]; time.Now().Before(l.until) {
		return nil, &fault.Error{Code: "memory", Class: fault.Fenced, What: "another owner has the group until " + l.until.String()}
	}
	m.takeOvers++
	o := m.own(s.MemorySink, parts)
	o.group = true
	lease := m.Lease
	if lease == 0 {
		lease = time.Minute
	}
	m.leases[parts[0]] = memoryLease{o.epochs[parts[0]], time.Now().Add(lease)}
	return o, nil
}

type memoryOwned struct {
	sink   *MemorySink
	parts  []event.Partition
	epochs map[event.Partition]int64
	group  bool
	lost   chan struct{} // closed by Look
	view   event.View
}

func (o *memoryOwned) Positions() []event.Position {
	m := o.sink.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []event.Position
	for _, p := range o.parts {
		list = append(list, m.progress[p])
	}
	return list
}

func (o *memoryOwned) Pending() []event.Range {
	m := o.sink.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.intents[o.parts[0]])
}

func (o *memoryOwned) Lost() <-chan struct{} { return o.lost }

func (o *memoryOwned) Release(context.Context) error {
	m := o.sink.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.owns, o)
	if l, ok := m.leases[o.parts[0]]; ok && l.epoch == o.epochs[o.parts[0]] {
		l.until = time.Time{}
		m.leases[o.parts[0]] = l
	}
	return nil
}

type memoryPrepared struct {
	owned    *memoryOwned
	ranges   []event.Range
	entries  []memoryEntry
	rejected []event.Rejected
	bytes    int
}

type memoryEntry struct {
	entity entity
	ver    int64
	row    event.Row
}

func (p *memoryPrepared) Size() (rows, bytes int) { return len(p.entries), p.bytes }

func (o *memoryOwned) Prepare(b *event.Batch) (consumers.Prepared, error) {
	layout := o.sink.layout.Load()
	p := &memoryPrepared{owned: o, ranges: slices.Clone(b.Ranges)}
	wrong := o.sink.memory.wrong
	for i := range b.Messages {
		if b.Excluded[i] && wrong != "excluded are applied" {
			continue
		}
		entry, err := o.decode(&b.Messages[i], layout)
		switch {
		case err == nil:
			p.entries = append(p.entries, entry)
			p.bytes += len(b.Messages[i].Value)
		case fault.Is(err, fault.Data):
			reason := "rejected"
			if d, ok := err.(*event.DataError); ok {
				reason = d.Reason
			}
			p.rejected = append(p.rejected, event.Rejected{Index: i, Reason: reason, Err: err})
			if wrong == "a bad event stops its batch" {
				p.entries, p.rejected = nil, nil
				return p, nil
			}
		default:
			return nil, err
		}
	}
	return p, nil
}

func (o *memoryOwned) decode(m *event.Message, layout *partitioner.Layout) (memoryEntry, error) {
	v := &o.view
	if err := event.ParseView(m.Record, v); err != nil {
		return memoryEntry{}, err
	}
	wrong := o.sink.memory.wrong
	if v.LayoutEpoch > layout.Epoch() && wrong != "newer layouts are ignored" {
		return memoryEntry{}, &event.NewerLayout{Epoch: v.LayoutEpoch, At: m.Partition, Next: m.Offset + 1}
	}
	t := o.sink.cfg.Table(string(v.Table))
	if t == nil {
		return memoryEntry{}, &event.DataError{Code: "memory", Reason: event.ReasonUnknownTable, Detail: string(v.Table)}
	}
	e := memoryEntry{entity: entity{t.Name, string(v.Tenant), string(v.EntityID)}, ver: v.Version * 2}
	if v.Op == event.Delete {
		e.ver++
	}
	if err := t.DecodeView(v, &e.row); err != nil {
		return memoryEntry{}, err
	}
	if t.Month != event.None && wrong != "months are not bounded" {
		if last := partitioner.MonthOf(v.Time).Add(2); e.row.Month < o.sink.cfg.Months.From || e.row.Month > last {
			return memoryEntry{}, &event.DataError{Code: "memory", Table: t.Name, Column: t.Columns[t.Month].Name,
				Reason: event.ReasonOutOfRange, Detail: fmt.Sprintf("month %s is not within %s to %s", e.row.Month, o.sink.cfg.Months.From, last)}
		}
	}
	if reject := o.sink.memory.Reject; reject != nil {
		return e, reject(v)
	}
	return e, nil
}

func (p *memoryPrepared) Apply(ctx context.Context) ([]event.Rejected, error) {
	m, o := p.owned.sink.memory, p.owned
	if len(p.rejected) > 0 {
		return p.rejected, nil
	}
	if o.group {
		if err := m.fault(ctx, "intent", p.ranges); err != nil {
			return nil, err
		}
		if err := m.intend(p); err != nil {
			return nil, err
		}
	}
	if err := m.fault(ctx, "apply", p.ranges); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	done, err := m.mayApply(p)
	if err != nil || done {
		return nil, err
	}
	for _, e := range p.entries {
		if m.alter != nil {
			e = m.alter(e)
		}
		m.rows.add(e.entity, e.ver, e.row)
	}
	m.applied += int64(len(p.entries))
	for _, r := range p.ranges {
		if m.wrong == "progress is not advanced" || m.wrong == "markers are not passed" && len(p.entries) == 0 {
			continue
		}
		m.progress[r.Partition] = event.Position{Partition: r.Partition, Next: r.To, LeaderEpoch: r.LeaderEpoch, TopicID: r.TopicID}
		delete(m.halts, r.Partition)
	}
	delete(m.intents, o.parts[0])
	return nil, nil
}

// intend stores the ranges of a batch before it is sent; the rows may be sent by a later owner.
func (m *Memory) intend(p *memoryPrepared) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	done, err := m.mayApply(p)
	if err != nil || done {
		return err
	}
	first := p.owned.parts[0]
	if stored := m.intents[first]; len(stored) > 0 && !slices.Equal(stored, p.ranges) {
		return &fault.Error{Code: "memory", Class: fault.Fatal, What: fmt.Sprintf("a batch of %v must come first, not %v", stored, p.ranges)}
	}
	m.intents[first] = slices.Clone(p.ranges)
	return nil
}

// mayApply compares epochs and progress; done when the batch is applied already. The lock is held.
func (m *Memory) mayApply(p *memoryPrepared) (done bool, err error) {
	done = len(p.ranges) > 0
	for _, r := range p.ranges {
		at := m.progress[r.Partition]
		switch {
		case m.epochs[r.Partition] != p.owned.epochs[r.Partition] && m.wrong != "no fence":
			return false, &fault.Error{Code: "memory", Class: fault.Fenced, What: fmt.Sprintf("%v has another owner", r.Partition)}
		case at.Next >= r.To:
			continue
		case at.Next < r.From:
			return false, &event.Rewound{Positions: []event.Position{at}}
		case at.Next > r.From:
			return false, &fault.Error{Code: "memory", Class: fault.Fatal,
				What: fmt.Sprintf("%v stands at %d, inside a batch from %d to %d", r.Partition, at.Next, r.From, r.To)}
		}
		done = false
	}
	return done, nil
}

// Intents are the batches that are stored and not confirmed.
func (m *Memory) Intents() [][]event.Range {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.intents))
}
