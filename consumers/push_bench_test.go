package consumers

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

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
