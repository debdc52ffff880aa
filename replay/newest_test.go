package replay

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
)

// The open tables against a plain map, with and without room for all.
func TestNewestAgainstAMap(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	for range 20 {
		keys := 1 + random.IntN(20_000)
		n, twin := &newest{}, map[entityKey]int64{}
		if random.IntN(2) == 0 {
			n.bytesMax = int64(newestEntryBytes * (256*8 + random.IntN(keys)))
		}
		for range 2 * keys {
			key, ver := keyOf(fmt.Appendf(nil, "k%d", random.IntN(keys))), 2+random.Int64N(9)
			if _, have := twin[key]; n.learn(key, ver) {
				twin[key] = max(twin[key], ver)
			} else if have || n.bytesMax == 0 {
				t.Fatalf("no room for a key: known %t, of %d bytes", have, n.bytesMax)
			}
		}
		if n.keys.Load() != int64(len(twin)) {
			t.Fatalf("%d keys, want %d", n.keys.Load(), len(twin))
		}
		if have := n.bytes.Load(); n.bytesMax > 0 && have > n.bytesMax || len(twin) > 10_000 && have > 40*int64(len(twin)) {
			t.Fatalf("%d keys take %d bytes, of %d", len(twin), have, n.bytesMax)
		}
		for i := range keys {
			key := keyOf(fmt.Appendf(nil, "k%d", i))
			if got := n.of(key); got != twin[key] {
				t.Fatalf("the greatest version of k%d is %d, want %d", i, got, twin[key])
			}
			for _, taken := range []bool{true, false} {
				if got := n.take(key, twin[key]); got != (taken && twin[key] > 0) {
					t.Fatalf("k%d is taken: %t", i, got)
				}
			}
			if n.of(key) != 0 {
				t.Fatalf("k%d is there after it was taken", i)
			}
		}
	}
}

// Partitions are read by a goroutine each.
func TestNewestLearnsFromSeveral(t *testing.T) {
	n := &newest{}
	var wg sync.WaitGroup
	for ver := range int64(4) {
		wg.Go(func() {
			for i := range 5000 {
				n.learn(keyOf(fmt.Appendf(nil, "k%d", i)), 2+2*ver)
			}
		})
	}
	wg.Wait()
	if n.keys.Load() != 5000 {
		t.Fatalf("%d keys", n.keys.Load())
	}
	for i := range 5000 {
		if got := n.of(keyOf(fmt.Appendf(nil, "k%d", i))); got != 8 {
			t.Fatalf("k%d: %d", i, got)
		}
	}
}
