package integration

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/mysql"
)

const retireTables = shardLineTables + "months: { keep: 12 }\n"

// dated is an item of a month.
func dated(owner string, id int64, at time.Time) []event.Value {
	v := item(owner, id, "x")
	v[2] = moment(at)
	return v
}

var (
	january2013  = time.Date(2013, 1, 31, 23, 59, 59, 999_999_000, time.UTC)
	february2013 = time.Date(2013, 2, 1, 0, 0, 0, 0, time.UTC)
)

// months are the month tables of items of 2013 that a shard has.
func (l *shardLine) months(shard string) []string {
	l.t.Helper()
	return l.column(shard, "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE 'items\\_2013%'")
}

// column is the answer of a query for one column, sorted.
func (l *shardLine) column(shard, query string) (list []string) {
	l.t.Helper()
	rows, err := l.dbs[shard].QueryContext(l.t.Context(), query)
	if err != nil {
		l.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			l.t.Fatal(err)
		}
		list = append(list, s)
	}
	slices.Sort(list)
	return list
}

// retire is what slotline tables retire does in one shard, as another process.
func (l *shardLine) retire(shard string) (*mysql.Retirement, error) {
	l.t.Helper()
	s := l.sink("operator")
	r, err := s.Retirement(l.t.Context(), shard)
	if err != nil {
		l.t.Fatal(err)
	}
	return r, s.Retire(l.t.Context(), r, "ann")
}

func (l *shardLine) below(shard string) partitioner.Month {
	l.t.Helper()
	r, seeded, err := progress.ReadRetired(l.t.Context(), l.dbs[shard], l.cfg.Line)
	if err != nil || !seeded {
		l.t.Fatal(seeded, err)
	}
	return r.Below
}

func retiredCount(s *mysql.Sink, shard int) uint64 { return s.ShardCounts()[shard].Retired }

// A month is retired while an owner has a batch of it ready, by text or by staging: the batch changes nothing and makes no
// table. Whoever takes over passes its events over, upserts and deletes, and counts them; what else is in the batch is
// applied.
func TestRetiredMonthStaysRetired(t *testing.T) {
	t.Parallel()
	server := harness.MySQL(t)
	for name, staging := range map[string]int{"text": -1, "staging": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newShardLine(t, server, retireTables, "")
			l.stagingRows = staging
			now := time.Now().UTC()
			a, s := l.tenantIn(1, "s1"), l.sink("a")
			upsert := func(id int64, at time.Time) event.Message {
				return l.message(1, "items", event.Upsert, 1, dated(a, id, at))
			}
			o := l.takeOver(s, 1)
			l.applyBatch(o, l.batch(0, upsert(1, january2013), upsert(2, november)))
			late := l.batch(2, upsert(3, january2013), upsert(4, february2013), l.message(1, "items", event.Delete, 2, dated(a, 1, january2013)), upsert(5, november))
			ready, err := o.Prepare(late)
			if err != nil {
				t.Fatal(err)
			}
			r, err := l.retire("s1")
			if err != nil {
				t.Fatal(err)
			}
			if r.Before != partitioner.NoMonth || r.Below != partitioner.MonthOf(now).Add(-12) || len(r.Tables) != 1 || r.Tables[0].Name != "items_201301" {
				t.Errorf("retired %+v", r)
			}
			if got := l.months("s1"); len(got) != 0 || l.below("s1") != r.Below || l.below("s2") != partitioner.NoMonth {
				t.Errorf("tables %v, below %v, and %v in the other shard", got, l.below("s1"), l.below("s2"))
			}
			if rejected, err := ready.Apply(t.Context()); !fault.Is(err, fault.Fenced) || len(rejected) > 0 {
				t.Fatalf("rejected %v, error %v; wanted fenced", rejected, err)
			}
			if got := l.months("s1"); len(got) != 0 || l.progress("s1", 1).Next != 2 {
				t.Errorf("a batch of before has left tables %v, and the sink at %d", got, l.progress("s1", 1).Next)
			}
			// The same process, and then another one.
			o = l.takeOver(s, 1)
			if rejected := l.applyBatch(o, late); len(rejected) != 0 {
				t.Errorf("dead letters: %v", rejected)
			}
			other := l.sink("b")
			o = l.takeOver(other, 1)
			l.applyBatch(o, l.batch(6, upsert(6, january2013)))
			l.wantRows("s1", "items_202611", "item", "2", "5")
			if got := l.months("s1"); len(got) != 0 || l.progress("s1", 1).Next != 7 || retiredCount(s, 0) != 3 || retiredCount(other, 0) != 1 {
				t.Errorf("tables %v, the sink at %d, %d and %d passed over", got, l.progress("s1", 1).Next, retiredCount(s, 0), retiredCount(other, 0))
			}
			// A second run finds nothing. The other shard takes the month as before: it was not retired there.
			if r, err := l.retire("s1"); err != nil || len(r.Tables) > 0 || r.Below != r.Before {
				t.Errorf("once more: %+v, %v", r, err)
			}
			three := l.takeOver(s, 3)
			l.applyBatch(three, l.batch(0, l.message(3, "items", event.Upsert, 1, dated(l.tenantIn(3, "s2"), 1, january2013))))
			l.wantRows("s2", "items_201301", "item", "1")
		})
	}
}

