package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ClickHouse/ch-go"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/sinks/olap/intent"
)

// Apply stores the intent, sends its blocks, and confirms it while progress advances. Called again after an error it
// goes on where it stopped: blocks that were acknowledged are not sent again.
func (p *prepared) Apply(ctx context.Context) ([]event.Rejected, error) {
	o := p.owned
	if len(p.rejected) > 0 {
		o.giveSet(p)
		return p.rejected, nil
	}
	if p.set == nil {
		return nil, nil // applied already
	}
	if err := p.apply(ctx); err != nil {
		return nil, o.settle(p, err)
	}
	o.mu.Lock()
	o.outage.Over()
	o.mu.Unlock()
	o.giveSet(p)
	return nil, nil
}

func (p *prepared) apply(ctx context.Context) error {
	o := p.owned
	var i *intent.Intent
	if p.rows > 0 || o.group.Pending() != nil {
		var err error
		if i, err = o.group.Begin(ctx, p.ranges, p.excluded); err != nil {
			return err
		}
	}
	for _, b := range p.set.blocks {
		if b.sent {
			continue
		}
		if err := o.sink.insert(ctx, b, i.Token(b.table.Name, b.month)); err != nil {
			return err
		}
		b.sent = true
	}
	return o.group.CommitTouched(ctx, i, p.ranges, p.set.touched.List())
}

// insert sends one block, and returns once the server has made it part of the table.
func (s *Sink) insert(ctx context.Context, b *block, token string) error {
	ctx, cancel := context.WithTimeout(ctx, insertTimeout)
	defer cancel()
	c, err := s.pool.get(ctx)
	if err != nil {
		return &insertError{b, err}
	}
	// An asynchronous insert would be acknowledged, or not, for a buffer that holds others' rows too.
	err = c.do(ctx, ch.Query{Body: s.insertOf(b.table), Input: b.input, Settings: append([]ch.Setting{
		{Key: "async_insert", Value: "0", Important: true},
		{Key: "insert_deduplicate", Value: "1", Important: true},
		{Key: "insert_deduplication_token", Value: token, Important: true},
	}, s.cluster.session()...)})
	if err != nil {
		return &insertError{b, err}
	}
	return nil
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
		where = fmt.Sprintf("%s (%s), table %s", o.sink.name, o.sink.pool.place(), e.block.table.Name)
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
	e := &fault.Error{Code: codeWaits, What: where + ": " + cause.Error(), Do: doNothing, Err: cause}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.outage.Waits(time.Now(), e, wrap(cause, codeWaits, where), p.ranges[0].Partition, p.ranges[0].From)
}
