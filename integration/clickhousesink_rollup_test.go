package integration

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/internal/plan"
	"github.com/slotline/slotline/sinks/olap/clickhouse"
	"github.com/slotline/slotline/sinks/olap/rollup"
)

const rollupTables = `
tables:
  items:
    tenant: owner
    id: item
    month: at
    columns: { owner: string(20), item: int64, at: datetime, kind: "string(8)?", done: bool, amount: "decimal(12,2)?", n: "int32?" }
rollups:
  by_day: { table: items, by: [kind], bucket: day,
            measures: { items: count, done: sum(done), amount: sum(amount), n_avg: avg(n), n_max: max(n), first: min(at), ids: distinct(n) } }
  by_month: { table: items, by: [owner], bucket: month, measures: { items: count, n: sum(n) } }
`

const (
	dayColumns   = "owner,day,kind,items,done,amount,n_avg,n_max,first,ids"
	dayQuery     = "(SELECT owner, toDate32(at) AS day, kind, count() AS items, sum(done) AS done, sum(amount) AS amount, avg(n) AS n_avg, max(n) AS n_max, min(at) AS first, uniqExact(n) AS ids FROM items_now GROUP BY owner, day, kind)"
	monthColumns = "owner,month,items,n"
	monthQuery   = "(SELECT owner, toDate32(formatDateTime(at, '%Y-%m-01')) AS month, count() AS items, sum(n) AS n FROM items_now GROUP BY owner, month)"
)

// rolled checks P9: with no lag, each rollup is the same query over the base.
func (l *olapLine) rolled(what string) {
	l.t.Helper()
	lag, err := rollup.ReadLag(l.t.Context(), l.state, "clickhouse", l.config().Rollups)
	if err != nil || !lag.None() {
		l.t.Fatalf("%s: lag %+v, %v", what, lag, err)
	}
	for _, c := range [][3]string{{"by_day_now", dayQuery, dayColumns}, {"by_month_now", monthQuery, monthColumns}} {
		if got, want := l.view(c[0], c[2]), l.view(c[1], c[2]); !slices.Equal(got, want) {
			l.t.Fatalf("%s: %s has\n  %s\nthe base has\n  %s", what, c[0], strings.Join(got, "\n  "), strings.Join(want, "\n  "))
		}
	}
}

func (l *olapLine) rollUp(s *clickhouse.Sink) {
	l.t.Helper()
	if err := s.RollUp(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
}

// thing is a row of items; kind "" is NULL.
func thing(owner string, id int64, at time.Time, kind string, n int64) []event.Value {
	k := event.Value{Null: true}
	if kind != "" {
		k = text(kind)
	}
	return []event.Value{text(owner), integer(id), moment(at), k, integer(n % 2), text(fmt.Sprintf("%d.25", n)), integer(n)}
}

// P9: rollups equal the base after inserts, updates, a change of a dimension, deletes, and a replay of everything.
func TestP9_ClickHouseRollupsEqualTheBase(t *testing.T) {
	t.Parallel()
	random := seeded(t)
	l := newOLAPLine(t, harness.ClickHouse(t), rollupTables)
	s := l.sink("one")
	o := l.takeOver(s)
	a, c := l.tenant(1), l.tenant(3)
	l.rollUp(s)
	l.rolled("empty")
	if got := l.stored("by_day"); got != 0 {
		t.Errorf("%d rows of an empty rollup", got)
	}

	var log []event.Message
	apply := func(messages ...event.Message) {
		log = append(log, messages...)
		if r := l.applyBatch(o, l.cut(o, messages...)); len(r) > 0 {
			t.Fatal(r)
		}
	}
	version := map[string]int64{}
	kinds := []string{"", "x", "y", "it's"}
	change := func(partition int32, id int64, op event.Op, at time.Time, kind string, n int64) event.Message {
		owner := map[int32]string{1: a, 3: c}[partition]
		key := fmt.Sprint(owner, id)
		version[key]++
		return l.message(partition, "items", op, version[key], thing(owner, id, at, kind, n))
	}
	when := func(id int64) time.Time { return november.AddDate(0, 0, int(id%5)-2) } // some in October; never changes
	var messages []event.Message
	for id := range int64(40) {
		messages = append(messages, change(1+2*int32(id%2), id, event.Upsert, when(id), kinds[random.IntN(4)], id))
	}
	apply(messages...)
	l.rollUp(s)
	l.rolled("inserts")

	for round := range 6 { // updates, other dimensions, deletes, and entities that come back
		messages = nil
		for range 15 {
			id := random.Int64N(40)
			op := event.Upsert
			if random.IntN(3) == 0 {
				op = event.Delete
			}
			messages = append(messages, change(1+2*int32(id%2), id, op, when(id), kinds[random.IntN(4)], random.Int64N(100)))
		}
		apply(messages...)
		if round%2 == 1 {
			l.rollUp(s)
			l.rolled(fmt.Sprint("changes ", round))
		}
	}

	messages = nil
	for id := range int64(40) { // every slice becomes empty
		messages = append(messages, change(1+2*int32(id%2), id, event.Delete, when(id), "", 0))
	}
	apply(messages...)
	l.rollUp(s)
	l.rolled("all deleted")
	l.wantView("by_day_now", "count()", "0")

	apply(change(1, 0, event.Upsert, when(0), "x", 7), change(3, 1, event.Upsert, when(1), "", 8))
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
		if r := l.applyBatch(o, l.cut(o, part...)); len(r) > 0 {
			t.Fatal(r)
		}
		if random.IntN(3) == 0 {
			l.rollUp(s)
		}
	}
	l.rollUp(s)
	l.rolled("replayed")
}

