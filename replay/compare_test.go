package replay

import (
	"database/sql"
	"reflect"
	"testing"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/mysql"
)

const compareFile = `line: flights
kafka: { brokers: [127.0.0.1:9092], partitions: 4 }
outbox: { dsn: "mysql://app@127.0.0.1:1/flights" }
shards: { s1: { dsn: "mysql://app@127.0.0.1:1/s1", slots: 0-1023 } }
months: { from: 2013-01 }
tables:
  flights:
    tenant: carrier
    id: flight_id
    month: sched_dep
    columns: { carrier: string(2), flight_id: uint64, sched_dep: datetime, status: "string(10)?", extra: json }
  airports: { id: code, columns: { code: string(3), n: int32 } }
`

// comparerOf compares flights_201303, or airports.
func comparerOf(t *testing.T, table string) *comparer {
	t.Helper()
	cfg, err := config.Parse("slotline.yaml", []byte(compareFile))
	if err != nil {
		t.Fatal(err)
	}
	spec, err := cfg.Layout.WithPartitions(cfg.Kafka.Partitions)
	if err != nil {
		t.Fatal(err)
	}
	layout, err := partitioner.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	l := cfg.Table(table)
	name := table
	if l.Month != event.None {
		name += "_201303"
	}
	c := &comparer{r: &Replay{o: Options{Config: cfg, Layout: layout, Shard: "s1"}}, job: &Job{Name: "rb7f3a"}, out: &Comparison{},
		pair: pair{mysql.PhysicalTable{Table: l, Name: name}, mysql.PhysicalTable{Table: l, Name: name + "__rb_rb7f3a"}}}
	if !l.Broadcast() {
		c.keys = append(c.keys, l.Columns[l.Tenant])
	}
	c.keys = append(c.keys, l.Columns[l.ID])
	return c
}

func TestCompareSQL(t *testing.T) {
	c := comparerOf(t, "flights")
	for got, want := range map[string]string{
		c.join("a", "b"): "`flights_201303` a LEFT JOIN `flights_201303__rb_rb7f3a` b ON b.`carrier`=a.`carrier` AND b.`flight_id`=a.`flight_id`",
		c.same(): "a.`_ver`=b.`_ver` AND a.`sched_dep`<=>b.`sched_dep` AND CAST(a.`status` AS BINARY)<=>CAST(b.`status` AS BINARY)" +
			" AND a.`extra`<=>b.`extra`",
	} {
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	where, args := c.within("b", []any{"AA", uint64(1)}, []any{"UA", uint64(9)})
	if want := " WHERE (b.`carrier`>? OR (b.`carrier`=? AND b.`flight_id`>?)) AND (b.`carrier`<? OR (b.`carrier`=? AND b.`flight_id`<=?))"; where != want {
		t.Errorf("got  %s\nwant %s", where, want)
	}
	if want := []any{"AA", "AA", uint64(1), "UA", "UA", uint64(9)}; !reflect.DeepEqual(args, want) {
		t.Errorf("arguments %v, want %v", args, want)
	}
	if where, args := c.within("a", nil, nil); where != " WHERE TRUE" || args != nil {
		t.Errorf("without bounds: %s %v", where, args)
	}
	where, _ = comparerOf(t, "airports").within("a", []any{"EWR"}, []any{"JFK"})
	if want := " WHERE a.`code`>? AND a.`code`<=?"; where != want {
		t.Errorf("got  %s\nwant %s", where, want)
	}
}

// A difference counts when the side that lacks something has applied as much as the other; else it may be late.
func TestDecidedTellsLagFromDifference(t *testing.T) {
	for _, table := range []string{"flights", "airports"} {
		c := comparerOf(t, table)
		part := event.Partition{Topic: "flights.events", Number: c.r.o.Layout.Broadcast()}
		if table == "flights" {
			part.Number = c.r.o.Layout.Route("UA", "").Partition
		}
		for _, x := range []struct {
			liveVer, logVer int64
			live, log       int64 // next offsets
			want            bool
		}{
			{8, 8, 5, 9, true},  // the same version, other bytes
			{6, 8, 5, 9, false}, // live may have it still to come
			{6, 8, 9, 9, true},  // live has passed it
			{6, 8, 10, 9, true}, //
			{0, 8, 5, 9, false}, // not live yet
			{0, 8, 9, 9, true},  // missing
			{8, 6, 9, 5, false}, // the rebuilt table may have it still to come
			{8, 6, 9, 9, true},  // no event made it
			{8, 0, 9, 5, false}, //
			{8, 0, 9, 10, true}, // extra
		} {
			d := &Difference{Tenant: "UA", ID: "1", LiveVer: x.liveVer, LogVer: x.logVer}
			if got := c.decided(d, "", ends{part: x.live}, ends{part: x.log}); got != x.want {
				t.Errorf("%s: live _ver %d at offset %d, log %d at %d: decided %t", table, x.liveVer, x.live, x.logVer, x.log, got)
			}
		}
	}
}

func TestDifferenceText(t *testing.T) {
	for want, d := range map[string]Difference{
		"flights_201303 UA 9  missing; log _ver 8":                                  {Table: "flights_201303", Tenant: "UA", ID: "9", LogVer: 8},
		"airports JFK  live _ver 8; not in the log":                                 {Table: "airports", ID: "JFK", LiveVer: 8},
		"flights_201303 UA 9  live _ver 6, log 8: status scheduled -> \"\"":         {Table: "flights_201303", Tenant: "UA", ID: "9", LiveVer: 6, LogVer: 8, What: "status scheduled -> " + shown(sql.NullString{Valid: true})},
		"flights_201303 UA 9  live _ver 8, log 8: status NULL -> arrived, n 1 -> 2": {Table: "flights_201303", Tenant: "UA", ID: "9", LiveVer: 8, LogVer: 8, What: "status " + shown(sql.NullString{}) + " -> arrived, n 1 -> 2"},
	} {
		if got := d.String(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
