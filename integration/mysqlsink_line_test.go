package integration

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/internal/plan"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/mysql"
)

// shardLine is a line of two shards in one MySQL server, without Kafka: tests make batches themselves.
type shardLine struct {
	t      testing.TB
	cfg    *config.Config
	layout *partitioner.Layout
	dbs    map[string]*sql.DB // by shard
	names  map[string]string  // database by shard
	urls   map[string]string  // as the file has them
	line   string
	server *harness.MySQLServer
	next   map[int32]int64 // offsets given out, by partition

	stagingRows int // of the sinks made from now on
}

const shardLineTables = `
tables:
  items:
    tenant: owner
    id: item
    month: at
    columns: { owner: string(20), item: int64, at: datetime, name: string(20), amount: "decimal(12,2)?", n: "int32?" }
    indexes: [[owner, name]]
  notes: { tenant: owner, id: note, columns: { owner: string(20), note: string(40), body: text } }
  places: { id: code, columns: { code: string(8), name: string(20) } }
`

// benchTables is a table of the shape that figures are measured with: 8 columns, one index, rows of about 190 bytes.
const benchTables = `
tables:
  rows:
    tenant: owner
    id: item
    columns: { owner: string(10), item: int64, origin: string(3), dest: string(3), status: string(10), at: datetime, delay: int32, note: string(100) }
    indexes: [[owner, origin, at]]
`

// newShardLine makes two databases and applies the plan. addr replaces the server's address in the DSNs, for a proxy.
func newShardLine(t testing.TB, server *harness.MySQLServer, tables, addr string) *shardLine {
	t.Helper()
	l := newShardLineBare(t, server, tables, addr)
	s := l.sink("applier")
	l.apply(s)
	return l
}

// newShardLineBare makes the databases alone.
func newShardLineBare(t testing.TB, server *harness.MySQLServer, tables, addr string) *shardLine {
	t.Helper()
	l := &shardLine{t: t, dbs: map[string]*sql.DB{}, names: map[string]string{}, urls: map[string]string{}, server: server, next: map[int32]int64{}}
	name := harness.Name(t)
	at := func(db string) string {
		u, err := url.Parse(server.URL(db))
		if err != nil {
			t.Fatal(err)
		}
		if addr != "" {
			u.Host = addr
		}
		return u.String()
	}
	for _, shard := range []string{"s1", "s2"} {
		l.names[shard] = server.NewDatabase(t, name+"_"+shard)
		l.dbs[shard] = server.Open(t, l.names[shard])
	}
	for shard, db := range l.names {
		l.urls[shard] = at(db)
	}
	l.line = name
	l.cfg = mustParse(t, l, tables)
	spec, err := l.cfg.Layout.WithPartitions(l.cfg.Kafka.Partitions)
	if err != nil {
		t.Fatal(err)
	}
	if l.layout, err = partitioner.New(spec); err != nil {
		t.Fatal(err)
	}
	return l
}

// mustParse reads the line's file with the given tables.
func mustParse(t testing.TB, l *shardLine, tables string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("slotline.yaml", []byte(fmt.Sprintf(`line: %[1]s
kafka: { brokers: [127.0.0.1:9092], partitions: 4 }
outbox: { dsn: "mysql://nobody@127.0.0.1:1/%[1]s" }
shards:
  s1: { dsn: %[2]q, slots: 0-511 }
  s2: { dsn: %[3]q, slots: 512-1023 }
%[4]s`, l.line, l.urls["s1"], l.urls["s2"], tables)))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// sink makes one more sink, as another process would be.
func (l *shardLine) sink(owner string) *mysql.Sink {
	l.t.Helper()
	s, err := mysql.New(mysql.Options{Config: l.cfg, Layout: l.layout, Owner: owner, StagingRows: l.stagingRows})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { s.Close() })
	return s
}

