package clickhouse

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/ch-go/proto"
)

// A statement whose client cancels or goes away ends in the engine, too.
func TestCancelStopsTheStatement(t *testing.T) {
	open := database(t, "dev_cancel")
	witness := open(t, ch.Options{})
	run(t, witness, "CREATE TABLE slow (a UInt64) ENGINE = MergeTree ORDER BY a")
	running := func(mark string) uint64 {
		return number(t, witness, "SELECT count() AS answer FROM system.processes WHERE query LIKE '%"+mark+"%' AND query NOT LIKE '%processes%'")
	}
	for i, sql := range []string{
		"SELECT count() FROM numbers(1000000000000) WHERE sipHash64(number) = 1",
		"SELECT number FROM numbers(1000000000000)",
		"INSERT INTO slow SELECT sipHash64(number) FROM numbers(1000000000000)",
		"CREATE TABLE filled ENGINE = Memory AS SELECT sipHash64(number) = 1 AS a FROM numbers(1000000000000) WHERE a",
	} {
		mark := fmt.Sprintf("mark %d", i)
		c := open(t, ch.Options{ReadTimeout: 500 * time.Millisecond}) // how often ch-go looks at ctx
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			var results proto.Results
			ended <- c.Do(ctx, ch.Query{Body: sql + " /* " + mark + " */", Result: results.Auto(),
				OnResult: func(context.Context, proto.Block) error { return nil }})
		}()
		eventually(t, "it runs: "+sql, func() bool { return running(mark) == 1 })
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", sql, err)
		}
		began := time.Now()
		eventually(t, "it ends: "+sql, func() bool { return running(mark) == 0 })
		t.Logf("%s: ended after %v", sql, time.Since(began).Round(time.Millisecond))
	}
}

// A cancel by the protocol's own packet is answered, and the connection goes on.
func TestCancelPacketKeepsTheConnection(t *testing.T) {
	addr := sharedAddr(t)
	witness := connect(t, ch.Options{Address: addr})
	r := rawDial(t, addr)
	r.hello(t, "")
	r.send(t, queryBytes("SELECT count() FROM numbers(1000000000000) WHERE sipHash64(number) = 1 /* by packet */"))
	eventually(t, "it runs", func() bool {
		return number(t, witness, "SELECT count() AS answer FROM system.processes WHERE query LIKE '%by packet%' AND query NOT LIKE '%processes%'") == 1
	})
	r.send(t, []byte{byte(proto.ClientCodeCancel)})
	_, _, err := r.next()
	for err == nil {
		_, _, err = r.next()
	}
	var e *ch.Exception
	if !errors.Is(err, errEnded) && (!errors.As(err, &e) || e.Code != proto.ErrQueryWasCancelled) {
		t.Fatalf("the answer to a cancel: %v", err)
	}
	r.send(t, queryBytes("SELECT 1 AS v"))
	if _, _, err := r.next(); err != nil {
		t.Fatal(err)
	}
}

