package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/partitioner"
)

const modelFile = `
line: model
kafka: { brokers: [127.0.0.1:9092], partitions: 3 }
outbox: { dsn: "mysql://u@127.0.0.1:1/outbox" }
shards:
  s1: { dsn: "mysql://u@127.0.0.1:1/s1", slots: 0-511 }
  s2: { dsn: "mysql://u@127.0.0.1:1/s2", slots: 512-1023 }
tables:
  items: { tenant: owner, id: item, month: at, columns: { owner: string(20), item: int64, at: datetime, name: string(20) } }
  notes: { tenant: owner, id: note, columns: { owner: string(20), note: string(20), body: string(20) } }
  places: { id: code, columns: { code: string(8), name: string(20) } }
`

// Of three partitions 0 has the broadcast table and both shards, 1 has both, 2 has s2 alone: there other processes act
// between two statements of a transaction.
const (
	modelPartitions = 3
	modelAlone      = 2
	modelProcesses  = 3
)

// model is a log, two shards and the processes that apply the one to the others.
type model struct {
	t      testing.TB
	layout *partitioner.Layout
	sinks  []*Sink
	shards map[string]*modelShard
	pools  []*sql.DB
	made   map[string]modelEvent // events by what they are: one run needs few that an earlier one did not
	tenant []string              // one of each partition and shard

	random *rand.Rand
	log    map[int32][]modelEvent
	end    map[int32]int64
	lives  map[[2]int32]*modelLife // by process and partition
	last   int32                   // who took over last
	nested bool
	back   bool         // an offset was put back in this run
	older  bool         // a database was
	part0  int32        // the run's partition
	asleep []*modelLife // replaced, and not told: also by the same process
	picky  string       // the one shard that refuses bad rows; "" if all do
	faulty []string
	seen   map[string]int
}

type modelEvent struct {
	message event.Message
	key     string // physical table and key
	row     modelRow
	bad     bool // a dead letter
	month   partitioner.Month
	shards  []string
}

// modelLife is one process's ownership of one partition.
type modelLife struct {
	owned       event.Owned
	batch, next *event.Batch // next is prepared while batch is applied
	now, ahead  event.Prepared
}

// P3, P4, P5 and P7 of the sink as it is, on shards in memory that fail at every statement in every way: random logs,
// processes that crash, fence each other in the middle of a transaction, servers that die, deadlock, refuse, answer late or
// never, databases and offsets that are put back, months that are retired. After each commit the shard's rows are the fold
// of the log below applied_off, less the retired months, in the end of all of it. SINK_MODEL_SEED repeats a run.
func TestP4_SinkAgainstAModel(t *testing.T) {
	const chunk = 50
	first, seen := rand.Uint64(), map[string]int{}
	budget, least := time.Second, uint64(500)
	if os.Getenv("SLOTLINE_SOAK") != "" {
		budget = 2 * time.Minute
	}
	last := uint64(math.MaxUint64)
	if text := os.Getenv("SINK_MODEL_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("SINK_MODEL_SEED: %v", err)
		}
		first, last = seed, 1
	}
	began := time.Now()
	var mu sync.Mutex // of seen
	var runs atomic.Uint64
	t.Run("runs", func(t *testing.T) {
		for worker := range min(uint64(runtime.GOMAXPROCS(0)), last) {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				for !t.Failed() && runs.Load() < last && (runs.Load() < least || time.Since(began) < budget) {
					here := map[string]int{}
					synctest.Test(t, func(t *testing.T) { // pauses cost no time
						m := newModel(t, here)
						defer m.close()
						for range min(chunk, last) {
							seed := first + runs.Add(1) - 1
							if m.run(seed); len(m.faulty) > 0 {
								t.Errorf("SINK_MODEL_SEED=%d", seed)
								for _, text := range m.faulty {
									t.Error(text)
								}
								return
							}
						}
					})
					mu.Lock()
					for what, n := range here {
						seen[what] += n
					}
					mu.Unlock()
				}
			})
		}
	})
	took := time.Since(began)
	t.Logf("%d runs from seed %d, %.0f a second: %v", runs.Load(), first, float64(runs.Load())/took.Seconds(), seen)
	if t.Failed() || last == 1 {
		return
	}
	for _, what := range []string{"commits", "batches", "take-overs", "fenced", "woken", "rewound", "rejected", "outages", "found fenced", "found ours", "restores", "put back", "retired", "passed over",
		"cut before", "answer lost", "COMMIT comes late", "deadlock", "lock wait", "read-only", "server killed"} {
		if seen[what] == 0 {
			t.Errorf("the runs show too little: %q came %d times", what, seen[what])
		}
	}
}

