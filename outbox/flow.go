package outbox

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/slotline/slotline/event"
)

// flow decides, for one lane, what is sent when, what is parked, and what may be saved. It does no I/O and starts
// nothing: the session calls it, and so does the simulation in its tests.
//
// Batches are accepted in the order in which they were read, and saved in that order, each once every row of it is
// acknowledged, parked, a dead letter, or in the topic already. So the stored state never counts a row that the topic
// may lack.
//
// A partition that does not answer while others do, or that refuses, has its ids parked: stored as not published, in
// order. The lane goes on with the others. What such a partition has not refused stays with the Writer, which keeps
// the order; what comes later is only parked, and is read again in order once nothing is in flight there.
type flow struct {
	names  []event.Partition // by partition index
	parts  []part
	limits flowLimits

	flights []*flight // accepted and not saved, oldest first
	skip    map[event.ID]skipped

	base    flowBase // what the last save stored
	pending []deadLetter
	sending *saveState // the save under way
	forced  bool       // state that no flight carries changed: parked ids or offsets

	sentSeq  uint64    // grows with each item sent
	lastAck  time.Time // when any partition last acknowledged something
	ackSeq   uint64    // the greatest sentSeq acknowledged by any partition
	outBytes int64     // of items without an answer

	published, found, dead uint64 // acknowledged; in the topic already; dead letters
}

type flowLimits struct {
	refuseAfter    time.Duration // without an answer while others answer: parked
	retryMin       time.Duration // first pause after a refusal; doubles up to retryMax
	retryMax       time.Duration
	flightsMax     int // batches accepted and not settled
	refillRows     int // parked ids read again at once
	parkedRangeMax int // ranges parked in all; beyond it the lane waits
}

var defaultFlowLimits = flowLimits{
	refuseAfter: time.Second, // the others wait for so long once; most elections take less
	retryMin:    250 * time.Millisecond, retryMax: 5 * time.Second,
	flightsMax: batchesMax - 1, // the reader holds one more
	refillRows: 500, parkedRangeMax: 1 << 20,
}

// part is one partition.
type part struct {
	inflight []*item // handed to the Writer and not answered, in order
	parked   bucketSet
	waiting  idSet // parked and not handed over: a subset of parked
	fetching bool  // waiting ids are being read
	probing  bool  // ids that were parked were sent, and none is acknowledged yet
	isolate  int   // so many records go one at a time: one of them was too large
	retryAt  time.Time
	backoff  time.Duration
	err      error // why it refuses; nil when it does not
	unsaved  int   // flights not saved that have items of this partition
	sent     uint64
}

// item is one row on its way.
type item struct {
	id      uint64
	eventID event.ID
	part    int
	reason  string // a dead letter's reason; "" for a row that can be published
	detail  string
	out     *Out
	bytes   int64
	created time.Time

	flight *flight // nil for a row read again
	parked bool    // stored as parked while it is in flight
	alone  bool    // sent alone to its partition, since one of several was too large
	sentAt time.Time
	seq    uint64
}

// flight is one batch.
type flight struct {
	after   readerState
	left    int           // items not settled
	next    map[int]int64 // by partition: offset after the last acknowledged item
	touched map[int]bool  // partitions of its rows
	skips   bool          // a row of it was in the topic already
	dead    []deadLetter
}

// readerState is what the reader knows after a batch: what is saved once the batch is settled.
type readerState struct {
	cursor uint64
	hot    []idRange
	cold   map[uint64]string // buckets of cold gaps that changed with this batch
}

type deadLetter struct {
	ID      uint64
	EventID event.ID
	Reason  string
	Detail  string
}

type flowBase struct {
	state   readerState
	offsets map[int]int64
}

// saveState is what one save stores.
type saveState struct {
	flights int
	state   readerState
	offsets map[int]int64
	moved   map[int]int64             // those of offsets that this save's flights move
	parked  map[int]map[uint64]string // by partition: buckets that changed
	dead    []deadLetter
}

