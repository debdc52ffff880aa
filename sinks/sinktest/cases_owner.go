package sinktest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/slotline/slotline/event"
)

// Offsets may have holes, and a range may hold no event at all: progress passes them.
func holes(h *harness) {
	for i := range int64(6) {
		h.append(ev{table: "orders", version: 1, values: order("acme", i, "s", i), skip: i * 2})
	}
	p := h.layout.Route("acme", "").Partition
	h.end[p] += 5 // markers at the end
	o := h.takeOver()
	o.drain(2)
	h.check()
	h.end[p] += 3
	o.drain(2) // only markers
	h.check()
	for _, owned := range h.takeOver().units {
		for _, at := range owned.Positions() {
			if at.Next != h.end[at.Number] {
				h.Errorf("partition %d stands at %d, its log ends at %d", at.Number, at.Next, h.end[at.Number])
			}
		}
	}
}

// An unknown outcome is answered by applying the same Prepared again.
func preparedAgain(h *harness) {
	for i := range int64(10) {
		h.append(ev{table: "orders", version: i + 1, values: order("acme", i%3, "s", i)})
	}
	o := h.takeOver()
	for _, u := range o.batches(1000) {
		p, err := u.owned.Prepare(u.batch)
		if err != nil {
			h.Fatal(err)
		}
		for range 3 {
			if rejected, err := p.Apply(h.Context()); err != nil || len(rejected) > 0 {
				h.Fatalf("applied again: %v, %v", rejected, err)
			}
			h.wantPositions(u.owned, u.batch.Ranges)
		}
	}
	h.check()
}

// The next batch is prepared while the present one is applied, from buffers of its own; and prepared again when the
// present one had to be.
func prepareAhead(h *harness) {
	for i := range int64(40) {
		body := ""
		if i == 3 || i == 17 {
			body = `{"bad":1}`
		}
		h.append(ev{table: "orders", version: i + 1, values: order("acme", i%9, "s", i), body: body})
	}
	o := h.takeOver()
	p := h.layout.Route("acme", "").Partition
	for _, owned := range o.units {
		positions := owned.Positions()
		if !slices.ContainsFunc(positions, func(at event.Position) bool { return at.Number == p }) {
			continue
		}
		cut := func(from, to int64) unitBatch {
			b := &event.Batch{Ranges: []event.Range{{Partition: event.Partition{Topic: h.topic(), Number: p}, From: from, To: to,
				LeaderEpoch: 3, TopicID: topicID}}}
			b.Messages = append(b.Messages, h.log[p][from:to]...)
			return unitBatch{owned, b}
		}
		cur := cut(0, 10)
		for at := int64(10); ; at += 10 {
			ready, err := owned.Prepare(cur.batch)
			if err != nil {
				h.Fatal(err)
			}
			var next unitBatch
			ahead := make(chan error, 1)
			if at < 40 {
				next = cut(at, at+10)
				go func() {
					_, err := owned.Prepare(next.batch)
					ahead <- err
				}()
			} else {
				ahead <- nil
			}
			rejected, err := ready.Apply(h.Context())
			if err := <-ahead; err != nil {
				h.Fatal(err)
			}
			if err != nil {
				h.Fatal(err)
			}
			if len(rejected) > 0 {
				if err := h.apply(h.Context(), cur); err != nil { // prepares the present one again
					h.Fatal(err)
				}
			}
			h.wantPositions(owned, cur.batch.Ranges)
			if at >= 40 {
				break
			}
			cur = next
		}
	}
	h.check()
}

// A new owner reads what the old one had not applied, and cuts it otherwise.
func otherCuts(h *harness) {
	for i := range int64(30) {
		h.append(ev{table: "orders", version: i + 1, values: order("acme", i%7, "s", i)},
			ev{table: "orders", version: i + 1, values: order(Spread, i%7, "s", i)},
			ev{table: "places", version: i + 1, values: []event.Value{Text("HAM"), Text(fmt.Sprint(i))}})
	}
	for _, rows := range []int{7, 4, 9, 1} {
		o := h.takeOver()
		for _, u := range o.batches(rows) {
			if err := h.apply(h.Context(), u); err != nil {
				h.Fatal(err)
			}
		}
		o.release()
	}
	h.takeOver().drain(11)
	h.check()
}

// release lets the next owner in at once.
func (o *owner) release() {
	o.h.Helper()
	for _, u := range o.units {
		if err := u.Release(o.h.Context()); err != nil {
			o.h.Fatalf("release: %v", err)
		}
	}
}

