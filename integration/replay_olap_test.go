package integration

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slotline/slotline/integration/harness"
)

const flightsByDay = `rollups:
  flights_by_day: { table: flights, by: [origin], bucket: day, measures: { flights: count, cancelled: sum(cancelled) } }
`

// olapEquals shows that the store has what the shards have, and that the rollup is that of the table.
func (w *storeLine) olapEquals(t *testing.T, what string) {
	t.Helper()
	w.waitDrained(t, time.Minute)
	if out := w.run(t, 0, "replay", "verify", "--against", w.store); !strings.Contains(out, " 0 differ") {
		t.Errorf("%s: %s", what, out)
	}
	read := func(from string) []string {
		var list []string
		for _, r := range w.read(t, "carrier, day, origin, flights, cancelled", from) {
			list = append(list, strings.Join(r, "|"))
		}
		slices.Sort(list)
		return list
	}
	day := map[string]string{"clickhouse": "toDate32(sched_dep)", "doris": "DATE(sched_dep)"}[w.store]
	until(t, what+": the rollup is that of the table", 30*time.Second, func() bool {
		return slices.Equal(read("flights_by_day_now"), read("(SELECT carrier, "+day+" AS day, origin, count(*) AS flights, sum(cancelled) AS cancelled FROM flights_now GROUP BY carrier, day, origin) AS a"))
	})
}

