package doris

// block is the rows of one table in a batch: what one load sends.
type block struct {
	table    *table
	data     []byte  // lines
	ends     []int   // of each line, in data
	messages []int32 // of each line, the index of its message in the batch
	sent     bool    // acknowledged
}

func (b *block) reset() {
	b.data, b.ends, b.messages, b.sent = b.data[:0], b.ends[:0], b.messages[:0], false
}

func (b *block) rows() int { return len(b.ends) }

// lines is the bytes of rows from to to.
func (b *block) lines(from, to int) []byte { return b.data[b.start(from):b.start(to)] }

// line is row i without its line break.
func (b *block) line(i int) []byte { return b.data[b.start(i) : b.ends[i]-1] }

func (b *block) start(i int) int {
	if i == 0 {
		return 0
	}
	return b.ends[i-1]
}

// rowBytes is what a row takes besides its line.
const rowBytes = 12

func (b *block) kept() int64 { return int64(cap(b.data)) + rowBytes*int64(cap(b.ends)) }

// set is the blocks of one batch, one per table. It is used again for another: two in rotation are enough.
type set []block

// reset makes the blocks empty. Blocks that were large once and small since would add up: past keepBytesMax they are
// let go.
func (s set) reset(keepBytesMax int64) {
	total := int64(0)
	for i := range s {
		s[i].reset()
		total += s[i].kept()
	}
	if total <= keepBytesMax {
		return
	}
	for i := range s {
		s[i] = block{table: s[i].table}
	}
}
