package integration

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/outbox"
)

// P1, P3: a replica that lacks the last commits, whose events are published, takes over while writers go on, and later
// the old primary returns in the same way. Each time nothing of the surviving history is skipped, its events win over
// those of the lost one that had the same ids, and what was lost is listed.
func TestP1_OutboxProofFailover(t *testing.T) {
	harness.Proof(t)
	args := []string{"--gtid-mode=ON", "--enforce-gtid-consistency=ON"}
	old, replica := harness.PrivateMySQL(t, append(args, "--server-id=1")...), harness.PrivateMySQL(t, append(args, "--server-id=2")...)
	copied := replica.Open(t, "")
	replicate(t, old, replica, copied)
	address := harness.NewProxy(t, old.Addr)
	shard := harness.MySQL(t)
	l := newOutboxLineWith(t, harness.Kafka(t), &harness.MySQLServer{Addr: address.Addr(), User: old.User, Password: old.Password}, shard, ", lanes: 2, lease_time: 2s", "")
	file := l.applied(shard)
	rnd := seeded(t)
	const accounts = 60
	l.makeAccounts(accounts)
	h := newHistory()
	load := proofLoad{l: l, h: h, writers: 8, accounts: accounts, rollbackShare: 0.1, think: 10 * time.Millisecond, padBytes: 100}
	sink := harness.Command{Args: []string{"-c", file, "sink", "mysql"}, Name: "sink-" + l.cfg.Line}.Start(t)
	r := l.start()

	running := newRunningLoad(load, rnd)
	h.waitCommitted(t, size(200, 20_000))
	l.waitPublished(h.count(committed), time.Minute)
	// What commits from here on is lost. The relay sees and publishes it.
	execSQL(t, copied, "STOP REPLICA")
	h.waitCommitted(t, h.count(committed)+size(100, 5000))
	address.Point(replica.Addr)
	t.Log("the replica is the primary")
	h.waitCommitted(t, h.count(committed)+size(100, 5000))
	running.end()
	l.touchAll(h, accounts)
	l.checkSurvivor(shard, 50)

	// The old primary comes back as it was: what the replica took since is lost.
	running = newRunningLoad(load, rnd)
	h.waitCommitted(t, h.count(committed)+size(50, 1000))
	address.Point(old.Addr)
	t.Log("the old primary is the primary")
	h.waitCommitted(t, h.count(committed)+size(100, 5000))
	running.end()
	l.touchAll(h, accounts)
	l.checkSurvivor(shard, 50)
	r.stop()
	if r := sink.Stop(t, 30*time.Second); r.Code != 0 {
		t.Errorf("the sink ended with status %d", r.Code)
	}
	t.Log(h)
}

// P1, P3: a dump, taken while writers were at work, is restored on the same server an hour later, as far as the tables'
// clocks tell. Nothing that is emitted from then on is skipped, it wins over what was published meanwhile under the same
// ids, and what was lost is listed.
func TestP1_OutboxProofRestoredDump(t *testing.T) {
	harness.Proof(t)
	m := harness.MySQL(t)
	l := newOutboxLine(t, harness.Kafka(t), m, ", lanes: 2, lease_time: 2s")
	file := l.applied(m)
	rnd := seeded(t)
	const accounts = 60
	l.makeAccounts(accounts)
	h := newHistory()
	load := proofLoad{l: l, h: h, writers: 8, accounts: accounts, rollbackShare: 0.1, think: 10 * time.Millisecond, padBytes: 100}
	sink := harness.Command{Args: []string{"-c", file, "sink", "mysql"}, Name: "sink-" + l.cfg.Line}.Start(t)
	r := l.start()
	running := newRunningLoad(load, rnd)
	h.waitCommitted(t, size(200, 20_000))
	taken := takeDump(t, m, l.cfg.Outbox.DSN.Database())
	h.waitCommitted(t, h.count(committed)+size(200, 20_000))
	running.end()
	l.waitAllPublished(2 * time.Minute)
	r.stop()

	taken.restore()
	execSQL(t, l.db, "UPDATE slotline_lane SET saved_at = saved_at - INTERVAL 1 HOUR, lease_until = lease_until - INTERVAL 1 HOUR")
	for lane := range l.cfg.Outbox.Lanes {
		execSQL(t, l.db, "UPDATE "+outbox.LaneTable(lane)+" SET created_at = created_at - INTERVAL 1 HOUR")
	}
	r = l.start()
	running = newRunningLoad(load, rnd)
	h.waitCommitted(t, h.count(committed)+size(100, 5000))
	running.end()
	l.touchAll(h, accounts)
	l.checkSurvivor(m, 150)
	r.stop()
	if r := sink.Stop(t, 30*time.Second); r.Code != 0 {
		t.Errorf("the sink ended with status %d", r.Code)
	}
	t.Log(h)
}

