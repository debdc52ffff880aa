package integration

import (
	"testing"
	"time"

	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/outbox"
	"github.com/slotline/slotline/producer"
)

// P5: a relay that is cut off from its database, and not from Kafka, hears of nothing: neither that its lease has run
// out, nor that another took over. Its own clock tells, and it closes its producer within the lease time. Back again it
// goes on without a hole or a repeat.
func TestP5_OutboxRelayCutOffFromItsDatabase(t *testing.T) {
	server := harness.MySQL(t)
	v := newValve(t, server.Addr)
	l := newOutboxLine(t, harness.Kafka(t), &harness.MySQLServer{Addr: v.addr(), User: server.User, Password: server.Password},
		", lanes: 1, lease_time: 600ms")
	l.taken = 1
	closed := make(chan struct{}, 10)
	l.wrap = func(w outbox.Writer) outbox.Writer { return closeTeller{w, closed} }
	emit := func(from, to uint64) {
		t.Helper()
		for i := from; i < to; i++ {
			if err := l.producer.Run(t.Context(), l.db, func(tx *producer.Tx) error {
				return l.producer.Emit(t.Context(), tx, l.accounts.Upsert(account{Owner: "a", ID: i, Value: 1}))
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := l.start()
	emit(0, 50)
	l.waitPublished(50, 10*time.Second)

	v.set(true)
	cut := time.Now()
	select {
	case <-closed:
		// The last renewal was answered before the cut, and a lease counts from before it was asked for.
		if took := time.Since(cut); took > 600*time.Millisecond+harness.Patience*time.Second { // an answer is waited for for 70 s
			t.Errorf("the producer was closed %v after the cut; the lease runs 600 ms", took)
		}
	case <-time.After(harness.Patience * 20 * time.Second):
		t.Error("the producer of a relay whose lease has run out is open")
	}
	v.set(false)
	emit(50, 100)
	l.waitPublished(100, 30*time.Second)
	r.stop()
	l.check(false, false)
}
