package partitioner

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
)

// busyLayout has every kind of placement, and as many placed tenants as a large line would.
func busyLayout(t testing.TB, h Hash) *Layout {
	s := flightsSpec()
	s.Hash = h
	for i := range 1000 {
		slot := FirstPlacedSlot + 1000 + Slot(i)
		s.Tenants = append(s.Tenants, TenantSpec{fmt.Sprintf("dedicated%d", i), []PlacedSlot{{slot, "s1"}}})
	}
	return mustLayout(t, s, 64)
}

// tenants have 10 bytes, as in the figures that hashes are compared by.
func manyTenants(format string) (texts []string) {
	for i := range 1024 {
		texts = append(texts, fmt.Sprintf(format, i))
	}
	return texts
}

var sharedTenants = manyTenants("carrier%03d")

func TestRouteAllocatesNothing(t *testing.T) {
	for h := range Hash(len(hashNames)) {
		for name, l := range map[string]*Layout{"placed": busyLayout(t, h), "all shared": mustLayout(t, Spec{
			Epoch: 1, Slots: 1024, Hash: h, Shards: []ShardSpec{{"s1", []SlotRange{{0, 1023}}}}}, 16)} {
			tenants := []string{"AA", "UA", "DL", "dedicated7", "日本航空", "😀", string(make([]byte, 64))}
			spreads := []string{"", "12345", "日本"}
			var bytes [][]byte
			for _, tenant := range tenants {
				bytes = append(bytes, []byte(tenant))
			}
			var sink Route
			allocs := testing.AllocsPerRun(100, func() {
				for i, tenant := range tenants {
					for _, spread := range spreads {
						sink = l.Route(tenant, spread)
					}
					sink = l.RouteBytes(bytes[i], bytes[0])
					sink.Slot += Slot(l.SpreadCount(tenant) + Lane(tenant, 4))
				}
			})
			if allocs != 0 {
				t.Errorf("%s, %s: %v allocations", h, name, allocs)
			}
		}
	}
}

var routeSink Route
var sumSink uint64

// Routing must stay within 4 times the bare hash, by the median ratio of alternated rounds: the machine's speed
// drifts from one moment to the next, and then for both.
func TestRouteCostsAtMostFourHashes(t *testing.T) {
	const ratioMax = 4
	if raceEnabled {
		t.Skip("the race detector slows table look-ups down and assembly not; this test runs without -race")
	}
	placed := busyLayout(t, XXH64)
	shared := mustLayout(t, Spec{Epoch: 1, Slots: 1024, Shards: []ShardSpec{{"s1", []SlotRange{{0, 1023}}}}}, 16)
	oddSlots := mustLayout(t, Spec{Epoch: 1, Slots: 1000, Shards: []ShardSpec{{"s1", []SlotRange{{0, 999}}}}}, 16)
	dedicated := manyTenants("dedicated%d")[:1000]
	for _, c := range []struct {
		name    string
		layout  *Layout
		tenants []string
		spread  string
	}{
		{"no tenant is placed", shared, sharedTenants, ""},
		{"slots not a power of two", oddSlots, sharedTenants, ""},
		{"shared among 1002 placed", placed, sharedTenants, ""},
		{"dedicated among 1002 placed", placed, dedicated, ""},
		{"spread", placed, slices.Repeat([]string{"DL"}, 1000), "1234567890"},
	} {
		bare := func() {
			for _, tenant := range c.tenants {
				sumSink += xxhash.Sum64String(tenant)
				if c.spread != "" { // a spread tenant is worth two hashes
					sumSink += xxhash.Sum64String(c.spread)
				}
			}
		}
		routing := func() {
			for _, tenant := range c.tenants {
				routeSink = c.layout.Route(tenant, c.spread)
			}
		}
		ratio, bareTime, routeTime := medianRatio(bare, routing)
		for attempts := 1; ratio > ratioMax && attempts < 3; attempts++ { // a burst of load can spoil a whole series
			ratio, bareTime, routeTime = medianRatio(bare, routing)
		}
		n := time.Duration(len(c.tenants) * repeats)
		t.Logf("%s: hash %.1f ns, route %.1f ns, ratio %.2f", c.name,
			float64(bareTime)/float64(n), float64(routeTime)/float64(n), ratio)
		if ratio > ratioMax {
			t.Errorf("%s: routing costs %.2f times the bare hash; %d is the limit", c.name, ratio, ratioMax)
		}
	}
}

const repeats = 50 // of a loop of about 1000 calls, so that one measurement takes about a millisecond

// medianRatio is the median of b's time to a's over alternated rounds, with the least time of each.
func medianRatio(a, b func()) (ratio float64, leastA, leastB time.Duration) {
	const rounds = 31
	measure := func(f func()) time.Duration {
		start := time.Now()
		for range repeats {
			f()
		}
		return time.Since(start)
	}
	leastA, leastB = time.Hour, time.Hour
	ratios := make([]float64, rounds)
	for i := range ratios {
		var timeA, timeB time.Duration
		if i%2 == 0 {
			timeA, timeB = measure(a), measure(b)
		} else {
			timeB, timeA = measure(b), measure(a)
		}
		ratios[i] = float64(timeB) / float64(timeA)
		leastA, leastB = min(leastA, timeA), min(leastB, timeB)
	}
	slices.Sort(ratios)
	return ratios[rounds/2], leastA, leastB
}

func BenchmarkHash(b *testing.B) {
	for h := range Hash(len(hashNames)) {
		b.Run(h.String(), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				sumSink += h.Sum(sharedTenants[i&1023])
			}
		})
	}
}

func BenchmarkRoute(b *testing.B) {
	dedicated := manyTenants("dedicated%d")
	for h := range Hash(len(hashNames)) {
		l := busyLayout(b, h)
		for name, tenants := range map[string][]string{"shared": sharedTenants, "dedicated": dedicated, "spread": slices.Repeat([]string{"DL"}, 1024)} {
			b.Run(h.String()+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					routeSink = l.Route(tenants[i&1023], "1234567890")
				}
			})
		}
	}
}

func BenchmarkMonthOf(b *testing.B) {
	instant := time.Date(2026, 11, 30, 23, 59, 59, 999_999_000, time.UTC)
	for b.Loop() {
		if MonthOf(instant) != 202611 {
			b.Fatal()
		}
	}
}

func BenchmarkNew(b *testing.B) {
	s := busyLayout(b, XXH64).Spec()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := New(s); err != nil {
			b.Fatal(err)
		}
	}
}
