package integration

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/internal/line"
	"github.com/slotline/slotline/partitioner"
)

func tablesIn(t *testing.T, file string, status int) (found line.Tables) {
	t.Helper()
	r := harness.Command{Args: []string{"-c", file, "tables", "-o", "json"}, Name: "tables"}.Run(t, time.Minute)
	if r.Code != status {
		t.Fatalf("slotline tables: exit status %d, want %d\n%s%s", r.Code, status, r.Stdout, r.Stderr)
	}
	if err := json.Unmarshal([]byte(r.Stdout), &found); err != nil {
		t.Fatal(err)
	}
	return found
}

func (w *wholeLine) table(t *testing.T, store, table string) line.StoreTable {
	t.Helper()
	all := tablesIn(t, w.file, 0)
	i := slices.IndexFunc(all.Tables, func(s line.StoreTable) bool { return s.Store == store && s.Table == table })
	if i < 0 {
		t.Fatalf("no table %s of %s: %+v", table, store, all)
	}
	return all.Tables[i]
}

// tables shows each month of each store with its size and age, what is missing ahead, and which store did not answer.
func TestTablesOfEachStore(t *testing.T) {
	t.Parallel()
	w := newLine(t, sharedServers(t), "")
	w.append(t, rawEvent("UA", 1, 201302, flightBody("UA", 1, "2013-02-03T04:05:06.000000Z", `"LAX"`, "1")),
		rawEvent("UA", 2, 201303, flightBody("UA", 2, "2013-03-03T04:05:06.000000Z", `"LAX"`, "1")))
	run := w.start(t, "run")
	w.waitDrained(t, time.Minute)
	if r := run.Stop(t, 30*time.Second); r.Code != 0 {
		t.Errorf("slotline run ended with status %d", r.Code)
	}
	now := partitioner.MonthOf(time.Now())
	in := func(s line.StoreTable) (months []string) {
		for _, m := range s.Months {
			months = append(months, m.Month)
		}
		return months
	}
	// UA is in s1 alone; this month and the next are made ahead.
	if s1 := w.table(t, "mysql/s1", "flights"); !slices.Equal(in(s1), []string{"201302", "201303", now.String(), now.Add(1).String()}) ||
		len(s1.MissingAhead) != 0 || s1.Rows != 2 || s1.Bytes < 16<<10 || s1.Months[3].Age != -1 || s1.Months[0].Age < 120 {
		t.Errorf("s1: %+v", s1)
	}
	if s2 := w.table(t, "mysql/s2", "flights"); !slices.Equal(in(s2), []string{now.String(), now.Add(1).String()}) {
		t.Errorf("s2: %+v", s2)
	}
	if ch := w.table(t, "clickhouse", "flights"); !slices.Equal(in(ch), []string{"201302", "201303"}) || ch.Rows != 2 || ch.Bytes == 0 {
		t.Errorf("clickhouse: %+v", ch)
	}
	ahead := "flights_" + now.Add(1).String()
	if _, err := w.shards["s1"].Exec("DROP TABLE " + ahead); err != nil {
		t.Fatal(err)
	}
	if s1 := w.table(t, "mysql/s1", "flights"); !slices.Equal(s1.MissingAhead, []string{ahead}) {
		t.Errorf("s1: %+v", s1)
	}
	if out := w.run(t, 0, "tables", "--months"); !strings.Contains(out, "201302") || !strings.Contains(out, "airports") {
		t.Errorf("tables --months:\n%s", out)
	}
	text := w.text(t)
	at := strings.Index(text, "  s2: { dsn: ")
	end := at + strings.Index(text[at:], "\n")
	down := text[:at] + `  s2: { dsn: "mysql://u:p@127.0.0.1:1/nowhere", slots: 512-1023 }` + text[end:]
	if all := tablesIn(t, w.write(t, down), 1); len(all.NotAsked) != 1 || all.NotAsked[0].Stage != "mysql/s2" || len(all.Tables) != 4 {
		t.Errorf("without s2: %+v", all)
	}
}
