package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/consumers"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/sinks/mysql"
	"github.com/slotline/slotline/sinks/olap/clickhouse"
	"github.com/slotline/slotline/sinks/sinktest"
)

// Without these the halts of a sink would be recorded nowhere, in silence.
var (
	_ consumers.Halter = (*mysql.Sink)(nil)
	_ consumers.Halter = (*clickhouse.Sink)(nil)
)

// consumerLine is the consumers and a real Kafka, with a sink in memory: what is under test is the reading.
type consumerLine struct {
	*testing.T
	setup  sinktest.Setup
	memory *sinktest.Memory
	cl     *kgo.Client
	next   map[int32]int64
}

func newConsumerLine(t *testing.T, server *harness.KafkaServer) *consumerLine {
	t.Helper()
	const nowhere = "mysql://nobody@127.0.0.1:1/none"
	setup := sinktest.NewSetup(t, sinktest.YAML(nowhere+"1", nowhere+"2", nowhere,
		"sinks: { mysql: { batch_rows: 100, batch_age: 5ms } }\nlimits: { memory_bytes_max: 256MiB, drain_timeout: 5s }\n"))
	name := harness.Name(t)
	server.Topics(t, name)
	cfg := setup.Config
	cfg.Line, cfg.Kafka.Topic, cfg.Dead.Topic, cfg.Kafka.Brokers = name, name+".events", name+".dead", server.Brokers
	for _, table := range cfg.Tables {
		table.Topic = ""
	}
	l := &consumerLine{T: t, setup: setup, memory: sinktest.NewMemory(), next: map[int32]int64{}}
	var err error
	if l.cl, err = kafka.Open(t.Context(), cfg, "test", nil, kgo.RecordPartitioner(kgo.ManualPartitioner())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.cl.Close)
	l.apply()
	return l
}

// apply makes the topics by the plan, as `slotline apply` does.
func (l *consumerLine) apply() {
	l.Helper()
	changes, _, err := kafka.Plan(l.Context(), l.cl, l.setup.Config, 0)
	if err != nil {
		l.Fatal(err)
	}
	for _, c := range changes {
		if err := c.Apply(l.Context()); err != nil {
			l.Fatal(err)
		}
	}
}

func (l *consumerLine) topic() string { return l.setup.Config.Kafka.Topic }

func (l *consumerLine) part(n int32) event.Partition {
	return event.Partition{Topic: l.topic(), Number: n}
}

// produce writes n new versions of ten entities to each partition.
func (l *consumerLine) produce(cl *kgo.Client, n int, parts ...int32) {
	l.Helper()
	table := l.setup.Config.Table("orders")
	at := time.Date(2026, 6, 15, 0, 0, 0, 0, time.UTC)
	var records []*kgo.Record
	for i := range n {
		for _, p := range parts {
			l.next[p]++
			tenant, id := fmt.Sprint("t", p), int64(i%10)
			e := event.Event{ID: event.NewID(), Table: table.Name, Tenant: tenant, EntityID: fmt.Sprint(id), Op: event.Upsert,
				Version: l.next[p], Time: at, LayoutEpoch: 1, Outbox: event.OutboxPosition{Generation: 1, ID: uint64(l.next[p])}}
			body, err := table.AppendRow(nil, []event.Value{sinktest.Text(tenant), sinktest.Int(id), sinktest.Time(at),
				sinktest.Text("s"), sinktest.Int(int64(i)), sinktest.Null()}, event.Upsert)
			if err != nil {
				l.Fatal(err)
			}
			e.Body = body
			_, rec := e.AppendRecord(nil, "slotline/suite")
			r := &kgo.Record{Topic: l.topic(), Partition: p, Key: rec.Key, Value: rec.Value}
			for _, h := range rec.Headers {
				r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
			}
			records = append(records, r)
		}
	}
	if err := cl.ProduceSync(l.Context(), records...).FirstErr(); err != nil {
		l.Fatal(err)
	}
}

