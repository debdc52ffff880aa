package partitioner

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// slowOwner finds who owns a slot by looking at each party in turn; -1 for none, -2 for two.
func slowOwner(slot Slot, parties int, ranges func(i int) []SlotRange) int {
	owner := -1
	for i := range parties {
		for _, r := range ranges(i) {
			if r.First <= slot && slot <= r.Last {
				if owner != -1 {
					return -2
				}
				owner = i
			}
		}
	}
	return owner
}

// slowRoute is the twin of Route: linear scans of the spec, by the words of its documentation.
func slowRoute(s Spec, tenant, spread string) (route Route, shard string) {
	shardOf := func(slot Slot) string {
		return s.Shards[slowOwner(slot, len(s.Shards), func(i int) []SlotRange { return s.Shards[i].Slots })].Name
	}
	for _, t := range s.Tenants {
		if t.Tenant == tenant {
			p := t.Placed[s.Hash.Sum(spread)%uint64(len(t.Placed))]
			route.Slot, shard = p.Slot, p.Shard
		}
	}
	if shard == "" {
		route.Slot = Slot(s.Hash.Sum(tenant) % uint64(s.Slots))
		shard = shardOf(route.Slot)
	}
	route.Partition = int32(slowOwner(route.Slot, len(s.Partitions), func(i int) []SlotRange { return s.Partitions[i] }))
	return route, shard
}

func TestP6_RouteAgreesWithALinearScan(t *testing.T) {
	r := random(t)
	for range 300 {
		s := randomSpec(r)
		s, err := s.WithPartitions(randomPartitions(r, s))
		if err != nil {
			t.Fatal(err)
		}
		l, err := New(s)
		if err != nil {
			t.Fatal(err)
		}
		tenants := []string{"", "tenant", "tenant00"}
		for _, tenant := range s.Tenants {
			tenants = append(tenants, tenant.Tenant, tenant.Tenant+"x")
		}
		for range 50 {
			tenants = append(tenants, randomText(r))
		}
		for _, tenant := range tenants {
			for range 5 {
				spread := randomText(r)
				got := l.Route(tenant, spread)
				want, shard := slowRoute(s, tenant, spread)
				want.Shard, _ = l.ShardIndex(shard)
				if got != want || l.ShardName(got.Shard) != shard {
					t.Fatalf("Route(%q, %q) = %+v on %s, want %+v on %s", tenant, spread, got, l.ShardName(got.Shard), want, shard)
				}
				if bytes := l.RouteBytes([]byte(tenant), []byte(spread)); bytes != got {
					t.Fatalf("RouteBytes(%q, %q) = %+v, Route %+v", tenant, spread, bytes, got)
				}
				if routes := l.Routes(tenant); !slices.Contains(routes, got) {
					t.Fatalf("Routes(%q) = %+v lacks %+v", tenant, routes, got)
				}
				if !slices.Contains(l.PartitionShards(got.Partition), got.Shard) {
					t.Fatalf("partition %d meets %v, not %d", got.Partition, l.PartitionShards(got.Partition), got.Shard)
				}
			}
		}
	}
}

func TestPlacements(t *testing.T) {
	l := mustLayout(t, flightsSpec(), 16)
	for tenant, want := range map[string]struct {
		count int
		text  string
	}{"AA": {0, "shared"}, "": {0, "shared"}, "UA": {1, "dedicated"}, "DL": {4, "spread(4)"}} {
		if l.SpreadCount(tenant) != want.count || l.Placement(tenant).String() != want.text {
			t.Errorf("%s: %d, %s", tenant, l.SpreadCount(tenant), l.Placement(tenant))
		}
		if n := len(l.Routes(tenant)); n != max(1, want.count) {
			t.Errorf("%s has %d routes", tenant, n)
		}
	}
	if a, b := l.Route("UA", "1"), l.Route("UA", "2"); a != b || a.Slot != 100_000 {
		t.Errorf("a dedicated tenant is in %v and %v", a, b)
	}
	if a, b := l.Route("AA", "1"), l.Route("AA", "2"); a != b {
		t.Errorf("the spread field of a shared tenant counted: %v and %v", a, b)
	}
	seen := make(map[Slot]bool)
	for i := range 100 {
		seen[l.Route("DL", string(rune('a'+i))).Slot] = true
	}
	if len(seen) != 4 {
		t.Errorf("a tenant spread over 4 slots was seen in %v", seen)
	}
}

