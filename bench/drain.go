package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/outbox"
)

const (
	drainRounds     = 5
	drainRows       = 120_000 // of a round's backlog, before the gaps
	drainGapsPerRow = 100     // one id in so many is missing, as of a transaction that rolled back
	drainDistinct   = 20_000  // events that are used in rotation
	drainReadRows   = 5000    // of one read, as the relay has it
	drainLimit      = 2 * time.Minute
)

// drained is a backlog of one lane: rows from after to through, gaps left out.
type drained struct {
	*testLine
	db     *sql.DB
	events []event.Event
	topic  string // of the bare producer

	from, to uint64
	rows     int
}

func relayDrain(b *bench) []Result {
	l := b.newLine(", lanes: 1", orderTable)
	d := &drained{testLine: l, db: l.outbox(4), events: l.orderEvents(min(drainDistinct, b.rows(drainRows))), topic: l.newTopic("bare")}
	var reading, producing []float64
	rounds := b.alternate(drainRounds, func(int) { d.fill() }, func(int) float64 { return d.ours() }, func(i int) float64 {
		halves := []func(){
			func() { reading = append(reading, d.read()) },
			func() { producing = append(producing, d.produce()) },
		}
		if i%2 == 1 {
			slices.Reverse(halves)
		}
		for _, half := range halves {
			half()
		}
		return min(reading[i], producing[i])
	})
	// Where all CPUs are busy with either alone, nothing is left for them to overlap in.
	inTurn := make([]float64, len(rounds))
	for i, r := range rounds {
		inTurn[i] = r.ours * (1/reading[i] + 1/producing[i])
	}
	return []Result{summarize("relay_drain", "events/s", rounds,
		fmt.Sprintf("%d events of %d B a round, 12 headers, lz4, 1 lane, %d partitions, 1 %% of ids missing; bare is the lower of reading alone (%s/s) and producing alone (%s/s); of both in turn it is %.2f. %s (both)",
			d.rows, orderBytes, partitions, figure(median(reading)), figure(median(producing)), median(inTurn), cpuPerRow(rounds, d.rows)))}
}

// fill appends a backlog while no relay runs.
func (d *drained) fill() {
	d.from = d.to
	n := d.rowsOfARound()
	batch := make([]event.Event, 0, 1000)
	for at := 0; at < n; at += cap(batch) {
		batch = batch[:0]
		for i := at; i < min(n, at+cap(batch)); i++ {
			e := d.events[i%len(d.events)]
			e.ID = event.NewID()
			batch = append(batch, e)
		}
		for _, insert := range outbox.Inserts(batch, 1) {
			d.exec(d.db, insert.SQL)
		}
	}
	table := outbox.LaneTable(0)
	d.exec(d.db, fmt.Sprintf("DELETE FROM %s WHERE id > %d AND CRC32(id) %% %d = 0", table, d.from, drainGapsPerRow))
	if err := d.db.QueryRowContext(d.Context(), fmt.Sprintf("SELECT COUNT(*), MAX(id) FROM %s WHERE id > %d", table, d.from)).Scan(&d.rows, &d.to); err != nil {
		d.Fatal(err)
	}
}

func (d *drained) rowsOfARound() int { return d.testLine.rows(drainRows) }

// ours is the relay's rate, from when it holds the lane to the last acknowledgement.
func (d *drained) ours() float64 {
	var acked atomic.Int64
	var began, ended atomic.Int64
	done := make(chan struct{})
	r := d.newRelay(func() { began.CompareAndSwap(0, time.Now().UnixNano()) }, func(_ *kgo.Record, err error) {
		if err == nil && acked.Add(1) == int64(d.rows) {
			ended.Store(time.Now().UnixNano())
			close(done)
		}
	})
	stop := d.ending(r.Run)
	d.await(done, drainLimit, "the relay", func() string { return fmt.Sprintf("%d of %d events: %+v", acked.Load(), d.rows, r.Lanes()) })
	d.awaitCold(r)
	stop()
	return float64(d.rows) / time.Duration(ended.Load()-began.Load()).Seconds()
}

// awaitCold waits until the relay has given up asking for the round's gaps with each read, which takes it some seconds:
// the next round has gaps of its own.
func (d *drained) awaitCold(r *outbox.Relay) {
	for deadline := time.Now().Add(drainLimit); r.Lanes()[0].GapsHot > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			d.Fatalf("gaps are still hot after %s: %+v", drainLimit, r.Lanes())
		}
	}
}

// read reads the same rows and drops them: on the driver's own connection, and with the buffer that its driver keeps
// after a long statement, since that is the fastest that we know.
func (d *drained) read() float64 {
	conn, err := d.db.Conn(d.Context())
	if err != nil {
		d.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(d.Context(), "SELECT 1 /*"+strings.Repeat(" ", 200<<10)+"*/"); err != nil {
		d.Fatal(err)
	}
	rows, after := 0, d.from
	began := time.Now()
	for after < d.to {
		n, last, err := readRows(d.Context(), conn, after)
		if err != nil {
			d.Fatal(err)
		}
		rows, after = rows+n, last
	}
	took := time.Since(began)
	if rows != d.rows {
		d.Fatalf("read %d of %d rows", rows, d.rows)
	}
	return float64(rows) / took.Seconds()
}

func readRows(ctx context.Context, conn *sql.Conn, after uint64) (n int, last uint64, err error) {
	query := fmt.Sprintf("SELECT id, event_id, tbl, tenant, entity_id, op, version, codec, created_at, trace, spread, payload FROM %s"+
		" WHERE id > %d ORDER BY id LIMIT %d", outbox.LaneTable(0), after, drainReadRows)
	err = conn.Raw(func(raw any) error {
		rows, err := raw.(driver.QueryerContext).QueryContext(ctx, query, nil)
		if err != nil {
			return err
		}
		defer rows.Close()
		values := make([]driver.Value, len(rows.Columns()))
		for {
			if err := rows.Next(values); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			n++
			switch id := values[0].(type) {
			case uint64:
				last = id
			case int64:
				last = uint64(id)
			default:
				return fmt.Errorf("id is %T", id)
			}
		}
	})
	return n, last, err
}

// produce sends the same records from memory.
func (d *drained) produce() float64 {
	made := make([]*kgo.Record, len(d.events))
	for i := range d.events {
		e := d.events[i]
		e.Version, e.Outbox = 1<<47|int64(i+1), event.OutboxPosition{Generation: 1, ID: uint64(i + 1)}
		made[i] = d.record(&e, d.topic)
	}
	client := d.client()
	if err := client.Ping(d.Context()); err != nil {
		d.Fatal(err)
	}
	began := time.Now()
	d.produceAll(client, d.rows, func(i int) *kgo.Record {
		r := *made[i%len(made)]
		return &r
	})
	return float64(d.rows) / time.Since(began).Seconds()
}
