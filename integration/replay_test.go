package integration

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/examples/flights/nyc"
	"github.com/slotline/slotline/integration/harness"
)

// replayFlights are parts of the year, one of so many each, and what the CSV says of all of them.
func replayFlights(t *testing.T, of uint64, parts uint64) (list [][]nyc.Flight, want map[nyc.Bucket]nyc.Figures) {
	t.Helper()
	for part := range parts {
		flights, err := nyc.Flights(func(id uint64) bool { return id%of == part })
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, flights)
	}
	want, err := nyc.Reference(nyc.CSV(), func(id uint64) bool { return id%of < parts })
	if err != nil {
		t.Fatal(err)
	}
	return list, want
}

type flightKey struct {
	carrier string
	id      uint64
}

// rowsToHarm are the first four rows of a table.
func rowsToHarm(t *testing.T, db *sql.DB, table string) (rows []flightKey) {
	t.Helper()
	each(t, db, "SELECT carrier, flight_id FROM "+table+" WHERE NOT _deleted ORDER BY flight_id LIMIT 4", func(scan func(...any)) {
		var r flightKey
		scan(&r.carrier, &r.id)
		rows = append(rows, r)
	})
	if len(rows) < 4 {
		t.Fatal("too few rows to harm")
	}
	return rows
}

// damage harms four rows of a shard as no sink would, and says how verify must name each.
func damage(t *testing.T, db *sql.DB) (named []string) {
	t.Helper()
	rows := rowsToHarm(t, db, "flights_201303")
	exec := func(query string, args ...any) {
		t.Helper()
		if _, err := db.Exec(query, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec("DELETE FROM flights_201303 WHERE carrier=? AND flight_id=?", rows[0].carrier, rows[0].id)
	exec("UPDATE flights_201303 SET status='harmed' WHERE carrier=? AND flight_id=?", rows[1].carrier, rows[1].id)
	var all []string
	each(t, db, "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA=DATABASE() AND TABLE_NAME='flights_201303' "+
		"AND COLUMN_NAME<>'_deleted' ORDER BY ORDINAL_POSITION", func(scan func(...any)) {
		var name string
		scan(&name)
		all = append(all, name)
	})
	columns := strings.Join(all, ",")
	exec("INSERT INTO flights_201303 ("+columns+") SELECT "+strings.Replace(columns, "flight_id", "flight_id+5000000", 1)+
		" FROM flights_201303 WHERE carrier=? AND flight_id=?", rows[2].carrier, rows[2].id)
	exec("INSERT INTO flights_201305 ("+columns+") SELECT "+columns+" FROM flights_201303 WHERE carrier=? AND flight_id=?", rows[3].carrier, rows[3].id)
	exec("DELETE FROM flights_201303 WHERE carrier=? AND flight_id=?", rows[3].carrier, rows[3].id)
	at := func(month int, r flightKey, more uint64) string {
		return fmt.Sprintf("flights_2013%02d %s %d  ", month, r.carrier, r.id+more)
	}
	return []string{at(3, rows[0], 0) + "missing", at(3, rows[1], 0) + "live _ver", at(3, rows[2], 5_000_000) + "live _ver",
		at(3, rows[3], 0) + "missing", at(5, rows[3], 0) + "live _ver"}
}

// watch has readers look at the month tables of a shard, every 5 ms, and one with a snapshot for as long as it lasts: none
// ever sees fewer rows than were there at the beginning, since a row that is deleted stays.
func watch(t *testing.T, db *sql.DB, tables []string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	least := map[string]int{}
	for _, table := range tables {
		least[table] = count(t, db, "SELECT COUNT(*) FROM "+table)
	}
	var wg sync.WaitGroup
	reads := 0
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			table := tables[i%len(tables)]
			var n int
			if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+table).Scan(&n); err != nil {
				if ctx.Err() == nil {
					t.Errorf("a reader of %s: %v", table, err)
				}
				return
			}
			if reads++; n < least[table] {
				t.Errorf("a reader of %s saw %d rows, %d were there before", table, n, least[table])
			}
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	wg.Go(func() { // a snapshot is taken before the table is looked at, over and over
		for i := 0; ctx.Err() == nil; i++ {
			table := tables[i%len(tables)]
			tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
			if err != nil {
				return
			}
			var n int
			_ = tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM airports").Scan(&n)
			select {
			case <-ctx.Done():
			case <-time.After(300 * time.Millisecond):
			}
			if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+table).Scan(&n); err == nil && n < least[table] {
				t.Errorf("a snapshot saw %d rows of %s, %d were there before", n, table, least[table])
			}
			_ = tx.Rollback()
		}
	})
	return func() {
		cancel()
		wg.Wait()
		t.Logf("readers looked %d times", reads)
	}
}