// P9: a worker that is late writes slices of a lesser version, combinations that are no more among them; several workers
// compute the same slices while they change. The view shows what the base has.
func TestP9_ClickHouseRollupWorkersOfOneSlice(t *testing.T) {
	t.Parallel()
	l := newOLAPLine(t, harness.ClickHouse(t), rollupTables)
	s := l.sink("one")
	o := l.takeOver(s)
	a := l.tenant(1)
	l.applyBatch(o, l.cut(o, l.message(1, "items", event.Upsert, 1, thing(a, 1, november, "x", 1))))
	l.rollUp(s)
	l.run(fmt.Sprintf("INSERT INTO by_day (owner, day, kind, items, done, _rows, _ver) VALUES ('%s', '%s', 'gone', 9, 9, 9, 1)", a, november.Format(time.DateOnly)))
	l.rolled("a late worker")

	stop := make(chan struct{})
	errs := make(chan error, 3)
	for i := range 3 {
		worker := l.sink(fmt.Sprint("worker ", i))
		go func() { // ends with stop; its error is read below
			for {
				select {
				case <-stop:
					errs <- nil
					return
				default:
				}
				if err := worker.RollUp(t.Context()); err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	for v := int64(2); v < 25; v++ {
		op := event.Upsert
		if v%5 == 0 {
			op = event.Delete
		}
		l.applyBatch(o, l.cut(o, l.message(1, "items", op, v, thing(a, 1, november, []string{"x", "y", "z"}[v%3], v)),
			l.message(1, "items", event.Upsert, 1, thing(a, v, november, "x", v))))
	}
	close(stop)
	for range 3 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	l.rollUp(s)
	l.rolled("three workers")
}

// P9: a crash between any two steps: rows sent and not confirmed, a batch that is given up after it was sent, a slice
// written and not cleared; and a state database that was restored hands out no lesser version.
func TestP9_ClickHouseRollupCrashes(t *testing.T) {
	t.Parallel()
	l := newOLAPLine(t, harness.ClickHouse(t), rollupTables)
	a := l.tenant(1)
	log := []event.Message{l.message(1, "items", event.Upsert, 1, thing(a, 1, november, "x", 1))}
	l.crashBeforeConfirm(&event.Batch{Messages: log, Ranges: []event.Range{{Partition: l.part(1), From: 0, To: 1, LeaderEpoch: 3}}})
	s := l.sink("next")
	o := l.takeOver(s)
	l.rollUp(s)
	l.applyBatch(o, l.pendingBatch(o, log))
	l.rollUp(s)
	l.rolled("sent again")
	if err := o.Release(t.Context()); err != nil {
		t.Fatal(err)
	}

	l.crashBeforeConfirm(&event.Batch{Messages: []event.Message{l.message(1, "items", event.Upsert, 1, thing(a, 2, november, "y", 2))},
		Ranges: []event.Range{{Partition: l.part(1), From: 1, To: 2, LeaderEpoch: 3}}})
	if _, err := l.state.Exec("UPDATE slotline_progress SET next_off = 2 WHERE part = 1"); err != nil {
		t.Fatal(err) // what accept-gap does
	}
	o = l.takeOver(l.sink("third"))
	if p := o.Pending(); len(p) > 0 {
		t.Fatalf("%v is pending after its offsets were given up", p)
	}
	l.rollUp(s)
	l.rolled("given up after it was sent")
	l.wantView("by_month_now", monthColumns, a+"|"+november.Format("2006-01-")+"01|2|3")

	// A worker that dies before it clears.
	l.applyBatch(o, l.cut(o, l.message(1, "items", event.Upsert, 2, thing(a, 2, november, "z", 5))))
	v := newValve(t, l.mysql.Addr)
	v.shutBefore(func(sent []byte) bool { return bytes.Contains(sent, []byte("DELETE FROM `slotline_rollup_touched`")) })
	l.stateHost = v.addr()
	dying := l.sink("dies while it rolls up")
	l.stateHost = l.mysql.Addr
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- dying.RollUp(ctx) }() // ends with ctx
	select {
	case <-v.seen:
	case err := <-ended:
		t.Fatalf("the worker ended before it cleared: %v", err)
	}
	l.applyBatch(o, l.cut(o, l.message(1, "items", event.Upsert, 3, thing(a, 2, november, "w", 6))))
	v.set(false) // what it had said is heard now: the pair was touched since
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
	}
	cancel()
	l.rollUp(s)
	l.rolled("died before it cleared")

	if _, err := l.state.Exec("UPDATE slotline_rollup SET version = 5"); err != nil {
		t.Fatal(err)
	}
	l.applyBatch(o, l.cut(o, l.message(1, "items", event.Delete, 4, thing(a, 2, november, "w", 6))))
	l.rollUp(s)
	l.rolled("an older counter")
}

// A rollup that the file gains later is filled, and one that is declared anew is refused.
func TestClickHouseRollupIsAddedAndChanged(t *testing.T) {
	t.Parallel()
	without, _, _ := strings.Cut(rollupTables, "rollups:")
	l := newOLAPLine(t, harness.ClickHouse(t), without)
	old := l.takeOver(l.sink("old"))
	a := l.tenant(1)
	l.applyBatch(old, l.cut(old, l.message(1, "items", event.Upsert, 1, thing(a, 1, november, "x", 1))))
	l.tables = rollupTables
	s := l.sink("new")
	applyPlan(t, s)
	l.rollUp(s)
	l.rolled("filled")
	// The process with the old file still runs, and marks nothing; the next owner of its group sees that.
	l.applyBatch(old, l.cut(old, l.message(1, "items", event.Upsert, 2, thing(a, 1, november, "y", 2))))
	if err := old.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.takeOver(s)
	l.rollUp(s)
	l.rolled("filled again after an owner that knew no rollups")

	l.tables = strings.Replace(rollupTables, "by: [kind]", "by: [kind, done]", 1)
	l.tables = strings.Replace(l.tables, "done: sum(done), ", "", 1)
	changes, err := l.sink("changed").Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for _, c := range changes {
		if c.Sign == plan.Decide && c.What == "by_day" && strings.Contains(c.Note, "drop the table") {
			refused++
		}
	}
	if refused != 1 || len(changes) != 1 {
		t.Errorf("a changed declaration: %+v", changes)
	}
}

// A refresh costs by what was touched, not by the table: the same tenant's day, with 1 and 10 times the rows beside it.
func TestClickHouseRollupCostsByTouchedPairs(t *testing.T) {
	t.Parallel()
	l := newOLAPLine(t, harness.ClickHouse(t), rollupTables)
	s := l.sink("one")
	o := l.takeOver(s)
	a := l.tenant(1)
	const rows = 200_000
	grow := func(from, to int) { // rows of other tenants, over 20 months; none is touched
		l.run(fmt.Sprintf("INSERT INTO items (owner, item, at, kind, n, _ver) SELECT 'other' || toString(number %% 50), number, "+
			"toDateTime64('2024-01-15 00:00:00', 6, 'UTC') + toIntervalMonth(number %% 20), 'x', 1, 2 FROM numbers(%d, %d)", from, to-from))
	}
	version := int64(0)
	refresh := func() time.Duration {
		best := time.Hour
		for range 7 {
			version++
			l.applyBatch(o, l.cut(o, l.message(1, "items", event.Upsert, version, thing(a, 1, november, "x", version))))
			began := time.Now()
			l.rollUp(s)
			best = min(best, time.Since(began))
		}
		return best
	}
	refresh()
	grow(0, rows)
	l.rollUp(s)
	one := refresh()
	grow(rows, 10*rows)
	ten := refresh()
	t.Logf("rollup_refresh of one touched pair, two rollups: %v with %d rows in the table, %v with %d", one, rows, ten, 10*rows)
	if ten > 3*one+50*time.Millisecond {
		t.Errorf("with 10 times the rows a refresh takes %v, was %v", ten, one)
	}
}
