package clickhouse

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/ch-go/proto"
)

func TestSecondProcessOnADirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	e := startEngine(t, Options{DataDir: dir})
	_, err := Start(t.Context(), Options{Library: testLibrary(t), DataDir: dir})
	if err == nil || !strings.Contains(err.Error(), "is in use by process") || !strings.Contains(err.Error(), dir) {
		t.Errorf("a second engine on %s: %v", dir, err)
	}
	c := connect(t, ch.Options{Address: e.Addr()})
	if err := c.Ping(t.Context()); err != nil {
		t.Errorf("the first engine: %v", err)
	}
}

func TestStartNamesWhatIsWrong(t *testing.T) {
	library := testLibrary(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho hello\nexec cat\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		options Options
		want    string
	}{
		"no directory":    {Options{Library: library}, "DataDir is empty"},
		"a file":          {Options{Library: library, DataDir: file}, "data directory"},
		"no library":      {Options{Library: "/nonexistent/libchdb.so", DataDir: t.TempDir()}, "/nonexistent/libchdb.so"},
		"another library": {Options{Library: file, DataDir: t.TempDir()}, "load the ClickHouse library"},
		"address":         {Options{Library: library, DataDir: t.TempDir(), Listen: "192.0.2.1:1"}, "192.0.2.1"},
		"no child":        {Options{Library: library, DataDir: t.TempDir(), Binary: script}, "RunIfChild"},
		"a false program": {Options{Library: library, DataDir: t.TempDir(), Binary: "/bin/false"}, "ended before it was ready"},
	} {
		e, err := Start(t.Context(), c.options)
		if err == nil {
			e.Kill()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in it", name, err, c.want)
		}
	}
}

// Stop lets a running statement end, and closes idle connections.
func TestStopDrains(t *testing.T) {
	e := startEngine(t, Options{DataDir: t.TempDir()})
	idle := connect(t, ch.Options{Address: e.Addr()})
	busy := connect(t, ch.Options{Address: e.Addr()})
	ended := make(chan error, 1)
	go func() {
		var n proto.ColUInt8
		ended <- busy.Do(context.Background(), ch.Query{Body: "SELECT sleep(1) AS n", Result: proto.Results{{Name: "n", Data: &n}}})
	}()
	eventually(t, "the statement runs", func() bool {
		return number(t, idle, "SELECT count() AS answer FROM system.processes WHERE query LIKE 'SELECT sleep%'") == 1
	})
	if err := e.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the running statement: %v", err)
	}
	if err := idle.Ping(t.Context()); err == nil {
		t.Error("an idle connection survived")
	}
}

// Stop kills a statement that would run for ever.
func TestStopKillsWhatDoesNotEnd(t *testing.T) {
	e := startEngine(t, Options{DataDir: t.TempDir()})
	witness := connect(t, ch.Options{Address: e.Addr()})
	busy := connect(t, ch.Options{Address: e.Addr()})
	ended := make(chan error, 1)
	go func() {
		ended <- busy.Do(context.Background(), ch.Query{Body: "CREATE TABLE t ENGINE = Memory AS SELECT 1 FROM numbers(1000000000000) WHERE sipHash64(number) = 1"})
	}()
	eventually(t, "the statement runs", func() bool {
		return number(t, witness, "SELECT count() AS answer FROM system.processes WHERE query LIKE 'CREATE%'") == 1
	})
	began := time.Now()
	if err := e.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > defaultDrainTimeout+5*time.Second {
		t.Errorf("Stop took %v", took)
	}
	if err := <-ended; err == nil {
		t.Error("the statement succeeded")
	}
}

// A statement that needs more memory than the cap fails; the process lives.
func TestMemoryCap(t *testing.T) {
	e := startEngine(t, Options{DataDir: t.TempDir(), MemoryBytes: 1 << 30})
	c := connect(t, ch.Options{Address: e.Addr()})
	err := c.Do(t.Context(), ch.Query{
		Body:     "CREATE TABLE t ENGINE = Memory AS SELECT groupArray(number) FROM numbers(1000000000)",
		Settings: []ch.Setting{{Key: "max_memory_usage", Value: "0"}},
	})
	if !ch.IsErr(err, proto.ErrMemoryLimitExceeded) {
		t.Errorf("over the cap: %v", err)
	}
	if c.IsClosed() {
		t.Error("the connection was closed")
	}
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// The child ends when its standard input does, which is how it sees that its parent is gone.
func TestChildEndsWithItsParent(t *testing.T) {
	e := startEngine(t, Options{DataDir: t.TempDir()})
	if err := e.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-e.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the engine did not end")
	}
	if e.err != nil {
		t.Errorf("it ended with %v", e.err)
	}
}
