package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/partitioner"
)

// laneTable is a lane's table in memory, and the database/sql driver of it: it answers the reader's statements, and between
// any two of them others act.
type laneTable struct {
	uuid   string
	tenant string
	rows   map[uint64]*tableRow
	next   uint64 // the id that is drawn next
	act    func(statement string)
	put    []idRange // what was put into it from another table
}

type tableRow struct {
	id        uint64
	eventID   event.ID
	entity    int
	payload   int
	committed bool // else an open transaction has written it
}

func (l *laneTable) Connect(context.Context) (driver.Conn, error) { return &laneConn{table: l}, nil }
func (l *laneTable) Driver() driver.Driver                        { return nil }

type laneConn struct {
	table    *laneTable
	dirty    bool                 // the next statement is READ UNCOMMITTED
	snapshot map[uint64]*tableRow // of a transaction; nil outside of one
}

func (c *laneConn) Prepare(string) (driver.Stmt, error) {
	return nil, errors.New("no statement is prepared")
}
func (c *laneConn) Begin() (driver.Tx, error) { return nil, errors.New("no transaction is begun so") }
func (c *laneConn) Close() error              { return nil }

func (c *laneConn) ExecContext(_ context.Context, statement string, _ []driver.NamedValue) (driver.Result, error) {
	c.table.act(statement)
	if strings.HasPrefix(statement, "INSERT IGNORE INTO "+LaneTable(0)+" (id, ") {
		c.table.put = append(c.table.put, termsOf(statement)...)
		return driver.RowsAffected(0), nil
	}
	switch statement {
	case "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED":
		c.dirty = true
	case "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SET SESSION information_schema_stats_expiry = 0":
	case "START TRANSACTION WITH CONSISTENT SNAPSHOT":
		c.snapshot = c.table.committed()
	case "COMMIT", "START TRANSACTION":
		c.snapshot = nil
	default:
		return nil, fmt.Errorf("the reader executes %q", statement)
	}
	return driver.RowsAffected(0), nil
}

func (l *laneTable) committed() map[uint64]*tableRow {
	rows := map[uint64]*tableRow{}
	for id, r := range l.rows {
		if r.committed {
			rows[id] = r
		}
	}
	return rows
}

var (
	laneWhere = regexp.MustCompile(`id > (\d+)(?: AND id <= (\d+))?|id IN \(([\d,]+)\)|id BETWEEN (\d+) AND (\d+)`)
	laneLimit = regexp.MustCompile(`LIMIT (\d+)$`)
)

// termsOf are the ids that a statement's terms are of.
func termsOf(statement string) []idRange {
	number := func(text string) uint64 { n, _ := strconv.ParseUint(text, 10, 64); return n }
	var set idSet
	for _, m := range laneWhere.FindAllStringSubmatch(statement, -1) {
		switch {
		case m[1] != "" && m[2] != "":
			set.add(idRange{number(m[1]) + 1, number(m[2])}, nil)
		case m[1] != "":
			set.add(idRange{number(m[1]) + 1, ^uint64(0)}, nil)
		case m[3] != "":
			for text := range strings.SplitSeq(m[3], ",") {
				set.add(idRange{number(text), number(text)}, nil)
			}
		default:
			set.add(idRange{number(m[4]), number(m[5])}, nil)
		}
	}
	return set.ranges
}

func (c *laneConn) QueryContext(_ context.Context, statement string, _ []driver.NamedValue) (driver.Rows, error) {
	l := c.table
	l.act(statement)
	switch {
	case strings.HasPrefix(statement, "SELECT @@server_uuid"):
		return &laneRows{[]string{"uuid"}, [][]driver.Value{{l.uuid}}}, nil
	case statement == nextIDSQL:
		return &laneRows{[]string{"next"}, [][]driver.Value{{int64(l.next)}}}, nil
	}
	rows := c.snapshot
	if rows == nil {
		if rows = l.committed(); c.dirty {
			rows = l.rows
		}
	}
	c.dirty = false
	ids := slices.Sorted(maps.Keys(rows))
	if statement == lastIDSQL(0) {
		if len(ids) == 0 {
			return &laneRows{[]string{"max"}, [][]driver.Value{{nil}}}, nil
		}
		return &laneRows{[]string{"max"}, [][]driver.Value{{ids[len(ids)-1]}}}, nil
	}
	if strings.Contains(statement, " DESC ") {
		slices.Reverse(ids)
	}
	columns := strings.Split(strings.TrimPrefix(statement[:strings.Index(statement, " FROM ")], "SELECT "), ", ")
	limit := laneLimit.FindStringSubmatch(statement)
	if limit == nil {
		return nil, fmt.Errorf("the reader asks %q", statement)
	}
	most, _ := strconv.Atoi(limit[1])
	wanted := idSet{termsOf(statement)}
	answer := &laneRows{columns: columns}
	for _, id := range ids {
		if len(answer.values) == most {
			break
		}
		if !wanted.contains(id) {
			continue
		}
		r := rows[id]
		v := []driver.Value{id, r.eventID[:]}
		if len(columns) > 2 {
			v = append(v, []byte("flights"), []byte(l.tenant), []byte(strconv.Itoa(r.entity)), int64(event.Upsert), nil, int64(codecJSON),
				time.Unix(1e9, 0), nil, nil, make([]byte, r.payload), serverSum(l.uuid))
		}
		answer.values = append(answer.values, v[:len(columns)])
	}
	return answer, nil
}

