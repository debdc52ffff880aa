package main

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/sinks/mysql"
)

const (
	mysqlRounds        = 5
	mysqlRows          = 96_000 // of a round; a multiple of what all partitions put into one transaction each
	mysqlStatement     = 1000   // rows
	mysqlUpdatedTables = 2      // an update finds so many rounds' rows
	carriersPerPart    = 16
)

// mysqlShape is how large the transactions of both sides are, in rows, and which way the sink's rows go.
type mysqlShape struct {
	name        string
	transaction int
	bare        int
	stagingRows int
	sinks       string // of the file, beside: ", clickhouse: …"
	onePart     bool   // all rows are in one partition, whose transactions the sink sends one after the other
}

var (
	mysqlText    = mysqlShape{name: "mysql_text", transaction: 4000, bare: 4000, stagingRows: -1}
	mysqlText1   = mysqlShape{name: "mysql_text_1", transaction: 4000, bare: 4000, stagingRows: -1, onePart: true}
	mysqlStaging = mysqlShape{name: "mysql_staging", transaction: 10_000, bare: 1000}
)

// mysqlBench is a line with one shard, and a table there that a bare loop writes.
type mysqlBench struct {
	*testLine
	shape    mysqlShape
	sink     *mysql.Sink
	db       *sql.DB // of the bare loop: one connection per partition
	client   *kgo.Client
	carriers []string
	next     uint64
	version  int64
	produced int

	rows         []flight
	transactions [][][]string // by connection of the bare loop: statements of each transaction
}

func mysqlTextInsert(b *bench) []Result {
	return append(mysqlInsert(b, mysqlText), mysqlInsert(b, mysqlText1)...)
}

func mysqlTextUpdate(b *bench) []Result {
	return append(mysqlUpdate(b, mysqlText), mysqlUpdate(b, mysqlText1)...)
}

func mysqlStagingInsert(b *bench) []Result { return mysqlInsert(b, mysqlStaging) }
func mysqlStagingUpdate(b *bench) []Result { return mysqlUpdate(b, mysqlStaging) }

func mysqlInsert(b *bench, shape mysqlShape) []Result {
	m := b.newMySQLBench(shape)
	rounds := b.alternate(mysqlRounds, func(int) {
		m.rows = m.newRows(m.rowsOfARound())
		m.prepare()
	}, m.ours, m.bare)
	m.check()
	return []Result{summarize(shape.name+"_insert", "rows/s", rounds, m.note("new rows in a table that grows", rounds))}
}

func mysqlUpdate(b *bench, shape mysqlShape) []Result {
	m := b.newMySQLBench(shape)
	all := m.newRows(mysqlUpdatedTables * m.rowsOfARound())
	m.rows = all
	m.prepare()
	m.consume(m.sink, len(all))
	columns := "carrier, flight_id, origin, dest, status, sched_dep, arr_delay, note, _ver"
	m.exec(m.db, "INSERT INTO bare ("+columns+") SELECT "+columns+" FROM flights")
	rounds := b.alternate(mysqlRounds, func(int) {
		m.version++
		m.rows = m.updates(all)
		m.prepare()
	}, m.ours, m.bare)
	m.check()
	return []Result{summarize(shape.name+"_update", "rows/s", rounds, m.note(fmt.Sprintf("rows at random of %d", len(all)), rounds))}
}

func (b *bench) newMySQLBench(shape mysqlShape) *mysqlBench { return b.newMySQLBenchOn(shape, nil) }