// What is retired stays so when months.keep grows; a shard that is new begins where the others are.
func TestRetiredMonthsOnlyGrow(t *testing.T) {
	t.Parallel()
	l := newShardLine(t, harness.MySQL(t), retireTables, "")
	before, err := l.retire("s1")
	if err != nil {
		t.Fatal(err)
	}
	for _, keep := range []int{1200, 0} {
		l.cfg.Months.Keep = keep
		if r, err := l.retire("s1"); err != nil || r.Below != before.Below || l.below("s1") != before.Below {
			t.Errorf("keep %d: %+v, %v", keep, r, err)
		}
	}
	if _, err := l.dbs["s2"].Exec("DROP TABLE slotline_retired"); err != nil {
		t.Fatal(err)
	}
	s := l.sink("a")
	if _, err := s.Retirement(t.Context(), "s2"); !fault.Is(err, fault.Usage) || !strings.Contains(err.Error(), "slotline apply") {
		t.Errorf("before apply: %v", err)
	}
	l.applyBatch(l.takeOver(s, 3), l.batch(0, l.message(3, "items", event.Upsert, 1, dated(l.tenantIn(3, "s2"), 1, january2013)))) // a sink needs no row
	l.apply(s)
	if l.below("s2") != before.Below {
		t.Errorf("the new shard begins at %v, wanted %v", l.below("s2"), before.Below)
	}
	l.cfg.Months.Keep = 1
	if r, err := l.retire("s1"); err != nil || r.Below != before.Below.Add(11) {
		t.Errorf("keep 1: %+v, %v", r, err)
	}
}

