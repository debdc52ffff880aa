package integration

import (
	"bytes"
	"database/sql"
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

// stagingPaths are both ways of a batch.
var stagingPaths = map[string]int{"text": -1, "staging": 1}

func (l *shardLine) until(what string, ok func() bool) {
	l.t.Helper()
	for end := harness.Deadline(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if ok() {
			return
		}
	}
	l.t.Fatalf("waited in vain until %s", what)
}

// number is what a query of one number answers.
func number(t testing.TB, db *sql.DB, query string, args ...any) (n int64) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// raised counts how often the server has answered with an error.
func raised(t testing.TB, db *sql.DB, code int) int64 {
	t.Helper()
	return number(t, db, "SELECT SUM_ERROR_RAISED FROM performance_schema.events_errors_summary_global_by_error WHERE ERROR_NUMBER=?", code)
}

// appliedResult is what an Apply returned.
type appliedResult struct {
	rejected []event.Rejected
	err      error
}

// applyBeside has a batch applied while the test goes on.
func applyBeside(t testing.TB, p event.Prepared) chan appliedResult {
	done := make(chan appliedResult, 1)
	go func() { // ends with Apply
		rejected, err := p.Apply(t.Context())
		done <- appliedResult{rejected, err}
	}()
	return done
}

// A lock that is waited for too long (1205) and a deadlock that the sink loses (1213) have the whole transaction sent
// again, by either path: the batch is applied once, and its consumer hears of nothing.
func TestP4_SinkProofConflicts(t *testing.T) {
	harness.Proof(t)
	server := harness.PrivateMySQL(t, "--innodb-lock-wait-timeout=1")
	admin := server.Open(t, "")
	for path, rows := range stagingPaths {
		for _, code := range []int{1205, 1213} {
			t.Run(fmt.Sprint(path, " ", code), func(t *testing.T) {
				l := newShardLine(t, server, shardLineTables, "")
				l.stagingRows = rows
				a := l.tenantIn(1, "s1")
				o := l.takeOver(l.sink("a"), 1)
				l.applyBatch(o, l.batch(0, l.message(1, "items", event.Upsert, 1, item(a, 1, "one")), l.message(1, "items", event.Upsert, 1, item(a, 2, "one"))))
				before := raised(t, admin, code)

				// Another transaction, which has done more and so is not the victim, holds a row of the batch.
				other, err := l.dbs["s1"].Conn(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer other.Close()
				exec := func(statement string) {
					t.Helper()
					if _, err := other.ExecContext(t.Context(), statement); err != nil {
						t.Fatal(err)
					}
				}
				exec("CREATE TABLE weight (id INT PRIMARY KEY AUTO_INCREMENT, n INT)")
				exec("START TRANSACTION")
				exec("INSERT INTO weight (n) VALUES (1)" + strings.Repeat(",(1)", 200))
				exec("UPDATE items_202611 SET name='held' WHERE item=2")

				p, err := o.Prepare(l.batch(2, l.message(1, "items", event.Upsert, 2, item(a, 1, "two")), l.message(1, "items", event.Upsert, 2, item(a, 2, "two"))))
				if err != nil {
					t.Fatal(err)
				}
				done := applyBeside(t, p)
				l.until("the batch waits for the row", func() bool {
					return number(t, admin, "SELECT COUNT(*) FROM performance_schema.data_lock_waits") > 0
				})
				if code == 1213 {
					exec("UPDATE slotline_progress SET halt_code=NULL WHERE part=1") // which the batch holds
				}
				l.until("the server has answered with the error", func() bool { return raised(t, admin, code) > before })
				exec("ROLLBACK")
				if r := <-done; r.err != nil || len(r.rejected) > 0 {
					t.Fatalf("rejected %v, error %v", r.rejected, r.err)
				}
				l.wantRows("s1", "items_202611", "item,name,_ver", "1|two|4", "2|two|4")
				if r := l.progress("s1", 1); r.Next != 4 || r.Applied != 4 || r.OwnerEpoch != 1 {
					t.Errorf("progress %+v", r)
				}
			})
		}
	}
}

// fillDiskOf moves a table, without its rows, to the server's small disk, and fills that with another until makeRoom.
func fillDiskOf(t *testing.T, db *sql.DB, table string) (makeRoom func()) {
	t.Helper()
	var name, ddl string
	if err := db.QueryRow("SHOW CREATE TABLE "+table).Scan(&name, &ddl); err != nil {
		t.Fatal(err)
	}
	execSQL(t, db, "DROP TABLE "+table)
	execSQL(t, db, ddl+" DATA DIRECTORY='"+harness.SmallDisk+"'")
	execSQL(t, db, "CREATE TABLE filler (id INT PRIMARY KEY AUTO_INCREMENT, b LONGBLOB) DATA DIRECTORY='"+harness.SmallDisk+"'")
	for range harness.SmallDiskBytes >> 16 {
		if _, err := db.ExecContext(t.Context(), "INSERT INTO filler (b) VALUES (REPEAT('x', 200000))"); err != nil {
			return func() { t.Helper(); execSQL(t, db, "DROP TABLE filler") }
		}
	}
	t.Fatal("the disk does not fill")
	return nil
}

// A disk that is full is an outage: nothing of the batch is kept, nothing is a dead letter, other tables go on, and the
// same batch goes through once there is room.
func TestP7_SinkProofDiskFull(t *testing.T) {
	harness.Proof(t)
	server := harness.PrivateMySQLWithSmallDisk(t)
	for path, rows := range stagingPaths {
		t.Run(path, func(t *testing.T) {
			l := newShardLine(t, server, shardLineTables, "")
			l.stagingRows = rows
			db := l.dbs["s1"]
			makeRoom := fillDiskOf(t, db, "notes")

			o := l.takeOver(l.sink("a"), 1)
			a := l.tenantIn(1, "s1")
			var messages []event.Message
			var want []string
			for i := range 40 {
				messages = append(messages, l.message(1, "notes", event.Upsert, 1, []event.Value{text(a), text(fmt.Sprint("n", i)), text(strings.Repeat("x", 60_000))}))
				want = append(want, fmt.Sprintf("n%d|60000", i))
			}
			messages = append(messages, l.message(1, "items", event.Upsert, 1, item(a, 1, "x")))
			p, err := o.Prepare(l.batch(0, messages...))
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				rejected, err := p.Apply(t.Context())
				if !fault.Is(err, fault.Transient) || len(rejected) > 0 || !strings.Contains(err.Error(), "free space") {
					t.Fatalf("rejected %v, error %v; wanted an outage", rejected, err)
				}
				l.wantRows("s1", "notes", "note")
				l.wantRows("s1", "items_202611", "item")
				if r := l.progress("s1", 1); r.Next != 0 {
					t.Errorf("progress %+v", r)
				}
			}
			// P13: what needs no room there goes on.
			zero := l.takeOver(l.sink("b"), 0)
			l.applyBatch(zero, l.batch(0, l.message(0, "items", event.Upsert, 1, item(l.tenantIn(0, "s1"), 1, "x"))))

			makeRoom()
			if rejected, err := p.Apply(t.Context()); err != nil || len(rejected) > 0 {
				t.Fatalf("rejected %v, error %v", rejected, err)
			}
			l.wantRows("s1", "notes", "note,LENGTH(body)", want...)
			if r := l.progress("s1", 1); r.Next != 41 {
				t.Errorf("progress %+v", r)
			}
			execSQL(t, db, "DROP TABLE notes") // the disk is for the next one
		})
	}
}

// A server that drops sessions after two seconds: the sink's own say how long they live, and one that is dropped all the
// same, by a person or a proxy, is replaced before anything is sent on it.
func TestP7_SinkProofShortWaitTimeout(t *testing.T) {
	harness.Proof(t)
	server := harness.PrivateMySQL(t, "--wait-timeout=2", "--interactive-timeout=2")
	l := newShardLine(t, server, shardLineTables, "")
	admin := server.Open(t, "")
	o := l.takeOver(l.sink("a"), 1)
	a := l.tenantIn(1, "s1")
	apply := func(offset int64) {
		t.Helper()
		p, err := o.Prepare(l.batch(offset, l.message(1, "items", event.Upsert, 1, item(a, offset, "x"))))
		if err != nil {
			t.Fatal(err)
		}
		if rejected, err := p.Apply(t.Context()); err != nil || len(rejected) > 0 { // at the first try
			t.Fatalf("batch %d: rejected %v, error %v", offset, rejected, err)
		}
	}
	apply(0)
	const idle = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB=? AND COMMAND='Sleep' AND TIME>=3"
	l.until("a session of the sink has been idle for longer than the server's wait_timeout", func() bool {
		return number(t, admin, idle, l.names["s1"]) > 0
	})
	apply(1)

	rows, err := admin.Query("SELECT ID FROM information_schema.PROCESSLIST WHERE DB=? AND COMMAND='Sleep'", l.names["s1"])
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	killed := 0
	for _, id := range ids {
		if _, err := admin.Exec(fmt.Sprint("KILL ", id)); err == nil { // those of the test may be gone by themselves
			killed++
		}
	}
	if killed == 0 {
		t.Error("no session was killed")
	}
	l.until("they are gone", func() bool {
		return number(t, admin, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB=? AND COMMAND='Sleep'", l.names["s1"]) == 0
	})
	apply(2)
	l.wantRows("s1", "items_202611", "item", "0", "1", "2")
}

// The shard's server is killed in each phase of a transaction. Once it is back it holds the fold below applied_off, and
// the same batch goes through, once.
func TestP4_SinkProofServerKilledInEachPhase(t *testing.T) {
	harness.Proof(t)
	server := harness.PrivateMySQL(t)
	var phase atomic.Pointer[sinkPhase]
	w := newWire(t, server.Addr, func(sent []byte) bool {
		if f := phase.Load(); f != nil {
			return f.see(t, server, sent)
		}
		return false
	})
	admin := server.Open(t, "")
	for _, f := range []*sinkPhase{
		{name: "before the transaction", path: "text", at: []string{"START TRANSACTION"}},
		{name: "progress and first rows are sent", path: "text", at: []string{"START TRANSACTION"}, while: true},
		{name: "progress and first rows are there, more are sent", path: "text", at: []string{"START TRANSACTION", "INSERT INTO"}},
		{name: "all rows are there", path: "text", at: []string{"COMMIT"}},
		{name: "COMMIT is sent", path: "text", at: []string{"COMMIT"}, while: true},
		{name: "COMMIT was carried out, and not heard of", path: "text", at: []string{"COMMIT", "SELECT `sink`"}, cut: true},
		{name: "rows are loaded", path: "staging", at: []string{"LOAD DATA"}, while: true},
		{name: "rows are loaded, the transaction begins", path: "staging", at: []string{"START TRANSACTION"}, while: true},
		{name: "COMMIT is sent", path: "staging", at: []string{"COMMIT"}, while: true},
	} {
		t.Run(f.path+" "+f.name, func(t *testing.T) {
			l := newShardLine(t, server, shardLineTables, w.addr())
			sink, err := mysql.New(mysql.Options{Config: l.cfg, Layout: l.layout, Owner: "a", StagingRows: 10 * stagingPaths[f.path],
				Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
			if err != nil {
				t.Fatal(err)
			}
			defer sink.Close()
			o := l.takeOver(sink, 1)
			a := l.tenantIn(1, "s1")
			l.applyBatch(o, l.batch(0, l.message(1, "items", event.Upsert, 1, item(a, 1, "one"))))
			var messages []event.Message
			for i := range int64(30) { // with bodies of 1.8 MB two packets by text
				messages = append(messages, l.message(1, "notes", event.Upsert, 1, []event.Value{text(a), text(fmt.Sprint("n", i)), text(strings.Repeat("x", 60_000))}),
					l.message(1, "items", event.Upsert, 2, item(a, i, "two")))
			}
			p, err := o.Prepare(l.batch(1, messages...))
			if err != nil {
				t.Fatal(err)
			}
			fold := func() string {
				row := l.progress("s1", 1)
				items, notes := number(t, admin, "SELECT COUNT(*) FROM "+l.names["s1"]+".items_202611"), number(t, admin, "SELECT COUNT(*) FROM "+l.names["s1"]+".notes")
				return fmt.Sprintf("next_off %d, applied_off %d: %d items, %d notes", row.Next, row.Applied, items, notes)
			}
			const before, after = "next_off 1, applied_off 1: 1 items, 0 notes", "next_off 61, applied_off 61: 30 items, 30 notes"

			phase.Store(f)
			_, err = p.Apply(t.Context())
			phase.Store(nil)
			if !f.killed.Load() {
				t.Fatalf("the phase did not come; Apply: %v", err)
			}
			if err != nil && !fault.Is(err, fault.Transient) {
				t.Fatal(err)
			}
			f.kills.Wait()
			server.Start(t)
			l.until("the server answers", func() bool { return admin.PingContext(t.Context()) == nil })
			if got := fold(); got != before && got != after || err == nil && got != after || f.cut && got != after {
				t.Errorf("after the kill (Apply: %v): %s", err, got)
			}
			l.until("the batch goes through", func() bool {
				rejected, err := p.Apply(t.Context())
				if err != nil && !fault.Is(err, fault.Transient) || len(rejected) > 0 {
					t.Fatalf("rejected %v, error %v", rejected, err)
				}
				return err == nil
			})
			if got := fold(); got != after {
				t.Error(got)
			}
			l.applyBatch(o, l.batch(61, l.message(1, "items", event.Upsert, 3, item(a, 1, "three"))))
			l.wantRows("s1", "items_202611", "item,_ver", append(secondVersions(30), "1|6")...)
		})
	}
}

// sinkPhase kills a server when a client sends the last of some texts, each in a packet of its own.
type sinkPhase struct {
	name, path string
	at         []string
	while      bool // the packet is passed on at the same time; else it is lost
	cut        bool // the answer to the first text is lost
	seen       atomic.Int32
	killed     atomic.Bool
	kills      sync.WaitGroup
}

// secondVersions are the rows of ids below n at version 2, without that of id 1.
func secondVersions(n int) (rows []string) {
	for i := range n {
		if i != 1 {
			rows = append(rows, fmt.Sprintf("%d|4", i))
		}
	}
	return rows
}

func (f *sinkPhase) see(t testing.TB, server *harness.MySQLServer, sent []byte) (lost bool) {
	n := f.seen.Load()
	if f.killed.Load() || int(n) == len(f.at) || !bytes.Contains(sent, []byte(f.at[n])) || !f.seen.CompareAndSwap(n, n+1) {
		return false
	}
	if int(n)+1 < len(f.at) {
		return f.cut
	}
	f.killed.Store(true)
	if f.while {
		f.kills.Go(func() { server.Kill(t) })
		return false
	}
	server.Kill(t)
	return false
}
