package sinktest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slotline/slotline/event"
)

// rawOrder is an order's body as it is written, true or not.
func rawOrder(id int64, status, qty string) string {
	return fmt.Sprintf(`{"customer":"acme","order_id":%d,"placed_at":"2026-06-15T12:00:00.000000Z","status":%s,"qty":%s}`, id, status, qty)
}

// P7: a bad event blocks nothing, and the next lower version of its entity, which the same batch holds, is applied.
func badAboveGood(h *harness) {
	h.append(ev{table: "orders", version: 1, values: order("acme", 1, "one", 1)},
		ev{table: "orders", version: 3, values: order("acme", 1, "three", 3)},
		ev{table: "orders", version: 2, values: order("acme", 1, "two", 2)})
	h.append(ev{table: "orders", version: 4, values: order("acme", 1, "", 0), body: rawOrder(1, `"much too long a status"`, "4")})
	bad := []at{h.last("acme")}
	h.append(ev{table: "orders", op: event.Delete, version: 9, values: order("acme", 2, "", 0), body: `{"customer":"acme","order_id":2}`})
	bad = append(bad, h.last("acme"))
	h.append(ev{table: "orders", version: 8, values: order("acme", 2, "eight", 8)},
		ev{table: "orders", version: 1, values: order("acme", 3, "neighbour", 1)})
	h.takeOver().drain(1000)
	h.wantRejected(bad...)
	h.check()
}

// Each kind of event that a table cannot hold is a dead letter with a reason, and its neighbours are applied.
func badEvents(h *harness) {
	var bad []at
	for i, body := range []string{
		rawOrder(0, `"this is too long"`, "1"),
		rawOrder(1, `"ok"`, "2147483648"),
		rawOrder(2, `"ok"`, `"1"`),
		rawOrder(3, `null`, "1"),
		rawOrder(4, `"ok"`, "1.5"),
		rawOrder(5, "\"\xff\"", "1"),
		strings.Replace(rawOrder(6, `"ok"`, "1"), "2026-06-15", "2026-02-30", 1),
		strings.Replace(rawOrder(7, `"ok"`, "1"), `,"qty":1`, "", 1),
		strings.Replace(rawOrder(8, `"ok"`, "1"), `"qty"`, `"extra":1,"qty"`, 1),
		strings.Replace(rawOrder(10, `"ok"`, "1"), "15T12:00:00.000000Z", "30T23:59:59.9999995Z", 1), // MySQL would round it into July
		rawOrder(9, `"ok"`, "1")[:40],
		`{}`,
		`not json`,
	} {
		h.append(ev{table: "orders", version: 1, values: order("acme", int64(100+i), "good", 1)})
		h.append(ev{table: "orders", version: 1, values: order("acme", int64(i), "", 0), body: body})
		bad = append(bad, h.last("acme"))
	}
	h.takeOver().drain(7)
	h.wantRejected(bad...)
	reasons := map[string]bool{}
	for _, r := range h.rejected {
		reasons[r.Reason] = true
	}
	if len(reasons) < 5 {
		h.Errorf("dead letters are listed by reason, and these have only %v", reasons)
	}
	h.check()
}

// Nothing is left of the batch but its progress.
func onlyBad(h *harness) {
	var bad []at
	for i := range int64(3) {
		h.append(ev{table: "orders", version: 1, values: order("acme", i, "", 0), body: `{"bad":true}`})
		bad = append(bad, h.last("acme"))
	}
	o := h.takeOver()
	o.drain(1000)
	h.wantRejected(bad...)
	h.check()
	h.append(ev{table: "orders", version: 1, values: order("acme", 1, "good", 1)})
	o.drain(1000)
	h.check()
}

// P6: the bounds are absolute and by the event's own time, so that a log folds the same way on any day.
func monthOutOfBounds(h *harness) {
	var bad []at
	for i, when := range []time.Time{
		time.Date(2012, 12, 31, 23, 59, 59, 999999000, time.UTC), // before months.from
		time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC),              // more than two months after the append
		time.Date(2109, 6, 1, 0, 0, 0, 0, time.UTC),
	} {
		v := order("acme", int64(i), "s", 1)
		v[2] = Time(when)
		h.append(ev{table: "orders", version: 2, values: v})
		bad = append(bad, h.last("acme"))
		h.append(ev{table: "days", op: event.Delete, version: 1, values: []event.Value{Text("acme"), Int(int64(i)), Day(when), Int(1), Null()}})
		bad = append(bad, h.last("acme"))
	}
	// The same month is good for an event of its time.
	v := order("acme", 1, "ahead", 1)
	v[2] = Time(time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC))
	h.append(ev{table: "orders", version: 1, values: v, at: time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)},
		ev{table: "orders", version: 1, values: order("acme", 9, "neighbour", 1)})
	h.takeOver().drain(1000)
	h.wantRejected(bad...)
	h.check()
}

// An event of a newer layout waits, also behind good ones in its batch; it is no dead letter.
func newerLayoutWaits(h *harness) {
	next := newer(h, h.layout)
	h.append(ev{table: "orders", version: 1, values: order("acme", 1, "old", 1)})
	h.append(ev{table: "orders", version: 1, values: order("acme", 2, "new", 1), epoch: next.Epoch()})
	o := h.takeOver()
	batches := o.batches(1000)
	for range 2 {
		if err := h.apply(h.Context(), batches[0]); !newerLayout(err) {
			h.Fatalf("an event of layout epoch %d on a sink of epoch %d: %v", next.Epoch(), h.layout.Epoch(), err)
		}
	}
	if p := slices.MaxFunc(batches[0].owned.Positions(), func(a, b event.Position) int { return int(a.Next - b.Next) }); p.Next != 0 {
		h.Errorf("progress moved to %d past an event that waits", p.Next)
	}
	h.setLayout(o.sink, next)
	o.drain(1000)
	h.wantRejected()
	h.layout = next
	h.check()
}
