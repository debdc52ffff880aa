package replay

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/intake"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/partitioner"
)

const passOverFile = `line: flights
kafka: { brokers: [127.0.0.1:9092], partitions: 4 }
outbox: { dsn: "mysql://app@127.0.0.1:1/flights" }
shards: { s1: { dsn: "mysql://app@127.0.0.1:1/s1", slots: 0-511 }, s2: { dsn: "mysql://app@127.0.0.1:1/s2", slots: 512-1023 } }
months: { from: 2013-01 }
tables:
  flights: { tenant: carrier, id: flight_id, month: sched_dep, columns: { carrier: string(2), flight_id: uint64, sched_dep: datetime, status: string(9) } }
  airports: { id: code, columns: { code: string(3), name: string(9) } }
  gates: { tenant: carrier, id: gate, columns: { carrier: string(2), gate: uint64 } }
`

// modelJob is a job whose shard is a map and whose log is a slice for each partition. Its rules say which rows a row of the
// table refuses. What is not in a field of its own is lost when a process dies.
type modelJob struct {
	t      *testing.T
	random *rand.Rand
	r      *Replay
	job    *Job
	log    map[event.Partition][]event.Message
	rules  *intake.Rules
	event  intake.Event

	progress ends
	letters  map[event.Partition][]int64
	rows     map[string]int64 // the greatest version that was applied
	verified bool
	applied  int // rows written
}

// refuses says that the shard's table refuses a row: by identity and version alone, as a CHECK would.
func refuses(row string, ver int64) bool {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s %d", row, ver)
	return h.Sum32()%5 == 0
}

// read says in plain words which row of the job's an event writes.
func (m *modelJob) read(msg *event.Message) (row string, ver int64, ok bool) {
	e := &m.event
	if err := m.rules.Read(msg, m.r.o.Layout, e); err != nil {
		return "", 0, false
	}
	t := m.r.o.Config.Tables[e.Table]
	ok = slices.Contains(m.job.Spec.Tables, t.Name) && (t.Broadcast() || m.r.o.Layout.ShardName(e.Route.Shard) == m.r.o.Shard)
	return fmt.Sprintf("%s %v %q", t.Name, e.Row.Month, msg.Key), e.Ver, ok
}

type modelDied struct{}

// mayDie is a moment at which the process may be killed.
func (m *modelJob) mayDie() {
	if m.random.IntN(60) == 0 {
		panic(modelDied{})
	}
}

func newModelJob(t *testing.T, random *rand.Rand) *modelJob {
	t.Helper()
	cfg, err := config.Parse("slotline.yaml", []byte(passOverFile))
	if err != nil {
		t.Fatal(err)
	}
	spec, err := cfg.Layout.WithPartitions(cfg.Kafka.Partitions)
	if err != nil {
		t.Fatal(err)
	}
	spec.Epoch = 2 // an event of the first may be in another partition than the layout says
	layout, err := partitioner.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	m := &modelJob{t: t, random: random, r: &Replay{o: Options{Config: cfg, Layout: layout, Shard: "s1"}},
		job: &Job{Spec: Spec{Tables: []string{"airports", "flights"}}}, log: map[event.Partition][]event.Message{},
		progress: ends{}, letters: map[event.Partition][]int64{}, rows: map[string]int64{}}
	if m.rules, err = intake.New(cfg.Tables, &event.LimitsMySQL, cfg.Months.From); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *modelJob) readers() func() *rowReader {
	readers, err := m.r.rowReaders(m.job)
	if err != nil {
		m.t.Fatal(err)
	}
	return readers
}

