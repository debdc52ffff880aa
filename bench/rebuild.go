package main

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/replay"
	"github.com/slotline/slotline/sinks/olap/clickhouse"
)

const (
	rebuildRounds = 3
	rebuildRows   = 192_000 // in the log and in the table
	// A row of rebuild_updated has so many events, and their rounds are far apart in the log.
	rebuildVersions    = 3
	rebuildUpdatedRows = 80_000
	// dumpStatement is about how many bytes mysqldump puts into one INSERT.
	dumpStatement = 1_000_000
)

// rebuildBench is a shard whose one table holds what the log holds, as a table of ClickHouse does, and a dump of it.
type rebuildBench struct {
	*mysqlBench
	olap *clickhouse.Sink
	dump []string
	jobs *replay.Replay
	// events in the log, of rows
	events int
	// At which moment the job that runs began, had caught up with the log, and had compared.
	began, caughtUp, compared time.Time

	comparison *replay.Comparison
	verify     []round
}

// rebuild sets a rebuild from the log beside a dump that is restored, and beside the live sink; then comparisons beside
// a rebuild: that of the shard with ClickHouse, and that of rebuilt and live tables in the same job.
func rebuild(b *bench) []Result {
	server := harness.ClickHouse(b)
	shape := mysqlStaging
	shape.sinks = fmt.Sprintf(", clickhouse: { dsn: %q, batch_age: 1s }", server.URL(server.NewDatabase(b, harness.Name(b))))
	r := &rebuildBench{mysqlBench: b.newMySQLBench(shape)}
	r.fill(rebuildRows, 1)
	r.dump = r.dumpOf("flights")
	var err error
	if r.olap, err = clickhouse.New(clickhouse.Options{Config: r.cfg, Layout: r.layout, State: r.outbox(8), Owner: "bench", Logger: r.log}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { r.olap.Close() })
	r.consume(r.olap, len(r.rows))
	r.open()
	n := fmt.Sprintf("%d rows, 8 columns, one secondary index, from the log's beginning to its end", len(r.rows))
	restored := b.alternate(rebuildRounds, nil, r.job, r.restore)
	r.check()
	sunk := b.alternate(rebuildRounds, nil, r.job, r.sinkAgain)
	verified := b.alternate(rebuildRounds, nil, r.against, r.job)
	return []Result{
		summarize("rebuild", "rows/s", restored, n+"; bare: mysqldump's statements of the same table, restored over one connection. "+cpuPerRow(restored, len(r.rows))),
		summarize("rebuild_over_sink", "rows/s", sunk, n+"; bare: the live sink, by staging, into the table that was emptied"),
		summarize("verify", "rows/s", verified, "the same rows, shard and ClickHouse compared; bare: the rebuild"),
		summarize("verify_log", "rows/s", r.verify, "rebuilt and live tables compared, row by row; bare: the rebuild before it, in the same job"),
	}
}

// rebuildUpdated sets a rebuild beside the live sink where each row was updated since, twice.
func rebuildUpdated(b *bench) []Result {
	r := &rebuildBench{mysqlBench: b.newMySQLBench(mysqlStaging)}
	r.fill(rebuildUpdatedRows, rebuildVersions)
	r.open()
	rounds := b.alternate(rebuildRounds, nil, r.job, r.sinkAgain)
	return []Result{summarize("rebuild_updated", "events/s", rounds, fmt.Sprintf("%d rows of %d events each: all inserts, then rounds of updates; bare: the live sink, into the table that was emptied",
		len(r.rows), rebuildVersions))}
}

// fill has the log hold about so many rows, of so many events each, and the live table too.
func (r *rebuildBench) fill(rows, versions int) {
	r.rows = r.newRows(max(1, r.testLine.rows(rows)/(partitions*r.shape.transaction)) * partitions * r.shape.transaction)
	r.publish()
	for range versions - 1 {
		r.version++
		for i, f := range r.rows {
			r.rows[i] = newFlight(r.random, f.Carrier, f.FlightID, r.version)
		}
		r.publish()
	}
	r.events = versions * len(r.rows)
	r.consume(r.sink, r.events)
}

// open readies jobs whose swap is declined.
func (r *rebuildBench) open() {
	var err error
	if r.jobs, err = replay.Open(replay.Options{Config: r.cfg, Layout: r.layout, Shard: "s1", Logger: r.log, Say: r.heard,
		Confirm:  func(string) bool { return false },
		Compared: func(c *replay.Comparison) { r.compared, r.comparison = time.Now(), c }}); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { r.jobs.Close() })
}

