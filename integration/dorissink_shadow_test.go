package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/sinks/olap/doris/doristest"
)

// A month takes the place of another in one step, and no other month is touched; one that is lost altogether is made again.
// A process that had copied it from a table of an older name, and wakes late, changes nothing.
func TestP11_DorisMonthIsReplaced(t *testing.T) {
	l := newDorisLine(t, newDoris(t), olapTables)
	s, items := l.sink("rebuild"), l.cfg.Table("items")
	const first, second = "items__rb_rb19c2_1", "items__rb_rb19c2_2"
	exec := func(format string, args ...any) {
		t.Helper()
		if _, err := l.db.Exec(fmt.Sprintf(format, args...)); err != nil {
			t.Fatal(err)
		}
	}
	columns, labels := "`owner`,`item`,`_month`,`at`,`name`,`amount`,`n`,`_ver`,`_deleted`", 0
	insert := func(table string, id, month int, name string, version int) {
		t.Helper()
		labels++
		exec("INSERT INTO `%s` WITH LABEL `%s_%d` (%s)\nSELECT 'a', %d, '2026-%02d-01', '2026-%02d-07 08:09:10', '%s', NULL, NULL, %d, 0", table, l.line, labels, columns, id, month, month, name, version*2)
	}
	if err := s.MakeShadow(t.Context(), items, first); err != nil {
		t.Fatal(err)
	}
	insert("items", 1, 3, "harmed", 9)
	insert("items", 2, 3, "not in the log", 1)
	insert("items", 3, 4, "april", 1)
	insert(first, 1, 3, "one", 1)
	insert(first, 4, 3, "four", 1)
	insert(first, 5, 5, "may", 1)
	c, err := s.CompareTables(t.Context(), items, 202603, "items", first)
	if err != nil || c.Rows != 3 || c.Equal != 0 || c.Missing != 1 || c.Extra != 1 {
		t.Errorf("March compares %+v, %v", c, err)
	}
	if months, err := s.MonthsOf(t.Context(), items, "items", first); err != nil || len(months) != 3 {
		t.Errorf("the months %v, %v", months, err)
	}

	exec("ALTER TABLE `items` ADD TEMPORARY PARTITION `%s` VALUES [(\"2026-03-01\"), (\"2026-04-01\"))", first) // the late one
	exec("INSERT INTO `items` TEMPORARY PARTITION (`%[1]s`) WITH LABEL `%[2]s_late` (%[3]s)\nSELECT %[3]s\nFROM `%[1]s`\nWHERE `_month` IN ('2026-03-01')", first, l.line, columns)
	if err := s.RenameTable(t.Context(), first, second); err != nil {
		t.Fatal(err)
	}
	insert(second, 6, 3, "since then", 1)
	l.wantView("items", "item,name,_ver", "1|harmed|18", "2|not in the log|2", "3|april|2")
	if l.server.fake != nil { // a copy that goes elsewhere
		l.server.fake.LoseTemporary(true)
		if err := s.ReplaceMonth(t.Context(), items, 202603, second); err == nil || !strings.Contains(err.Error(), "SL4413") {
			t.Errorf("a month is replaced by a copy without rows: %v", err)
		}
		l.server.fake.LoseTemporary(false)
		l.wantView("items", "item,name,_ver", "1|harmed|18", "2|not in the log|2", "3|april|2")
		l.server.fake.ForgetLabels(l.line)
	}
	if err := s.ReplaceMonth(t.Context(), items, 202603, second); err != nil {
		t.Fatal(err)
	}
	want := []string{"1|one|2", "3|april|2", "4|four|2", "6|since then|2"}
	l.wantView("items", "item,name,_ver", want...)
	if _, err := l.db.Exec("ALTER TABLE `items` REPLACE PARTITION (`p20260301000000`) WITH TEMPORARY PARTITION (`" + first + "`)"); err == nil {
		t.Error("the late process puts its copy into place")
	}
	if err := s.ReplaceMonth(t.Context(), items, 202605, second); err == nil {
		t.Error("a label is used twice") // an owner of a job copies once
	}
	if err := s.RenameTable(t.Context(), second, first); err != nil {
		t.Fatal(err)
	}
	if err := s.ReplaceMonth(t.Context(), items, 202605, first); err != nil {
		t.Fatal(err)
	}
	l.wantView("items", "item,name,_ver", append(want, "5|may|2")...)
	if c, err = s.CompareTables(t.Context(), items, 202603, "items", first); err != nil || c.Rows != 3 || c.Equal != 3 {
		t.Errorf("March compares %+v, %v", c, err)
	}
}

// A load that began before the swap goes into the old table, or the partition that was replaced, after it: what it brought is
// in the new one all the same.
func TestP11_DorisLoadInFlightAtTheSwap(t *testing.T) {
	harness.Proof(t)
	for _, month := range []string{"", "2013-03"} {
		t.Run("month "+month, func(t *testing.T) {
			w := newLineOn(t, "doris", flightsByDay)
			if w.fake == nil {
				t.Skip("a running Doris does not hold a load on demand")
			}
			flights, _ := replayFlights(t, 400, 2)
			run := w.start(t, "run")
			w.emit(t, flights[0], 1)
			w.waitDrained(t, time.Minute)
			args := []string{"replay", "olap", "--table", "flights"}
			if month != "" {
				args = append(args, "--month", month)
			}
			if r := w.replayCommand(t, args[1:]...); r.Code != 1 { // filled, and nobody says yes
				t.Fatalf("exit status %d\n%s", r.Code, r.Stderr)
			}
			hold, before := make(chan struct{}), len(w.fake.Loads())
			w.fake.Inject(func(l doristest.Load) (f doristest.Fault) {
				if l.Table == "flights" {
					f.Hold = hold
				}
				return f
			})
			w.append(t, rawEvent("UA", 8_000_000, 0, flightBody("UA", 8_000_000, "2013-03-03T04:05:06.000000Z", `"LAX"`, "1")))
			until(t, "the row is on its way", time.Minute, func() bool { return len(w.fake.Loads()) > before })
			if _, err := w.outbox.Exec("UPDATE slotline_olap_job SET stage='swap'"); err != nil {
				t.Fatal(err)
			}
			p := w.start(t, append(args, "--yes")...)
			until(t, "the swap", time.Minute, func() bool {
				return count(t, w.outbox, "SELECT COUNT(*) FROM slotline_olap_job WHERE stage='swap'") == 0
			})
			until(t, "the job sends the row too", time.Minute, func() bool { return len(w.fake.Loads()) > before+1 || !p.Running() })
			select {
			case <-p.Done():
				t.Error("the job ends while what the sink had on its way at the swap is not in the new table")
			case <-time.After(4 * time.Second): // a job that did not wait for it would be over: it drains for two
			}
			close(hold)
			if r := p.Wait(t, time.Minute); r.Code != 0 || !strings.Contains(r.Stderr, "done ") {
				t.Errorf("exit status %d\n%s", r.Code, r.Stderr)
			}
			if rows := w.read(t, "flight_id", "flights_now WHERE flight_id=8000000"); len(rows) != 1 {
				t.Errorf("the row that was on its way at the swap: %v", rows)
			}
			w.olapEquals(t, "after the swap")
			w.noOLAPJob(t)
			run.Stop(t, time.Minute)
		})
	}
}
