package consumers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
)

// failing is a batch whose Apply fails some times.
type failing struct {
	err   error
	times int
	tries int
}

func (f *failing) Size() (rows, bytes int) { return 1, 1 }

func (f *failing) Apply(context.Context) ([]event.Rejected, error) {
	if f.tries++; f.tries <= f.times {
		return nil, f.err
	}
	return nil, nil
}

// What a sink fails with is tried again for as long as it lasts, unless it says that trying again cannot help: also an error
// that nothing is known of, which says nothing of the events.
func TestP7_WhatIsNotAVerdictIsTriedAgain(t *testing.T) {
	class := func(c fault.Class) error { return &fault.Error{Code: "SL0000", Class: c, What: "x"} }
	for _, c := range []struct {
		err   error
		again bool
	}{
		{class(fault.Transient), true},
		{errors.New("an error of no class"), true},
		{fmt.Errorf("wrapped: %w", class(fault.Transient)), true},
		{class(fault.Fatal), false},
		{class(fault.Usage), false},
		{class(fault.Data), false},
		{class(fault.Fenced), false},
		{&event.Rewound{}, false},
		{&event.NewerLayout{}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			u := &unit{loop: &loop{opts: Options{BackoffMax: time.Second}}, stopping: make(chan struct{}),
				outage: outages{log: slog.New(slog.DiscardHandler), retries: func() {}}}
			p := &failing{err: c.err, times: 7}
			_, err := u.apply(t.Context(), &flight{prepared: p})
			if c.again && (err != nil || p.tries != 8) || !c.again && (err != c.err || p.tries != 1) {
				t.Errorf("%v: %d tries, then %v", c.err, p.tries, err)
			}
		})
	}
}

// A gathered batch goes on where its pieces end, in the same reading of the log.
func TestP7_PiecesJoinWhereTheLastEnds(t *testing.T) {
	part := func(n int32) event.Partition { return event.Partition{Topic: "t", Number: n} }
	one, two := &member{}, &member{}
	here, there := &stream{}, &stream{}
	piece := func(m *member, s *stream, n int32, from, to int64) *flight {
		return &flight{batch: &event.Batch{Ranges: []event.Range{{Partition: part(n), From: from, To: to}}}, parts: []flightPart{{member: m, stream: s}}}
	}
	for _, c := range []struct {
		name  string
		piece *flight
		want  []event.Range // nil: it cannot be joined
	}{
		{"goes on", piece(one, here, 1, 15, 20), []event.Range{{Partition: part(1), From: 10, To: 20}}},
		{"another partition", piece(two, there, 2, 7, 9), []event.Range{{Partition: part(1), From: 10, To: 15}, {Partition: part(2), From: 7, To: 9}}},
		{"leaves offsets out", piece(one, here, 1, 16, 20), nil},
		{"begins before the end", piece(one, here, 1, 14, 20), nil},
		{"was read anew", piece(one, there, 1, 15, 20), nil},
	} {
		f := piece(one, here, 1, 10, 15)
		ranges, ok := f.joined(c.piece)
		if ok != (c.want != nil) || fmt.Sprint(ranges) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v %v", c.name, ranges, ok)
		}
		if f.batch.Ranges[0].To != 15 {
			t.Errorf("%s: the batch is changed before the sink took the piece", c.name)
		}
	}
}
