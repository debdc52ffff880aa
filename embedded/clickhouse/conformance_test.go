package clickhouse

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/ch-go/proto"
)

// probe is one column of the round trip: row i holds the value whose SQL is expect[i mod their number].
type probe struct {
	name, sqlType string
	column        func() proto.Column
	fill          func(c proto.Column, rows int)
	expect        []string
}

// probes makes a plain and a Nullable probe; make returns an empty column, expect is SQL for values.
func probes[T any](name, sqlType string, make func() proto.ColumnOf[T], values []T, expect ...string) []probe {
	return []probe{
		{name, sqlType, func() proto.Column { return make() }, func(c proto.Column, rows int) {
			for i := range rows {
				c.(proto.ColumnOf[T]).Append(values[i%len(values)])
			}
		}, expect},
		{"n_" + name, "Nullable(" + sqlType + ")", func() proto.Column { return proto.NewColNullable(make()) },
			func(c proto.Column, rows int) {
				for i := range rows {
					if n := i % (len(values) + 1); n < len(values) {
						c.(*proto.ColNullable[T]).Append(proto.NewNullable(values[n]))
					} else {
						c.(*proto.ColNullable[T]).Append(proto.Null[T]())
					}
				}
			}, append(expect[:len(expect):len(expect)], "NULL")},
	}
}

func day(y, m, d int) time.Time { return time.Date(y, time.Month(m), d, 0, 0, 0, 0, time.UTC) }

// allProbes are the types that slotline uses, at their edges.
func allProbes() []probe {
	var all []probe
	add := func(p []probe) { all = append(all, p...) }
	add(probes("bool", "Bool", func() proto.ColumnOf[bool] { return new(proto.ColBool) }, []bool{true, false}, "true", "false"))
	add(probes("u8", "UInt8", func() proto.ColumnOf[uint8] { return new(proto.ColUInt8) }, []uint8{0, 255}, "0", "255"))
	add(probes("i32", "Int32", func() proto.ColumnOf[int32] { return new(proto.ColInt32) },
		[]int32{math.MinInt32, math.MaxInt32}, "-2147483648", "2147483647"))
	add(probes("i64", "Int64", func() proto.ColumnOf[int64] { return new(proto.ColInt64) },
		[]int64{math.MinInt64, math.MaxInt64}, "-9223372036854775808", "9223372036854775807"))
	add(probes("u64", "UInt64", func() proto.ColumnOf[uint64] { return new(proto.ColUInt64) },
		[]uint64{0, math.MaxUint64}, "0", "18446744073709551615"))
	add(probes("f64", "Float64", func() proto.ColumnOf[float64] { return new(proto.ColFloat64) },
		[]float64{-0.5, math.MaxFloat64, math.SmallestNonzeroFloat64}, "-0.5", "1.7976931348623157e308", "5e-324"))
	add(probes("d9", "Decimal(9, 2)", func() proto.ColumnOf[proto.Decimal32] { return new(proto.ColDecimal32) },
		[]proto.Decimal32{-999999999, 1}, "toDecimal32('-9999999.99', 2)", "toDecimal32('0.01', 2)"))
	add(probes("d18", "Decimal(18, 4)", func() proto.ColumnOf[proto.Decimal64] { return new(proto.ColDecimal64) },
		[]proto.Decimal64{999999999999999999, -1}, "toDecimal64('99999999999999.9999', 4)", "toDecimal64('-0.0001', 4)"))
	add(probes("d38", "Decimal(38, 10)", func() proto.ColumnOf[proto.Decimal128] { return new(proto.ColDecimal128) },
		[]proto.Decimal128{{Low: 0x098a223fffffffff, High: 0x4b3b4ca85a86c47a}, {Low: math.MaxUint64 - 6, High: math.MaxUint64}},
		"toDecimal128('9999999999999999999999999999.9999999999', 10)", "toDecimal128('-0.0000000007', 10)"))
	add(probes("str", "String", func() proto.ColumnOf[string] { return new(proto.ColStr) },
		[]string{"", "it's \\ a\x00b", strings.Repeat("長い", 4_000)}, "''", `'it\'s \\ a\0b'`, "repeat('長い', 4000)"))
	add(probes("d", "Date", func() proto.ColumnOf[time.Time] { return new(proto.ColDate) },
		[]time.Time{day(1970, 1, 1), day(2149, 6, 6)}, "toDate('1970-01-01')", "toDate('2149-06-06')"))
	add(probes("d32", "Date32", func() proto.ColumnOf[time.Time] { return new(proto.ColDate32) },
		[]time.Time{day(1900, 1, 1), day(2299, 12, 31)}, "toDate32('1900-01-01')", "toDate32('2299-12-31')"))
	add(probes("dt", "DateTime64(6, 'UTC')", func() proto.ColumnOf[time.Time] {
		return new(proto.ColDateTime64).WithPrecision(proto.PrecisionMicro).WithLocation(time.UTC)
	}, []time.Time{time.UnixMicro(-1), time.UnixMicro(1383271200123456)},
		"toDateTime64('1969-12-31 23:59:59.999999', 6, 'UTC')", "toDateTime64('2013-11-01 02:00:00.123456', 6, 'UTC')"))
	low := probes("low", "LowCardinality(String)", func() proto.ColumnOf[string] { return new(proto.ColStr).LowCardinality() },
		[]string{"", "AA", "UA"}, "''", "'AA'", "'UA'")
	return append(all, low[0])
}