// snapshot is a reader's transaction that sees all tables as they were when it began, and has looked at none of them yet.
type snapshot struct{ tx *sql.Tx }

func openSnapshot(t *testing.T, db *sql.DB) *snapshot {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	s := &snapshot{tx}
	s.count(t, "slotline_layout")
	return s
}

func (s *snapshot) count(t *testing.T, table string) (n int) {
	t.Helper()
	if err := s.tx.QueryRow("SELECT COUNT(*) FROM " + table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func (s *snapshot) end() { _ = s.tx.Rollback() }

var jobLine = regexp.MustCompile(`(?m)^job (rb[0-9a-f]{4})$`)

// replaying runs slotline replay in the background, and gives the job's name once it is known.
func (w *wholeLine) replaying(t *testing.T, args ...string) (p *harness.Process, job string) {
	t.Helper()
	p = w.start(t, append([]string{"replay"}, args...)...)
	p.WaitOutput(t, "shadow ", time.Minute)
	m := jobLine.FindStringSubmatch(p.Stderr())
	if m == nil {
		t.Fatalf("no job is named:\n%s", p.Stderr())
	}
	return p, m[1]
}

// A shard is rebuilt while events keep coming: what was harmed by hand is named, and healed by the swap; readers see
// nothing of it; accepted, nothing of the job is left.
func TestP11_RebuildWhileItServes(t *testing.T) {
	t.Parallel()
	w := newLine(t, sharedServers(t), "")
	flights, want := replayFlights(t, 100, 2)
	run := w.start(t, "run")
	w.emit(t, flights[0], 1)
	w.waitDrained(t, time.Minute)
	named := damage(t, w.shards["s1"])

	var emitting sync.WaitGroup
	emitting.Go(func() { w.emit(t, flights[1], 2) })
	stop := watch(t, w.shards["s1"], w.monthTables(t, w.shards["s1"], "flights"))
	p, job := w.replaying(t, "rebuild", "--shard", "s1", "--yes")
	old := openSnapshot(t, w.shards["s1"])
	p.WaitOutput(t, "swap     ", time.Minute) // not the plan, where it stands otherwise
	if n, least := old.count(t, "flights_201303"), 100; n < least {
		t.Errorf("a snapshot of when the tables were empty sees %d rows after the swap began, want %d or more", n, least)
	}
	old.end()
	p.WaitOutput(t, "observe ", time.Minute)
	emitting.Wait()
	stop()
	text := p.Stderr()
	for _, name := range named {
		if !strings.Contains(text, name) {
			t.Errorf("verify does not name %q", name)
		}
	}
	if !strings.Contains(text, "1 differ, 2 missing, 2 extra") {
		t.Error("verify counts other rows than those that were harmed")
	}
	t.Logf("%s", text)
	w.run(t, 0, "replay", "accept", job)
	if r := p.Wait(t, time.Minute); r.Code != 0 {
		t.Errorf("the job's process ended with %d:\n%s", r.Code, r.Stderr)
	}
	quiet(t, p.Stderr())
	w.waitDrained(t, time.Minute)
	run.Stop(t, time.Minute)

	compare(t, "shards after the rebuild", w.shardFigures(t), want)
	w.checkPlaces(t)
	w.nothingLeft(t, job)
	for name, db := range w.shards {
		for _, table := range w.monthTables(t, db, "flights") { // they were filled without
			if n := count(t, db, "SELECT COUNT(DISTINCT INDEX_NAME) FROM information_schema.STATISTICS WHERE TABLE_SCHEMA=DATABASE() AND TABLE_NAME=?", table); n != 2 {
				t.Errorf("shard %s: %s has %d indexes, wanted the primary key and one", name, table, n)
			}
		}
	}
}

var logOfTrouble = regexp.MustCompile(`(?m)^.*level=(WARN|ERROR).*$`)

// quiet shows that a command that did what it should has logged no trouble: its own feeds end before their progress rows go.
func quiet(t *testing.T, stderr string) {
	t.Helper()
	if line := logOfTrouble.FindString(stderr); line != "" {
		t.Errorf("a command that went well logs: %s", line)
	}
}

// nothingLeft shows that no table and no progress row of a job is there any more.
func (w *wholeLine) nothingLeft(t *testing.T, job string) {
	t.Helper()
	for name, db := range w.shards {
		if n := count(t, db, "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA=DATABASE() AND TABLE_NAME LIKE ?", "%"+job); n > 0 {
			t.Errorf("shard %s has %d tables of job %s", name, n, job)
		}
		if n := count(t, db, "SELECT COUNT(*) FROM slotline_progress WHERE sink LIKE ?", "%"+job); n > 0 {
			t.Errorf("shard %s has %d progress rows of job %s", name, n, job)
		}
	}
}

// Verify names exactly the rows that were harmed, while events keep coming; repair mends them, and the next verify finds
// none. Nothing to compare is a failure.
func TestReplayVerifyAndRepair(t *testing.T) {
	harness.Proof(t)
	w := newLine(t, sharedServers(t), "")
	if r := w.replayCommand(t, "verify", "--shard", "s1"); r.Code != 1 || !strings.Contains(r.Stderr, "SL7509") {
		t.Errorf("verify of nothing ends with %d:\n%s", r.Code, r.Stderr)
	}
	if r := w.replayCommand(t, "resume", jobLineOf(t, w.run(t, 0, "replay", "status")), "--allow-empty"); r.Code != 0 || !strings.Contains(r.Stdout, " 0 rows of the log, 0 equal") {
		t.Errorf("verify of nothing, allowed, ends with %d:\n%s%s", r.Code, r.Stderr, r.Stdout)
	}
	flights, want := replayFlights(t, 100, 2)
	run := w.start(t, "run")
	w.emit(t, flights[0], 1)
	w.waitShards(t)
	named := damage(t, w.shards["s1"])
	var emitting sync.WaitGroup
	emitting.Go(func() { w.emit(t, flights[1], 2) })
	r := w.replayCommand(t, "verify", "--shard", "s1")
	emitting.Wait()
	if r.Code != 3 {
		t.Errorf("verify of a harmed shard ends with %d", r.Code)
	}
	for _, name := range named {
		if !strings.Contains(r.Stderr, name) {
			t.Errorf("verify does not name %q", name)
		}
	}
	if !strings.Contains(r.Stdout, "1 differ, 2 missing, 2 extra") {
		t.Errorf("verify counts other rows than those that were harmed:\n%s%s", r.Stdout, r.Stderr)
	}
	t.Logf("%s%s", r.Stderr, r.Stdout)
	if out := w.run(t, 0, "replay", "verify", "--shard", "s1", "--repair", "--yes"); !strings.Contains(out, "0 differ, 0 missing, 0 extra") {
		t.Errorf("after the repair:\n%s", out)
	}
	if n := count(t, w.shards["s1"], "SELECT COUNT(*) FROM slotline_repair"); n != 5 {
		t.Errorf("%d rows were written down, 5 were mended", n)
	}
	// A row that is gone among thousands that are the same.
	if _, err := w.shards["s2"].Exec("DELETE FROM flights_201302 LIMIT 1"); err != nil {
		t.Fatal(err)
	}
	if r := w.replayCommand(t, "verify", "--shard", "s2", "--tables", "flights"); r.Code != 3 || !strings.Contains(r.Stdout, "0 differ, 1 missing, 0 extra") {
		t.Errorf("verify of a shard that lacks a row ends with %d:\n%s", r.Code, r.Stdout)
	}
	if out := w.run(t, 0, "replay", "verify", "--shard", "s2", "--tables", "flights", "--repair", "--yes", "-o", "json"); !strings.Contains(strings.Join(strings.Fields(out), " "), `"differ": 0, "missing": 0`) {
		t.Errorf("after the repair:\n%s", out)
	}
	w.waitShards(t)
	run.Stop(t, time.Minute)
	compare(t, "shards after the repair", w.shardFigures(t), want)
	w.checkPlaces(t)

	// A log whose beginning was removed makes no whole table.
	cl, err := kgo.NewClient(kgo.SeedBrokers(w.kafka.Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	cut := kadm.Offsets{}
	cut.AddOffset(w.cfg.Kafka.Topic, 0, 5, -1)
	if _, err := kadm.NewClient(cl).DeleteRecords(t.Context(), cut); err != nil {
		t.Fatal(err)
	}
	if r := w.replayCommand(t, "rebuild", "--shard", "s1", "--yes"); r.Code != 1 || !strings.Contains(r.Stderr, "SL7503") ||
		!strings.Contains(r.Stderr, "partition 0 begins at offset 5") {
		t.Errorf("rebuild from a log that was cut ends with %d:\n%s", r.Code, r.Stderr)
	}
}

// jobLineOf is the first job that status lists.
func jobLineOf(t *testing.T, status string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^(rb[0-9a-f]{4}) `).FindStringSubmatch(status)
	if m == nil {
		t.Fatalf("status lists no job:\n%s", status)
	}
	return m[1]
}
