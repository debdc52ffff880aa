package mysql

import (
	"context"
	"sync/atomic"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
)

// counts are what this process did to a shard since it began.
type counts struct{ rows, batches, bytes, retries, retired atomic.Uint64 }

func (c *counts) applied(entries []entry) {
	bytes := 0
	for i := range entries {
		bytes += int(entries[i].tuple.to - entries[i].tuple.from)
	}
	c.rows.Add(uint64(len(entries)))
	c.batches.Add(1)
	c.bytes.Add(uint64(bytes))
}

// retried counts a try that failed for the shard's sake and is made again.
func (sh *shard) retried(ctx context.Context, err error) {
	if err != nil && err != errStopped && ctx.Err() == nil && mysqldb.Classify(err) == fault.Transient {
		sh.counts.retries.Add(1)
	}
}

// ShardCounts are those of each shard of the layout, in its order.
func (s *Sink) ShardCounts() []event.ShardCounts {
	var list []event.ShardCounts
	for _, sh := range s.state.Load().shards {
		c := &sh.counts
		list = append(list, event.ShardCounts{Shard: sh.name, Rows: c.rows.Load(), Batches: c.batches.Load(), Bytes: c.bytes.Load(),
			Retries: c.retries.Load(), Retired: c.retired.Load()})
	}
	return list
}

// ShardPositions say where each shard that the partition meets stands in it, as its owner in this process last saw it.
func (s *Sink) ShardPositions(p event.Partition) []event.ShardPosition {
	st := s.state.Load()
	s.ownsMu.Lock()
	o := s.owns[p]
	s.ownsMu.Unlock()
	var list []event.ShardPosition
	for _, i := range st.layout.PartitionShards(p.Number) {
		at := event.ShardPosition{Shard: st.shards[i].name, Next: -1}
		if o != nil {
			o.mu.Lock()
			if h := o.holds[at.Shard]; h != nil {
				at.Next = h.row.Next
			}
			o.mu.Unlock()
		}
		list = append(list, at)
	}
	return list
}
