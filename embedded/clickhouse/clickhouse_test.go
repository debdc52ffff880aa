package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/ch-go/proto"
)

func TestMain(m *testing.M) {
	RunIfChild()
	os.Exit(m.Run())
}

var compressions = []struct {
	name string
	mode ch.Compression
}{{"none", ch.CompressionDisabled}, {"lz4", ch.CompressionLZ4}, {"zstd", ch.CompressionZSTD}}

// testLibrary returns the engine's library. Without one the test says so and, by SLOTLINE_INTEGRATION, passes over
// (off, auto) or fails (must).
func testLibrary(t *testing.T) string {
	t.Helper()
	mode := os.Getenv("SLOTLINE_INTEGRATION")
	switch mode {
	case "off":
		t.Skip("SKIPPED: SLOTLINE_INTEGRATION=off, the ClickHouse engine is not tested")
	case "", "auto", "must":
	default:
		t.Fatalf("SLOTLINE_INTEGRATION=%s: use off, auto or must", mode)
	}
	path, err := EnsureLibrary(t.Context(), "", nil)
	if err != nil {
		if mode == "must" {
			t.Fatalf("SLOTLINE_INTEGRATION=must, and the ClickHouse library cannot be had: %v", err)
		}
		t.Skipf("SKIPPED: the ClickHouse library cannot be had, the engine is not tested: %v", err)
	}
	return path
}

func startEngine(t *testing.T, dir string) *Engine {
	t.Helper()
	e, err := Start(t.Context(), Options{Library: testLibrary(t), DataDir: dir, Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Kill)
	return e
}

func dial(t *testing.T, e *Engine, o ch.Options) *ch.Client {
	t.Helper()
	o.Address = e.Addr()
	c, err := ch.Dial(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func do(t *testing.T, c *ch.Client, q ch.Query) {
	t.Helper()
	if err := c.Do(t.Context(), q); err != nil {
		t.Fatalf("%s: %v", q.Body, err)
	}
}

func run(t *testing.T, c *ch.Client, sql string) { t.Helper(); do(t, c, ch.Query{Body: sql}) }

func count(t *testing.T, c *ch.Client, sql string) uint64 {
	t.Helper()
	var n proto.ColUInt64
	do(t, c, ch.Query{Body: sql, Result: proto.Results{{Name: "answer", Data: &n}}})
	if len(n) != 1 {
		t.Fatalf("%s: %d rows", sql, len(n))
	}
	return n[0]
}

func TestFirst(t *testing.T) {
	e := startEngine(t, t.TempDir())
	for _, c := range compressions {
		t.Run(c.name, func(t *testing.T) {
			c := dial(t, e, ch.Options{Compression: c.mode})
			if err := c.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			run(t, c, "DROP TABLE IF EXISTS t")
			run(t, c, "CREATE TABLE t (a Int64, s String, l LowCardinality(String), n Nullable(Int32)) ENGINE=MergeTree ORDER BY a")
			var a proto.ColInt64
			var s proto.ColStr
			l := new(proto.ColStr).LowCardinality()
			n := new(proto.ColInt32).Nullable()
			for i := range 100000 {
				a.Append(int64(i))
				s.Append(fmt.Sprint("row ", i))
				l.Append(fmt.Sprint(i % 7))
				if i%3 == 0 {
					n.Append(proto.Null[int32]())
				} else {
					n.Append(proto.NewNullable(int32(i)))
				}
			}
			in := proto.Input{{Name: "a", Data: &a}, {Name: "s", Data: &s}, {Name: "l", Data: l}, {Name: "n", Data: n}}
			start := time.Now()
			do(t, c, ch.Query{Body: in.Into("t"), Input: in})
			t.Log("insert", time.Since(start))
			if got := count(t, c, "SELECT count() AS answer FROM t WHERE s = concat('row ', toString(a)) AND l = toString(a % 7) AND (a % 3 = 0) = isNull(n)"); got != 100000 {
				t.Fatal(got)
			}
			err := c.Do(t.Context(), ch.Query{Body: "SELECT nosuch"})
			if !ch.IsException(err) {
				t.Fatal(err)
			}
			t.Log(err)
			if got := count(t, c, "SELECT count() AS answer FROM t"); got != 100000 {
				t.Fatal(got)
			}
			var res proto.Results
			rows := 0
			do(t, c, ch.Query{Body: "SELECT * FROM t ORDER BY a", Result: res.Auto(), OnResult: func(ctx context.Context, b proto.Block) error { rows += b.Rows; return nil }})
			if rows != 100000 {
				t.Fatal(rows)
			}
		})
	}
	_ = errors.Is
	_ = io.EOF
	_ = strings.Contains
	if err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}