// consume runs the consumers; stop ends them as SIGTERM does.
func (l *consumerLine) consume(groups int, set func(*consumers.Options)) (stop func() error) {
	l.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var log lockedBuffer
	o := consumers.Options{Config: l.setup.Config, Sink: l.memory.Open(l.setup.Config, l.setup.Layout, groups),
		SessionTimeout: 6 * time.Second, CheckPeriod: 200 * time.Millisecond, HaltRetry: 500 * time.Millisecond, BackoffMax: time.Second,
		Logger: slog.New(slog.NewTextHandler(&log, nil))}
	if set != nil {
		set(&o)
	}
	done := make(chan error, 1)
	go func() { done <- consumers.Run(ctx, o) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	l.Cleanup(func() {
		stop()
		if l.Failed() {
			l.Logf("log of a process:\n%s", log.String())
		}
	})
	return stop
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (l *consumerLine) until(what string, ok func() bool) {
	l.Helper()
	for end := harness.Deadline(2 * time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if ok() {
			return
		}
	}
	l.Fatalf("waited in vain until %s", what)
}

// untilDrained waits until progress is at the end of the log, markers included: those come a moment after the commit.
func (l *consumerLine) untilDrained(parts ...int32) {
	l.Helper()
	if len(parts) == 0 {
		parts = []int32{0, 1, 2, 3}
	}
	adm := kadm.NewClient(l.cl)
	l.until("the sink stands at the end of the log", func() bool {
		ends, err := adm.ListEndOffsets(l.Context(), l.topic())
		if err != nil || ends.Error() != nil {
			return false
		}
		at := l.memory.Positions()
		for _, p := range parts {
			if e, _ := ends.Lookup(l.topic(), p); at[l.part(p)].Next != e.Offset {
				return false
			}
		}
		return true
	})
}

// check compares each partition's newest version with what was produced.
func (l *consumerLine) check() {
	l.Helper()
	for p, version := range l.next {
		newest := int64(0)
		for id := range 10 {
			newest = max(newest, l.memory.Version("orders", fmt.Sprint("t", p), fmt.Sprint(id)))
		}
		if newest != version {
			l.Errorf("partition %d: the newest version is %d, want %d", p, newest, version)
		}
	}
}

func haltCodes(err error) map[int32]string {
	codes := map[int32]string{}
	if h, ok := errors.AsType[*consumers.Halted](err); ok {
		for _, p := range h.Halts {
			codes[p.Number] = p.Why.Code
		}
	}
	return codes
}

// Events and transactions, committed and aborted, with two members that come and go: every event is applied, and the
// sink reaches the end of the log, where a marker is.
func TestConsumersOnRealKafka(t *testing.T) {
	t.Parallel() // long
	for name, groups := range map[string]int{"group": 0, "fixed groups": 2} {
		t.Run(name, func(t *testing.T) {
			l := newConsumerLine(t, harness.Kafka(t))
			l.memory.Lease = time.Second
			tx, err := kafka.Open(t.Context(), l.setup.Config, "tx", nil, kgo.TransactionalID(l.setup.Config.Line), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Close()
			stay := l.consume(groups, nil)
			for i := range 6 {
				before := map[int32]int64{}
				for p, v := range l.next {
					before[p] = v
				}
				if err := tx.BeginTransaction(); err != nil {
					t.Fatal(err)
				}
				l.produce(tx, 40, 0, 1, 2, 3)
				commit := i%3 != 1
				if !commit {
					l.next = before
				}
				if err := tx.EndTransaction(t.Context(), kgo.TransactionEndTry(commit)); err != nil {
					t.Fatal(err)
				}
				if i == 2 {
					guest := l.consume(groups, nil)
					l.produce(l.cl, 200, 0, 1, 2, 3)
					l.untilDrained()
					if err := guest(); err != nil {
						t.Error(err)
					}
				}
				l.untilDrained()
				l.check()
			}
			if err := stay(); err != nil {
				t.Error(err)
			}
		})
	}
}

// P8 on a real broker: records deleted ahead of the sink halt that partition, the others go on, accept-gap is the way
// past.
func TestP8_DeletedRecordsHaltOnRealKafka(t *testing.T) {
	t.Parallel()
	l := newConsumerLine(t, harness.Kafka(t))
	stop := l.consume(0, nil)
	l.produce(l.cl, 100, 0, 1, 2, 3)
	l.untilDrained()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	l.produce(l.cl, 50, 0, 1, 2, 3)
	offsets := kadm.Offsets{}
	offsets.AddOffset(l.topic(), 1, 130, -1)
	if _, err := kadm.NewClient(l.cl).DeleteRecords(t.Context(), offsets); err != nil {
		t.Fatal(err)
	}
	stop = l.consume(0, nil)
	l.untilDrained(0, 2, 3)
	l.until("the halt is recorded", func() bool { return l.memory.Halts()[l.part(1)] != nil })
	const want = "offset 100 is gone from Kafka (log starts at 130): 30 offsets cannot be applied. Nothing was skipped."
	if why := l.memory.Halts()[l.part(1)]; why.What != want {
		t.Errorf("halted with: %v", why)
	}
	l.memory.SetPosition(event.Position{Partition: l.part(1), Next: 130, LeaderEpoch: -1}, true)
	l.untilDrained()
	l.check()
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// P8 on a real broker: the topic is deleted and made again under a running sink.
func TestP8_RecreatedTopicHaltsOnRealKafka(t *testing.T) {
	t.Parallel()
	l := newConsumerLine(t, harness.Kafka(t))
	stop := l.consume(0, nil)
	l.produce(l.cl, 100, 0, 1, 2, 3)
	l.untilDrained()
	adm := kadm.NewClient(l.cl)
	if _, err := adm.DeleteTopics(t.Context(), l.topic()); err != nil {
		t.Fatal(err)
	}
	l.until("the topic is gone", func() bool {
		topics, err := adm.ListTopics(t.Context(), l.topic())
		return err == nil && topics[l.topic()].Err != nil
	})
	l.cl.PurgeTopicsFromProducing(l.topic())
	l.apply()
	applied := l.memory.Applied()
	l.produce(l.cl, 150, 0, 1, 2, 3)
	l.until("every partition is halted", func() bool { return len(l.memory.Halts()) == 4 })
	if n := l.memory.Applied(); n != applied {
		t.Errorf("%d messages of another topic were applied", n-applied)
	}
	err := stop()
	for p, code := range haltCodes(err) {
		if code != "SL6003" {
			t.Errorf("partition %d halted with %s", p, code)
		}
	}
	if !fault.Is(err, fault.Fatal) || !strings.Contains(err.Error(), "deleted and made again") {
		t.Errorf("Run returned %v", err)
	}
}

// A broker that is killed and comes back is an outage: it halts nothing, whatever leader epochs it comes back with.
func TestConsumersOutliveTheBroker(t *testing.T) {
	harness.LeaveToCI(t) // TestWholeLine_Kills restarts the broker too
	server := harness.PrivateKafka(t)
	l := newConsumerLine(t, server)
	stopGroup := l.consume(0, nil)
	for range 2 {
		l.produce(l.cl, 100, 0, 1, 2, 3)
		l.untilDrained()
		server.Kill(t)
		server.Start(t)
		back := time.Now()
		l.produce(l.cl, 100, 0, 1, 2, 3)
		produced := time.Since(back)
		l.untilDrained()
		t.Logf("after the broker was back: produced within %v, applied within %v", produced, time.Since(back))
	}
	l.check()
	if err := stopGroup(); err != nil {
		t.Error(err)
	}
	at := l.memory.Positions()[l.part(0)]
	t.Logf("leader epoch after two restarts: %d", at.LeaderEpoch)
	if h := l.memory.Halts(); len(h) > 0 {
		t.Errorf("halted: %v", h)
	}
}
