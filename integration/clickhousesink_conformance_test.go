package integration

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/ch-go/proto"

	"github.com/slotline/slotline/consumers"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/olap/clickhouse"
	"github.com/slotline/slotline/sinks/sinktest"
)

func TestClickHouseSinkConforms(t *testing.T) {
	t.Parallel() // long
	server, state := harness.ClickHouse(t), harness.MySQL(t)
	sinktest.Run(t, func(t testing.TB) (sinktest.Store, sinktest.Setup) {
		name := harness.Name(t)
		server.NewDatabase(t, name)
		state.NewDatabase(t, name)
		setup := sinktest.NewSetup(t, sinktest.YAML(state.URL(name+"_s1"), state.URL(name+"_s2"), state.URL(name),
			fmt.Sprintf("sinks: { clickhouse: { dsn: %q, groups: 3 } }", server.URL(name))))
		store := &clickhouseStore{setup: setup, owner: name, conn: server.Dial(t, name)}
		applyPlan(t, store.open(t))
		return store, setup
	})
}

// clickhouseStore is the database of one case.
type clickhouseStore struct {
	setup sinktest.Setup
	// owner is the same for all sinks of a case: a lease that is kept by a living process lets in nobody else, and the
	// suite wants to replace owners at once. The owner epoch is what fences.
	owner string
	conn  *ch.Client
}

func (s *clickhouseStore) Open(t testing.TB) consumers.Sink { return s.open(t) }

func (s *clickhouseStore) open(t testing.TB) *clickhouse.Sink {
	t.Helper()
	return openClickHouseSink(t, clickhouse.Options{Config: s.setup.Config, Layout: s.setup.Layout, Owner: s.owner})
}

// openClickHouseSink makes a sink with a state pool of its own; both are closed when the test ends.
func openClickHouseSink(t testing.TB, o clickhouse.Options) *clickhouse.Sink {
	t.Helper()
	db, err := mysqldb.Open(o.Config.Sinks.State, mysqldb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	o.State = db
	sink, err := clickhouse.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sink.Close() })
	return sink
}

func applyPlan(t testing.TB, sink *clickhouse.Sink) {
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
}

func (s *clickhouseStore) Rows(t testing.TB, table *event.Table) []sinktest.Row {
	t.Helper()
	var fields []string
	for _, c := range table.Columns {
		fields = append(fields, asText(c))
	}
	month := "''"
	if table.Month != event.None {
		month = "CAST(_partition_id AS String)"
	}
	query := fmt.Sprintf("SELECT %s, toString(_ver), toString(_deleted), %s FROM `%s` FINAL", strings.Join(fields, ", "), month, table.Name)
	var list []sinktest.Row
	for _, f := range clickhouseRows(t, s.conn, query, len(fields)+3) {
		row := sinktest.Row{Values: make([]event.Value, len(table.Columns))}
		for i, c := range table.Columns {
			row.Values[i] = valueOf(t, c, f[i])
		}
		var err error
		if row.Ver, err = strconv.ParseInt(f[len(fields)], 10, 64); err != nil {
			t.Fatal(err)
		}
		if want := strconv.FormatInt(row.Ver&1, 10); f[len(fields)+1] != want {
			t.Errorf("table %s: _ver is %d and _deleted %s", table.Name, row.Ver, f[len(fields)+1])
		}
		if m := f[len(fields)+2]; m != "" {
			if row.Month, err = partitioner.ParseMonth(m); err != nil {
				t.Fatal(err)
			}
		}
		list = append(list, row)
	}
	return list
}

// asText is an expression that keeps all of a value: "N" or "V" and its text.
func asText(c event.Column) string {
	text := "`" + c.Name + "`"
	if c.Nullable {
		text = "assumeNotNull(" + text + ")"
	}
	switch c.Type.Kind {
	case event.Bool, event.Int32, event.Int64:
		text = "toString(toInt64(" + text + "))"
	case event.Uint64:
		text = "toString(" + text + ")"
	case event.Float64:
		text = "toString(reinterpretAsUInt64(" + text + "))"
	case event.Decimal:
		text = fmt.Sprintf("toDecimalString(%s, %d)", text, c.Type.Scale)
	case event.Date:
		text = "toString(toInt32(" + text + "))"
	case event.Datetime:
		text = "toString(toUnixTimestamp64Micro(" + text + "))"
	}
	return "if(isNull(`" + c.Name + "`), 'N', concat('V', " + text + "))"
}

func valueOf(t testing.TB, c event.Column, text string) (v event.Value) {
	t.Helper()
	if text == "N" {
		return event.Value{Null: true}
	}
	text = text[1:]
	var err error
	switch c.Type.Kind {
	case event.Bool, event.Int32, event.Int64, event.Date, event.Datetime:
		v.Int, err = strconv.ParseInt(text, 10, 64)
	case event.Uint64:
		v.Uint, err = strconv.ParseUint(text, 10, 64)
	case event.Float64:
		var bits uint64
		bits, err = strconv.ParseUint(text, 10, 64)
		v.Float = math.Float64frombits(bits)
	default:
		v.Bytes = []byte(text)
	}
	if err != nil {
		t.Fatalf("column %s holds %q: %v", c.Name, text, err)
	}
	return v
}

// clickhouseRows runs a query whose columns are strings.
func clickhouseRows(t testing.TB, conn *ch.Client, query string, columns int) [][]string {
	t.Helper()
	values := make([]proto.ColStr, columns)
	result := make(proto.Results, columns)
	for i := range values {
		result[i] = proto.ResultColumn{Data: &values[i]}
	}
	var rows [][]string
	err := conn.Do(t.Context(), ch.Query{Body: query, Result: result, OnResult: func(_ context.Context, b proto.Block) error {
		for n := range b.Rows {
			row := make([]string, columns)
			for i := range values {
				row[i] = values[i].Row(n)
			}
			rows = append(rows, row)
		}
		for i := range values {
			values[i].Reset()
		}
		return nil
	}})
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return rows
}