// Colliding cells of the placed table: java("Aa") == java("BB"), and one tenant that is not placed collides too.
func TestPlacedTenantsWithOneHash(t *testing.T) {
	s := flightsSpec()
	s.Hash = Java
	s.Tenants = nil
	tenants := []string{"AaAaAa", "AaAaBB", "AaBBAa", "AaBBBB", "BBAaAa", "BBAaBB", "BBBBAa"}
	for i, tenant := range tenants {
		s.Tenants = append(s.Tenants, TenantSpec{tenant, []PlacedSlot{{FirstPlacedSlot + Slot(i), "s1"}}})
	}
	l := mustLayout(t, s, 4)
	for i, tenant := range tenants {
		if got := l.Route(tenant, "").Slot; got != FirstPlacedSlot+Slot(i) {
			t.Errorf("%s is in slot %d", tenant, got)
		}
	}
	if got := l.Route("BBBBBB", "").Slot; got >= FirstPlacedSlot {
		t.Errorf("a tenant that is not placed is in slot %d", got)
	}
}

func TestP13_PartitionsMeetExactlyTheShardsOfTheirSlots(t *testing.T) {
	r := random(t)
	for range 200 {
		l := randomLayout(t, r)
		s := l.Spec()
		for p := range int32(l.Partitions()) {
			var want []int32
			for shard, name := range l.Shards() {
				meets := p == l.Broadcast()
				for _, owned := range s.Shards[shard].Slots {
					for slot := owned.First; slot <= owned.Last; slot++ {
						meets = meets || slices.ContainsFunc(s.Partitions[p], func(r SlotRange) bool { return r.Contains(slot) })
					}
				}
				for _, tenant := range s.Tenants {
					for _, placed := range tenant.Placed {
						meets = meets || placed.Shard == name &&
							slices.ContainsFunc(s.Partitions[p], func(r SlotRange) bool { return r.Contains(placed.Slot) })
					}
				}
				if meets {
					want = append(want, int32(shard))
				}
				if slices.Contains(l.ShardPartitions(int32(shard)), p) != meets {
					t.Fatalf("shard %s meets %v, partition %d wrong", name, l.ShardPartitions(int32(shard)), p)
				}
			}
			if got := l.PartitionShards(p); !slices.Equal(got, want) {
				t.Fatalf("partition %d meets %v, want %v", p, got, want)
			}
		}
		for shard := range l.Shards() {
			if list := l.ShardPartitions(int32(shard)); !slices.IsSorted(list) || list[0] != l.Broadcast() {
				t.Fatalf("shard %d meets %v", shard, list)
			}
		}
	}
	l := mustLayout(t, flightsSpec(), 4)
	for _, i := range []int32{-1, 4, 1 << 30} {
		if l.PartitionShards(i) != nil || l.ShardPartitions(i) != nil || l.ShardName(i) != "" {
			t.Errorf("there is a partition or shard %d", i)
		}
	}
}

// The order in which a file lists things means nothing, except the order of a tenant's slots.
func TestDigestIgnoresTheOrderOfTheFile(t *testing.T) {
	r := random(t)
	for range 200 {
		s := randomSpec(r)
		s, err := s.WithPartitions(randomPartitions(r, s))
		if err != nil {
			t.Fatal(err)
		}
		a, err := New(s)
		if err != nil {
			t.Fatal(err)
		}
		b, err := New(shuffled(r, s))
		if err != nil {
			t.Fatal(err)
		}
		if a.Digest() != b.Digest() || !slices.Equal(a.Shards(), b.Shards()) {
			t.Fatalf("%s\nand\n%s", a.Body(), b.Body())
		}
		for range 20 {
			tenant, spread := randomText(r), randomText(r)
			if a.Route(tenant, spread) != b.Route(tenant, spread) {
				t.Fatalf("%q goes elsewhere", tenant)
			}
		}
	}
	s := flightsSpec()
	a := mustLayout(t, s, 4)
	placed := s.Tenants[0].Placed
	placed[0], placed[1] = placed[1], placed[0]
	if b := mustLayout(t, s, 4); a.Digest() == b.Digest() {
		t.Error("the order of a spread tenant's slots does not count")
	}
}

