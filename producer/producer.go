// Package producer is how a service emits: typed events, appended to the outbox inside the service's own database
// transaction.
//
// It promises that an event is published if and only if its transaction commits (P1), that nothing is written where
// Emit or Run returns an error other than ErrCommitUnknown, and that a service whose relay or Kafka is behind is told
// so (ErrBacklogged) before its database fills.
//
// It assumes that each writer of an entity takes a lock on it (writes its row, or SELECT … FOR UPDATE) before it emits:
// outbox ids then follow commit order per entity, and the last committed image wins everywhere. It links no Kafka
// client, starts no goroutine, and has nothing to close.
//
// It fails with the errors below, tested by errors.Is; what the database said is inside.
package producer

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/outbox"
	"github.com/slotline/slotline/partitioner"
)

var (
	// ErrBacklogged: the relay or Kafka is behind outbox.backlog_age_max or outbox.backlog_events_max. Nothing was
	// written; answer 503.
	ErrBacklogged = errors.New("the outbox is backlogged")
	// ErrCommitUnknown: the connection was lost in COMMIT. The transaction has either committed whole or not at all:
	// read your own row, then decide.
	ErrCommitUnknown = errors.New("the outcome of COMMIT is unknown")
	// ErrTooLarge: the row image is larger than outbox.event_bytes_max.
	ErrTooLarge = errors.New("event too large")
	// ErrInvalidValue: a value that its column cannot hold; the text names the column.
	ErrInvalidValue = errors.New("invalid value")
	// ErrUnknownTable: the configuration has no such table.
	ErrUnknownTable = errors.New("unknown table")
	// ErrNotInTransaction: Emit was given a pool or a connection, or a Tx that has ended. An event outside a
	// transaction could be published without the change that it tells of.
	ErrNotInTransaction = errors.New("not in a transaction")
)

// Producer emits events of one line. It is safe for concurrent use. Make one per process.
type Producer struct {
	cfg  *config.Config
	wake func(lane int)

	mu       sync.Mutex
	checked  time.Time // when backlogs were asked for
	asking   bool
	backlogs []outbox.Backlog // by lane
}

// Option changes a Producer.
type Option func(*Producer)

// WithWake has wake called with each lane that Run committed rows to: give it the Wake method of a relay in the same
// process, and events reach Kafka without waiting for its next poll. wake must not block.
func WithWake(wake func(lane int)) Option { return func(p *Producer) { p.wake = wake } }

// New returns a Producer for the line of cfg. It does no I/O.
func New(cfg *config.Config, options ...Option) *Producer {
	p := &Producer{cfg: cfg, wake: func(int) {}}
	for _, o := range options {
		o(p)
	}
	return p
}

// Table makes events of one table from values of T.
type Table[T any] struct {
	p     *Producer
	table *event.Table
	codec *event.Struct[T]
}

// Register compares T's slotline tags with the table in the configuration, once. The error lists every difference with
// the line of the file, or is ErrUnknownTable.
func Register[T any](p *Producer, table string) (*Table[T], error) {
	t := p.cfg.Table(table)
	if t == nil {
		var names []string
		for _, t := range p.cfg.Tables {
			names = append(names, t.Name)
		}
		return nil, &fault.Error{Code: codeUnknownTable, Class: fault.Usage, Err: ErrUnknownTable,
			What: fmt.Sprintf("%s has no table %q", p.cfg.File, table),
			Do:   "register one of: " + strings.Join(names, ", ")}
	}
	codec, err := event.StructOf[T](t)
	if err != nil {
		return nil, err
	}
	return &Table[T]{p, t, codec}, nil
}

// MustRegister is Register for program start: it panics where Register fails.
func MustRegister[T any](p *Producer, table string) *Table[T] {
	t, err := Register[T](p, table)
	if err != nil {
		panic(err)
	}
	return t
}

// Event is one event to Emit. What is wrong with its values is returned by Emit.
type Event struct {
	event event.Event
	err   error
}

// Upsert is the event that v is the entity's new image, whole. v is read now.
func (t *Table[T]) Upsert(v T) Event { return t.make(&v, event.Upsert) }

// Delete is the event that the entity is gone. Only the tenant, id, month, spread and version fields of v are read.
func (t *Table[T]) Delete(v T) Event { return t.make(&v, event.Delete) }

func (t *Table[T]) make(v *T, op event.Op) Event {
	e, err := t.codec.Event(v, op)
	if err != nil {
		return Event{err: fmt.Errorf("%w: %w", ErrInvalidValue, err)}
	}
	if n := int64(len(e.Body)); n > t.p.cfg.Outbox.EventBytesMax {
		return Event{err: &fault.Error{Code: codeTooLarge, Class: fault.Data, Err: ErrTooLarge,
			What: fmt.Sprintf("table %s, tenant %q, id %q: the row image has %d bytes, outbox.event_bytes_max is %d",
				e.Table, e.Tenant, e.EntityID, n, t.p.cfg.Outbox.EventBytesMax),
			Do: "keep large values elsewhere and emit a reference, or raise outbox.event_bytes_max with the topic's max.message.bytes"}}
	}
	e.ID = event.NewID()
	e.Time = time.Now().UTC().Truncate(time.Microsecond)
	if err := t.checkMonth(&e); err != nil {
		return Event{err: err}
	}
	return Event{event: e}
}

// checkMonth keeps an event out whose month no sink would take: the sinks check the same against the event's own time,
// so that the same log folds the same way on any day.
func (t *Table[T]) checkMonth(e *event.Event) error {
	if t.table.Month == event.None {
		return nil
	}
	from, to := t.p.cfg.Months.From, partitioner.MonthOf(e.Time).Add(monthsAheadMax)
	if e.Month >= from && e.Month <= to {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrInvalidValue, &fault.Error{Code: codeMonth, Class: fault.Data,
		What: fmt.Sprintf("table %s, column %s: month %v is not between %v (months.from) and %v (two months from now)",
			e.Table, t.table.Columns[t.table.Month].Name, e.Month, from, to),
		Do: "correct the value; for older history set months.from, before the first apply"})
}

// monthsAheadMax is how far a month may lie after the month of an event's append.
const monthsAheadMax = 2
