package producer

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/partitioner"
)

// Producer emits events of one line. It is safe for concurrent use.
type Producer struct {
	cfg         *config.Config
	wake        func(lane int)
	traceParent func(context.Context) string
	now         func() time.Time
	admission   admission
}

// Option changes a Producer.
type Option func(*Producer)

// WithWake makes Run call wake with each lane that it wrote to, after the commit: a relay in the same process then
// publishes at once instead of at its next poll. wake must not block; outbox.Relay.Wake is made for it.
func WithWake(wake func(lane int)) Option { return func(p *Producer) { p.wake = wake } }

// WithTraceParent makes Emit ask get for the W3C traceparent of its context; "" is none, and so is what has not its form.
// The event carries it in its row and as the record's header traceparent, and the relay links to it. docs/emit.md has get
// for OpenTelemetry. The row has no place for a tracestate.
func WithTraceParent(get func(context.Context) string) Option {
	return func(p *Producer) { p.traceParent = get }
}

// New makes a Producer. It starts nothing, and there is nothing to close.
func New(cfg *config.Config, opts ...Option) *Producer {
	p := &Producer{cfg: cfg, now: time.Now}
	p.admission.lanes = make([]laneAdmission, cfg.Outbox.Lanes)
	for _, o := range opts {
		o(p)
	}
	return p
}

// Table makes events of one table from values of T.
type Table[T any] struct{ s *event.Struct[T] }

// Event is one event on its way into a transaction: Table.Upsert and Table.Delete make it, Emit writes it.
type Event struct {
	table *event.Table
	e     event.Event
	err   error
}

// Row is the event as Emit writes it into a lane table, less what is Emit's own: event id, time and trace context. The
// error is the one that Emit would return for its values. It is there for tests: outboxtest compares with it.
func (ev Event) Row() (event.Event, error) {
	return ev.e, ev.made()
}

// made says that a table made the event, of values that fit their columns.
func (ev *Event) made() error {
	if ev.table == nil {
		return invalid(&fault.Error{Code: codeEmptyEvent, Class: fault.Usage, What: "Emit: the event is empty",
			Do: "make it with Upsert or Delete of the table that Register returns"})
	}
	if ev.err != nil {
		return invalid(ev.err)
	}
	return nil
}

// Register compares T's slotline tags with a table of the file, and returns what makes its events. The error lists
// every difference, or wraps ErrUnknownTable.
func Register[T any](p *Producer, table string) (*Table[T], error) {
	t := p.cfg.Table(table)
	if t == nil {
		var names []string
		for _, t := range p.cfg.Tables {
			names = append(names, t.Name)
		}
		return nil, &fault.Error{Code: codeUnknownTable, Class: fault.Usage, Err: ErrUnknownTable,
			What: fmt.Sprintf("%s has no table %q", p.cfg.File, table),
			Do:   "use one of its tables (" + strings.Join(names, ", ") + "), or add it to the file"}
	}
	s, err := event.StructOf[T](t)
	if err != nil {
		return nil, err
	}
	return &Table[T]{s}, nil
}

// MustRegister is Register for a program's start: it panics with the error.
func MustRegister[T any](p *Producer, table string) *Table[T] {
	t, err := Register[T](p, table)
	if err != nil {
		panic(err)
	}
	return t
}

// Upsert is the event that v is the entity's image now. A value that does not fit its column shows as an error of Emit.
func (t *Table[T]) Upsert(v T) Event { return t.event(&v, event.Upsert) }

// Delete is the event that the entity is gone. Of v only tenant, id, month, spread and version fields are read.
func (t *Table[T]) Delete(v T) Event { return t.event(&v, event.Delete) }

func (t *Table[T]) event(v *T, op event.Op) Event {
	e, err := t.s.Event(v, op)
	return Event{table: t.s.Table(), e: e, err: err}
}

// monthsAfterNow is how far in the future an event's month may lie: sinks judge by the event's own time, so that the
// same log gives the same rows on any day.
const monthsAfterNow = 2

// check completes an event and says why it cannot be written.
func (p *Producer) check(ctx context.Context, ev *Event, now time.Time) error {
	if err := ev.made(); err != nil {
		return err
	}
	e := &ev.e
	if n := int64(len(e.Body)); n > p.cfg.Outbox.EventBytesMax {
		return &fault.Error{Code: codeTooLarge, Class: fault.Data, Err: ErrTooLarge,
			What: fmt.Sprintf("table %s, entity %.64q of tenant %.64q: the event has %d bytes, outbox.event_bytes_max is %d",
				e.Table, e.EntityID, e.Tenant, n, p.cfg.Outbox.EventBytesMax),
			Do: "keep large values elsewhere and emit a reference, or raise outbox.event_bytes_max and apply"}
	}
	if ev.table.Month != event.None {
		from, to := p.cfg.Months.From, partitioner.MonthOf(now).Add(monthsAfterNow)
		if e.Month < from || e.Month > to {
			return invalid(&fault.Error{Code: codeMonth, Class: fault.Data,
				What: fmt.Sprintf("table %s, column %s: its month is %v, allowed are %v (months.from) to %v (two months after now)",
					e.Table, ev.table.Columns[ev.table.Month].Name, e.Month, from, to),
				Why: "each month has a table of its own, and the bounds keep a wrong clock or a zero date from making thousands",
				Do:  "correct the value; for older data lower months.from in " + p.cfg.File})
		}
	}
	e.ID = event.NewID()
	e.Time = now.UTC().Truncate(time.Microsecond)
	if p.traceParent != nil {
		e.TraceParent = traceParent(p.traceParent(ctx))
	}
	return nil
}

// traceParent drops what is not of the W3C form: it is information only, and no reason to refuse an event.
func traceParent(s string) string {
	if !event.IsTraceParent(s) {
		return ""
	}
	return s
}
