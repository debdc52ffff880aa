package clickhouse

import (
	"errors"
	"slices"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/intake"
	"github.com/slotline/slotline/sinks/olap/intent"
)

// prepared is one batch as blocks. It is used by one goroutine at a time.
type prepared struct {
	owned    *owned
	ranges   []event.Range
	excluded []intent.Excluded
	set      *set // nil once it went back to owned
	rejected []event.Rejected
	rows     int
	bytes    int
}

// Size is the rows that are sent and the bytes of their columns.
func (p *prepared) Size() (rows, bytes int) { return p.rows, p.bytes }

// Prepare decodes a batch into blocks. It may run while Apply of the batch before is under way.
func (o *owned) Prepare(b *event.Batch) (event.Prepared, error) {
	p := &prepared{owned: o, ranges: b.Ranges, excluded: intent.ExcludedOf(b), set: o.takeSet()}
	var left []intent.Excluded // by the owner that stored this batch
	if pending := o.group.Pending(); pending != nil && pending.Covers(b.Ranges) {
		left = pending.Excluded
		p.excluded = intent.MergeExcluded(p.excluded, left)
	}
	err := o.read(p, b, left, func(i int, err error) bool {
		p.rejected = append(p.rejected, event.Rejected{Index: i, Reason: intake.Reason(err), Err: err})
		return true
	})
	if err != nil {
		o.giveSet(p)
		return nil, err
	}
	slices.Reverse(p.rejected)
	p.measure()
	return p, nil
}

// Gather decodes one more piece of a batch into its blocks, or none of it.
func (o *owned) Gather(to event.Prepared, b *event.Batch) (event.Prepared, bool, error) {
	p, _ := to.(*prepared)
	if p == nil {
		p = &prepared{owned: o, set: o.takeSet()}
	}
	mark := p.set.mark()
	bad := false
	err := o.read(p, b, nil, func(int, error) bool {
		bad = true
		return false
	})
	if _, newer := errors.AsType[*event.NewerLayout](err); newer {
		err, bad = nil, true
	}
	if bad || err != nil {
		p.set.cut(mark)
		if to == nil {
			o.giveSet(p)
		}
		return to, false, err
	}
	p.ranges = b.Ranges
	p.measure()
	return p, true, nil
}

// read decodes messages into the blocks of p. It asks reject what to do about one that cannot be: go on, or stop.
//
// It goes from the last message to the first: of an entity that comes several times the newest is then mostly met
// first, and the others are checked and left out. One that comes out of order, or in another piece, is sent too; the
// engine keeps the greatest version.
func (o *owned) read(p *prepared, b *event.Batch, left []intent.Excluded, reject func(i int, err error) bool) error {
	layout := o.sink.layout.Load()
	o.latest.Reset(len(b.Messages))
	for i := len(b.Messages) - 1; i >= 0; i-- {
		m := &b.Messages[i]
		if b.Excluded[i] || len(left) > 0 && intent.Excludes(left, m.Partition, m.Offset) || o.sink.shadow.PassesOver(m.Key, o.sink.file) {
			continue
		}
		if err := o.sink.rules.Read(m, layout, &o.event); err != nil {
			if !fault.Is(err, fault.Data) {
				return err
			}
			if !reject(i, err) {
				return nil
			}
			continue
		}
		if e := &o.event; o.sink.shadow.Keeps(&e.Row) && o.latest.IsNewer(b.Messages, i, e.Ver) {
			p.set.at(o.sink.tables[e.Table], e.Row.Month).append(e.Row.Values, e.Ver)
			p.set.touched.Add(o.sink.tables[e.Table].Base, &e.Row)
		}
	}
	return nil
}

// measure counts what the blocks hold.
func (p *prepared) measure() {
	p.rows, p.bytes = 0, 0
	for _, block := range p.set.blocks {
		used, _ := block.bytes()
		p.rows += block.rows()
		p.bytes += used
	}
}
