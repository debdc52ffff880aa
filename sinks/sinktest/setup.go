package sinktest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/partitioner"
)

// tablesYAML has one table for each thing that a sink may get wrong.
const tablesYAML = `
tables:
  orders:                          # the usual one: month tables, signed ids
    tenant: customer
    id: order_id
    month: placed_at
    spread: order_id
    columns: { customer: string(64), order_id: int64, placed_at: datetime, status: "string(10)", qty: int32, note: "string(20)?" }
    indexes: [[customer, status]]
  people:                          # no month; a string id
    tenant: customer
    id: name
    columns: { customer: string(64), name: string(40), mail: "string(40)?" }
  places:                          # broadcast
    id: code
    columns: { code: string(8), label: string(40) }
  events:                          # month of a snowflake id
    tenant: customer
    id: event_id
    month: { snowflake: event_id, epoch: 2020-01-01T00:00:00Z }
    spread: event_id
    columns: { customer: string(64), event_id: uint64, kind: string(10) }
  days:                            # month of a date; the service's own version
    tenant: customer
    id: day_id
    month: day
    version: rev
    spread: day_id
    columns: { customer: string(64), day_id: int32, day: date, rev: int64, total: "decimal(12,2)" }
  types:                           # every type, nullable and not
    tenant: customer
    id: id
    columns:
      customer: string(64)
      id: int64
      b: bool
      i32: int32
      i64: int64
      u64: uint64
      f64: float64
      dec: decimal(38,10)
      str: string(20)
      txt: text
      byt: bytes(16)
      dat: date
      tim: datetime
      jsn: json
      nb: bool?
      ni32: int32?
      ni64: int64?
      nu64: uint64?
      nf64: float64?
      ndec: "decimal(12,2)?"
      nstr: "string(20)?"
      ntxt: text?
      nbyt: "bytes(16)?"
      ndat: date?
      ntim: datetime?
      njsn: json?
`

// Tenants of the suite. Those that are not here are placed by hash.
const (
	Dedicated = "DED" // one slot of its own, in s1
	Spread    = "SPR" // four slots in both shards, by the spread column
)

// YAML is a whole file for the suite's tables, with the factory's addresses: one for each of shards s1 and s2, and one
// for the outbox (which also keeps OLAP state). more is added as it is, for example "sinks: { … }".
func YAML(shard1, shard2, outbox, more string) string {
	return fmt.Sprintf(`line: suite
kafka: { brokers: [127.0.0.1:9092], partitions: %d, replication: 1 }
layout:
  epoch: 1
  tenants:
    %s: { slots: { 100000: s1 } }
    %s: { slots: { 100001-100002: s1, 100003-100004: s2 } }
outbox: { dsn: %q, lease_time: 60s }
shards:
  s1: { dsn: %q, slots: 0-511 }
  s2: { dsn: %q, slots: 512-1023 }
months: { from: 2013-01 }
%s
%s`, partitions, Dedicated, Spread, outbox, shard1, shard2, strings.TrimSpace(tablesYAML), more)
}

const partitions = 4

// NewSetup parses YAML, and gives the layout its partitions.
func NewSetup(t testing.TB, yaml string) Setup {
	t.Helper()
	cfg, err := config.Parse("suite.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	return Setup{Config: cfg, Layout: layoutOf(t, cfg.Layout)}
}

func layoutOf(t testing.TB, s partitioner.Spec) *partitioner.Layout {
	t.Helper()
	spec, err := s.WithPartitions(partitions)
	if err != nil {
		t.Fatal(err)
	}
	l, err := partitioner.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// newer is the same layout under the next epoch.
func newer(t testing.TB, l *partitioner.Layout) *partitioner.Layout {
	t.Helper()
	spec := l.Spec()
	spec.Epoch++
	n, err := partitioner.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// appended is when the suite's events were appended, unless a case says otherwise: months up to 2026-08 are allowed.
var appended = time.Date(2026, 6, 15, 12, 0, 0, 0, time.UTC)

// Values, by the type of their column.

// Text is a string, text, decimal or json value.
func Text(s string) event.Value { return event.Value{Bytes: []byte(s)} }

// Int is a bool, int32, int64, date or datetime value.
func Int(n int64) event.Value { return event.Value{Int: n} }

// Uint is a uint64 value.
func Uint(n uint64) event.Value { return event.Value{Uint: n} }

// Float is a float64 value.
func Float(f float64) event.Value { return event.Value{Float: f} }

// Null is a value that is not there.
func Null() event.Value { return event.Value{Null: true} }

// Time is a datetime value.
func Time(t time.Time) event.Value { return event.Value{Int: t.UnixMicro()} }

// Day is a date value.
func Day(t time.Time) event.Value { return event.Value{Int: t.Unix() / 86400} }