func execSQL(t testing.TB, db *sql.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// replicate makes one server the replica of another, with one password for both.
func replicate(t *testing.T, old, replica *harness.MySQLServer, copied *sql.DB) {
	t.Helper()
	// Accounts are set at each start, and are no part of what is replicated.
	execSQL(t, copied, "ALTER USER 'root'@'%' IDENTIFIED BY '"+old.Password+"'")
	replica.Password = old.Password
	execSQL(t, old.Open(t, ""), "RESET BINARY LOGS AND GTIDS")
	execSQL(t, copied, "RESET BINARY LOGS AND GTIDS")
	host, port, _ := strings.Cut(old.InsideAddr(t), ":")
	execSQL(t, copied, fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_HOST = '%s', SOURCE_PORT = %s, SOURCE_USER = '%s', SOURCE_PASSWORD = '%s',"+
		" SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1, SOURCE_CONNECT_RETRY = 1", host, port, old.User, old.Password))
	execSQL(t, copied, "START REPLICA")
}

// waitCommitted waits until the writers know of n committed events.
func (h *history) waitCommitted(t *testing.T, n int) {
	t.Helper()
	for deadline := harness.Deadline(2 * time.Minute); h.count(committed) < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%v; wanted %d committed", h, n)
		}
	}
}

// touchAll changes each account once more, in one transaction each.
func (l *outboxLine) touchAll(h *history, accounts int) {
	l.t.Helper()
	for id := range accounts {
		tx, err := l.db.BeginTx(l.t.Context(), nil)
		if err != nil {
			l.t.Fatal(err)
		}
		mark, err := l.change(l.t.Context(), tx, h, id, "")
		if err == nil {
			err = tx.Commit()
		}
		if err != nil {
			l.t.Fatal(err)
		}
		h.end([]string{mark}, committed)
	}
}

// checkSurvivor compares the topic, the list of lost events and the shard with the database that survived: each of its
// events is published, the lost ones are exactly those of the topic that it does not have, at least some, and once the
// sink has drained the shard's accounts are the database's.
func (l *outboxLine) checkSurvivor(shard *harness.MySQLServer, lostMin int) {
	l.t.Helper()
	l.waitAllPublished(2 * time.Minute)
	own, lost := l.committed(), map[event.ID]published{}
	for _, e := range l.topic() {
		if _, ok := own[e.ID]; !ok {
			lost[e.ID] = e
		}
	}
	rows, err := l.db.Query("SELECT event_id FROM slotline_dead WHERE reason = ?", outbox.ReasonLost)
	if err != nil {
		l.t.Fatal(err)
	}
	defer rows.Close()
	listed := map[event.ID]bool{}
	for rows.Next() {
		var raw []byte
		if err := rows.Scan(&raw); err != nil {
			l.t.Fatal(err)
		}
		id := event.ID(raw)
		listed[id] = true
		if _, ok := lost[id]; !ok {
			l.t.Errorf("event %s is listed as lost; the database has it: %q", id, own[id])
		}
	}
	if err := rows.Err(); err != nil {
		l.t.Fatal(err)
	}
	unlisted := 0
	for id, e := range lost {
		if !listed[id] {
			if unlisted++; unlisted <= 5 {
				l.t.Errorf("the topic holds event %s at partition %d offset %d (%+v), the database has lost it, and it is not listed", id, e.partition, e.offset, e.Outbox)
			}
		}
	}
	l.t.Logf("%d events in the database, %d in the topic lost, %d of them not listed", len(own), len(lost), unlisted)
	if len(lost) < lostMin {
		l.t.Errorf("only %d events were lost", len(lost))
	}

	db := shard.Open(l.t, l.cfg.Line+"_s1")
	want := accountValues(l.t, l.db, "SELECT id, value FROM account")
	for deadline := harness.Deadline(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		got := accountValues(l.t, db, "SELECT account_id, value FROM accounts")
		if maps.Equal(got, want) {
			return
		}
		if time.Now().After(deadline) {
			for _, id := range slices.Sorted(maps.Keys(want)) {
				if got[id] != want[id] {
					l.t.Errorf("account %d: the shard has value %d, the database %d", id, got[id], want[id])
				}
			}
			return
		}
	}
}

