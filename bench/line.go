package main

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/internal/line"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/partitioner"
)

const partitions = 4

// testLine is a line of one bench: its outbox and its one shard are databases of one MySQL server.
type testLine struct {
	*bench
	cfg    *config.Config
	layout *partitioner.Layout
	log    *slog.Logger
}

// newLine makes the servers ready and applies the file. tables and what follows are keys of slotline.yaml, written out.
func (b *bench) newLine(outboxKeys, tables string, more ...string) *testLine {
	return b.newLineOn(nil, outboxKeys, tables, more...)
}

// newLineOn is newLine with a second shard, on another server, unless second is nil.
func (b *bench) newLineOn(second *harness.MySQLServer, outboxKeys, tables string, more ...string) *testLine {
	k, m := harness.Kafka(b), harness.MySQL(b)
	m.MakeDurable(b)
	name := harness.Name(b)
	k.Topics(b, name)
	m.NewDatabase(b, name)
	m.NewDatabase(b, name+"_s1")
	shards := fmt.Sprintf("s1: { dsn: %q, slots: 0-1023 }", m.URL(name+"_s1"))
	if second != nil {
		second.NewDatabase(b, name+"_s2")
		shards = fmt.Sprintf("s1: { dsn: %q, slots: 0-511 }, s2: { dsn: %q, slots: 512-1023 }", m.URL(name+"_s1"), second.URL(name+"_s2"))
	}
	cfg, err := config.Parse("slotline.yaml", []byte(fmt.Sprintf(`line: %s
kafka: { brokers: [%s], partitions: %d, replication: 1 }
outbox: { dsn: %q%s }
shards: { %s }
%s
%s
`, name, strings.Join(k.Brokers, ", "), partitions, m.URL(name), outboxKeys, shards, tables, strings.Join(more, "\n"))))
	if err != nil {
		b.Fatal(err)
	}
	l := &testLine{bench: b, cfg: cfg, log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	spec, err := cfg.Layout.WithPartitions(partitions)
	if err != nil {
		b.Fatal(err)
	}
	if l.layout, err = partitioner.New(spec); err != nil {
		b.Fatal(err)
	}
	applied := line.New(cfg, l.log)
	defer applied.Close()
	plan, err := applied.Plan(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	if err := applied.Apply(b.Context(), plan); err != nil {
		b.Fatal(err)
	}
	l.noteVersions()
	return l
}

func (l *testLine) noteVersions() {
	var version string
	if err := l.outbox(1).QueryRowContext(l.Context(), "SELECT VERSION()").Scan(&version); err != nil {
		l.Fatal(err)
	}
	sawVersion("MySQL", version)
	api, err := kadm.NewClient(l.client()).ApiVersions(l.Context())
	if err != nil {
		l.Fatal(err)
	}
	for _, broker := range api {
		sawVersion("Kafka", strings.TrimPrefix(broker.VersionGuess(), "v"))
	}
}

// outbox is a pool of its own for the outbox database.
func (l *testLine) outbox(conns int) *sql.DB { return l.open(l.cfg.Outbox.DSN, conns) }

// shard is the same for the shard.
func (l *testLine) shard(conns int) *sql.DB { return l.open(l.cfg.Shards[0].DSN, conns) }

func (l *testLine) open(dsn config.DSN, conns int) *sql.DB {
	db, err := mysqldb.Open(dsn, mysqldb.Options{MaxConns: conns})
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { db.Close() })
	return db
}

// exec runs statements that must succeed.
func (l *testLine) exec(db *sql.DB, statements ...string) {
	for _, s := range statements {
		if _, err := db.ExecContext(l.Context(), s); err != nil {
			l.Fatalf("%.100s: %v", s, err)
		}
	}
}

// client is a Kafka client with the line's own options, as the bare loops use it.
func (l *testLine) client(more ...kgo.Opt) *kgo.Client {
	opts := []kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.MaxBufferedRecords(100_000)}
	client, err := kafka.NewClient(l.cfg, "bench", nil, append(opts, more...)...)
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(client.Close)
	return client
}

// newTopic makes one more topic, of the line's shape, and returns its name.
func (l *testLine) newTopic(suffix string) string {
	topic := kafka.Topics(l.cfg)[0]
	topic.Name = l.cfg.Line + "." + suffix
	if err := topic.Create(l.Context(), l.client()); err != nil {
		l.Fatal(err)
	}
	return topic.Name
}

// record is what the relay makes of an event, to a topic's partition that the event's tenant belongs to.
func (l *testLine) record(e *event.Event, topic string) *kgo.Record {
	_, rec := e.AppendRecord(nil, event.Source(l.cfg.Line))
	headers := make([]kgo.RecordHeader, len(rec.Headers))
	for i, h := range rec.Headers {
		headers[i] = kgo.RecordHeader(h)
	}
	return &kgo.Record{Topic: topic, Partition: l.layout.Route(e.Tenant, "").Partition, Key: rec.Key, Value: rec.Value, Headers: headers}
}

// produceAll sends n records and waits for all acknowledgements. The client writes into them.
func (l *testLine) produceAll(client *kgo.Client, n int, next func(i int) *kgo.Record) {
	failed := make(chan error, 1)
	for i := range n {
		client.Produce(l.Context(), next(i), func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	if err := client.Flush(l.Context()); err != nil {
		l.Fatal(err)
	}
	select {
	case err := <-failed:
		l.Fatal(err)
	default:
	}
}

// tenants are names that spread over the partitions, as many for each.
func (l *testLine) tenants(perPartition int) []string {
	var list []string
	counts := make([]int, partitions)
	for i := 0; len(list) < perPartition*partitions; i++ {
		tenant := fmt.Sprintf("t%05d", i)
		if p := l.layout.Route(tenant, "").Partition; counts[p] < perPartition {
			counts[p]++
			list = append(list, tenant)
		}
	}
	return list
}

// await waits for done, or fails: nothing here may hang a run.
func (l *testLine) await(done <-chan struct{}, limit time.Duration, what string, state func() string) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		l.Fatalf("%s: not done after %s: %s", what, limit, state())
	}
}

// ending stops what run does when the bench ends, and fails the bench if it ended badly.
func (l *testLine) ending(run func(ctx context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(l.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }() // owned here: stop waits for it
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			l.Fatal(err)
		}
	}
	l.Cleanup(stop)
	return stop
}
