package integration

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/outbox"
	"github.com/slotline/slotline/producer"
)

func (l *outboxLine) emit(from, to int, value int64) {
	l.t.Helper()
	for i := from; i < to; i++ {
		if err := l.producer.Run(l.t.Context(), l.db, func(tx *producer.Tx) error {
			return l.producer.Emit(l.t.Context(), tx, l.accounts.Upsert(account{Owner: "a", ID: uint64(i), Value: value}))
		}); err != nil {
			l.t.Fatal(err)
		}
	}
}

// waitNewest waits until the event of greatest version of each entity carries the value.
func (l *outboxLine) waitNewest(from, to int, value int64) {
	l.t.Helper()
	want := fmt.Appendf(nil, `"value":%d`, value)
	for deadline := harness.Deadline(15 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		newest, missing := map[string]published{}, 0
		for _, e := range l.topic() {
			if e.Version > newest[e.EntityID].Version {
				newest[e.EntityID] = e
			}
		}
		for i := from; i < to; i++ {
			if !bytes.Contains(newest[fmt.Sprint(i)].Body, want) {
				missing++
			}
		}
		if missing == 0 {
			return
		}
		if time.Now().After(deadline) {
			views, err := outbox.Views(l.t.Context(), l.db, 1)
			l.t.Fatalf("%d of %d entities have another newest event than value %d; %+v %v", missing, to-from, value, views, err)
		}
	}
}

// A drained lane table is emptied by TRUNCATE: its ids begin at 1 again, below the cursor. Nothing that is emitted from
// then on is lost, whether a relay runs or not, and whether few or many rows follow.
func TestP2_OutboxLaneTableTruncated(t *testing.T) {
	t.Parallel() // long
	for _, c := range []struct {
		name          string
		first, second int
		running       bool
	}{
		{"idle relay, fewer rows than before", 100, 30, true},
		{"idle relay, more rows than before", 40, 120, true},
		{"no relay, fewer rows than before", 100, 30, false},
		{"no relay, more rows than before", 40, 120, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newOutboxLine(t, harness.Kafka(t), harness.MySQL(t), ", lanes: 1, lease_time: 1s")
			r := l.start()
			l.emit(0, c.first, 1)
			l.waitPublished(c.first, 10*time.Second)
			time.Sleep(3 * l.timing.Ends) // the recorded offsets move to the ends
			if !c.running {
				r.stop()
			}
			if _, err := l.db.Exec("TRUNCATE TABLE slotline_outbox_00"); err != nil {
				t.Fatal(err)
			}
			if !c.running {
				views, err := outbox.Views(t.Context(), l.db, 1)
				if err != nil || !views[0].WentBack || views[0].HaltCode != "SL5013" {
					t.Errorf("the lane is shown as %+v, %v", views, err)
				}
			}
			l.emit(0, c.second, 2)
			if !c.running {
				r = l.start()
			}
			l.waitNewest(0, c.second, 2)
			r.stop()
			views, err := outbox.Views(t.Context(), l.db, 1)
			if err != nil || views[0].WentBack || views[0].Cursor != uint64(c.second) || views[0].Events() != 0 {
				t.Errorf("afterwards %+v, %v", views, err)
			}
			// It is found once.
			n := len(l.topic())
			r = l.start()
			l.emit(0, 10, 3)
			l.waitPublished(n+10, 10*time.Second)
			time.Sleep(3 * l.timing.Ends)
			r.stop()
			if got := len(l.topic()); got != n+10 {
				t.Errorf("%d records after another take-over, wanted %d", got, n+10)
			}
		})
	}
}

// Rows that are deleted and partitions that are dropped are not a database that went back.
func TestOutboxDeletedRowsAreNoNewGeneration(t *testing.T) {
	t.Parallel() // long
	l := newOutboxLine(t, harness.Kafka(t), harness.MySQL(t), ", lanes: 1, lease_time: 1s, purge_rows: 100000")
	total := 0
	for i, statement := range []string{
		"DELETE FROM slotline_outbox_00",
		"DELETE FROM slotline_outbox_00 WHERE id % 3 = 0",
		"DELETE FROM slotline_outbox_00 ORDER BY id DESC LIMIT 10",
		"ALTER TABLE slotline_outbox_00 TRUNCATE PARTITION p100000",
		"ALTER TABLE slotline_outbox_00 DROP PARTITION p100000",
	} {
		for _, running := range []bool{true, false} {
			if i == 4 && !running {
				continue // it is gone
			}
			r := l.start()
			l.emit(0, 100, int64(i))
			total += 100
			l.waitPublished(total, 10*time.Second)
			if !running {
				r.stop()
			}
			if _, err := l.db.Exec(statement); err != nil {
				t.Fatal(err)
			}
			if !running {
				r = l.start()
			}
			time.Sleep(2 * l.timing.Ends)
			l.emit(0, 5, int64(i))
			total += 5
			l.waitPublished(total, 10*time.Second)
			time.Sleep(2 * l.timing.Ends)
			r.stop()
			events := l.topic()
			if len(events) != total || events[len(events)-1].Outbox.Generation != 1 {
				t.Fatalf("after %s, relay running %v: %d events, wanted %d; the last is %+v", statement, running, len(events), total, events[len(events)-1].Outbox)
			}
		}
	}
}
