package consumers

import (
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/event"
)

// Limits bound one batch. All are positive.
type Limits struct {
	Rows  int           // messages
	Bytes int64         // of their keys, values and headers, as they lie in memory
	Age   time.Duration // a batch is cut when its oldest message has waited this long, full or not
}

// markerAge is how long progress may lag behind offsets that hold nothing to apply (transaction markers): they usually
// come right behind events, and a transaction of their own would double the load of a quiet sink.
const markerAge = 500 * time.Millisecond

// item is a message in a queue: as the client has it, since a copy of each would cost more than all else here.
type item struct {
	rec     *kgo.Record
	bytes   int
	arrived int64 // when it was polled, Unix nanoseconds
}

// queue is what was read of one partition and is not in a batch yet. It is a plain value; its owner has the lock.
type queue struct {
	part  event.Partition
	items []item
	bytes int64 // of items
	ready int   // how many items a batch may take: those before the first of another leader epoch
	next  int64 // the offset that the next batch begins at
	epoch int32 // leader epoch of what lies below next; -1 unknown

	end      int64 // one past the last offset read, whether it held a message or not
	endEpoch int32 // leader epoch of that offset; another than the last item's where markers follow an election
	endAt    int64 // when it was read, Unix nanoseconds
}

func newQueue(at event.Position) queue {
	return queue{part: at.Partition, next: at.Next, epoch: at.LeaderEpoch, end: at.Next, endEpoch: at.LeaderEpoch}
}

// push adds a message that was read.
func (q *queue) push(it item) {
	q.pass(it.rec.Offset, it.rec.LeaderEpoch, it.arrived)
	if q.ready == len(q.items) && !q.changes(it.rec.LeaderEpoch) {
		q.ready++
	}
	q.items = append(q.items, it)
	q.bytes += int64(it.bytes)
}

// trim drops messages from the end until at least so many bytes are dropped or none is left; end is then where to read
// again.
func (q *queue) trim(bytes int64) (dropped int64) {
	for dropped < bytes && len(q.items) > 0 {
		last := &q.items[len(q.items)-1]
		dropped += int64(last.bytes)
		q.end = last.rec.Offset
		*last = item{}
		q.items = q.items[:len(q.items)-1]
	}
	q.bytes -= dropped
	q.ready = min(q.ready, len(q.items))
	if n := len(q.items); dropped > 0 && n > 0 {
		q.endEpoch = q.items[n-1].rec.LeaderEpoch
	} else if dropped > 0 {
		q.endEpoch = q.epoch
	}
	return dropped
}

// pass says that an offset was read, whatever it held.
func (q *queue) pass(offset int64, epoch int32, now int64) {
	if q.epoch < 0 { // nothing was applied yet: there is nothing that the log could fail to continue
		q.epoch = epoch
	}
	q.end, q.endEpoch, q.endAt = offset+1, epoch, now
}

// changes says that an offset of this epoch must wait until the leader was asked whether its log continues what lies
// below.
func (q *queue) changes(epoch int32) bool { return q.epoch >= 0 && epoch >= 0 && epoch != q.epoch }

// blocked says that the next offset waits for that question; to which epoch the answer would bring the queue.
func (q *queue) blocked() (epoch int32, yes bool) {
	switch {
	case q.ready > 0 || q.end == q.next:
		return 0, false
	case len(q.items) > 0:
		return q.items[0].rec.LeaderEpoch, true // ready is 0, so the first changes
	}
	return q.endEpoch, q.changes(q.endEpoch)
}

// unblock goes on with the epoch that blocked.
func (q *queue) unblock(epoch int32) {
	q.epoch, q.ready = epoch, 0
	for q.ready < len(q.items) && !q.changes(q.items[q.ready].rec.LeaderEpoch) {
		q.ready++
	}
}

