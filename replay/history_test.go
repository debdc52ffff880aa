package replay

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/archive"
	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
)

// testLog is a topic of one partition in the test's process, with so many records of an hour ago.
func testLog(t *testing.T, records int) (h *history, p event.Partition, cut func(below int64)) {
	t.Helper()
	p = event.Partition{Topic: "flights.events"}
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
		r := &kgo.Record{Topic: p.Topic, Value: fmt.Append(nil, i), Timestamp: time.Now().Add(-time.Hour)}
		if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	cfg := &config.Config{Line: "flights", Kafka: config.Kafka{Brokers: c.ListenAddrs(), Topic: p.Topic, Partitions: 1},
		Outbox: config.Outbox{EventBytesMax: 900 << 10}, Tables: []*event.Table{{Name: "flights"}}}
	return &history{cfg, slog.New(slog.DiscardHandler)}, p, func(below int64) {
		offsets := kadm.Offsets{}
		offsets.AddOffset(p.Topic, p.Number, below, -1)
		if _, err := kadm.NewClient(cl).DeleteRecords(t.Context(), offsets); err != nil {
			t.Fatal(err)
		}
	}
}

func (h *history) read(t *testing.T, p event.Partition, from, to int64) (text string, err error) {
	t.Helper()
	err = h.scan(t.Context(), "test", map[event.Partition]int64{p: from}, map[event.Partition]int64{p: to}, func(r *kgo.Record) { text += string(r.Value) })
	return text, err
}

// A log that was shortened has a hole, which is named; what is left of it can be read.
func TestHistoryNamesWhatIsGone(t *testing.T) {
	h, p, cut := testLog(t, 9)
	cut(4)
	logs, holes, err := h.stand(t.Context(), "test", []event.Partition{p})
	if err != nil || len(holes) != 1 || !strings.Contains(holes[0], "flights.events partition 0 begins at offset 4") {
		t.Fatalf("holes %q, %v", holes, err)
	}
	if text, err := h.read(t, p, logs[p].Start, logs[p].Stable); err != nil || text != "45678" {
		t.Errorf("read %q, %v", text, err)
	}
	if text, err := h.read(t, p, 3, 9); fault.CodeOf(err) != codeHistory {
		t.Errorf("read %q, %v", text, err)
	}
}

// What the topic has lost is read from the archive, wherever reading begins and ends and however much both hold.
func TestHistoryReadsArchiveAndTopic(t *testing.T) {
	h, p, cut := testLog(t, 9)
	h.cfg.Archive = &config.Archive{Dir: t.TempDir(), OlderThan: time.Second, FileBytes: 3}
	a, err := archive.Open(h.cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	if w, err := a.Run(t.Context(), nil); err != nil || w.Records != 9 {
		t.Fatalf("%+v, %v", w, err)
	}
	for start := range int64(9) {
		cut(start)
		logs, holes, err := h.stand(t.Context(), "test", []event.Partition{p})
		if err != nil || len(holes) > 0 || logs[p].Start != 0 || logs[p].Archived != start {
			t.Fatalf("%+v, holes %q, %v", logs, holes, err)
		}
		for from := range int64(10) {
			for to := from; to < 10; to++ {
				if text, err := h.read(t, p, from, to); err != nil || text != "012345678"[from:to] {
					t.Errorf("topic from %d: %d to %d read as %q, %v", start, from, to, text, err)
				}
			}
		}
	}
	h.cfg.Archive.Dir = t.TempDir()
	if _, holes, err := h.stand(t.Context(), "test", []event.Partition{p}); err != nil || len(holes) != 1 || !strings.Contains(holes[0], "has nothing of it") {
		t.Errorf("an empty archive: %q, %v", holes, err)
	}
}