// shuffled says the same otherwise: other order, ranges cut into pieces.
func shuffled(r *rand.Rand, s Spec) Spec {
	s = s.canonical()
	cut := func(ranges []SlotRange) (pieces []SlotRange) {
		for _, whole := range ranges {
			for first := whole.First; first <= whole.Last; {
				last := first + Slot(r.IntN(whole.Last.distance(first)+1))
				pieces = append(pieces, SlotRange{first, last})
				first = last + 1
			}
		}
		r.Shuffle(len(pieces), func(i, j int) { pieces[i], pieces[j] = pieces[j], pieces[i] })
		return pieces
	}
	for i := range s.Shards {
		s.Shards[i].Slots = cut(s.Shards[i].Slots)
	}
	for i := range s.Partitions {
		s.Partitions[i] = cut(s.Partitions[i])
	}
	r.Shuffle(len(s.Shards), func(i, j int) { s.Shards[i], s.Shards[j] = s.Shards[j], s.Shards[i] })
	r.Shuffle(len(s.Tenants), func(i, j int) { s.Tenants[i], s.Tenants[j] = s.Tenants[j], s.Tenants[i] })
	return s
}

func (s Slot) distance(from Slot) int { return int(s - from) }

func TestLayoutIsImmutable(t *testing.T) {
	s, err := flightsSpec().WithPartitions(4)
	if err != nil {
		t.Fatal(err)
	}
	l, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	digest, route := l.Digest(), l.Route("DL", "x")
	spoil := func(s Spec) {
		s.Shards[0].Name, s.Shards[0].Slots[0] = "x", SlotRange{9, 9}
		for _, tenant := range s.Tenants {
			for i := range tenant.Placed {
				tenant.Placed[i] = PlacedSlot{7, "x"}
			}
		}
		s.Partitions[0][0] = SlotRange{9, 9}
	}
	spoil(s)
	spoil(l.Spec())
	l.Body()[0] = 'x'
	l.Shards()[0] = "x"
	l.PartitionShards(0)[0] = 9
	l.ShardPartitions(0)[0] = 9
	for _, tenant := range []string{"DL", "AA"} {
		l.Routes(tenant)[0] = Route{}
	}
	sum := sha256.Sum256(l.Body())
	if l.Digest() != digest || l.Route("DL", "x") != route || hex.EncodeToString(sum[:]) != digest ||
		l.Shards()[0] != "s1" || l.PartitionShards(0)[0] != 0 || l.ShardPartitions(0)[0] != 0 {
		t.Error("a layout was changed from outside")
	}
}

