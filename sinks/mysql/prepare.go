package mysql

import (
	"errors"
	"fmt"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/intake"
)

// prepared is one batch, encoded. It is used by one goroutine at a time.
type prepared struct {
	owned    *owned
	state    *state // that placed the rows
	at       event.Range
	buffer   *rows // nil once it went back to owned
	rejected []event.Rejected
	shards   []int32          // that have progress to make, ascending
	mixed    bool             // holds rows of broadcast tables
	passed   map[int32]passed // by shard: events of months that are retired there; nil without one
	rowCount int
	bytes    int
}

// Size is the rows that are sent and the bytes of their SQL.
func (p *prepared) Size() (rows, bytes int) { return p.rowCount, p.bytes }

// Prepare decodes and encodes a batch of this partition. It may run while Apply of the batch before is under way.
func (o *owned) Prepare(b *event.Batch) (event.Prepared, error) {
	if len(b.Ranges) != 1 || b.Ranges[0].Partition != o.part {
		return nil, fmt.Errorf("sink %s: a batch of %d ranges was given to the owner of %s partition %d alone",
			o.sink.name, len(b.Ranges), o.part.Topic, o.part.Number)
	}
	st := o.sink.state.Load()
	p := &prepared{owned: o, state: st, at: b.Ranges[0], buffer: o.takeBuffer()}
	floors := o.floors(st.layout)
	for i := range b.Messages {
		if b.Excluded[i] {
			continue
		}
		err := p.add(st, &b.Messages[i], i, floors)
		if err == nil {
			continue
		}
		if !fault.Is(err, fault.Data) {
			o.giveBuffer(p)
			return nil, err
		}
		p.rejected = append(p.rejected, event.Rejected{Index: i, Reason: intake.Reason(err), Err: err})
	}
	p.bytes = len(p.buffer.arena)
	p.buffer.reduce()
	p.rowCount = len(p.buffer.entries)
	p.shards = o.shardsOf(st.layout, p.buffer.entries)
	return p, nil
}

// add decodes one message and adds its rows, one per shard that it belongs to.
func (p *prepared) add(st *state, m *event.Message, index int, floors []floor) error {
	o := p.owned
	if o.sink.passesOver(m.Key) {
		return nil
	}
	e := &o.event
	if err := o.sink.rules.Read(m, st.layout, e); err != nil {
		return err
	}
	n, row, ver := e.Table, &e.Row, e.Ver
	t := o.sink.tables[n]
	first, count := e.Route.Shard, int32(1)
	if t.Broadcast() { // a row of it goes to every shard
		first, count, p.mixed = 0, int32(len(floors)), true
	}

	var key, tuple span
	for shard := first; shard < first+count; shard++ {
		if m.Offset < floors[shard].next || !o.sink.keeps(st.shards[shard].name) {
			continue // this shard had it before the others, or a rebuild is of another
		}
		if retired(row.Month, floors[shard].month) {
			if p.passed == nil {
				p.passed = make(map[int32]passed)
			}
			p.passed[shard] = passed{p.passed[shard].events + 1, t.Name, row.Month, m.Offset}
			continue
		}
		if tuple.to == 0 {
			b := p.buffer
			from := len(b.arena)
			b.arena = appendKey(b.arena, t.Table, row)
			key, from = b.since(from), len(b.arena)
			b.arena = appendTuple(b.arena, t.Table, t.zeros, row, ver)
			tuple = b.since(from)
			if int64(len(b.arena)) > arenaBytesMax {
				return errors.New("a batch of more than 2 GiB; lower sinks.mysql.batch_bytes")
			}
		}
		if limit := st.shards[shard].rowBytesMax(); int64(tuple.to-tuple.from) > limit {
			return &event.DataError{Code: codeRowTooLong, Table: t.Name, Reason: event.ReasonTooLong,
				Detail: fmt.Sprintf("the row takes %d bytes as SQL, max_allowed_packet of shard %s leaves %d",
					tuple.to-tuple.from, st.shards[shard].name, limit)}
		}
		p.buffer.add(newPlace(shard, n, row.Month), key, tuple, ver, index)
	}
	return nil
}
