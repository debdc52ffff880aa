package outbox

import (
	"bytes"
	"fmt"
	"slices"
	"unicode/utf8"
	"unsafe"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/partitioner"
)

// router turns a lane's rows into records for partitions, by the file and the layout. It is pure.
type router struct {
	lane   int
	lanes  int
	source string // ce_source
	layout *partitioner.Layout
	tables map[string]routedTable
	names  []event.Partition // by index; the topics one after the other
	routed int               // so many of names can be routed to
}

type routedTable struct {
	table *event.Table
	first int // index of its topic's partition 0
}

func newRouter(cfg *config.Config, layout *partitioner.Layout, lane int) *router {
	r := &router{lane: lane, lanes: cfg.Outbox.Lanes, source: "slotline/" + cfg.Line, layout: layout,
		tables: map[string]routedTable{}}
	firsts := map[string]int{}
	for _, t := range cfg.Tables {
		topic := cfg.Topic(t)
		first, known := firsts[topic]
		if !known {
			first = len(r.names)
			firsts[topic] = first
			for n := range layout.Partitions() {
				r.names = append(r.names, event.Partition{Topic: topic, Number: int32(n)})
			}
		}
		r.tables[t.Name] = routedTable{t, first}
	}
	r.routed = len(r.names)
	return r
}

// add makes sure that a partition has an index: one of an earlier layout may still have parked ids.
func (r *router) add(p event.Partition) {
	if !slices.Contains(r.names, p) {
		r.names = append(r.names, p)
	}
}

// laneRow is a row of a lane's table as it was read. Its slices live as long as its batch.
type laneRow struct {
	id        uint64
	eventID   []byte
	table     []byte
	tenant    []byte
	entityID  []byte
	op        int64
	version   int64
	versioned bool
	codec     int64
	created   int64 // µs since the Unix epoch
	trace     []byte
	payload   []byte
	spread    []byte
}

// check says why a row cannot be published; reason is "" if it can.
func (r *router) check(row *laneRow) (reason, detail string, t routedTable) {
	t, ok := r.tables[string(row.table)]
	if !ok {
		return ReasonUnknownTable, fmt.Sprintf("the file has no table %.64q", row.table), t
	}
	bad := func(format string, args ...any) (string, string, routedTable) {
		return ReasonBadRow, fmt.Sprintf(format, args...), t
	}
	switch {
	case len(row.eventID) != len(event.ID{}):
		return bad("event_id has %d bytes, 16 are needed", len(row.eventID))
	case row.id > idMax:
		return bad("id %d is beyond %d", row.id, uint64(idMax))
	case row.codec != codecJSON:
		return bad("codec %d is not known; 1 is JSON", row.codec)
	case row.op != int64(event.Upsert) && row.op != int64(event.Delete):
		return bad("op %d is neither 1 (upsert) nor 2 (delete)", row.op)
	case t.table.Broadcast() && len(row.tenant) > 0:
		return bad("table %s has no tenant, the row has %.64q", t.table.Name, row.tenant)
	case !t.table.Broadcast() && len(row.tenant) == 0:
		return bad("tenant is empty")
	case bytes.IndexByte(row.tenant, 0) >= 0:
		return bad("tenant holds a NUL")
	case len(row.entityID) == 0:
		return bad("entity_id is empty")
	case !utf8.Valid(row.tenant), !utf8.Valid(row.entityID):
		return bad("tenant or entity_id is not UTF-8")
	case partitioner.Lane(text(row.tenant), r.lanes) != r.lane:
		return bad("tenant %.64q belongs in %s: CRC32(tenant) mod %d", row.tenant,
			LaneTable(partitioner.Lane(text(row.tenant), r.lanes)), r.lanes)
	}
	switch auto := t.table.Version == event.None; {
	case auto && row.versioned:
		return ReasonBadVersion, "version must be NULL: table " + t.table.Name + " has automatic versions", t
	case !auto && !row.versioned:
		return ReasonBadVersion, "version is NULL, but table " + t.table.Name + " takes it from a column", t
	case !auto && (row.version < 1 || row.version > event.VersionMax):
		return ReasonBadVersion, fmt.Sprintf("version %d is not from 1 to %d", row.version, int64(event.VersionMax)), t
	}
	return "", "", t
}

// route is the partition index of a row that passed check.
func (r *router) route(row *laneRow, t routedTable) int {
	if t.table.Broadcast() {
		return t.first + int(r.layout.Broadcast())
	}
	return t.first + int(r.layout.RouteBytes(row.tenant, row.spread).Partition)
}

// text views bytes as a string that lives as long as they do.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
