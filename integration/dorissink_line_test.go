package integration

import (
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/internal/plan"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/olap/doris"
	"github.com/slotline/slotline/sinks/olap/doris/doristest"
)

// dorisServer is Doris: the one that SLOTLINE_TEST_DORIS names, http://user:password@fe:8030?query_port=9030, or a test
// server that answers as Doris does.
type dorisServer struct {
	fake           *doristest.Server // nil for a running Doris
	fe             string            // host:port
	queryPort      int
	user, password string
}

func newDoris(t testing.TB) *dorisServer {
	t.Helper()
	text := os.Getenv("SLOTLINE_TEST_DORIS")
	if text == "" {
		f := doristest.New(t)
		my := harness.MySQL(t)
		f.SelectBy(func(database string) *sql.DB { return my.Open(t, my.NewDatabase(t, database+"_doris")) })
		return &dorisServer{fake: f, fe: f.FE(), queryPort: f.QueryPort(), user: doristest.User, password: doristest.Password}
	}
	u, err := url.Parse(text)
	if err != nil || u.User == nil {
		t.Fatal("SLOTLINE_TEST_DORIS is not http://user:password@fe:8030?query_port=9030")
	}
	d := &dorisServer{fe: u.Host, queryPort: 9030, user: u.User.Username()}
	d.password, _ = u.User.Password()
	if p := u.Query().Get("query_port"); p != "" {
		if d.queryPort, err = strconv.Atoi(p); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// faulty is a test server: what goes wrong is chosen there.
func faulty(t testing.TB) *dorisServer {
	t.Helper()
	if os.Getenv("SLOTLINE_TEST_DORIS") != "" {
		t.Skip("a running Doris does not fail on demand")
	}
	return newDoris(t)
}

// open is a pool of a database, "" for none.
func (d *dorisServer) open(t testing.TB, database string) *sql.DB {
	t.Helper()
	host, _, err := net.SplitHostPort(d.fe)
	if err != nil {
		t.Fatal(err)
	}
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User, c.Passwd, c.DBName = "tcp", net.JoinHostPort(host, strconv.Itoa(d.queryPort)), d.user, d.password, database
	c.InterpolateParams = true
	connector, err := mysql.NewConnector(c)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return db
}

func (d *dorisServer) newDatabase(t testing.TB, name string) {
	t.Helper()
	if d.fake != nil {
		d.fake.NewDatabase(name)
		return
	}
	db := d.open(t, "")
	if _, err := db.Exec("CREATE DATABASE `" + name + "`"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = d.open(t, "").Exec("DROP DATABASE IF EXISTS `" + name + "` FORCE") })
}

// yaml is the section sinks.doris.
func (d *dorisServer) yaml(t testing.TB, database string, groups int) string {
	t.Helper()
	file := t.TempDir() + "/password"
	if err := os.WriteFile(file, []byte(d.password), 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("doris: { fe: [%q], query_port: %d, database: %q, user: %q, password: \"${file:%s}\", replication: 1, groups: %d, batch_age: 200ms }",
		"http://"+d.fe, d.queryPort, database, d.user, file, groups)
}

// dorisRows reads columns of a table or view as text, "N" for NULL, else "V" and the text.
func dorisRows(t testing.TB, db *sql.DB, from string, columns ...string) [][]string {
	t.Helper()
	rows, err := db.Query("SELECT `" + strings.Join(columns, "`,`") + "` FROM `" + from + "`")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var list [][]string
	for rows.Next() {
		fields := make([]sql.NullString, len(columns))
		into := make([]any, len(columns))
		for i := range fields {
			into[i] = &fields[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		row := make([]string, len(columns))
		for i, f := range fields {
			if row[i] = "N"; f.Valid {
				row[i] = "V" + f.String
			}
		}
		list = append(list, row)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

// dorisLine is a line with a Doris sink of two groups, without shards and Kafka: tests make batches themselves.
type dorisLine struct {
	*shardLine // for its messages and batches
	server     *dorisServer
	mysql      *harness.MySQLServer
	state      *sql.DB
	db         *sql.DB
	section    string
	tables     string
	stateHost  string // the server's own unless a test sets it
	lease      time.Duration
}

// newDorisLine makes the databases and applies the plan.
func newDorisLine(t testing.TB, server *dorisServer, tables string) *dorisLine {
	t.Helper()
	l := &dorisLine{server: server, mysql: harness.MySQL(t), lease: 5 * time.Second, tables: tables,
		shardLine: &shardLine{t: t, next: map[int32]int64{}, line: harness.Name(t)}}
	l.stateHost = l.mysql.Addr
	server.newDatabase(t, l.line)
	l.mysql.NewDatabase(t, l.line)
	l.state, l.db = l.mysql.Open(t, l.line), server.open(t, l.line)
	l.section = server.yaml(t, l.line, 2)
	l.cfg = l.config()
	spec, err := l.cfg.Layout.WithPartitions(l.cfg.Kafka.Partitions)
	if err != nil {
		t.Fatal(err)
	}
	if l.layout, err = partitioner.New(spec); err != nil {
		t.Fatal(err)
	}
	applyDorisPlan(t, l.sink("applier"))
	return l
}

func (l *dorisLine) config() *config.Config {
	l.t.Helper()
	u, err := url.Parse(l.mysql.URL(l.line))
	if err != nil {
		l.t.Fatal(err)
	}
	u.Host = l.stateHost
	cfg, err := config.Parse("slotline.yaml", []byte(fmt.Sprintf(`line: %s
kafka: { brokers: [127.0.0.1:9092], partitions: 4 }
outbox: { dsn: %q, lease_time: %s }
shards: { s1: { dsn: "mysql://nobody@127.0.0.1:1/s1", slots: 0-1023 } }
sinks: { %s }
%s`, l.line, u, l.lease, l.section, l.tables)))
	if err != nil {
		l.t.Fatal(err)
	}
	return cfg
}

// sink makes one more sink, as another process would be, from the file as it is now.
func (l *dorisLine) sink(owner string) *doris.Sink {
	l.t.Helper()
	return openDorisSink(l.t, doris.Options{Config: l.config(), Layout: l.layout, Owner: owner})
}

// openDorisSink makes a sink with a state pool of its own; both are closed when the test ends.
func openDorisSink(t testing.TB, o doris.Options) *doris.Sink {
	t.Helper()
	db, err := mysqldb.Open(o.Config.Sinks.State, mysqldb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	o.State = db
	sink, err := doris.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sink.Close() })
	return sink
}

func applyDorisPlan(t testing.TB, sink *doris.Sink) []plan.Change {
	t.Helper()
	changes, err := sink.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range changes {
		if err := c.Apply(t.Context()); err != nil {
			t.Fatalf("%c %s: %v", c.Sign, c.What, err)
		}
	}
	return changes
}

// takeOver takes group 1 (partitions 1 and 3) over; it waits for the lease.
func (l *dorisLine) takeOver(s *doris.Sink) event.Owned {
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

func (l *dorisLine) tenant(partition int32) string { return l.tenantIn(partition, "s1") }

// batchOf is the batch of messages of several partitions, from where each stands, or exactly what is pending.
func (l *dorisLine) batchOf(o event.Owned, messages ...event.Message) *event.Batch {
	cut := (&olapLine{shardLine: l.shardLine})
	if len(o.Pending()) > 0 {
		return cut.pendingBatch(o, messages)
	}
	return cut.cut(o, messages...)
}

// wantView compares columns of a view or table, sorted, "|" between.
func (l *dorisLine) wantView(name, columns string, want ...string) {
	l.t.Helper()
	var got []string
	for _, r := range dorisRows(l.t, l.db, name, strings.Split(columns, ",")...) {
		for i := range r {
			if r[i] = r[i][1:]; r[i] == "" {
				r[i] = "-"
			}
		}
		got = append(got, strings.Join(r, "|"))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		l.t.Errorf("%s has\n  %s\nwanted\n  %s", name, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func (l *dorisLine) progressOf(partition int32) progress.Row {
	l.t.Helper()
	r, err := progress.Read(l.t.Context(), l.state, progress.Key{Sink: "doris", Partition: l.part(partition)})
	if err != nil {
		l.t.Fatal(err)
	}
	return r
}
