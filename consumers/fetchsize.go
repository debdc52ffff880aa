package consumers

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// How the memory of one loop is divided. What is left is for prepared batches (about the size of the raw ones) and for
// the collector, which lets the heap grow before it works.
const (
	rawShare = 4 // raw records, queued and in batches
	// fetchShare is the part of the client's fetches, as they lie in memory after decompression.
	fetchShare = 16
	// fetchesMax is how many fetches the client may hold or have under way, whatever the number of brokers.
	fetchesMax = 3
	// decompressedBatchesMax: the relay writes no batch above kafka.RecordBytesMax, before compression. Another writer
	// may; a batch beyond this halts its partition.
	decompressedBatchesMax = 8

	fetchBytesMin = 4 << 10 // a broker sends one batch in any case
	fetchBytesMax = 8 << 20
)

// fetchSize bounds a fetch so that it fits in memory after decompression. Brokers count compressed bytes, so the bound
// follows the ratio that was seen. It grows slowly and shrinks at once.
type fetchSize struct {
	target int64 // bytes after decompression
	now    int32

	mu    sync.Mutex
	ratio float64 // decompressed by compressed, the greatest seen, decaying
}

// assumedRatio is what the first fetch reckons with. JSON under lz4 gives 3 to 8, but padding may give 200, and the
// bound grows within a few fetches.
const assumedRatio = 32

func newFetchSize(memoryBytes int64) *fetchSize {
	f := &fetchSize{target: memoryBytes / fetchShare / fetchesMax, ratio: assumedRatio}
	f.now = f.bound()
	return f
}

func (f *fetchSize) bound() int32 {
	return int32(min(max(float64(f.target)/f.ratio, fetchBytesMin), fetchBytesMax))
}

// OnFetchBatchRead implements kgo.HookFetchBatchRead.
func (f *fetchSize) OnFetchBatchRead(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.FetchBatchMetrics) {
	if m.CompressedBytes <= 0 {
		return
	}
	// What records take in memory beyond their bytes counts as well: small records are mostly that.
	seen := (float64(m.UncompressedBytes) + float64(m.NumRecords)*recordOverhead) / float64(m.CompressedBytes)
	f.mu.Lock()
	f.ratio = max(seen, f.ratio*0.99+seen*0.01)
	f.mu.Unlock()
}

// adapt returns the bound for the next fetches, and whether it differs enough to tell the client.
func (f *fetchSize) adapt() (int32, bool) {
	f.mu.Lock()
	want := f.bound()
	f.mu.Unlock()
	if want > f.now {
		want = min(want, f.now+f.now/2)
	}
	if d := want - f.now; d < 0 && -d*8 < f.now || d >= 0 && d*8 < f.now {
		return f.now, false
	}
	f.now = want
	return want, true
}
