package consumers

import (
	"context"
	"log/slog"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
)

// recordTimeout bounds how long a unit is held up for the sake of the record of its halts.
const recordTimeout = 5 * time.Second

// haltAll halts every partition of the unit: what its batch cannot get past, none of them can.
func (u *unit) haltAll(ctx context.Context, why *fault.Error) ending {
	var at []event.Position
	for _, m := range u.members {
		at = append(at, m.at)
	}
	u.halt(ctx, why, at...)
	return endHalted
}

// halt records that partitions are halted, where a person looks: log, metrics, and the sink's own record. It is called
// at each try that ends so, and the record is made each time: it may have failed, or somebody may have cleared it.
func (u *unit) halt(ctx context.Context, why *fault.Error, at ...event.Position) {
	for _, p := range at {
		if u.loop.halts.add(p.Partition, p.Next, why, time.Now()) {
			u.loop.news.add(slog.LevelError, "halted", p, why)
		}
	}
	h, ok := u.loop.sink.(Halter)
	if !ok {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	for _, p := range at {
		err := h.Halt(bounded, p.Partition, why)
		if err == nil {
			u.unrecorded = ""
		} else if text := err.Error(); text != u.unrecorded {
			u.unrecorded = text
			u.loop.news.add(slog.LevelWarn, "could not record the halt; the log and the metrics have it", p, err)
		}
	}
}

// endHalts ends the halts of the partitions that go on, where no batch will say so. It is asked after the take-over and
// the log check, and again after each batch.
func (u *unit) endHalts(ctx context.Context, now time.Time) {
	if now.Before(u.resumeAt) {
		return
	}
	u.resumeAt = time.Time{}
	idle := len(u.pending) == 0
	for _, m := range u.members {
		if m.stream == nil && !m.halted {
			return // its leader has not answered; it may yet keep the others from going on
		}
		idle = idle && (m.halted || m.drained())
	}
	bounded, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	for _, m := range u.members {
		// A batch failed for what was in it, perhaps, as long as there is something to apply: then only the next batch
		// shows that the reason is gone. Else the halt would end and begin again with each try.
		goesOn := m.drained() && (idle || u.moved) || u.loop.halts.isVerdict(m.at.Partition)
		if m.halted || m.resumed || !goesOn {
			continue
		}
		if err := u.resume(bounded, m.at); err != nil {
			if ctx.Err() == nil {
				u.outage.note(doingResume, err)
				u.resumeAt = time.Now().Add(u.resumeRetry.next())
			}
			return
		}
		m.resumed = true
	}
	u.resumeRetry.reset()
	u.outage.over(doingResume)
}

// resume ends the halt of a partition, in the sink's record first.
func (u *unit) resume(ctx context.Context, at event.Position) error {
	if h, ok := u.loop.sink.(Halter); ok {
		if err := h.Resume(ctx, at.Partition); err != nil {
			return err
		}
	}
	u.goesOn(at)
	return nil
}

// goesOn takes a partition out of the register of halted ones.
func (u *unit) goesOn(at event.Position) {
	if u.loop.halts.clear(at.Partition) {
		u.loop.news.add(slog.LevelInfo, "the partition goes on", at, nil)
	}
}

// leave ends the halts of a fixed group that another process has by now. Where ours was that we were refused before we
// asked for the lease, the other may never have halted, and nobody else ends our record.
func (u *unit) leave(ctx context.Context, refused bool) {
	bounded, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	for _, p := range u.parts {
		if !u.loop.halts.has(p) {
			continue
		}
		if !refused {
			u.loop.halts.clear(p)
		} else if err := u.resume(bounded, event.Position{Partition: p}); err != nil {
			u.log.Debug("could not end the record of a halt; tried again", "error", err)
			return
		}
	}
}

// drained says that everything that can be read of the partition is applied.
func (m *member) drained() bool {
	if m.stream == nil {
		return false
	}
	m.stream.mu.Lock()
	defer m.stream.mu.Unlock()
	return m.at.Next >= m.stream.stable
}
