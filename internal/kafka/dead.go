package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/deadletter"
)

// Headers that a dead letter has beside those of the original record. sl_key is the original key, since the dead
// letter has one of its own.
const (
	headerReason = "sl_reason"
	headerError  = "sl_error"
	headerSink   = "sl_sink"
	headerAt     = "sl_at"
	headerKey    = "sl_key"
)

// Headers of the record that settles a dead letter: it has the letter's key, no value, and these alone.
const (
	headerSettled   = "sl_settled"
	headerSettledBy = "sl_by"
	headerWhy       = "sl_why"
)

// deadErrorBytesMax cuts error texts, so that a dead letter always fits its topic.
const deadErrorBytesMax = 4 << 10

// DeadLetter is an event that one sink cannot take, with its reason.
type DeadLetter struct {
	Sink      string
	Partition event.Partition // where the event lies
	Offset    int64
	Reason    string // short and stable: "too_long"
	Error     string // for a person
	At        time.Time
	Record    event.Record // the original, whole
	Repeats   int          // how often the same event was written; 1 or more when read
	// Place is where the letter itself lies in the dead-letter topic, when it was read.
	Place DeadPlace
	// Settled says how a person settled the letter; nil while it is open. An event that comes again after that, because
	// the sink was set back, is open again.
	Settled *deadletter.Settled
}

// DeadPlace is a record of the dead-letter topic.
type DeadPlace struct {
	Partition int32
	Offset    int64
}

// Key names an event at one sink; repeats have the same.
func (d *DeadLetter) Key() string {
	return fmt.Sprintf("%s/%s/%d/%d", d.Sink, d.Partition.Topic, d.Partition.Number, d.Offset)
}

