package consumers

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/event"
)

// What is read with headers folded is what the client reads: every record, by every codec.
func TestFoldedRecordsAreWhatWasSent(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	client := func(more ...kgo.Opt) *kgo.Client {
		cl, err := kgo.NewClient(append(more, kgo.SeedBrokers(cluster.ListenAddrs()...))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.Close)
		return cl
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	text := func(most int) []byte {
		switch random.IntN(6) {
		case 0:
			return nil
		case 1:
			return []byte{}
		}
		b := make([]byte, random.IntN(most))
		for i := range b {
			b[i] = byte(random.IntN(4))
		}
		return b
	}
	const perCodec = 300
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	ours := 0 // in batches that are compressed
	for n, codec := range codecs {
		cl := client(kgo.ProducerBatchCompression(codec))
		var records []*kgo.Record
		for range perCodec {
			r := &kgo.Record{Topic: "t", Key: text(70), Value: text(200)}
			if random.IntN(10) == 0 {
				r.Value = make([]byte, 20_000)
			}
			if random.IntN(2) == 0 {
				e := event.Event{ID: event.NewID(), Table: "flights", Tenant: "UA", EntityID: fmt.Sprint(random.IntN(1000)), Op: event.Upsert,
					Version: random.Int64N(event.VersionMax) + 1, LayoutEpoch: 1, Outbox: event.OutboxPosition{ID: 7}}
				_, rec := e.AppendRecord(nil, event.Source("flights"))
				r.Key, r.Headers = rec.Key, clientHeaders(rec.Headers)
				if n > 0 {
					ours++
				}
			} else {
				for range random.IntN(14) {
					r.Headers = append(r.Headers, kgo.RecordHeader{Key: string(text(80)), Value: text(80)})
				}
			}
			records = append(records, r)
		}
		if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	read := func(cl *kgo.Client) (list []*kgo.Record) {
		for len(list) < perCodec*len(codecs) {
			fetches := cl.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				t.Fatal(err)
			}
			list = append(list, fetches.Records()...)
		}
		return list
	}
	fold, err := newFolding(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	start := kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())
	want := read(client(kgo.ConsumeTopics("t"), start))
	got := read(client(kgo.ConsumeTopics("t"), start, kgo.WithDecompressor(fold)))
	packed := 0
	for i, w := range want {
		rec := unfold(got[i])
		if rec.Packed != nil {
			packed++
		}
		rec.Headers, rec.Packed = rec.Unpacked(), nil
		if got[i].Offset != w.Offset || !reflect.DeepEqual(rec.Key, w.Key) || !reflect.DeepEqual(rec.Value, w.Value) ||
			len(rec.Headers) != len(w.Headers) || len(w.Headers) > 0 && !reflect.DeepEqual(rec.Headers, headers(w.Headers)) {
			t.Fatalf("record %d: key %q, value %.100q, headers %q; wanted %q, %.100q, %q", i, rec.Key, rec.Value, rec.Headers, w.Key, w.Value, w.Headers)
		}
	}
	if packed != ours || ours == 0 {
		t.Errorf("%d records were packed of %d of ours", packed, ours)
	}
}

func clientHeaders(list []event.Header) (headers []kgo.RecordHeader) {
	for _, h := range list {
		headers = append(headers, kgo.RecordHeader(h))
	}
	return headers
}

// A record that is cut short, or is none, is left to the client to stop at, with all that follows.
func TestFoldLeavesWhatIsNoRecord(t *testing.T) {
	one := []byte{0, 0, 0, 2, 'k', 4, 'v', 'w', 2, 2, 'h', 1} // one header without a value
	whole := append(binary.AppendVarint(nil, int64(len(one))), one...)
	folded := foldRecords(nil, whole)
	for cut := range len(whole) {
		// What is cut off makes the batch end early; a length that is too small makes the record end early.
		short := append(append([]byte{}, whole...), whole[:cut]...)
		if got := foldRecords(nil, short); !reflect.DeepEqual(got, append(append([]byte{}, folded...), whole[:cut]...)) {
			t.Errorf("cut at %d: %v", cut, got)
		}
		if end := cut; end <= 8 { // all before the count of headers
			short := append(binary.AppendVarint(nil, int64(end)), one[:end]...)
			if got := foldRecords(nil, short); !reflect.DeepEqual(got, short) {
				t.Errorf("a record of %d bytes became %v", end, got)
			}
		}
	}
	old := []byte{0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 20, 1, 2, 3, 4}
	if got := foldRecords(nil, old); !reflect.DeepEqual(got, old) {
		t.Errorf("%v", got)
	}
}