type laneRows struct {
	columns []string
	values  [][]driver.Value
}

func (r *laneRows) Columns() []string { return r.columns }
func (r *laneRows) Close() error      { return nil }
func (r *laneRows) Next(dst []driver.Value) error {
	if len(r.values) == 0 {
		return io.EOF
	}
	copy(dst, r.values[0])
	r.values = r.values[1:]
	return nil
}

// laneWriters are the transactions that write to a table: each holds the lock of its entity.
type laneWriters struct {
	table    *laneTable
	rnd      *rand.Rand
	open     []*laneWriter
	serial   int
	entities int
	large    int  // bytes of one payload in eight
	slow     bool // INSERTs may take longer than the margin: what they write is found by sweeps, out of order
}

type laneWriter struct {
	entity int
	ids    []uint64
	drawn  time.Time
	wrote  bool
}

const readerMargin = 50 * time.Millisecond

func (w *laneWriters) begin() {
	entity := w.rnd.IntN(w.entities)
	if slices.ContainsFunc(w.open, func(o *laneWriter) bool { return o.entity == entity }) {
		return
	}
	o := &laneWriter{entity: entity, drawn: time.Now()}
	for range 1 + w.rnd.IntN(2) {
		o.ids = append(o.ids, w.table.next)
		w.table.next++
	}
	w.open = append(w.open, o)
}

func (w *laneWriters) write(o *laneWriter) {
	for _, id := range o.ids {
		if !o.wrote {
			w.table.rows[id] = w.row(id, o.entity)
		}
	}
	o.wrote = true
}

func (w *laneWriters) row(id uint64, entity int) *tableRow {
	w.serial++
	r := &tableRow{id: id, eventID: eventID(w.serial), entity: entity, payload: w.rnd.IntN(100)}
	if w.large > 0 && w.rnd.IntN(8) == 0 {
		r.payload = w.large
	}
	return r
}

func (w *laneWriters) end(i int, commit bool) {
	o := w.open[i]
	w.write(o)
	for _, id := range o.ids {
		if w.table.rows[id].committed = commit; !commit {
			delete(w.table.rows, id)
		}
	}
	w.open = slices.Delete(w.open, i, i+1)
}

// step lets one of them do something. An INSERT takes less than the margin, unless it is a slow one.
func (w *laneWriters) step() {
	for _, o := range w.open {
		if time.Since(o.drawn) > readerMargin/2 && !w.slow {
			w.write(o)
		}
	}
	switch i := w.rnd.IntN(10); {
	case i < 4:
		w.begin()
	case len(w.open) > 0 && i < 6 && !w.slow:
		w.write(w.open[w.rnd.IntN(len(w.open))])
	case len(w.open) > 0 && i < 9 && (!w.slow || w.rnd.IntN(8) == 0):
		w.end(w.rnd.IntN(len(w.open)), w.rnd.IntN(5) > 0)
	}
}

func testReader(t *testing.T, table *laneTable) *reader {
	r := testRouter(t, 0)
	for i := 0; table.tenant == ""; i++ {
		if name := fmt.Sprintf("T%d", i); partitioner.Lane(name, r.lanes) == 0 {
			table.tenant = name
		}
	}
	db := sql.OpenDB(table)
	t.Cleanup(func() { db.Close() })
	return &reader{db: db, router: r, gens: generations{{1, 1}}, gaps: gapTracker{margin: readerMargin}, sum: serverSum(table.uuid),
		time:      Timing{GapCheck: 5 * time.Millisecond, Sweep: 20 * time.Millisecond, Ends: 30 * time.Millisecond},
		batchSize: 8 << 10, stats: newLaneStats(0)}
}

