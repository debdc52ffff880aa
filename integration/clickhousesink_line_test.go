package integration

import (
	"bytes"
	"database/sql"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ClickHouse/ch-go"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/olap/clickhouse"
)

// olapLine is a line with a ClickHouse sink of two groups, without shards and Kafka: tests make batches themselves.
type olapLine struct {
	*shardLine // for its messages and batches
	server     *harness.ClickHouseServer
	mysql      *harness.MySQLServer
	state      *sql.DB
	conn       *ch.Client
	tables     string
	hosts      string // of the DSN; the server's own unless a test sets it
	params     string // of the DSN; none unless a test sets it
	stateHost  string // as hosts
	lease      time.Duration
}

const olapTables = `
tables:
  items:
    tenant: owner
    id: item
    month: at
    columns: { owner: string(20), item: int64, at: datetime, name: string(20), amount: "decimal(12,2)?", n: "int32?" }
  notes: { tenant: owner, id: note, columns: { owner: string(20), note: string(40), body: text } }
  places: { id: code, columns: { code: string(8), name: string(20) } }
`

// newOLAPLine makes the databases and applies the plan.
func newOLAPLine(t testing.TB, server *harness.ClickHouseServer, tables string) *olapLine {
	t.Helper()
	l := &olapLine{server: server, mysql: harness.MySQL(t), tables: tables, lease: 5 * time.Second,
		shardLine: &shardLine{t: t, next: map[int32]int64{}, line: harness.Name(t)}}
	l.hosts, l.stateHost = server.Addr, l.mysql.Addr
	server.NewDatabase(t, l.line)
	l.mysql.NewDatabase(t, l.line)
	l.state, l.conn = l.mysql.Open(t, l.line), server.Dial(t, l.line)
	l.cfg = l.config()
	spec, err := l.cfg.Layout.WithPartitions(l.cfg.Kafka.Partitions)
	if err != nil {
		t.Fatal(err)
	}
	if l.layout, err = partitioner.New(spec); err != nil {
		t.Fatal(err)
	}
	applyPlan(t, l.sink("applier"))
	return l
}

// config is the file as it is now.
func (l *olapLine) config() *config.Config {
	l.t.Helper()
	at := func(text, host, params string) string {
		u, err := url.Parse(text)
		if err != nil {
			l.t.Fatal(err)
		}
		u.Host, u.RawQuery = host, params
		return u.String()
	}
	cfg, err := config.Parse("slotline.yaml", []byte(fmt.Sprintf(`line: %[1]s
kafka: { brokers: [127.0.0.1:9092], partitions: 4 }
outbox: { dsn: %[2]q, lease_time: %[3]s }
shards: { s1: { dsn: "mysql://nobody@127.0.0.1:1/s1", slots: 0-1023 } }
sinks: { clickhouse: { dsn: %[4]q, groups: 2 } }
%[5]s`, l.line, at(l.mysql.URL(l.line), l.stateHost, ""), l.lease, at(l.server.URL(l.line), l.hosts, l.params), l.tables)))
	if err != nil {
		l.t.Fatal(err)
	}
	return cfg
}

// sink makes one more sink, as another process would be, from the file as it is now.
func (l *olapLine) sink(owner string) *clickhouse.Sink {
	l.t.Helper()
	return openClickHouseSink(l.t, clickhouse.Options{Config: l.config(), Layout: l.layout, Owner: owner})
}

