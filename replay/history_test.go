package replay

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
)

// cutLog is a topic of one partition with so many records, the first of which were deleted.
func cutLog(t *testing.T, records, deleted int) (*history, event.Partition) {
	t.Helper()
	p := event.Partition{Topic: "flights.events"}
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, p.Topic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	for i := range records {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: p.Topic, Value: fmt.Append(nil, i)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	cut := kadm.Offsets{}
	cut.AddOffset(p.Topic, p.Number, int64(deleted), -1)
	if _, err := kadm.NewClient(cl).DeleteRecords(t.Context(), cut); err != nil {
		t.Fatal(err)
	}
	cfg := &config.Config{Line: "flights", Kafka: config.Kafka{Brokers: c.ListenAddrs(), Topic: p.Topic, Partitions: 1},
		Tables: []*event.Table{{Name: "flights"}}}
	return &history{cfg, slog.New(slog.DiscardHandler)}, p
}

// A log that was shortened has a hole, which is named; what is left of it can be read.
func TestHistoryNamesWhatIsGone(t *testing.T) {
	h, p := cutLog(t, 9, 4)
	logs, holes, err := h.stand(t.Context(), "test", []event.Partition{p})
	if err != nil || len(holes) != 1 || !strings.Contains(holes[0], "flights.events partition 0 begins at offset 4") {
		t.Fatalf("holes %q, %v", holes, err)
	}
	read := ""
	err = h.scan(t.Context(), "test", map[event.Partition]int64{p: logs[p].Start}, map[event.Partition]int64{p: logs[p].Stable},
		func(r *kgo.Record) { read += string(r.Value) })
	if err != nil || read != "45678" {
		t.Errorf("read %q, %v", read, err)
	}
}
