package outbox

import (
	"time"

	"github.com/slotline/slotline/event"
)

const (
	// batchRows: at 500 rows a read costs 1.7 times as much per row; beyond 5000 there is no gain.
	batchRows = 5000
	// batchBytes bounds what a lane holds, three batches, also where events are large.
	batchBytes = 4 << 20
	// recordOverhead is what a row takes beside its payload: key, headers, and the structures around them.
	recordOverhead = 1 << 10
	arenaBytes     = 256 << 10
)

// arena hands out byte slices that live as long as any of them is held.
type arena struct {
	free []byte
	list []event.Header
}

const headersMax = 12 // of a record

// headers is an empty list with room for a record's headers.
func (a *arena) headers() []event.Header {
	if len(a.list) < headersMax {
		a.list = make([]event.Header, 256*headersMax)
	}
	h := a.list[:0:headersMax]
	a.list = a.list[headersMax:]
	return h
}

func (a *arena) take(n int) []byte {
	if n > cap(a.free)-len(a.free) {
		a.free = make([]byte, 0, max(n, arenaBytes))
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

// item makes what the flow works with of a row. Its record's slices lie in the arena and in the row.
func (r *router) item(row *laneRow, gens generations, a *arena) *item {
	it := &item{id: row.id, part: -1, bytes: int64(len(row.payload)) + recordOverhead,
		created: time.UnixMicro(row.created).UTC()}
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
	it.out = &Out{Partition: r.names[it.part], item: it}
	it.out.Record.Headers = a.headers()
	if cap(a.free)-len(a.free) < recordOverhead {
		a.free = make([]byte, 0, arenaBytes)
	}
	a.free = ev.AppendRecordTo(a.free, r.source, &it.out.Record)
	return it
}