// A table of the store is rebuilt while events keep coming, by a process that is killed at it and by another; then a month
// of it. What was harmed is healed, no event is lost at the swap, the rollup follows, and nothing of a job is left.
func TestP11_OLAPRebuildWhileTheSinkRuns(t *testing.T) {
	harness.Proof(t)
	eachOLAP(t, func(t *testing.T, store string) {
		w := newLineOn(t, store, flightsByDay)
		flights, _ := replayFlights(t, 150, 3)
		if r := w.replayCommand(t, "olap", "--table", "flights", "--yes"); r.Code != 1 || !strings.Contains(r.Stderr, "SL7509") {
			t.Errorf("a log without events: exit status %d\n%s", r.Code, r.Stderr)
		}
		w.run(t, 0, "replay", "olap", "--table", "flights", "--abort")
		w.noOLAPJob(t)
		if r := w.replayCommand(t, "olap", "--table", "flights", "--abort"); r.Code != 2 || !strings.Contains(r.Stderr, "SL7506") {
			t.Errorf("abort of no job: exit status %d\n%s", r.Code, r.Stderr)
		}
		run := w.start(t, "run")
		w.emit(t, flights[0], 1)
		w.waitDrained(t, time.Minute)
		harm := func(month string) {
			t.Helper()
			w.remove(t, w.inMonth(month)+" AND flight_id % 3 = 0")
			w.change(t, "cancelled", "1", w.inMonth(month)+" AND flight_id % 3 = 1")
			columns := "carrier,flight_id,sched_dep,origin,dest,status,cancelled,distance,_ver,_deleted"
			values := "'UA', 7777777, '2013-" + month[4:] + "-09 01:02:03', 'XXX', 'LAX', 'harmed', 0, 1, 99999999999999998, 0"
			if store == "doris" {
				columns, values = columns+",_month", values+", '2013-"+month[4:]+"-01'"
			}
			w.insert(t, columns, values, "")
		}
		harm("201303")
		harm("201304")
		if r := w.replayCommand(t, "verify", "--against", store); r.Code != 3 {
			t.Errorf("nothing was harmed: exit status %d\n%s", r.Code, r.Stdout)
		}
		if r := w.replayCommand(t, "olap", "--table", "flights"); r.Code != 1 { // nobody says yes
			t.Errorf("without an answer: exit status %d\n%s", r.Code, r.Stderr)
		}
		if out := w.run(t, 0, "replay", "status"); !strings.Contains(out, store) || !strings.Contains(out, "olap --table flights") {
			t.Errorf("status:\n%s", out)
		}
		if r := w.replayCommand(t, "olap", "--table", "flights", "--month", "2013-03", "--yes"); r.Code != 2 || !strings.Contains(r.Stderr, "SL7505") {
			t.Errorf("another job for the table: exit status %d\n%s", r.Code, r.Stderr)
		}
		w.run(t, 0, "replay", "olap", "--table", "flights", "--abort")
		w.noOLAPJob(t)

		stop := w.watchOLAP(t)
		var emitting sync.WaitGroup
		emitting.Go(func() { w.emit(t, flights[1], 2) })
		p := w.start(t, "replay", "olap", "--table", "flights", "--rate", "3000", "--yield-above", "0", "--yes")
		p.WaitOutput(t, "fill     [", time.Minute)
		p.Kill(t)
		r := w.replayCommand(t, "olap", "--table", "flights", "--yes")
		if r.Code != 0 || !strings.Contains(r.Stderr, "swap ") || strings.Contains(r.Stderr, "shadow ") {
			t.Errorf("the job that was killed goes on: exit status %d\n%s", r.Code, r.Stderr)
		}
		t.Logf("%s", r.Stderr)
		emitting.Wait()
		stop()
		w.olapEquals(t, "after the rebuild")
		w.noOLAPJob(t)

		harm("201303")
		harm("201305")
		emitting.Go(func() { w.emit(t, flights[2], 3) })
		stop = w.watchOLAP(t)
		r = w.replayCommand(t, "olap", "--table", "flights", "--month", "2013-03", "--yes")
		stop()
		if r.Code != 0 {
			t.Errorf("a month: exit status %d\n%s", r.Code, r.Stderr)
		}
		t.Logf("%s", r.Stderr)
		emitting.Wait()
		w.waitDrained(t, time.Minute)
		r = w.replayCommand(t, "verify", "--against", store)
		if r.Code != 3 || strings.Contains(r.Stderr, "flights 201303 ") || !strings.Contains(r.Stderr, "flights 201305 ") {
			t.Errorf("one month was rebuilt, and another was harmed: exit status %d\n%s", r.Code, r.Stderr)
		}
		w.run(t, 0, "replay", "olap", "--table", "flights", "--month", "2013-05", "--yes")
		w.olapEquals(t, "after the months")
		w.noOLAPJob(t)
		w.remove(t, w.inMonth("201306")) // a month that is lost altogether
		w.run(t, 0, "replay", "olap", "--table", "flights", "--month", "2013-06", "--sink", store, "--yes")
		w.olapEquals(t, "after the month that was lost")
		w.noOLAPJob(t)
		run.Stop(t, time.Minute)
		other := map[string]string{"clickhouse": "doris", "doris": "clickhouse"}[store]
		if r := w.replayCommand(t, "olap", "--table", "flights", "--sink", other); r.Code != 2 || !strings.Contains(r.Stderr, "SL9023") {
			t.Errorf("a store that the file does not have: exit status %d\n%s", r.Code, r.Stderr)
		}
	})
}

