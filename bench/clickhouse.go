package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/ch-go/proto"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/sinks/olap/clickhouse"
)

const (
	clickhouseRounds   = 4
	clickhouseBlocks   = 10 // of a round: the first of each group waits until it is read, with nothing under way
	clickhouseBlock    = 100_000
	clickhouseGroups   = 2
	clickhouseDistinct = 6400 // rows that are used in rotation; a multiple of the carriers
)

// clickhouseBench is a line with a ClickHouse sink, and a table there that a bare loop fills.
type clickhouseBench struct {
	*testLine
	server *harness.ClickHouseServer
	db     string
	sink   *clickhouse.Sink
	client *kgo.Client
	bare   []bareBlock // by connection
}

func clickhouseInsert(b *bench) []Result {
	c := &clickhouseBench{server: harness.ClickHouse(b)}
	c.db = c.server.NewDatabase(b, harness.Name(b))
	c.testLine = b.newLine("", flightTable, fmt.Sprintf("sinks: { clickhouse: { dsn: %q, groups: %d, batch_rows: %d, batch_age: 5s } }",
		c.server.URL(c.db), clickhouseGroups, clickhouseBlock))
	c.client = c.testLine.client()
	var err error
	if c.sink, err = clickhouse.New(clickhouse.Options{Config: c.cfg, Layout: c.layout, State: c.outbox(8), Owner: "bench", Logger: c.log}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.sink.Close() })
	c.statement("CREATE TABLE bare AS flights")
	c.noteVersion()

	carriers := c.tenants(carriersPerPart)
	rows := make([]flight, clickhouseDistinct)
	for i := range rows {
		rows[i] = newFlight(b.random, carriers[i%len(carriers)], uint64(i+1), 1)
	}
	// A row is used again under another id: a block holds each entity once.
	next := uint64(0)
	row := func() *flight {
		f := &rows[next%uint64(len(rows))]
		next++
		f.FlightID = next
		return f
	}
	for range clickhouseGroups {
		c.bare = append(c.bare, newBareBlock(row))
	}
	record := c.flightRecord()
	// Every block is full: what is left of a group would wait for the age of its batch.
	n := max(1, b.rows(clickhouseBlocks)/clickhouseGroups) * clickhouseGroups * clickhouseBlock
	rounds := b.alternate(clickhouseRounds, func(int) { c.produceAll(c.client, n, func(int) *kgo.Record { return record(row()) }) },
		func(int) float64 { return c.consume(c.sink, n) }, func(int) float64 { return c.bareLoop(n) })
	return []Result{summarize("clickhouse_insert", "rows/s", rounds,
		fmt.Sprintf("%d rows a round, from %d partitions in %d groups, blocks of %d; bare: ch-go, prebuilt blocks, lz4, %d connections. %s",
			n, partitions, clickhouseGroups, clickhouseBlock, clickhouseGroups, cpuPerRow(rounds, n)))}
}

func (c *clickhouseBench) statement(body string) {
	if err := c.server.Dial(c, c.db).Do(c.Context(), ch.Query{Body: body}); err != nil {
		c.Fatal(err)
	}
}

func (c *clickhouseBench) noteVersion() {
	var version proto.ColStr
	err := c.server.Dial(c, c.db).Do(c.Context(), ch.Query{Body: "SELECT version() AS v", Result: proto.Results{{Name: "v", Data: &version}}})
	if err != nil {
		c.Fatal(err)
	}
	sawVersion("ClickHouse", version.First())
}

// bareBlock is a block whose columns are filled.
type bareBlock struct{ input proto.Input }

func newBareBlock(row func() *flight) bareBlock {
	var carrier, origin, dest, status, note proto.ColStr
	var id, ver proto.ColUInt64
	var at proto.ColDateTime64
	at.WithPrecision(proto.PrecisionMicro).WithLocation(time.UTC)
	var delay proto.ColInt32
	var deleted proto.ColUInt8
	for range clickhouseBlock {
		f := row()
		carrier.Append(f.Carrier)
		id.Append(f.FlightID)
		origin.Append(f.Origin)
		dest.Append(f.Dest)
		status.Append(f.Status)
		at.Append(f.SchedDep)
		delay.Append(f.ArrDelay)
		note.Append(f.Note)
		ver.Append(uint64(f.version * 2))
		deleted.Append(0)
	}
	return bareBlock{proto.Input{{Name: "carrier", Data: &carrier}, {Name: "flight_id", Data: &id}, {Name: "origin", Data: &origin},
		{Name: "dest", Data: &dest}, {Name: "status", Data: &status}, {Name: "sched_dep", Data: &at}, {Name: "arr_delay", Data: &delay},
		{Name: "note", Data: &note}, {Name: "_ver", Data: &ver}, {Name: "_deleted", Data: &deleted}}}
}

// bareLoop inserts each connection's block again and again. The server would drop a block that it has seen: that is
// switched off.
func (c *clickhouseBench) bareLoop(n int) float64 {
	conns := make([]*ch.Client, clickhouseGroups)
	for i := range conns {
		var err error
		conns[i], err = ch.Dial(c.Context(), ch.Options{Address: c.server.Addr, User: c.server.User, Password: c.server.Password,
			Database: c.db, Compression: ch.CompressionLZ4})
		if err != nil {
			c.Fatal(err)
		}
		defer conns[i].Close()
	}
	blocks := make(chan struct{}, n/clickhouseBlock)
	for range n / clickhouseBlock {
		blocks <- struct{}{}
	}
	close(blocks)
	errs := make([]error, clickhouseGroups)
	began := time.Now()
	var wg sync.WaitGroup
	for i, conn := range conns {
		wg.Go(func() {
			input := c.bare[i].input
			for range blocks {
				if errs[i] = conn.Do(c.Context(), ch.Query{Body: input.Into("bare"), Input: input, Settings: []ch.Setting{
					{Key: "async_insert", Value: "0", Important: true}, {Key: "insert_deduplicate", Value: "0", Important: true}}}); errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	for _, err := range errs {
		if err != nil {
			c.Fatal(err)
		}
	}
	return float64(n) / took.Seconds()
}
