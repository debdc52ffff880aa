package kafka

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/fault"
)

const (
	// dialTimeout bounds one connection attempt; brokers on one network answer in milliseconds.
	dialTimeout = 5 * time.Second
	// openTimeout bounds the first contact in Open: long enough for one dial to each of two dead brokers.
	openTimeout = 12 * time.Second
	// metadataAgeMax is how long a client may miss a moved leader that no error told it about.
	metadataAgeMax = 30 * time.Second
	// metadataAgeMin is how soon a client may ask again after an error, or for a partition that it begins to read: a
	// failover takes about a second.
	metadataAgeMin = 200 * time.Millisecond
	// retryBackoffMax is the longest pause before a client tries a broker again; the library's own 5 s would come on top
	// of every restart of a broker.
	retryBackoffMax = time.Second
)

const (
	// envelopeBytesMax is the room that key, headers and batch framing take beside an event's body: key up to
	// 64+64+255 bytes, twelve headers (FORMATS.md) below 1.5 KiB; a traceparent and unknown headers come on top.
	envelopeBytesMax = 64 << 10
	// deadEnvelopeBytesMax is what a dead letter adds: the original key, a reason, and an error text that is cut.
	deadEnvelopeBytesMax = 64 << 10
	// batchBytesMin is Kafka's own default for max.message.bytes: topics are never made narrower.
	batchBytesMin = 1 << 20
)

// RecordBytesMax is the largest record batch of the line's event topics: max.message.bytes of the topic and the
// bound of its producers.
func RecordBytesMax(cfg *config.Config) int {
	return max(batchBytesMin, int(cfg.Outbox.EventBytesMax)+envelopeBytesMax)
}

// DeadRecordBytesMax is the same for the dead-letter topic: any event that fits its topic fits here.
func DeadRecordBytesMax(cfg *config.Config) int { return RecordBytesMax(cfg) + deadEnvelopeBytesMax }

// NewClient makes a client with what all clients of a line share: the brokers, how they are spoken to and as whom. It is
// the only place of the project that makes one. It does no I/O but to read the files and secrets of kafka.tls and
// kafka.sasl. role ("relay", "sink-mysql", "apply") becomes part of the client id, which quotas and broker logs show. log
// may be nil; more comes last. Errors are a *fault.Error.
func NewClient(cfg *config.Config, role string, log *slog.Logger, more ...kgo.Opt) (*kgo.Client, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(cfg.Kafka.Brokers...),
		kgo.ClientID("slotline-" + cfg.Line + "-" + role),
		kgo.DialTimeout(dialTimeout),
		kgo.MetadataMaxAge(metadataAgeMax),
		kgo.MetadataMinAge(metadataAgeMin),
		kgo.RetryBackoffFn(retryBackoff),
		kgo.ProducerBatchCompression(codec(cfg.Kafka.Compression)),
		kgo.ProducerBatchMaxBytes(int32(RecordBytesMax(cfg))),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.DisableClientMetrics(), // the line has its own; a broker is not sent any
	}
	if log != nil {
		opts = append(opts, kgo.WithLogger(&clientLog{log: log.With("client", role), brokers: cfg.Kafka.Brokers}))
	}
	secure, err := security(cfg)
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(slices.Concat(opts, secure, more)...)
	if err != nil {
		return nil, &fault.Error{Code: "SL2009", Class: fault.Usage, Err: err,
			What: "the Kafka client refuses its options: " + err.Error(),
			Do:   "correct kafka: in " + cfg.File}
	}
	return cl, nil
}

// Decompressor reads batches of at most so many bytes once they are decompressed. The library gives it to clients only;
// this one is never connected.
func Decompressor(bytesMax int, pool kgo.Pool) (kgo.Decompressor, error) {
	cl, err := kgo.NewClient(kgo.MaxDecompressBatchBytes(bytesMax), kgo.WithPools(pool))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	return cl.OptValue(kgo.WithDecompressor).(kgo.Decompressor), nil
}

// retryBackoff doubles from 50 ms, with jitter, so that clients that lost a broker together do not return together.
func retryBackoff(fails int) time.Duration {
	d := retryBackoffMax
	if fails < 5 {
		d = 50 * time.Millisecond << max(0, fails)
	}
	return d/2 + rand.N(d/2)
}

func codec(name string) kgo.CompressionCodec {
	switch name {
	case "none":
		return kgo.NoCompression()
	case "zstd":
		return kgo.ZstdCompression()
	default:
		return kgo.Lz4Compression()
	}
}

// Open makes a client and asks one broker for an answer, so that a wrong address or a refused login is known at start.
// The caller closes the client.
func Open(ctx context.Context, cfg *config.Config, role string, log *slog.Logger, more ...kgo.Opt) (*kgo.Client, error) {
	cl, err := NewClient(cfg, role, log, more...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, openTimeout, errNoAnswer)
	defer cancel()
	if err := cl.Ping(ctx); err != nil {
		cl.Close()
		if errors.Is(context.Cause(ctx), errNoAnswer) && isContext(err) {
			err = errNoAnswer
		}
		return nil, Wrap(err, cfg.Kafka.Brokers, "contact Kafka")
	}
	return cl, nil
}