// take removes the first n items, which are ready, appends their messages to dst, and says which range they cover. It
// reaches to the next message that is left, or to the end of what was read, since what lies between holds nothing to
// apply; but not past an offset of another epoch.
func (q *queue) take(dst []event.Message, n int) (event.Range, []event.Message, int64) {
	r := event.Range{Partition: q.part, From: q.next, To: q.next, LeaderEpoch: q.epoch}
	bytes := int64(0)
	for _, it := range q.items[:n] {
		dst = append(dst, event.Message{Record: unfold(it.rec), Partition: q.part, Offset: it.rec.Offset, LeaderEpoch: it.rec.LeaderEpoch})
		bytes += int64(it.bytes)
		r.To = it.rec.Offset + 1
	}
	switch {
	case n < len(q.items):
		if n < q.ready {
			r.To = q.items[n].rec.Offset
		}
	case !q.changes(q.endEpoch):
		r.To = q.end
	}
	clear(q.items[:n]) // the array outlives the batch, what the items point to must not
	if q.items = q.items[n:]; len(q.items) == 0 {
		q.items = nil
	}
	q.bytes -= bytes
	q.ready -= n
	q.next = r.To
	return r, dst, bytes
}

// cutPlan says how many items to take of each queue, or when to look again.
type cutPlan struct {
	take []int     // per queue; nil: nothing to cut now
	full bool      // a limit of rows or bytes was reached
	at   time.Time // when a batch that is not full is due; zero: nothing was read
}

// planCut decides. first rotates which queue is served first where not all fit. Each queue gets its share before any
// gets more, so that a partition with a backlog does not hold back the others of its unit.
func planCut(queues []*queue, limits Limits, now time.Time, first int) cutPlan {
	at := int64(math.MaxInt64)
	rows, bytes := 0, int64(0)
	for _, q := range queues {
		due := int64(0)
		switch _, blocked := q.blocked(); {
		case q.ready > 0:
			due = q.items[0].arrived + int64(limits.Age)
		case q.end > q.next && !blocked:
			due = q.endAt + int64(max(limits.Age, markerAge))
		default:
			continue
		}
		rows += q.ready
		bytes += q.bytes
		at = min(at, due)
	}
	if at == math.MaxInt64 {
		return cutPlan{}
	}
	plan := cutPlan{full: rows >= limits.Rows || bytes >= limits.Bytes, at: time.Unix(0, at)}
	if !plan.full && now.Before(plan.at) {
		return plan
	}
	take := make([]int, len(queues))
	rows, bytes = 0, 0
	for _, share := range []int{max(1, limits.Rows/len(queues)), limits.Rows} {
		shareBytes := limits.Bytes
		if share < limits.Rows {
			shareBytes = limits.Bytes / int64(len(queues))
		}
		for n := range queues {
			i := (first + n) % len(queues)
			q, own := queues[i], int64(0)
			for _, it := range q.items[:take[i]] {
				own += int64(it.bytes)
			}
			for take[i] < min(q.ready, share) {
				next := int64(q.items[take[i]].bytes)
				// One message is taken whatever its size: otherwise it would stay for ever.
				if rows > 0 && (rows == limits.Rows || bytes+next > limits.Bytes || own+next > shareBytes) {
					break
				}
				take[i]++
				rows++
				bytes += next
				own += next
			}
		}
	}
	plan.take = take
	return plan
}

// takes says whether a queue is part of a batch: it gives items, or it has passed offsets that hold none.
func (q *queue) takes(n int) bool {
	_, blocked := q.blocked()
	return n > 0 || len(q.items) == 0 && q.end > q.next && !blocked
}

// planPending says how many items of each queue lie in the ranges of a stored intent. done is false while they are
// still being read.
func planPending(queues []*queue, pending []event.Range) (take []int, done bool) {
	take = make([]int, len(queues))
	for _, r := range pending {
		for i, q := range queues {
			if q.part != r.Partition {
				continue
			}
			if q.end < r.To {
				return nil, false
			}
			for take[i] < len(q.items) && q.items[take[i]].rec.Offset < r.To {
				take[i]++
			}
		}
	}
	return take, true
}

// oldest is when the first message was written; zero without one.
func (q *queue) oldest() time.Time {
	if len(q.items) == 0 {
		return time.Time{}
	}
	return q.items[0].rec.Timestamp
}