// A row of a broadcast table that one shard refuses is in none, whichever it is: the other waits for it, and commits
// neither the row nor its progress.
func TestP6_BroadcastRowThatOneShardRefusesIsInNone(t *testing.T) {
	for _, picky := range []string{"s1", "s2"} {
		for seed := range uint64(20) {
			synctest.Test(t, func(t *testing.T) {
				seen := map[string]int{}
				m := newModel(t, seen)
				defer m.close()
				m.picky, m.random = picky, rand.New(rand.NewPCG(seed, 0))
				p := m.layout.Broadcast()
				m.log, m.end = map[int32][]modelEvent{}, map[int32]int64{}
				for i := range int64(6) {
					e := m.event(0, i%3, 2+i/3, false, false) // the second is bad, and a lower version than the fifth
					if i == 1 {
						e = m.event(0, 1, 4, false, false)
					}
					e.message.Offset, e.message.LeaderEpoch = i, 3
					m.log[p], m.end[p] = append(m.log[p], e), i+1
				}
				m.begin(seed, p)
				for _, s := range m.shards {
					s.faults = false
				}
				m.drain(p)
				for _, text := range m.faulty {
					t.Error(text)
				}
				if !m.log[p][1].bad || seen["rejected"] != 1 {
					t.Errorf("%d events were rejected", seen["rejected"])
				}
			})
		}
	}
}

func newModel(t testing.TB, seen map[string]int) *model {
	t.Helper()
	cfg, err := config.Parse("slotline.yaml", []byte(modelFile))
	if err != nil {
		t.Fatal(err)
	}
	spec, err := cfg.Layout.WithPartitions(modelPartitions)
	if err != nil {
		t.Fatal(err)
	}
	m := &model{t: t, shards: map[string]*modelShard{}, made: map[string]modelEvent{}, seen: seen}
	if m.layout, err = partitioner.New(spec); err != nil {
		t.Fatal(err)
	}
	for _, name := range m.layout.Shards() {
		s := &modelShard{name: name, conns: map[*modelConn]bool{}, locks: map[int32]*modelConn{}, struck: m.seen}
		m.shards[name] = s
	}
	for p := range int32(modelPartitions) {
		for _, i := range m.layout.PartitionShards(p) {
			if tenant := m.tenantOf(p, i); tenant != "" {
				m.tenant = append(m.tenant, tenant)
			}
		}
	}
	for i := range modelProcesses {
		owner := fmt.Sprint("process-", i)
		s, err := New(Options{Config: cfg, Layout: m.layout, Owner: owner, StagingRows: -1})
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		for name, sh := range s.shards {
			pool := func(conns int) *sql.DB {
				db := sql.OpenDB(modelConnector{m.shards[name], owner})
				db.SetMaxOpenConns(conns)
				m.pools = append(m.pools, db)
				return db
			}
			sh.apply, sh.control = pool(4), pool(controlConnections)
			// So small that a batch of a dozen rows takes several packets.
			sh.engine.Store(&engine{dialect: dialect{RowAlias: true}, packetBytes: packetSpareBytes + s.statementBytes + 300})
			for i, t := range s.tables {
				for _, month := range []partitioner.Month{partitioner.NoMonth, 202605, 202606} {
					if (t.Month == event.None) == (month == partitioner.NoMonth) {
						sh.catalog.add(newPlace(0, i, month), newUpsert(t.Table, month, dialect{RowAlias: true}))
					}
				}
			}
		}
		m.sinks = append(m.sinks, s)
	}
	return m
}

// tenantOf is "" where a partition meets a shard by its broadcast table alone.
func (m *model) tenantOf(p, shard int32) string {
	for i := range 1000 {
		tenant := fmt.Sprint("t", i)
		if r := m.layout.Route(tenant, ""); r.Partition == p && r.Shard == shard {
			return tenant
		}
	}
	return ""
}

func (m *model) close() {
	for _, db := range m.pools {
		db.Close()
	}
}