func accountValues(t testing.TB, db *sql.DB, statement string) map[int]int64 {
	t.Helper()
	rows, err := db.Query(statement)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	values := map[int]int64{}
	for rows.Next() {
		var id int
		var value int64
		if err := rows.Scan(&id, &value); err != nil {
			t.Fatal(err)
		}
		values[id] = value
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return values
}

// dump is what mysqldump --single-transaction would have written.
type dump struct {
	t      testing.TB
	db     *sql.DB
	tables []dumpedTable
}

type dumpedTable struct {
	name, create string
	rows         [][]any // bytes, or nil
}

func takeDump(t testing.TB, m *harness.MySQLServer, database string) *dump {
	t.Helper()
	c, err := mysqldriver.ParseDSN(m.DSN(database))
	if err != nil {
		t.Fatal(err)
	}
	c.ParseTime, c.InterpolateParams = false, true
	d := &dump{t: t}
	if d.db, err = sql.Open("mysql", c.FormatDSN()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.db.Close() })
	conn, err := d.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, statement := range []string{"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", "START TRANSACTION WITH CONSISTENT SNAPSHOT"} {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range readAll(t, conn, "SHOW TABLES") {
		name := string(row[0].([]byte))
		d.tables = append(d.tables, dumpedTable{name, string(readAll(t, conn, "SHOW CREATE TABLE `"+name+"`")[0][1].([]byte)),
			readAll(t, conn, "SELECT * FROM `"+name+"`")})
	}
	if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	return d
}

// readAll returns each value as bytes, or nil.
func readAll(t testing.TB, conn *sql.Conn, statement string) (all [][]any) {
	t.Helper()
	rows, err := conn.QueryContext(context.WithoutCancel(t.Context()), statement)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		values, into := make([]sql.RawBytes, len(names)), make([]any, len(names))
		for i := range into {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		row := make([]any, len(names))
		for i, v := range values {
			if v != nil {
				row[i] = slices.Clone([]byte(v))
			}
		}
		all = append(all, row)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// restore drops the tables, makes them as they were, and fills them.
func (d *dump) restore() {
	d.t.Helper()
	rows := 0
	for _, table := range d.tables {
		execSQL(d.t, d.db, "DROP TABLE `"+table.name+"`")
		execSQL(d.t, d.db, table.create)
		for part := range slices.Chunk(table.rows, 500) {
			var args []any
			for _, row := range part {
				args = append(args, row...)
			}
			one := "(" + strings.TrimSuffix(strings.Repeat("?,", len(part[0])), ",") + ")"
			execSQL(d.t, d.db, "INSERT INTO `"+table.name+"` VALUES "+strings.TrimSuffix(strings.Repeat(one+",", len(part)), ","), args...)
			rows += len(part)
		}
	}
	d.t.Logf("restored %d tables with %d rows", len(d.tables), rows)
}
