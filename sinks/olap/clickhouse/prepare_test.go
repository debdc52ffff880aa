package clickhouse

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/olap/intent"
)

var november = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

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

func batchOf(messages []event.Message) *event.Batch {
	return &event.Batch{Messages: messages, Ranges: []event.Range{{Partition: messages[0].Partition, From: 0, To: int64(len(messages))}}}
}

// rowsOf counts rows by table and month.
func rowsOf(p *prepared) map[string]int {
	rows := map[string]int{}
	for _, b := range p.set.blocks {
		rows[b.table.Name+"_"+b.month.String()] += b.rows()
	}
	return rows
}

// fakeOwned prepares without a state database.
func fakeOwned(s *Sink) *owned { return &owned{sink: s, group: noPending{}} }

// noPending is a group that has just been taken over.
type noPending struct{ group }

func (noPending) Pending() *intent.Intent { return nil }

// One block per table and month; of an entity that comes several times only the newest, also when it came first.
func TestPrepareReduces(t *testing.T) {
	s := testSink(t)
	m := &maker{t: t, sink: s}
	october := november.AddDate(0, -1, 0)
	messages := []event.Message{
		m.flight(1, 5, november, "JFK"), m.flight(1, 4, november, "LAX"), m.flight(2, 1, november, "JFK"),
		m.flight(2, 2, november, "SFO"), m.flight(2, 3, november, "EWR"), m.flight(3, 1, october, "JFK"),
		m.message("airports", event.Upsert, 1, event.Value{Bytes: []byte("JFK")}, event.Value{Null: true}),
	}
	p, err := fakeOwned(s).Prepare(batchOf(messages))
	if err != nil {
		t.Fatal(err)
	}
	// The one that came first though newest is sent with the older one: the engine keeps the greatest version.
	want := map[string]int{"flights_202611": 3, "flights_202610": 1, "airports_none": 1}
	if got := rowsOf(p.(*prepared)); !maps.Equal(got, want) {
		t.Errorf("blocks %v, wanted %v", got, want)
	}
	rows, bytes := p.Size()
	if rows != 5 || bytes == 0 {
		t.Errorf("%d rows, %d bytes", rows, bytes)
	}
	versions := map[uint64]bool{}
	for _, b := range p.(*prepared).set.blocks {
		if b.table.Name == "flights" && b.month == 202611 {
			data := b.columns[len(b.columns)-2].data
			for ; len(data) > 0; data = data[8:] {
				versions[binary.LittleEndian.Uint64(data)] = true
			}
		}
	}
	if !maps.Equal(versions, map[uint64]bool{10: true, 8: true, 6: true}) {
		t.Errorf("_ver %v", versions)
	}
}

// Sets go round: what is filled next does not change what is being sent, and nothing of an earlier batch is left.
func TestPrepareUsesSetsInTurn(t *testing.T) {
	s := testSink(t)
	m := &maker{t: t, sink: s}
	o := fakeOwned(s)
	var sent *prepared
	for round := range 6 {
		var messages []event.Message
		for i := range 10 + round {
			messages = append(messages, m.flight(uint64(i), int64(round+1), november.AddDate(0, -i%3, 0), fmt.Sprint(round)))
		}
		p, err := o.Prepare(batchOf(messages))
		if err != nil {
			t.Fatal(err)
		}
		if rows, _ := p.Size(); rows != 10+round {
			t.Errorf("round %d: %d rows", round, rows)
		}
		if sent != nil {
			for _, b := range sent.set.blocks {
				for row := range b.rows() {
					if got := b.columns[3].data[2*row+1]; got != byte('0'+round-1) {
						t.Fatalf("round %d: a block that is being sent holds %c", round, got)
					}
				}
			}
			o.giveSet(sent)
		}
		sent = p.(*prepared)
	}
	if len(o.free) != 1 || len(o.free[0].free) == 0 {
		t.Errorf("%d sets are free", len(o.free))
	}
}

