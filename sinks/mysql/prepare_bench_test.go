package mysql

import (
	"testing"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/progress"
)

// benchBatch is a batch of new rows of the shape that PERFORMANCE figures are about: about 190 bytes, 8 columns.
func benchBatch(t testing.TB, s *Sink, count int) (*owned, *event.Batch) {
	t.Helper()
	part := event.Partition{Topic: "test.events", Number: 0}
	o := &owned{sink: s, part: part, holds: map[string]*hold{}}
	for _, sh := range s.shards {
		o.holds[sh.name] = &hold{shard: sh, row: progress.Row{Key: s.key(part)}}
	}
	table := s.tables[s.tableIndex["everything"]].Table
	b := &event.Batch{Ranges: []event.Range{{Partition: part, To: int64(count)}}}
	at := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	tenant := tenantOf(t, s, 0)
	for i := range count {
		values := make([]event.Value, len(table.Columns))
		for c := range table.Columns {
			values[c] = event.Value{Int: int64(i), Uint: uint64(i), Float: float64(i), Bytes: []byte("some text")}
			switch table.Columns[c].Type.Kind {
			case event.Datetime:
				values[c].Int = at.UnixMicro()
			case event.Decimal:
				values[c].Bytes = []byte("12.50")
			case event.JSON:
				values[c].Bytes = []byte(`{"a":1}`)
			case event.Bool:
				values[c].Int = 1
			}
		}
		values[table.Tenant].Bytes = []byte(tenant)
		body, err := table.AppendRow(nil, values, event.Upsert)
		if err != nil {
			t.Fatal(err)
		}
		e := event.Event{ID: event.NewID(), Table: table.Name, Tenant: tenant, Op: event.Upsert, Version: int64(i + 1), Time: at,
			LayoutEpoch: 1, EntityID: string(table.CanonicalText(nil, table.ID, values[table.ID])), Body: body}
		_, rec := e.AppendRecord(nil, event.Source("test"))
		b.Messages = append(b.Messages, event.Message{Record: rec, Partition: part, Offset: int64(i)})
	}
	return o, b
}

func tenantOf(t testing.TB, s *Sink, partition int32) string {
	for i := range 100_000 {
		tenant := "tenant" + string(appendInt(nil, int64(i)))
		if s.state.Load().layout.Route(tenant, "").Partition == partition {
			return tenant
		}
	}
	t.Fatal("no tenant")
	return ""
}

// Decoding a record and encoding its row allocate nothing per row once the buffers have grown.
func TestPrepareAllocatesPerBatchOnly(t *testing.T) {
	s := testSink(t)
	const count = 1000
	o, b := benchBatch(t, s, count)
	allocations := testing.AllocsPerRun(20, func() {
		p, err := o.Prepare(b)
		if err != nil {
			t.Fatal(err)
		}
		if n, _ := p.Size(); n != count {
			t.Fatalf("%d rows, rejected: %v", n, p.(*prepared).rejected)
		}
		o.giveBuffer(p.(*prepared))
	})
	if allocations > 30 {
		t.Errorf("%.0f allocations for %d rows", allocations, count)
	}
}

func BenchmarkPrepare(b *testing.B) {
	s := testSink(b)
	const count = 4000
	o, batch := benchBatch(b, s, count)
	b.ReportAllocs()
	for b.Loop() {
		p, err := o.Prepare(batch)
		if err != nil {
			b.Fatal(err)
		}
		o.giveBuffer(p.(*prepared))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*count), "ns/row")
}