// Every type arrives in the table as it was sent, and comes back as the same bytes.
func TestTypesRoundTrip(t *testing.T) {
	open := database(t, "dev_types")
	const rows = 1000
	for _, compression := range compressions {
		t.Run(compression.name, func(t *testing.T) {
			c := open(t, ch.Options{Compression: compression.mode})
			var (
				defs, checks, names []string
				input               proto.Input
				results             proto.Results
			)
			list := allProbes()
			for _, p := range list {
				sent := p.column()
				p.fill(sent, rows)
				// ch-go names the type of a decimal without its scale, which no server takes.
				var named proto.ColInput = sent
				if strings.Contains(p.sqlType, "Decimal") {
					named = proto.Alias(sent, proto.ColumnType(p.sqlType))
				}
				input = append(input, proto.InputColumn{Name: p.name, Data: named})
				results = append(results, proto.ResultColumn{Name: p.name, Data: p.column()})
				defs = append(defs, p.name+" "+p.sqlType)
				names = append(names, p.name)
				checks = append(checks, fmt.Sprintf("countIf(NOT %s <=> arrayElement([%s], toUInt32(row %% %d) + 1))",
					p.name, strings.Join(p.expect, ", "), len(p.expect)))
			}
			var numbers proto.ColInt32
			for i := range rows {
				numbers.Append(int32(i))
			}
			input = append(input, proto.InputColumn{Name: "row", Data: numbers})

			run(t, c, "DROP TABLE IF EXISTS types")
			run(t, c, "CREATE TABLE types (row Int32, "+strings.Join(defs, ", ")+") ENGINE = MergeTree ORDER BY row")
			do(t, c, ch.Query{Body: input.Into("types"), Input: input})
			if n := number(t, c, "SELECT count() AS answer FROM types"); n != rows {
				t.Fatalf("%d rows arrived, %d were sent", n, rows)
			}
			for i, p := range list {
				if wrong := number(t, c, "SELECT "+checks[i]+" AS answer FROM types"); wrong != 0 {
					t.Errorf("%s: %d rows differ from what was sent", p.sqlType, wrong)
				}
			}
			do(t, c, ch.Query{
				Body:   "SELECT " + strings.Join(names, ", ") + " FROM types ORDER BY row",
				Result: results,
			})
			for i, p := range list {
				var sent, got proto.Buffer
				encode(input[i].Data, &sent)
				encode(results[i].Data.(proto.ColInput), &got)
				if !bytes.Equal(sent.Buf, got.Buf) {
					t.Errorf("%s came back as other bytes", p.sqlType)
				}
			}
		})
	}
}

