package consumers_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/consumers"
	"github.com/slotline/slotline/event"
)

// BenchmarkRead is what the consumers add to a bare poll loop: the same endless log, read by both, into a sink that does
// nothing. allocs/row is of the whole process, so the difference is ours.
func BenchmarkRead(b *testing.B) {
	const perBatch = 1000
	batch := kfake.SyntheticBatch{Records: 5000, RecordBytes: 190, RandomFrac: 0.3, Compression: kgo.Lz4Compression()}
	measure := func(b *testing.B, rows func() int64) {
		for rows() == 0 {
			time.Sleep(time.Millisecond)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		from, start := rows(), time.Now()
		for rows()-from < int64(b.N)*perBatch {
			time.Sleep(time.Millisecond)
		}
		n := rows() - from
		b.ReportMetric(float64(n)/time.Since(start).Seconds(), "rows/s")
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(n), "allocs/row")
		b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(n), "B/row")
		b.ReportMetric(0, "ns/op")
	}
	b.Run("bare", func(b *testing.B) {
		l := newLine(b, kfake.SyntheticFetch(batch))
		cl, err := kgo.NewClient(kgo.SeedBrokers(l.setup.Config.Kafka.Brokers...), kgo.ConsumeTopics(l.setup.Config.Kafka.Topic))
		if err != nil {
			b.Fatal(err)
		}
		defer cl.Close()
		ctx, cancel := context.WithCancel(context.Background())
		var rows atomic.Int64
		done := make(chan struct{})
		go func() {
			defer close(done)
			for ctx.Err() == nil {
				rows.Add(int64(cl.PollFetches(ctx).NumRecords()))
			}
		}()
		measure(b, rows.Load)
		cancel()
		<-done
	})
	b.Run("consumers", func(b *testing.B) {
		l := newLine(b, kfake.SyntheticFetch(batch))
		var rows atomic.Int64
		p := l.run(&stub{apply: func(_ context.Context, batch *event.Batch) error {
			rows.Add(int64(len(batch.Messages)))
			return nil
		}}, func(o *consumersOptions) {
			o.MemoryBytesMax, o.Batch = 512<<20, consumers.Limits{Rows: perBatch, Bytes: 4 << 20, Age: 20 * time.Millisecond}
		})
		measure(b, rows.Load)
		if err := p.stop(); err != nil {
			b.Error(err)
		}
	})
}
