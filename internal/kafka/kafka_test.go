package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/plan"
	"github.com/slotline/slotline/partitioner"
)

func testConfig(brokers []string) *config.Config {
	return &config.Config{File: "slotline.yaml", Line: "flights",
		Kafka:  config.Kafka{Brokers: brokers, Topic: "flights.events", Partitions: 4, Replication: 1, Compression: "lz4"},
		Layout: partitioner.Spec{Epoch: 1},
		Outbox: config.Outbox{EventBytesMax: 900 << 10},
		Dead:   config.DeadLetters{Topic: "flights.dead", Retention: 90 * 24 * time.Hour}}
}

func cluster(t *testing.T, opts ...kfake.Opt) (*kfake.Cluster, *config.Config) {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(2)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	cfg := testConfig(c.ListenAddrs())
	cfg.Tables = []*event.Table{{Name: "flights"}}
	return c, cfg
}

func open(t *testing.T, cfg *config.Config) *kgo.Client {
	t.Helper()
	cl, err := Open(t.Context(), cfg, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// KAFKA-15591: the first batch to a partition that has no leader yet can be lost.
func TestPlanMakesTopicsAndAwaitsLeaders(t *testing.T) {
	_, cfg := cluster(t)
	cl := open(t, cfg)
	changes, _, err := Plan(t.Context(), cl, cfg, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(changes) != 2 || changes[0].Sign != plan.Create || changes[0].What != "topic flights.events" ||
		changes[0].Note != "4 partitions, replication 1, retention forever" ||
		changes[1].Note != "1 partition, replication 1, retention 90d" {
		t.Fatalf("unexpected plan: %+v", changes)
	}
	if err := Check(t.Context(), cl, Topics(cfg)); fault.CodeOf(err) != "SL2011" {
		t.Fatalf("missing topics: %v", err)
	}
	for _, c := range changes {
		if err := c.Apply(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.Apply(t.Context()); err != nil { // must be safe to repeat
			t.Fatal(err)
		}
	}
	have, err := describe(t.Context(), cl, Topics(cfg))
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range have {
		if len(f.leaderless) > 0 || f.settings["cleanup.policy"] != "delete" || f.settings["retention.bytes"] != "-1" {
			t.Errorf("topic %s is not as it was asked for: %+v", name, f)
		}
	}
	if err := Check(t.Context(), cl, Topics(cfg)); err != nil {
		t.Errorf("the topics that apply made are refused: %v", err)
	}
	if changes, _, err = Plan(t.Context(), cl, cfg, 0); err != nil || len(changes) != 0 {
		t.Errorf("a second plan is not empty: %+v, %v", changes, err)
	}
}

func TestCheckRefuses(t *testing.T) {
	_, cfg := cluster(t)
	cl := open(t, cfg)
	for _, topic := range Topics(cfg) {
		if err := topic.Create(t.Context(), cl); err != nil {
			t.Fatal(err)
		}
	}
	set := func(key, value string) {
		t.Helper()
		if _, err := kadm.NewClient(cl).AlterTopicConfigs(t.Context(),
			[]kadm.AlterConfig{{Name: key, Value: &value}}, cfg.Kafka.Topic); err != nil {
			t.Fatal(err)
		}
	}
	set("cleanup.policy", "compact")
	if err := Check(t.Context(), cl, Topics(cfg)); fault.CodeOf(err) != "SL2004" {
		t.Errorf("compaction: %v", err)
	}
	set("cleanup.policy", "delete")
	set("retention.ms", "604800000")
	if err := Check(t.Context(), cl, Topics(cfg)); fault.CodeOf(err) != "SL2005" {
		t.Errorf("limited retention: %v", err)
	}
	changes, _, err := Plan(t.Context(), cl, cfg, 0)
	if err != nil || len(changes) != 1 || changes[0].Sign != plan.Alter || changes[0].Note != "retention.ms 604800000 -> -1" {
		t.Fatalf("plan to widen: %+v, %v", changes, err)
	}
	if err := changes[0].Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := Check(t.Context(), cl, Topics(cfg)); err != nil {
		t.Errorf("after apply: %v", err)
	}
	cfg.Kafka.Partitions = 16
	const want = `topic flights.events has 4 partitions, layout epoch 1 says 16; nothing was started [SL2003]
  publishing now would send tenants to partitions where other processes do not look for them
  do: slotline apply, if one did not end; else set kafka.partitions: 4 if the topic is right, or delete the empty topic and apply`
	if err := Check(t.Context(), cl, Topics(cfg)); err == nil || err.Error() != want {
		t.Errorf("partition count:\n%v\nwant\n%s", err, want)
	}
}

func TestReplicationAboveBrokersSaysWhatToWrite(t *testing.T) {
	_, cfg := cluster(t)
	cfg.Kafka.Replication = 3
	err := Topics(cfg)[0].Create(t.Context(), open(t, cfg))
	if fault.CodeOf(err) != "SL2012" || !strings.Contains(err.Error(), "kafka.replication") {
		t.Errorf("got %v", err)
	}
}

func TestUnreachableBrokerIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	_, err = Open(t.Context(), testConfig([]string{addr}), "test", nil)
	if fault.CodeOf(err) != "SL2001" || !strings.Contains(err.Error(), "cannot contact Kafka: "+addr+": connection refused") {
		t.Errorf("got %v", err)
	}
	if !fault.Is(err, fault.Transient) {
		t.Errorf("an outage is %v", fault.ClassOf(err))
	}
}

func TestClassify(t *testing.T) {
	for err, want := range map[error]fault.Class{
		io.EOF: fault.Transient, context.DeadlineExceeded: fault.Transient, errors.New("unheard of"): fault.Transient,
		kgo.ErrRecordTimeout: fault.Transient,
	} {
		if got := Classify(fmt.Errorf("wrapped: %w", err)); got != want {
			t.Errorf("%v is %v, want %v", err, got, want)
		}
	}
}

// What the broker says of a clock is said with what to do; so is what has a code of its own, and the rest in Kafka's words.
func TestWrapNamesWhatKafkaAnswers(t *testing.T) {
	for err, want := range map[error]string{kerr.InvalidTimestamp: "SL2016", kerr.MessageTooLarge: "SL2007", kerr.UnknownTopicOrPartition: "SL2002",
		kerr.TopicAuthorizationFailed: "SL2006", kerr.NotEnoughReplicas: "SL2010"} {
		got := Wrap(fmt.Errorf("producing: %w", err), []string{"kafka1:9092"}, "publish to topic t partition 4")
		if fault.CodeOf(got) != want || !strings.Contains(got.Error(), "cannot publish to topic t partition 4: ") || !errors.Is(got, err) {
			t.Errorf("%v, want %s", got, want)
		}
	}
	if err := Wrap(kerr.InvalidTimestamp, nil, "publish"); !strings.Contains(err.Error(), "clock is too far ahead") || Classify(kerr.InvalidTimestamp) != fault.Transient {
		t.Error(err)
	}
}

func TestDeadLettersAreWholeAndFolded(t *testing.T) {
	_, cfg := cluster(t)
	cl := open(t, cfg)
	for _, topic := range Topics(cfg) {
		if err := topic.Create(t.Context(), cl); err != nil {
			t.Fatal(err)
		}
	}
	dead, err := NewDead(cfg, "sink-mysql", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	letter := func(offset int64, reason string) DeadLetter {
		return DeadLetter{Sink: "mysql", Partition: event.Partition{Topic: cfg.Kafka.Topic, Number: 2}, Offset: offset,
			Reason: reason, Error: "column total: " + strings.Repeat("ü", 5000), At: time.Now(),
			Record: event.Record{Key: []byte("flights\x00UA\x001"), Value: []byte(`{"a":1}`),
				Headers: []event.Header{{Key: "ce_id", Value: []byte("x")}, {Key: "sl_reason", Value: []byte("older")}}}}
	}
	big := letter(7, "too_long")
	big.Record.Value = make([]byte, cfg.Outbox.EventBytesMax) // the largest event must fit
	if err := dead.Produce(t.Context(), []DeadLetter{letter(5, "too_long"), big, letter(5, "out_of_range")}); err != nil {
		t.Fatal(err)
	}
	got, err := DeadLetters(t.Context(), cfg, nil, func(d *DeadLetter) bool { return d.Offset == 5 })
	if err != nil || len(got) != 2 {
		t.Fatalf("got %d letters, %v", len(got), err)
	}
	d := got[0]
	if d.Key() != "mysql/flights.events/2/5" || d.Reason != "out_of_range" || d.Repeats != 2 ||
		string(d.Record.Key) != "flights\x00UA\x001" || string(d.Record.Value) != `{"a":1}` || len(d.Record.Headers) != 2 ||
		len(d.Error) > deadErrorBytesMax || !strings.HasSuffix(d.Error, "ü") {
		t.Errorf("first letter: %+v", d)
	}
	if got[1].Offset != 7 || got[1].Record.Value != nil || got[1].Record.Key == nil {
		t.Errorf("second letter keeps its record: %+v", got[1].Key())
	}
}

// A batch that another program wrote may grow beyond all memory: it is passed over, named, and what follows is read.
func TestP10_ScanPassesOverBatchesThatExplode(t *testing.T) {
	_, cfg := cluster(t, kfake.SeedTopics(1, "flights.events"))
	big, err := kgo.NewClient(kgo.SeedBrokers(cfg.Kafka.Brokers...), kgo.ProducerBatchMaxBytes(256<<20), kgo.BrokerMaxWriteBytes(512<<20),
		kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer big.Close()
	for _, value := range [][]byte{[]byte("a"), make([]byte, 32<<20), []byte("b"), make([]byte, 32<<20), make([]byte, 32<<20)} {
		if err := big.ProduceSync(t.Context(), &kgo.Record{Topic: "flights.events", Value: value}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, nil))
	p := event.Partition{Topic: "flights.events"}
	var got []string
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err = Scan(ctx, cfg, "test", log, map[event.Partition]int64{p: 0}, map[event.Partition]int64{p: 5}, func(r *kgo.Record) {
		if len(r.Value) > 1 {
			t.Errorf("offset %d has %d bytes", r.Offset, len(r.Value))
		}
		got = append(got, fmt.Sprintf("%d:%.1s", r.Offset, r.Value))
	})
	if err != nil || fmt.Sprint(got) != "[0:a 2:b]" {
		t.Errorf("%v %v", got, err)
	}
	if n := strings.Count(logged.String(), "passed over a record batch"); n != 3 || !strings.Contains(logged.String(), "offset=4 next=5") {
		t.Errorf("%d batches are named:\n%s", n, logged.String())
	}
}
