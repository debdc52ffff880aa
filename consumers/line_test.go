package consumers_test

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

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/consumers"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/sinktest"
)

// testLine is a line over a fake Kafka: a topic of four partitions, the suite's tables, an in-memory sink.
type testLine struct {
	testing.TB
	kafka  *kfake.Cluster
	setup  sinktest.Setup
	memory *sinktest.Memory
	cl     *kgo.Client
	sent   map[string]int64 // greatest version produced, by entity
	next   map[int32]int64
}

// waitMax bounds every wait of a test; nothing here takes a second on an idle machine.
const waitMax = 60 * time.Second

func newLine(t testing.TB, opts ...kfake.Opt) *testLine {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(2), kfake.GroupMinSessionTimeout(100 * time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	const nowhere = "mysql://nobody@127.0.0.1:1/none"
	setup := sinktest.NewSetup(t, sinktest.YAML(nowhere+"1", nowhere+"2", nowhere,
		"sinks: { mysql: { batch_rows: 50, batch_age: 5ms } }\nlimits: { memory_bytes_max: 256MiB, drain_timeout: 5s }\n"))
	setup.Config.Kafka.Brokers = c.ListenAddrs()
	l := &testLine{TB: t, kafka: c, setup: setup, memory: sinktest.NewMemory(), sent: map[string]int64{}, next: map[int32]int64{}}
	if l.cl, err = kafka.Open(t.Context(), setup.Config, "test", nil, kgo.RecordPartitioner(kgo.ManualPartitioner())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.cl.Close)
	for _, topic := range kafka.Topics(setup.Config) {
		if err := topic.Create(t.Context(), l.cl); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func (l *testLine) part(n int32) event.Partition {
	return event.Partition{Topic: l.setup.Config.Kafka.Topic, Number: n}
}

// record is an order of a tenant, to the partition given: the in-memory sink does not mind.
func (l *testLine) record(p int32, id, version int64, body string) *kgo.Record {
	l.Helper()
	t := l.setup.Config.Table("orders")
	tenant := fmt.Sprint("t", p)
	at := time.Date(2026, 6, 15, 0, 0, 0, 0, time.UTC)
	e := event.Event{ID: event.NewID(), Table: t.Name, Tenant: tenant, EntityID: fmt.Sprint(id), Op: event.Upsert, Version: version,
		Time: at, LayoutEpoch: l.setup.Layout.Epoch(), Outbox: event.OutboxPosition{Generation: 1, ID: uint64(version)}}
	var err error
	if e.Body, err = t.AppendRow(nil, []event.Value{sinktest.Text(tenant), sinktest.Int(id), sinktest.Time(at),
		sinktest.Text("s"), sinktest.Int(version), sinktest.Null()}, event.Upsert); err != nil {
		l.Fatal(err)
	}
	if body != "" {
		e.Body = []byte(body)
	}
	_, rec := e.AppendRecord(nil, "slotline/suite")
	r := &kgo.Record{Topic: l.setup.Config.Kafka.Topic, Partition: p, Key: rec.Key, Value: rec.Value}
	for _, h := range rec.Headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	return r
}

// produce writes n orders to each of the partitions: new versions of ten entities.
func (l *testLine) produce(n int, parts ...int32) {
	l.Helper()
	var records []*kgo.Record
	for i := range n {
		for _, p := range parts {
			l.next[p]++
			id := int64(i % 10)
			l.sent[fmt.Sprint("t", p, "/", id)] = l.next[p]
			records = append(records, l.record(p, id, l.next[p], ""))
		}
	}
	l.send(l.cl, records...)
}

func (l *testLine) send(cl *kgo.Client, records ...*kgo.Record) {
	l.Helper()
	if err := cl.ProduceSync(l.Context(), records...).FirstErr(); err != nil {
		l.Fatal(err)
	}
}

// process is one Run.
type process struct {
	l      *testLine
	cancel context.CancelFunc
	done   chan error
	log    *logBuffer
	reg    *prometheus.Registry
}

// run starts a process; it is stopped, at the latest, when the test ends.
func (l *testLine) run(sink consumers.Sink, set func(*consumers.Options)) *process {
	l.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{l: l, cancel: cancel, done: make(chan error, 1), log: &logBuffer{}, reg: prometheus.NewRegistry()}
	o := consumers.Options{Config: l.setup.Config, Sink: sink, SessionTimeout: time.Second, CheckPeriod: 50 * time.Millisecond,
		HaltRetry: 100 * time.Millisecond, BackoffMax: 100 * time.Millisecond, Registerer: p.reg,
		Logger: slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelInfo}))}
	if set != nil {
		set(&o)
	}
	go func() { p.done <- consumers.Run(ctx, o) }()
	l.Cleanup(func() {
		p.stop()
		if l.Failed() {
			l.Logf("log of a process:\n%s", p.log)
		}
	})
	return p
}

