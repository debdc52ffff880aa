package main

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/outbox"
	outboxkafka "github.com/slotline/slotline/outbox/kafka"
)

// relayConnections are enough for four a lane.
const relayConnections = 16

// acks calls each for every record that a client has an answer for, as soon as it has it.
type acks struct {
	each func(r *kgo.Record, err error)
}

// OnProduceRecordUnbuffered implements kgo.HookProduceRecordUnbuffered.
func (a acks) OnProduceRecordUnbuffered(r *kgo.Record, err error) { a.each(r, err) }

// newRelay is the line's relay. begins is called when a lane's writer is made: the lease is held by then, and reading
// begins.
func (l *testLine) newRelay(begins func(), acked func(r *kgo.Record, err error)) *outbox.Relay {
	return outbox.New(outbox.Options{Config: l.cfg, Layout: l.layout, DB: l.outbox(relayConnections), Logger: l.log,
		NewWriter: func(lane int) (outbox.Writer, error) {
			begins()
			return outboxkafka.New(l.cfg, lane, l.log, kgo.WithHooks(acks{acked}))
		}})
}
