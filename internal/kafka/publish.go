package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
)

// publishTimeout is how long a command waits for an acknowledgement: longer than any election.
const publishTimeout = 30 * time.Second

// Publisher writes single records to given partitions, for commands. The relay has a writer of its own.
type Publisher struct {
	cl  *kgo.Client
	cfg *config.Config
}

// NewPublisher makes a publisher and has an answer from a broker. Close it.
func NewPublisher(ctx context.Context, cfg *config.Config, role string, log *slog.Logger) (*Publisher, error) {
	cl, err := Open(ctx, cfg, role, log, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.RecordDeliveryTimeout(publishTimeout))
	if err != nil {
		return nil, err
	}
	return &Publisher{cl, cfg}, nil
}

// Publish writes one record and returns its offset once all in-sync replicas have it. tooLarge says that the topic
// refuses the record for its size. After any other error it may have been written or not.
func (p *Publisher) Publish(ctx context.Context, to event.Partition, rec event.Record) (offset int64, tooLarge bool, err error) {
	headers := make([]kgo.RecordHeader, len(rec.Headers))
	for i, h := range rec.Headers {
		headers[i] = kgo.RecordHeader(h)
	}
	r, err := p.cl.ProduceSync(ctx, &kgo.Record{Topic: to.Topic, Partition: to.Number, Key: rec.Key, Value: rec.Value, Headers: headers}).First()
	if errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge) {
		return 0, true, nil
	}
	if err != nil {
		return 0, false, Wrap(err, p.cfg.Kafka.Brokers, fmt.Sprintf("publish to topic %s partition %d", to.Topic, to.Number))
	}
	return r.Offset, false, nil
}

// Close ends the client.
func (p *Publisher) Close() { p.cl.Close() }
