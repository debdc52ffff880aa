package consumers

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/kafka"
)

// History holds records that the topics do not hold any more. Its methods may be called from any goroutine.
type History interface {
	// Until says up to which offset it holds a partition of a topic without a hole, from an offset on: that offset itself
	// where it does not hold it.
	Until(ctx context.Context, p event.Partition, topic event.TopicID, from int64) (int64, error)
	// Read calls each for the records from an offset on, in order, some at a time; they are the callee's. It ends with each's
	// error, or says where they end.
	Read(ctx context.Context, p event.Partition, from int64, each func([]*kgo.Record) error) (next int64, err error)
}

// inHistory says that a position lies below the log's start, and that History holds everything in between: then the log
// alone need not continue what was applied.
func (l *loop) inHistory(ctx context.Context, at event.Position, log kafka.Log) (bool, error) {
	same := at.TopicID == (event.TopicID{}) || at.TopicID == log.TopicID
	if l.opts.History == nil || !same || at.Next >= log.Start {
		return false, nil
	}
	until, err := l.opts.History.Until(ctx, at.Partition, log.TopicID, at.Next)
	return err == nil && until >= log.Start, err
}

// past reads a stream's records from History, and ends before the stream is removed.
type past struct {
	end  context.CancelFunc
	done chan struct{}
}

// stop waits until nothing more is pushed.
func (p *past) stop() {
	if p != nil {
		p.end()
		<-p.done
	}
}

// addPast begins to read into s from History, and goes on with the log where that ends. Below need the records are of a
// stored batch, without which its unit applies nothing: they are read whatever the memory holds.
func (r *reader) addPast(s *stream, h History, need int64) {
	ctx, end := context.WithCancel(context.Background())
	s.past = &past{end: end, done: make(chan struct{})}
	r.mu.Lock()
	r.streams[s.part] = s
	r.mu.Unlock()
	go func() {
		defer close(s.past.done)
		next, err := h.Read(ctx, s.part, s.readTo(), func(records []*kgo.Record) error {
			for s.readTo() >= need && !r.hasRoom(s) {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-s.room:
				}
			}
			r.held.Add(s.push(&kgo.FetchPartition{Partition: s.part.Number, Records: records}, time.Now()))
			return nil
		})
		switch {
		case ctx.Err() != nil:
		case err != nil:
			s.fail(err)
		default:
			s.passTo(next)
			r.add(s)
		}
	}()
}

// hasRoom says whether a stream that is read from History may hold more. Half of its share leaves the memory open for what
// is fetched.
func (r *reader) hasRoom(s *stream) bool {
	r.mu.Lock()
	streams := len(r.streams)
	r.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held < r.budget/int64(2*max(1, streams))
}
