package integration

import (
	"bytes"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/consumers"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/mysql"
	"github.com/slotline/slotline/sinks/sinktest"
)

func TestMySQLSinkConforms(t *testing.T) {
	t.Parallel() // long
	mysqlSinkConforms(t, harness.MySQL(t), -1)
}

// The same promises where every row, also one alone, goes by the staging path.
func TestMySQLSinkConformsByStaging(t *testing.T) {
	harness.Proof(t)
	mysqlSinkConforms(t, harness.MySQL(t), 1)
}

func mysqlSinkConforms(t *testing.T, server *harness.MySQLServer, stagingRows int) {
	var paths pathCounts
	w := newWire(t, server.Addr, paths.see)
	via := func(db string) string { return strings.Replace(server.URL(db), server.Addr, w.addr(), 1) }
	sinktest.Run(t, func(t testing.TB) (sinktest.Store, sinktest.Setup) {
		name := harness.Name(t)
		one, two := server.NewDatabase(t, name+"_s1"), server.NewDatabase(t, name+"_s2")
		setup := sinktest.NewSetup(t, sinktest.YAML(via(one), via(two), server.URL(name+"_outbox"), ""))
		store := &mysqlStore{setup: setup, shards: map[string]*sql.DB{"s1": server.Open(t, one), "s2": server.Open(t, two)}, stagingRows: stagingRows}
		changes, err := store.open(t).Plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			if err := c.Apply(t.Context()); err != nil {
				t.Fatalf("%c %s: %v", c.Sign, c.What, err)
			}
		}
		return store, setup
	})
	loads, texts := paths.loads.Load(), paths.texts.Load()
	t.Logf("rows of a table were loaded %d times, sent as text %d times", loads, texts)
	if stagingRows < 0 && loads > 0 || stagingRows > 0 && texts > loads/10 {
		t.Error("most went the other way")
	}
}

// mysqlStore is the two shards of one case.
type mysqlStore struct {
	setup       sinktest.Setup
	shards      map[string]*sql.DB
	stagingRows int
}

func (s *mysqlStore) Open(t testing.TB) consumers.Sink { return s.open(t) }

func (s *mysqlStore) open(t testing.TB) *mysql.Sink {
	t.Helper()
	sink, err := mysql.New(mysql.Options{Config: s.setup.Config, Layout: s.setup.Layout, Owner: harness.Name(t), StagingRows: s.stagingRows})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sink.Close() })
	return sink
}

func (s *mysqlStore) Rows(t testing.TB, table *event.Table) []sinktest.Row {
	t.Helper()
	var list []sinktest.Row
	for shard, db := range s.shards {
		for name, month := range physicalTables(t, db, table) {
			list = append(list, readRows(t, db, shard, name, month, table)...)
		}
	}
	return list
}

// physicalTables finds the tables of a logical one by the names in docs/formats.md.
func physicalTables(t testing.TB, db *sql.DB, table *event.Table) map[string]partitioner.Month {
	t.Helper()
	if table.Month == event.None {
		return map[string]partitioner.Month{table.Name: partitioner.NoMonth}
	}
	rows, err := db.QueryContext(t.Context(), "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA=DATABASE() "+
		"AND TABLE_NAME LIKE ?", table.Name+`\_______`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	found := map[string]partitioner.Month{}
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		month, err := partitioner.ParseMonth(name[len(table.Name)+1:])
		if err != nil {
			t.Fatal(err)
		}
		found[name] = month
	}
	return found
}

func readRows(t testing.TB, db *sql.DB, shard, name string, month partitioner.Month, table *event.Table) []sinktest.Row {
	t.Helper()
	query := "SELECT "
	for _, c := range table.Columns {
		query += "`" + c.Name + "`, "
	}
	rows, err := db.QueryContext(t.Context(), query+"_ver FROM `"+name+"`")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var list []sinktest.Row
	for rows.Next() {
		row := sinktest.Row{Shard: shard, Month: month, Values: make([]event.Value, len(table.Columns))}
		targets := make([]any, 0, len(table.Columns)+1)
		for i := range table.Columns {
			targets = append(targets, &columnReader{table.Columns[i].Type.Kind, &row.Values[i]})
		}
		if err := rows.Scan(append(targets, &row.Ver)...); err != nil {
			t.Fatal(err)
		}
		list = append(list, row)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

// columnReader reads one column into the field that its kind uses.
type columnReader struct {
	kind  event.Kind
	value *event.Value
}

func (c *columnReader) Scan(from any) (err error) {
	if from == nil {
		c.value.Null = true
		return nil
	}
	switch c.kind {
	case event.Bool, event.Int32, event.Int64:
		c.value.Int, err = scanAs[int64](from)
	case event.Uint64:
		c.value.Uint, err = scanAs[uint64](from)
	case event.Float64:
		c.value.Float, err = scanAs[float64](from)
	case event.Date, event.Datetime:
		var at time.Time
		at, err = scanAs[time.Time](from)
		c.value.Int = at.UnixMicro()
		if c.kind == event.Date {
			c.value.Int = at.Unix() / 86400 // midnights divide without rest
		}
	default:
		var b []byte
		b, err = scanAs[[]byte](from)
		c.value.Bytes = bytes.Clone(b)
	}
	return err
}

func scanAs[T any](from any) (T, error) {
	var n sql.Null[T]
	err := n.Scan(from)
	return n.V, err
}