// readSteps takes steps of the reader, which rests after each, and returns the ids that it read.
func readSteps(t *testing.T, r *reader, steps int, rest time.Duration) (ids []uint64) {
	t.Helper()
	for range steps {
		b, _, err := r.step(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if b != nil {
			for _, it := range b.items {
				ids = append(ids, it.id)
			}
		}
		time.Sleep(rest)
	}
	return ids
}

// readAll steps until all is read that will ever be, and makes sure that each committed row was read once. Where INSERTs
// take less than the margin the rows of each entity are read in the order of their commits, and none is left to a sweep.
func readAll(t *testing.T, r *reader, w *laneWriters, steps int) {
	got, last := map[uint64]bool{}, map[string]uint64{}
	quiet := 0
	for n := 0; quiet < 5 || len(r.gaps.hot) > 0; n++ {
		if n > 20*steps {
			t.Fatalf("%d gaps stay hot", countIDs(r.gaps.hotRanges()))
		}
		if n == steps { // all come to an end
			w.table.act = func(string) {}
			for len(w.open) > 0 {
				w.end(0, true)
			}
		}
		b, more, err := r.step(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if b != nil {
			for _, it := range b.items {
				entity := string(it.out.Record.Key)
				switch row := w.table.rows[it.id]; {
				case it.reason != "":
					t.Fatalf("row %d is a dead letter: %s %s", it.id, it.reason, it.detail)
				case got[it.id]:
					t.Fatalf("row %d is read twice", it.id)
				case row == nil || !row.committed || row.eventID != it.eventID:
					t.Fatalf("row %d is read as %v, it is %+v", it.id, it.eventID, row)
				case it.id < last[entity] && !w.slow:
					t.Fatalf("row %d is read after row %d of the same entity", it.id, last[entity])
				}
				got[it.id], last[entity] = true, it.id
			}
		}
		for _, c := range r.gaps.cold.ranges {
			for _, o := range w.open {
				if !w.slow && slices.ContainsFunc(o.ids, func(id uint64) bool { return c.From <= id && id <= c.To }) {
					t.Fatalf("%v turned cold, and is an open transaction's %v", c, o.ids)
				}
			}
		}
		if quiet++; n < steps+20 || more || b != nil && len(b.items) > 0 {
			quiet = 0
		}
		time.Sleep(time.Duration(w.rnd.IntN(4000)) * time.Microsecond)
	}
	for id := range w.table.committed() {
		if !got[id] {
			t.Fatalf("committed row %d is never read", id)
		}
	}
}

// The reader's own statements, with transactions that go on between any two of them.
func TestP2_ReaderAgainstATable(t *testing.T) {
	seed := rand.Uint64()
	for run := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			t.Logf("seed %d, run %d", seed, run)
			rnd := rand.New(rand.NewPCG(seed, run))
			table := &laneTable{uuid: "server-a", rows: map[uint64]*tableRow{}, next: 1}
			w := &laneWriters{table: table, rnd: rnd, entities: 4, large: []int{0, 9 << 10}[run%2], slow: run%3 == 2}
			table.act = func(string) {
				for range rnd.IntN(4) {
					w.step()
				}
			}
			readAll(t, testReader(t, table), w, 150)
		})
	}
}

// So many gaps that one statement cannot ask for all: those that do are of one moment. Between two of them a transaction
// commits whose gap was asked for, and another on the same entity.
func TestP2_ReaderAsksForManyGapsInOneSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &laneTable{uuid: "server-a", rows: map[uint64]*tableRow{}, next: 1}
		w := &laneWriters{table: table, rnd: rand.New(rand.NewPCG(1, 1)), entities: 1}
		table.act = func(string) {}
		w.begin()
		for range hotTermsMax + 10 { // every second id was rolled back
			table.next++
			table.rows[table.next] = w.row(table.next, 1)
			table.rows[table.next].committed = true
			table.next++
		}
		r := testReader(t, table)
		r.batchSize, r.time.GapCheck = 8<<20, time.Hour
		if _, _, err := r.step(t.Context()); err != nil {
			t.Fatal(err)
		}
		reads := 0
		table.act = func(statement string) {
			if strings.HasPrefix(statement, "SELECT "+rowColumns) {
				if reads++; reads == 2 {
					w.end(0, true)
					w.begin()
					w.end(0, true)
				}
			}
		}
		ids := readSteps(t, r, 3, 0)
		want := slices.Collect(maps.Keys(table.committed()))
		want = slices.DeleteFunc(want, func(id uint64) bool { return table.rows[id].entity == 1 })
		if slices.Sort(want); reads < 4 || len(want) < 2 || !slices.Equal(ids, want) {
			t.Errorf("%d statements read %v, wanted %v", reads, ids, want)
		}
	})
}

