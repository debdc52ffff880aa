package replay

import (
	"context"
	"errors"
	"math/bits"
	"strings"
	"sync"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/rowsum"
)

// cursor reads one side of a comparison in pages, in order of keys.
type cursor struct {
	// fetch reads one page of the keys after one and up to another; nil is no bound. A page that is not full ends there.
	fetch func(ctx context.Context, after, upTo *string) ([]rowsum.Item, error)
	// bounded says that upTo saves work: it is asked after the others, and for no more than they have read.
	bounded bool

	items []rowsum.Item // read, and not passed on
	upTo  *string       // keys up to this one are read; nil: none is
	end   bool          // all are
}

// walk calls each for every key that one of the cursors has, in order, with what each cursor has of it: Rows is 0 where it
// has nothing. It holds a page of each in memory, and no statement open.
func walk(ctx context.Context, compare func(a, b string) int, page int, cursors []*cursor, each func(key string, at []rowsum.Item) error) error {
	for {
		var bound *string // keys up to this one are read by all; nil: all are
		least := func(c *cursor) {
			if !c.end && (bound == nil || compare(*c.upTo, *bound) < 0) {
				bound = c.upTo
			}
		}
		for _, last := range []bool{false, true} {
			if err := readAll(ctx, page, cursors, last, bound); err != nil {
				return err
			}
			for _, c := range cursors {
				if c.bounded == last {
					least(c)
				}
			}
		}
		for {
			key, found := "", false
			for _, c := range cursors {
				if len(c.items) > 0 && (!found || compare(c.items[0].Key, key) < 0) {
					key, found = c.items[0].Key, true
				}
			}
			if !found || bound != nil && compare(key, *bound) > 0 {
				break
			}
			at := make([]rowsum.Item, len(cursors))
			for i, c := range cursors {
				if len(c.items) > 0 && c.items[0].Key == key {
					at[i], c.items = c.items[0], c.items[1:]
				}
			}
			if err := each(key, at); err != nil {
				return err
			}
		}
		if bound == nil {
			return nil
		}
	}
}

// readAll reads the next page of those cursors that have passed on the one before, all at once: each is a server of its own.
func readAll(ctx context.Context, page int, cursors []*cursor, bounded bool, upTo *string) error {
	var reads []func() error
	for _, c := range cursors {
		if c.bounded == bounded && len(c.items) == 0 && !c.end {
			reads = append(reads, func() error { return c.read(ctx, page, upTo) })
		}
	}
	return atOnce(reads...)
}

// atOnce does what does not depend on each other, and waits for all of it.
func atOnce(parts ...func() error) error {
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i, part := range parts {
		wg.Go(func() { errs[i] = part() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (c *cursor) read(ctx context.Context, page int, upTo *string) (err error) {
	if !c.bounded {
		upTo = nil
	}
	if c.items, err = c.fetch(ctx, c.upTo, upTo); err != nil {
		return err
	}
	switch n := len(c.items); {
	case n >= page:
		c.upTo = &c.items[n-1].Key
	case upTo != nil:
		c.upTo = upTo
	default:
		c.end = true
	}
	return nil
}

// keyOrder is the order in which engines have the keys of a column: numbers by value, strings by their bytes.
func keyOrder(k event.Kind) func(a, b string) int {
	if k != event.Int32 && k != event.Int64 && k != event.Uint64 {
		return strings.Compare
	}
	return func(a, b string) int {
		negative := strings.HasPrefix(a, "-")
		if negative != strings.HasPrefix(b, "-") {
			if negative {
				return -1
			}
			return 1
		}
		c := len(a) - len(b) // canonical: no leading zeros
		if c == 0 {
			c = strings.Compare(a, b)
		}
		if negative {
			return -c
		}
		return c
	}
}

// total sums items up.
func total(items []rowsum.Item) (t rowsum.Item) {
	for _, i := range items {
		t.Rows += i.Rows
		t.Sum, _ = bits.Add64(t.Sum, i.Sum, 0)
	}
	return t
}