// record makes the Kafka record of a dead letter.
func (d *DeadLetter) record(topic string) *kgo.Record {
	headers := make([]kgo.RecordHeader, 0, len(d.Record.Headers)+5)
	for _, h := range d.Record.Headers {
		headers = append(headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	headers = append(headers,
		kgo.RecordHeader{Key: headerReason, Value: []byte(d.Reason)},
		kgo.RecordHeader{Key: headerError, Value: []byte(cut(d.Error, deadErrorBytesMax))},
		kgo.RecordHeader{Key: headerSink, Value: []byte(d.Sink)},
		kgo.RecordHeader{Key: headerAt, Value: []byte(d.At.UTC().Format(time.RFC3339Nano))},
		kgo.RecordHeader{Key: headerKey, Value: d.Record.Key})
	return &kgo.Record{Topic: topic, Key: []byte(d.Key()), Value: d.Record.Value, Headers: headers}
}

// cut shortens s to at most n bytes, at a rune.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// parseDead reads a record of the dead-letter topic. Our headers are the last five: an event that was a dead letter
// before and was sent again keeps the old ones in front.
func parseDead(r *kgo.Record) (DeadLetter, error) {
	bad := func(what string) (DeadLetter, error) {
		return DeadLetter{}, fmt.Errorf("%s partition %d offset %d is not a dead letter: %s", r.Topic, r.Partition, r.Offset, what)
	}
	d := DeadLetter{Repeats: 1, Place: DeadPlace{r.Partition, r.Offset}}
	parts := strings.Split(string(r.Key), "/")
	if len(parts) != 4 {
		return bad("its key is not sink/topic/partition/offset")
	}
	number, errNumber := strconv.ParseInt(parts[2], 10, 32)
	offset, errOffset := strconv.ParseInt(parts[3], 10, 64)
	if errNumber != nil || errOffset != nil {
		return bad("its key is not sink/topic/partition/offset")
	}
	d.Sink, d.Partition, d.Offset = parts[0], event.Partition{Topic: parts[1], Number: int32(number)}, offset
	own := len(r.Headers) - 5
	if own < 0 || r.Headers[own].Key != headerReason || r.Headers[own+4].Key != headerKey {
		return bad("its last headers are not sl_reason sl_error sl_sink sl_at sl_key")
	}
	d.Reason, d.Error = string(r.Headers[own].Value), string(r.Headers[own+1].Value)
	d.At, _ = time.Parse(time.RFC3339Nano, string(r.Headers[own+3].Value))
	d.Record = event.Record{Key: r.Headers[own+4].Value, Value: r.Value}
	for _, h := range r.Headers[:own] {
		d.Record.Headers = append(d.Record.Headers, event.Header{Key: h.Key, Value: h.Value})
	}
	return d, nil
}

// settledRecord is the record that says how the letter of a key was settled.
func settledRecord(topic, key string, s deadletter.Settled) *kgo.Record {
	return &kgo.Record{Topic: topic, Key: []byte(key), Headers: []kgo.RecordHeader{
		{Key: headerSettled, Value: []byte(s.Action)},
		{Key: headerSettledBy, Value: []byte(cut(s.By, deadletter.ByBytesMax))},
		{Key: headerWhy, Value: []byte(cut(s.Why, deadletter.WhyBytesMax))},
		{Key: headerAt, Value: []byte(s.At.UTC().Format(time.RFC3339Nano))}}}
}

// parseSettled reads such a record. No event has a header of its first name in the first place.
func parseSettled(r *kgo.Record) (s deadletter.Settled, ok bool) {
	if len(r.Headers) != 4 || r.Headers[0].Key != headerSettled || len(r.Value) > 0 {
		return s, false
	}
	s = deadletter.Settled{Action: deadletter.Action(r.Headers[0].Value), By: string(r.Headers[1].Value), Why: string(r.Headers[2].Value)}
	s.At, _ = time.Parse(time.RFC3339Nano, string(r.Headers[3].Value))
	return s, s.Action.Known()
}

// Dead writes dead letters. It is safe for concurrent use.
type Dead struct {
	cl      *kgo.Client
	topic   string
	brokers []string
}

// NewDead makes the client that writes dead letters; it does no I/O. Close it.
func NewDead(cfg *config.Config, role string, log *slog.Logger, more ...kgo.Opt) (*Dead, error) {
	opts := append([]kgo.Opt{
		kgo.ProducerBatchMaxBytes(int32(DeadRecordBytesMax(cfg))),
		// Counts towards memory_bytes_max; a flood halts the partition long before throughput matters.
		kgo.MaxBufferedBytes(4 * DeadRecordBytesMax(cfg)),
		kgo.ProducerLinger(0)}, more...)
	cl, err := NewClient(cfg, role+"-dead", log, opts...)
	if err != nil {
		return nil, err
	}
	return &Dead{cl: cl, topic: cfg.Dead.Topic, brokers: cfg.Kafka.Brokers}, nil
}

// Produce writes the letters and returns when all are acknowledged. After an error some may have been written: write
// all of them again, readers fold repeats.
func (d *Dead) Produce(ctx context.Context, letters []DeadLetter) error {
	records := make([]*kgo.Record, len(letters))
	for i := range letters {
		records[i] = letters[i].record(d.topic)
	}
	return d.produce(ctx, records)
}

// Settle records how the letters of these keys were settled, and returns when that is acknowledged. After an error some
// may have been settled; settling again does no harm.
func (d *Dead) Settle(ctx context.Context, keys []string, s deadletter.Settled) error {
	records := make([]*kgo.Record, len(keys))
	for i, key := range keys {
		records[i] = settledRecord(d.topic, key, s)
	}
	return d.produce(ctx, records)
}

func (d *Dead) produce(ctx context.Context, records []*kgo.Record) error {
	for _, r := range d.cl.ProduceSync(ctx, records...) {
		if r.Err != nil {
			return Wrap(r.Err, d.brokers, fmt.Sprintf("write dead letter %s to topic %s", r.Record.Key, d.topic))
		}
	}
	return nil
}

// Close ends the client.
func (d *Dead) Close() { d.cl.Close() }

// DeadLetters reads the whole dead-letter topic as it is now and folds repeats: the latest of each key is kept, at
// the place of its first. keep says which are wanted whole (nil: none); the others come without value and headers, so
// that a long list fits in memory.
func DeadLetters(ctx context.Context, cfg *config.Config, log *slog.Logger, keep func(*DeadLetter) bool) ([]DeadLetter, error) {
	fold := newFold(keep)
	err := readAll(ctx, cfg, log, cfg.Dead.Topic, func(r *kgo.Record) {
		if s, ok := parseSettled(r); ok {
			fold.settle(string(r.Key), s)
		} else if d, err := parseDead(r); err != nil {
			if log != nil {
				log.Warn("skipped a record of the dead-letter topic", "error", err)
			}
		} else {
			fold.add(d)
		}
	})
	return fold.letters, err
}

// EachDeadLetter calls each for the letters that lie at given places, whole; the letter is valid during the call only. An
// error of each ends the reading.
func EachDeadLetter(ctx context.Context, cfg *config.Config, log *slog.Logger, at map[DeadPlace]bool, each func(*DeadLetter) error) error {
	from, to := map[event.Partition]int64{}, map[event.Partition]int64{}
	for place := range at {
		p := event.Partition{Topic: cfg.Dead.Topic, Number: place.Partition}
		if first, known := from[p]; !known || place.Offset < first {
			from[p] = place.Offset
		}
		to[p] = max(to[p], place.Offset+1)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var failed error
	err := Scan(ctx, cfg, "read", log, from, to, func(r *kgo.Record) {
		if failed != nil || !at[DeadPlace{r.Partition, r.Offset}] {
			return
		}
		d, err := parseDead(r)
		if err == nil {
			err = each(&d)
		}
		if failed = err; failed != nil {
			stop()
		}
	})
	if failed != nil {
		return failed
	}
	return err
}

// fold keeps the latest letter of each key.
type fold struct {
	keep    func(*DeadLetter) bool
	letters []DeadLetter
	index   map[string]int
}

func newFold(keep func(*DeadLetter) bool) *fold { return &fold{keep: keep, index: map[string]int{}} }

func (f *fold) add(d DeadLetter) {
	if f.keep == nil || !f.keep(&d) {
		d.Record = event.Record{Key: d.Record.Key}
	}
	key := d.Key()
	if at, ok := f.index[key]; ok {
		d.Repeats = f.letters[at].Repeats + 1
		f.letters[at] = d
		return
	}
	f.index[key] = len(f.letters)
	f.letters = append(f.letters, d)
}

// settle marks the letter of a key; one whose letter has expired says nothing.
func (f *fold) settle(key string, s deadletter.Settled) {
	if at, ok := f.index[key]; ok {
		f.letters[at].Settled = &s
	}
}
