package consumers

import (
	"context"
	"slices"
	"time"

	"github.com/slotline/slotline/event"
)

// A piece is a part of a batch's bytes, since a gathered batch may exceed them by one piece; and it is no larger than
// makes a difference to the sink.
const (
	pieces        = 4
	pieceBytesMax = 8 << 20
)

// gather adds one piece of what was read to the batch after the one being applied. The sink decodes it, and its raw
// records are let go of: a batch is then bounded by what it becomes. A piece that cannot be added, since some of it is to
// be rejected, is a batch of its own, whose records are kept.
func (u *unit) gather(ctx context.Context, sink event.Gatherer, now time.Time) (ending, bool) {
	f := u.next
	if f == nil && u.aside != nil {
		u.next, u.aside = u.aside, nil
		return 0, false
	}
	if f != nil && !f.open {
		return 0, false
	}
	limits := u.loop.batch
	limits.Bytes = min(max(1, limits.Bytes/pieces), pieceBytesMax)
	if f != nil {
		limits.Rows -= f.rows
	}
	plan, unlock := u.plan(now, limits)
	var piece *flight
	// What is not full can grow while another is applied, or go into the next batch.
	if plan.take != nil && (plan.full || u.cur == nil && f == nil) {
		piece = u.take(plan)
	}
	unlock()
	if piece == nil {
		if f != nil && u.cur == nil && !now.Before(f.due) {
			f.open = false
		}
		return 0, false
	}
	signal(u.wake) // there may be more; but what else is due comes first
	rows, whole, prepared := len(piece.batch.Messages), piece.batch.Ranges, Prepared(nil)
	if f != nil {
		var ok bool
		if whole, ok = f.joined(piece); !ok {
			f.open, u.aside = false, piece
			return 0, false
		}
		prepared = f.prepared
	}
	prepared, ok, err := sink.Gather(prepared, &event.Batch{Ranges: whole, Messages: piece.batch.Messages})
	switch {
	case err != nil:
		u.drop(piece)
		return u.haltAll(ctx, asFault(err)), true
	case !ok && f == nil:
		u.next = piece
		return 0, false
	case !ok:
		f.open, u.aside = false, piece
		return 0, false
	}
	u.drop(piece)
	for i := range piece.parts {
		piece.parts[i].bytes = 0
	}
	to := f
	if f == nil {
		to = piece
	}
	u.link(to, piece.batch.Messages)
	piece.batch.Messages = nil
	if f == nil {
		f = piece
		f.gathered, f.open, f.due = true, plan.full, plan.at
		u.next = f
	} else {
		f.join(piece)
	}
	f.prepared, f.batch.Ranges = prepared, whole
	f.rows += rows
	if _, bytes := prepared.Size(); f.rows >= u.loop.batch.Rows || int64(bytes) >= u.loop.batch.Bytes {
		f.open = false
	}
	return 0, false
}

// joined is the ranges of f with those of a piece that goes on where they end; false when it does not.
func (f *flight) joined(piece *flight) ([]event.Range, bool) {
	ranges := slices.Clone(f.batch.Ranges)
	for i, r := range piece.batch.Ranges {
		at := slices.IndexFunc(f.parts, func(p flightPart) bool { return p.member == piece.parts[i].member })
		if at < 0 {
			ranges = append(ranges, r)
			continue
		}
		if ranges[at].To != r.From || f.parts[at].stream != piece.parts[i].stream {
			return nil, false
		}
		r.From = ranges[at].From
		ranges[at] = r
	}
	return ranges, true
}

// join adds the parts of a piece, in the order of joined.
func (f *flight) join(piece *flight) {
	for _, p := range piece.parts {
		at := slices.IndexFunc(f.parts, func(have flightPart) bool { return have.member == p.member })
		if at < 0 {
			f.parts = append(f.parts, p)
		}
	}
}
