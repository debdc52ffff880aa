package intake

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/partitioner"
)

const file = `line: flights
kafka: { brokers: [127.0.0.1:9092], partitions: 4 }
outbox: { dsn: "mysql://app@127.0.0.1:1/flights" }
shards: { s1: { dsn: "mysql://app@127.0.0.1:1/s1", slots: 0-511 }, s2: { dsn: "mysql://app@127.0.0.1:1/s2", slots: 512-1023 } }
months: { from: 2013-01 }
tables:
  flights:
    tenant: carrier
    id: flight_id
    month: sched_dep
    columns: { carrier: string(2), flight_id: uint64, sched_dep: datetime, day: "date?" }
  airports: { id: code, columns: { code: string(3) } }
`

var november = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

type line struct {
	t      testing.TB
	cfg    *config.Config
	layout *partitioner.Layout
	rules  *Rules
}

func newLine(t testing.TB) *line {
	t.Helper()
	cfg, err := config.Parse("slotline.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	spec, err := cfg.Layout.WithPartitions(cfg.Kafka.Partitions)
	if err != nil {
		t.Fatal(err)
	}
	l := &line{t: t, cfg: cfg}
	if l.layout, err = partitioner.New(spec); err != nil {
		t.Fatal(err)
	}
	if l.rules, err = New(cfg.Tables, &event.LimitsClickHouse, cfg.Months.From); err != nil {
		t.Fatal(err)
	}
	return l
}

// message is a flight's, in its tenant's partition, unless change says otherwise.
func (l *line) message(table string, op event.Op, values []event.Value, change func(e *event.Event)) event.Message {
	l.t.Helper()
	t := l.cfg.Table(table)
	body, err := t.AppendRow(nil, values, op)
	if err != nil {
		l.t.Fatal(err)
	}
	e := event.Event{ID: event.NewID(), Table: table, Op: op, Version: 7, Time: november, LayoutEpoch: 1,
		EntityID: string(t.CanonicalText(nil, t.ID, values[t.ID])), Body: body, Outbox: event.OutboxPosition{Generation: 1, ID: 1}}
	part := l.layout.Broadcast()
	if !t.Broadcast() {
		e.Tenant = string(values[t.Tenant].Bytes)
		part = l.layout.Route(e.Tenant, "").Partition
	}
	if change != nil {
		change(&e)
	}
	_, rec := e.AppendRecord(nil, event.Source("flights"))
	return event.Message{Record: rec, Offset: 41, Partition: event.Partition{Topic: "flights.events", Number: part}}
}

func flight(at time.Time) []event.Value {
	return []event.Value{{Bytes: []byte("UA")}, {Uint: 9}, {Int: at.UnixMicro()}, {Null: true}}
}

func TestReadAccepts(t *testing.T) {
	l := newLine(t)
	var e Event
	m := l.message("flights", event.Upsert, flight(november), nil)
	if err := l.rules.Read(&m, l.layout, &e); err != nil {
		t.Fatal(err)
	}
	if e.Table != 0 || e.Ver != 14 || e.Row.Month != 202611 || e.Row.Values[1].Uint != 9 || e.Route != l.layout.Route("UA", "") {
		t.Errorf("%+v", e)
	}
	m = l.message("flights", event.Delete, flight(november), nil)
	if err := l.rules.Read(&m, l.layout, &e); err != nil || e.Ver != 15 {
		t.Errorf("a delete: _ver %d, %v", e.Ver, err)
	}
	m = l.message("airports", event.Upsert, []event.Value{{Bytes: []byte("JFK")}}, nil)
	if err := l.rules.Read(&m, l.layout, &e); err != nil || e.Table != 1 || e.Route != (partitioner.Route{}) {
		t.Errorf("a broadcast event: %+v, %v", e, err)
	}
	// An event that an older layout placed may lie in another partition than the present one says.
	m = l.message("flights", event.Upsert, flight(november), nil)
	m.Partition.Number = (m.Partition.Number + 1) % 4
	spec := l.layout.Spec()
	spec.Epoch = 2
	newer, err := partitioner.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.rules.Read(&m, newer, &e); err != nil {
		t.Errorf("an event of an older layout: %v", err)
	}
}

func TestReadRejects(t *testing.T) {
	l := newLine(t)
	edge := func(y int, m time.Month, d int) []event.Value {
		return flight(time.Date(y, m, d, 0, 0, 0, 0, time.UTC))
	}
	elsewhere := l.message("flights", event.Upsert, flight(november), nil)
	elsewhere.Partition.Number = (elsewhere.Partition.Number + 1) % 4
	stray := l.message("airports", event.Upsert, []event.Value{{Bytes: []byte("JFK")}}, nil)
	stray.Partition.Number = 1
	early := flight(november)
	early[3] = event.Value{Int: event.LimitsClickHouse.DateMin - 1}
	for _, c := range []struct {
		name    string
		message event.Message
		reason  string // "" when it is good
	}{
		{"no record", event.Message{}, event.ReasonBadRecord},
		{"another table", l.message("flights", event.Upsert, flight(november), func(e *event.Event) { e.Table = "boats" }), "unknown_table"},
		{"another key", l.message("flights", event.Upsert, flight(november), func(e *event.Event) { e.EntityID = "8" }), event.ReasonMismatch},
		{"a date that the engine cannot hold", l.message("flights", event.Upsert, early, nil), event.ReasonOutOfRange},
		{"another partition", elsewhere, "wrong_partition"},
		{"broadcast in another partition", stray, "wrong_partition"},
		{"before months.from", l.message("flights", event.Upsert, edge(2012, 12, 31), nil), event.ReasonOutOfRange},
		{"months.from", l.message("flights", event.Upsert, edge(2013, 1, 1), nil), ""},
		{"two months ahead", l.message("flights", event.Upsert, edge(2027, 1, 31), nil), ""},
		{"three months ahead", l.message("flights", event.Upsert, edge(2027, 2, 1), nil), event.ReasonOutOfRange},
		{"three months ahead, deleted", l.message("flights", event.Delete, edge(2027, 2, 1), nil), event.ReasonOutOfRange},
	} {
		err := l.rules.Read(&c.message, l.layout, new(Event))
		if c.reason == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if !fault.Is(err, fault.Data) || Reason(err) != c.reason {
			t.Errorf("%s: reason %s, %v", c.name, Reason(err), err)
		}
	}
}

// An event of a layout that is not known waits; it is no fault of the event.
func TestReadWaitsForANewerLayout(t *testing.T) {
	l := newLine(t)
	m := l.message("flights", event.Upsert, flight(november), func(e *event.Event) { e.LayoutEpoch = 2 })
	err := l.rules.Read(&m, l.layout, new(Event))
	newer, ok := errors.AsType[*event.NewerLayout](err)
	if !ok || newer.Epoch != 2 || newer.At != m.Partition || newer.Next != 42 || fault.Is(err, fault.Data) {
		t.Errorf("%v", err)
	}
}

// A table that the engine cannot declare is refused before anything is read.
func TestNewRefusesATableThatTheEngineCannotDeclare(t *testing.T) {
	l := newLine(t)
	narrow := event.LimitsClickHouse
	narrow.RowBytesMax = 8
	if _, err := New(l.cfg.Tables, &narrow, l.cfg.Months.From); err == nil || !strings.Contains(err.Error(), "flights") {
		t.Errorf("%v", err)
	}
}

func TestReadAllocatesNothing(t *testing.T) {
	l := newLine(t)
	m := l.message("flights", event.Upsert, flight(november), nil)
	var e Event
	if allocs := testing.AllocsPerRun(100, func() {
		if err := l.rules.Read(&m, l.layout, &e); err != nil {
			t.Fatal(err)
		}
	}); allocs > 0 {
		t.Errorf("%.0f allocations for an event", allocs)
	}
}