// newMySQLBenchOn has the second half of the slots on a second server, unless that is nil.
func (b *bench) newMySQLBenchOn(shape mysqlShape, second *harness.MySQLServer) *mysqlBench {
	l := b.newLineOn(second, "", flightTable, fmt.Sprintf("sinks: { mysql: { batch_rows: %d, batch_bytes: 32MiB, batch_age: 5s }%s }", shape.transaction, shape.sinks))
	m := &mysqlBench{testLine: l, shape: shape, db: l.shard(partitions), client: l.client(), carriers: l.tenants(carriersPerPart), version: 1}
	var err error
	if m.sink, err = mysql.New(mysql.Options{Config: l.cfg, Layout: l.layout, Owner: "bench", Logger: l.log, StagingRows: shape.stagingRows}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { m.sink.Close() })
	if shape.onePart {
		m.carriers = slices.DeleteFunc(m.carriers, func(c string) bool { return l.layout.Route(c, "").Partition != 0 })
	}
	l.exec(m.db, "CREATE TABLE bare LIKE flights")
	return m
}

// rowsOfARound fill every transaction: what is left of a partition would wait for the age of its batch.
func (m *mysqlBench) rowsOfARound() int {
	return max(1, m.testLine.rows(mysqlRows)/(partitions*m.shape.transaction)) * partitions * m.shape.transaction
}

// newRows are rows of new ids, ascending as a service draws them, of the carriers in turn: as many for each partition.
func (m *mysqlBench) newRows(n int) []flight {
	rows := make([]flight, n)
	for i := range rows {
		m.next++
		rows[i] = newFlight(m.random, m.carriers[i%len(m.carriers)], m.next, m.version)
	}
	return rows
}

// updates are new versions of rows at random, as many of each partition.
func (m *mysqlBench) updates(all []flight) []flight {
	var rows []flight
	counts := make([]int, partitions)
	most := m.rowsOfARound() / partitions
	if m.shape.onePart {
		most = m.rowsOfARound()
	}
	for _, i := range m.random.Perm(len(all)) {
		p := m.layout.Route(all[i].Carrier, "").Partition
		if counts[p] == most {
			continue
		}
		counts[p]++
		rows = append(rows, newFlight(m.random, all[i].Carrier, all[i].FlightID, m.version))
	}
	return rows
}

// prepare publishes the round's rows, and writes the bare loop's statements for the same rows in the same transactions,
// sorted by primary key as the sink sorts: the loop gets all that costs it nothing at run time.
func (m *mysqlBench) prepare() {
	byPartition := m.publish()
	m.transactions = make([][][]string, partitions)
	for p, rows := range byPartition {
		conn := p
		for batch := range slices.Chunk(rows, m.shape.bare) {
			slices.SortFunc(batch, func(a, b flight) int {
				return cmp.Or(cmp.Compare(a.Carrier, b.Carrier), cmp.Compare(a.FlightID, b.FlightID))
			})
			var statements []string
			for some := range slices.Chunk(batch, mysqlStatement) {
				statements = append(statements, bareUpsert(some))
			}
			m.transactions[conn] = append(m.transactions[conn], statements)
			if m.shape.onePart {
				conn = (conn + 1) % partitions
			}
		}
	}
}

// publish publishes the round's rows.
func (m *mysqlBench) publish() (byPartition [][]flight) {
	byPartition = make([][]flight, partitions)
	record := m.flightRecord()
	m.produceAll(m.client, len(m.rows), func(i int) *kgo.Record {
		r := record(&m.rows[i])
		byPartition[r.Partition] = append(byPartition[r.Partition], m.rows[i])
		return r
	})
	m.produced += len(m.rows)
	return byPartition
}

// bareUpsert has the sink's shape, with the version's guard.
func bareUpsert(rows []flight) string {
	var s strings.Builder
	s.WriteString("INSERT INTO bare (carrier,flight_id,origin,dest,status,sched_dep,arr_delay,note,_ver) VALUES ")
	for i := range rows {
		f := &rows[i]
		if i > 0 {
			s.WriteByte(',')
		}
		fmt.Fprintf(&s, "('%s',%d,'%s','%s','%s','%s',%d,'%s',%d)", f.Carrier, f.FlightID, f.Origin, f.Dest, f.Status,
			f.SchedDep.Format("2006-01-02 15:04:05.000000"), f.ArrDelay, f.Note, f.version*2)
	}
	s.WriteString(" AS n ON DUPLICATE KEY UPDATE ")
	for _, c := range []string{"origin", "dest", "status", "sched_dep", "arr_delay", "note"} {
		fmt.Fprintf(&s, "%[1]s=IF(n._ver>bare._ver,n.%[1]s,bare.%[1]s),", c)
	}
	s.WriteString("_ver=GREATEST(n._ver,bare._ver)")
	return s.String()
}

