package consumers

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/kafka"
)

// BenchmarkPush is what a record costs between the client and the queue.
func BenchmarkPush(b *testing.B) {
	const records = 10_000
	p := &kgo.FetchPartition{Partition: 0}
	for i := range records {
		r := &kgo.Record{Key: []byte(fmt.Sprintf("flights\x00UA\x00%d", i)), Value: make([]byte, 190), Offset: int64(i), LeaderEpoch: 1}
		for h := range 12 {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: fmt.Sprintf("ce_header%d", h), Value: make([]byte, 20)})
		}
		p.Records = append(p.Records, r)
	}
	b.ReportAllocs()
	for b.Loop() {
		s := newStream(event.Position{LeaderEpoch: -1}, kafka.Log{}, make(chan struct{}, 1))
		s.push(p, time.Unix(0, 0))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*records), "ns/record")
}

// BenchmarkFetch is what a record costs between the broker's answer and the queue: twelve headers, a value of 190 bytes,
// lz4; as the client has it, and folded.
func BenchmarkFetch(b *testing.B) {
	const records = 5000
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		b.Fatal(err)
	}
	defer cluster.Close()
	cl, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ProducerBatchCompression(kgo.Lz4Compression()))
	if err != nil {
		b.Fatal(err)
	}
	defer cl.Close()
	var list []*kgo.Record
	for i := range records {
		e := event.Event{ID: event.NewID(), Table: "flights", Tenant: "UA", EntityID: fmt.Sprint(i), Op: event.Upsert, Version: int64(i + 1),
			Time: time.UnixMicro(int64(i)), LayoutEpoch: 1, Outbox: event.OutboxPosition{Generation: 1, ID: uint64(i)},
			Body: fmt.Appendf(nil, `{"carrier":"UA","flight_id":%d,"note":"%0150d"}`, i, i)}
		_, rec := e.AppendRecord(nil, event.Source("flights"))
		r := &kgo.Record{Topic: "t", Key: rec.Key, Value: rec.Value}
		for _, h := range rec.Headers {
			r.Headers = append(r.Headers, kgo.RecordHeader(h))
		}
		list = append(list, r)
	}
	if err := cl.ProduceSync(b.Context(), list...).FirstErr(); err != nil {
		b.Fatal(err)
	}
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxBytes = 12, 64<<20
	part := kmsg.NewFetchRequestTopicPartition()
	part.PartitionMaxBytes, part.CurrentLeaderEpoch = 64<<20, -1
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.Partitions = "t", append(topic.Partitions, part)
	topic.TopicID = cluster.TopicInfo("t").TopicID
	req.Topics = append(req.Topics, topic)
	answer, err := req.RequestWith(b.Context(), cl)
	if err != nil {
		b.Fatal(err)
	}
	fetched := &answer.Topics[0].Partitions[0]
	fold, err := newFolding(64 << 20)
	if err != nil {
		b.Fatal(err)
	}
	for name, d := range map[string]kgo.Decompressor{"client": fold.client, "folded": fold} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Topic: "t"}, fetched, d, func(kgo.FetchBatchMetrics) {})
				if len(p.Records) != records {
					b.Fatalf("%d records: %v", len(p.Records), p.Err)
				}
				s := newStream(event.Position{LeaderEpoch: -1}, kafka.Log{}, make(chan struct{}, 1))
				s.push(&p, time.Unix(0, 0))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*records), "ns/record")
		})
	}
}
