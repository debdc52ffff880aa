package replay

import (
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/intake"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/lease"
	"github.com/slotline/slotline/partitioner"
)

// passOver says which events a job need not apply. It is made for each partition, and called by one goroutine there.
type passOver func() func(m *event.Message) bool

// without is a batch less the events that are passed over, and how many those are. The batch is left as it is: a consumer
// keeps in it what was refused.
func without(b *event.Batch, passes func(*event.Message) bool) (*event.Batch, int) {
	var excluded map[int]bool
	for i := range b.Messages {
		if !b.Excluded[i] && passes(&b.Messages[i]) {
			if excluded == nil {
				excluded = make(map[int]bool, len(b.Messages))
			}
			excluded[i] = true
		}
	}
	if excluded == nil {
		return b, 0
	}
	passed := len(excluded)
	maps.Copy(excluded, b.Excluded)
	less := *b
	less.Excluded = excluded
	return &less, passed
}

// rowReader tells which row of a job's tables an event writes, if the sink's rules take it.
type rowReader struct {
	rules  *intake.Rules
	tables []*event.Table
	layout *partitioner.Layout
	shard  int32
	counts []bool // by table
	event  intake.Event
	key    []byte
}

// read is false for an event that makes no row of the job's: one that the rules refuse, too.
func (r *rowReader) read(m *event.Message) (key entityKey, ver int64, ok bool) {
	e := &r.event
	if err := r.rules.Read(m, r.layout, e); err != nil || !r.counts[e.Table] {
		return key, 0, false
	}
	if t := r.tables[e.Table]; !t.Broadcast() && e.Route.Shard != r.shard {
		return key, 0, false
	}
	r.key = appendPlace(r.key[:0], m)
	r.key = binary.BigEndian.AppendUint32(r.key, uint32(e.Row.Month))
	return keyOf(append(r.key, m.Key...)), e.Ver, true
}

// appendPlace puts the partition before a key: what was refused in one has to be looked for in no other.
func appendPlace(dst []byte, m *event.Message) []byte {
	dst = append(append(dst, m.Partition.Topic...), 0)
	return binary.BigEndian.AppendUint32(dst, uint32(m.Partition.Number))
}

// rowReaders makes them for a job.
func (r *Replay) rowReaders(j *Job) (func() *rowReader, error) {
	cfg := r.o.Config
	rules, err := intake.New(cfg.Tables, &event.LimitsMySQL, cfg.Months.From)
	if err != nil {
		return nil, err
	}
	shard, _ := r.o.Layout.ShardIndex(r.o.Shard)
	counts := make([]bool, len(cfg.Tables))
	for i, t := range cfg.Tables {
		counts[i] = slices.Contains(j.Spec.Tables, t.Name)
	}
	return func() *rowReader {
		return &rowReader{rules: rules, tables: cfg.Tables, layout: r.o.Layout, shard: shard, counts: counts}
	}, nil
}

// entityAt is which entity an event is of, in its partition: whatever its row says, so that one that makes none has it too.
func entityAt(scratch []byte, m *event.Message) entityKey {
	return keyOf(append(appendPlace(scratch[:0], m), m.Key...))
}

// older passes over events of which a newer version stands in the log.
func older(n *newest, readers func() *rowReader) passOver {
	return func() func(*event.Message) bool {
		row := readers()
		return func(m *event.Message) bool {
			key, ver, ok := row.read(m)
			return ok && ver < n.of(key)
		}
	}
}

// others passes over the events below the ends that are of none of the entities, in those partitions.
func others(entities *newest, below ends) passOver {
	return func() func(*event.Message) bool {
		var scratch [512]byte
		return func(m *event.Message) bool {
			if m.Offset >= below[m.Partition] {
				return false
			}
			return entities.of(entityAt(scratch[:], m)) == 0
		}
	}
}

// worthReading says whether a job should read its log once more to pass over what has a newer version: of so many events some
// are left to apply, and the share of them that is the job's makes about so many rows. A server's estimate of rows may be a third
// too low, and on a fast one reading is only some four times as fast as applying: so it must save thrice what it costs by the
// figures of a plan. It is pure.
func worthReading(events, left int64, share float64, rows int64) bool {
	if events == 0 || share == 0 {
		return false
	}
	repeated := max(0, 1-float64(rows)/(share*float64(events)))
	saved := float64(left) * share * repeated * (1.0/planApply - 1.0/planRead)
	return saved > 3*float64(events)/planRead
}

