package consumers_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/consumers"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
)

// P13: a partition that does not move fills its share of the memory and is paused; the others pass through the rest,
// though their backlog is far greater than the memory.
func TestP13_StalledPartitionHoldsUpNoOther(t *testing.T) {
	l := newLine(t)
	const memory = 64 << 20
	var down atomic.Bool
	down.Store(true)
	l.memory.Fault = func(ctx context.Context, step string, at []event.Range) error {
		if step == "apply" && at[0].Number == 2 && down.Load() {
			return &fault.Error{Code: "test", Class: fault.Transient, What: "shard s2 is down"}
		}
		return nil
	}
	// 40 MB for each partition; raw records may take 16 MiB in all.
	var records []*kgo.Record
	padding := strings.Repeat(" ", 20_000)
	for i := range int64(2000) {
		for p := range int32(4) {
			r := l.record(p, i%10, i+1, "")
			r.Value = append([]byte(padding), r.Value...)
			records = append(records, r)
		}
	}
	l.send(l.cl, records...)
	for p := range int32(4) {
		for id := range int64(10) {
			l.sent[entityName(p, id)] = 1990 + id + 1
		}
	}
	p := l.run(l.sink(), func(o *consumersOptions) { o.MemoryBytesMax = memory })
	most := 0.0
	ends := l.ends()
	l.until("the others are drained", func() bool {
		most = max(most, p.metric("buffered_bytes"))
		at := l.memory.Positions()
		return at[l.part(0)].Next == ends[0] && at[l.part(1)].Next == ends[1] && at[l.part(3)].Next == ends[3]
	})
	// One poll comes on top of what the throttle saw.
	if most > memory/4*2 {
		t.Errorf("%.0f bytes of raw records were held, of %d", most, memory/4)
	}
	down.Store(false)
	l.untilDrained()
	l.check()
}

func entityName(p int32, id int64) string {
	return "t" + string(rune('0'+p)) + "/" + string(rune('0'+id))
}

// stub is a sink that decodes nothing: it is as slow as it is told to be.
type stub struct {
	apply func(ctx context.Context, b *event.Batch) error
}

func (s *stub) Name() string { return "stub" }

func (s *stub) TakeOver(_ context.Context, parts []event.Partition) (consumers.Owned, error) {
	return &stubOwned{s, event.Position{Partition: parts[0], LeaderEpoch: -1}}, nil
}

type stubOwned struct {
	*stub
	at event.Position
}

func (o *stubOwned) Positions() []event.Position   { return []event.Position{o.at} }
func (o *stubOwned) Pending() []event.Range        { return nil }
func (o *stubOwned) Lost() <-chan struct{}         { return nil }
func (o *stubOwned) Release(context.Context) error { return nil }
func (o *stubOwned) Prepare(b *event.Batch) (consumers.Prepared, error) {
	return &stubPrepared{o, b}, nil
}

type stubPrepared struct {
	*stubOwned
	b *event.Batch
}

func (p *stubPrepared) Size() (rows, bytes int) { return len(p.b.Messages), 0 }
func (p *stubPrepared) Apply(ctx context.Context) ([]event.Rejected, error) {
	return nil, p.apply(ctx, p.b)
}

// P10: memory stays bounded over an endless backlog, whether the sink is slow or stands still, and whether the records
// compress to nothing or not at all.
func TestP10_MemoryIsBounded(t *testing.T) {
	const memoryBytesMax = 128 << 20
	for name, random := range map[string]float64{"compressible": 0, "random": 1} {
		for _, stalled := range []bool{false, true} {
			t.Run(name+map[bool]string{false: ", slow sink", true: ", stalled sink"}[stalled], func(t *testing.T) {
				l := newLine(t, kfake.SyntheticFetch(kfake.SyntheticBatch{Records: 1000, RecordBytes: 1000, RandomFrac: random,
					Compression: kgo.Lz4Compression()}))
				runtime.GC()
				defer debug.SetMemoryLimit(debug.SetMemoryLimit(memoryBytesMax)) // as the program sets it
				var before runtime.MemStats
				runtime.ReadMemStats(&before)
				var applied atomic.Int64
				sink := &stub{apply: func(ctx context.Context, b *event.Batch) error {
					if stalled {
						<-ctx.Done()
						return &fault.Error{Code: "test", Class: fault.Transient, What: "interrupted", Err: ctx.Err()}
					}
					time.Sleep(5 * time.Millisecond)
					applied.Add(int64(len(b.Messages)))
					return nil
				}}
				l.setup.Config.Limits.DrainTimeout = 100 * time.Millisecond
				p := l.run(sink, func(o *consumersOptions) {
					o.MemoryBytesMax, o.Batch = memoryBytesMax, consumers.Limits{Rows: 1000, Bytes: 4 << 20, Age: time.Millisecond}
				})
				l.until("it reads", func() bool { return applied.Load() > 10_000 || p.metric("buffered_bytes") > memoryBytesMax/16 })
				var peak uint64
				for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					peak = max(peak, m.HeapInuse)
				}
				t.Logf("%d MiB before, at most %d MiB; %d messages applied", before.HeapInuse>>20, peak>>20, applied.Load())
				// kfake's part is in it as well.
				if peak > memoryBytesMax+64<<20 {
					t.Errorf("%d MiB of heap are in use, %d MiB are allowed and 64 on top", peak>>20, memoryBytesMax>>20)
				}
				if !stalled && applied.Load() == 0 {
					t.Error("nothing was applied")
				}
				if err := p.stop(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// Members that come and go each moment: owner epochs do not storm, and every event is applied, most of them once.
func TestRebalanceStorm(t *testing.T) {
	l := newLine(t)
	random := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	l.run(l.sink(), nil) // stays
	l.produce(50, 0, 1, 2, 3)
	l.untilDrained()
	stop := make(chan struct{})
	var producing sync.WaitGroup
	producing.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				l.produce(5, 0, 1, 2, 3)
			}
		}
	})
	const changes = 12
	for range changes / 2 {
		p := l.run(l.sink(), nil)
		time.Sleep(time.Duration(100+random.IntN(400)) * time.Millisecond)
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	producing.Wait()
	l.untilDrained()
	l.check()
	// A change moves at most two partitions to or from a second member.
	if n := l.memory.TakeOvers(); n > 4+2*changes+4 {
		t.Errorf("%d take-overs in %d changes of membership", n, changes)
	}
}