func (m *model) wrong(format string, args ...any) {
	m.faulty = append(m.faulty, fmt.Sprintf(format, args...))
}

// run plays one history of one partition. Everything is decided by the seed.
func (m *model) run(seed uint64) {
	m.random = rand.New(rand.NewPCG(seed, 0))
	p := int32(m.random.IntN(modelPartitions))
	m.write(p)
	m.begin(seed, p)
	for range 8 {
		process := int32(m.random.IntN(modelProcesses))
		if m.random.IntN(3) > 0 {
			process = m.last
		}
		if m.act(process, p); len(m.faulty) > 0 {
			break
		}
	}
	for _, s := range m.shards {
		s.faults = false
	}
	m.look()
	m.drain(p)
	m.wake()
	for _, s := range m.sinks {
		for _, c := range s.ShardCounts() {
			m.seen["passed over"] = max(m.seen["passed over"], int(c.Retired))
		}
	}
	for _, s := range m.shards {
		for kind, n := range s.struck {
			m.seen[kind] += n
		}
	}
}

// begin empties the shards for one partition's history.
func (m *model) begin(seed uint64, p int32) {
	m.lives, m.asleep = map[[2]int32]*modelLife{}, nil
	m.back, m.older, m.last = false, false, 0
	m.part0 = p
	for i, name := range m.layout.Shards() {
		s := m.shards[name]
		s.crash()
		clear(s.locks)
		s.random, s.faults = rand.New(rand.NewPCG(seed, uint64(i+1))), true
		s.backups, s.struck, s.below = nil, map[string]int{}, partitioner.NoMonth
		s.now = modelState{map[int32]progress.Row{}, map[string]modelRow{}}
		for p := range int32(modelPartitions) {
			if slices.Contains(m.shardsOf(p), name) {
				s.now.progress[p] = progress.Row{Key: progress.Key{Sink: "mysql", Partition: m.part(p)}, LeaderEpoch: -1}
			}
		}
		commits := 0
		s.checked = func(c *modelConn, moved []int32) {
			s.struck["commits"]++
			if commits++; len(m.faulty) == 0 {
				m.check(name, c, moved)
			}
		}
		s.between = nil
		if name == "s2" {
			s.between = m.others
		}
	}
}

func (m *model) part(n int32) event.Partition {
	return event.Partition{Topic: m.sinks[0].topics[0], Number: n}
}

func (m *model) shardsOf(p int32) (names []string) {
	for _, i := range m.layout.PartitionShards(p) {
		names = append(names, m.layout.ShardName(i))
	}
	return names
}

// act is one thing that a process, or fate, does.
func (m *model) act(process, p int32) {
	life := m.lives[[2]int32{process, p}]
	switch n := m.random.IntN(20); {
	case n == 0: // the process dies
		for q := range int32(modelPartitions) {
			delete(m.lives, [2]int32{process, q})
		}
	case n == 1:
		m.seen["restores"]++
		m.older = true // it gives epochs out twice
		m.shards[m.shardsOf(p)[0]].restore()
	case n == 2 || n == 4: // somebody reads the log again from an earlier offset
		m.seen["put back"]++
		s := m.shards[m.shardsOf(p)[0]]
		r := s.now.progress[p]
		if r.Next > 0 && s.locks[p] == nil {
			r.Next = m.random.Int64N(r.Next)
			s.now.progress[p], m.back = r, true
			s.backups = nil // of offsets that were not put back
		}
		for q := range int32(modelProcesses) { // whoever believes that it has the partition
			m.work(q, p)
		}
	case n == 3:
		m.takeOver(process, p)
		m.wake()
	case n == 5:
		for _, name := range m.shardsOf(p) {
			if m.random.IntN(2) == 0 {
				m.retire(m.shards[name])
			}
		}
	case n == 6:
		m.look()
	case life == nil:
		m.takeOver(process, p)
	default:
		for range 1 + m.random.IntN(3) {
			m.work(process, p)
		}
	}
}

// others is what happens to the partition of one shard between two statements of a process that applies it.
func (m *model) others(c *modelConn) {
	holder := m.shards["s2"].locks[modelAlone]
	if m.part0 == modelAlone && c.shard.random.IntN(8) == 0 {
		m.retire(m.shards["s2"])
	}
	if m.nested || holder == nil {
		return
	}
	m.nested = true
	defer func() { m.nested = false }()
	process := int32(c.shard.random.IntN(modelProcesses))
	if name := m.sinks[process].owner; name == holder.owner || name == c.owner {
		return // it is busy
	}
	m.takeOver(process, modelAlone)
	if c.shard.random.IntN(2) == 0 {
		m.work(process, modelAlone)
	}
}

