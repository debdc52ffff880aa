package integration

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ClickHouse/ch-go"

	"github.com/slotline/slotline/integration/harness"
)

const flightsByDay = `rollups:
  flights_by_day: { table: flights, by: [origin], bucket: day, measures: { flights: count, cancelled: sum(cancelled) } }
`

// olapEquals shows that ClickHouse has what the shards have, and that the rollup is that of the table.
func (w *wholeLine) olapEquals(t *testing.T, conn *ch.Client, what string) {
	t.Helper()
	w.waitDrained(t, time.Minute)
	if out := w.run(t, 0, "replay", "verify", "--against", "clickhouse"); !strings.Contains(out, " 0 differ") {
		t.Errorf("%s: %s", what, out)
	}
	columns := "toString(carrier), toString(day), toString(origin), toString(flights), toString(cancelled)"
	read := func(from string) []string {
		var list []string
		for _, r := range clickhouseRows(t, conn, "SELECT "+columns+" FROM "+from, 5) {
			list = append(list, strings.Join(r, "|"))
		}
		slices.Sort(list)
		return list
	}
	until(t, what+": the rollup is that of the table", 30*time.Second, func() bool {
		return slices.Equal(read("flights_by_day_now"), read("(SELECT carrier, toDate32(sched_dep) AS day, origin, count() AS flights, sum(cancelled) AS cancelled FROM flights_now GROUP BY carrier, day, origin)"))
	})
}

// A table of ClickHouse is rebuilt while events keep coming, by a process that is killed at it and by another; then a month
// of it. What was harmed is healed, no event is lost at the swap, the rollup follows, and nothing of a job is left.
func TestP11_OLAPRebuildWhileTheSinkRuns(t *testing.T) {
	harness.Proof(t)
	w := newLine(t, sharedServers(t), flightsByDay)
	flights, _ := replayFlights(t, 150, 3)
	conn := w.ch.Dial(t, w.chDB)
	if r := w.replayCommand(t, "olap", "--table", "flights", "--yes"); r.Code != 1 || !strings.Contains(r.Stderr, "SL7509") {
		t.Errorf("a log without events: exit status %d\n%s", r.Code, r.Stderr)
	}
	w.run(t, 0, "replay", "olap", "--table", "flights", "--abort")
	w.noOLAPJob(t, conn)
	if r := w.replayCommand(t, "olap", "--table", "flights", "--abort"); r.Code != 2 || !strings.Contains(r.Stderr, "SL7506") {
		t.Errorf("abort of no job: exit status %d\n%s", r.Code, r.Stderr)
	}
	run := w.start(t, "run")
	w.emit(t, flights[0], 1)
	w.waitDrained(t, time.Minute)
	harm := func(month string) {
		t.Helper()
		at := "toYYYYMM(sched_dep)=" + month
		execCH(t, conn, "ALTER TABLE flights DELETE WHERE "+at+" AND flight_id % 3 = 0 SETTINGS mutations_sync=1")
		execCH(t, conn, "ALTER TABLE flights UPDATE cancelled=true WHERE "+at+" AND flight_id % 3 = 1 SETTINGS mutations_sync=1")
		execCH(t, conn, "INSERT INTO flights (carrier,flight_id,sched_dep,origin,dest,status,cancelled,distance,_ver,_deleted) "+
			"VALUES ('UA', 7777777, '2013-"+month[4:]+"-09 01:02:03', 'XXX', 'LAX', 'harmed', false, 1, 99999999999999998, 0)")
	}
	harm("201303")
	harm("201304")
	if r := w.replayCommand(t, "verify", "--against", "clickhouse"); r.Code != 3 {
		t.Errorf("nothing was harmed: exit status %d\n%s", r.Code, r.Stdout)
	}
	if r := w.replayCommand(t, "olap", "--table", "flights"); r.Code != 1 { // nobody says yes
		t.Errorf("without an answer: exit status %d\n%s", r.Code, r.Stderr)
	}
	if out := w.run(t, 0, "replay", "status"); !strings.Contains(out, "clickhouse") || !strings.Contains(out, "olap --table flights") {
		t.Errorf("status:\n%s", out)
	}
	if r := w.replayCommand(t, "olap", "--table", "flights", "--month", "2013-03", "--yes"); r.Code != 2 || !strings.Contains(r.Stderr, "SL7505") {
		t.Errorf("another job for the table: exit status %d\n%s", r.Code, r.Stderr)
	}
	w.run(t, 0, "replay", "olap", "--table", "flights", "--abort")
	w.noOLAPJob(t, conn)

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
	w.olapEquals(t, conn, "after the rebuild")
	w.noOLAPJob(t, conn)

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
	r = w.replayCommand(t, "verify", "--against", "clickhouse")
	if r.Code != 3 || strings.Contains(r.Stderr, "flights 201303 ") || !strings.Contains(r.Stderr, "flights 201305 ") {
		t.Errorf("one month was rebuilt, and another was harmed: exit status %d\n%s", r.Code, r.Stderr)
	}
	w.run(t, 0, "replay", "olap", "--table", "flights", "--month", "2013-05", "--yes")
	w.olapEquals(t, conn, "after the months")
	w.noOLAPJob(t, conn)
	run.Stop(t, time.Minute)
	if r := w.replayCommand(t, "olap", "--table", "flights", "--sink", "doris"); r.Code != 2 || !strings.Contains(r.Stderr, "SL9023") {
		t.Errorf("Doris: exit status %d\n%s", r.Code, r.Stderr)
	}
}

