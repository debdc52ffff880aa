package integration

import (
	"bufio"
	"database/sql"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/sinks/mysql"
)

// liveRows are the rows of a tenant that are not deleted, by id: _ver, and with sums their checksum too.
func liveRows(t *testing.T, w *wholeLine, dbs []*sql.DB, tenant string, sums bool) map[string]string {
	t.Helper()
	rows := map[string]string{}
	for _, db := range dbs {
		for _, table := range w.monthTables(t, db, "flights") {
			list, err := mysql.RowSums(t.Context(), db, w.cfg.Table("flights"), table, tenant, nil, nil, 1_000_000)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range list {
				if i.Ver&1 == 1 {
					continue
				}
				if _, twice := rows[i.Key]; twice {
					t.Errorf("%s %s is there twice", tenant, i.Key)
				}
				if rows[i.Key] = fmt.Sprint(i.Ver); sums {
					rows[i.Key] = fmt.Sprint(table, i.Ver, i.Sum)
				}
			}
		}
	}
	return rows
}

// A tenant that is spread over four slots in two shards, as it was at a time, at offsets, and as it is: what replay tenant
// writes in each form is what the shards held then. An event that is a dead letter is named.
func TestReplayTenantIsWhatTheShardsHeld(t *testing.T) {
	harness.Proof(t)
	w := newLine(t, sharedServers(t), "")
	flights, _ := replayFlights(t, 200, 2)
	run := w.start(t, "run")
	w.emit(t, flights[0], 1)
	w.waitDrained(t, time.Minute)
	shards := []*sql.DB{w.shards["s1"], w.shards["s2"]}
	then := liveRows(t, w, shards, "DL", false)
	at := time.Now().UTC().Format(time.RFC3339Nano)
	var offsets []string
	for p, next := range w.appliedOffsets(t) {
		offsets = append(offsets, fmt.Sprintf("%d=%d", p, next))
	}
	w.emit(t, flights[1], 2)
	w.append(t, rawEvent("DL", 9_000_000, 0, flightBody("DL", 9_000_000, "2013-04-03T04:05:06.000000Z", `"LAXLAX"`, "1")))
	w.waitDrained(t, time.Minute)
	run.Stop(t, time.Minute)
	now := liveRows(t, w, shards, "DL", true)
	if len(then) < 20 || len(now) <= len(then) {
		t.Fatalf("DL had %d rows and has %d: nothing to tell apart", len(then), len(now))
	}

	dir := t.TempDir()
	for name, asOf := range map[string]string{"time": at, "offsets": strings.Join(offsets, ",")} {
		file := filepath.Join(dir, name+".jsonl")
		r := w.replayCommand(t, "tenant", "--tenant", "DL", "--as-of", asOf, "--to", file)
		if r.Code != 0 {
			t.Fatalf("as of %s: exit status %d\n%s%s", name, r.Code, r.Stdout, r.Stderr)
		}
		if got := writtenRows(t, file); !maps.Equal(got, then) {
			t.Errorf("as of %s %s there are %d rows, the shards held %d", name, asOf, len(got), len(then))
		}
	}

	restored, sqlRestored := w.otherDatabase(t, "restored"), w.otherDatabase(t, "sql")
	r := w.replayCommand(t, "tenant", "--tenant", "DL", "--to", restored.url)
	t.Logf("%s%s", r.Stderr, r.Stdout)
	if r.Code != 3 || !strings.Contains(r.Stderr, "flights 9000000  dead_letter: ") || !strings.Contains(r.Stdout, "1 that make no row") {
		t.Errorf("with a dead letter: exit status %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	if got := liveRows(t, w, []*sql.DB{restored.db}, "DL", true); !maps.Equal(got, now) {
		t.Errorf("the database has %d rows, the shards have %d, or they differ", len(got), len(now))
	}
	if r := w.replayCommand(t, "tenant", "--tenant", "DL", "--to", restored.url); r.Code != 2 || !strings.Contains(r.Stderr, "SL7533") || !strings.Contains(r.Stderr, "holds rows") {
		t.Errorf("into tables that hold rows: exit status %d\n%s", r.Code, r.Stderr)
	}
	file := filepath.Join(dir, "dl.sql")
	w.run(t, 3, "replay", "tenant", "--tenant", "DL", "--to", file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for statement := range strings.SplitSeq(strings.TrimSpace(string(text)), ";\n") {
		if _, err := sqlRestored.db.Exec(strings.TrimSuffix(statement, ";")); err != nil {
			t.Fatalf("%.200s: %v", statement, err)
		}
	}
	if got := liveRows(t, w, []*sql.DB{sqlRestored.db}, "DL", true); !maps.Equal(got, now) {
		t.Errorf("the statements make %d rows, the shards have %d, or they differ", len(got), len(now))
	}
	w.run(t, 3, "replay", "tenant", "--tenant", "DL", "--to", filepath.Join(dir, "dl.csv"), "--tables", "flights")
	f, err := os.Open(filepath.Join(dir, "dl.flights.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if lines, err := csv.NewReader(f).ReadAll(); err != nil || len(lines) != len(now)+1 || lines[0][0] != "carrier" {
		t.Errorf("the csv has %d lines, want a head and %d: %v", len(lines), len(now), err)
	}

	for _, c := range []struct {
		code string
		args []string
	}{
		{"SL7533", []string{"--tenant", "DL", "--to", file}},                       // it is there
		{"SL7533", []string{"--tenant", "DL", "--to", filepath.Join(dir, "dl.x")}}, // no known form
		{"SL7533", []string{"--tenant", "DL", "--to", w.ownURL(t)}},
		{"SL7532", []string{"--tenant", "ZZ", "--to", filepath.Join(dir, "zz.jsonl")}},
		{"SL7504", []string{"--tenant", "DL", "--tables", "airports", "--to", filepath.Join(dir, "zz.jsonl")}},
		{"SL7503", []string{"--tenant", "DL", "--as-of", fmt.Sprintf("%d=99999999", w.layout.Routes("DL")[0].Partition), "--to", filepath.Join(dir, "zz.jsonl")}},
		{"--as-of", []string{"--tenant", "DL", "--as-of", "yesterday", "--to", filepath.Join(dir, "zz.jsonl")}},
	} {
		if r := w.replayCommand(t, append([]string{"tenant"}, c.args...)...); r.Code == 0 || r.Code == 3 || !strings.Contains(r.Stderr, c.code) {
			t.Errorf("%v: exit status %d, want %s\n%s", c.args, r.Code, c.code, r.Stderr)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "zz*")); err != nil || len(left) > 0 {
		t.Errorf("a command that failed left %v: %v", left, err)
	}
}

// writtenRows are the rows of a .jsonl file, by id: _ver.
func writtenRows(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows := map[string]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var line struct {
			Table string `json:"table"`
			Ver   int64  `json:"_ver"`
			Row   struct {
				Carrier string `json:"carrier"`
				ID      uint64 `json:"flight_id"`
			} `json:"row"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil || line.Table != "flights" || line.Row.Carrier != "DL" {
			t.Fatalf("line %s: %v", lines.Text(), err)
		}
		rows[fmt.Sprint(line.Row.ID)] = fmt.Sprint(line.Ver)
	}
	return rows
}

// appliedOffsets is how far each partition is applied in the shards.
func (w *wholeLine) appliedOffsets(t *testing.T) map[int32]int64 {
	t.Helper()
	ends := map[int32]int64{}
	for _, db := range w.shards {
		rows, err := progress.List(t.Context(), db, "mysql")
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			ends[r.Number] = max(ends[r.Number], r.Next)
		}
	}
	return ends
}

type otherDatabase struct {
	url string
	db  *sql.DB
}

// otherDatabase is an empty database that is none of the line's.
func (w *wholeLine) otherDatabase(t *testing.T, name string) otherDatabase {
	t.Helper()
	my := harness.MySQL(t)
	database := my.NewDatabase(t, w.name+"_"+name)
	return otherDatabase{my.URL(database), my.Open(t, database)}
}

// ownURL names the first shard's database.
func (w *wholeLine) ownURL(t *testing.T) string {
	t.Helper()
	return harness.MySQL(t).URL(w.name + "_s1")
}