func TestNewNamesEveryProblem(t *testing.T) {
	valid := func() Spec {
		s, err := flightsSpec().WithPartitions(4)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, c := range []struct {
		name  string
		spoil func(*Spec)
		want  string // Problems.Error()
		kinds []Kind
		last  []Party // the last party of each problem
	}{
		{"epoch", func(s *Spec) { s.Epoch = 0 },
			"layout epoch is 0; it begins with 1; write 1", []Kind{EpochInvalid}, []Party{{Part: PartEpoch}}},
		{"hash", func(s *Spec) { s.Hash = 4 },
			"hash 4 is not known; write xxh64", []Kind{HashInvalid}, []Party{{Part: PartHash}}},
		{"no slots", func(s *Spec) { s.Slots = 0 },
			"0 slots; there can be 1 to 65536; write 1024", []Kind{SlotsInvalid}, []Party{{Part: PartSlots}}},
		{"too many slots", func(s *Spec) { s.Slots = SlotsMax + 1 },
			"65537 slots; there can be 1 to 65536; write 1024", []Kind{SlotsInvalid}, []Party{{Part: PartSlots}}},
		{"power of two", func(s *Spec) {
			s.Hash, s.Slots, s.Shards[1].Slots[0].Last, s.Partitions[3][0].Last = Murmur2, 1000, 999, 999
		},
			"1000 slots is not a power of two, which hash murmur2 needs; write 1024", []Kind{SlotsInvalid}, []Party{{Part: PartSlots}}},
		{"no shard", func(s *Spec) { s.Shards, s.Tenants, s.Partitions = nil, nil, [][]SlotRange{{{0, 1023}}} },
			"there is no shard; every hash slot needs one", []Kind{ShardNone}, []Party{{Part: PartShards}}},
		{"shards overlap", func(s *Spec) { s.Shards[1].Slots[0].First = 500 },
			"shards s1 and s2 both own slots 500-511; write 512-1023", []Kind{SlotTwice}, []Party{{PartShard, "s2", 1}}},
		{"shards overlap in the other order", func(s *Spec) { s.Shards[0], s.Shards[1] = s.Shards[1], s.Shards[0]; s.Shards[0].Slots[0].First = 500 },
			"shards s2 and s1 both own slots 500-511; write 0-499", []Kind{SlotTwice}, []Party{{PartShard, "s1", 1}}},
		{"shard inside another", func(s *Spec) { s.Shards = append(s.Shards, ShardSpec{"s3", []SlotRange{{7, 7}}}) },
			"shards s1 and s3 both own slot 7", []Kind{SlotTwice}, []Party{{PartShard, "s3", 2}}},
		{"gap", func(s *Spec) { s.Shards[0].Slots[0].Last = 500 },
			"no shard owns slots 501-511", []Kind{SlotMissing}, []Party{{Part: PartShards}}},
		{"slots beyond the last", func(s *Spec) { s.Shards[1].Slots[0].Last = 1024 },
			"shard s2 has slot 1024; hash slots are 0-1023", []Kind{SlotOutside}, []Party{{PartShard, "s2", 1}}},
		{"placed slot at a shard", func(s *Spec) { s.Shards[1].Slots = append(s.Shards[1].Slots, SlotRange{100_000, 100_009}) },
			"shard s2 has slots 100000-100009; placed slots are written with their tenant", []Kind{SlotOutside}, []Party{{PartShard, "s2", 1}}},
		{"reversed", func(s *Spec) { s.Shards[1].Slots = []SlotRange{{512, 600}, {1023, 601}} },
			"shard s2 has the reversed range 1023-601; write 512-600,601-1023\nno shard owns slots 601-1023",
			[]Kind{SlotOutside, SlotMissing}, []Party{{PartShard, "s2", 1}, {Part: PartShards}}},
		{"slot twice in one shard", func(s *Spec) { s.Shards[0].Slots = append(s.Shards[0].Slots, SlotRange{5, 6}) },
			"shard s1 names slots 5-6 twice", []Kind{SlotTwice}, []Party{{PartShard, "s1", 0}}},
		{"shard twice", func(s *Spec) { s.Shards = append(s.Shards, ShardSpec{Name: "s1"}) },
			"there are two shards s1", []Kind{ShardTwice}, []Party{{PartShard, "s1", 2}}},
		{"shard names", func(s *Spec) {
			s.Shards = append(s.Shards, ShardSpec{Name: ""}, ShardSpec{Name: "a/b"}, ShardSpec{Name: "-a"}, ShardSpec{Name: strings.Repeat("s", 65)}, ShardSpec{Name: "é"})
		},
			"shard name \"\" is not 1 to 64 letters", []Kind{ShardNameInvalid, ShardNameInvalid, ShardNameInvalid, ShardNameInvalid, ShardNameInvalid}, nil},
		{"unknown shard", func(s *Spec) { s.Tenants[1].Placed[0].Shard = "s9" },
			`tenant "UA" has slot 100000 in shard "s9", which does not exist; the shards are "s1", "s2"`,
			[]Kind{ShardUnknown}, []Party{{PartTenant, "UA", 1}}},
		{"tenants", func(s *Spec) {
			for i, tenant := range []string{"", strings.Repeat("x", 65), "\xff", "a\x00b"} {
				slot := FirstPlacedSlot + Slot(10+i)
				s.Tenants = append(s.Tenants, TenantSpec{tenant, []PlacedSlot{{slot, "s1"}}})
				s.Partitions[0] = append(s.Partitions[0], SlotRange{slot, slot})
			}
		}, "", []Kind{TenantInvalid, TenantInvalid, TenantInvalid, TenantInvalid}, nil},
		{"tenant twice", func(s *Spec) {
			s.Tenants = append(s.Tenants, TenantSpec{"UA", []PlacedSlot{{100_010, "s1"}}})
			s.Partitions[0] = append(s.Partitions[0], SlotRange{100_010, 100_010})
		}, `tenant "UA" is placed twice`, []Kind{TenantTwice}, []Party{{PartTenant, "UA", 2}}},
		{"tenant without slot", func(s *Spec) { s.Tenants = append(s.Tenants, TenantSpec{Tenant: "AA"}) },
			`tenant "AA" is listed without a slot; leave it out to place it by hash`, []Kind{TenantNotPlaced}, []Party{{PartTenant, "AA", 2}}},
		{"hash slot for a tenant", func(s *Spec) { s.Tenants[1].Placed[0].Slot = 99_999 },
			`tenant "UA" is placed in slot 99999; placed slots are 100000 to 2147483647`, []Kind{PlacedSlotInvalid}, []Party{{PartTenant, "UA", 1}}},
		{"slot of two tenants", func(s *Spec) {
			s.Tenants[0].Placed[0].Slot = 100_000
			onePartition(s)
		}, `tenants "DL" and "UA" both own slot 100000`, []Kind{SlotTwice}, []Party{{PartTenant, "UA", 1}}},
		{"slot twice in one tenant", func(s *Spec) {
			s.Tenants[0].Placed[0].Slot = 100_002
			onePartition(s)
		}, `tenant "DL" names slot 100002 twice`, []Kind{SlotTwice}, []Party{{PartTenant, "DL", 0}}},
		{"retired slot", func(s *Spec) { s.Retired = []SlotRange{{100_004, 100_009}} },
			`tenant "DL" is given slot 100004, which belonged to a tenant of an earlier layout; take a number that was never used`,
			[]Kind{PlacedSlotReused}, []Party{{PartTenant, "DL", 0}}},
		{"retired hash slot", func(s *Spec) { s.Retired = []SlotRange{{5, 5}} },
			"retired slots 5 are not placed slots", []Kind{PlacedSlotInvalid}, nil},
		{"no partitions yet", func(s *Spec) { s.Partitions = nil },
			"the slots have no partitions yet", []Kind{PartitionsInvalid}, []Party{{Part: PartPartitions}}},
		{"no partitions", func(s *Spec) { s.Partitions = [][]SlotRange{} },
			"0 partitions; there can be 1 to 10000", []Kind{PartitionsInvalid}, []Party{{Part: PartPartitions}}},
		{"partitions overlap", func(s *Spec) { s.Partitions[2][0].First = 500 },
			"partitions 1 and 2 both own slots 500-511", []Kind{SlotTwice}, []Party{{PartPartition, "", 2}}},
		{"partition misses slots", func(s *Spec) { s.Partitions[2][0].First = 513; s.Partitions[1] = s.Partitions[1][:1] },
			"no partition owns slots 512,100000-100002", []Kind{SlotMissing}, []Party{{Part: PartPartitions}}},
		{"partition owns what no tenant has", func(s *Spec) { s.Partitions[0] = append(s.Partitions[0], SlotRange{100_005, 100_006}) },
			"partition 0 has slots 100005-100006; no tenant has it", []Kind{SlotOutside}, []Party{{PartPartition, "", 0}}},
		{"several at once", func(s *Spec) {
			s.Epoch = -1
			s.Shards[1].Slots[0] = SlotRange{500, 1000}
			s.Tenants[1].Placed[0].Shard = "s9"
			s.Partitions[3] = s.Partitions[3][1:]
		}, "layout epoch is -1; it begins with 1; write 1\n" +
			"shards s1 and s2 both own slots 500-511; write 512-1000\n" +
			"no shard owns slots 1001-1023\n" +
			"tenant \"UA\" has slot 100000 in shard \"s9\", which does not exist; the shards are \"s1\", \"s2\"\n" +
			"no partition owns slots 768-1023", []Kind{EpochInvalid, SlotTwice, SlotMissing, ShardUnknown, SlotMissing}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := valid()
			c.spoil(&s)
			l, err := New(s)
			if err == nil {
				t.Fatalf("New gave %s", l.Body())
			}
			ps := ProblemsOf(err)
			var kinds []Kind
			for i, p := range ps {
				kinds = append(kinds, p.Kind)
				if c.last != nil && !reflect.DeepEqual(p.Parties[len(p.Parties)-1], c.last[i]) {
					t.Errorf("problem %d ends with party %+v", i, p.Parties[len(p.Parties)-1])
				}
			}
			if !slices.Equal(kinds, c.kinds) || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("kinds %v, want %v\n%v\nwant:\n%s", kinds, c.kinds, err, c.want)
			}
			if single, ok := errors.AsType[*Problem](err); !ok || single != ps[0] {
				t.Error("errors.As does not find a single problem")
			}
		})
	}
	if ProblemsOf(errors.New("x")) != nil || ProblemsOf(nil) != nil {
		t.Error("there are problems in another error")
	}
}