func encode(c proto.ColInput, b *proto.Buffer) {
	if p, ok := c.(proto.Preparable); ok {
		if err := p.Prepare(); err != nil {
			panic(err)
		}
	}
	c.EncodeColumn(b)
}

// A SELECT begins with a block that names the columns, also when there are no rows.
func TestEmptyResultHasColumns(t *testing.T) {
	c := database(t, "dev_empty")(t, ch.Options{})
	for _, sql := range []string{
		"SELECT toInt64(1) AS a, 'x' AS b WHERE 0", "SELECT toInt64(1) AS a, 'x' AS b WHERE 0 -- comment", "SELECT toInt64(1) AS a, 'x' AS b",
		"SELECT {v:Int64} AS a, 'x' AS b WHERE 0 FORMAT JSON;",
	} {
		var first []string
		var results proto.Results
		var blocks []int
		do(t, c, ch.Query{Body: sql, Parameters: ch.Parameters(map[string]any{"v": 1}), Result: results.Auto(), OnResult: func(_ context.Context, b proto.Block) error {
			if blocks = append(blocks, b.Rows); len(blocks) == 1 {
				for _, r := range results {
					first = append(first, r.Name+" "+r.Data.Type().String())
				}
			}
			return nil
		}})
		if len(blocks) == 0 || blocks[0] != 0 || strings.Join(first, ", ") != "a Int64, b String" {
			t.Errorf("%s: blocks of %v rows, the first with columns %v", sql, blocks, first)
		}
	}
}

func TestLargeResultStreams(t *testing.T) {
	open := database(t, "dev_large")
	for _, compression := range compressions {
		t.Run(compression.name, func(t *testing.T) {
			c := open(t, ch.Options{Compression: compression.mode})
			var n proto.ColUInt64
			var s proto.ColStr
			var rows, sum, blocks uint64
			do(t, c, ch.Query{
				Body:   "SELECT number AS n, concat('row ', toString(number)) AS s FROM numbers(1000000)",
				Result: proto.Results{{Name: "n", Data: &n}, {Name: "s", Data: &s}},
				OnResult: func(_ context.Context, b proto.Block) error {
					blocks++
					for i, v := range n {
						if s.Row(i) != fmt.Sprint("row ", v) {
							return fmt.Errorf("row %d has %q", v, s.Row(i))
						}
						rows, sum = rows+1, sum+v
					}
					return nil
				},
			})
			if rows != 1_000_000 || sum != 499_999_500_000 || blocks < 10 {
				t.Fatalf("%d rows with sum %d in %d blocks", rows, sum, blocks)
			}
		})
	}
}

func TestLargeInsertsStream(t *testing.T) {
	open := database(t, "dev_inserts")
	for _, compression := range compressions {
		t.Run(compression.name, func(t *testing.T) {
			c := open(t, ch.Options{Compression: compression.mode})
			run(t, c, "DROP TABLE IF EXISTS big")
			run(t, c, "CREATE TABLE big (a Int64, s String) ENGINE = MergeTree ORDER BY a")
			const blocks, rows = 10, 100_000
			var a proto.ColInt64
			var s proto.ColStr
			fill := func(block int) {
				a.Reset()
				s.Reset()
				for i := range rows {
					a.Append(int64(block*rows + i))
					s.Append(fmt.Sprint("row ", block*rows+i))
				}
			}
			fill(0)
			next := 1
			input := proto.Input{{Name: "a", Data: &a}, {Name: "s", Data: &s}}
			began := time.Now()
			do(t, c, ch.Query{Body: input.Into("big"), Input: input, OnInput: func(context.Context) error {
				if next == blocks {
					a.Reset()
					s.Reset()
					return io.EOF
				}
				fill(next)
				next++
				return nil
			}})
			t.Logf("%d rows in %v", blocks*rows, time.Since(began))
			if n := number(t, c, "SELECT count() AS answer FROM big WHERE s = concat('row ', toString(a))"); n != blocks*rows {
				t.Fatalf("%d rows arrived, %d were sent", n, blocks*rows)
			}
		})
	}
}

