package doris

import (
	"slices"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/intake"
	"github.com/slotline/slotline/sinks/olap/intent"
	"github.com/slotline/slotline/sinks/olap/rollup"
)

// prepared is one batch as blocks. It is used by one goroutine at a time.
type prepared struct {
	owned    *owned
	ranges   []event.Range
	excluded []intent.Excluded
	touched  rollup.Set
	set      set // nil once it went back to owned
	rejected []event.Rejected
	rows     int
	bytes    int
}

// Size is the rows that are sent and the bytes of their lines.
func (p *prepared) Size() (rows, bytes int) { return p.rows, p.bytes }

// Prepare encodes a batch into blocks. It may run while Apply of the batch before is under way.
//
// It goes from the last message to the first: of an entity that comes several times the newest is then mostly met
// first, and the others are checked and left out. One that comes out of order is sent too; the engine keeps the
// greatest version.
func (o *owned) Prepare(b *event.Batch) (event.Prepared, error) {
	layout := o.sink.layout.Load()
	p := &prepared{owned: o, ranges: b.Ranges, excluded: intent.ExcludedOf(b), set: o.takeSet(), touched: rollup.Set{}}
	var left []intent.Excluded // by the owner that stored this batch
	if pending := o.group.Pending(); pending != nil && pending.Covers(b.Ranges) {
		left = pending.Excluded
		p.excluded = intent.MergeExcluded(p.excluded, left)
	}
	o.latest.Reset(len(b.Messages))
	for i := len(b.Messages) - 1; i >= 0; i-- {
		m := &b.Messages[i]
		if b.Excluded[i] || len(left) > 0 && intent.Excludes(left, m.Partition, m.Offset) || o.sink.shadow.PassesOver(m.Key, o.sink.file) {
			continue
		}
		if err := o.sink.rules.Read(m, layout, &o.event); err != nil {
			if !fault.Is(err, fault.Data) {
				o.giveSet(p)
				return nil, err
			}
			p.rejected = append(p.rejected, event.Rejected{Index: i, Reason: intake.Reason(err), Err: err})
			continue
		}
		if e := &o.event; o.sink.shadow.Keeps(&e.Row) && o.latest.IsNewer(b.Messages, i, e.Ver) {
			p.touched.Add(o.sink.tables[e.Table].Base, &e.Row)
			at := &p.set[e.Table]
			at.data = at.table.encoder.append(at.data, &e.Row, e.Ver)
			at.ends, at.messages = append(at.ends, len(at.data)), append(at.messages, int32(i))
		}
	}
	slices.Reverse(p.rejected)
	for i := range p.set {
		p.rows += p.set[i].rows()
		p.bytes += len(p.set[i].data)
	}
	return p, nil
}
