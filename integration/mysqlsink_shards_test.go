package integration

import (
	"bytes"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/integration/harness"
)

// A batch that meets two shards counts in each for what it did there, and a try that one shard did not take counts there
// alone.
func TestMySQLSinkCountsShardsApart(t *testing.T) {
	t.Parallel()
	server := harness.MySQL(t)
	var armed atomic.Bool
	w := newWire(t, server.Addr, func(sent []byte) bool {
		return bytes.Contains(sent, []byte("START TRANSACTION")) && armed.CompareAndSwap(true, false)
	})
	l := newShardLine(t, server, shardLineTables, w.addr())
	s := l.sink("a")
	zero, three := l.takeOver(s, 0), l.takeOver(s, 3)
	at := func(n int32) []event.ShardPosition { return s.ShardPositions(l.part(n)) }
	a := l.tenantIn(0, "s1")
	l.applyBatch(zero, l.batch(0,
		l.message(0, "places", event.Upsert, 1, []event.Value{text("LAX"), text("Los Angeles")}),
		l.message(0, "items", event.Upsert, 1, item(a, 1, "x")),
		l.message(0, "items", event.Upsert, 2, item(a, 1, "y"))))
	if got := at(0); !slices.Equal(got, []event.ShardPosition{{Shard: "s1", Next: 3}, {Shard: "s2", Next: 3}}) {
		t.Errorf("partition 0 stands at %+v", got)
	}
	before := s.ShardCounts()
	p, err := three.Prepare(l.batch(0, l.message(3, "items", event.Upsert, 1, item(l.tenantIn(3, "s2"), 1, "x"))))
	if err != nil {
		t.Fatal(err)
	}
	armed.Store(true)
	if _, err := p.Apply(t.Context()); !fault.Is(err, fault.Transient) {
		t.Fatalf("%v; wanted an outage", err)
	}
	if got := at(3); !slices.Equal(got, []event.ShardPosition{{Shard: "s2", Next: 0}}) {
		t.Errorf("partition 3 stands at %+v", got)
	}
	if _, err := p.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := s.ShardCounts()
	// The winner of two versions is one row; a row of all shards is one in each.
	if b := before; b[0].Shard != "s1" || b[0].Rows != 2 || b[1].Rows != 1 || b[0].Batches != 1 || b[1].Batches != 1 ||
		b[0].Bytes <= b[1].Bytes || b[1].Bytes == 0 || b[0].Retries+b[1].Retries != 0 {
		t.Errorf("after a batch of both shards: %+v", b)
	}
	if after[0] != before[0] || after[1].Rows != 2 || after[1].Batches != 2 || after[1].Retries != 1 {
		t.Errorf("after a batch of s2 that was tried twice: %+v", after)
	}
	if err := three.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := at(3); got[0].Next != -1 {
		t.Errorf("released: %+v", got)
	}
}