// watchOLAP has a reader count the entities of flights, deleted ones too: there are never fewer than now, less the two that
// were made by hand.
func (w *storeLine) watchOLAP(t *testing.T) (stop func()) {
	t.Helper()
	query := map[string]string{"clickhouse": "SELECT toString(count()) FROM flights FINAL", "doris": "SELECT COUNT(*) FROM flights"}[w.store]
	entities := func() int {
		var n int
		if w.store == "doris" {
			if err := w.doris.QueryRow(query).Scan(&n); err != nil {
				t.Error(err)
			}
			return n
		}
		n, err := strconv.Atoi(clickhouseRows(t, w.reader, query, 1)[0][0])
		if err != nil {
			t.Error(err)
		}
		return n
	}
	if w.store == "clickhouse" {
		w.reader = w.wholeLine.ch.Dial(t, w.chDB) // of its own: a connection carries one query at a time
	}
	least, reads := entities()-2, 0
	ended := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			if n := entities(); n < least {
				t.Errorf("a reader saw %d entities, there were %d", n, least+2)
			}
			reads++
			select {
			case <-ended:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	return func() {
		close(ended)
		reading.Wait()
		t.Logf("a reader looked %d times", reads)
	}
}

// tablesOf are the tables whose names hold a text.
func (w *storeLine) tablesOf(t *testing.T, holds string) (list []string) {
	t.Helper()
	var rows [][]string
	if w.store == "clickhouse" {
		rows = clickhouseRows(t, w.ch, "SELECT name FROM system.tables WHERE database = currentDatabase()", 1)
	} else {
		names, err := w.doris.Query("SELECT TABLE_NAME, TABLE_TYPE FROM information_schema.tables WHERE TABLE_SCHEMA = '" + w.name + "'")
		if err != nil {
			t.Fatal(err)
		}
		defer names.Close()
		for names.Next() {
			var name, typ string
			if err := names.Scan(&name, &typ); err != nil {
				t.Fatal(err)
			}
			rows = append(rows, []string{name})
		}
	}
	for _, r := range rows {
		if strings.Contains(r[0], holds) {
			list = append(list, r[0])
		}
	}
	return list
}

// noOLAPJob shows that nothing of a job is left.
func (w *storeLine) noOLAPJob(t *testing.T) {
	t.Helper()
	if tables := w.tablesOf(t, "__rb_"); len(tables) > 0 {
		t.Errorf("tables of a job are left: %v", tables)
	}
	if w.store == "doris" {
		rows, err := w.doris.Query("SHOW TEMPORARY PARTITIONS FROM `flights`")
		if err != nil {
			t.Fatal(err)
		}
		if rows.Next() {
			t.Error("a temporary partition is left")
		}
		rows.Close()
	}
	for _, table := range []string{"slotline_progress", "slotline_intent", "slotline_rollup_group"} {
		if n := count(t, w.outbox, "SELECT COUNT(*) FROM "+table+" WHERE sink LIKE '"+w.store+"\\_\\_rb%'"); n > 0 {
			t.Errorf("%d rows of a job are left in %s", n, table)
		}
	}
	if n := count(t, w.outbox, "SELECT COUNT(*) FROM slotline_olap_job"); n > 0 {
		t.Error("a job is left")
	}
}

// The table beside may have taken the live one's place, and the process that had it done be gone: whoever carries the job on
// finds out, and what the sink had sent to the old table is in the new one.
func TestP11_OLAPKilledAtTheSwap(t *testing.T) {
	harness.Proof(t)
	eachOLAP(t, func(t *testing.T, store string) {
		for _, exchanged := range []bool{false, true} {
			t.Run(strconv.FormatBool(exchanged), func(t *testing.T) {
				w := newLineOn(t, store, flightsByDay)
				flights, _ := replayFlights(t, 400, 2)
				run := w.start(t, "run")
				w.emit(t, flights[0], 1)
				w.waitDrained(t, time.Minute)
				if r := w.replayCommand(t, "olap", "--table", "flights"); r.Code != 1 { // filled, and nobody says yes
					t.Fatalf("exit status %d\n%s", r.Code, r.Stderr)
				}
				w.emit(t, flights[1], 2) // the live table has it, the one beside does not
				w.waitDrained(t, time.Minute)
				beside := w.tablesOf(t, "flights__rb_")[0]
				if _, err := w.outbox.Exec("UPDATE slotline_olap_job SET stage='swap'"); err != nil {
					t.Fatal(err)
				}
				exchange := "EXCHANGE TABLES flights AND " + beside
				if store == "doris" {
					exchange = "ALTER TABLE `flights` REPLACE WITH TABLE `" + beside + "` PROPERTIES ('swap' = 'true')"
				}
				if exchanged {
					w.exec(t, exchange)
				}
				if r := w.replayCommand(t, "olap", "--table", "flights", "--yes"); r.Code != 0 {
					t.Fatalf("exit status %d\n%s", r.Code, r.Stderr)
				}
				// One that wakes late, and would exchange again, finds no table of the name that it knew.
				if err := w.try(t, exchange); err == nil {
					t.Error("the table of the job's first owner is there")
				}
				if store == "clickhouse" {
					w.ch = w.wholeLine.ch.Dial(t, w.chDB)
				}
				w.olapEquals(t, "after the swap")
				w.noOLAPJob(t)
				run.Stop(t, time.Minute)
			})
		}
	})
}
