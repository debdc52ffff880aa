package outbox

import (
	"strings"
	"testing"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/partitioner"
)

func testRouter(t *testing.T, lane int) *router {
	t.Helper()
	cfg := testConfig(t)
	spec, err := cfg.Layout.WithPartitions(cfg.Kafka.Partitions)
	if err != nil {
		t.Fatal(err)
	}
	layout, err := partitioner.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return newRouter(cfg, layout, lane)
}

// What a record of this row would be refused for by every consumer is a dead letter of the relay.
func TestRouterRefuses(t *testing.T) {
	lane := partitioner.Lane("UA", 2)
	r := testRouter(t, lane)
	good := func() *laneRow {
		return &laneRow{id: 7, eventID: make([]byte, 16), table: []byte("flights"), tenant: []byte("UA"), entityID: []byte("1"), op: 1, codec: 1,
			payload: []byte("{}")}
	}
	if reason, detail, _ := r.check(good()); reason != "" {
		t.Fatal(reason, detail)
	}
	for name, c := range map[string]struct {
		change func(*laneRow)
		reason string
		detail string
	}{
		"table":          {func(w *laneRow) { w.table = []byte("nosuch") }, ReasonUnknownTable, "nosuch"},
		"event id":       {func(w *laneRow) { w.eventID = w.eventID[:15] }, ReasonBadRow, "event_id"},
		"id":             {func(w *laneRow) { w.id = idMax + 1 }, ReasonBadRow, "id"},
		"codec":          {func(w *laneRow) { w.codec = 2 }, ReasonBadRow, "codec 2"},
		"op":             {func(w *laneRow) { w.op = 0 }, ReasonBadRow, "op 0"},
		"no tenant":      {func(w *laneRow) { w.tenant = nil }, ReasonBadRow, "tenant"},
		"tenant's NUL":   {func(w *laneRow) { w.tenant = []byte("U\x00") }, ReasonBadRow, "NUL"},
		"tenant's text":  {func(w *laneRow) { w.tenant = []byte("U\xff") }, ReasonBadRow, "UTF-8"},
		"entity's text":  {func(w *laneRow) { w.entityID = []byte("\xff") }, ReasonBadRow, "UTF-8"},
		"no entity":      {func(w *laneRow) { w.entityID = nil }, ReasonBadRow, "entity_id"},
		"wrong lane":     {func(w *laneRow) { w.tenant = otherLane(lane) }, ReasonBadRow, LaneTable(1 - lane)},
		"broadcast":      {func(w *laneRow) { w.table = []byte("airports") }, ReasonBadRow, "no tenant"},
		"auto version":   {func(w *laneRow) { w.versioned, w.version = true, 5 }, ReasonBadVersion, "NULL"},
		"no version":     {func(w *laneRow) { w.table = []byte("orders") }, ReasonBadVersion, "column"},
		"version 0":      {func(w *laneRow) { w.table, w.versioned = []byte("orders"), true }, ReasonBadVersion, "version 0"},
		"version beyond": {func(w *laneRow) { w.table, w.versioned, w.version = []byte("orders"), true, event.VersionMax+1 }, ReasonBadVersion, "4611686018427387904"},
	} {
		t.Run(name, func(t *testing.T) {
			row := good()
			c.change(row)
			reason, detail, _ := r.check(row)
			if reason != c.reason || !strings.Contains(detail, c.detail) {
				t.Errorf("%s: %s", reason, detail)
			}
			if it := r.item(row, generations{{1, 1}}, &arena{}); it.reason != c.reason || it.out != nil {
				t.Errorf("item %+v", it)
			}
		})
	}
}

func otherLane(lane int) []byte {
	for _, tenant := range []string{"AA", "DL", "B6", "WN", "AS"} {
		if partitioner.Lane(tenant, 2) != lane {
			return []byte(tenant)
		}
	}
	panic("all tenants are in one lane")
}

// Every record that the relay makes is one that consumers read, and says what the row says.
func TestItemIsAReadableRecord(t *testing.T) {
	gens := generations{{1, 1}, {5, 3}}
	var a arena
	for i, e := range goldenEvents() {
		r := testRouter(t, partitioner.Lane(e.Tenant, 2))
		row := &laneRow{id: uint64(4 + i), eventID: e.ID[:], table: []byte(e.Table), tenant: []byte(e.Tenant), entityID: []byte(e.EntityID), op: int64(e.Op),
			version: e.Version, versioned: e.Version != 0, codec: codecJSON, created: e.Time.UnixMicro(), trace: []byte(e.TraceParent),
			payload: e.Body, spread: []byte(e.Spread)}
		it := r.item(row, gens, &a)
		if it.reason != "" {
			t.Fatal(it.reason, it.detail)
		}
		var v event.View
		if err := event.ParseView(it.out.Record, &v); err != nil {
			t.Fatal(err)
		}
		want := event.OutboxPosition{Generation: gens.at(row.id), Lane: r.lane, ID: row.id}
		if v.ID != e.ID || string(v.Table) != e.Table || string(v.Tenant) != e.Tenant || string(v.EntityID) != e.EntityID || v.Op != e.Op ||
			v.Outbox != want || string(v.Body) != string(e.Body) || v.Time.UnixMicro() != e.Time.UnixMicro() || string(v.TraceParent) != e.TraceParent {
			t.Errorf("event %d: %+v", i, v)
		}
		if version := e.Version; version == 0 && v.Version != gens.at(row.id)<<47|int64(row.id) || version != 0 && v.Version != version {
			t.Errorf("event %d has version %d", i, v.Version)
		}
		if pos, id, ok := identify(&it.out.Record, r.source); !ok || pos != want || id != e.ID {
			t.Errorf("the tail scan reads %+v %v %v", pos, id, ok)
		}
		if p := it.out.Partition; e.Tenant == "" && p.Number != 0 || e.Tenant != "" && p.Number != r.layout.Route(e.Tenant, e.Spread).Partition {
			t.Errorf("event %d goes to %v", i, p)
		}
	}
}