func newFlow(names []event.Partition, s *laneState, skip map[event.ID]skipped, limits flowLimits) *flow {
	f := &flow{names: names, parts: make([]part, len(names)), limits: limits, skip: skip}
	f.forced = s.forgot
	f.base = flowBase{state: readerState{cursor: s.cursor, hot: s.hot}, offsets: map[int]int64{}}
	for i, p := range names {
		if next, ok := s.offsets[p]; ok {
			f.base.offsets[i] = next
		}
		if set, ok := s.parked[p]; ok {
			f.parts[i].parked = bucketSet{idSet: set.clone(), dirty: maps.Clone(set.dirty)}
			f.parts[i].waiting = set.clone()
			f.forced = f.forced || len(set.dirty) > 0
		}
	}
	return f
}

// full says that no batch can be accepted now.
func (f *flow) full(bytesMax int64) bool {
	open, ranges := 0, 0
	for _, fl := range f.flights {
		if fl.left > 0 {
			open++
		}
	}
	for i := range f.parts {
		ranges += len(f.parts[i].parked.ranges)
	}
	return open >= f.limits.flightsMax || f.outBytes > bytesMax || ranges > f.limits.parkedRangeMax
}

// accept takes a batch in the order of reading and returns what to send.
func (f *flow) accept(items []*item, after readerState, now time.Time) (send []*item) {
	fl := &flight{after: after, next: map[int]int64{}, touched: map[int]bool{}}
	f.flights = append(f.flights, fl)
	send = make([]*item, 0, len(items))
	for _, it := range items {
		if at, done := f.skip[it.eventID]; done {
			delete(f.skip, it.eventID)
			f.found++
			fl.skips = true
			f.touch(fl, at.part)
			continue
		}
		if it.reason != "" {
			fl.dead = append(fl.dead, deadLetter{it.id, it.eventID, it.reason, it.detail})
			continue
		}
		p := &f.parts[it.part]
		f.touch(fl, it.part)
		if p.refusing() {
			p.park(it.id)
			p.waiting.add(idRange{it.id, it.id}, nil)
			continue
		}
		it.flight = fl
		fl.left++
		send = append(send, f.send(it, now))
	}
	return send
}

// touch remembers that a flight holds rows of a partition: until it is saved a take-over must find their records.
func (f *flow) touch(fl *flight, partition int) {
	if partition >= 0 && !fl.touched[partition] {
		fl.touched[partition] = true
		f.parts[partition].unsaved++
	}
}

// refusing says that ids of the partition are parked without being sent: it refuses, does not answer, has parked ids
// that must go first, or has not yet shown that it takes records again.
func (p *part) refusing() bool {
	return p.err != nil || !p.waiting.empty() || p.fetching || p.isolate > 0
}

func (p *part) park(id uint64) { p.parked.add(idRange{id, id}) }

func (f *flow) send(it *item, now time.Time) *item {
	p := &f.parts[it.part]
	f.sentSeq++
	it.seq, it.sentAt = f.sentSeq, now
	p.sent++
	p.inflight = append(p.inflight, it)
	f.outBytes += it.bytes
	return it
}

// errStalled marks a partition that does not answer while others do.
var errStalled = errors.New("does not answer while other partitions do")

// answered takes one answer of the Writer: per partition they come in the order of sending.
func (f *flow) answered(it *item, offset int64, err error, now time.Time) {
	p := &f.parts[it.part]
	if i := slices.Index(p.inflight, it); i == 0 { // answers come in order
		p.inflight[0] = nil
		p.inflight = p.inflight[1:]
	} else if i > 0 {
		p.inflight = slices.Delete(p.inflight, i, i+1)
	} else {
		return
	}
	f.outBytes -= it.bytes
	if err == nil {
		f.published++
		f.lastAck, f.ackSeq = now, max(f.ackSeq, it.seq)
		p.backoff, p.retryAt, p.probing = 0, time.Time{}, false
		if it.alone {
			p.isolate--
		}
		if it.parked {
			p.parked.removeAll([]uint64{it.id})
			f.forced = true
		}
		if it.flight != nil {
			it.flight.next[it.part] = max(it.flight.next[it.part], offset+1)
			f.settle(it)
		}
		if len(p.inflight) == 0 || p.err == errStalled {
			p.err = nil
		}
		return
	}
	if errors.Is(err, ErrRecordTooLarge) && it.alone {
		// It is the one that is too large.
		p.isolate--
		p.probing = false
		f.pending = append(f.pending, deadLetter{it.id, it.eventID, ReasonTooLarge, err.Error()})
		p.parked.removeAll([]uint64{it.id})
		f.forced = true
		return
	}
	p.park(it.id)
	it.parked = true
	p.waiting.add(idRange{it.id, it.id}, nil)
	f.forced = true
	if errors.Is(err, ErrRecordTooLarge) {
		// One of those that were sent together is too large, and all are refused. They go one at a time.
		p.isolate++
	} else {
		if p.retryAt.Before(now) {
			p.backoff = min(max(2*p.backoff, f.limits.retryMin), f.limits.retryMax)
			p.retryAt = now.Add(p.backoff)
		}
		p.err = err
	}
	if it.flight != nil {
		f.settle(it)
	}
}