// watchOLAP has a reader count the entities of flights, deleted ones too: there are never fewer than now, less the two that
// were made by hand.
func (w *wholeLine) watchOLAP(t *testing.T) (stop func()) {
	t.Helper()
	conn := w.ch.Dial(t, w.chDB)
	entities := func() int {
		n, err := strconv.Atoi(clickhouseRows(t, conn, "SELECT toString(count()) FROM flights FINAL", 1)[0][0])
		if err != nil {
			t.Error(err)
		}
		return n
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

// noOLAPJob shows that nothing of a job is left.
func (w *wholeLine) noOLAPJob(t *testing.T, conn *ch.Client) {
	t.Helper()
	if rows := clickhouseRows(t, conn, "SELECT name FROM system.tables WHERE database = currentDatabase() AND name LIKE '%\\_\\_rb\\_%'", 1); len(rows) > 0 {
		t.Errorf("tables of a job are left: %v", rows)
	}
	for _, table := range []string{"slotline_progress", "slotline_intent", "slotline_rollup_group"} {
		if n := count(t, w.outbox, "SELECT COUNT(*) FROM "+table+" WHERE sink LIKE 'clickhouse\\_\\_rb%'"); n > 0 {
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
	for _, exchanged := range []bool{false, true} {
		t.Run(strconv.FormatBool(exchanged), func(t *testing.T) {
			w := newLine(t, sharedServers(t), flightsByDay)
			flights, _ := replayFlights(t, 400, 2)
			conn := w.ch.Dial(t, w.chDB)
			run := w.start(t, "run")
			w.emit(t, flights[0], 1)
			w.waitDrained(t, time.Minute)
			if r := w.replayCommand(t, "olap", "--table", "flights"); r.Code != 1 { // filled, and nobody says yes
				t.Fatalf("exit status %d\n%s", r.Code, r.Stderr)
			}
			w.emit(t, flights[1], 2) // the live table has it, the one beside does not
			w.waitDrained(t, time.Minute)
			beside := clickhouseRows(t, conn, "SELECT name FROM system.tables WHERE database = currentDatabase() AND name LIKE 'flights\\_\\_rb\\_%'", 1)[0][0]
			if _, err := w.outbox.Exec("UPDATE slotline_olap_job SET stage='swap'"); err != nil {
				t.Fatal(err)
			}
			if exchanged {
				execCH(t, conn, fmt.Sprintf("EXCHANGE TABLES flights AND %s", beside))
			}
			if r := w.replayCommand(t, "olap", "--table", "flights", "--yes"); r.Code != 0 {
				t.Fatalf("exit status %d\n%s", r.Code, r.Stderr)
			}
			// One that wakes late, and would exchange again, finds no table of the name that it knew.
			if err := conn.Do(t.Context(), ch.Query{Body: fmt.Sprintf("EXCHANGE TABLES flights AND %s", beside)}); err == nil {
				t.Error("the table of the job's first owner is there")
			}
			conn = w.ch.Dial(t, w.chDB)
			w.olapEquals(t, conn, "after the swap")
			w.noOLAPJob(t, conn)
			run.Stop(t, time.Minute)
		})
	}
}