// A piece that is refused leaves nothing behind, and takes nothing of the pieces after it: not the rows of a month that it
// was the first to hold.
func TestP7_RefusedPieceTakesNothingWithIt(t *testing.T) {
	s := testSink(t)
	m := &maker{t: t, sink: s}
	o := fakeOwned(s)
	october := november.AddDate(0, -1, 0)
	bad := m.flight(9, 1, november, "JFK")
	bad.Value = []byte("{")
	p, ok, err := o.Gather(nil, batchOf([]event.Message{m.flight(1, 1, november, "JFK")}))
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	for range 2 { // a piece is read from its end
		if _, ok, err := o.Gather(p, batchOf([]event.Message{bad, m.flight(2, 1, october, "JFK"), m.flight(3, 1, november, "JFK")})); err != nil || ok {
			t.Fatal(ok, err)
		}
		if got := rowsOf(p.(*prepared)); !maps.Equal(got, map[string]int{"flights_202611": 1}) {
			t.Errorf("a refused piece leaves %v", got)
		}
	}
	if p, ok, err = o.Gather(p, batchOf([]event.Message{m.flight(4, 1, november, "JFK"), m.flight(2, 1, october, "JFK")})); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if got := rowsOf(p.(*prepared)); !maps.Equal(got, map[string]int{"flights_202611": 2, "flights_202610": 1}) {
		t.Errorf("after a refused piece the blocks hold %v", got)
	}
	if rows, _ := p.Size(); rows != 3 {
		t.Errorf("%d rows", rows)
	}
}