func (l *shardLine) apply(s *mysql.Sink) {
	l.t.Helper()
	changes, err := s.Plan(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	for _, c := range changes {
		if err := c.Apply(l.t.Context()); err != nil {
			l.t.Fatalf("%c %s: %v", c.Sign, c.What, err)
		}
	}
}

// plan is what apply would do, and what it notes, but for the harness's own setting: its servers do not wait for the disk.
func (l *shardLine) plan(s *mysql.Sink) []plan.Change {
	l.t.Helper()
	changes, err := s.Plan(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	return slices.DeleteFunc(changes, func(c plan.Change) bool { return strings.HasPrefix(c.What, "innodb_flush_log_at_trx_commit") })
}

func (l *shardLine) part(n int32) event.Partition {
	return event.Partition{Topic: l.cfg.Kafka.Topic, Number: n}
}

func (l *shardLine) takeOver(s *mysql.Sink, n int32) event.Owned {
	l.t.Helper()
	o, err := s.TakeOver(l.t.Context(), []event.Partition{l.part(n)})
	if err != nil {
		l.t.Fatal(err)
	}
	return o
}

// tenantIn returns a tenant of a partition and shard.
func (l *shardLine) tenantIn(partition int32, shard string) string {
	for i := range 1_000_000 {
		tenant := fmt.Sprintf("t%d", i)
		if r := l.layout.Route(tenant, ""); r.Partition == partition && l.layout.ShardName(r.Shard) == shard {
			return tenant
		}
	}
	l.t.Fatalf("partition %d does not meet shard %s", partition, shard)
	return ""
}

var november = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// makeNovember makes november's table of items on a shard, for tests that alter it before a row is in it: apply makes those of
// the months it runs in, whichever they are.
func (l *shardLine) makeNovember(shard string) {
	l.t.Helper()
	var month string
	err := l.dbs[shard].QueryRow("SELECT table_name FROM information_schema.tables WHERE table_schema=DATABASE() AND table_name LIKE 'items\\_______' LIMIT 1").Scan(&month)
	if err == nil {
		_, err = l.dbs[shard].Exec("CREATE TABLE IF NOT EXISTS items_202611 LIKE " + month)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

func text(s string) event.Value       { return event.Value{Bytes: []byte(s)} }
func integer(n int64) event.Value     { return event.Value{Int: n} }
func moment(at time.Time) event.Value { return event.Value{Int: at.UnixMicro()} }
func item(owner string, id int64, name string) []event.Value {
	return []event.Value{text(owner), integer(id), moment(november), text(name), text("1.00"), integer(7)}
}

// message makes the record of an event. Of a delete only the fields that its body holds are read.
func (l *shardLine) message(partition int32, table string, op event.Op, version int64, values []event.Value) event.Message {
	l.t.Helper()
	t := l.cfg.Table(table)
	body, err := t.AppendRow(nil, values, op)
	if err != nil {
		l.t.Fatal(err)
	}
	e := event.Event{ID: event.NewID(), Table: table, Op: op, Version: version, Time: november, LayoutEpoch: l.layout.Epoch(),
		EntityID: string(t.CanonicalText(nil, t.ID, values[t.ID])), Body: body,
		Outbox: event.OutboxPosition{Generation: 1, ID: uint64(version)}}
	if !t.Broadcast() {
		e.Tenant = string(t.CanonicalText(nil, t.Tenant, values[t.Tenant]))
	}
	_, rec := e.AppendRecord(nil, event.Source(l.cfg.Line))
	m := event.Message{Record: rec, Partition: l.part(partition), Offset: l.next[partition], LeaderEpoch: 3}
	l.next[partition]++
	return m
}

// batch covers what the messages span; all are of one partition.
func (l *shardLine) batch(from int64, messages ...event.Message) *event.Batch {
	r := event.Range{Partition: messages[0].Partition, From: from, To: messages[len(messages)-1].Offset + 1, LeaderEpoch: 3}
	return &event.Batch{Ranges: []event.Range{r}, Messages: messages}
}

// applyBatch prepares and applies, excluding what is rejected, as the consumer does. It returns the rejected.
func (l *shardLine) applyBatch(o event.Owned, b *event.Batch) map[int]event.Rejected {
	l.t.Helper()
	rejected, err := applyAll(l.t.Context(), o, b)
	if err != nil {
		l.t.Fatal(err)
	}
	return rejected
}

func applyAll(ctx context.Context, o event.Owned, b *event.Batch) (map[int]event.Rejected, error) {
	all := map[int]event.Rejected{}
	for {
		p, err := o.Prepare(b)
		if err != nil {
			return all, err
		}
		rejected, err := p.Apply(ctx)
		if err != nil || len(rejected) == 0 {
			return all, err
		}
		if b.Excluded == nil {
			b.Excluded = map[int]bool{}
		}
		for _, r := range rejected {
			if b.Excluded[r.Index] {
				return all, fmt.Errorf("message %d was rejected twice", r.Index)
			}
			b.Excluded[r.Index] = true
			all[r.Index] = r
		}
	}
}

// rows reads a table's rows, sorted, as text.
func (l *shardLine) rows(shard, table, columns string) []string {
	l.t.Helper()
	rows, err := l.dbs[shard].QueryContext(l.t.Context(), "SELECT CONCAT_WS('|',"+columns+") FROM `"+table+"`")
	if err != nil {
		l.t.Fatal(err)
	}
	defer rows.Close()
	var list []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			l.t.Fatal(err)
		}
		list = append(list, s)
	}
	slices.Sort(list)
	return list
}

func (l *shardLine) wantRows(shard, table, columns string, want ...string) {
	l.t.Helper()
	slices.Sort(want)
	if got := l.rows(shard, table, columns); !slices.Equal(got, want) {
		l.t.Errorf("%s.%s has\n  %s\nwanted\n  %s", shard, table, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func (l *shardLine) progress(shard string, partition int32) progress.Row {
	l.t.Helper()
	r, err := progress.Read(l.t.Context(), l.dbs[shard], progress.Key{Sink: "mysql", Partition: l.part(partition)})
	if err != nil {
		l.t.Fatal(err)
	}
	return r
}

// seeded returns a random source whose seed is in the log.
func seeded(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// wire is a TCP proxy that a test can cut at a chosen moment.
type wire struct {
	t        testing.TB
	listener net.Listener
	backend  string
	// swallow says, for what a client sends, whether the answer must never arrive: what follows is passed to the server,
	// and the connection is cut when the server answers.
	swallow func(sent []byte) bool
}

func newWire(t testing.TB, backend string, swallow func(sent []byte) bool) *wire {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{t: t, listener: listener, backend: backend, swallow: swallow}
	done := make(chan struct{})
	go func() { // owned by the listener: it ends when that is closed
		defer close(done)
		w.accept()
	}()
	t.Cleanup(func() { listener.Close(); <-done })
	return w
}

func (w *wire) addr() string { return w.listener.Addr().String() }

func (w *wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", w.backend)
		if err != nil {
			client.Close()
			continue
		}
		cut := make(chan struct{}, 1)
		go func() { // ends when either side is closed
			defer client.Close()
			defer server.Close()
			buf := make([]byte, 64<<10)
			for {
				n, err := client.Read(buf)
				if n > 0 {
					if w.swallow(buf[:n]) {
						cut <- struct{}{}
					}
					if _, err := server.Write(buf[:n]); err != nil {
						return
					}
				}
				if err != nil {
					return
				}
			}
		}()
		go func() { // as above
			defer client.Close()
			defer server.Close()
			buf := make([]byte, 64<<10)
			for {
				n, err := server.Read(buf)
				select {
				case <-cut:
					return // the server has answered; nobody will know
				default:
				}
				if n > 0 {
					if _, err := client.Write(buf[:n]); err != nil {
						return
					}
				}
				if err != nil {
					return
				}
			}
		}()
	}
}
