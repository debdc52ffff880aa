package integration

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/sinks/mysql"
)

// pathCounts counts, on a wire, how often rows of a table went by the staging path and as text.
type pathCounts struct{ loads, texts atomic.Int64 }

func (c *pathCounts) see(sent []byte) bool {
	c.loads.Add(int64(bytes.Count(sent, []byte("LOAD DATA LOCAL"))))
	c.texts.Add(int64(bytes.Count(sent, []byte(") AS `_n` ON DUPLICATE")) - bytes.Count(sent, []byte("EXPLAIN INSERT"))))
	return false
}

// named is a batch of so many rows of one tenant, ids from 0 on.
func (l *shardLine) named(n int64, version int64, name func(id int64) string) (messages []event.Message, want []string) {
	a := l.tenantIn(1, "s1")
	for id := range n {
		messages = append(messages, l.message(1, "items", event.Upsert, version, item(a, id, name(id))))
		want = append(want, fmt.Sprintf("%d|%s|%d", id, name(id), version*2))
	}
	return messages, want
}

// P4: wherever on the staging path the connection is cut, the batch is applied once, at once: as text, or found
// committed. Until then the session's tables are nobody's business.
func TestP4_MySQLSinkConnectionCutWhileStaging(t *testing.T) {
	server := harness.MySQL(t)
	for _, at := range []string{"CREATE TEMPORARY", "LOAD DATA LOCAL", "row 7", "@@warning_count", "START TRANSACTION", "COMMIT;DROP"} {
		t.Run(at, func(t *testing.T) {
			var paths pathCounts
			var armed atomic.Bool
			w := newWire(t, server.Addr, func(sent []byte) bool {
				paths.see(sent)
				return bytes.Contains(sent, []byte(at)) && armed.CompareAndSwap(true, false)
			})
			l := newShardLine(t, server, shardLineTables, w.addr())
			l.stagingRows = 10
			o := l.takeOver(l.sink("a"), 1)
			messages, want := l.named(1000, 1, func(id int64) string { return fmt.Sprintf("row %d", id) })
			armed.Store(true)
			if rejected := l.applyBatch(o, l.batch(0, messages...)); len(rejected) > 0 || armed.Load() {
				t.Fatalf("rejected %v, the connection was cut: %t", rejected, !armed.Load())
			}
			l.wantRows("s1", "items_202611", "item,name,_ver", want...)
			if got := o.Positions()[0].Next; got != 1000 {
				t.Errorf("the sink stands at %d", got)
			}
			wantTexts := int64(1)
			if at == "COMMIT;DROP" {
				wantTexts = 0
			}
			if n := paths.texts.Load(); n != wantTexts {
				t.Errorf("sent as text %d times, wanted %d", n, wantTexts)
			}
		})
	}
}

// P4: a statement or connection that is killed while the server waits for the rows makes text of the batch, and the
// next ones; nothing is rejected.
func TestP4_MySQLSinkKilledWhileLoading(t *testing.T) {
	server := harness.MySQL(t)
	for _, kill := range []string{"KILL QUERY", "KILL"} {
		t.Run(kill, func(t *testing.T) {
			var paths pathCounts
			var armed atomic.Bool
			var who struct {
				sync.Mutex
				admin *sql.DB
				db    string
			}
			w := newWire(t, server.Addr, func(sent []byte) bool {
				paths.see(sent)
				if !bytes.Contains(sent, []byte("row 7")) || !armed.CompareAndSwap(true, false) {
					return false
				}
				who.Lock()
				defer who.Unlock()
				var id int64
				if err := who.admin.QueryRow("SELECT ID FROM information_schema.PROCESSLIST WHERE DB=? AND INFO LIKE 'LOAD DATA LOCAL%'", who.db).Scan(&id); err != nil {
					t.Errorf("the session that loads: %v", err)
				} else if _, err := who.admin.Exec(fmt.Sprintf("%s %d", kill, id)); err != nil {
					t.Error(err)
				}
				return false
			})
			l := newShardLine(t, server, shardLineTables, w.addr())
			who.Lock()
			who.admin, who.db = l.dbs["s1"], l.names["s1"]
			who.Unlock()
			l.stagingRows = 10
			o := l.takeOver(l.sink("a"), 1)
			for round := range int64(3) {
				messages, want := l.named(1000, round+1, func(id int64) string { return fmt.Sprintf("row %d", id) })
				armed.Store(round == 1)
				if rejected := l.applyBatch(o, l.batch(round*1000, messages...)); len(rejected) > 0 || armed.Load() {
					t.Fatalf("rejected %v", rejected)
				}
				l.wantRows("s1", "items_202611", "item,name,_ver", want...)
			}
			if paths.loads.Load() != 2 || paths.texts.Load() != 2 {
				t.Errorf("%d loads and %d texts; wanted a load, a killed one, its text, and one more", paths.loads.Load(), paths.texts.Load())
			}
		})
	}
}

