package mysql

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/partitioner"
)

// P3: reduce keeps, per entity, what a map of the greatest version holds, in the order of place and key.
func TestP3_ReduceAgreesWithAMap(t *testing.T) {
	random := seeded(t)
	var r rows
	for round := range 2000 {
		r.reset()
		type entity struct {
			place place
			key   string
		}
		type kept struct {
			ver     int64
			message int32
		}
		slow := map[entity]kept{}
		for i := range random.IntN(60) {
			e := entity{newPlace(int32(random.IntN(2)), random.IntN(2), partitioner.Month(202600+random.IntN(2))), randomKey(random)}
			ver := int64(random.IntN(6))
			from := len(r.arena)
			r.arena = append(r.arena, e.key...)
			key := r.since(from)
			from = len(r.arena)
			r.arena = fmt.Appendf(r.arena, "tuple %d", i)
			r.add(e.place, key, r.since(from), ver, i)
			if k, ok := slow[e]; !ok || ver >= k.ver {
				slow[e] = kept{ver, int32(i)}
			}
		}
		total := len(r.entries)
		lost := r.reduce()
		if len(r.entries) != len(slow) || lost != total-len(slow) {
			t.Fatalf("round %d: %d kept and %d lost of %d, wanted %d kept", round, len(r.entries), lost, total, len(slow))
		}
		for i, e := range r.entries {
			k := slow[entity{e.place, string(r.bytes(e.key))}]
			if k.ver != e.ver || k.message != e.message || string(r.bytes(e.tuple)) != fmt.Sprintf("tuple %d", k.message) {
				t.Fatalf("round %d: kept version %d of message %d, wanted %+v", round, e.ver, e.message, k)
			}
			if i > 0 {
				b := r.entries[i-1]
				if b.place > e.place || b.place == e.place && bytes.Compare(r.bytes(b.key), r.bytes(e.key)) >= 0 {
					t.Fatalf("round %d: entries %d and %d are out of order", round, i-1, i)
				}
			}
		}
	}
}

// randomKey returns keys that share prefixes, also beyond eight bytes, and end in zeros.
func randomKey(random *rand.Rand) string {
	return []string{"", "\x00", "\x00\x00", "a", "aaaaaaaa", "aaaaaaaa\x00", "aaaaaaaab", "b"}[random.IntN(8)]
}

// Keys sort as MySQL sorts the primary key, and are equal only for equal keys.
func TestKeysSortLikeThePrimaryKey(t *testing.T) {
	random := seeded(t)
	type id struct {
		tenant string
		id     int64
	}
	table := &event.Table{Columns: []event.Column{{Type: event.Type{Kind: event.String}}, {Type: event.Type{Kind: event.Int64}}}, Tenant: 0, ID: 1}
	var ids []id
	for range 500 {
		ids = append(ids, id{[]string{"a", "ab", "abcdefgh", "A", "é", "a "}[random.IntN(6)], random.Int64() - random.Int64()})
	}
	key := func(i id) []byte {
		return appendKey(nil, table, &event.Row{Values: []event.Value{{Bytes: []byte(i.tenant)}, {Int: i.id}}})
	}
	for _, a := range ids {
		for _, b := range ids {
			want := bytes.Compare([]byte(a.tenant), []byte(b.tenant))
			if want == 0 {
				want = 1
				if a.id < b.id {
					want = -1
				} else if a.id == b.id {
					want = 0
				}
			}
			if got := bytes.Compare(key(a), key(b)); got != want {
				t.Fatalf("%+v and %+v compare %d, wanted %d", a, b, got, want)
			}
		}
	}
}

func TestPlaceHoldsItsParts(t *testing.T) {
	for _, m := range []partitioner.Month{0, 100001, 202611, 999912} {
		p := newPlace(65_535, 65_534, m)
		if p.shard() != 65_535 || p.table() != 65_534 || p.month() != m {
			t.Errorf("%d %d %d", p.shard(), p.table(), p.month())
		}
	}
}

// Statements hold rows of one table, at most statementRowsMax, within the limit unless a single row is larger; together
// they hold every row once, in order.
func TestStatementsAreCutWithinTheirBounds(t *testing.T) {
	random := seeded(t)
	for range 500 {
		var all []entry
		at := uint32(0)
		for p := range place(3) {
			for range random.IntN(2500) {
				size := uint32(random.IntN(300) + 1)
				if random.IntN(500) == 0 {
					size *= 100
				}
				all = append(all, entry{place: p, tuple: span{at, at + size}})
				at += size
			}
		}
		limit := 1000 + random.IntN(200_000)
		var seen []entry
		for rest := all; len(rest) > 0; {
			n, size := cut(rest, 50, limit)
			bytes := 50
			for _, e := range rest[:n] {
				bytes += 1 + int(e.tuple.to-e.tuple.from)
				if e.place != rest[0].place {
					t.Fatal("a statement of two tables")
				}
			}
			if n == 0 || n > statementRowsMax || bytes != size || n > 1 && size > limit {
				t.Fatalf("%d rows, %d bytes, said %d, limit %d", n, bytes, size, limit)
			}
			seen = append(seen, rest[:n]...)
			rest = rest[n:]
		}
		if !slices.Equal(seen, all) {
			t.Fatal("rows were lost or moved")
		}
	}
}