// retire does what tables retire does in a shard: the row and the epochs at once, then the tables. It waits for whoever has a
// progress row; here it comes another time.
func (m *model) retire(s *modelShard) {
	if s.below != partitioner.NoMonth || len(s.locks) > 0 {
		return
	}
	m.seen["retired"]++
	s.below = 202606
	s.retire()
}

func (m *model) takeOver(process, p int32) {
	at := [2]int32{process, p}
	asleep := m.sleep(at)
	owned, err := m.sinks[process].TakeOver(context.Background(), []event.Partition{m.part(p)})
	switch {
	case err == nil:
		m.seen["take-overs"]++
		m.last = process
		if asleep != nil {
			m.asleep = append(m.asleep, asleep)
		}
		m.lives[at] = &modelLife{owned: owned}
	case !fault.Is(err, fault.Transient):
		m.wrong("taking partition %d over: %v", p, err)
	}
}

// look has each process look whether it still has what it took over, and shows that it learns exactly that.
func (m *model) look() {
	taken := func(o *owned) bool {
		for name, h := range o.holds {
			if r := m.shards[name].now.progress[o.part.Number]; r.Owner != h.row.Owner || r.OwnerEpoch != h.row.OwnerEpoch || r.Next < h.row.Next {
				return true
			}
		}
		return false
	}
	for process, s := range m.sinks {
		at := [2]int32{int32(process), m.part0}
		before := m.lives[at]
		was := before != nil && taken(before.owned.(*owned))
		err := s.Look(context.Background())
		life := m.lives[at]
		if life == nil || life != before {
			continue // something happened between
		}
		o, lost := life.owned.(*owned), false
		select {
		case <-o.lost:
			lost = true
		default:
		}
		switch {
		case lost && !taken(o):
			m.wrong("partition %d is %s's, and was given up", m.part0, s.owner)
		case !lost && was && err == nil:
			m.wrong("partition %d was taken from %s, and its look did not find that", m.part0, s.owner)
		case lost:
			m.seen["found fenced"]++
			delete(m.lives, at)
		default:
			m.seen["found ours"]++
		}
	}
}

// cut makes a batch of up to a dozen events, or of none where there are only holes.
func (m *model) cut(p int32, from int64) *event.Batch {
	to := m.end[p]
	if from >= to {
		return nil
	}
	if n := 1 + m.random.Int64N(16); n < to-from {
		to = from + n
	}
	b := &event.Batch{Ranges: []event.Range{{Partition: m.part(p), From: from, To: to, LeaderEpoch: 3}}, Excluded: map[int]bool{}}
	for _, e := range m.log[p] {
		if e.message.Offset >= from && e.message.Offset < to {
			b.Messages = append(b.Messages, e.message)
		}
	}
	return b
}

