package line

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/progress"
)

func TestSpreadOf(t *testing.T) {
	var times []time.Duration
	for i := 200; i > 0; i-- {
		times = append(times, time.Duration(i)*time.Millisecond)
	}
	if got := spreadOf(times); got != (Spread{200, 101, 199, 200}) {
		t.Errorf("%+v", got)
	}
	if got := spreadOf([]time.Duration{1500 * time.Microsecond}); got != (Spread{1, 1.5, 1.5, 1.5}) {
		t.Errorf("%+v", got)
	}
	if got := spreadOf(nil); got != (Spread{}) {
		t.Errorf("%+v", got)
	}
}

func TestBehind(t *testing.T) {
	p := func(n int32) event.Partition { return event.Partition{Topic: "t", Number: n} }
	row := func(n int32, next int64) (r progress.Row) {
		r.Partition, r.Next = p(n), next
		return r
	}
	ends := map[event.Partition]int64{p(0): 10, p(1): 5, p(3): 7}
	// Partition 2 has nothing that a relay knows of, 3 is not this store's, and 1 has passed what was asked for.
	if n := behind([]progress.Row{row(0, 4), row(1, 9), row(2, 3)}, ends); n != 6 {
		t.Errorf("%d behind", n)
	}
}

// A store is asked for an entity until it is there and not deleted; an error is remembered until the store answers.
func TestSampledStore(t *testing.T) {
	var asked, refused atomic.Int64
	s := newSampled(whereStore{name: "mysql/s1", sink: "mysql", find: func(_ context.Context, _ *event.Table, e Entity) ([]StoredRow, error) {
		if e.ID == "refused" {
			refused.Add(1)
			return nil, errors.New("no right")
		}
		switch n := asked.Add(1); {
		case n < 4:
			return nil, nil
		case n < 6:
			return []StoredRow{storedRow("t", 7)}, nil // a delete of before
		}
		return []StoredRow{storedRow("t", 7), storedRow("t", 8)}, nil
	}})
	go s.look(t.Context(), nil)
	began := time.Now()
	s.offer(sample{Entity{ID: "a"}, began, began})
	s.offer(sample{Entity{ID: "too soon"}, began.Add(s.every - 1), began})
	for deadline := time.Now().Add(5 * time.Second); asked.Load() < 6 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	s.offer(sample{Entity{ID: "refused"}, began.Add(s.every), began})
	for deadline := time.Now().Add(time.Minute); refused.Load() < 1 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	times, unseen, problem := s.end()
	if len(times) != 1 || unseen != 1 || times[0] <= 0 || asked.Load() != 6 || problem != "no right" {
		t.Errorf("measured %v, problem %q, asked %d times", times, problem, asked.Load())
	}
}

func TestBenchText(t *testing.T) {
	r := &Bench{Line: "flights", Table: "flights", Tenants: 62, LargestShare: 0.253, Writers: 16, AskedRate: 200, Seconds: 30, Events: 5998, Entities: 3011,
		EventsPerSec: 199.9, Transaction: Spread{5998, 1.24, 8.06, 41}, Prefix: [2]string{"~0", "~z"}, Stores: []BenchStore{
			{Store: "mysql/s1", CommitToRow: Spread{310, 21, 1042, 1300}, CaughtUp: 0.021},
			{Store: "mysql/s2", CaughtUp: -1, Behind: 1200, Unseen: 16},
			{Store: "clickhouse", CaughtUp: -1, Problem: "no answer within 5s"}}}
	const want = `flights  table flights, 62 tenants, the largest with 25 % of the events; 16 writers, 200 events/s asked
5998 events of 3011 entities in 30.0 s, 199 events/s, one in a transaction
                      P50     P99    MAX    SAMPLES  CAUGHT UP
transaction           1.2 ms  8.1 ms  41 ms  5998  -
`
	text := func() string {
		var b strings.Builder
		if err := r.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	squeeze := func(s string) string {
		lines := strings.Split(s, "\n")
		for i := range lines {
			lines[i] = strings.Join(strings.Fields(lines[i]), " ")
		}
		return strings.Join(lines, "\n")
	}
	rest := `commit to mysql/s1 21 ms 1.0 s 1.3 s 310 21 ms
commit to mysql/s2 - - - 0 1.2k behind; 16 samples not seen
commit to clickhouse - - - 0 -
`
	if got := squeeze(text()); !strings.HasPrefix(got, squeeze(want)+rest) || !strings.Contains(got, "clickhouse: no answer within 5s") ||
		!strings.HasSuffix(got, "its entities are deleted again: their deletes are on the way\n") {
		t.Errorf("printed\n%s", got)
	}
	if r.Whole() {
		t.Error("a store that did not catch up is whole")
	}
	r.Stores = r.Stores[:1]
	if !r.Whole() {
		t.Error("not whole")
	}
	r.Left, r.LeftBecause, r.Stopped, r.Unknown = 12, "no answer", "interrupted", 1
	for _, line := range []string{"the load ended early: interrupted\n", "1 connections were lost in COMMIT", "12 entities of tenants ~0 to ~z were not deleted: no answer\n"} {
		if !strings.Contains(text(), line) {
			t.Errorf("no %q in\n%s", line, text())
		}
	}
	r.LeftBecause = ""
	if !strings.Contains(text(), "12 entities of tenants ~0 to ~z stay\n") || r.Whole() {
		t.Errorf("printed\n%s", text())
	}
}