// emit appends an event at random to the log: of few rows, in any order of versions, now and then twice, of a month that has
// changed, of a table that is not the job's, or of the other shard.
func (m *modelJob) emit() {
	cfg, l := m.r.o.Config, m.r.o.Layout
	e := event.Event{ID: event.NewID(), Op: event.Upsert, Version: 1 + m.random.Int64N(12), LayoutEpoch: 1 + m.random.Int64N(2), Outbox: event.OutboxPosition{Generation: 1, ID: 1},
		Time: time.Date(2013, 3, 2, 0, 0, 0, 0, time.UTC)}
	if m.random.IntN(4) == 0 {
		e.Op = event.Delete
	}
	carrier := event.Value{Bytes: fmt.Appendf(nil, "%c%c", 'A'+m.random.IntN(2), 'A'+m.random.IntN(3))}
	id := event.Value{Uint: uint64(1 + m.random.IntN(4))}
	var values []event.Value
	switch m.random.IntN(8) {
	case 0:
		e.Table, values = "airports", []event.Value{{Bytes: fmt.Appendf(nil, "K%02d", m.random.IntN(3))}, {Bytes: []byte("name")}}
	case 1:
		e.Table, values = "gates", []event.Value{carrier, id}
	default:
		month := time.March
		if m.random.IntN(9) == 0 {
			month = time.April
		}
		e.Table, values = "flights", []event.Value{carrier, id, {Int: time.Date(2013, month, 1, 0, 0, 0, 0, time.UTC).UnixMicro()}, {Bytes: []byte("arrived")}}
	}
	t := cfg.Table(e.Table)
	p := event.Partition{Topic: cfg.Topics()[0], Number: l.Broadcast()}
	if !t.Broadcast() {
		e.Tenant = string(carrier.Bytes)
		p.Number = l.Route(e.Tenant, "").Partition
	}
	if m.random.IntN(9) == 0 {
		p.Number = (p.Number + 1) % 4 // where nobody takes it, unless it is of the first layout
	}
	body, err := t.AppendRow(nil, values, e.Op)
	if err != nil {
		m.t.Fatal(err)
	}
	e.Body, e.EntityID = body, string(t.CanonicalText(nil, t.ID, values[t.ID]))
	_, rec := e.AppendRecord(nil, event.Source("flights"))
	for range 1 + m.random.IntN(2)*m.random.IntN(2) {
		m.log[p] = append(m.log[p], event.Message{Record: rec, Partition: p, Offset: int64(len(m.log[p]))})
	}
}

func (m *modelJob) ends() ends {
	e := ends{}
	for p, log := range m.log {
		e[p] = int64(len(log))
	}
	return e
}

// feed applies the log, less what is passed over, as consumers and the sink do: a batch writes the newest version of each row
// that is not refused, and what is refused is kept before the progress moves.
func (m *modelJob) feed(passes passOver) {
	by := map[event.Partition]func(*event.Message) bool{}
	for {
		if m.random.IntN(20) == 0 && len(m.log[event.Partition{Topic: "flights.events"}]) < 500 {
			m.emit()
		}
		var open []event.Partition
		for p, end := range m.ends() {
			if m.progress[p] < end {
				open = append(open, p)
			}
		}
		if len(open) == 0 {
			return
		}
		p := open[m.random.IntN(len(open))]
		from := m.progress[p]
		to := min(int64(len(m.log[p])), from+1+m.random.Int64N(12))
		if by[p] == nil && passes != nil {
			by[p] = passes()
		}
		m.batch(p, from, to, by[p])
	}
}

func (m *modelJob) batch(p event.Partition, from, to int64, passes func(*event.Message) bool) {
	b := &event.Batch{Messages: m.log[p][from:to]}
	for {
		less := b
		if passes != nil {
			less, _ = without(b, passes)
		}
		newest, at := map[string]int64{}, map[string]int{}
		for i := range less.Messages {
			if key, ver, ok := m.read(&less.Messages[i]); ok && !less.Excluded[i] && ver > newest[key] {
				newest[key], at[key] = ver, i
			}
		}
		bad := slices.DeleteFunc(slices.Collect(maps.Keys(newest)), func(k string) bool { return !refuses(k, newest[k]) || m.rows[k] >= newest[k] })
		if len(bad) == 0 {
			m.mayDie()
			for k, ver := range newest {
				if ver > m.rows[k] {
					m.rows[k] = ver
					m.applied++
				}
			}
			m.progress[p] = to
			m.mayDie()
			return
		}
		m.mayDie()
		if b.Excluded == nil {
			b.Excluded = map[int]bool{}
		}
		for _, k := range bad {
			b.Excluded[at[k]] = true
			if offset := from + int64(at[k]); !slices.Contains(m.letters[p], offset) {
				m.letters[p] = append(m.letters[p], offset)
				slices.Sort(m.letters[p])
			}
		}
		m.mayDie()
	}
}

// run is a process that has the job, as Replay.fill; false: it died.
func (m *modelJob) run(filters bool) (done bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, died := r.(modelDied); !died {
				panic(r)
			}
		}
	}()
	f := &feed{began: maps.Clone(m.progress)}
	if !m.verified {
		if filters {
			n, row := &newest{}, m.readers()()
			if m.random.IntN(4) == 0 {
				n.bytesMax = newestEntryBytes * 8 * (1 + m.random.Int64N(10))
			}
			for p, end := range m.ends() {
				for i := range m.log[p][:end] {
					if key, ver, ok := row.read(&m.log[p][i]); ok {
						n.learn(key, ver)
					}
				}
			}
			f.passes = older(n, m.readers())
		}
		m.feed(f.passes)
		if len(m.letters) > 0 && f.mayLack() {
			below, entities := ends{}, &newest{}
			for p, offsets := range m.letters {
				for _, offset := range offsets {
					if offset < m.progress[p] {
						below[p] = m.progress[p]
						entities.learn(entityAt(nil, &m.log[p][offset]), 1)
					}
				}
			}
			m.mayDie()
			for p := range below {
				m.progress[p] = 0
			}
			m.mayDie()
			m.feed(others(entities, below))
		}
		m.mayDie()
		m.verified = true
	}
	m.feed(nil)
	return true
}