// The ways to name what an INSERT fills.
func TestInsertForms(t *testing.T) {
	c := database(t, "dev_forms")(t, ch.Options{Compression: ch.CompressionLZ4})
	run(t, c, "CREATE TABLE `odd name` (id Int64, `a b` String DEFAULT 'none', m Int64 MATERIALIZED id + 1) ENGINE = MergeTree ORDER BY id")
	id := proto.ColInt64{1, 2, 3}
	var ab proto.ColStr
	for range 3 {
		ab.Append("x")
	}
	two := proto.Input{{Name: "id", Data: id}, {Name: "a b", Data: ab}}
	one := two[:1]
	for _, form := range []struct {
		body  string
		input proto.Input
	}{
		{"INSERT INTO `odd name` VALUES", two},
		{"insert into dev_forms.`odd name` (`a b`, id) values", two},
		{`INSERT INTO "dev_forms"."odd name" (id) FORMAT Native`, one},
		{"INSERT INTO TABLE `odd name` (id) SETTINGS max_threads = 1 VALUES", one},
		{"/* first */ INSERT INTO `odd name` (id) -- and more\n", one},
		{"INSERT INTO {t:Identifier} (id) VALUES;", one},
	} {
		run(t, c, "TRUNCATE TABLE `odd name`")
		do(t, c, ch.Query{Body: form.body, Input: form.input, Parameters: ch.Parameters(map[string]any{"t": "odd name"})})
		answer := text(t, c, "SELECT concat(toString(sum(id)), ' ', toString(sum(m)), ' ', any(`a b`)) AS answer FROM `odd name`")
		want := "6 9 none"
		if len(form.input) == 2 {
			want = "6 9 x"
		}
		if answer != want {
			t.Errorf("%s: %q, want %q", form.body, answer, want)
		}
	}
	do(t, c, ch.Query{Body: "INSERT INTO FUNCTION null('id Int64') (id) VALUES", Input: one})
	run(t, c, "CREATE TABLE copy AS `odd name`")
	run(t, c, "INSERT INTO copy (id) SELECT id FROM `odd name`")
	run(t, c, "WITH 10 AS x INSERT INTO copy (id) SELECT x + id FROM `odd name`")
	if n := number(t, c, "SELECT count() AS answer FROM copy"); n != 6 {
		t.Errorf("INSERT ... SELECT left %d rows, want 6", n)
	}
}

