package integration

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/sinks/olap/doris"
	"github.com/slotline/slotline/sinks/olap/doris/doristest"
	"github.com/slotline/slotline/sinks/olap/rollup"
)

const (
	dorisDayQuery = "SELECT owner, DATE(at) AS day, kind, COUNT(*) AS items, SUM(done) AS done, SUM(amount) AS amount, AVG(n) AS n_avg, MAX(n) AS n_max, " +
		"MIN(at) AS first, COUNT(DISTINCT n) AS ids FROM items_now GROUP BY owner, DATE(at), kind"
	dorisMonthQuery = "SELECT owner, _month AS month, COUNT(*) AS items, SUM(n) AS n FROM items_now GROUP BY owner, _month"
)

// answers are the rows of a query as text, sorted; numbers in their shortest form.
func (l *dorisLine) answers(query string) (list []string) {
	l.t.Helper()
	rows, err := l.db.Query(query)
	if err != nil {
		l.t.Fatal(err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		l.t.Fatal(err)
	}
	for rows.Next() {
		fields, into := make([]sql.NullString, len(names)), make([]any, len(names))
		for i := range fields {
			into[i] = &fields[i]
		}
		if err := rows.Scan(into...); err != nil {
			l.t.Fatal(err)
		}
		text := make([]string, len(fields))
		for i, f := range fields {
			if text[i] = "NULL"; f.Valid {
				text[i] = f.String
			}
			if strings.HasSuffix(names[i], "_avg") && f.Valid { // a decimal or a double, by where it comes from
				var v float64
				if _, err := fmt.Sscan(f.String, &v); err != nil {
					l.t.Fatal(err)
				}
				text[i] = fmt.Sprintf("%.3f", v)
			}
		}
		list = append(list, strings.Join(text, "|"))
	}
	if err := rows.Err(); err != nil {
		l.t.Fatal(err)
	}
	slices.Sort(list)
	return list
}

// rolled checks P9: with no lag, each rollup is the same query over the base.
func (l *dorisLine) rolled(what string) {
	l.t.Helper()
	lag, err := rollup.ReadLag(l.t.Context(), l.state, "doris", l.config().Rollups)
	if err != nil || !lag.None() {
		l.t.Fatalf("%s: lag %+v, %v", what, lag, err)
	}
	for _, c := range [][2]string{{"SELECT owner, day, kind, items, done, amount, n_avg, n_max, first, ids FROM by_day_now", dorisDayQuery},
		{"SELECT owner, month, items, n FROM by_month_now", dorisMonthQuery}} {
		if got, want := l.answers(c[0]), l.answers(c[1]); !slices.Equal(got, want) {
			l.t.Fatalf("%s: %s gives\n  %s\nthe base has\n  %s", what, c[0], strings.Join(got, "\n  "), strings.Join(want, "\n  "))
		}
	}
}

func (l *dorisLine) rollUp(s *doris.Sink) {
	l.t.Helper()
	if err := s.RollUp(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
}

// P9: rollups in Doris equal the base after inserts, updates, a change of a dimension, deletes, and a replay of
// everything; also where several workers compute the same slices.
func TestP9_DorisRollupsEqualTheBase(t *testing.T) {
	t.Parallel()
	random := seeded(t)
	l := newDorisLine(t, newDoris(t), rollupTables)
	s := l.sink("one")
	o := l.takeOver(s)
	a, c := l.tenant(1), l.tenant(3)
	l.rollUp(s)
	l.rolled("empty")

	var log []event.Message
	apply := func(messages ...event.Message) {
		t.Helper()
		log = append(log, messages...)
		if r := l.applyBatch(o, l.batchOf(o, messages...)); len(r) > 0 {
			t.Fatal(r)
		}
	}
	version := map[string]int64{}
	kinds := []string{"", "x", "y", "it's"}
	change := func(id int64, op event.Op, kind string, n int64) event.Message {
		partition := 1 + 2*int32(id%2)
		owner := map[int32]string{1: a, 3: c}[partition]
		key := fmt.Sprint(owner, id)
		version[key]++
		at := november.AddDate(0, 0, int(id%5)-2) // some in October; never changes
		return l.message(partition, "items", op, version[key], thing(owner, id, at, kind, n))
	}
	var messages []event.Message
	for id := range int64(40) {
		messages = append(messages, change(id, event.Upsert, kinds[random.IntN(4)], id))
	}
	apply(messages...)
	l.rollUp(s)
	l.rolled("inserts")
	for round := range 4 {
		messages = nil
		for range 15 {
			op := event.Upsert
			if random.IntN(3) == 0 {
				op = event.Delete
			}
			messages = append(messages, change(random.Int64N(40), op, kinds[random.IntN(4)], random.Int64N(100)))
		}
		apply(messages...)
		if round%2 == 1 {
			var wg sync.WaitGroup
			for i := range 3 {
				worker := l.sink(fmt.Sprint("worker ", i))
				wg.Go(func() {
					if err := worker.RollUp(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			l.rolled(fmt.Sprint("changes ", round))
		}
	}
	messages = nil
	for id := range int64(40) { // every slice becomes empty
		messages = append(messages, change(id, event.Delete, "", 0))
	}
	apply(messages...)
	l.rollUp(s)
	l.rolled("all deleted")
	if got := l.answers("SELECT COUNT(*) FROM by_day_now"); got[0] != "0" {
		t.Errorf("%v rows of a rollup without entities", got)
	}
	apply(change(0, event.Upsert, "x", 7), change(1, event.Upsert, "", 8))
	l.rollUp(s)
	l.rolled("two came back")

	// A forced replay of the whole topic.
	if _, err := l.state.Exec("UPDATE slotline_progress SET next_off = 0, applied_off = 0"); err != nil {
		t.Fatal(err)
	}
	if err := o.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	o = l.takeOver(l.sink("replays"))
	for part := range slices.Chunk(log, 17) {
		if r := l.applyBatch(o, l.batchOf(o, part...)); len(r) > 0 {
			t.Fatal(r)
		}
	}
	l.rollUp(s)
	l.rolled("replayed")
}

// P9: what is committed and not visible yet is not taken for computed: neither rows of the base, whose pairs would be
// cleared without them, nor a slice.
func TestP9_DorisRollupWaitsUntilRowsAreVisible(t *testing.T) {
	t.Parallel()
	server := faulty(t)
	l := newDorisLine(t, server, rollupTables)
	s := l.sink("one")
	o := l.takeOver(s)
	a := l.tenant(1)
	l.rollUp(s)
	publish := make(chan struct{})
	reached := make(chan string, 10)
	late := func(x doristest.Load) doristest.Fault {
		reached <- x.Table
		return doristest.Fault{PublishTimeout: publish}
	}
	server.fake.Inject(late)
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.applyBatch(o, l.batchOf(o, l.message(1, "items", event.Upsert, 1, thing(a, 1, november, "x", 1))))
	}()
	if table := <-reached; table != "items" {
		t.Fatalf("%s was loaded first", table)
	}
	select {
	case <-done:
		t.Fatal("a batch was confirmed before its rows were visible")
	case <-time.After(300 * time.Millisecond): // it asks every half second; that it asks again is seen below
	}
	close(publish)
	<-done

	publish = make(chan struct{})
	computed := make(chan error, 1)
	go func() { computed <- s.RollUp(t.Context()) }()
	<-reached
	select {
	case err := <-computed:
		t.Fatalf("a slice was cleared before it was visible: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	server.fake.Inject(nil)
	close(publish)
	if err := <-computed; err != nil {
		t.Fatal(err)
	}
	l.rollUp(s)
	l.rolled("visible at last")
}

// A rollup that the file gains later is filled; a late worker's rows of a lesser version change nothing.
func TestDorisRollupIsAdded(t *testing.T) {
	t.Parallel()
	without, _, _ := strings.Cut(rollupTables, "rollups:")
	l := newDorisLine(t, newDoris(t), without)
	o := l.takeOver(l.sink("old"))
	a := l.tenant(1)
	l.applyBatch(o, l.batchOf(o, l.message(1, "items", event.Upsert, 1, thing(a, 1, november, "x", 1))))
	l.tables = rollupTables
	s := l.sink("new")
	if changes := applyDorisPlan(t, s); len(changes) != 3 {
		t.Errorf("apply made %+v", changes)
	}
	l.rollUp(s)
	l.rolled("filled")
	if _, err := l.db.Exec(fmt.Sprintf("INSERT INTO `by_day` WITH LABEL `late` (`owner`,`day`,`kind`,`items`,`ids`,`_rows`,`_ver`)\n"+
		"SELECT '%s', '%s', 'gone', 9, 9, 9, 1", a, november.Format(time.DateOnly))); err != nil {
		t.Fatal(err)
	}
	l.rolled("a late worker")
	if again, err := s.Plan(t.Context()); err != nil || len(again) > 0 {
		t.Errorf("apply once more: %+v, %v", again, err)
	}
}

// The day of a snowflake id, and measures over bytes, which are base64 in Doris.
func TestDorisRollupOfSnowflakesAndBytes(t *testing.T) {
	t.Parallel()
	l := newDorisLine(t, newDoris(t), `
tables:
  posts:
    tenant: owner
    id: post
    month: { snowflake: post, epoch: 2020-01-01T00:00:00Z }
    columns: { owner: string(20), post: uint64, seal: bytes(4), paid: bool }
rollups:
  posts_by_day: { table: posts, by: [paid], bucket: day, measures: { posts: count, low: min(seal), high: max(seal), seals: distinct(seal), paid_part: avg(paid) } }
`)
	s := l.sink("one")
	o := l.takeOver(s)
	a := l.tenant(1)
	post := func(id uint64, at time.Time, seal string, paid int64, op event.Op) event.Message {
		epoch := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
		return l.message(1, "posts", op, 1, []event.Value{text(a), {Uint: uint64(at.Sub(epoch).Milliseconds())<<22 | id}, text(seal), integer(paid)})
	}
	midnight := november.Truncate(24 * time.Hour)
	l.applyBatch(o, l.batchOf(o, post(1, midnight, "\x00\xff\xfe", 1, event.Upsert), post(2, midnight.Add(24*time.Hour-time.Millisecond), "\xfb", 1, event.Upsert),
		post(3, midnight.Add(time.Hour), "\xfb", 1, event.Upsert), post(4, midnight.Add(-time.Millisecond), "z", 0, event.Upsert),
		post(5, midnight.Add(24*time.Hour), "", 0, event.Delete)))
	l.rollUp(s)
	day := func(n int) string { return midnight.AddDate(0, 0, n).Format(time.DateOnly) }
	want := []string{a + "|" + day(-1) + "|0|1|eg==|eg==|1|0", a + "|" + day(0) + "|1|3|AP/+|+w==|2|1"}
	slices.Sort(want)
	if got := l.answers("SELECT owner, day, paid, posts, low, high, seals, paid_part FROM posts_by_day_now"); !slices.Equal(got, want) {
		t.Errorf("posts_by_day_now has\n  %s\nwanted\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// slotline tables shows what Doris holds, by month.
func TestDorisTableSizes(t *testing.T) {
	t.Parallel()
	l := newDorisLine(t, newDoris(t), rollupTables) // a rollup's table is not one of the file's
	s := l.sink("one")
	o := l.takeOver(s)
	a := l.tenant(1)
	l.applyBatch(o, l.batchOf(o, l.message(1, "items", event.Upsert, 1, thing(a, 1, november, "x", 1)), l.message(1, "items", event.Upsert, 1, thing(a, 2, november, "x", 1)),
		l.message(1, "items", event.Upsert, 1, thing(a, 3, november.AddDate(0, -1, 0), "x", 1))))
	l.rollUp(s)
	if l.server.fake == nil {
		t.Log("a running Doris tells of rows and bytes some minutes later")
	}
	sizes, err := s.TableSizes(t.Context())
	if err != nil || len(sizes) != 2 || sizes[0].Month.String() != november.AddDate(0, -1, 0).Format("200601") || sizes[1].Month.String() != november.Format("200601") {
		t.Fatalf("%+v, %v", sizes, err)
	}
	if l.server.fake != nil && (sizes[0].Rows != 1 || sizes[1].Rows != 2 || sizes[1].Bytes == 0 || sizes[1].Table != "items") {
		t.Errorf("%+v", sizes)
	}
}