// work tries one batch once, as package consumers does: what failed is sent again, the next is prepared meanwhile.
func (m *model) work(process, p int32) {
	at := [2]int32{process, p}
	life := m.lives[at]
	if life == nil {
		return
	}
	prepare := func(b *event.Batch) event.Prepared {
		ready, err := life.owned.Prepare(b)
		if err != nil {
			m.wrong("preparing %v: %v", b.Ranges, err)
		}
		return ready
	}
	if life.batch == nil {
		if life.batch = m.cut(p, life.owned.Positions()[0].Next); life.batch == nil {
			return
		}
	}
	if life.now == nil {
		if life.now = prepare(life.batch); len(m.faulty) > 0 {
			return
		}
	}
	if life.next == nil && m.random.IntN(2) == 0 {
		if life.next = m.cut(p, life.batch.Ranges[0].To); life.next != nil {
			if life.ahead = prepare(life.next); len(m.faulty) > 0 {
				return
			}
		}
	}
	rejected, err := life.now.Apply(context.Background())
	if m.lives[at] != life {
		return // it was replaced by itself meanwhile
	}
	_, rewound := errors.AsType[*event.Rewound](err)
	switch {
	case rewound:
		m.seen["rewound"]++
		*life = modelLife{owned: life.owned}
	case fault.Is(err, fault.Fenced):
		m.seen["fenced"]++
		delete(m.lives, at)
	case fault.Is(err, fault.Transient):
		m.seen["outages"]++
	case m.back && fault.CodeOf(err) == codeBetween:
		// Put back into a batch whose COMMIT was not heard of: nobody can tell that from an offset that somebody moved
		// forward. The partition halts, and is taken over again as it stands.
		m.seen["halted"]++
		delete(m.lives, at)
	case err != nil:
		m.wrong("applying %v: %v", life.batch.Ranges, err)
	case len(rejected) > 0:
		m.seen["rejected"] += len(rejected)
		for _, r := range rejected {
			offset := life.batch.Messages[r.Index].Offset
			i := slices.IndexFunc(m.log[p], func(e modelEvent) bool { return e.message.Offset == offset })
			if !m.log[p][i].bad || life.batch.Excluded[r.Index] {
				m.wrong("partition %d offset %d was rejected: %v", p, offset, r.Err)
			}
			life.batch.Excluded[r.Index] = true
		}
		life.now, life.ahead, life.next = nil, nil, nil
	default:
		m.seen["batches"]++
		for _, name := range m.shardsOf(p) {
			if r := m.shards[name].now.progress[p]; r.Next < life.batch.Ranges[0].To && !m.back && !m.older {
				m.wrong("%v is said to be applied, %s stands at %d", life.batch.Ranges, name, r.Next)
			}
		}
		if next := life.owned.Positions()[0].Next; next != life.batch.Ranges[0].To {
			m.wrong("after %v the sink stands at %d", life.batch.Ranges, next)
		}
		*life = modelLife{owned: life.owned, batch: life.next, now: life.ahead}
	}
}

// drain has one process apply all that is left, with nothing in its way, and compares.
func (m *model) drain(p int32) {
	process := int32(m.random.IntN(modelProcesses))
	for try := 0; len(m.faulty) == 0 && m.lives[[2]int32{process, p}] == nil || try == 0; try++ {
		m.takeOver(process, p)
	}
	for range 1000 {
		life := m.lives[[2]int32{process, p}]
		if len(m.faulty) > 0 {
			return
		}
		if life == nil && m.back {
			m.takeOver(process, p)
			continue
		}
		if life == nil {
			m.wrong("partition %d: the only owner was fenced", p)
			return
		}
		if life.batch == nil && life.owned.Positions()[0].Next == m.end[p] {
			break
		}
		m.work(process, p)
	}
	for _, name := range m.shardsOf(p) {
		if r := m.shards[name].now.progress[p]; r.Next != m.end[p] || r.Applied != m.end[p] {
			m.wrong("%s: partition %d stands at %d, applied_off %d, and ends at %d", name, p, r.Next, r.Applied, m.end[p])
		}
	}
}

// sleep ends a life as a paused process's ends: with a batch that it has prepared and not sent.
func (m *model) sleep(at [2]int32) *modelLife {
	life := m.lives[at]
	delete(m.lives, at)
	if life == nil {
		return nil
	}
	if life.now == nil {
		if life.batch = m.cut(at[1], life.owned.Positions()[0].Next); life.batch == nil {
			return nil
		}
		var err error
		if life.now, err = life.owned.Prepare(life.batch); err != nil {
			m.wrong("preparing %v: %v", life.batch.Ranges, err)
		}
	}
	return life
}

// wake has those that were replaced send what they had: it changes nothing.
func (m *model) wake() {
	for _, life := range m.asleep {
		if len(m.faulty) > 0 || m.older {
			break
		}
		m.seen["woken"]++
		if rejected, err := life.now.Apply(context.Background()); err == nil && len(rejected) == 0 {
			m.wrong("one that was replaced applied %v", life.batch.Ranges)
		}
	}
	m.asleep = nil
}