// What the ClickHouse sink relies on.
func TestReplacingMergeTreeWithDedup(t *testing.T) {
	c := database(t, "dev_replacing")(t, ch.Options{Compression: ch.CompressionLZ4, Settings: []ch.Setting{{Key: "async_insert", Value: "0"}}})
	run(t, c, `CREATE TABLE orders (tenant LowCardinality(String), id Int64, month Int32, v String, _ver UInt64, _deleted UInt8)
		ENGINE = ReplacingMergeTree(_ver) PARTITION BY month ORDER BY (tenant, id) SETTINGS non_replicated_deduplication_window = 100`)
	run(t, c, "CREATE VIEW orders_now AS SELECT * EXCEPT (_deleted) FROM orders FINAL WHERE _deleted = 0")
	insert := func(token string, id int64, value string, version uint64) {
		t.Helper()
		tenant := new(proto.ColStr).LowCardinality()
		tenant.Append("t1")
		var v proto.ColStr
		v.Append(value)
		input := proto.Input{
			{Name: "tenant", Data: tenant}, {Name: "id", Data: proto.ColInt64{id}}, {Name: "month", Data: proto.ColInt32{202611}},
			{Name: "v", Data: v}, {Name: "_ver", Data: proto.ColUInt64{version}}, {Name: "_deleted", Data: proto.ColUInt8{uint8(version & 1)}},
		}
		do(t, c, ch.Query{Body: input.Into("orders"), Input: input, Settings: []ch.Setting{{Key: "insert_deduplication_token", Value: token}}})
	}
	stored := func() uint64 { return number(t, c, "SELECT count() AS answer FROM orders") }
	insert("a", 1, "one", 2)
	insert("a", 1, "one", 2) // the same again
	if n := stored(); n != 1 {
		t.Fatalf("a repeated token left %d rows", n)
	}
	insert("b", 1, "two", 4)
	insert("c", 1, "late", 2)
	if got := text(t, c, "SELECT v AS answer FROM orders_now"); got != "two" {
		t.Fatalf("the view shows %q, want the newest version", got)
	}
	insert("d", 1, "two", 5)
	if n := number(t, c, "SELECT count() AS answer FROM orders_now"); n != 0 {
		t.Fatalf("the view shows %d rows after the delete", n)
	}
	insert("e", 1, "again", 6)
	if got := text(t, c, "SELECT v AS answer FROM orders_now"); got != "again" {
		t.Fatalf("the view shows %q", got)
	}
	// Without a token, equal data is dropped by its hash, as long as the window is set.
	for range 2 {
		insert("", 2, "same", 2)
	}
	if n := number(t, c, "SELECT count() AS answer FROM orders WHERE id = 2"); n != 1 {
		t.Fatalf("equal data left %d rows", n)
	}
}

// A query's settings hold for it alone; those of the connection for each.
func TestSettings(t *testing.T) {
	c := database(t, "dev_settings")(t, ch.Options{Settings: []ch.Setting{{Key: "max_block_size", Value: "1000"}}})
	setting := func(name string, settings ...ch.Setting) string {
		t.Helper()
		return text(t, c, "SELECT value AS answer FROM system.settings WHERE name = '"+name+"'", settings...)
	}
	standard := setting("max_insert_threads")
	if got := setting("max_insert_threads", ch.Setting{Key: "max_insert_threads", Value: "7"}); got != "7" {
		t.Errorf("a query's setting is %s", got)
	}
	if got := setting("max_insert_threads"); got != standard {
		t.Errorf("the next query has %s, want the default %s", got, standard)
	}
	if got := setting("max_block_size"); got != "1000" {
		t.Errorf("the connection's setting is %s", got)
	}
	if got := setting("max_block_size", ch.Setting{Key: "max_block_size", Value: "7"}); got != "7" {
		t.Errorf("a query's setting over the connection's is %s", got)
	}
	if got := setting("max_block_size"); got != "1000" {
		t.Errorf("the connection's setting is %s afterwards", got)
	}
	run(t, c, "SET max_insert_threads = 3")
	if got := setting("max_insert_threads"); got != "3" {
		t.Errorf("SET left %s", got)
	}
	// Unknown: passed over, unless it is marked as important.
	if err := c.Do(t.Context(), ch.Query{Body: "DROP TABLE IF EXISTS nosuch", Settings: []ch.Setting{{Key: "no_such_setting", Value: "1"}}}); err != nil {
		t.Errorf("an unknown setting: %v", err)
	}
	err := c.Do(t.Context(), ch.Query{Body: "DROP TABLE IF EXISTS nosuch", Settings: []ch.Setting{{Key: "no_such_setting2", Value: "1", Important: true}}})
	if !ch.IsErr(err, proto.ErrUnknownSetting) {
		t.Errorf("an unknown important setting: %v", err)
	}
	err = c.Do(t.Context(), ch.Query{Body: "DROP TABLE IF EXISTS nosuch", Settings: []ch.Setting{{Key: "max_threads", Value: "many"}}})
	if !ch.IsException(err) {
		t.Errorf("a setting with a bad value: %v", err)
	}
	if got := setting("max_block_size"); got != "1000" {
		t.Errorf("after a bad setting the connection's is %s", got)
	}
}

