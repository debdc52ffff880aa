package clickhouse

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/ClickHouse/ch-go"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/sinks/olap/intent"
	"github.com/slotline/slotline/sinks/olap/rollup"
)

// scripted is a group whose answers a test chooses.
type scripted struct {
	group
	pending       *intent.Intent
	begin, commit error
	begun         int
	ranges        []event.Range
	confirmed     *intent.Intent
}

func (g *scripted) Pending() *intent.Intent { return g.pending }

func (g *scripted) Begin(_ context.Context, ranges []event.Range, excluded []intent.Excluded) (*intent.Intent, error) {
	g.begun++
	return &intent.Intent{Ranges: ranges, Excluded: excluded}, g.begin
}

func (g *scripted) CommitTouched(_ context.Context, i *intent.Intent, ranges []event.Range, _ []rollup.Touched) error {
	g.confirmed, g.ranges = i, ranges
	return g.commit
}

// badBatch holds one event, which no table can hold.
func badBatch(t *testing.T, s *Sink) *event.Batch {
	m := &maker{t: t, sink: s}
	bad := m.flight(1, 1, november, "JFK")
	bad.Value = []byte("{}")
	return batchOf([]event.Message{bad})
}

// P7: rejected events come back before anything is stored or sent; a batch of them alone then advances without an
// intent, since there is nothing to send.
func TestP7_RejectedBeforeAnythingIsStored(t *testing.T) {
	s := testSink(t)
	g := &scripted{}
	o := &owned{sink: s, group: g}
	b := badBatch(t, s)
	p, err := o.Prepare(b)
	if err != nil {
		t.Fatal(err)
	}
	rejected, err := p.Apply(t.Context())
	if err != nil || len(rejected) != 1 || rejected[0].Index != 0 || rejected[0].Reason != event.ReasonMissing {
		t.Fatalf("%v, %v", rejected, err)
	}
	if g.begun != 0 || g.ranges != nil {
		t.Error("something was stored")
	}
	b.Excluded = map[int]bool{0: true}
	if p, err = o.Prepare(b); err != nil {
		t.Fatal(err)
	}
	for range 2 { // also again
		if rejected, err := p.Apply(t.Context()); err != nil || len(rejected) > 0 {
			t.Fatalf("%v, %v", rejected, err)
		}
	}
	if g.begun != 0 || g.confirmed != nil || len(g.ranges) != 1 {
		t.Errorf("an empty batch: %+v", g)
	}
}

// A batch that is pending is confirmed under its own intent even if nothing of it is left to send, and what it left out
// is left out again.
func TestPendingIsConfirmedThoughEmpty(t *testing.T) {
	s := testSink(t)
	b := badBatch(t, s)
	g := &scripted{pending: &intent.Intent{Ranges: b.Ranges, Excluded: []intent.Excluded{{Partition: b.Messages[0].Partition, Offsets: []int64{0}}}}}
	p, err := (&owned{sink: s, group: g}).Prepare(b)
	if err != nil {
		t.Fatal(err)
	}
	if rejected, err := p.Apply(t.Context()); err != nil || len(rejected) > 0 {
		t.Fatalf("%v, %v", rejected, err)
	}
	if g.begun != 1 || g.confirmed == nil || len(g.confirmed.Excluded) != 1 {
		t.Errorf("%+v", g)
	}
}

// What went wrong decides who acts: the consumer by class, a person by the text.
func TestSettle(t *testing.T) {
	s := testSink(t)
	p := &prepared{ranges: []event.Range{{Partition: event.Partition{Topic: "flights.events", Number: 3}, From: 77}}}
	insert := func(err error) error { return &insertError{newBlock(s.tables[0]), err} }
	for _, c := range []struct {
		name  string
		err   error
		class fault.Class
		code  string
		want  string
	}{
		{"too many parts", insert(&ch.Exception{Code: 252, Message: "Too many parts"}), fault.Transient, "SL4101", "merging lags behind inserts"},
		{"connection lost", insert(io.ErrUnexpectedEOF), fault.Transient, "SL4101", "partition 3 offset 77 waits since"},
		{"something else", insert(errors.New("odd")), fault.Transient, "SL4101", "odd"},
		{"unknown table", insert(&ch.Exception{Code: 60, Message: "Table flights does not exist"}), fault.Fatal, "SL4102", "slotline apply"},
		{"another type", insert(&typeError{"origin", "Int8", "String"}), fault.Fatal, "SL4102", "column origin is Int8"},
		{"password changed", insert(&ch.Exception{Code: 516, Message: "Authentication failed"}), fault.Usage, "SL4001", "sinks.clickhouse.dsn"},
		{"state database", io.ErrUnexpectedEOF, fault.Transient, "SL4101", "no event is lost"},
		{"fenced", &fault.Error{Code: "SL4205", Class: fault.Fenced, What: "taken over"}, fault.Fenced, "SL4205", "taken over"},
		{"foreign progress", &fault.Error{Code: "SL4206", Class: fault.Fatal, What: "somebody"}, fault.Fatal, "SL4206", "somebody"},
	} {
		s.verified.Store(true)
		err := (&owned{sink: s}).settle(p, c.err)
		if fault.ClassOf(err) != c.class || fault.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %s\nclass %s, wanted %s %s with %q", c.name, err, fault.ClassOf(err), c.class, c.code, c.want)
		}
		if looks := !s.verified.Load(); looks != (c.code == "SL4102" || c.code == "SL4001") {
			t.Errorf("%s: the next take-over looks at the tables: %t", c.name, looks)
		}
	}
	rewound := &event.Rewound{}
	if err := (&owned{sink: s}).settle(p, rewound); err != error(rewound) {
		t.Errorf("rewound became %v", err)
	}
	o := &owned{sink: s}
	for n := range 3 {
		if err := o.settle(p, insert(io.EOF)); n == 2 && !strings.Contains(err.Error(), "tries: 3") {
			t.Errorf("the third try says %v", err)
		}
	}
}
