package clickhouse

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/ch-go/proto"
)

func TestMain(m *testing.M) {
	RunIfChild()
	code := m.Run()
	if shared.engine != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		if err := shared.engine.Stop(ctx); err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
		cancel()
		_ = os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

// testLibrary returns the engine's library. Without one the test says so and, by SLOTLINE_INTEGRATION, passes over
// (off, auto) or fails (must).
func testLibrary(t testing.TB) string {
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

// startEngine starts one for this test alone.
func startEngine(t *testing.T, o Options) *Engine {
	t.Helper()
	o.Library, o.Log = testLibrary(t), os.Stderr
	e, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Kill)
	return e
}

// shared is one engine for all conformance tests; each test has its own database.
var shared struct {
	sync.Mutex
	engine *Engine
	dir    string
}

// serverEnv names a server to test instead of the engine, to see that the two agree: host:port of the native
// protocol, user default without a password.
const serverEnv = "SLOTLINE_TEST_CLICKHOUSE"

func sharedAddr(t *testing.T) string {
	t.Helper()
	if addr := os.Getenv(serverEnv); addr != "" {
		return addr
	}
	library := testLibrary(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.engine == nil {
		dir, err := os.MkdirTemp("", "slotline-clickhouse-")
		if err != nil {
			t.Fatal(err)
		}
		shared.dir = dir
		if shared.engine, err = Start(context.Background(), Options{Library: library, DataDir: dir, Log: os.Stderr}); err != nil {
			t.Fatal(err)
		}
	}
	return shared.engine.Addr()
}

// database makes an empty one and returns a way to connect to it.
func database(t *testing.T, name string) func(t *testing.T, o ch.Options) *ch.Client {
	t.Helper()
	addr := sharedAddr(t)
	c := connect(t, ch.Options{Address: addr})
	run(t, c, "DROP DATABASE IF EXISTS "+name)
	run(t, c, "CREATE DATABASE "+name)
	return func(t *testing.T, o ch.Options) *ch.Client {
		t.Helper()
		o.Address, o.Database = addr, name
		return connect(t, o)
	}
}

func connect(t *testing.T, o ch.Options) *ch.Client {
	t.Helper()
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
		t.Fatalf("%.300s: %v", q.Body, err)
	}
}

func run(t *testing.T, c *ch.Client, sql string) { t.Helper(); do(t, c, ch.Query{Body: sql}) }

// number returns the only value of a query whose one column is a UInt64 named answer.
func number(t *testing.T, c *ch.Client, sql string, settings ...ch.Setting) uint64 {
	t.Helper()
	var n proto.ColUInt64
	do(t, c, ch.Query{Body: sql, Settings: settings, Result: proto.Results{{Name: "answer", Data: &n}}})
	if len(n) != 1 {
		t.Fatalf("%.300s: %d rows", sql, len(n))
	}
	return n[0]
}

// text returns the only value of a query whose one column is a String named answer.
func text(t *testing.T, c *ch.Client, sql string, settings ...ch.Setting) string {
	t.Helper()
	var s proto.ColStr
	do(t, c, ch.Query{Body: sql, Settings: settings, Result: proto.Results{{Name: "answer", Data: &s}}})
	if s.Rows() != 1 {
		t.Fatalf("%.300s: %d rows", sql, s.Rows())
	}
	return s.Row(0)
}

var compressions = []struct {
	name string
	mode ch.Compression
}{{"none", ch.CompressionDisabled}, {"lz4", ch.CompressionLZ4}, {"zstd", ch.CompressionZSTD}}