func TestQueryParameters(t *testing.T) {
	c := database(t, "dev_parameters")(t, ch.Options{})
	for _, p := range []struct{ kind, value, want string }{
		{"String", "plain", "plain"},
		{"String", `it\'s`, "it's"},
		{"String", `tab\\tnew\\nline`, "tab\tnew\nline"},
		{"String", `back\\\\slash`, `back\slash`},
		{"String", "長い'", "長い'"},
		{"UInt64", "18446744073709551615", "18446744073709551615"},
		{"Date", "2013-11-01", "2013-11-01"},
		{"Array(String)", "[\\'a\\', \\'b\\']", "['a','b']"},
	} {
		var s proto.ColStr
		err := c.Do(t.Context(), ch.Query{
			Body: "SELECT toString({p:" + p.kind + "}) AS answer", Parameters: ch.Parameters(map[string]any{"p": p.value}),
			Result: proto.Results{{Name: "answer", Data: &s}},
		})
		if err != nil || s.Rows() != 1 || s.Row(0) != p.want {
			t.Errorf("%s %s: %v, %v, want %q", p.kind, p.value, s.Rows(), err, p.want)
		}
	}
	err := c.Do(t.Context(), ch.Query{Body: "SELECT {nosuch:String}"})
	if !ch.IsException(err) {
		t.Errorf("a missing parameter: %v", err)
	}
}

// Each error has the server's code, and the connection goes on.
func TestExceptionsKeepTheConnection(t *testing.T) {
	open := database(t, "dev_exceptions")
	for _, compression := range compressions {
		t.Run(compression.name, func(t *testing.T) {
			c := open(t, ch.Options{Compression: compression.mode})
			run(t, c, "CREATE OR REPLACE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a")
			rows := proto.ColInt64{1, 2, 3}
			var words proto.ColStr
			words.Append("not a number")
			var many proto.ColInt64
			for i := range 400_000 {
				many.Append(int64(i))
			}
			for _, bad := range []struct {
				query ch.Query
				code  proto.Error
			}{
				{ch.Query{Body: "SELECT nosuch"}, proto.ErrUnknownIdentifier},
				{ch.Query{Body: "SELEC 1"}, proto.ErrSyntaxError},
				{ch.Query{Body: "SELECT * FROM nosuch"}, proto.ErrUnknownTable},
				{ch.Query{Body: "SELECT 1; SELECT 2"}, proto.ErrSyntaxError},
				{ch.Query{Body: "DROP TABLE nosuch"}, proto.ErrUnknownTable},
				{ch.Query{Body: "SELECT throwIf(number = 200000) FROM numbers(300000)"}, proto.ErrFunctionThrowIfValueIsNonZero},
				{ch.Query{Body: "INSERT INTO nosuch (a) VALUES", Input: proto.Input{{Name: "a", Data: rows}}}, proto.ErrUnknownTable},
				{ch.Query{Body: "INSERT INTO t (nosuch) VALUES", Input: proto.Input{{Name: "nosuch", Data: rows}}}, proto.ErrNoSuchColumnInTable},
				{ch.Query{Body: "INSERT INTO t (a) VALUES", Input: proto.Input{{Name: "other", Data: rows}}}, proto.ErrIncorrectData},
				{ch.Query{Body: "INSERT INTO t (a) VALUES", Input: proto.Input{{Name: "other", Data: many}}}, proto.ErrIncorrectData},
			} {
				results := proto.Results{}
				if bad.query.Input == nil {
					bad.query.Result = results.Auto()
					bad.query.OnResult = func(context.Context, proto.Block) error { return nil }
				}
				err := c.Do(t.Context(), bad.query)
				if !ch.IsErr(err, bad.code) {
					t.Errorf("%s: %v, want code %d", bad.query.Body, err, bad.code)
				}
				if c.IsClosed() {
					t.Errorf("%s: the connection was closed", bad.query.Body)
					c = open(t, ch.Options{Compression: compression.mode})
				}
				if n := number(t, c, "SELECT count() AS answer FROM t"); n != 0 {
					t.Errorf("%s: %d rows are in the table", bad.query.Body, n)
				}
			}
		})
	}
}

