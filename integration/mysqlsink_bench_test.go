package integration

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/sinks/mysql"
)

const benchTables = `
tables:
  rows:
    tenant: owner
    id: item
    columns: { owner: string(10), item: int64, origin: string(3), dest: string(3), status: string(10), at: datetime, delay: int32, note: string(100) }
    indexes: [[owner, origin, at]]
`

// benchLine is a line of one busy shard, the batches of each partition, and the same rows as prebuilt statements.
type benchLine struct {
	*shardLine
	batches [][]*event.Batch // by partition
	bare    [][][]string     // by connection, transaction: statements
	total   int
}

const (
	benchPartitions     = 4
	benchBatchRows      = 4000
	benchStatementRows  = 1000
	benchBatchesPerPart = 10
)

// newBenchLine makes rows whose ids begin at 1, with one version for inserts or the next for updates.
func newBenchLine(b *testing.B) *benchLine {
	l := &benchLine{shardLine: newShardLine(b, harness.MySQL(b), benchTables, "")}
	if _, err := l.dbs["s1"].Exec("CREATE TABLE bare LIKE `rows`"); err != nil {
		b.Fatal(err)
	}
	return l
}

// fill makes the batches of one round: version says whether they insert or update.
func (l *benchLine) fill(version int64) {
	l.batches, l.bare, l.total = nil, nil, 0
	for p := range int32(benchPartitions) {
		var batches []*event.Batch
		var bare [][]string
		l.next[p] = 0
		owner := l.benchTenant(p)
		for n := range benchBatchesPerPart {
			var messages []event.Message
			var statements []string
			var statement strings.Builder
			for i := range benchBatchRows {
				// Ids are spread over the table, as keys of many tenants are.
				id := int64((n*benchBatchRows+i)*7919%(benchBatchesPerPart*benchBatchRows)) + 1
				at := november.Add(time.Duration(id) * time.Second)
				note := fmt.Sprintf("note of row %d, version %d, and some more text so that it has its length", id, version)
				messages = append(messages, l.message(p, "rows", event.Upsert, version, []event.Value{
					text(owner), integer(id), text("JFK"), text("LAX"), text("departed"), moment(at), integer(id % 100), text(note)}))
				if i%benchStatementRows == 0 {
					statement.Reset()
					statement.WriteString("INSERT INTO bare (owner,item,origin,dest,status,at,delay,note,_ver) VALUES ")
				} else {
					statement.WriteByte(',')
				}
				fmt.Fprintf(&statement, "('%s',%d,'JFK','LAX','departed','%s',%d,'%s',%d)", owner, id,
					at.Format("2006-01-02 15:04:05.000000"), id%100, note, version*2)
				if i%benchStatementRows == benchStatementRows-1 {
					statement.WriteString(" AS n ON DUPLICATE KEY UPDATE ")
					for _, c := range []string{"origin", "dest", "status", "at", "delay", "note"} {
						statement.WriteString(c + "=IF(n._ver>bare._ver,n." + c + ",bare." + c + "),")
					}
					statement.WriteString("_ver=GREATEST(n._ver,bare._ver)")
					statements = append(statements, statement.String())
				}
			}
			batches = append(batches, l.batch(int64(n*benchBatchRows), messages...))
			bare = append(bare, statements)
			l.total += benchBatchRows
		}
		l.batches, l.bare = append(l.batches, batches), append(l.bare, bare)
	}
}

// benchTenant is a tenant of the partition; with one shard for all slots each is in s1.
func (l *benchLine) benchTenant(p int32) string {
	for i := range 1_000_000 {
		tenant := fmt.Sprintf("b%d", i)
		if l.layout.Route(tenant, "").Partition == p {
			return tenant
		}
	}
	panic("no tenant")
}

func (l *benchLine) ours(b *testing.B, s *mysql.Sink) time.Duration {
	var owned []event.Owned
	for shard := range l.dbs {
		if _, err := l.dbs[shard].Exec("UPDATE slotline_progress SET next_off=0"); err != nil {
			b.Fatal(err)
		}
	}
	for p := range int32(benchPartitions) {
		owned = append(owned, l.takeOver(s, p))
	}
	started := time.Now()
	var wg sync.WaitGroup
	for p, o := range owned {
		ready := make(chan event.Prepared)
		wg.Go(func() { // decodes the next batch while one is applied, as the consumer does
			defer close(ready)
			for _, batch := range l.batches[p] {
				prepared, err := o.Prepare(batch)
				if err != nil {
					b.Error(err)
					return
				}
				ready <- prepared
			}
		})
		wg.Go(func() {
			for prepared := range ready {
				if rejected, err := prepared.Apply(b.Context()); err != nil || len(rejected) > 0 {
					b.Error(rejected, err)
				}
			}
		})
	}
	wg.Wait()
	return time.Since(started)
}

func (l *benchLine) bareLoop(b *testing.B, dbs []*sql.DB) time.Duration {
	started := time.Now()
	var wg sync.WaitGroup
	for p, transactions := range l.bare {
		wg.Go(func() {
			conn, err := dbs[p].Conn(b.Context())
			if err != nil {
				b.Error(err)
				return
			}
			defer conn.Close()
			for _, statements := range transactions {
				for _, statement := range slices.Concat([]string{"START TRANSACTION"}, statements, []string{"COMMIT"}) {
					if _, err := conn.ExecContext(b.Context(), statement); err != nil {
						b.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	return time.Since(started)
}

// BenchmarkMySQLSinkText compares the sink, from encoded records in memory, with a bare loop of prebuilt statements of
// the same shape (4 × 1000 rows a transaction, 4 connections), in alternated rounds: only the ratio means something.
func BenchmarkMySQLSinkText(b *testing.B) {
	l := newBenchLine(b)
	s := l.sink("bench")
	dbs := make([]*sql.DB, benchPartitions)
	for p := range dbs {
		owner := l.benchTenant(int32(p))
		dbs[p] = l.dbs[l.layout.ShardName(l.layout.Route(owner, "").Shard)]
	}
	if _, err := l.dbs["s2"].Exec("CREATE TABLE bare LIKE `rows`"); err != nil {
		b.Fatal(err)
	}
	var insert, update []float64
	for round := range max(b.N, 3) {
		for shard := range l.dbs {
			for _, table := range []string{"`rows`", "bare"} {
				if _, err := l.dbs[shard].Exec("TRUNCATE TABLE " + table); err != nil {
					b.Fatal(err)
				}
			}
		}
		for version := range int64(2) {
			l.fill(version + 1)
			var ours, bare time.Duration
			if round%2 == 0 {
				ours, bare = l.ours(b, s), l.bareLoop(b, dbs)
			} else {
				bare, ours = l.bareLoop(b, dbs), l.ours(b, s)
			}
			perSecond := func(d time.Duration) float64 { return float64(l.total) / d.Seconds() / 1000 }
			b.Logf("round %d, version %d: ours %.1fk rows/s, bare %.1fk, ratio %.2f", round, version+1, perSecond(ours), perSecond(bare), bare.Seconds()/ours.Seconds())
			if version == 0 {
				insert = append(insert, bare.Seconds()/ours.Seconds())
			} else {
				update = append(update, bare.Seconds()/ours.Seconds())
			}
		}
	}
	b.ReportMetric(median(insert), "insert-ratio")
	b.ReportMetric(median(update), "update-ratio")
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}