// takeOver takes group 1 (partitions 1 and 3) over; it waits for the lease.
func (l *olapLine) takeOver(s *clickhouse.Sink) event.Owned {
	l.t.Helper()
	deadline := harness.Deadline(30 * time.Second)
	for {
		o, err := s.TakeOver(l.t.Context(), s.Groups()[1])
		if err == nil {
			l.t.Cleanup(func() { o.Release(l.t.Context()) }) // ends the goroutine that keeps the lease
			return o
		}
		if !fault.Is(err, fault.Fenced) || time.Now().After(deadline) {
			l.t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// tenant returns a tenant of a partition.
func (l *olapLine) tenant(partition int32) string { return l.tenantIn(partition, "s1") }

// cut is the batch of messages of several partitions, from where each stands.
func (l *olapLine) cut(o event.Owned, messages ...event.Message) *event.Batch {
	b := &event.Batch{Messages: messages}
	for _, p := range o.Positions() {
		r := event.Range{Partition: p.Partition, From: p.Next, To: p.Next, LeaderEpoch: 3}
		for _, m := range messages {
			if m.Partition == p.Partition {
				r.To = m.Offset + 1
			}
		}
		if r.To > r.From {
			b.Ranges = append(b.Ranges, r)
		}
	}
	return b
}

// pendingBatch is the batch that a new owner must send first, from the messages of the log.
func (l *olapLine) pendingBatch(o event.Owned, log []event.Message) *event.Batch {
	b := &event.Batch{Ranges: o.Pending()}
	for _, m := range log {
		for _, r := range b.Ranges {
			if m.Partition == r.Partition && m.Offset >= r.From && m.Offset < r.To {
				b.Messages = append(b.Messages, m)
			}
		}
	}
	return b
}

// view reads columns of a view or table, sorted, as text.
func (l *olapLine) view(name, columns string) []string {
	l.t.Helper()
	var fields []string
	for c := range strings.SplitSeq(columns, ",") {
		fields = append(fields, "ifNull(toString("+c+"), 'NULL')")
	}
	var list []string
	for _, f := range clickhouseRows(l.t, l.conn, "SELECT "+strings.Join(fields, ", ")+" FROM "+name, len(fields)) {
		list = append(list, strings.Join(f, "|"))
	}
	slices.Sort(list)
	return list
}

func (l *olapLine) wantView(name, columns string, want ...string) {
	l.t.Helper()
	slices.Sort(want)
	if got := l.view(name, columns); !slices.Equal(got, want) {
		l.t.Errorf("%s has\n  %s\nwanted\n  %s", name, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// stored is how many rows the table holds, whatever a view makes of them.
func (l *olapLine) stored(table string) int {
	l.t.Helper()
	n, err := strconv.Atoi(l.view(table, "count()")[0])
	if err != nil {
		l.t.Fatal(err)
	}
	return n
}

// run runs a statement on ClickHouse.
func (l *olapLine) run(statement string) {
	l.t.Helper()
	if err := l.conn.Do(l.t.Context(), ch.Query{Body: statement}); err != nil {
		l.t.Fatalf("%s: %v", statement, err)
	}
}

func (l *olapLine) progressOf(partition int32) progress.Row {
	l.t.Helper()
	r, err := progress.Read(l.t.Context(), l.state, progress.Key{Sink: "clickhouse", Partition: l.part(partition)})
	if err != nil {
		l.t.Fatal(err)
	}
	return r
}

// valve is a TCP proxy that a test can shut: what clients send then waits, new connections too, and is passed on when it
// is opened again, also if the client is long gone. That is how a network keeps the last words of a process that was
// stopped.
type valve struct {
	listener net.Listener
	mu       sync.Mutex
	open     *sync.Cond
	shut     bool
	trigger  func(sent []byte) bool // shuts the valve before these bytes
	seen     chan struct{}          // closed when it did
}

func newValve(t testing.TB, backend string) *valve {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v := &valve{listener: listener, seen: make(chan struct{})}
	v.open = sync.NewCond(&v.mu)
	t.Cleanup(func() { listener.Close(); v.set(false) })
	go func() { // ends with the listener
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", backend)
			if err != nil {
				client.Close()
				continue
			}
			go v.pass(client, server)
			go func() { // ends when the server closes
				io.Copy(client, server)
				client.Close()
			}()
		}
	}()
	return v
}

func (v *valve) addr() string { return v.listener.Addr().String() }

// pass ends when the client closes and the valve lets its last bytes through.
func (v *valve) pass(client, server net.Conn) {
	defer server.Close()
	buf := make([]byte, 1<<20)
	for {
		n, err := client.Read(buf)
		v.mu.Lock()
		if n > 0 && v.trigger != nil && v.trigger(buf[:n]) {
			v.shut, v.trigger = true, nil
			close(v.seen)
		}
		for v.shut {
			v.open.Wait()
		}
		v.mu.Unlock()
		if n > 0 {
			if _, err := server.Write(buf[:n]); err != nil {
				client.Close()
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (v *valve) set(shut bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.shut = shut
	v.open.Broadcast()
}

// shutBefore arms the valve.
func (v *valve) shutBefore(trigger func(sent []byte) bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.trigger = trigger
}

// wireCut is a TCP proxy that cuts one connection, once, so many bytes after the statement of an INSERT.
type wireCut struct {
	listener net.Listener
	after    int
	armed    atomic.Bool
}

func newWireCut(t testing.TB, backend string, after int) *wireCut {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wireCut{listener: listener, after: after}
	t.Cleanup(func() { listener.Close() })
	go func() { // ends with the listener
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", backend)
			if err != nil {
				client.Close()
				continue
			}
			go w.pass(client, server)
			go func() { // ends when the server closes
				io.Copy(client, server)
				client.Close()
			}()
		}
	}()
	return w
}

// pass ends when either side closes.
func (w *wireCut) pass(client, server net.Conn) {
	defer client.Close()
	defer server.Close()
	buf, statement, left := make([]byte, 4<<10), false, 0
	for {
		n, err := client.Read(buf)
		if statement && n > left {
			server.Write(buf[:left])
			return
		}
		if left -= n; !statement && bytes.Contains(buf[:n], []byte("INSERT INTO")) && w.armed.CompareAndSwap(true, false) {
			statement, left = true, w.after
		}
		if _, errTo := server.Write(buf[:n]); err != nil || errTo != nil {
			return
		}
	}
}
