package mysql

import (
	"errors"
	"fmt"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/partitioner"
)

// monthsAhead is how far past its event's own time a row's month may lie. It depends on the event alone, never on
// today: the same log folds the same way on any day.
const monthsAhead = 2

// prepared is one batch, encoded. It is used by one goroutine at a time.
type prepared struct {
	owned    *owned
	state    *state // that placed the rows
	at       event.Range
	buffer   *rows // nil once it went back to owned
	rejected []event.Rejected
	shards   []int32 // that have progress to make, ascending
	mixed    bool    // holds rows of broadcast tables
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
	skip := o.skipBelow(st.layout)
	for i := range b.Messages {
		if b.Excluded[i] {
			continue
		}
		err := p.add(st, &b.Messages[i], i, skip)
		if err == nil {
			continue
		}
		if !fault.Is(err, fault.Data) {
			o.giveBuffer(p)
			return nil, err
		}
		p.rejected = append(p.rejected, event.Rejected{Index: i, Reason: reasonOf(err), Err: err})
	}
	p.bytes = len(p.buffer.arena)
	p.buffer.reduce()
	p.rowCount = len(p.buffer.entries)
	p.shards = o.shardsOf(st.layout, p.buffer.entries)
	return p, nil
}

// add decodes one message and adds its rows, one per shard that it belongs to.
func (p *prepared) add(st *state, m *event.Message, index int, skip []int64) error {
	o := p.owned
	v, row := &o.view, &o.row
	if err := event.ParseView(m.Record, v); err != nil {
		return err
	}
	if v.LayoutEpoch > st.layout.Epoch() {
		return &event.NewerLayout{Epoch: v.LayoutEpoch, At: o.part, Next: m.Offset + 1}
	}
	n, ok := o.sink.tableIndex[string(v.Table)]
	if !ok {
		return &event.DataError{Code: codeUnknownTable, Table: string(v.Table), Reason: "unknown_table",
			Detail: "the file that this sink runs from has no such table"}
	}
	t := o.sink.tables[n]
	if err := t.DecodeView(v, row); err != nil {
		return err
	}
	if err := event.LimitsMySQL.Check(t.Table, row); err != nil {
		return err
	}
	if err := checkMonth(t.Table, row, v.Time, o.sink.monthsFrom); err != nil {
		return err
	}
	ver := v.Version * 2
	if v.Op == event.Delete {
		ver++
	}

	first, count := int32(0), int32(len(skip)) // a broadcast row goes to every shard
	if !t.Broadcast() {
		route := st.layout.RouteBytes(row.Tenant, row.Spread)
		if route.Partition != o.part.Number && v.LayoutEpoch == st.layout.Epoch() {
			return &event.DataError{Code: codeWrongPlace, Table: t.Name, Column: t.Columns[t.Tenant].Name, Reason: "wrong_partition",
				Detail: fmt.Sprintf("tenant %.64q is of partition %d in layout epoch %d, the event is in partition %d",
					row.Tenant, route.Partition, v.LayoutEpoch, o.part.Number)}
		}
		first, count = route.Shard, 1
	} else if o.part.Number != st.layout.Broadcast() {
		return &event.DataError{Code: codeWrongPlace, Table: t.Name, Reason: "wrong_partition",
			Detail: fmt.Sprintf("events of a broadcast table are in partition %d, this one is in partition %d",
				st.layout.Broadcast(), o.part.Number)}
	} else {
		p.mixed = true
	}

	var key, tuple span
	for shard := first; shard < first+count; shard++ {
		if m.Offset < skip[shard] {
			continue // this shard had it before the others
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

// checkMonth keeps a wrong time from making a table of the year 2109: the lower bound is the line's, the upper one two
// months after the event was appended.
func checkMonth(t *event.Table, row *event.Row, appended time.Time, from partitioner.Month) error {
	if t.Month == event.None {
		return nil
	}
	to := partitioner.MonthOf(appended).Add(monthsAhead)
	if row.Month.Valid() && row.Month >= from && row.Month <= to {
		return nil
	}
	return &event.DataError{Code: codeMonthOutside, Table: t.Name, Column: t.Columns[t.Month].Name, Reason: event.ReasonOutOfRange,
		Detail: fmt.Sprintf("month %s is outside %s (months.from) to %s (%d months after the event's own time)", row.Month, from, to, monthsAhead)}
}

// reasonOf is what a dead letter is listed under.
func reasonOf(err error) string {
	if e, ok := errors.AsType[*event.DataError](err); ok {
		return e.Reason
	}
	return "refused"
}
