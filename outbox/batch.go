package outbox

import (
	"time"

	"github.com/slotline/slotline/event"
)

const (
	// batchRows: at 500 rows a read costs 1.7 times as much per row; beyond 5000 there is no gain.
	batchRows = 5000
	// batchBytesMax is the memory of batchRows rows of 600 B; payloadBytesMax cuts batches of larger ones sooner, since they
	// gain nothing by being long. Both bound what a lane holds: batchesMax of them.
	batchBytesMax   = 8 << 20
	payloadBytesMax = 4 << 20
	batchesMax      = 4 // of a lane: three with the Writer, whose requests take a part of each, and one with the reader
	// recordOverhead is what a row takes beside its payload: key, headers, and the structures around them.
	recordOverhead = 1 << 10
	arenaBytes     = 256 << 10
)

// arena hands out memory for rows, many at a time: a part of it lives as long as any row in it is held. So a part is
// small beside a batch, and large payloads have memory of their own.
type arena struct {
	free []byte
	list []event.Header
	rows []arenaRow
	held int // bytes taken since rows began
}

type arenaRow struct {
	item item
	out  Out
}

const (
	headersMax = 12 // of a record
	arenaRows  = 64
)

func (a *arena) row() *arenaRow {
	if len(a.rows) == 0 || a.held > arenaBytes {
		a.rows, a.held = make([]arenaRow, arenaRows), 0
	}
	row := &a.rows[0]
	a.rows = a.rows[1:]
	return row
}

// headers is an empty list with room for a record's headers.
func (a *arena) headers() []event.Header {
	if len(a.list) < headersMax {
		a.list = make([]event.Header, arenaRows*headersMax)
	}
	h := a.list[:0:headersMax]
	a.list = a.list[headersMax:]
	return h
}

func (a *arena) take(n int) []byte {
	a.held += n
	if n > arenaBytes/4 {
		return make([]byte, n)
	}
	if n > cap(a.free)-len(a.free) {
		a.free = make([]byte, 0, arenaBytes)
	}
	start := len(a.free)
	a.free = a.free[:start+n]
	return a.free[start : start+n : start+n]
}

// copy keeps the bytes of v; nil stays nil.
func (a *arena) copy(v []byte) []byte {
	if v == nil {
		return nil
	}
	b := a.take(len(v))
	copy(b, v)
	return b
}

// batchBytes is what one batch may have where so many lanes share so much memory: all batches together take half of it,
// since as much again may be garbage.
func batchBytes(memoryBytesMax int64, lanes int) int64 {
	return min(batchBytesMax, memoryBytesMax/int64(2*batchesMax*lanes))
}

// item makes what the flow works with of a row. Its record's slices lie in the arena and in the row.
func (r *router) item(row *laneRow, gens generations, a *arena) *item {
	made := a.row()
	it := &made.item
	it.id, it.part, it.bytes = row.id, -1, int64(len(row.payload))+recordOverhead
	it.created = time.UnixMicro(row.created).UTC()
	copy(it.eventID[:], row.eventID)
	reason, detail, t := r.check(row)
	if reason != "" {
		it.reason, it.detail = reason, detail
		return it
	}
	it.part = r.route(row, t)
	version := row.version
	if !row.versioned {
		version = gens.version(row.id)
	}
	ev := event.Event{
		ID: it.eventID, Table: t.table.Name, Tenant: text(row.tenant), EntityID: text(row.entityID),
		Op: event.Op(row.op), Version: version, Time: it.created, LayoutEpoch: r.layout.Epoch(),
		Outbox:      event.OutboxPosition{Generation: gens.at(row.id), Lane: r.lane, ID: row.id},
		TraceParent: text(row.trace), Body: row.payload,
	}
	it.out = &made.out
	it.out.Partition, it.out.item = r.names[it.part], it
	it.out.Record.Headers = a.headers()
	if cap(a.free)-len(a.free) < recordOverhead {
		a.free = make([]byte, 0, arenaBytes)
	}
	a.free = ev.AppendRecordTo(a.free, r.source, &it.out.Record)
	return it
}