// An INSERT that is given up leaves the connection of others, and the table, as they were.
func TestCancelledInsertIsNotApplied(t *testing.T) {
	open := database(t, "dev_cancel_insert")
	witness := open(t, ch.Options{})
	run(t, witness, "CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a")
	c := open(t, ch.Options{Compression: ch.CompressionLZ4})
	ctx, cancel := context.WithCancel(t.Context())
	rows := make(proto.ColInt64, 1000)
	blocks := 0
	err := c.Do(ctx, ch.Query{Body: "INSERT INTO t (a) VALUES", Input: proto.Input{{Name: "a", Data: &rows}}, OnInput: func(context.Context) error {
		if blocks++; blocks == 5 {
			cancel()
		}
		return nil
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	eventually(t, "the insert ends", func() bool {
		return number(t, witness, "SELECT count() AS answer FROM system.processes WHERE query LIKE 'INSERT INTO t %'") == 0
	})
	if n := number(t, witness, "SELECT count() AS answer FROM t"); n != 0 {
		t.Errorf("%d rows of an INSERT without an end are in the table", n)
	}
}

// storm can be made long to look for rare faults: go test -run RandomCancels -storm 90s
var storm = flag.Duration("storm", 6*time.Second, "how long the test with many clients goes on")

func seed(t *testing.T) uint64 {
	t.Helper()
	n := uint64(time.Now().UnixNano())
	if given := os.Getenv("SLOTLINE_TEST_SEED"); given != "" {
		var err error
		if n, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("SLOTLINE_TEST_SEED=%d", n)
	return n
}

// Many clients that insert, select, cancel at random and hang up: each acknowledged row is there once, none hangs,
// and the engine serves on.
func TestManyClientsWithRandomCancels(t *testing.T) {
	const clients, rows = 24, 500
	duration := *storm
	if testing.Short() {
		duration = min(duration, time.Second)
	}
	open := database(t, "dev_storm")
	witness := open(t, ch.Options{})
	run(t, witness, "CREATE TABLE storm (client Int32, batch Int64, n Int64) ENGINE = MergeTree ORDER BY (client, batch, n)")
	start := seed(t)
	var (
		wait                          sync.WaitGroup
		acknowledged, cancelled, asks atomic.Int64
		mu                            sync.Mutex
		sure                          = map[[2]int64]bool{} // client and batch of acknowledged inserts
		maybe                         = map[[2]int64]bool{} // of those whose end is unknown
	)
	deadline := time.Now().Add(duration)
	addr := sharedAddr(t)
	for client := range clients {
		wait.Add(1)
		go func() {
			defer wait.Done()
			random := rand.New(rand.NewPCG(start, uint64(client)))
			var c *ch.Client
			defer func() {
				if c != nil {
					_ = c.Close()
				}
			}()
			for batch := int64(0); time.Now().Before(deadline); batch++ {
				if c == nil || c.IsClosed() {
					var err error
					mode := compressions[random.IntN(len(compressions))].mode
					if c, err = ch.Dial(context.Background(), ch.Options{Address: addr, Database: "dev_storm", Compression: mode}); err != nil {
						t.Errorf("client %d: connect: %v", client, err)
						return
					}
				}
				timeout := 30 * time.Second
				if random.IntN(3) == 0 {
					timeout = time.Duration(random.IntN(20_000)) * time.Microsecond
				}
				ctx, cancel := context.WithTimeout(context.Background(), timeout)
				var err error
				insert := random.IntN(2) == 0
				if insert {
					var ids proto.ColInt32
					var batches, numbers proto.ColInt64
					for i := range rows {
						ids, batches, numbers = append(ids, int32(client)), append(batches, batch), append(numbers, int64(i))
					}
					err = c.Do(ctx, ch.Query{Body: "INSERT INTO storm (client, batch, n) VALUES", Input: proto.Input{
						{Name: "client", Data: ids}, {Name: "batch", Data: batches}, {Name: "n", Data: numbers}}})
					mu.Lock()
					if err == nil {
						sure[[2]int64{int64(client), batch}] = true
						acknowledged.Add(1)
					} else {
						maybe[[2]int64{int64(client), batch}] = true
					}
					mu.Unlock()
				} else {
					var n proto.ColUInt64
					var s proto.ColStr
					err = c.Do(ctx, ch.Query{Body: "SELECT number AS n, toString(number) AS s FROM numbers(200000)",
						Result:   proto.Results{{Name: "n", Data: &n}, {Name: "s", Data: &s}},
						OnResult: func(context.Context, proto.Block) error { return nil }})
					if err == nil {
						asks.Add(1)
					}
				}
				ends, _ := ctx.Deadline() // ch-go puts it on its connection, where it can strike before ctx has seen it
				late := !time.Now().Before(ends)
				cancel()
				if err != nil {
					if !late {
						t.Errorf("client %d (insert %v): %v", client, insert, err)
						return
					}
					cancelled.Add(1)
					if random.IntN(2) == 0 {
						_ = c.Close()
					}
				}
			}
		}()
	}
	wait.Wait()
	t.Logf("%d inserts of %d rows acknowledged, %d selects, %d cancelled", acknowledged.Load(), rows, asks.Load(), cancelled.Load())
	if acknowledged.Load() == 0 || cancelled.Load() == 0 {
		t.Error("the storm proves nothing")
	}
	eventually(t, "all statements end", func() bool {
		return number(t, witness, "SELECT count() AS answer FROM system.processes") == 1
	})
	var client proto.ColInt32
	var batch proto.ColInt64
	var n, distinct proto.ColUInt64
	do(t, witness, ch.Query{
		Body: "SELECT client, batch, count() AS rows, uniqExact(n) AS d FROM storm GROUP BY client, batch",
		Result: proto.Results{{Name: "client", Data: &client}, {Name: "batch", Data: &batch}, {Name: "rows", Data: &n},
			{Name: "d", Data: &distinct}},
		OnResult: func(context.Context, proto.Block) error {
			for i := range client {
				key := [2]int64{int64(client[i]), batch[i]}
				if !sure[key] && !maybe[key] {
					t.Errorf("client %d batch %d was never sent", client[i], batch[i])
				}
				if n[i] != rows || distinct[i] != rows {
					t.Errorf("client %d batch %d has %d rows, %d of them distinct; %d were sent", client[i], batch[i], n[i], distinct[i], rows)
				}
				delete(sure, key)
			}
			return nil
		},
	})
	if len(sure) > 0 {
		t.Errorf("%d acknowledged inserts are not in the table", len(sure))
	}
}

// Rows that were acknowledged are there after SIGKILL and a restart on the same directory.
func TestAcknowledgedRowsSurviveSIGKILL(t *testing.T) {
	dir := t.TempDir()
	const clients, rows, rounds = 4, 2000, 3
	var sure atomic.Int64
	random := rand.New(rand.NewPCG(seed(t), 0))
	for round := range rounds {
		e := startEngine(t, Options{DataDir: dir})
		c := connect(t, ch.Options{Address: e.Addr()})
		run(t, c, "CREATE TABLE IF NOT EXISTS kept (id Int64, s String) ENGINE = MergeTree ORDER BY id")
		if n := number(t, c, "SELECT uniqExact(id) AS answer FROM kept WHERE s = concat('row ', toString(id))"); int64(n) < sure.Load() {
			t.Fatalf("round %d: %d rows, %d were acknowledged", round, n, sure.Load())
		}
		var wait sync.WaitGroup
		for client := range clients {
			wait.Add(1)
			go func() {
				defer wait.Done()
				c, err := ch.Dial(context.Background(), ch.Options{Address: e.Addr(), Compression: ch.CompressionLZ4})
				if err != nil {
					return // killed before
				}
				defer func() { _ = c.Close() }()
				for batch := 0; ; batch++ {
					var ids proto.ColInt64
					var s proto.ColStr
					for i := range rows {
						id := int64(((round*clients+client)*100_000+batch)*rows + i)
						ids.Append(id)
						s.Append(fmt.Sprint("row ", id))
					}
					if err := c.Do(context.Background(), ch.Query{Body: "INSERT INTO kept (id, s) VALUES",
						Input: proto.Input{{Name: "id", Data: ids}, {Name: "s", Data: s}}}); err != nil {
						return // killed
					}
					sure.Add(rows)
				}
			}()
		}
		begun := sure.Load()
		eventually(t, "some inserts are acknowledged", func() bool { return sure.Load() > begun+10*rows })
		timer := time.NewTimer(time.Duration(random.IntN(300)) * time.Millisecond)
		<-timer.C // a random moment, not a wait for anything
		e.Kill()
		wait.Wait()
	}
	e := startEngine(t, Options{DataDir: dir})
	c := connect(t, ch.Options{Address: e.Addr()})
	n := number(t, c, "SELECT uniqExact(id) AS answer FROM kept WHERE s = concat('row ', toString(id))")
	t.Logf("%d rows acknowledged before %d SIGKILLs, %d are there", sure.Load(), rounds, n)
	if int64(n) < sure.Load() {
		t.Fatal("acknowledged rows are missing")
	}
	if err := e.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