func (m *mysqlBench) ours(int) float64 { return m.consume(m.sink, len(m.rows)) }

// bare sends the statements over one connection per partition.
func (m *mysqlBench) bare(int) float64 {
	conns := make([]*sql.Conn, partitions)
	for p := range conns {
		var err error
		if conns[p], err = m.db.Conn(m.Context()); err != nil {
			m.Fatal(err)
		}
		defer conns[p].Close()
	}
	errs := make([]error, partitions)
	began := time.Now()
	var wg sync.WaitGroup
	for p := range conns {
		wg.Go(func() { errs[p] = send(m.Context(), conns[p], m.transactions[p]) })
	}
	wg.Wait()
	took := time.Since(began)
	for _, err := range errs {
		if err != nil {
			m.Fatal(err)
		}
	}
	return float64(len(m.rows)) / took.Seconds()
}

func send(ctx context.Context, conn *sql.Conn, transactions [][]string) error {
	for _, statements := range transactions {
		for _, s := range slices.Concat([]string{"START TRANSACTION"}, statements, []string{"COMMIT"}) {
			if _, err := conn.ExecContext(ctx, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// check compares the two tables: a fast path that loses rows is not one.
func (m *mysqlBench) check() {
	var sums [2]string
	for i, table := range []string{"flights", "bare"} {
		err := m.db.QueryRowContext(m.Context(), "SELECT CONCAT(COUNT(*), ' rows, sums ', COALESCE(SUM(CRC32(CONCAT_WS('|', carrier, flight_id, origin, dest, "+
			"status, sched_dep, arr_delay, note, _ver))), 0)) FROM "+table).Scan(&sums[i])
		if err != nil {
			m.Fatal(err)
		}
	}
	if sums[0] != sums[1] {
		m.Fatalf("the sink's table has %s, the bare loop's %s", sums[0], sums[1])
	}
}

func (m *mysqlBench) note(what string, rounds []round) string {
	way := fmt.Sprintf("in statements of %d", mysqlStatement)
	if m.shape.stagingRows >= 0 {
		way = "loaded first"
	}
	allocated := median(each(rounds, func(r round) float64 { return float64(r.oursAllocations) / float64(len(m.rows)) }))
	parts := partitions
	if m.shape.onePart {
		parts = 1
	}
	return fmt.Sprintf("%s; %d rows a round, from %d partition(s), %d rows a transaction %s; bare: %d connections, %d rows a transaction in prebuilt, sorted statements of %d with the version guard. %s. Allocations per row: %.1f; of a Kafka client that only reads: %.1f",
		what, len(m.rows), parts, m.shape.transaction, way, partitions, m.shape.bare, mysqlStatement,
		cpuPerRow(rounds, len(m.rows)), allocated, m.clientAllocations())
}

// clientAllocations is how many objects a record costs that is read and dropped.
func (m *mysqlBench) clientAllocations() float64 {
	from := map[int32]kgo.Offset{}
	for p := range int32(partitions) {
		from[p] = kgo.NewOffset().AtStart()
	}
	client := m.testLine.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{m.cfg.Kafka.Topic: from}))
	ctx, cancel := context.WithTimeout(m.Context(), consumeLimit)
	defer cancel()
	before, n := allocations(), 0
	for n < m.produced {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			m.Fatal(err)
		}
		n += fetches.NumRecords()
	}
	return float64(allocations()-before) / float64(n)
}
