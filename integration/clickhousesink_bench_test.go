package integration

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/ch-go/proto"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/integration/harness"
)

const (
	olapBenchBlockRows = 100_000
	olapBenchBlocks    = 4
)

// BenchmarkClickHouseSink compares the sink, from encoded records in memory (Prepare of a batch while the one before is
// applied, intents and progress in MySQL included), with a bare ch-go loop that inserts prebuilt blocks of the same rows
// into the same kind of table, in alternated rounds: only the ratio means something.
func BenchmarkClickHouseSink(b *testing.B) {
	l := newOLAPLine(b, harness.ClickHouse(b), benchTables)
	ddl := clickhouseRows(b, l.conn, "SELECT create_table_query FROM system.tables WHERE database = currentDatabase() AND name = 'rows'", 1)[0][0]
	l.run(strings.Replace(ddl, l.line+".rows", l.line+".bare", 1))
	owner := l.tenant(1)
	o := l.takeOver(l.sink("bench"))
	var ratios []float64
	version, offset := int64(0), int64(0)
	for round := range max(b.N, 4) {
		version++
		batches := make([]*event.Batch, olapBenchBlocks)
		blocks := make([]proto.Input, olapBenchBlocks)
		for n := range batches {
			var messages []event.Message
			bare := newBareBlock()
			for i := range olapBenchBlockRows {
				id := int64((n*olapBenchBlockRows+i)*7919%(olapBenchBlocks*olapBenchBlockRows)) + 1
				at := november.Add(time.Duration(id) * time.Second)
				note := fmt.Sprintf("note of row %d, version %d, and some more text so that it has its length", id, version)
				messages = append(messages, l.message(1, "rows", event.Upsert, version, []event.Value{
					text(owner), integer(id), text("JFK"), text("LAX"), text("departed"), moment(at), integer(id % 100), text(note)}))
				bare.add(owner, id, at, note, version)
			}
			batches[n] = l.batch(offset, messages...)
			offset += olapBenchBlockRows
			blocks[n] = bare.input()
		}
		runtime.GC()
		var ours, bare, oursCPU, bareCPU time.Duration
		for turn := range 2 {
			began := cpuTime(b)
			if turn == round%2 {
				ours = l.benchOurs(b, o, batches)
				oursCPU = cpuTime(b) - began
			} else {
				bare = l.benchBare(b, blocks)
				bareCPU = cpuTime(b) - began
			}
		}
		perSecond := func(d time.Duration) float64 { return olapBenchBlockRows * olapBenchBlocks / d.Seconds() / 1000 }
		perRow := func(cpu time.Duration) float64 {
			return float64(cpu.Nanoseconds()) / olapBenchBlockRows / olapBenchBlocks
		}
		b.Logf("round %d: ours %.0fk rows/s, bare %.0fk, ratio %.2f; CPU of this process: ours %.0f ns a row, bare %.0f", round,
			perSecond(ours), perSecond(bare), bare.Seconds()/ours.Seconds(), perRow(oursCPU), perRow(bareCPU))
		ratios = append(ratios, bare.Seconds()/ours.Seconds())
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	b.ReportMetric(0, "ns/op")
}

// cpuTime is what this process has used: other than the clock's, a figure that a busy machine leaves alone.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (l *olapLine) benchOurs(b *testing.B, o event.Owned, batches []*event.Batch) time.Duration {
	started := time.Now()
	ready := make(chan event.Prepared)
	go func() { // decodes the next batch while one is applied, as the consumer does
		defer close(ready)
		for _, batch := range batches {
			prepared, err := o.Prepare(batch)
			if err != nil {
				b.Error(err)
				return
			}
			ready <- prepared
		}
	}()
	for prepared := range ready {
		if rejected, err := prepared.Apply(b.Context()); err != nil || len(rejected) > 0 {
			b.Error(rejected, err)
		}
	}
	return time.Since(started)
}

func (l *olapLine) benchBare(b *testing.B, blocks []proto.Input) time.Duration {
	client, err := ch.Dial(b.Context(), ch.Options{Address: l.server.Addr, User: l.server.User, Password: l.server.Password,
		Database: l.line, Compression: ch.CompressionLZ4})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	started := time.Now()
	for _, input := range blocks {
		if err := client.Do(b.Context(), ch.Query{Body: input.Into("bare"), Input: input,
			Settings: []ch.Setting{{Key: "async_insert", Value: "0"}}}); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(started)
}

// bareBlock is the client library's own columns.
type bareBlock struct {
	owner, origin, dest, status, note proto.ColStr
	item                              proto.ColInt64
	at                                *proto.ColDateTime64
	delay                             proto.ColInt32
	ver                               proto.ColUInt64
	deleted                           proto.ColUInt8
}

func newBareBlock() *bareBlock {
	return &bareBlock{at: new(proto.ColDateTime64).WithPrecision(proto.PrecisionMicro).WithLocation(time.UTC)}
}

func (c *bareBlock) add(owner string, id int64, at time.Time, note string, version int64) {
	c.owner.Append(owner)
	c.item.Append(id)
	c.origin.Append("JFK")
	c.dest.Append("LAX")
	c.status.Append("departed")
	c.at.Append(at)
	c.delay.Append(int32(id % 100))
	c.note.Append(note)
	c.ver.Append(uint64(version * 2))
	c.deleted.Append(0)
}

func (c *bareBlock) input() proto.Input {
	return proto.Input{{Name: "owner", Data: &c.owner}, {Name: "item", Data: &c.item}, {Name: "origin", Data: &c.origin},
		{Name: "dest", Data: &c.dest}, {Name: "status", Data: &c.status}, {Name: "at", Data: c.at}, {Name: "delay", Data: &c.delay},
		{Name: "note", Data: &c.note}, {Name: "_ver", Data: &c.ver}, {Name: "_deleted", Data: &c.deleted}}
}
