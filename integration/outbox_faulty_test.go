package integration

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/outbox"
)

// faults breaks partitions of every writer that it wraps.
type faults struct {
	mu     sync.Mutex
	mode   map[int32]string // "refuse" or "stall"
	wraps  []*faultyWriter
	refuse int
}

var errRefused = errors.New("refused by the test")

// faultyWriter stands before a Kafka writer: what goes to a broken partition is refused, or waits until it is mended.
type faultyWriter struct {
	outbox.Writer
	f       *faults
	held    []*outbox.Out
	answers []outbox.Answer
	ready   chan struct{}
	closed  chan struct{}
	once    sync.Once
}

func (f *faults) wrap(w outbox.Writer) outbox.Writer {
	fw := &faultyWriter{Writer: w, f: f, ready: make(chan struct{}, 1), closed: make(chan struct{})}
	go func() {
		for {
			select {
			case <-w.Ready():
				fw.signal()
			case <-fw.closed:
				return
			}
		}
	}()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wraps = append(f.wraps, fw)
	return fw
}

func (f *faults) set(partition int32, mode string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mode[partition] = mode
	for _, w := range f.wraps {
		var still []*outbox.Out
		for _, out := range w.held {
			if f.mode[out.Partition.Number] == "stall" {
				still = append(still, out)
			} else {
				w.Writer.Produce([]*outbox.Out{out})
			}
		}
		w.held = still
	}
}

func (w *faultyWriter) signal() {
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

func (w *faultyWriter) Produce(outs []*outbox.Out) {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	for _, out := range outs {
		switch w.f.mode[out.Partition.Number] {
		case "refuse":
			w.f.refuse++
			w.answers = append(w.answers, outbox.Answer{Out: out, Err: errRefused})
			w.signal()
		case "stall":
			w.held = append(w.held, out)
		default:
			w.Writer.Produce([]*outbox.Out{out})
		}
	}
}

func (w *faultyWriter) Ready() <-chan struct{} { return w.ready }

func (w *faultyWriter) Answers(dst []outbox.Answer) []outbox.Answer {
	w.f.mu.Lock()
	dst = append(dst, w.answers...)
	w.answers = nil
	w.f.mu.Unlock()
	return w.Writer.Answers(dst)
}

func (w *faultyWriter) Close() {
	w.once.Do(func() { close(w.closed) })
	w.Writer.Close()
}

// P13: a partition that refuses, or does not answer, holds up its own events; the lane goes on with the others, also when
// the relay dies meanwhile. When it is mended its events come, once and in order.
func TestP13_OutboxOnePartitionRefuses(t *testing.T) {
	t.Parallel() // long
	for _, mode := range []string{"refuse", "stall"} {
		t.Run(mode, func(t *testing.T) {
			l := newOutboxLine(t, harness.Kafka(t), harness.MySQL(t), ", lanes: 2, lease_time: 2s")
			f := &faults{mode: map[int32]string{}}
			l.wrap = f.wrap
			broken := l.layout.Route("owner-07", "").Partition
			r := l.start()
			w := &writers{count: 8, transactions: 400, rollbackShare: 0.1}
			w.run(l, 1)
			f.set(broken, mode)
			w = &writers{count: 8, transactions: 1200, rollbackShare: 0.1}
			w.run(l, 2)

			mine, others := 0, 0
			for _, row := range l.rowsByTenant() {
				if l.layout.Route(row.tenant, "").Partition == broken {
					mine += row.count
				} else {
					others += row.count
				}
			}
			if mine == 0 || others == 0 {
				t.Fatalf("%d events for the broken partition, %d for others", mine, others)
			}
			l.waitOthers(broken, others, 10*time.Second)
			views := l.waitViews(func(v []outbox.View) bool {
				return v[0].Parked+v[1].Parked > 0 && v[0].Cursor == v[0].MaxID && v[1].Cursor == v[1].MaxID
			})
			t.Logf("parked %d and %d of %d, the cursors are at the end", views[0].Parked, views[1].Parked, mine)
			r.kill() // the next owner knows what is parked
			r = l.start()
			time.Sleep(time.Second)
			f.set(broken, "")
			l.waitPublished(len(l.committed()), 20*time.Second)
			l.waitViews(func(v []outbox.View) bool { return v[0].Parked+v[1].Parked == 0 })
			r.stop()
			l.check(false, false)
		})
	}
}

type tenantRows struct {
	tenant string
	count  int
}

func (l *outboxLine) rowsByTenant() (list []tenantRows) {
	l.t.Helper()
	for lane := range l.cfg.Outbox.Lanes {
		rows, err := l.db.Query("SELECT tenant, COUNT(*) FROM " + outbox.LaneTable(lane) + " GROUP BY tenant")
		if err != nil {
			l.t.Fatal(err)
		}
		for rows.Next() {
			var r tenantRows
			if err := rows.Scan(&r.tenant, &r.count); err != nil {
				l.t.Fatal(err)
			}
			list = append(list, r)
		}
	}
	return list
}

// waitOthers waits until n records are in partitions other than one.
func (l *outboxLine) waitOthers(not int32, n int, limit time.Duration) {
	l.t.Helper()
	for deadline := harness.Deadline(limit); ; time.Sleep(50 * time.Millisecond) {
		got := 0
		for _, e := range l.topic() {
			if e.partition != not {
				got++
			}
		}
		if got >= n {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("%d of %d events of other partitions after %v", got, n, limit)
		}
	}
}

func (l *outboxLine) waitViews(ok func([]outbox.View) bool) []outbox.View {
	l.t.Helper()
	for deadline := harness.Deadline(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		views, err := outbox.Views(l.t.Context(), l.db, l.cfg.Outbox.Lanes)
		if err != nil {
			l.t.Fatal(err)
		}
		if ok(views) {
			return views
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("lanes: %+v", views)
		}
	}
}
