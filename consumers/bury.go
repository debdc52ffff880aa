package consumers

import (
	"context"
	"fmt"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/kafka"
)

// codeFlood is the code of more dead letters than a minute may have.
const codeFlood = "SL6006"

// bury writes the events that the sink rejected to the dead-letter topic, waits until they are acknowledged, and
// excludes them from the batch (P7). A flood is no fault of rows: it writes nothing and returns a fault that halts.
// errStopped: the unit is to end, and the batch is not excluded of anything.
func (u *unit) bury(ctx context.Context, f *flight, rejected []event.Rejected) error {
	var letters []kafka.DeadLetter
	counts := map[event.Partition]int{}
	for _, r := range rejected {
		if f.batch.Excluded[r.Index] {
			continue
		}
		m := &f.batch.Messages[r.Index]
		letters = append(letters, kafka.DeadLetter{Sink: u.loop.sink.Name(), Partition: m.Partition, Offset: m.Offset,
			Reason: r.Reason, Error: r.Err.Error(), At: time.Now(),
			Record: event.Record{Key: m.Key, Value: m.Value, Headers: m.Unpacked()}})
		counts[m.Partition]++
	}
	if len(letters) == 0 {
		return &fault.Error{Code: "SL6007", Class: fault.Fatal,
			What: fmt.Sprintf("sink %s rejects events that were excluded already: %v", u.loop.sink.Name(), rejected[0].Err),
			Do:   "report this: it is a bug of the sink"}
	}
	for p, n := range counts {
		if !u.loop.admitDead(p, n) {
			return &fault.Error{Code: codeFlood, Class: fault.Fatal,
				What: fmt.Sprintf("more than %d events a minute cannot be applied (%d in this batch), the first: %s",
					u.loop.opts.Config.Dead.HaltPerMinute, n, rejected[0].Err),
				Why: "so many are the fault of a release, not of rows; none of this batch was made a dead letter",
				Do:  "mend the service or the table and restart the sink; or raise dead_letters.halt_per_minute and restart it"}
		}
	}
	keep := u.loop.dead.Produce
	if u.loop.opts.Bury != nil {
		keep = u.loop.opts.Bury
	}
	retry := u.newRetry()
	for {
		err := keep(ctx, letters)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return errStopped
		}
		if c := fault.ClassOf(err); c == fault.Data || c == fault.Fatal {
			return err // it cannot be kept, so it must not be passed
		}
		u.outage.note(doingBury, err)
		if !u.pause(ctx, retry.next()) {
			return errStopped
		}
	}
	u.outage.over(doingBury)
	if f.batch.Excluded == nil {
		f.batch.Excluded = map[int]bool{}
	}
	for _, r := range rejected {
		f.batch.Excluded[r.Index] = true
	}
	for _, l := range letters {
		u.loop.metrics.dead(l.Reason)
		u.loop.log.Warn("dead letter", "topic", l.Partition.Topic, "partition", l.Partition.Number, "offset", l.Offset,
			"reason", l.Reason, "error", l.Error)
	}
	return nil
}