// settle counts an item of a flight as done: acknowledged or parked.
func (f *flow) settle(it *item) {
	it.flight.left--
	it.flight = nil
}

// tick parks what stalls: a partition whose oldest item waits too long although items sent after it were acknowledged
// elsewhere. When nothing at all is acknowledged the broker is gone, and the lane waits.
func (f *flow) tick(now time.Time) {
	for i := range f.parts {
		p := &f.parts[i]
		if len(p.inflight) == 0 || p.err != nil {
			continue
		}
		oldest := p.inflight[0]
		if now.Sub(oldest.sentAt) < f.limits.refuseAfter || f.ackSeq < oldest.seq {
			continue
		}
		p.err = errStalled
		for _, it := range p.inflight {
			if !it.parked {
				p.park(it.id)
				it.parked = true
				f.forced = true
			}
			if it.flight != nil {
				f.settle(it)
			}
		}
	}
}

// wanted is a partition whose parked ids can be tried again, and the ids to read, in order; none: -1.
func (f *flow) wanted(now time.Time) (partition int, ids []uint64) {
	for i := range f.parts {
		p := &f.parts[i]
		if p.waiting.empty() || p.fetching || len(p.inflight) > 0 || now.Before(p.retryAt) {
			continue
		}
		n := f.limits.refillRows
		if p.isolate > 0 {
			n = 1
		}
		p.fetching = true
		return i, p.waiting.first(n)
	}
	return -1, nil
}

// refill takes the rows of wanted ids, and returns what to send. Rows that the database does not have any more are
// returned as vanished and forgotten. A nil items with nil ids means that reading failed.
func (f *flow) refill(partition int, ids []uint64, items []*item, now time.Time) (send []*item, vanished []uint64) {
	p := &f.parts[partition]
	p.fetching = false
	if ids == nil {
		p.retryAt = now.Add(f.limits.retryMin)
		return nil, nil
	}
	p.waiting.removeAll(ids, nil)
	p.err = nil
	f.forced = true
	k := 0
	for _, id := range ids {
		if k >= len(items) || items[k].id != id {
			vanished = append(vanished, id)
			continue
		}
		it := items[k]
		k++
		switch _, done := f.skip[it.eventID]; {
		case done:
			delete(f.skip, it.eventID)
			f.found++
			p.parked.removeAll([]uint64{id})
		case it.reason != "":
			f.pending = append(f.pending, deadLetter{it.id, it.eventID, it.reason, it.detail})
			p.parked.removeAll([]uint64{id})
		default:
			if it.part != partition { // the layout changed since
				p.parked.removeAll([]uint64{id})
				q := &f.parts[it.part]
				q.park(id)
				if q.refusing() {
					q.waiting.add(idRange{id, id}, nil)
					continue
				}
			}
			it.parked = true
			it.alone = p.isolate > 0 && it.part == partition && len(ids) == 1
			f.parts[it.part].probing = true
			send = append(send, f.send(it, now))
		}
	}
	p.parked.removeAll(vanished)
	return send, vanished
}

