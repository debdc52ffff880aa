package integration

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/integration/harness"
)

// waits applies a batch that the server cannot take now: an outage that names the server's number, and no dead letter.
func (l *olapLine) waits(p event.Prepared, number string) {
	l.t.Helper()
	rejected, err := p.Apply(l.t.Context())
	if !fault.Is(err, fault.Transient) || fault.CodeOf(err) != "SL4101" || !strings.Contains(err.Error(), number) || len(rejected) > 0 {
		l.t.Fatalf("rejected %v, %v; wanted an outage with %s", rejected, err, number)
	}
}

// P7: "too many parts" is waited for: nothing is rejected, lost or stored twice once merges have caught up.
func TestP7_ClickHouseSinkTooManyParts(t *testing.T) {
	t.Parallel()
	l := newOLAPLine(t, harness.ClickHouse(t), olapTables)
	l.stopMerges("items")
	a := l.tenant(1)
	o := l.takeOver(l.sink("a"))
	l.applyBatch(o, l.cut(o, l.message(1, "items", event.Upsert, 1, item(a, 1, "one"))))
	l.run("ALTER TABLE items MODIFY SETTING parts_to_delay_insert = 1, parts_to_throw_insert = 1")
	p, err := o.Prepare(l.cut(o, l.message(1, "items", event.Upsert, 1, item(a, 2, "two"))))
	if err != nil {
		t.Fatal(err)
	}
	l.waits(p, "code 252")
	l.waits(p, "tries: 2")
	l.run("ALTER TABLE items RESET SETTING parts_to_delay_insert, parts_to_throw_insert")
	if rejected, err := p.Apply(t.Context()); err != nil || len(rejected) > 0 {
		t.Fatalf("rejected %v, %v", rejected, err)
	}
	l.wantView("items_now", "item,name", "1|one", "2|two")
	if got := l.stored("items"); got != 2 {
		t.Errorf("%d rows are stored, wanted 2", got)
	}
}

// P7: a memory limit is waited for; an owner that may use more sends the stored batch.
func TestP7_ClickHouseSinkMemoryLimit(t *testing.T) {
	t.Parallel()
	l := newOLAPLine(t, harness.ClickHouse(t), olapTables)
	a := l.tenant(1)
	var log []event.Message
	for i := range 32 {
		log = append(log, l.message(1, "notes", event.Upsert, 1, note(a, fmt.Sprint(i), strings.Repeat("x", 500_000))))
	}
	l.params = "max_memory_usage=8000000&max_untracked_memory=0"
	o := l.takeOver(l.sink("a"))
	p, err := o.Prepare(l.cut(o, log...))
	if err != nil {
		t.Fatal(err)
	}
	l.waits(p, "code 241")
	if err := o.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.params = ""
	o = l.takeOver(l.sink("b"))
	l.applyBatch(o, l.pendingBatch(o, log))
	if got := l.stored("notes"); got != len(log) {
		t.Errorf("%d rows are stored, wanted %d", got, len(log))
	}
}

// note is a row of notes.
func note(owner, id, body string) []event.Value {
	return []event.Value{{Bytes: []byte(owner)}, {Bytes: []byte(id)}, {Bytes: []byte(body)}}
}

// P9: the network goes away before a block and in the middle of one: it is sent again, and stored once. Before the answer
// is TestClickHouseSinkFailsOver.
func TestP9_ClickHouseSinkNetworkCut(t *testing.T) {
	for name, after := range map[string]int{"before the block": 0, "inside the block": 20_000} {
		t.Run(name, func(t *testing.T) {
			l := newOLAPLine(t, harness.ClickHouse(t), olapTables)
			l.stopMerges("notes")
			w := newWireCut(t, l.server.Addr, after)
			l.hosts = w.listener.Addr().String()
			o := l.takeOver(l.sink("a"))
			a, random := l.tenant(1), rand.New(rand.NewPCG(1, 2))
			var log []event.Message
			for i := range 20 {
				body := make([]byte, 10_000) // that does not compress to nothing
				for j := range body {
					body[j] = byte('a' + random.IntN(26))
				}
				log = append(log, l.message(1, "notes", event.Upsert, 1, note(a, fmt.Sprint(i), string(body))))
			}
			p, err := o.Prepare(l.cut(o, log...))
			if err != nil {
				t.Fatal(err)
			}
			w.armed.Store(true)
			rejected, err := p.Apply(t.Context())
			if !fault.Is(err, fault.Transient) || fault.CodeOf(err) != "SL4101" || len(rejected) > 0 || w.armed.Load() {
				t.Fatalf("rejected %v, %v; the cut is still to come: %v", rejected, err, w.armed.Load())
			}
			if rejected, err := p.Apply(t.Context()); err != nil || len(rejected) > 0 {
				t.Fatalf("rejected %v, %v", rejected, err)
			}
			if got := l.stored("notes"); got != len(log) {
				t.Errorf("%d rows are stored, wanted %d", got, len(log))
			}
		})
	}
}