func (l *testLine) sink() consumers.Sink { return l.memory.Open(l.setup.Config, l.setup.Layout, 0) }

func (l *testLine) groups(n int) consumers.Sink {
	return l.memory.Open(l.setup.Config, l.setup.Layout, n)
}

// stop ends the process as SIGTERM does and returns what Run returned.
func (p *process) stop() error {
	p.l.Helper()
	p.cancel()
	select {
	case err := <-p.done:
		p.done <- err
		return err
	case <-time.After(waitMax):
		p.l.Fatal("Run does not end")
		return nil
	}
}

// metric is the sum of a metric over its labels; want names label values that must match.
func (p *process) metric(name string, want ...string) float64 {
	p.l.Helper()
	families, err := p.reg.Gather()
	if err != nil {
		p.l.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != "slotline_sink_"+name {
			continue
		}
	metrics:
		for _, m := range f.GetMetric() {
			for i := 0; i < len(want); i += 2 {
				ok := false
				for _, label := range m.GetLabel() {
					ok = ok || label.GetName() == want[i] && label.GetValue() == want[i+1]
				}
				if !ok {
					continue metrics
				}
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

// until waits for a condition.
func (l *testLine) until(what string, ok func() bool) {
	l.Helper()
	for end := time.Now().Add(waitMax); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
	}
	l.Fatalf("waited in vain until %s", what)
}

// ends are the ends of the log.
func (l *testLine) ends() map[int32]int64 {
	l.Helper()
	listed, err := kadm.NewClient(l.cl).ListEndOffsets(l.Context(), l.setup.Config.Kafka.Topic)
	if err != nil {
		l.Fatal(err)
	}
	ends := map[int32]int64{}
	listed.Each(func(o kadm.ListedOffset) { ends[o.Partition] = o.Offset })
	return ends
}

// untilDrained waits until progress is at the end of the given partitions, or of all.
func (l *testLine) untilDrained(parts ...int32) {
	l.Helper()
	ends := l.ends()
	if len(parts) == 0 {
		parts = []int32{0, 1, 2, 3}
	}
	l.until("the sink stands at the end of the log", func() bool {
		at := l.memory.Positions()
		for _, p := range parts {
			if at[l.part(p)].Next != ends[p] {
				return false
			}
		}
		return true
	})
}

// check compares the rows with the greatest version that was produced of each entity.
func (l *testLine) check() {
	l.Helper()
	for e, version := range l.sent {
		tenant, id, _ := strings.Cut(e, "/")
		if got := l.memory.Version("orders", tenant, id); got != version {
			l.Errorf("order %s has version %d, want %d", e, got, version)
		}
	}
}

// deadLetters reads the dead-letter topic.
func (l *testLine) deadLetters() []kafka.DeadLetter {
	l.Helper()
	letters, err := kafka.DeadLetters(l.Context(), l.setup.Config, nil, func(*kafka.DeadLetter) bool { return true })
	if err != nil {
		l.Fatal(err)
	}
	return letters
}

// halted is Run's error as *consumers.Halted.
func (l *testLine) halted(err error) *consumers.Halted {
	l.Helper()
	h, ok := errors.AsType[*consumers.Halted](err)
	if !ok {
		l.Fatalf("Run returned %v, want *consumers.Halted", err)
	}
	return h
}

// logBuffer is a log that may be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

type (
	consumersOptions = consumers.Options
	layoutOf         = partitioner.Layout
)

func mustLayout(t *testing.T, spec partitioner.Spec) *partitioner.Layout {
	t.Helper()
	layout, err := partitioner.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return layout
}
