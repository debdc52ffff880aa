package doris

import (
	"bytes"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/sinks/olap/intent"
)

// maker makes records of the sink's tables.
type maker struct {
	t    testing.TB
	sink *Sink
	next int64
}

func (m *maker) message(table string, op event.Op, version int64, values ...event.Value) event.Message {
	m.t.Helper()
	var t *event.Table
	for _, have := range m.sink.tables {
		if have.Name == table {
			t = have.Table
		}
	}
	body, err := t.AppendRow(nil, values, op)
	if err != nil {
		m.t.Fatal(err)
	}
	e := event.Event{ID: event.NewID(), Table: table, Op: op, Version: version, Time: november, LayoutEpoch: 1,
		EntityID: string(t.CanonicalText(nil, t.ID, values[t.ID])), Body: body, Outbox: event.OutboxPosition{Generation: 1, ID: 1}}
	part := m.sink.layout.Load().Broadcast()
	if !t.Broadcast() {
		e.Tenant = string(t.CanonicalText(nil, t.Tenant, values[t.Tenant]))
		part = m.sink.layout.Load().Route(e.Tenant, "").Partition
	}
	_, rec := e.AppendRecord(nil, event.Source("flights"))
	m.next++
	return event.Message{Record: rec, Partition: event.Partition{Topic: "flights.events", Number: part}, Offset: m.next - 1, LeaderEpoch: 1}
}

func (m *maker) flight(id uint64, version int64, at time.Time, origin string) event.Message {
	m.t.Helper()
	return m.message("flights", event.Upsert, version, event.Value{Bytes: []byte("UA")}, event.Value{Uint: id}, event.Value{Int: at.UnixMicro()},
		event.Value{Bytes: []byte(origin)}, event.Value{Int: 1}, event.Value{Null: true}, event.Value{Bytes: []byte("12.50")})
}

func batchOf(messages ...event.Message) *event.Batch {
	return &event.Batch{Messages: messages, Ranges: []event.Range{{Partition: messages[0].Partition, From: 0, To: messages[len(messages)-1].Offset + 1}}}
}

// rowsOf counts rows by table.
func rowsOf(p *prepared) map[string]int {
	rows := map[string]int{}
	for i := range p.set {
		if n := p.set[i].rows(); n > 0 {
			rows[p.set[i].table.Name] = n
		}
	}
	return rows
}

// fakeOwned prepares without a state database.
func fakeOwned(s *Sink) *owned { return &owned{sink: s, group: noPending{}} }

// noPending is a group that has just been taken over.
type noPending struct{ group }

func (noPending) Pending() *intent.Intent { return nil }

// One block per table, its months together; of an entity that comes several times only the newest, also when it came
// first; each row knows its message.
func TestPrepareReduces(t *testing.T) {
	s := testSink(t)
	m := &maker{t: t, sink: s}
	october := november.AddDate(0, -1, 0)
	messages := []event.Message{
		m.flight(1, 5, november, "JFK"), m.flight(1, 4, november, "LAX"), m.flight(2, 1, november, "JFK"),
		m.flight(2, 2, november, "SFO"), m.flight(2, 3, november, "EWR"), m.flight(3, 1, october, "JFK"),
		m.message("airports", event.Upsert, 1, event.Value{Bytes: []byte("JFK")}, event.Value{Null: true}),
	}
	prep, err := fakeOwned(s).Prepare(batchOf(messages...))
	if err != nil {
		t.Fatal(err)
	}
	p := prep.(*prepared)
	// The one that came first though newest is sent with the older one: the engine keeps the greatest version.
	if got, want := rowsOf(p), map[string]int{"flights": 4, "airports": 1}; !maps.Equal(got, want) {
		t.Errorf("blocks %v, wanted %v", got, want)
	}
	if rows, size := p.Size(); rows != 5 || size == 0 {
		t.Errorf("%d rows, %d bytes", rows, size)
	}
	b := &p.set[0]
	for i, want := range []struct {
		message int32
		holds   string
	}{{5, `"_month":"2026-10-01","_ver":2,`}, {4, `"origin":"EWR"`}, {1, `"origin":"LAX"`}, {0, `"_ver":10,"_deleted":0}`}} {
		if b.messages[i] != want.message || !bytes.Contains(b.line(i), []byte(want.holds)) {
			t.Errorf("row %d is of message %d: %s", i, b.messages[i], b.line(i))
		}
	}
	if got := string(b.lines(1, 3)); got != string(b.line(1))+"\n"+string(b.line(2))+"\n" {
		t.Errorf("rows 1 and 2 are %s", got)
	}
}