// The tables hold what they would if all events had been applied one after the other, whatever was passed over, refused, or cut
// off, and by whichever process: the greatest version of each row that the table does not refuse.
func TestP7_WhatIsPassedOverIsThereWhereItsNewerVersionIsRefused(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	saved, died := 0, 0
	for round := range 150 {
		m := newModelJob(t, random)
		for range 30 + random.IntN(250) {
			m.emit()
		}
		for !m.run(random.IntN(3) > 0) {
			died++
		}
		want := map[string]int64{}
		for _, log := range m.log {
			for i := range log {
				if key, ver, ok := m.read(&log[i]); ok && !refuses(key, ver) {
					want[key] = max(want[key], ver)
					saved++
				}
			}
		}
		saved -= m.applied
		if !maps.Equal(m.rows, want) {
			t.Fatalf("seed %d, round %d: the tables hold %d rows, want %d, or other versions:\n%v\n%v", seed, round, len(m.rows), len(want), m.rows, want)
		}
	}
	if saved <= 0 || died == 0 {
		t.Errorf("seed %d: %d events were passed over, %d processes died: nothing was tried", seed, saved, died)
	}
}

func TestWorthReading(t *testing.T) {
	for _, c := range []struct {
		events, left int64
		share        float64
		rows         int64
		want         bool
	}{
		{300_000, 300_000, 1, 100_000, true},
		{300_000, 300_000, 1, 300_000, false}, // inserts alone
		{300_000, 300_000, 1, 0, true},        // nobody knows
		{300_000, 300_000, 0.5, 150_000, false},
		{300_000, 300_000, 0.5, 30_000, true},
		{300_000, 300_000, 1, 210_000, false}, // an estimate of inserts alone that is a third too low
		{300_000, 10_000, 1, 100_000, false},  // it is nearly done
		{300_000, 300_000, 0, 0, false},
		{0, 0, 1, 0, false},
	} {
		if got := worthReading(c.events, c.left, c.share, c.rows); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

// What a batch's consumer keeps in it stays as it is: it is prepared again with what was refused.
func TestWithoutLeavesTheBatch(t *testing.T) {
	b := &event.Batch{Messages: make([]event.Message, 4), Excluded: map[int]bool{1: true}}
	for i := range b.Messages {
		b.Messages[i].Offset = int64(i)
	}
	less, n := without(b, func(m *event.Message) bool { return m.Offset < 3 })
	if n != 2 || !maps.Equal(less.Excluded, map[int]bool{0: true, 1: true, 2: true}) || !maps.Equal(b.Excluded, map[int]bool{1: true}) {
		t.Errorf("%d are passed over: %v, of %v", n, less.Excluded, b.Excluded)
	}
	if less, n := without(b, func(*event.Message) bool { return false }); less != b || n != 0 {
		t.Errorf("a batch of which nothing is passed over: %+v, %d", less, n)
	}
}

// A log that was cut below where it was read, or made anew, is found out; one that only lost its beginning to retention, or has
// grown, is not.
func TestCutBelow(t *testing.T) {
	at := event.Position{Next: 100, LeaderEpoch: 3, TopicID: event.TopicID{1}}
	whole := kafka.Log{TopicID: event.TopicID{1}, End: 120, Epoch: 3, EpochEnd: 120}
	for name, c := range map[string]struct {
		change func(l *kafka.Log)
		want   bool
	}{
		"as it was":                   {func(*kafka.Log) {}, false},
		"retention":                   {func(l *kafka.Log) { l.Start, l.Epoch, l.EpochEnd = 110, -1, -1 }, false},
		"the epoch ends where we are": {func(l *kafka.Log) { l.EpochEnd = 100 }, false},
		"cut":                         {func(l *kafka.Log) { l.End, l.EpochEnd = 90, 90 }, true},
		"a new leader":                {func(l *kafka.Log) { l.End = 90 }, false},
		"cut and filled again":        {func(l *kafka.Log) { l.EpochEnd = 90 }, true},
		"made anew":                   {func(l *kafka.Log) { l.TopicID = event.TopicID{2} }, true},
		"gone":                        {func(l *kafka.Log) { l.Gone = true }, true},
	} {
		log := whole
		if c.change(&log); cutBelow(at, log) != c.want {
			t.Errorf("%s: cut is %t", name, !c.want)
		}
	}
}
