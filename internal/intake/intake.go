// Package intake is what every sink asks of an event before its engine sees it: that the record is one, that the layout
// is known, that the table is, that its values fit the table and the engine, that its month is possible, and that it
// came in the partition of its tenant.
//
// It promises: no I/O, no allocation per event once warm, and one verdict per event, whatever the sink. It fails with a
// *event.DataError where this one event cannot be held, *event.NewerLayout where a newer layout must be loaded first,
// and a fault.Fatal for a record of a newer format.
package intake

import (
	"errors"
	"fmt"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/partitioner"
)

const (
	codeUnknownTable = "SL6301" // data: an event of a table that the file does not have
	codeWrongPlace   = "SL6302" // data: an event in a partition that its tenant, or its broadcast table, does not belong to
	codeMonthOutside = "SL6303" // data: a month outside of months.from and two months after the event
)

// monthsAhead is how far past its event's own time a row's month may lie. It depends on the event alone, never on
// today: the same log folds the same way on any day.
const monthsAhead = 2

// Rules are one sink's. They are safe for concurrent use.
type Rules struct {
	tables     []*event.Table
	index      map[string]int
	limits     *event.Limits
	monthsFrom partitioner.Month
}

// New checks that the engine can declare the tables.
func New(tables []*event.Table, limits *event.Limits, monthsFrom partitioner.Month) (*Rules, error) {
	r := &Rules{tables: tables, index: make(map[string]int, len(tables)), limits: limits, monthsFrom: monthsFrom}
	for i, t := range tables {
		if err := limits.CheckTable(t); err != nil {
			return nil, err
		}
		r.index[t.Name] = i
	}
	return r, nil
}

// Event is a decoded event. It is reused: what it points to is valid until the next Read.
type Event struct {
	View  event.View
	Row   event.Row
	Table int               // index into the tables
	Ver   int64             // _ver: version*2, plus 1 for a delete
	Route partitioner.Route // zero for a broadcast table
}

// Read takes a message apart.
func (r *Rules) Read(m *event.Message, l *partitioner.Layout, dst *Event) error {
	v, row := &dst.View, &dst.Row
	if err := event.ParseView(m.Record, v); err != nil {
		return err
	}
	if v.LayoutEpoch > l.Epoch() {
		return &event.NewerLayout{Epoch: v.LayoutEpoch, At: m.Partition, Next: m.Offset + 1}
	}
	n, ok := r.index[string(v.Table)]
	if !ok {
		return &event.DataError{Code: codeUnknownTable, Table: string(v.Table), Reason: event.ReasonUnknownTable,
			Detail: "the file that this sink runs from has no such table"}
	}
	t := r.tables[n]
	if err := t.DecodeView(v, row); err != nil {
		return err
	}
	if err := r.limits.Check(t, row); err != nil {
		return err
	}
	if err := r.checkMonth(t, row, v.Time); err != nil {
		return err
	}
	dst.Table, dst.Ver = n, v.Version*2
	if v.Op == event.Delete {
		dst.Ver++
	}
	if t.Broadcast() {
		dst.Route = partitioner.Route{}
		if m.Partition.Number != l.Broadcast() {
			return &event.DataError{Code: codeWrongPlace, Table: t.Name, Reason: event.ReasonWrongPartition,
				Detail: fmt.Sprintf("events of a broadcast table are in partition %d, this one is in partition %d", l.Broadcast(), m.Partition.Number)}
		}
		return nil
	}
	dst.Route = l.RouteBytes(row.Tenant, row.Spread)
	if dst.Route.Partition != m.Partition.Number && v.LayoutEpoch == l.Epoch() {
		return &event.DataError{Code: codeWrongPlace, Table: t.Name, Column: t.Columns[t.Tenant].Name, Reason: event.ReasonWrongPartition,
			Detail: fmt.Sprintf("tenant %.64q is of partition %d in layout epoch %d, the event is in partition %d",
				row.Tenant, dst.Route.Partition, v.LayoutEpoch, m.Partition.Number)}
	}
	return nil
}

// checkMonth keeps a wrong time from making a table of the year 2109: the lower bound is the line's, the upper one two
// months after the event was appended.
func (r *Rules) checkMonth(t *event.Table, row *event.Row, appended time.Time) error {
	if t.Month == event.None {
		return nil
	}
	to := partitioner.MonthOf(appended).Add(monthsAhead)
	if row.Month.Valid() && row.Month >= r.monthsFrom && row.Month <= to {
		return nil
	}
	return &event.DataError{Code: codeMonthOutside, Table: t.Name, Column: t.Columns[t.Month].Name, Reason: event.ReasonOutOfRange,
		Detail: fmt.Sprintf("month %s is outside %s (months.from) to %s (%d months after the event's own time)", row.Month, r.monthsFrom, to, monthsAhead)}
}

// Reason is what a dead letter is listed under.
func Reason(err error) string {
	if e, ok := errors.AsType[*event.DataError](err); ok {
		return e.Reason
	}
	return event.ReasonRefused
}
