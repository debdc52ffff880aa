package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/rowsum"
)

// Whatever the sides hold and however small the pages, walk meets each key once, in order, with what each side has of it.
func TestWalkMeetsEveryKey(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 1))
	order := keyOrder(event.Int64)
	for range 500 {
		page, sides := 1+rng.IntN(5), 1+rng.IntN(3)
		want := map[string][]rowsum.Item{}
		var cursors []*cursor
		for side := range sides + 1 {
			var all []rowsum.Item
			for range rng.IntN(12) {
				key := strconv.Itoa(rng.IntN(30) - 12)
				if slices.ContainsFunc(all, func(i rowsum.Item) bool { return i.Key == key }) {
					continue
				}
				i := rowsum.Item{Key: key, Rows: 1, Sum: rng.Uint64()}
				all = append(all, i)
				if want[key] == nil {
					want[key] = make([]rowsum.Item, sides+1)
				}
				want[key][side] = i
			}
			slices.SortFunc(all, func(a, b rowsum.Item) int { return order(a.Key, b.Key) })
			cursors = append(cursors, &cursor{bounded: side == sides, fetch: func(_ context.Context, after, upTo *string) (list []rowsum.Item, err error) {
				for _, i := range all {
					if (after == nil || order(i.Key, *after) > 0) && (upTo == nil || order(i.Key, *upTo) <= 0) && len(list) < page {
						list = append(list, i)
					}
				}
				return list, nil
			}})
		}
		before, met := "", 0
		err := walk(t.Context(), order, page, cursors, func(key string, at []rowsum.Item) error {
			if before != "" && order(before, key) >= 0 {
				return fmt.Errorf("%s comes after %s", key, before)
			}
			if !slices.Equal(at, want[key]) {
				return fmt.Errorf("key %s has %v, want %v", key, at, want[key])
			}
			before, met = key, met+1
			return nil
		})
		if err != nil || met != len(want) {
			t.Fatalf("seed %d: met %d keys of %d: %v", seed, met, len(want), err)
		}
	}
}

// A cursor that is bounded is asked after the others, and for no more than they have read; what one fails with ends the walk.
func TestWalkBoundsTheLast(t *testing.T) {
	item := func(key string) rowsum.Item { return rowsum.Item{Key: key, Rows: 1} }
	first := &cursor{fetch: func(_ context.Context, after, _ *string) ([]rowsum.Item, error) {
		if after == nil {
			return []rowsum.Item{item("a"), item("b")}, nil
		}
		return []rowsum.Item{item("c")}, nil
	}}
	var bounds []string
	last := &cursor{bounded: true, fetch: func(_ context.Context, _, upTo *string) ([]rowsum.Item, error) {
		if upTo == nil {
			bounds = append(bounds, "none")
		} else {
			bounds = append(bounds, *upTo)
		}
		return nil, nil
	}}
	none := func(string, []rowsum.Item) error { return nil }
	if err := walk(t.Context(), strings.Compare, 2, []*cursor{first, last}, none); err != nil || !slices.Equal(bounds, []string{"b", "none"}) {
		t.Errorf("asked up to %v (%v)", bounds, err)
	}
	broken := errors.New("broken")
	failing := &cursor{fetch: func(context.Context, *string, *string) ([]rowsum.Item, error) { return nil, broken }}
	good := &cursor{fetch: func(context.Context, *string, *string) ([]rowsum.Item, error) { return nil, nil }}
	if err := walk(t.Context(), strings.Compare, 2, []*cursor{failing, good}, none); !errors.Is(err, broken) {
		t.Errorf("a cursor that fails: %v", err)
	}
}

func TestKeyOrder(t *testing.T) {
	numbers := []int64{-9223372036854775808, -100, -99, -10, -1, 0, 1, 9, 10, 99, 100, 9223372036854775807}
	for _, a := range numbers {
		for _, b := range numbers {
			got := keyOrder(event.Int64)(strconv.FormatInt(a, 10), strconv.FormatInt(b, 10))
			if cmp.Compare(got, 0) != cmp.Compare(a, b) {
				t.Errorf("%d and %d compare as %d", a, b, got)
			}
		}
	}
}

// What is said of an entity that differs at the second look too, after both sinks have passed the mark.
func TestDecide(t *testing.T) {
	at := func(shard, store int64, sum uint64) *sides {
		item := func(ver int64, sum uint64) rowsum.Item {
			if ver == 0 {
				return rowsum.Item{}
			}
			return rowsum.Item{Rows: 1, Ver: ver, Sum: sum}
		}
		return &sides{rows: []rowsum.Item{item(shard, 1)}, store: item(store, sum)}
	}
	twice := at(4, 4, 1)
	twice.rows = append(twice.rows, twice.rows[0])
	foreign := &sides{rows: at(4, 0, 0).rows, own: -1, store: at(4, 4, 1).store}
	for _, c := range []struct {
		what       string
		first, now *sides
		want       sidesVerdict
	}{
		{"caught up", at(2, 4, 2), at(4, 4, 1), sidesAgree},
		{"gone on both sides", at(2, 0, 0), at(0, 0, 0), sidesAgree},
		{"the shard lacks what the store had", at(2, 4, 2), at(2, 4, 2), sidesDiffer},
		{"the store lacks what the shard had", at(4, 2, 2), at(4, 2, 2), sidesDiffer},
		{"the store has no row", at(4, 0, 0), at(4, 0, 0), sidesDiffer},
		{"the shard has no row", at(0, 4, 1), at(0, 4, 1), sidesDiffer},
		{"one version, two images", at(4, 4, 2), at(4, 4, 2), sidesDiffer},
		{"both have what there was, one has more", at(2, 4, 2), at(4, 6, 3), sidesMove},
		{"one has more, the other still lacks the first", at(2, 4, 2), at(2, 6, 3), sidesDiffer},
		{"in two shards", twice, twice, sidesDiffer},
		{"in a shard that is not its own", foreign, foreign, sidesDiffer},
	} {
		if got := decide(c.first, c.now); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}

// The log decides: a side is right when it has what lies below the mark, or something newer that is in the log.
func TestWitness(t *testing.T) {
	none, row := rowsum.Item{}, rowsum.Item{Rows: 1, Ver: 6}
	for _, c := range []struct {
		what string
		w    witness
		side rowsum.Item
		want bool
	}{
		{"neither has it", witness{}, none, true},
		{"the row is not in the log", witness{}, row, false},
		{"the row is lost", witness{before: 6}, none, false},
		{"as the log has it", witness{before: 6, same: true}, row, true},
		{"newer than the mark", witness{before: 4, same: true}, row, true},
		{"older than the mark", witness{before: 8, same: true}, row, false},
		{"another image", witness{before: 6}, row, false},
	} {
		if got := c.w.right(c.side); got != c.want {
			t.Errorf("%s: %t", c.what, got)
		}
	}
}