func TestLongListsAreCut(t *testing.T) {
	s := flightsSpec()
	s.Shards = s.Shards[:0]
	for i := range 100 {
		s.Shards = append(s.Shards, ShardSpec{fmt.Sprintf("s%02d", i), []SlotRange{{Slot(10 * i), Slot(10*i + 4)}}})
	}
	_, err := s.WithPartitions(4)
	if err == nil || len(err.Error()) > 1500 {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{
		`in shard "s1", which does not exist; the shards are "s00", "s01", "s02", "s03", "s04", "s05", "s06", "s07", and 92 more`,
		"no shard owns slots 5-9,15-19,25-29,35-39,45-49,55-59,65-69,75-79 and 484 more",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks: %s", err, want)
		}
	}
}

func TestPartiesAreNamed(t *testing.T) {
	for party, want := range map[Party]string{
		{Part: PartEpoch}: "layout epoch", {Part: PartSlots}: "slots", {Part: PartHash}: "hash", {Part: PartShards}: "shards",
		{PartShard, "s1", 0}: "shard s1", {PartTenant, "U\nA", 7}: `tenant "U\nA"`,
		{Part: PartPartitions}: "partitions", {PartPartition, "", 3}: "partition 3",
	} {
		if party.String() != want {
			t.Errorf("%+v is %q, want %q", party, party.String(), want)
		}
	}
}