// against compares the shard with ClickHouse.
func (r *rebuildBench) against(int) float64 {
	began := time.Now()
	a, err := replay.VerifyAgainst(r.Context(), replay.AgainstOptions{Config: r.cfg, Layout: r.layout, Store: r.olap, State: r.outbox(2), Logger: r.log})
	if err != nil {
		r.Fatal(err)
	}
	if a.Equal != int64(len(r.rows)) || a.Differ > 0 {
		r.Fatalf("shard and ClickHouse compared: %+v, of %d rows", a, len(r.rows))
	}
	return float64(len(r.rows)) / time.Since(began).Seconds()
}

func (r *rebuildBench) heard(l replay.Line) {
	if l.Stage == string(replay.StageVerify) && !l.Passing && r.caughtUp.IsZero() {
		r.caughtUp = time.Now()
	}
}

// job runs a job up to the question whether to swap, and returns events per second until its tables had their indexes and
// had caught up with the log.
func (r *rebuildBench) job(int) float64 {
	ctx := r.Context()
	r.caughtUp, r.compared, r.comparison = time.Time{}, time.Time{}, nil
	r.began = time.Now()
	j, err := r.jobs.Begin(ctx, replay.Spec{})
	if err != nil {
		r.Fatal(err)
	}
	if err := r.jobs.Run(ctx, j.Name); !errors.Is(err, replay.ErrDeclined) {
		r.Fatalf("the job ended with %v", err)
	}
	if err := r.jobs.Abort(ctx, j.Name); err != nil {
		r.Fatal(err)
	}
	n := float64(r.events)
	if r.comparison == nil || r.comparison.Equal != int64(len(r.rows)) || r.comparison.Differs() > 0 {
		r.Fatalf("the job has compared %+v, of %d rows", r.comparison, len(r.rows))
	}
	rate := n / r.caughtUp.Sub(r.began).Seconds()
	r.verify = append(r.verify, round{ours: n / r.compared.Sub(r.caughtUp).Seconds(), bare: rate})
	return rate
}

// restore is `mysql < dump`.
func (r *rebuildBench) restore(int) float64 {
	conn, err := r.db.Conn(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	defer conn.Close()
	began := time.Now()
	for _, s := range r.dump {
		if _, err := conn.ExecContext(r.Context(), s); err != nil {
			r.Fatalf("%.100s: %v", s, err)
		}
	}
	return float64(len(r.rows)) / time.Since(began).Seconds()
}

// sinkAgain has the live sink apply the whole log once more.
func (r *rebuildBench) sinkAgain(int) float64 {
	r.exec(r.db, "TRUNCATE TABLE flights", "UPDATE slotline_progress SET next_off = 0 WHERE sink = 'mysql'")
	return r.consume(r.sink, r.events)
}

// dumpOf writes the statements that mysqldump would, into the table bare.
func (r *rebuildBench) dumpOf(table string) []string {
	var names string
	if err := r.db.QueryRowContext(r.Context(), "SELECT GROUP_CONCAT(column_name ORDER BY ordinal_position) FROM information_schema.columns"+
		" WHERE table_schema = DATABASE() AND table_name = ? AND generation_expression = ''", table).Scan(&names); err != nil {
		r.Fatal(err)
	}
	rows, err := r.db.QueryContext(r.Context(), "SELECT "+names+" FROM "+table+" ORDER BY carrier, flight_id")
	if err != nil {
		r.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		r.Fatal(err)
	}
	values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	list := []string{"DROP TABLE IF EXISTS bare", "CREATE TABLE bare LIKE " + table,
		"SET unique_checks = 0, foreign_key_checks = 0", "LOCK TABLES bare WRITE", "ALTER TABLE bare DISABLE KEYS"}
	var s strings.Builder
	flush := func() {
		if s.Len() > 0 {
			list = append(list, s.String())
			s.Reset()
		}
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			r.Fatal(err)
		}
		if s.Len() == 0 {
			s.WriteString("INSERT INTO bare (" + names + ") VALUES ")
		} else {
			s.WriteByte(',')
		}
		for i, v := range values {
			s.WriteByte("(,"[min(i, 1)])
			if v.Valid {
				// The driver makes RFC 3339 of a DATETIME; the rows hold no quote.
				s.WriteString("'" + strings.TrimSuffix(v.String, "Z") + "'")
			} else {
				s.WriteString("NULL")
			}
		}
		s.WriteByte(')')
		if s.Len() >= dumpStatement {
			flush()
		}
	}
	if err := rows.Err(); err != nil {
		r.Fatal(err)
	}
	flush()
	return append(list, "ALTER TABLE bare ENABLE KEYS", "UNLOCK TABLES", "SET unique_checks = 1, foreign_key_checks = 1")
}
