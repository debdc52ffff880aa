package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/slotline/slotline/examples/flights/nyc"
)

// checks counts figures that were compared, and names those that differ.
type checks struct {
	compared int
	differ   []string
}

// equal compares a count.
func (c *checks) equal(what string, got, want int64) {
	c.compared++
	if got != want {
		c.differ = append(c.differ, fmt.Sprintf("%s: %s, expected %s", what, number(got), number(want)))
	}
}

// delayTolerance is in minutes: both sides divide the same integers, in one order or another.
const delayTolerance = 1e-9

// answers compares every carrier and month that either side knows, three figures each.
func (c *checks) answers(store string, got, want map[nyc.Bucket]answer) {
	for _, b := range buckets(got, want) {
		where := fmt.Sprintf("%s, %s %s-%s, ", store, b.Carrier, b.Month[:4], b.Month[4:])
		g, w := got[b], want[b]
		c.equal(where+"flights", g.flights, w.flights)
		c.equal(where+"cancelled", g.cancelled, w.cancelled)
		c.compared++
		if math.Abs(g.delay-w.delay) > delayTolerance {
			c.differ = append(c.differ, fmt.Sprintf("%smean arrival delay: %.4f, expected %.4f", where, g.delay, w.delay))
		}
	}
}

// counts compares a count under every name that either side knows.
func (c *checks) counts(what string, got, want map[string]int64) {
	for _, name := range slices.Sorted(maps.Keys(union(got, want))) {
		c.equal(what+" "+name, got[name], want[name])
	}
}

// buckets are the keys of both, by carrier and month.
func buckets(a, b map[nyc.Bucket]answer) []nyc.Bucket {
	return slices.SortedFunc(maps.Keys(union(a, b)), func(x, y nyc.Bucket) int {
		return cmp.Or(cmp.Compare(x.Carrier, y.Carrier), cmp.Compare(x.Month, y.Month))
	})
}

func union[K comparable, V any](a, b map[K]V) map[K]V {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}