// The command dies, or loses its connection, between the row and the tables: sinks pass the month over by then, and the
// next run drops what is left.
func TestRetireCutBeforeTheDrop(t *testing.T) {
	t.Parallel()
	server := harness.MySQL(t)
	var armed atomic.Bool
	w := newWire(t, server.Addr, func(sent []byte) bool {
		return bytes.Contains(sent, []byte("items_201302")) && bytes.Contains(sent, []byte("DROP TABLE")) && armed.CompareAndSwap(true, false)
	})
	l := newShardLine(t, server, retireTables, w.addr())
	a, s := l.tenantIn(1, "s1"), l.sink("a")
	o := l.takeOver(s, 1)
	l.applyBatch(o, l.batch(0, l.message(1, "items", event.Upsert, 1, dated(a, 1, january2013)), l.message(1, "items", event.Upsert, 1, dated(a, 2, february2013))))
	late := l.batch(2, l.message(1, "items", event.Upsert, 1, dated(a, 3, february2013)), l.message(1, "items", event.Upsert, 1, dated(a, 4, january2013)))
	february := l.batch(2, late.Messages[0])
	ready, err := o.Prepare(february)
	if err != nil {
		t.Fatal(err)
	}
	blocker, err := l.dbs["s1"].Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer blocker.Close()
	// A reader keeps the table, so that the server does not drop it before the connection is cut.
	if _, err := blocker.ExecContext(t.Context(), "BEGIN"); err != nil {
		t.Fatal(err)
	}
	if _, err := blocker.ExecContext(t.Context(), "SELECT * FROM items_201302"); err != nil {
		t.Fatal(err)
	}
	armed.Store(true)
	r, err := l.retire("s1")
	if err == nil || armed.Load() || len(r.Tables) != 2 {
		t.Fatalf("%+v, %v; wanted a lost connection", r, err)
	}
	if got := l.months("s1"); !slices.Equal(got, []string{"items_201302"}) || l.below("s1") != r.Below {
		t.Errorf("tables %v, below %v", got, l.below("s1"))
	}
	// The table is there, and who had the partition before writes nothing to it.
	if _, err := ready.Apply(t.Context()); !fault.Is(err, fault.Fenced) {
		t.Errorf("a batch of before: %v; wanted fenced", err)
	}
	o = l.takeOver(s, 1)
	l.applyBatch(o, late)
	l.wantRows("s1", "items_201302", "item", "2")
	if retiredCount(s, 0) != 2 {
		t.Errorf("%d passed over", retiredCount(s, 0))
	}
	// While the reader is there the next run says so. Once it has gone, the run after that ends the matter.
	again, err := l.retire("s1")
	if fault.CodeOf(err) != "SL3111" || again.Below != again.Before || !strings.Contains(err.Error(), "items_201302") || !strings.Contains(err.Error(), "end the transaction") {
		t.Errorf("%+v, %v; wanted SL3111, which names the table", again, err)
	}
	if _, err := blocker.ExecContext(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.retire("s1"); err != nil || len(l.months("s1")) != 0 {
		t.Errorf("%v, %v", err, l.months("s1"))
	}
}

// A writer that is about to make a table keeps the row from being written; one that comes after the row makes none.
func TestRetireWaitsForATableThatIsBeingMade(t *testing.T) {
	t.Parallel()
	l := newShardLine(t, harness.MySQL(t), retireTables, "")
	a, s := l.tenantIn(1, "s1"), l.sink("a")
	o := l.takeOver(s, 1)
	ready, err := o.Prepare(l.batch(0, l.message(1, "items", event.Upsert, 1, dated(a, 1, january2013))))
	if err != nil {
		t.Fatal(err)
	}
	// As a sink that has read the row and is paused before CREATE TABLE.
	paused, err := l.dbs["s1"].Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer paused.Close()
	sum := sha256.Sum256([]byte(l.names["s1"] + "/" + l.cfg.Line))
	lock := fmt.Sprintf("('slotline_months_%x'", sum[:16])
	var got int
	if err := paused.QueryRowContext(t.Context(), "SELECT GET_LOCK"+lock+", 5)").Scan(&got); err != nil || got != 1 {
		t.Fatal(got, err)
	}
	done := make(chan error, 1)
	go func() { _, err := l.retire("s1"); done <- err }()
	for len(l.column("s1", "SELECT ID FROM information_schema.PROCESSLIST WHERE STATE = 'User lock' AND DB = DATABASE()")) == 0 {
		select {
		case err := <-done:
			t.Fatalf("retired while a table was being made: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	if l.below("s1") != partitioner.NoMonth {
		t.Error("the row is written")
	}
	if _, err := paused.ExecContext(t.Context(), "DO RELEASE_LOCK"+lock+")"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := ready.Apply(t.Context()); fault.CodeOf(err) != "SL3110" || !fault.Is(err, fault.Fenced) || len(l.months("s1")) != 0 {
		t.Errorf("%v, tables %v; wanted SL3110 and none", err, l.months("s1"))
	}
}