// The id up to which gaps are left out of reads is asked for before the read that asks for all of them: what commits in
// between is read, and what waited for it comes after it.
func TestP2_ReaderLeavesGapsOutUpToWhatWasDrawnBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &laneTable{uuid: "server-a", rows: map[uint64]*tableRow{}, next: 1}
		w := &laneWriters{table: table, rnd: rand.New(rand.NewPCG(1, 1)), entities: 1}
		table.act = func(string) {}
		w.begin()
		first := w.open[0].ids[0]
		for range 40 {
			table.rows[table.next] = w.row(table.next, 1)
			table.rows[table.next].committed = true
			table.next++
		}
		r := testReader(t, table)
		r.time.GapCheck, r.limit = time.Hour, 16
		asked := 0
		table.act = func(statement string) {
			if statement == lastIDSQL(0) {
				if asked++; asked == 1 {
					w.end(0, true)
					w.begin()
					w.end(0, true)
				}
			}
		}
		ids := slices.DeleteFunc(readSteps(t, r, 10, 0), func(id uint64) bool { return table.rows[id].entity != 0 })
		if asked == 0 || len(ids) < 2 || ids[0] != first || !slices.IsSorted(ids) {
			t.Errorf("of one entity %v are read, %d was drawn first", ids, first)
		}
	})
}

// A gap that no row was found in, and that the read after that did not come to, is asked for again: its INSERT took longer
// than the margin.
func TestP2_ReaderVouchesForNoMoreThanItRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &laneTable{uuid: "server-a", rows: map[uint64]*tableRow{}, next: 5}
		w := &laneWriters{table: table, rnd: rand.New(rand.NewPCG(1, 1)), entities: 1}
		table.act = func(string) {}
		for id := uint64(1); id < 5; id++ { // 3 is drawn and not written
			table.rows[id] = w.row(id, int(id))
			table.rows[id].committed = id%2 == 0
		}
		slow := table.rows[3]
		delete(table.rows, 3)
		r := testReader(t, table)
		r.time.Sweep = time.Hour
		looked := false
		table.act = func(statement string) {
			switch {
			case strings.Contains(statement, "READ UNCOMMITTED"):
				looked = true
			case looked && strings.HasPrefix(statement, "SELECT "+rowColumns): // 1 fills the batch
				table.rows[1].committed, table.rows[1].payload = true, int(r.batchSize)
				slow.committed = true
				table.rows[3] = slow
				looked = false
			}
		}
		ids := readSteps(t, r, 4, 2*readerMargin)
		if !slices.Equal(ids, []uint64{2, 4, 1, 3}) {
			t.Errorf("%v are read", ids)
		}
	})
}

// A look for the rows of open transactions that finds more of them than it may return says nothing of the others.
func TestP2_ReaderLooksAgainForGapsBeyondAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &laneTable{uuid: "server-a", rows: map[uint64]*tableRow{}, next: 1}
		table.act = func(string) {}
		put := func(n int, committed bool) {
			for range n {
				table.rows[table.next] = &tableRow{id: table.next, eventID: eventID(int(table.next)), committed: committed}
				table.next++
			}
		}
		put(1, true)
		put(foundMax, false)
		put(1, true)
		put(1, false)
		put(1, true)
		r := testReader(t, table)
		readSteps(t, r, 5, 2*readerMargin)
		if hot, cold := countIDs(r.gaps.hotRanges()), r.gaps.cold.count(); hot != foundMax+1 || cold != 0 {
			t.Errorf("%d gaps are hot and %d cold, though transactions hold %d", hot, cold, foundMax+1)
		}
	})
}