func TestHello(t *testing.T) {
	addr := sharedAddr(t)
	c := connect(t, ch.Options{Address: addr})
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if got := c.ServerInfo(); got.Name != "ClickHouse" || got.Revision < 54460 || got.Major < 24 {
		t.Errorf("the server says %+v", got)
	}
	if _, err := ch.Dial(t.Context(), ch.Options{Address: addr, Database: "no`such"}); !ch.IsErr(err, proto.ErrUnknownDatabase) {
		t.Errorf("an unknown database: %v", err)
	}
	run(t, c, "CREATE DATABASE IF NOT EXISTS `dev hello`")
	d := connect(t, ch.Options{Address: addr, Database: "dev hello"})
	if got := text(t, d, "SELECT currentDatabase() AS answer"); got != "dev hello" {
		t.Errorf("the current database is %q", got)
	}
}

// Statements that are no SELECT but return rows.
func TestStatementsWithRows(t *testing.T) {
	c := database(t, "dev_statements")(t, ch.Options{Compression: ch.CompressionLZ4})
	run(t, c, "CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a")
	for _, sql := range []string{
		"SHOW TABLES", "SHOW CREATE TABLE t", "DESCRIBE TABLE t", "EXPLAIN SELECT * FROM t", "EXISTS TABLE t", "SHOW DATABASES",
		"SELECT 1 UNION ALL SELECT 2", "(SELECT 1)", "WITH 1 AS x SELECT x", "FROM t SELECT count()", "SELECT 1 FORMAT JSON",
		"SELECT a, count() FROM (SELECT 1 AS a) GROUP BY a WITH TOTALS", "SELECT 1;",
	} {
		rows := 0
		var results proto.Results
		do(t, c, ch.Query{Body: sql, Result: results.Auto(), OnResult: func(_ context.Context, b proto.Block) error { rows += b.Rows; return nil }})
		if rows == 0 {
			t.Errorf("%s: no rows", sql)
		}
	}
	for _, sql := range []string{"USE default", "SET max_threads = 1", "OPTIMIZE TABLE dev_statements.t FINAL", "ALTER TABLE dev_statements.t ADD COLUMN b String", "DROP TABLE dev_statements.t"} {
		run(t, c, sql)
	}
}

// A query text of megabytes is the engine's to judge; one that is beyond any use is refused before it is read.
func TestHugeQueries(t *testing.T) {
	addr := sharedAddr(t)
	c := connect(t, ch.Options{Address: addr})
	const size = 6_000_000
	long := "SELECT length('" + strings.Repeat("x", size) + "') AS answer"
	if err := c.Do(t.Context(), ch.Query{Body: long}); !ch.IsErr(err, proto.ErrSyntaxError) {
		t.Errorf("6 MB of query, over max_query_size: %v", err)
	}
	if n := number(t, c, long, ch.Setting{Key: "max_query_size", Value: "100000000"}); n != size {
		t.Errorf("6 MB of query: %d", n)
	}
	if os.Getenv(serverEnv) != "" {
		return // the server has another limit
	}
	err := c.Do(t.Context(), ch.Query{Body: "SELECT '" + strings.Repeat("x", 70<<20) + "'"})
	if err == nil {
		t.Error("70 MB of query were taken")
	}
	if err := connect(t, ch.Options{Address: addr}).Ping(t.Context()); err != nil {
		t.Error(err)
	}
}
