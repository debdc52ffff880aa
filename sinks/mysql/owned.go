package mysql

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/intake"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/partitioner"
)

// owned is one partition that this process has taken over, in every shard that it meets.
type owned struct {
	sink *Sink
	part event.Partition

	mu    sync.Mutex // guards holds, the fields of each hold, and free; held for no I/O
	holds map[string]*hold
	free  []*rows      // buffers to use again: one being filled, one being sent
	event intake.Event // belongs to Prepare

	lost    chan struct{} // closed by Look
	losable sync.Once
}

// hold is the partition's progress row in one shard.
type hold struct {
	shard   *shard
	row     progress.Row      // as this owner last saw or wrote it
	retired partitioner.Month // months before it are, as of the take-over
	outage  intake.Outage
}

// Positions says where the partition stands: at the least of its shards. What the log is called is known from any of
// them: a shard that is new knows it from the first batch on.
func (o *owned) Positions() []event.Position {
	o.mu.Lock()
	defer o.mu.Unlock()
	var pos event.Position
	var topic event.TopicID
	first := true
	for _, h := range o.holds {
		r := &h.row
		if first || r.Next < pos.Next || r.Next == pos.Next && r.LeaderEpoch > pos.LeaderEpoch {
			pos, first = r.Position(), false
		}
		if r.TopicID != (event.TopicID{}) {
			topic = r.TopicID
		}
	}
	if pos.TopicID == (event.TopicID{}) {
		pos.TopicID = topic
	}
	return []event.Position{pos}
}

// Pending is empty: rows and progress commit together, there is nothing between them to confirm.
func (o *owned) Pending() []event.Range { return nil }

// Lost is closed by Look. There is no lease that could run out: the epoch in the row is the fence, and a batch that comes
// before the next look meets it too.
func (o *owned) Lost() <-chan struct{} { return o.lost }

// Look reads the progress rows in each shard that this process has taken partitions over in, once for all of them, and
// ends the ownership of partitions whose rows are not as it left them: a swap, retired months, a layout, an accepted gap
// or another process has fenced it, or the shard was restored. A partition without events would not notice.
func (s *Sink) Look(ctx context.Context) error {
	type held struct {
		owned *owned
		row   progress.Row
	}
	holds := map[*shard][]held{}
	s.ownsMu.Lock()
	for _, o := range s.owns {
		o.mu.Lock()
		for _, h := range o.holds {
			holds[h.shard] = append(holds[h.shard], held{o, h.row})
		}
		o.mu.Unlock()
	}
	s.ownsMu.Unlock()
	return together(slices.Collect(maps.Keys(holds)), func(sh *shard) error {
		rows, err := progress.List(ctx, sh.control, s.name)
		if err != nil {
			return sh.wrap(err)
		}
		now := map[event.Partition]progress.Row{}
		for _, r := range rows {
			now[r.Partition] = r
		}
		for _, h := range holds[sh] {
			if r, there := now[h.owned.part]; there && !r.Left(h.row) {
				h.owned.losable.Do(func() { close(h.owned.lost) })
			}
		}
		return nil
	})
}

// Release takes the owner's name out of the progress rows. A successor need not wait in any case.
func (o *owned) Release(ctx context.Context) error {
	o.mu.Lock()
	holds := make([]hold, 0, len(o.holds))
	for _, h := range o.holds {
		holds = append(holds, *h)
	}
	o.mu.Unlock()
	s := o.sink
	s.ownsMu.Lock()
	if s.owns[o.part] == o {
		delete(s.owns, o.part)
	}
	s.ownsMu.Unlock()
	var errs []error
	for _, h := range holds {
		errs = append(errs, h.shard.wrap(progress.Release(ctx, h.shard.control, h.row.Key, h.row.Owner, h.row.OwnerEpoch)))
	}
	return errors.Join(errs...)
}

// floor is what a shard does not take of a batch.
type floor struct {
	next  int64             // below this offset it has all events already
	month partitioner.Month // before it, months are retired
}

// floors are those of all shards, by the layout's numbers.
func (o *owned) floors(l *partitioner.Layout) []floor {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := make([]floor, len(l.Shards()))
	for i := range list {
		if h := o.holds[l.ShardName(int32(i))]; h != nil {
			list[i] = floor{h.row.Next, h.retired}
		}
	}
	return list
}

// shardsOf are the shards in which a batch makes progress: those the partition meets, those it holds from an earlier
// layout, and those that the batch has rows for.
func (o *owned) shardsOf(l *partitioner.Layout, entries []entry) []int32 {
	o.mu.Lock()
	defer o.mu.Unlock()
	in := make([]bool, len(l.Shards()))
	for _, i := range o.sink.met(l, o.part.Number) {
		in[i] = true
	}
	for _, e := range entries {
		in[e.place.shard()] = true
	}
	var list []int32
	for i, met := range in {
		if met || o.holds[l.ShardName(int32(i))] != nil {
			list = append(list, int32(i))
		}
	}
	return list
}

// takeBuffer gives a buffer to fill; giveBuffer takes it back once nobody reads it.
func (o *owned) takeBuffer() *rows {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.free); n > 0 {
		b := o.free[n-1]
		o.free = o.free[:n-1]
		b.reset()
		return b
	}
	return &rows{}
}

// buffersMax are kept per partition: more are never in use at once.
const buffersMax = 2

func (o *owned) giveBuffer(p *prepared) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p.buffer != nil && len(o.free) < buffersMax {
		o.free = append(o.free, p.buffer)
	}
	p.buffer = nil
}