// P5: a writer that was paused and replaced changes nothing when it wakes, whether its batch was prepared before or
// after, and whether its successor has applied the same offsets or not.
func zombie(h *harness) {
	for i := range int64(20) {
		h.append(ev{table: "orders", version: i + 1, values: order("acme", i%5, "s", i)})
	}
	paused := h.takeOver()
	for _, u := range paused.batches(5) {
		if err := h.apply(h.Context(), u); err != nil {
			h.Fatal(err)
		}
	}
	type sleeping struct {
		event.Prepared
		batch unitBatch
	}
	var asleep []sleeping
	for _, u := range paused.batches(5) {
		p, err := u.owned.Prepare(u.batch)
		if err != nil {
			h.Fatal(err)
		}
		asleep = append(asleep, sleeping{p, u})
	}
	next := h.takeOver() // waits for the lease, where there is one
	wake := func() {
		h.Helper()
		for _, s := range asleep {
			if _, err := s.Apply(h.Context()); !fenced(err) {
				h.Errorf("a replaced writer applied %v: %v", s.batch.batch.Ranges, err)
			}
			if err := h.apply(h.Context(), s.batch); !fenced(err) {
				h.Errorf("a replaced writer prepared and applied %v: %v", s.batch.batch.Ranges, err)
			}
		}
	}
	before := map[int32]int64{}
	for _, u := range next.units {
		for _, p := range u.Positions() {
			before[p.Number] = p.Next
		}
	}
	wake()
	h.foldTo(before)
	h.checkFolded()
	next.drain(3)
	wake()
	h.check()
	h.append(ev{table: "orders", version: 50, values: order("acme", 1, "after", 50)})
	next.drain(3)
	h.check()
}

// Whatever an interrupted Apply left behind, the next owner continues from it.
func interrupted(h *harness) {
	seed := randomSeed(h)
	random := rand.New(rand.NewPCG(seed, 1))
	for round := range 6 {
		for i := range int64(12) {
			h.append(ev{table: "orders", version: int64(round)*12 + i + 1, values: order("acme", random.Int64N(9), "s", i)},
				ev{table: "people", version: i + 1, values: []event.Value{Text(fmt.Sprint("t", random.IntN(6))), Text("n"), Null()}})
		}
		o := h.takeOver()
		for _, u := range o.batches(1 + random.IntN(12)) {
			ctx, cancel := context.WithTimeout(h.Context(), time.Duration(random.IntN(4000))*time.Microsecond)
			// Any outcome is right here, as long as the next owner finds it.
			_ = h.apply(ctx, u)
			cancel()
		}
		o.release()
	}
	h.takeOver().drain(1000)
	h.check()
}

// randomSeed prints the seed of a random case; SINKTEST_SEED repeats one.
func randomSeed(h *harness) uint64 {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SINKTEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			h.Fatalf("SINKTEST_SEED: %v", err)
		}
	}
	h.Logf("SINKTEST_SEED=%d", seed)
	return seed
}

// P3, P4: random events of a few entities in random order, bad ones among them, applied in random cuts by changing
// owners, against the plain fold.
func randomLogs(h *harness) {
	random := rand.New(rand.NewPCG(randomSeed(h), 2))
	tenants := []string{"acme", "globex", Dedicated, Spread, "ü"}
	sent := map[string][]event.Value{} // equal (entity, version) means equal bytes
	draw := func() ev {
		tenant := tenants[random.IntN(len(tenants))]
		id, version := random.Int64N(6)-2, 1+random.Int64N(12)
		e := ev{version: version, skip: max(0, random.Int64N(8)-6)}
		if random.IntN(4) == 0 {
			e.op = event.Delete
		}
		key := func(table string) string { return fmt.Sprint(table, tenant, id, version, e.op) }
		switch random.IntN(4) {
		case 0:
			e.table = "people"
			e.values = []event.Value{Text(tenant), Text(fmt.Sprint("n", id)), Text(fmt.Sprint(random.IntN(100)))}
			if random.IntN(3) == 0 {
				e.values[2] = Null()
			}
		case 1:
			e.table, tenant = "places", ""
			e.values = []event.Value{Text(fmt.Sprint("p", id)), Text(fmt.Sprint(random.IntN(100)))}
		default:
			e.table = "orders"
			e.values = order(tenant, id, fmt.Sprint("s", random.IntN(100)), random.Int64N(1000))
			e.values[2] = Time(appended.AddDate(0, -int(id+2), 0)) // immutable: by the id
		}
		if old, ok := sent[key(e.table)]; ok {
			e.values = old
		}
		sent[key(e.table)] = e.values
		if random.IntN(25) == 0 {
			e.body = `{"customer":1}`
		}
		return e
	}
	var o *owner
	for range 12 {
		for range 30 + random.IntN(60) {
			h.append(draw())
		}
		if o == nil || random.IntN(3) == 0 {
			if o != nil && random.IntN(2) == 0 {
				o.release()
			}
			o = h.takeOver()
		}
		if random.IntN(2) == 0 {
			o.drain(1 + random.IntN(40))
			h.check()
			continue
		}
		for _, u := range o.batches(1 + random.IntN(40)) {
			if err := h.apply(h.Context(), u); err != nil {
				h.Fatal(err)
			}
		}
	}
	o.drain(1 + random.IntN(200))
	h.check()
}
