package doris

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/olap/intent"
)

// Apply stores the intent, loads its blocks, and confirms it while progress advances. Called again after an error it
// goes on where it stopped: blocks that were acknowledged are not sent again.
//
// Rows that the server refuses are returned like those that Prepare found: nothing is confirmed, the batch is prepared
// again without them, and what was loaded of it already is sent again under other labels.
func (p *prepared) Apply(ctx context.Context) ([]event.Rejected, error) {
	o := p.owned
	if len(p.rejected) > 0 {
		o.giveSet(p)
		return p.rejected, nil
	}
	if p.set == nil {
		return nil, nil // applied already
	}
	bad, err := p.apply(ctx)
	if err != nil {
		return nil, o.settle(p, err)
	}
	o.mu.Lock()
	o.outage.Over()
	o.mu.Unlock()
	o.giveSet(p)
	p.rejected = bad
	return bad, nil
}

func (p *prepared) apply(ctx context.Context) ([]event.Rejected, error) {
	o := p.owned
	var i *intent.Intent
	if p.rows > 0 || o.group.Pending() != nil {
		var err error
		if i, err = o.group.Begin(ctx, p.ranges, p.excluded); err != nil {
			return nil, err
		}
	}
	for n := range p.set {
		b := &p.set[n]
		if b.sent || b.rows() == 0 {
			continue
		}
		bad, err := o.sink.insert(ctx, b, i.Token(o.sink.into(b.table), partitioner.NoMonth))
		if err != nil {
			return nil, &insertError{b, err}
		}
		if len(bad) > 0 {
			return rejected(b, bad), nil
		}
		b.sent = true
	}
	return nil, o.group.CommitTouched(ctx, i, p.ranges, p.touched.List())
}

// insert loads one block, and returns once the server has made it part of the table, or with the rows that it refuses.
func (s *Sink) insert(ctx context.Context, b *block, label string) ([]badRow, error) {
	res, v, err := s.loader.load(ctx, s.into(b.table), b.table, label, b.rows(), b.data)
	if err == nil && v.unseen && len(b.table.Rollups) > 0 {
		// What is marked must be seen by whoever reads the mark.
		err = s.loader.waitVisible(ctx, label)
	}
	if err != nil || v.outcome != refused {
		return nil, err
	}
	// A table that was changed under the sink refuses every row: that is no fault of the rows.
	s.verified.Store(false)
	if err := s.verify(ctx); err != nil {
		return nil, err
	}
	a, _ := parseAnswer(res.body)
	bad, err := s.findBadRows(ctx, b, label, a)
	if err == nil && len(bad) == 0 {
		err = &serverError{"rows were refused that are taken one by one: " + cut(a.text()), otherwise}
	}
	return bad, err
}

// insertError is an error of the engine, not of the state database.
type insertError struct {
	block *block
	err   error
}

func (e *insertError) Error() string { return e.err.Error() }
func (e *insertError) Unwrap() error { return e.err }

// settle turns an error into what the consumer, and a person, reads.
func (o *owned) settle(p *prepared, err error) error {
	if _, ok := errors.AsType[*event.Rewound](err); ok {
		return err
	}
	where, class := o.sink.name, mysqldb.Classify(err)
	if e, ok := errors.AsType[*insertError](err); ok {
		class, err = Classify(e.err), e.err
		where = fmt.Sprintf("%s, table %s", o.sink.where(), e.block.table.Name)
		if class == fault.Fatal || class == fault.Usage {
			o.sink.verified.Store(false) // the next take-over looks at the tables
			return wrap(err, codeFatal, where)
		}
	} else if class != fault.Transient && class != fault.Unknown {
		return err
	}
	return o.waits(p, where, err)
}

// waits is the error of an outage.
func (o *owned) waits(p *prepared, where string, cause error) error {
	e := &fault.Error{Code: codeWaits, What: where + ": " + cut(cause.Error()), Do: doNothing, Err: cause}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.outage.Waits(time.Now(), e, wrap(cause, codeWaits, where), p.ranges[0].Partition, p.ranges[0].From)
}