// check compares a shard with the plain fold of what is below its applied_off, whenever something was committed there.
func (m *model) check(name string, c *modelConn, moved []int32) {
	s := m.shards[name]
	for _, p := range moved {
		if r := s.now.progress[p]; r.Owner != c.owner && r.Owner != "" {
			m.wrong("%s: %s moved partition %d, which is %s's", name, c.owner, p, r.Owner)
		}
	}
	fold := map[string]modelRow{}
	for p, events := range m.log {
		applied := s.now.progress[p].Applied
		for _, e := range events {
			if e.bad || e.message.Offset >= applied || !slices.Contains(e.shards, name) || retired(e.month, s.below) {
				continue
			}
			if old, there := fold[e.key]; !there || e.row.ver > old.ver {
				fold[e.key] = e.row
			}
		}
	}
	if !maps.Equal(fold, s.now.rows) {
		m.wrong("%s, progress %v:\nrows %v\nfold %v", name, s.now.progress, s.now.rows, fold)
	}
}

// write makes the log: a few entities and versions, in any order and with repeats, holes in the offsets, bad events.
func (m *model) write(p int32) {
	m.log, m.end = map[int32][]modelEvent{}, map[int32]int64{}
	for left := 3 + m.random.IntN(12); left > 0; {
		e := m.event(m.random.IntN(4*len(m.tenant)), m.random.Int64N(2), 1+m.random.Int64N(9), m.random.IntN(4) == 0, m.random.IntN(30) == 0)
		if e.message.Partition.Number != p {
			continue
		}
		left--
		if m.random.IntN(8) == 0 {
			m.end[p] += 1 + m.random.Int64N(3)
		}
		e.message.Offset, e.message.LeaderEpoch = m.end[p], 3
		m.log[p] = append(m.log[p], e)
		m.end[p]++
	}
}

// event makes an event, or takes one that was made before. A name depends on entity and version alone: at equal versions
// bytes are equal.
func (m *model) event(kind int, id, version int64, deleted, broken bool) modelEvent {
	what := fmt.Sprint(kind, " ", id, " ", version, " ", deleted, " ", broken)
	if e, ok := m.made[what]; ok {
		return e
	}
	name := fmt.Sprintf("v%d", version)
	bad := (id*5+version)%9 == 0 && !deleted
	if bad {
		if name = fmt.Sprintf("bad%d", version); m.picky != "" {
			name = "bad@" + m.picky
		}
	}
	e := event.Event{ID: event.NewID(), Op: event.Upsert, Version: version, Time: time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC),
		LayoutEpoch: m.layout.Epoch(), Outbox: event.OutboxPosition{Generation: 1, ID: uint64(version)}}
	if deleted {
		e.Op = event.Delete
	}
	text := func(s string) event.Value { return event.Value{Bytes: []byte(s)} }
	tenant := m.tenant[kind%len(m.tenant)]
	var values []event.Value
	month := partitioner.NoMonth
	switch kind / len(m.tenant) {
	case 0:
		e.Table, tenant, values = "places", "", []event.Value{text(fmt.Sprint("p", id)), text(name)}
	case 1:
		e.Table, values = "notes", []event.Value{text(tenant), text(fmt.Sprint("n", id)), text(name)}
	default:
		at := time.Date(2026, 5+time.Month(id%2), 1, 0, 0, 0, 0, time.UTC)
		month = partitioner.MonthOf(at)
		e.Table, values = "items", []event.Value{text(tenant), {Int: id}, {Int: at.UnixMicro()}, text(name)}
	}
	t := m.sinks[0].tables[m.sinks[0].tableIndex[e.Table]].Table
	e.Tenant, e.EntityID = tenant, string(t.CanonicalText(nil, t.ID, values[t.ID]))
	var err error
	if e.Body, err = t.AppendRow(nil, values, e.Op); err != nil {
		m.t.Fatal(err)
	}
	made := modelEvent{bad: bad || broken, row: modelRow{"'" + name + "'", version * 2}}
	if deleted {
		made.row = modelRow{"", version*2 + 1}
	}
	if broken {
		e.Body = []byte(`{"none":1}`)
	}
	key := string(appendValue(nil, t.Columns[t.ID].Type.Kind, &values[t.ID]))
	p := m.layout.Broadcast()
	if t.Broadcast() {
		made.shards = m.layout.Shards()
	} else {
		r := m.layout.Route(tenant, "")
		p, made.shards = r.Partition, []string{m.layout.ShardName(r.Shard)}
		key = string(appendText(nil, []byte(tenant))) + "," + key
	}
	made.key, made.month = t.PhysicalName(month)+"|"+key, month
	_, made.message.Record = e.AppendRecord(nil, event.Source("model"))
	made.message.Partition = m.part(p)
	m.made[what] = made
	return made
}
