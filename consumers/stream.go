package consumers

import (
	"errors"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/kafka"
)

// recordOverhead is what a record takes in memory beside its bytes: the client's record, its place in the queue, and the
// message in a batch.
// headerOverhead is the same for a header that is not packed: its key is an allocation of its own.
const (
	recordOverhead = 320
	headerOverhead = 64
)

// stream is one partition between the reader, which fills it, and the unit that owns it, which empties it.
//
// Lock order: reader.mu before stream.mu. Nothing is called under stream.mu.
type stream struct {
	part    event.Partition
	topicID event.TopicID // that the position was verified against
	wake    chan<- struct{}
	past    *past         // reads it from History; nil: it is read from the log. Its unit's alone
	room    chan struct{} // signalled when bytes were released

	mu      sync.Mutex
	q       queue
	trouble error // from the reader: the unit must ask the leader how the log stands
	recheck bool  // the leader changed: the same question, though nothing is known to be wrong
	logged  bool  // the client reads it, not History
	closed  bool  // no unit reads it any more, or nothing that arrives may be used: pushes are dropped
	held    int64 // bytes in the queue and in batches that are not applied
	slow    bool  // for throttle
	applied int64 // next offset after what was applied
	cuts    []cut // out of the queue and not applied yet, in order
	stable  int64 // end of the log, as far as is known
	leader  int32 // the leader's epoch when it was last asked
}

// newStream begins at a position that the log continues.
func newStream(at event.Position, log kafka.Log, wake chan<- struct{}) *stream {
	return &stream{part: at.Partition, topicID: log.TopicID, wake: wake, room: make(chan struct{}, 1), q: newQueue(at), applied: at.Next,
		stable: log.Stable, leader: log.LeaderEpoch}
}

// errStartPassed is what a stream fails with when offsets were removed that it had not read.
var errStartPassed = errors.New("the log's start passed the offset that is to be read")

// signal wakes the unit; a pending signal is enough.
func signal(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// push adds what was fetched. It returns the bytes that it holds now in addition.
func (s *stream) push(p *kgo.FetchPartition, now time.Time) int64 {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return 0
	}
	if len(p.Records) > 0 && p.Records[0].Offset > s.q.end && p.LogStartOffset > s.q.end {
		// Between the question to the leader and the first fetch, or two fetches, the log's start passed us by.
		s.trouble, s.closed = errStartPassed, true
		s.mu.Unlock()
		signal(s.wake)
		return 0
	}
	s.stable = max(s.stable, p.LastStableOffset)
	before, arrived := s.q.bytes, now.UnixNano()
	s.q.items = slices.Grow(s.q.items, len(p.Records))
	for _, r := range p.Records {
		if r.Offset < s.q.end {
			continue // the client starts at the batch that contains the offset, and filters; this is a second look
		}
		if r.Attrs.IsControl() {
			s.q.pass(r.Offset, r.LeaderEpoch, arrived)
			continue
		}
		bytes := recordOverhead + len(r.Key) + len(r.Value) + headerOverhead*len(r.Headers)
		for i := range r.Headers {
			bytes += len(r.Headers[i].Value)
		}
		s.q.push(item{rec: r, bytes: bytes, arrived: arrived})
	}
	added := s.q.bytes - before
	s.held += added
	s.mu.Unlock()
	signal(s.wake)
	return added
}

// headers reads one slice as the other: the two structs are the same, which the conversion below proves to the
// compiler. A copy would be half a kilobyte for each event.
func headers(list []kgo.RecordHeader) []event.Header {
	_ = event.Header(kgo.RecordHeader{})
	return unsafe.Slice((*event.Header)(unsafe.Pointer(unsafe.SliceData(list))), len(list))
}

// fail tells the unit to ask the leader. What arrives from now on is dropped: it may be of another log.
func (s *stream) fail(err error) {
	s.mu.Lock()
	if s.trouble == nil && !s.closed {
		s.trouble, s.closed = err, true
	}
	s.mu.Unlock()
	signal(s.wake)
}

// ask makes the unit ask the leader at the next opportunity; what is read stays.
func (s *stream) ask() {
	s.mu.Lock()
	s.recheck = true
	s.mu.Unlock()
	signal(s.wake)
}

// release says that bytes are not held any more.
func (s *stream) release(bytes int64) {
	s.mu.Lock()
	s.held -= bytes
	s.mu.Unlock()
	signal(s.room)
}

// readTo is one past the last offset that was read.
func (s *stream) readTo() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.q.end
}

// passTo says that what lies below an offset was read, and holds nothing more.
func (s *stream) passTo(next int64) {
	s.mu.Lock()
	if !s.closed && s.q.end < next {
		s.q.pass(next-1, s.q.endEpoch, time.Now().UnixNano())
	}
	s.mu.Unlock()
	signal(s.wake)
}

// trim drops the end of the queue until the stream holds at most so many bytes; it returns from where to read again,
// and the bytes dropped. What is in batches stays.
func (s *stream) trim(bytes int64) (next, dropped int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, 0
	}
	dropped = s.q.trim(s.held - bytes)
	s.held -= dropped
	return s.q.end, dropped
}

// close drops what is queued and everything that arrives later; it returns the bytes that the queue held.
func (s *stream) close() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	bytes := s.q.bytes
	s.q.items, s.q.bytes, s.q.ready = nil, 0, 0
	s.held -= bytes
	return bytes
}

// cut is what one batch, or one piece of it, took of the queue.
type cut struct {
	to     int64     // the next offset
	oldest time.Time // when its first message was written; zero without one
}

// passed notes that everything below an offset is applied.
func (s *stream) passed(next int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applied = next
	s.cuts = slices.DeleteFunc(s.cuts, func(c cut) bool { return c.to <= next })
}

// lag is how many offsets, and how much time, the sink is behind.
func (s *stream) lag(now time.Time) (events int64, behind time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lagFrom(s.applied, now)
}

// lagFrom is the lag of one that stands at an offset at or past what was applied. The lock is held.
func (s *stream) lagFrom(next int64, now time.Time) (events int64, behind time.Duration) {
	events = max(0, s.stable-next, s.q.end-next)
	oldest := s.q.oldest()
	for _, c := range s.cuts {
		if c.to > next && !c.oldest.IsZero() {
			oldest = c.oldest
			break
		}
	}
	if events > 0 && !oldest.IsZero() {
		behind = max(0, now.Sub(oldest))
	}
	return events, behind
}