// P10: what blocks keep for the next batch is bounded by what a batch may hold.
func TestP10_SetsLetGoOfWhatTheyDoNotNeed(t *testing.T) {
	s := testSink(t)
	table := s.tables[0]
	values := []event.Value{{Bytes: []byte("UA")}, {}, {}, {Bytes: make([]byte, 3000)}, {}, {}, {}}
	set := &set{}
	const limit = 1 << 20
	for round := range 40 { // each round another month is large
		for i := range 12 {
			b := set.at(table, partitioner.Month(202601+i))
			n := 1
			if i == round%12 {
				n = limit / 3000 / 2
			}
			for range n {
				b.append(values, 2)
			}
		}
		set.reset(limit)
		total := 0
		for _, free := range set.free {
			for _, b := range free {
				_, kept := b.bytes()
				total += kept
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
	return batchOf(messages)
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

// asFetched lays messages out one after the other, as the consumers have them of a fetch.
func asFetched(t testing.TB, messages []event.Message) {
	t.Helper()
	var log []byte
	add := func(b []byte) []byte {
		log = append(log, b...)
		return log[len(log)-len(b):]
	}
	for range 2 { // the second time it does not move any more
		log = log[:0]
		for i := range messages {
			m := &messages[i]
			packed, ok := m.Packed, true
			if packed == nil {
				headers := binary.AppendVarint(nil, int64(len(m.Headers)))
				for _, h := range m.Headers {
					headers = append(binary.AppendVarint(headers, int64(len(h.Key))), h.Key...)
					headers = append(binary.AppendVarint(headers, int64(len(h.Value))), h.Value...)
				}
				if packed, ok = event.AppendPacked(nil, m.Key, headers); !ok {
					t.Fatalf("headers %q are not packed", m.Headers)
				}
			}
			m.Key, m.Packed, m.Value, m.Headers = add(m.Key), add(packed), add(m.Value), nil
		}
	}
}

// BenchmarkGather is a batch in pieces whose records lie in no cache any more.
func BenchmarkGather(b *testing.B) {
	s := testSink(b)
	o := fakeOwned(s)
	const rows, piece = 100_000, 10_000
	messages := benchBatch(b, s, rows).Messages
	asFetched(b, messages)
	b.ReportAllocs()
	for b.Loop() {
		var p event.Prepared
		for at := 0; at < rows; at += piece {
			var ok bool
			var err error
			if p, ok, err = o.Gather(p, batchOf(messages[at:at+piece])); !ok || err != nil {
				b.Fatal(ok, err)
			}
		}
		o.giveSet(p.(*prepared))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rows, "ns/row")
}

// Pieces make the blocks that the whole makes, and a piece that is not taken leaves nothing behind, in whatever month,
// table and column it was.
func TestGatherTakesAPieceWholeOrNotAtAll(t *testing.T) {
	s := testSink(t)
	m := &maker{t: t, sink: s}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	o := fakeOwned(s)
	for range 50 {
		var p event.Prepared
		var taken []event.Message
		for range 1 + random.IntN(6) {
			var piece []event.Message
			for range random.IntN(20) {
				piece = append(piece, m.flight(uint64(m.next), 1, november.AddDate(0, -random.IntN(5), 0), fmt.Sprint(random.IntN(1000))))
				if random.IntN(4) == 0 {
					piece = append(piece, m.message("airports", event.Upsert, 1, event.Value{Bytes: fmt.Appendf(nil, "%03d", m.next%1000)}, event.Value{Null: random.IntN(2) == 0}))
				}
			}
			reject := random.IntN(3) == 0 && len(piece) > 0
			if reject {
				bad := &piece[random.IntN(len(piece))]
				if random.IntN(2) == 0 {
					bad.Value = []byte("{}")
				} else {
					bad.Headers = slices.Clone(bad.Headers)
					for i := range bad.Headers {
						if bad.Headers[i].Key == "ce_layoutepoch" {
							bad.Headers[i].Value = []byte("2")
						}
					}
				}
			}
			whole := []event.Range{{From: 0, To: m.next}}
			next, ok, err := o.Gather(p, &event.Batch{Ranges: whole, Messages: piece})
			if err != nil || ok == reject {
				t.Fatalf("taken: %v, %v; to be rejected: %v", ok, err, reject)
			}
			if ok {
				p, taken = next, append(taken, piece...)
				if !reflect.DeepEqual(p.(*prepared).ranges, whole) {
					t.Fatalf("ranges %v, wanted %v", p.(*prepared).ranges, whole)
				}
			}
		}
		if p == nil || len(taken) == 0 {
			continue
		}
		whole, err := fakeOwned(s).Prepare(batchOf(taken))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := contentOf(p.(*prepared)), contentOf(whole.(*prepared)); !reflect.DeepEqual(got, want) {
			t.Fatalf("pieces hold %v, the whole %v", got, want)
		}
		gotRows, gotBytes := p.Size()
		if rows, bytes := whole.Size(); gotRows != rows || gotBytes != bytes {
			t.Fatalf("pieces are %d rows of %d bytes, the whole %d of %d", gotRows, gotBytes, rows, bytes)
		}
		o.giveSet(p.(*prepared))
	}
}

// contentOf is the number of rows of each table and month, and of each column how often it has each byte: rows come in
// another order from pieces.
func contentOf(p *prepared) map[string][256]int {
	content := map[string][256]int{}
	for _, b := range p.set.blocks {
		for i := range b.columns {
			c := &b.columns[i]
			key := fmt.Sprint(b.table.Name, b.month, c.name, c.rows, len(c.nulls))
			counts := content[key]
			for _, x := range append(slices.Clone(c.nulls), c.data...) {
				counts[x]++
			}
			content[key] = counts
		}
	}
	return content
}

// An event of a layout that the sink does not know yet is no dead letter, and neither are those beside it: the batch waits,
// and a piece with it is set aside.
func TestP7_EventOfANewerLayoutIsNoDeadLetter(t *testing.T) {
	s := testSink(t)
	m := &maker{t: t, sink: s}
	newer, bad := m.flight(1, 1, november, "JFK"), m.flight(2, 1, november, "JFK")
	bad.Value = []byte("{")
	newer.Headers = slices.Clone(newer.Headers)
	for i := range newer.Headers {
		if newer.Headers[i].Key == "ce_layoutepoch" {
			newer.Headers[i].Value = []byte("2")
		}
	}
	p, err := fakeOwned(s).Prepare(batchOf([]event.Message{newer, bad}))
	if at, ok := errors.AsType[*event.NewerLayout](err); !ok || at.Epoch != 2 || p != nil {
		t.Errorf("prepared %v, %v", p, err)
	}
	if p, ok, err := fakeOwned(s).Gather(nil, batchOf([]event.Message{newer})); ok || err != nil || p != nil {
		t.Errorf("gathered %v: %v, %v", p, ok, err)
	}
}