// save returns what can be stored now, or nil: nothing new, or a save is under way.
func (f *flow) save() *saveState {
	if f.sending != nil {
		return nil
	}
	s := &saveState{state: f.base.state, offsets: maps.Clone(f.base.offsets), moved: map[int]int64{}, parked: map[int]map[uint64]string{}}
	s.state.cold = nil
	for _, fl := range f.flights {
		if fl.left > 0 {
			break
		}
		s.flights++
		cold := s.state.cold
		s.state = fl.after
		if cold != nil {
			if s.state.cold == nil {
				s.state.cold = cold
			} else {
				s.state.cold = maps.Clone(s.state.cold)
				for b, text := range cold {
					if _, newer := s.state.cold[b]; !newer {
						s.state.cold[b] = text
					}
				}
			}
		}
		for p, next := range fl.next {
			s.moved[p] = max(s.moved[p], s.offsets[p], next)
		}
		s.dead = append(s.dead, fl.dead...)
	}
	if f.unmatched(f.flights[s.flights:]) {
		clear(s.moved)
	}
	maps.Copy(s.offsets, s.moved)
	if s.flights == 0 && !f.forced {
		return nil
	}
	s.dead = append(s.dead, f.pending...)
	f.pending = nil
	for i := range f.parts {
		if dirty := f.parts[i].parked.takeDirty(); dirty != nil {
			s.parked[i] = dirty
		}
	}
	f.forced = false
	f.sending = s
	return s
}

// unmatched says that records of the tail still wait for their rows, or that rows matched with them are not saved:
// until then another take-over must find those records again, so recorded offsets stay.
func (f *flow) unmatched(unsaved []*flight) bool {
	return len(f.skip) > 0 || slices.ContainsFunc(unsaved, func(fl *flight) bool { return fl.skips })
}

// saved ends the save under way. After a failure of unknown outcome it is simply stored again: each part of it is
// absolute.
func (f *flow) saved(ok bool) {
	s := f.sending
	f.sending = nil
	if !ok {
		f.forced = true
		f.pending = append(s.dead[countDead(f.flights[:s.flights]):], f.pending...)
		for i, buckets := range s.parked {
			for b := range buckets {
				f.parts[i].parked.touch(b << bucketShift)
			}
		}
		return
	}
	for _, fl := range f.flights[:s.flights] {
		for i := range fl.touched {
			f.parts[i].unsaved--
		}
	}
	f.flights = slices.Delete(f.flights, 0, s.flights)
	for p, next := range s.moved { // ends may have moved an offset meanwhile
		f.base.offsets[p] = max(f.base.offsets[p], next)
	}
	f.base.state = s.state
	f.base.state.cold = nil
	f.dead += uint64(len(s.dead))
}

func countDead(flights []*flight) (n int) {
	for _, fl := range flights {
		n += len(fl.dead)
	}
	return n
}

// quiet marks the partitions in which nothing of this lane is in flight, unsaved or parked; askEnds may move their
// recorded offsets to the ends that it asks for after this call.
func (f *flow) quiet() map[int]uint64 {
	marks := map[int]uint64{}
	for i := range f.parts {
		p := &f.parts[i]
		if len(p.inflight) == 0 && p.unsaved == 0 && p.parked.empty() {
			marks[i] = p.sent
		}
	}
	return marks
}

// moveEnds takes the partitions' ends, asked for after quiet: where nothing was sent since, a take-over need not scan
// what lies below them. An end below the offset is that of a topic that was made anew: what was recorded of the one before
// would hide this one's records from a take-over.
func (f *flow) moveEnds(marks map[int]uint64, ends map[event.Partition]int64) {
	if f.unmatched(f.flights) {
		return
	}
	for i, sent := range marks {
		if f.parts[i].sent != sent {
			continue
		}
		if end, ok := ends[f.names[i]]; ok && end != f.base.offsets[i] {
			f.base.offsets[i] = end
			f.forced = true
		}
	}
}

// idle says that everything accepted is settled and saved.
func (f *flow) idle() bool {
	return len(f.flights) == 0 && f.sending == nil && !f.forced && len(f.pending) == 0
}

// inFlight is the number of items without an answer.
func (f *flow) inFlight() (n int) {
	for i := range f.parts {
		n += len(f.parts[i].inflight)
	}
	return n
}

func (f *flow) anyParked() bool {
	return slices.ContainsFunc(f.parts, func(p part) bool { return !p.parked.empty() })
}

// refusals names the partitions that refuse and their parked ids, for status and logs.
func (f *flow) refusals() (list []Refusal) {
	for i := range f.parts {
		p := &f.parts[i]
		if n := p.parked.count(); n > 0 {
			list = append(list, Refusal{Partition: f.names[i], Parked: n, Err: p.err})
		}
	}
	return list
}