// In a backlog a gap that was filled waits no longer than for the next look at gaps.
func TestP2_ReaderAsksForGapsInABacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &laneTable{uuid: "server-a", rows: map[uint64]*tableRow{}, next: 1}
		w := &laneWriters{table: table, rnd: rand.New(rand.NewPCG(1, 1)), entities: 2}
		table.act = func(string) {}
		w.begin()
		late := w.open[0].ids[0]
		for range 5000 {
			table.rows[table.next] = w.row(table.next, w.entities)
			table.rows[table.next].committed = true
			table.next++
		}
		r := testReader(t, table)
		r.time.GapCheck = time.Second
		r.limit = 100
		for range 3 {
			if _, more, err := r.step(t.Context()); err != nil || !more {
				t.Fatalf("more is %v: %v", more, err)
			}
		}
		w.end(0, true)
		time.Sleep(r.time.GapCheck)
		b, more, err := r.step(t.Context())
		if err != nil || !more || b == nil || b.items[0].id != late {
			t.Errorf("%d rows are left: %v, %+v", table.next-r.gaps.read, err, b)
		}
	})
}

// Rows of another server than that of the take-over are not read: a proxy may have changed it.
func TestP1_ReaderKnowsAnotherServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &laneTable{uuid: "server-a", rows: map[uint64]*tableRow{}, next: 1}
		w := &laneWriters{table: table, rnd: rand.New(rand.NewPCG(1, 1)), entities: 1}
		table.act = func(string) {}
		r := testReader(t, table)
		if _, _, err := r.step(t.Context()); err != nil {
			t.Fatal(err)
		}
		table.rows[1] = w.row(1, 0)
		table.rows[1].committed, table.next = true, 2
		table.uuid = "server-b"
		if b, _, err := r.step(t.Context()); !errors.Is(err, errOtherServer) {
			t.Fatalf("%v %v", b, err)
		}
		if r.gaps.read != 0 {
			t.Errorf("row %d counts as read", r.gaps.read)
		}
		r.disconnect()
		if _, _, err := r.step(t.Context()); !errors.Is(err, errOtherServer) {
			t.Errorf("a new connection: %v", err)
		}
	})
}

// A table that is emptied while it is read: the rows that take the place of those that were read are told before they, or
// what follows them, count as read.
func TestP2_ReaderTellsATableThatWasEmptied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &laneTable{uuid: "server-a", rows: map[uint64]*tableRow{}, next: 1}
		w := &laneWriters{table: table, rnd: rand.New(rand.NewPCG(1, 1)), entities: 1}
		fill := func(n int) {
			for range n {
				table.rows[table.next] = w.row(table.next, 0)
				table.rows[table.next].committed = true
				table.next++
			}
		}
		table.act = func(string) {}
		r := testReader(t, table)
		r.time.Ends = time.Hour // the reads themselves must tell
		fill(5)
		readSteps(t, r, 2, 0)
		clear(table.rows)
		table.next = 1
		fill(9)
		if b, _, err := r.step(t.Context()); !errors.Is(err, errWentBack) || r.gaps.read != 5 {
			t.Fatalf("%v %v, read up to %d", b, err, r.gaps.read)
		}
	})
}

// More rows than one statement may put back into the lane table are put back in several, each once and none left out.
func TestP2_PurgePutsBackEachLateRow(t *testing.T) {
	rnd := random(t)
	for _, n := range []int{1, foundRows - 1, foundRows, foundRows + 1, 2*foundRows + 1, 3 * foundRows} {
		private := &laneTable{uuid: "server-a", rows: map[uint64]*tableRow{}, act: func(string) {}}
		var want idSet
		var open []idRange
		id := uint64(1)
		for left := n; left > 0; {
			from := id
			for range min(left, 1+rnd.IntN(50)) {
				private.rows[id] = &tableRow{id: id, committed: true}
				want.add(idRange{id, id}, nil)
				id += 1 + uint64(rnd.IntN(2))
				left--
			}
			open = append(open, idRange{from, id})
			id += 2
			private.rows[id-1] = &tableRow{id: id - 1, committed: true} // settled: published before
		}
		db := sql.OpenDB(private)
		p := &purger{db: db, lane: 0}
		var late []uint64
		err := p.putBack(t.Context(), purgeTable(0, 7), open, &late)
		db.Close()
		var put idSet
		for _, r := range private.put {
			put.add(r, nil)
		}
		var reported idSet
		for _, id := range late {
			reported.add(idRange{id, id}, nil)
		}
		if err != nil || len(late) != n || !slices.Equal(put.ranges, want.ranges) || !slices.Equal(reported.ranges, want.ranges) {
			t.Fatalf("%d rows: %d put back, %d reported, %v", n, put.count(), len(late), err)
		}
		if n := countIDs(private.put); n != put.count() {
			t.Fatalf("%d rows are put back in statements for %d", put.count(), n)
		}
	}
}
