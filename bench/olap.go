package main

import (
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/ClickHouse/ch-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/sinks/mysql"
	"github.com/slotline/slotline/sinks/olap/clickhouse"
	"github.com/slotline/slotline/sinks/olap/rollup"
)

const (
	rollupRounds = 8
	rollupRows   = 200_000 // of the smaller table, beside the tenant that is touched
	rollupDays   = 200     // of that tenant, with as many rows each as follows
	rollupPerDay = 50
	rollupTouch  = 20 // days
)

// rollupBench is a line whose table holds rows of many tenants, and of one whose days are touched.
type rollupBench struct {
	*testLine
	sink  *clickhouse.Sink
	state *sql.DB
}

func (b *bench) newRollupBench(rows int) *rollupBench {
	server := harness.ClickHouse(b)
	db := server.NewDatabase(b, harness.Name(b))
	r := &rollupBench{testLine: b.newLine("", strings.Replace(flightTable, "    columns:", "    month: sched_dep\n    columns:", 1), fmt.Sprintf(
		"sinks: { clickhouse: { dsn: %q } }\nrollups: { by_day: { table: flights, by: [origin], measures: { flights: count, delay: avg(arr_delay) } } }", server.URL(db)))}
	r.state = r.outbox(4)
	var err error
	if r.sink, err = clickhouse.New(clickhouse.Options{Config: r.cfg, Layout: r.layout, State: r.state, Owner: "bench", Logger: r.log}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { r.sink.Close() })
	client := server.Dial(b, db)
	fill := func(tenant, day string, n int) {
		err := client.Do(b.Context(), ch.Query{Body: fmt.Sprintf("INSERT INTO flights (carrier, flight_id, origin, sched_dep, arr_delay, _ver) SELECT %s, number, "+
			"'P' || toString(number %% 10), toDateTime64('2025-01-01 12:00:00', 6, 'UTC') + toIntervalDay(%s), number %% 100, 2 FROM numbers(%d)", tenant, day, n)})
		if err != nil {
			b.Fatal(err)
		}
	}
	fill("'other' || toString(number % 50)", "number % 600", rows)
	fill("'touched'", fmt.Sprintf("number %% %d", rollupDays), rollupDays*rollupPerDay)
	r.refresh(rollupDays) // fills it
	return r
}

// refresh touches days and returns how long the rollup takes to have them, in ms.
func (r *rollupBench) refresh(days int) float64 {
	first := int32(time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC).Unix() / 86400)
	var touched []rollup.Touched
	for d := range days {
		touched = append(touched, rollup.Touched{Rollup: "by_day", Pair: rollup.Pair{Tenant: "touched", Day: first + int32(d)}})
	}
	if err := rollup.Mark(r.Context(), r.state, r.sink.Name(), touched); err != nil {
		r.Fatal(err)
	}
	began := time.Now()
	if err := r.sink.RollUp(r.Context()); err != nil {
		r.Fatal(err)
	}
	return float64(time.Since(began).Microseconds()) / 1000
}

// rollupRefresh shows what a refresh costs by: ten times the rows in the table, and ten times the buckets that are
// touched.
func rollupRefresh(b *bench) []Result {
	n := b.rows(rollupRows)
	small, large := b.newRollupBench(n), b.newRollupBench(10*n)
	nothing := func(int) {}
	byRows := b.alternate(rollupRounds, nothing, func(int) float64 { return large.refresh(rollupTouch) }, func(int) float64 { return small.refresh(rollupTouch) })
	byBuckets := b.alternate(rollupRounds, nothing, func(int) float64 { return large.refresh(10 * rollupTouch) }, func(int) float64 { return large.refresh(rollupTouch) })
	return []Result{
		summarize("rollup_refresh", "ms", byRows, fmt.Sprintf("%d touched days of one tenant; ours: with %d rows of other tenants in the table, bare: with %d", rollupTouch, 10*n, n)),
		summarize("rollup_refresh_buckets", "ms", byBuckets, fmt.Sprintf("the table of %d rows; ours: %d touched days, over 7 months, bare: %d, of one month", 10*n, 10*rollupTouch, rollupTouch)),
	}
}

// clickhouseOverMySQL sets the two sinks beside each other: the same events from Kafka, to ClickHouse and to one shard.
func clickhouseOverMySQL(b *bench) []Result {
	server := harness.ClickHouse(b)
	db := server.NewDatabase(b, harness.Name(b))
	l := b.newLine("", flightTable, fmt.Sprintf("sinks:\n  mysql: { batch_rows: %d, batch_bytes: 32MiB, batch_age: 5s }\n"+
		"  clickhouse: { dsn: %q, groups: %d, batch_rows: %d, batch_age: 5s }", mysqlText.transaction, server.URL(db), clickhouseGroups, clickhouseBlock))
	client := l.client()
	shard, err := mysql.New(mysql.Options{Config: l.cfg, Layout: l.layout, Owner: "bench", Logger: l.log, StagingRows: mysqlText.stagingRows})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { shard.Close() })
	olap, err := clickhouse.New(clickhouse.Options{Config: l.cfg, Layout: l.layout, State: l.outbox(8), Owner: "bench", Logger: l.log})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { olap.Close() })
	carriers, record := l.tenants(carriersPerPart), l.flightRecord()
	next := uint64(0)
	// Full batches of both: what is left of one would wait for its age.
	n := max(1, b.rows(2)) * clickhouseGroups * clickhouseBlock
	rounds := b.alternate(3, func(int) {
		l.produceAll(client, n, func(int) *kgo.Record {
			next++
			f := newFlight(b.random, carriers[int(next)%len(carriers)], next, 1)
			return record(&f)
		})
	}, func(int) float64 { return l.consume(olap, n) }, func(int) float64 { return l.consume(shard, n) })
	return []Result{summarize("clickhouse_over_mysql", "rows/s", rounds,
		fmt.Sprintf("%d new rows a round from Kafka; ours: the ClickHouse sink, blocks of %d, bare: the MySQL sink, one shard, transactions of %d", n, clickhouseBlock, mysqlText.transaction))}
}
