package intake

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/slotline/slotline/event"
)

// The open table against a plain map, with keys that collide and sizes that grow and shrink.
func TestLatestAgainstAMap(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	var l Latest
	for range 300 {
		messages := make([]event.Message, 1<<random.IntN(11))
		l.Reset(len(messages))
		twin := map[string]int64{}
		for i := range messages {
			messages[i].Key = fmt.Appendf(nil, "k%d", random.IntN(len(messages)))
			ver := 2 + random.Int64N(9)
			greatest := twin[string(messages[i].Key)]
			if got := l.IsNewer(messages, i, ver); got != (ver > greatest) {
				t.Fatalf("version %d of %s, after %d: newer %t", ver, messages[i].Key, greatest, got)
			}
			twin[string(messages[i].Key)] = max(greatest, ver)
		}
		if len(l.entries) > 16*len(messages)+64*8 {
			t.Fatalf("%d entries are kept for %d messages", len(l.entries), len(messages))
		}
	}
}
