package integration

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/reader"
)

// readFlight is a row as a reader gives it, with the place that it has in a page.
type readFlight struct {
	month  partitioner.Month
	id     uint64
	dep    time.Time
	origin string
	ver    int64
}

// flightsOf are a tenant's rows as both shards' tables have them, in order of month and id.
func (w *wholeLine) flightsOf(t *testing.T, tenant string) (list []readFlight) {
	t.Helper()
	for _, db := range w.shards {
		for _, table := range w.monthTables(t, db, "flights") {
			month, err := partitioner.ParseMonth(strings.TrimPrefix(table, "flights_"))
			if err != nil {
				t.Fatal(err)
			}
			rows, err := db.Query("SELECT flight_id, sched_dep, origin, _ver FROM "+table+" WHERE carrier=? AND _deleted=0", tenant)
			if err != nil {
				t.Fatal(err)
			}
			for rows.Next() {
				f := readFlight{month: month}
				if err := rows.Scan(&f.id, &f.dep, &f.origin, &f.ver); err != nil {
					t.Fatal(err)
				}
				list = append(list, f)
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	slices.SortFunc(list, func(a, b readFlight) int {
		if a.month != b.month {
			return int(a.month) - int(b.month)
		}
		return cmp.Compare(a.id, b.id)
	})
	return list
}

// pages reads a query to its end, in pages of its limit.
func pages(t *testing.T, r *reader.Reader, q reader.Query) (list []readFlight) {
	t.Helper()
	q.Columns = "flight_id, sched_dep, origin"
	for {
		n := 0
		for row, err := range r.Query(t.Context(), q) {
			if err != nil {
				t.Fatal(err)
			}
			f := readFlight{month: row.Place().Month, ver: row.Version()}
			if err := row.Scan(&f.id, &f.dep, &f.origin); err != nil {
				t.Fatal(err)
			}
			list = append(list, f)
			q.After = row.Cursor()
			n++
		}
		if q.Limit == 0 || n < q.Limit {
			return list
		}
	}
}

// A reader finds exactly the tenant's rows, by pages across months and shards; those of a span of time; one of an id. It waits for a
// version, reads on beside a table that was dropped, and takes up a new layout.
func TestReader(t *testing.T) {
	t.Parallel()
	w, run := drainedLine(t)
	r, err := reader.New(w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var all int
	for _, tenant := range []string{"UA", "DL", "EV", "B6", "AA", "MQ"} { // one dedicated, one spread over both shards, others by hash
		want := w.flightsOf(t, tenant)
		all += len(want)
		for i := range want {
			want[i].ver /= 2
		}
		if tenant == "DL" && !slices.ContainsFunc(places(t, r, "DL"), func(p reader.Place) bool { return p.Shard == "s2" }) {
			t.Error("DL has no place in s2")
		}
		for _, limit := range []int{0, 1, 7, len(want)} {
			if got := pages(t, r, reader.Query{Table: "flights", Tenant: tenant, Limit: limit}); !slices.Equal(got, want) {
				t.Errorf("%s by %d: %d rows, want %d\n%v\n%v", tenant, limit, len(got), len(want), got, want)
			}
			down := slices.Clone(want)
			slices.Reverse(down)
			if got := pages(t, r, reader.Query{Table: "flights", Tenant: tenant, Limit: limit, Descending: true}); !slices.Equal(got, down) {
				t.Errorf("%s by %d, descending: %d rows, want %d", tenant, limit, len(got), len(want))
			}
		}
		// Bounds that are the very time of a row: the first is within, the second is not.
		from, to := want[len(want)/4].dep, want[len(want)*3/4].dep
		span := slices.DeleteFunc(slices.Clone(want), func(f readFlight) bool { return f.dep.Before(from) || !f.dep.Before(to) })
		if got := pages(t, r, reader.Query{Table: "flights", Tenant: tenant, From: from, To: to, Limit: 3}); !slices.Equal(got, span) || len(span) == 0 {
			t.Errorf("%s from %v to %v: %v, want %v", tenant, from, to, got, span)
		}
		some := slices.DeleteFunc(slices.Clone(want), func(f readFlight) bool { return f.origin != "JFK" && f.origin != "EWR" })
		if got := pages(t, r, reader.Query{Table: "flights", Tenant: tenant, Where: "origin = ? OR origin = ?", Args: []any{"JFK", "EWR"}, Limit: 2}); !slices.Equal(got, some) {
			t.Errorf("%s from JFK: %v, want %v", tenant, got, some)
		}
		one := want[len(want)/2]
		if got := pages(t, r, reader.Query{Table: "flights", Tenant: tenant, ID: fmt.Sprint(one.id)}); !slices.Equal(got, []readFlight{one}) {
			t.Errorf("%s id %d: %v, want %v", tenant, one.id, got, one)
		}
		if got := pages(t, r, reader.Query{Table: "flights", Tenant: tenant, Spread: fmt.Sprint(one.id)}); !slices.Equal(got, []readFlight{one}) {
			t.Errorf("%s spread %d: %v, want %v", tenant, one.id, got, one)
		}
	}
	if all < 200 {
		t.Fatalf("only %d rows were read", all)
	}
	columns(t, r)
	// An alias that is a column's name does not change the order.
	var cursors, wanted []string
	for _, f := range w.flightsOf(t, "DL") {
		wanted = append(wanted, fmt.Sprintf("%s/%d", f.month, f.id))
	}
	for q := (reader.Query{Table: "flights", Tenant: "DL", Columns: "-CAST(flight_id AS SIGNED) AS flight_id", Limit: 3}); ; {
		n := len(cursors)
		for row, err := range r.Query(t.Context(), q) {
			if err != nil {
				t.Fatal(err)
			}
			q.After = row.Cursor()
			cursors = append(cursors, q.After)
		}
		if len(cursors) < n+q.Limit {
			break
		}
	}
	if !slices.Equal(cursors, wanted) {
		t.Errorf("with an alias: %v, want %v", cursors, wanted)
	}
	end := time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC)
	if got, want := pages(t, r, reader.Query{Table: "flights", Tenant: "DL", From: time.Unix(0, 0), To: end}), w.flightsOf(t, "DL"); len(got) != len(want) {
		t.Errorf("up to the end of time: %d rows, want %d", len(got), len(want))
	}

	// A loop that ends early leaves no connection behind: each has its own, of eight.
	for range 20 {
		for _, err := range r.Query(t.Context(), reader.Query{Table: "flights", Tenant: "DL"}) {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
	}

	waitsForAVersion(t, w, r)
	withoutAShard(t, w)

	// Retention drops a month whose name was read a moment ago.
	places(t, r, "UA")
	if _, err := w.shards["s1"].Exec("DROP TABLE flights_201306"); err != nil {
		t.Fatal(err)
	}
	left := w.flightsOf(t, "UA")
	if got := pages(t, r, reader.Query{Table: "flights", Tenant: "UA"}); len(got) != len(left) || len(left) == 0 {
		t.Errorf("without a month: %d rows, want %d", len(got), len(left))
	}

	// Another pool for a shard: here the same database, and one that nobody answers at.
	mine := w.shards["s1"]
	replica, err := reader.New(w.cfg, reader.WithDatabase("s1", mine), reader.WithConnections(2))
	if err != nil {
		t.Fatal(err)
	}
	if list := places(t, replica, "UA"); len(list) == 0 || list[0].DB != mine {
		t.Errorf("places %+v", list)
	}
	replica.Close()
	wrong, err := reader.New(w.cfg, reader.WithDatabase("s1", w.outbox))
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range wrong.Query(t.Context(), reader.Query{Table: "flights", Tenant: "UA"}) {
		if err == nil || !strings.Contains(err.Error(), "was applied as the outbox") {
			t.Errorf("a pool of another database: %v", err)
		}
	}
	wrong.Close()
	if err := mine.Ping(); err != nil {
		t.Errorf("a pool of the caller's was closed: %v", err)
	}

	// A tenant without rows is placed anew while the reader runs.
	moved := ""
	for i := 0; moved == ""; i++ {
		if name := fmt.Sprintf("%02d", i); w.layout.ShardName(w.layout.Route(name, "").Shard) == "s1" {
			moved = name
		}
	}
	if got := pages(t, r, reader.Query{Table: "flights", Tenant: moved}); len(got) != 0 {
		t.Fatalf("rows of %s: %v", moved, got)
	}
	w.edit(t, "epoch: 1", "epoch: 2")
	w.edit(t, "    UA: {", fmt.Sprintf("    %q: { slots: { 100005: s2 } }\n    UA: {", moved))
	w.run(t, 0, "apply")
	within(t, "the line runs by the new layout", func() bool {
		w.append(t, rawEvent(moved, 7, 201302, flightBody(moved, 7, "2013-02-03T04:05:06.000000Z", `"LAX"`, "1")))
		return count(t, w.shards["s2"], "SELECT COUNT(*) FROM flights_201302 WHERE carrier='"+moved+"'") == 1
	})
	within(t, "the reader has the new layout", func() bool {
		list := pages(t, r, reader.Query{Table: "flights", Tenant: moved})
		return len(list) == 1 && list[0].id == 7
	})
	if r := run.Stop(t, 30*time.Second); r.Code != 0 {
		t.Errorf("slotline run ended with status %d", r.Code)
	}
}

func places(t *testing.T, r *reader.Reader, tenant string) []reader.Place {
	t.Helper()
	list, err := r.Places(t.Context(), "flights", tenant, time.Time{}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// columns are all of the file's where none are named.
func columns(t *testing.T, r *reader.Reader) {
	t.Helper()
	for row, err := range r.Query(t.Context(), reader.Query{Table: "flights", Tenant: "UA", Limit: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		names, err := row.Columns()
		if err != nil || len(names) < 5 || names[0] != "carrier" || names[1] != "flight_id" {
			t.Errorf("columns %v, %v", names, err)
		}
		values := make([]any, len(names))
		for i := range values {
			values[i] = new(sql.RawBytes)
		}
		if err := row.Scan(values...); err != nil || string(*values[0].(*sql.RawBytes)) != "UA" {
			t.Errorf("%s, %v", *values[0].(*sql.RawBytes), err)
		}
	}
}

// withoutAShard reads what others have while s1 takes connections and says nothing; what is s1's alone is an outage of s1's.
func withoutAShard(t *testing.T, w *wholeLine) {
	t.Helper()
	text := w.text(t)
	at := strings.Index(text, "  s1: { dsn: ")
	end := at + strings.Index(text[at:], "\n")
	cfg, err := config.Load(w.write(t, text[:at]+fmt.Sprintf(`  s1: { dsn: "mysql://u:p@%s/nowhere", slots: 0-511 }`, silence(t))+text[end:]))
	if err != nil {
		t.Fatal(err)
	}
	r, err := reader.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	mine := ""
	for _, tenant := range []string{"EV", "B6", "AA", "MQ", "9E", "US", "WN", "VX", "FL"} {
		if w.layout.ShardName(w.layout.Route(tenant, "").Shard) == "s2" {
			mine = tenant
		}
	}
	if got, want := pages(t, r, reader.Query{Table: "flights", Tenant: mine}), w.flightsOf(t, mine); len(got) != len(want) || len(got) == 0 {
		t.Errorf("%s of s2: %d rows, want %d", mine, len(got), len(want))
	}
	n := 0
	for row, err := range r.Query(t.Context(), reader.Query{Table: "airports"}) {
		if err != nil || row.Place().Shard != "s2" {
			t.Fatalf("a broadcast table: %v", err)
		}
		n++
	}
	if want := count(t, w.shards["s2"], "SELECT COUNT(*) FROM airports WHERE NOT _deleted"); n != want || n == 0 {
		t.Errorf("%d airports, want %d", n, want)
	}
	short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	for _, err := range r.Query(short, reader.Query{Table: "flights", Tenant: "UA"}) {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a tenant of s1: %v", err)
		}
	}
}

// waitsForAVersion appends an event for an entity that is there and waits for a version above the one that its row has: it is there
// when the sink has applied it, and not before.
func waitsForAVersion(t *testing.T, w *wholeLine, r *reader.Reader) {
	t.Helper()
	one := w.flightsOf(t, "UA")[0]
	id, version := fmt.Sprint(one.id), one.ver/2
	if err := r.Wait(t.Context(), "flights", "UA", id, version); err != nil {
		t.Error(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	err := r.Wait(short, "flights", "UA", id, version+1)
	cancel()
	if !errors.Is(err, reader.ErrNotApplied) || !errors.Is(err, context.DeadlineExceeded) || fault.CodeOf(err) != "SL5204" || !strings.Contains(err.Error(), fmt.Sprintf("the shard has version %d", version)) {
		t.Errorf("wait for what never comes: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- r.Wait(t.Context(), "flights", "UA", id, version+1) }()
	select {
	case err := <-done:
		t.Fatalf("the wait is over before the event is there: %v", err)
	case <-time.After(50 * time.Millisecond): // it looks
	}
	w.append(t, rawEvent("UA", one.id, one.month, flightBody("UA", one.id, one.dep.Format("2006-01-02T15:04:05.000000Z"), `"LAX"`, "1")))
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the version was not seen within a minute")
	}
	if now := pages(t, r, reader.Query{Table: "flights", Tenant: "UA", ID: id}); len(now) != 1 || now[0].ver <= version {
		t.Errorf("after the wait: %+v", now)
	}
}
