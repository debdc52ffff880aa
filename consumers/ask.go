package consumers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/kafka"
)

// errPartitionGone is an answer that knows no such topic or partition. It is an outage until the topic comes back, and
// then its id tells whether it is the same one.
func errPartitionGone(p event.Partition) error {
	return &fault.Error{Code: "SL6011", Class: fault.Transient,
		What: p.Topic + " is not there (or not this partition of it)",
		Why:  "somebody deleted it, or the brokers do not tell of it yet",
		Do:   "find out who deleted the topic; the sinks hold what they applied"}
}

// askLeaders asks how the logs of partitions stand that are not read yet, or whose leader changed, or whose reading
// failed; and begins, goes on, or halts accordingly.
func (u *unit) askLeaders(ctx context.Context, now time.Time) error {
	var ask []event.Position
	var of []*member
	for _, m := range u.members {
		if m.halted || now.Before(m.retryAt) {
			continue
		}
		at, needed := m.question()
		if needed {
			ask, of = append(ask, at), append(of, m)
		}
	}
	if len(ask) == 0 {
		return nil
	}
	logs, err := kafka.Inspect(ctx, u.loop.reader.cl, ask)
	answered := true
	for i, m := range of {
		l, failed := logs[ask[i].Partition], err
		past, why := false, (*fault.Error)(nil)
		switch {
		case failed != nil:
		case l.Err != nil:
			failed = l.Err
		case l.Gone:
			failed = errPartitionGone(ask[i].Partition)
		default:
			if past, failed = u.loop.inHistory(ctx, ask[i], l); fault.Is(failed, fault.Fatal) || fault.Is(failed, fault.Usage) {
				why, failed = asFault(failed), nil
			}
		}
		if failed != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			answered = false
			m.retryAt = time.Now().Add(m.retry.next())
			if m.stream != nil {
				m.stream.ask()
			}
			u.outage.note(doingAsk, failed)
			continue
		}
		m.retryAt, m.retry.tries = time.Time{}, 0
		if why == nil && !past {
			why = judge(ask[i], l, u.loop.acceptGap(ask[i].Partition))
		}
		if why == nil {
			why = m.loss(u.loop.acceptGap(m.at.Partition))
		}
		if why == nil {
			why = u.pendingGone(ask[i].Partition, l)
		}
		if why != nil {
			u.stopReading(m)
			m.halted, m.why = true, why
			u.halt(ctx, why, ask[i])
			continue
		}
		u.goOn(m, ask[i], l, past)
	}
	if answered {
		u.outage.over(doingAsk)
	}
	return nil
}

// cannotGoOn says that every partition is halted, or that the batch that must come first cannot be read.
func (u *unit) cannotGoOn(ctx context.Context) bool {
	halted := 0
	for _, m := range u.members {
		if m.halted {
			halted++
		}
	}
	if halted == 0 || halted < len(u.members) && len(u.pending) == 0 {
		return false
	}
	var others []event.Position
	why := &fault.Error{Code: "SL6012", Class: fault.Fatal,
		What: "a batch that was stored, and perhaps sent, cannot be read again: another partition of its group is halted",
		Do:   "see that partition; this one goes on with it"}
	for _, m := range u.members {
		if !m.halted {
			m.halted, m.why = true, why
			others = append(others, m.at)
		}
	}
	if len(others) > 0 {
		u.halt(ctx, why, others...)
	}
	return true
}

// question says whether the leader must be asked about the member, and of which position. What happens from here on
// is a question of its own.
func (m *member) question() (event.Position, bool) {
	if m.stream == nil {
		return m.at, true
	}
	s := m.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	_, blocked := s.q.blocked()
	at := event.Position{Partition: s.part, Next: s.q.next, LeaderEpoch: s.q.epoch, TopicID: s.topicID}
	needed := blocked || s.recheck || s.trouble != nil
	s.recheck = false
	return at, needed
}

// loss is what the client found out by itself and would go on from.
func (m *member) loss(acceptGap string) *fault.Error {
	if m.stream == nil {
		return nil
	}
	m.stream.mu.Lock()
	err := m.stream.trouble
	m.stream.mu.Unlock()
	if lost, ok := errors.AsType[*kgo.ErrDataLoss](err); ok {
		return cutFault(event.Position{Partition: m.at.Partition, Next: lost.ConsumedTo, LeaderEpoch: lost.ConsumedToEpoch},
			lost.ResetTo, acceptGap)
	}
	if f, ok := errors.AsType[*fault.Error](err); ok && f.Class == fault.Fatal {
		return f // of History
	}
	if big, ok := errors.AsType[*kgo.ErrDecompressTooLarge](err); ok {
		return &fault.Error{Code: "SL6013", Class: fault.Fatal, Err: err,
			What: fmt.Sprintf("the record batch at offset %d is larger than memory allows. Nothing was skipped.", big.Offset),
			Why:  "the relay writes no such batch: another program wrote into the topic",
			Do: fmt.Sprintf("find that program; to read its batch, raise outbox.event_bytes_max (batches of up to %d such events are read) and restart the sink",
				decompressedBatchesMax)}
	}
	return nil
}

// acceptGap is the command with which a person goes past what a partition has lost.
func (l *loop) acceptGap(p event.Partition) string {
	command := fmt.Sprintf("slotline sink accept-gap --sink %s --partition %d", l.sink.Name(), p.Number)
	if p.Topic != l.opts.Config.Kafka.Topic {
		command += " --topic " + p.Topic
	}
	return command + ` --why "..."`
}

// pendingGone says that a stored batch reaches beyond the log. The position itself may be as it should be: then there is
// no gap to accept, and only the stored batch is in the way.
func (u *unit) pendingGone(p event.Partition, l kafka.Log) *fault.Error {
	for _, r := range u.pending {
		if r.Partition == p && r.To > l.End {
			why := cutFault(event.Position{Partition: p, Next: r.To, LeaderEpoch: r.LeaderEpoch}, l.End, "")
			why.Do = fmt.Sprintf("find out why; then set confirmed=1 in the row of slotline_intent (sink %s) whose ranges name partition %d: what is left "+
				"of the batch is cut anew, and versions decide", u.loop.sink.Name(), p.Number)
			return why
		}
	}
	return nil
}

// goOn begins to read, or goes on after the leader's log, or History below it, was found to continue what was applied.
func (u *unit) goOn(m *member, at event.Position, l kafka.Log, past bool) {
	if s := m.stream; s != nil {
		s.mu.Lock()
		failed := s.trouble
		if epoch, blocked := s.q.blocked(); blocked {
			s.q.unblock(epoch)
		}
		s.mu.Unlock()
		if failed == nil {
			return
		}
		// The client gave up on the partition, but its log is as it should be. Should it give up again, the next try
		// comes later.
		u.outage.note(doingRead, failed)
		m.retryAt = time.Now().Add(m.reread.next())
		u.loop.reader.remove(s)
	}
	m.stream = newStream(at, l, u.wake)
	if !past {
		u.loop.reader.add(m.stream)
		return
	}
	need := int64(0)
	for _, r := range u.pending {
		if r.Partition == at.Partition {
			need = r.To
		}
	}
	u.loop.reader.addPast(m.stream, u.loop.opts.History, need)
}