// onePartition gives each slot that exists to partition 0.
func onePartition(s *Spec) {
	s.Partitions = [][]SlotRange{append(s.hashRange(), s.placedRanges()...)}
}

func TestTooManyPlacedSlots(t *testing.T) {
	s := flightsSpec()
	placed, err := Place([]SlotRange{{FirstPlacedSlot + 100, FirstPlacedSlot + 100 + PlacedSlotsMax - 1}}, "s1")
	if err != nil {
		t.Fatal(err)
	}
	s.Tenants = append(s.Tenants, TenantSpec{"AA", placed})
	if _, err := s.WithPartitions(4); err == nil || ProblemsOf(err)[0].Kind != PlacedSlotsTooMany {
		t.Errorf("got %v", err)
	}
}

// New accepts a spec exactly if a count of each slot's owners does, and names every slot that is wrong.
func TestP6_NewAgreesWithCounting(t *testing.T) {
	r := random(t)
	accepted := 0
	for range 3000 {
		s := randomSpec(r)
		s, err := s.WithPartitions(randomPartitions(r, s))
		if err != nil {
			t.Fatal(err)
		}
		for range r.IntN(3) {
			lists := [][]SlotRange{}
			for _, shard := range s.Shards {
				lists = append(lists, shard.Slots)
			}
			lists = append(lists, s.Partitions...)
			if list := lists[r.IntN(len(lists))]; len(list) > 0 {
				one := &list[r.IntN(len(list))]
				one.First += Slot(r.IntN(3))
				one.Last += Slot(r.IntN(3))
				one.Last = max(one.First, one.Last)
			}
		}
		wrong := make(map[Slot]bool) // slots without exactly one owner of each kind
		outside := false
		check := func(slot Slot, exists bool, owner int) {
			if exists && owner < 0 {
				wrong[slot] = true
			}
			outside = outside || !exists && owner != -1
		}
		placed := make(map[Slot]bool)
		for _, tenant := range s.Tenants {
			for _, p := range tenant.Placed {
				placed[p.Slot] = true
			}
		}
		for slot := range Slot(s.Slots + 10) {
			exists := int(slot) < s.Slots
			check(slot, exists, slowOwner(slot, len(s.Shards), func(i int) []SlotRange { return s.Shards[i].Slots }))
			check(slot, exists, slowOwner(slot, len(s.Partitions), func(i int) []SlotRange { return s.Partitions[i] }))
		}
		for slot := FirstPlacedSlot; slot < FirstPlacedSlot+60; slot++ {
			check(slot, placed[slot], slowOwner(slot, len(s.Partitions), func(i int) []SlotRange { return s.Partitions[i] }))
		}
		_, err = New(s)
		if (err == nil) != (len(wrong) == 0 && !outside) {
			t.Fatalf("%+v\nwrong %v, outside %v, but New says %v", s, wrong, outside, err)
		}
		if err == nil {
			accepted++
			continue
		}
		named := make(map[Slot]bool)
		for _, p := range ProblemsOf(err) {
			for _, ranges := range p.Slots {
				for slot := ranges.First; slot <= ranges.Last; slot++ {
					if (p.Kind == SlotTwice || p.Kind == SlotMissing) && !wrong[slot] {
						t.Fatalf("%+v\n%v\nslot %d is right", s, err, slot)
					}
					named[slot] = true
				}
			}
		}
		for slot := range wrong {
			if !named[slot] {
				t.Fatalf("%+v\n%v\nlacks slot %d", s, err, slot)
			}
		}
	}
	if accepted < 300 || accepted > 2700 {
		t.Errorf("%d of 3000 accepted: one side is hardly tested", accepted)
	}
}