// ownShare is about which share of the partitions' events is the shard's.
func (r *Replay) ownShare(events ends) float64 {
	own, all := 0.0, 0.0
	for p, n := range events {
		own += float64(n) / float64(max(1, len(r.o.Layout.PartitionShards(p.Number))))
		all += float64(n)
	}
	return own / max(1, all)
}

// learn reads the log once before the feed applies it, if that is worth it, and has the feed pass over what has a newer version
// below where the reading ended. It saves work, no more: whatever it does not learn is applied.
func (f *feed) learn(ctx context.Context, h *lease.Held) error {
	err := f.learnNewest(ctx, h)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil || fault.CodeOf(err) == codeCut || errors.Is(err, errTaken):
		return err
	}
	f.r.say("newest", "not known, all events are applied: "+err.Error())
	return nil
}

func (f *feed) learnNewest(ctx context.Context, h *lease.Held) error {
	cfg := f.r.o.Config
	logs, err := inspect(ctx, f.kafka, f.parts)
	if err != nil {
		return err
	}
	events, left := ends{}, int64(0)
	for p, log := range logs {
		if log.Err != nil {
			return log.Err
		}
		events[p] = log.Stable
		left += max(0, log.Stable-f.began[p])
	}
	live, err := f.r.sinkOf(f.job, liveSink, "")
	if err != nil {
		return err
	}
	defer live.Close()
	size, err := f.r.sizeOf(ctx, live, f.job.Spec)
	if err != nil {
		return err
	}
	room := memoryBesideReader(cfg, len(f.parts))
	if room == 0 || !worthReading(events.sum(), left, f.r.ownShare(events)*size.share(), size.rows) {
		return nil
	}
	readers, err := f.r.rowReaders(f.job)
	if err != nil {
		return err
	}
	found, meter, began := &newest{bytesMax: room}, newMeter(), time.Now()
	var n, lost atomic.Int64
	at, err := f.r.history().pass(ctx, f.sink, events, cfg.Limits.MemoryBytesMax-room, func() func(*event.Message) {
		row := readers()
		return func(m *event.Message) {
			key, ver, ok := row.read(m)
			if !ok {
				return
			}
			n.Add(1)
			if !found.learn(key, ver) {
				lost.Add(1)
			}
		}
	}, func(done int64) {
		f.r.tell(Line{Stage: "newest", Text: meter.text(time.Now(), done, events.sum(), standing{}), Passing: true})
	})
	if err != nil {
		return err
	}
	// From now on it matters that the log is not cut below: a process before this one has passed over what had a newer version in
	// the log as it was then.
	if err := f.unbroken(ctx, f.job.read); err != nil {
		return err
	}
	if err := f.r.keepRead(ctx, h, f.job, slices.Collect(maps.Values(at))); err != nil {
		return err
	}
	f.passes, f.memory = older(found, readers), found.bytes.Load()
	rows := found.keys.Load()
	text := fmt.Sprintf("%d events, %d rows: %d are passed over; read in %s", n.Load(), rows, n.Load()-rows-lost.Load(), short(time.Since(began)))
	if lost := lost.Load(); lost > 0 {
		text += fmt.Sprintf("; %d are of rows beyond what limits.memory_bytes_max has room for, and applied", lost)
	}
	f.r.say("newest", text)
	return nil
}

// mayLack says that the tables may lack what is older than an event that was refused: this feed has passed events over, or
// one before it may have.
func (f *feed) mayLack() bool { return f.passes != nil || f.began.sum() > 0 }

// keepRead keeps with the job up to where its log was read.
func (r *Replay) keepRead(ctx context.Context, h *lease.Held, j *Job, read []event.Position) error {
	text, err := json.Marshal(read)
	if err != nil {
		return err
	}
	return r.ifOurs(ctx, h, j, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE `slotline_job` SET `body`=JSON_SET(`body`,'$.read',CAST(? AS JSON)) WHERE `job`=?", string(text), j.Name)
		if err == nil {
			j.read = read
		}
		return err
	})
}

// unbroken looks whether the log still is the one that was read. In one that was cut since, or made anew, the newer version for
// which another was passed over may be gone.
func (f *feed) unbroken(ctx context.Context, read []event.Position) error {
	if len(read) == 0 {
		return nil
	}
	logs, err := kafka.Inspect(ctx, f.kafka, read)
	if err != nil {
		return err
	}
	for _, at := range read {
		log := logs[at.Partition]
		if log.Err != nil {
			return log.Err
		}
		if cutBelow(at, log) {
			return &fault.Error{Code: codeCut, Class: fault.Fatal,
				What: fmt.Sprintf("job %s: the log of %s partition %d was cut, or made anew, below offset %d, up to which it was read", f.job.Name, at.Topic, at.Number, at.Next),
				Why:  "events were passed over because newer ones of the same rows stood there, which are gone now",
				Do:   fmt.Sprintf("slotline replay abort %s, and begin anew", f.job.Name)}
		}
	}
	return nil
}

