package mysql

import (
	"context"
	"sync"

	"github.com/slotline/slotline/internal/progress"
)

// ShardProgress is what one shard says of this sink's partitions.
type ShardProgress struct {
	Shard string
	Rows  []progress.Row
	Err   error // the shard cannot be asked; the others can
}

// Progress asks every shard at once, for status. It changes nothing.
func (s *Sink) Progress(ctx context.Context) []ShardProgress {
	st := s.state.Load()
	list := make([]ShardProgress, len(st.shards))
	var wg sync.WaitGroup
	for i, sh := range st.shards {
		wg.Go(func() {
			list[i].Shard = sh.name
			if sh.control == nil {
				_, list[i].Err = sh.open(ctx) // says that the file does not name it
				return
			}
			rows, err := progress.List(ctx, sh.control, s.name)
			list[i].Rows, list[i].Err = rows, sh.wrap(err)
		})
	}
	wg.Wait()
	return list
}

// AcceptGap moves a partition from g.From to g.To in every shard that it meets, and records who and why in each; a
// shard that is past g.To already stays, and so does, when g.To lies before g.From, one that is before it. It is the
// one way past offsets that are lost for good. The sink's name in g is filled in.
func (s *Sink) AcceptGap(ctx context.Context, g progress.Gap) error {
	st := s.state.Load()
	g.Sink = s.name
	for _, i := range st.layout.PartitionShards(g.Number) {
		sh := st.shards[i]
		if _, err := sh.open(ctx); err != nil {
			return err
		}
		row, err := progress.Read(ctx, sh.control, g.Key)
		if err != nil {
			return sh.wrap(err)
		}
		mine := g
		mine.From = row.Next
		if forward := g.To >= g.From; forward && row.Next >= g.To && row.TopicID == g.TopicID || !forward && row.Next <= g.To {
			continue
		}
		if err := progress.AcceptGap(ctx, sh.control, mine); err != nil {
			return sh.wrap(err)
		}
	}
	return nil
}