// Sets go round: what is filled next does not change what is being sent, and nothing of an earlier batch is left.
func TestPrepareUsesSetsInTurn(t *testing.T) {
	s := testSink(t)
	m := &maker{t: t, sink: s}
	o := fakeOwned(s)
	var before *prepared
	for round := range 6 {
		var messages []event.Message
		for i := range 10 + round {
			messages = append(messages, m.flight(uint64(i), int64(round+1), november.AddDate(0, -i%3, 0), fmt.Sprint(round)))
		}
		p, err := o.Prepare(batchOf(messages...))
		if err != nil {
			t.Fatal(err)
		}
		if rows, _ := p.Size(); rows != 10+round {
			t.Errorf("round %d: %d rows", round, rows)
		}
		if before != nil {
			for i := range before.set[0].rows() {
				if want := fmt.Sprintf(`"origin":"%d"`, round-1); !bytes.Contains(before.set[0].line(i), []byte(want)) {
					t.Fatalf("round %d: a block that is being sent holds %s", round, before.set[0].line(i))
				}
			}
			o.giveSet(before)
		}
		before = p.(*prepared)
	}
	if len(o.free) != 1 {
		t.Errorf("%d sets are free", len(o.free))
	}
}

// P10: what blocks keep for the next batch is bounded by what a batch may hold.
func TestP10_DorisSetsLetGoOfWhatTheyDoNotNeed(t *testing.T) {
	s := testSink(t)
	o := fakeOwned(s)
	const limit = 1 << 20
	set := o.takeSet()
	for round := range 40 { // each round another table is large
		for i := range set {
			n := 1
			if i == round%len(set) {
				n = limit / 200
			}
			for range n {
				set[i].data = append(set[i].data, make([]byte, 150)...)
				set[i].ends, set[i].messages = append(set[i].ends, len(set[i].data)), append(set[i].messages, 0)
			}
		}
		set.reset(limit)
		total := int64(0)
		for i := range set {
			total += set[i].kept()
			if set[i].table != s.tables[i] || set[i].rows() != 0 {
				t.Fatalf("block %d is not empty, or another table's", i)
			}
		}
		if total > limit {
			t.Fatalf("round %d: %d bytes are kept", round, total)
		}
	}
}

func benchBatch(t testing.TB, s *Sink, rows int) *event.Batch {
	m := &maker{t: t, sink: s}
	var messages []event.Message
	for i := range rows {
		messages = append(messages, m.flight(uint64(i), 1, november, "JFK"))
	}
	return batchOf(messages...)
}

// No allocation per row once warm.
func TestPrepareAllocatesNothingPerRow(t *testing.T) {
	s := testSink(t)
	o := fakeOwned(s)
	b := benchBatch(t, s, 2000)
	run := func() {
		p, err := o.Prepare(b)
		if err != nil {
			t.Fatal(err)
		}
		o.giveSet(p.(*prepared))
	}
	run()
	if allocs := testing.AllocsPerRun(10, run); allocs > 10 {
		t.Errorf("%.0f allocations for a batch of 2000 rows", allocs)
	}
}

func BenchmarkPrepare(b *testing.B) {
	s := testSink(b)
	o := fakeOwned(s)
	batch := benchBatch(b, s, 20_000)
	b.ReportAllocs()
	for b.Loop() {
		p, err := o.Prepare(batch)
		if err != nil {
			b.Fatal(err)
		}
		o.giveSet(p.(*prepared))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/20_000, "ns/row")
}