// cutBelow says that a log does not hold any more what it held below a position. Its end says nothing: that of a new leader may
// be lower for a moment. It is pure.
func cutBelow(at event.Position, log kafka.Log) bool {
	other := at.TopicID != (event.TopicID{}) && log.TopicID != (event.TopicID{}) && at.TopicID != log.TopicID
	return log.Gone || other || log.EpochEnd >= 0 && log.EpochEnd < at.Next
}

// refused are the offsets of the events that a job's tables could not hold.
func (r *Replay) refused(ctx context.Context, j *Job) (map[event.Partition][]int64, error) {
	rows, err := r.db.QueryContext(ctx, "SELECT `topic`,`part`,`off` FROM `slotline_job_dead` WHERE `job`=? ORDER BY 1,2,3", j.Name)
	if err != nil {
		return nil, r.wrap(err)
	}
	defer rows.Close()
	list := map[event.Partition][]int64{}
	for rows.Next() {
		var p event.Partition
		var offset int64
		if err := rows.Scan(&p.Topic, &p.Number, &offset); err != nil {
			return nil, r.wrap(err)
		}
		list[p] = append(list[p], offset)
	}
	return list, r.wrap(rows.Err())
}

// lookAgain has the tables hold what stands below the events that they refused, as the live ones do (P7): it was passed over,
// by this process or by one that died since. All events of those entities are applied, from the log's beginning up to where
// the feed, which rests, has come; from there on, all there are. Versions make what is applied again change nothing, so that
// the next process may do it once more.
func (r *Replay) lookAgain(ctx context.Context, h *lease.Held, j *Job, refused map[event.Partition][]int64) error {
	sink := shadowSink(j.Name)
	rows, err := progress.List(ctx, r.db, sink)
	if err != nil {
		return r.wrap(err)
	}
	below, upTo, n := ends{}, ends{}, 0
	for _, row := range rows {
		for _, offset := range refused[row.Partition] {
			if offset < row.Next { // what comes later comes again
				below[row.Partition], upTo[row.Partition], n = row.Next, offset+1, n+1
			}
		}
	}
	if n == 0 {
		return nil
	}
	r.say("newest", fmt.Sprintf("%d events were refused: older ones of their rows are applied, from %d partitions", n, len(below)))
	entities := &newest{}
	var mu sync.Mutex
	found := map[event.Partition]map[int64]bool{}
	_, err = r.history().pass(ctx, sink, upTo, r.o.Config.Limits.MemoryBytesMax, func() func(*event.Message) {
		return func(m *event.Message) {
			if _, ok := slices.BinarySearch(refused[m.Partition], m.Offset); !ok {
				return
			}
			entities.learn(entityAt(nil, m), 1)
			mu.Lock()
			defer mu.Unlock()
			if found[m.Partition] == nil {
				found[m.Partition] = map[int64]bool{}
			}
			found[m.Partition][m.Offset] = true
		}
	}, func(int64) {})
	if err != nil {
		return err
	}
	for p, end := range upTo {
		for _, offset := range refused[p] {
			if offset < end && !found[p][offset] {
				return r.history().hole(fmt.Sprintf("%s partition %d: the event at offset %d, which job %s could not apply, is gone", p.Topic, p.Number, offset, j.Name))
			}
		}
	}
	if err := r.rewind(ctx, h, j, sink, below); err != nil {
		return err
	}
	f, err := r.feedFor(ctx, h, j, sink, shadowSuffix(j.Name), func(_ context.Context, f *feed) error {
		f.passes = others(entities, below)
		return nil
	})
	if err != nil {
		return err
	}
	defer f.stop()
	return r.catchUp(ctx, f, string(j.Stage))
}

// rewind has a sink of the job stand at the log's beginning again, in those partitions.
func (r *Replay) rewind(ctx context.Context, h *lease.Held, j *Job, sink string, parts ends) error {
	return r.ifOurs(ctx, h, j, func(tx *sql.Tx) error {
		for p := range parts {
			if err := progress.Fence(ctx, tx, sink, event.Position{Partition: p, LeaderEpoch: -1}); err != nil {
				return err
			}
		}
		return nil
	})
}