// P4: sessions that the server has ended while they were idle (wait_timeout) cost no batch.
func TestP4_MySQLSinkIdleSessionsEndedBeforeStaging(t *testing.T) {
	server := harness.MySQL(t)
	l := newShardLine(t, server, shardLineTables, "")
	l.stagingRows = 10
	o := l.takeOver(l.sink("a"), 1)
	admin := server.Open(t, "")
	for round := range int64(3) {
		messages, want := l.named(100, round+1, func(int64) string { return "x" })
		p, err := o.Prepare(l.batch(round*100, messages...))
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			rejected, applied := p.Apply(t.Context())
			if err = applied; len(rejected) > 0 || err != nil && !fault.Is(err, fault.Transient) {
				t.Fatalf("rejected %v, error %v", rejected, err)
			}
			if err == nil {
				break
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		l.wantRows("s1", "items_202611", "item,name,_ver", want...)
		var ids []int64
		rows, err := admin.Query("SELECT ID FROM information_schema.PROCESSLIST WHERE DB=? AND COMMAND='Sleep'", l.names["s1"])
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var id int64
			if err := rows.Scan(&id); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		for _, id := range ids {
			if _, err := admin.Exec(fmt.Sprint("KILL ", id)); err != nil {
				t.Logf("connection %d: %v", id, err) // it ended by itself
			}
		}
		if len(ids) == 0 {
			t.Error("no session was ended")
		}
	}
}

// P12: LOAD DATA LOCAL makes a warning of what would be an error and stores something else. A value that is spoilt on its
// way stands for all that could do that: nothing of the load is used.
func TestP12_MySQLSinkWarningMakesTextOfABatch(t *testing.T) {
	server := harness.MySQL(t)
	var paths pathCounts
	var armed atomic.Bool
	w := newWire(t, server.Addr, func(sent []byte) bool {
		paths.see(sent)
		if at := bytes.Index(sent, []byte("\t1.00\t")); at >= 0 && armed.CompareAndSwap(true, false) {
			sent[at+1] = 'x'
		}
		return false
	})
	l := newShardLine(t, server, shardLineTables, w.addr())
	l.stagingRows = 10
	o := l.takeOver(l.sink("a"), 1)
	for round := range int64(2) {
		messages, _ := l.named(100, round+1, func(int64) string { return "x" })
		var want []string
		for id := range 100 {
			want = append(want, fmt.Sprintf("%d|1.00|%d", id, (round+1)*2))
		}
		armed.Store(round == 0)
		if rejected := l.applyBatch(o, l.batch(round*100, messages...)); len(rejected) > 0 || armed.Load() {
			t.Fatalf("rejected %v", rejected)
		}
		l.wantRows("s1", "items_202611", "item,amount,_ver", want...)
	}
	if paths.loads.Load() != 2 || paths.texts.Load() != 1 {
		t.Errorf("%d loads and %d texts; wanted one text, and the next batch loaded again", paths.loads.Load(), paths.texts.Load())
	}
}

// P7: rows that a table refuses in INSERT … SELECT are found by text, as ever; neighbours and lower versions are applied,
// and the next batch is loaded again.
func TestP7_MySQLSinkBisectsWhatStagingRefuses(t *testing.T) {
	server := harness.MySQL(t)
	var paths pathCounts
	w := newWire(t, server.Addr, paths.see)
	l := newShardLine(t, server, shardLineTables, w.addr())
	l.stagingRows = 10
	l.makeNovember("s1")
	if _, err := l.dbs["s1"].Exec("ALTER TABLE items_202611 ADD CONSTRAINT no_bad CHECK (name <> 'bad')"); err != nil {
		t.Fatal(err)
	}
	o := l.takeOver(l.sink("a"), 1)
	messages, want := l.named(500, 1, func(int64) string { return "good" })
	bad := l.message(1, "items", event.Upsert, 2, item(l.tenantIn(1, "s1"), 77, "bad"))
	rejected := l.applyBatch(o, l.batch(0, append(messages, bad)...))
	if len(rejected) != 1 || rejected[500].Reason != "check_constraint" {
		t.Errorf("rejected %v", rejected)
	}
	l.wantRows("s1", "items_202611", "item,name,_ver", want...)
	if paths.loads.Load() != 2 { // the batch, and without the bad row
		t.Errorf("%d loads", paths.loads.Load())
	}
}

// P6: with broadcast rows both shards load and commit, or neither does; small tables beside a large one go as text.
func TestP6_MySQLSinkBroadcastByStaging(t *testing.T) {
	server := harness.MySQL(t)
	var paths pathCounts
	w := newWire(t, server.Addr, paths.see)
	l := newShardLine(t, server, shardLineTables, w.addr())
	l.stagingRows = 10
	if _, err := l.dbs["s2"].Exec("ALTER TABLE places ADD CONSTRAINT no_bad CHECK (name <> 'bad')"); err != nil {
		t.Fatal(err)
	}
	o := l.takeOver(l.sink("a"), 0)
	var messages []event.Message
	var want []string
	for i := range 100 {
		messages = append(messages, l.message(0, "places", event.Upsert, 1, []event.Value{text(fmt.Sprintf("P%d", i)), text("it's")}))
		want = append(want, fmt.Sprintf("P%d|it's|2", i))
	}
	messages = append(messages, l.message(0, "places", event.Upsert, 1, []event.Value{text("BAD"), text("bad")}),
		l.message(0, "items", event.Upsert, 1, item(l.tenantIn(0, "s1"), 1, "x")))
	if rejected := l.applyBatch(o, l.batch(0, messages...)); len(rejected) != 1 || rejected[100].Reason != "check_constraint" {
		t.Errorf("rejected %v", rejected)
	}
	for _, shard := range []string{"s1", "s2"} {
		l.wantRows(shard, "places", "code,name,_ver", want...)
		if r := l.progress(shard, 0); r.Next != 102 {
			t.Errorf("%s stands at %d", shard, r.Next)
		}
	}
	l.wantRows("s1", "items_202611", "item", "1")
	if paths.loads.Load() == 0 {
		t.Error("nothing was loaded")
	}
}

// Where the server does not let rows be loaded, or not so many, or is out of order, batches go as text as if nothing
// were; plan, or the log, says what would let them.
func TestP7_MySQLSinkWithoutStaging(t *testing.T) {
	t.Parallel()
	server := harness.PrivateMySQL(t)
	admin := server.Open(t, "")
	set := func(t *testing.T, statements ...string) {
		t.Helper()
		for _, s := range statements {
			if _, err := admin.Exec(s); err != nil {
				t.Fatalf("%s: %v", s, err)
			}
		}
	}
	for _, c := range []struct {
		name, before, after string
		do                  string // in the log
	}{
		{"local_infile off", "SET GLOBAL local_infile=OFF", "SET GLOBAL local_infile=ON", "SET PERSIST local_infile=ON"},
		{"max_heap_table_size", "SET GLOBAL max_heap_table_size=16384", "SET GLOBAL max_heap_table_size=DEFAULT", "max_heap_table_size"},
		{"no privilege", "", "", "grant CREATE TEMPORARY TABLES"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var paths pathCounts
			w := newWire(t, server.Addr, paths.see)
			l := newShardLine(t, server, shardLineTables, w.addr())
			l.stagingRows = 10
			if c.before != "" {
				set(t, c.before)
				defer set(t, c.after)
			} else {
				user := "u" + l.names["s1"][:10]
				set(t, "CREATE USER "+user+"@'%' IDENTIFIED BY 'p'", "GRANT SELECT, INSERT, UPDATE, CREATE, ALTER, INDEX ON `"+l.names["s1"]+"`.* TO "+user+"@'%'",
					"GRANT SELECT, INSERT, UPDATE, CREATE, ALTER, INDEX ON `"+l.names["s2"]+"`.* TO "+user+"@'%'")
				for shard, url := range l.urls {
					l.urls[shard] = strings.Replace(url, "//root:"+server.Password+"@", "//"+user+":p@", 1)
				}
				l.cfg = mustParse(t, l, shardLineTables)
			}
			var log bytes.Buffer
			s, err := mysql.New(mysql.Options{Config: l.cfg, Layout: l.layout, Owner: "a", StagingRows: 10, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			changes := l.plan(s)
			noted := 0
			for _, change := range changes {
				if change.What == "local_infile is OFF" && strings.Contains(strings.ReplaceAll(change.Note, " = ", "="), c.do) {
					noted++
				}
			}
			if want := map[bool]int{true: 2}[c.name == "local_infile off"]; noted != want || len(changes) != want {
				t.Errorf("plan %+v", changes)
			}
			o := l.takeOver(s, 1)
			for round := range int64(2) {
				messages, want := l.named(2000, round+1, func(id int64) string { return fmt.Sprintf("row %d", id) })
				if rejected := l.applyBatch(o, l.batch(round*2000, messages...)); len(rejected) > 0 {
					t.Fatalf("rejected %v", rejected)
				}
				l.wantRows("s1", "items_202611", "item,name,_ver", want...)
			}
			if n := strings.Count(log.String(), "staging path was refused"); n != 1 || !strings.Contains(log.String(), c.do) {
				t.Errorf("said %d times: %s", n, log.String())
			}
			if paths.loads.Load() > 1 || paths.texts.Load() == 0 {
				t.Errorf("%d loads, %d texts", paths.loads.Load(), paths.texts.Load())
			}
		})
	}

	t.Run("read-only, killed, started", func(t *testing.T) {
		l := newShardLine(t, server, shardLineTables, "")
		l.stagingRows = 10
		o := l.takeOver(l.sink("a"), 1)
		messages, want := l.named(1000, 1, func(id int64) string { return fmt.Sprintf("row %d", id) })
		p, err := o.Prepare(l.batch(0, messages...))
		if err != nil {
			t.Fatal(err)
		}
		outage := func() {
			t.Helper()
			if rejected, err := p.Apply(t.Context()); !fault.Is(err, fault.Transient) || len(rejected) > 0 {
				t.Fatalf("rejected %v, error %v; wanted an outage", rejected, err)
			}
		}
		set(t, "SET GLOBAL super_read_only=ON")
		outage()
		server.Kill(t)
		outage()
		server.Start(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for {
			_, err := p.Apply(ctx)
			if err == nil {
				break
			}
			if !fault.Is(err, fault.Transient) || errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond) // between tries, as the consumer's backoff
		}
		l.wantRows("s1", "items_202611", "item,name,_ver", want...)
	})
}

// Nothing of a batch stays in the session: a table that was still there could not be made again.
func TestMySQLSinkStagingLeavesNothing(t *testing.T) {
	server := harness.MySQL(t)
	var paths pathCounts
	w := newWire(t, server.Addr, paths.see)
	l := newShardLine(t, server, shardLineTables, w.addr())
	l.stagingRows = 10
	o := l.takeOver(l.sink("a"), 1)
	for round := range int64(3) {
		messages, want := l.named(100, round+1, func(int64) string { return "x" })
		l.applyBatch(o, l.batch(round*100, messages...))
		l.wantRows("s1", "items_202611", "item,name,_ver", want...)
	}
	if paths.loads.Load() != 3 || paths.texts.Load() != 0 {
		t.Errorf("%d loads, %d texts", paths.loads.Load(), paths.texts.Load())
	}
}
