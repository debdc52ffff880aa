package intent

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/lease"
	"github.com/slotline/slotline/sinks/olap/rollup"
)

// oneStore is the state of one group of one partition, and what was asked of it.
type oneStore struct {
	row    row
	stand  progress.Row
	lost   chan struct{}
	fence  lease.Fence // that acquire gives
	puts   []Intent
	left   []bool
	script func(s *oneStore) (done bool) // what becomes of a commit; nil: it is carried out
}

type oneHold struct{ s *oneStore }

func (h oneHold) Fence() lease.Fence              { return h.s.fence }
func (h oneHold) Lost() <-chan struct{}           { return h.s.lost }
func (h oneHold) Keep(ctx context.Context) error  { <-ctx.Done(); return nil }
func (h oneHold) Release(_ context.Context) error { return nil }

func (s *oneStore) acquire(context.Context, int, string, time.Duration) (hold, error) {
	return oneHold{s}, nil
}

func (s *oneStore) takeProgress(_ context.Context, _ event.Partition, owner string) (progress.Row, error) {
	s.stand.OwnerEpoch++
	s.stand.Owner = owner
	return s.stand, nil
}

func (s *oneStore) releaseProgress(context.Context, event.Partition, lease.Fence) error { return nil }

func (s *oneStore) read(context.Context, int, []event.Partition) (row, []progress.Row, error) {
	return s.row, []progress.Row{s.stand}, nil
}

func (s *oneStore) put(_ context.Context, _ int, fence lease.Fence, i Intent) (bool, error) {
	if s.row.fence != fence {
		return false, nil
	}
	s.puts = append(s.puts, i)
	s.row.intent, s.row.confirmed = i, false
	return true, nil
}

func (s *oneStore) takeRollups(_ context.Context, _ int, _ string, left bool) error {
	s.left = append(s.left, left)
	return nil
}

func (s *oneStore) commit(_ context.Context, _ int, _ lease.Fence, _ *Intent, advances []progress.Advance, _ []rollup.Touched) (bool, error) {
	if s.script != nil {
		return s.script(s), nil
	}
	s.stand.Next, s.row.confirmed = advances[0].End, true
	return true, nil
}

var onePart = event.Partition{Topic: "t.events", Number: 2}

func oneRange(from, to int64) []event.Range {
	return []event.Range{{Partition: onePart, From: from, To: to, LeaderEpoch: 1}}
}

func newOneStore(next int64, confirmed bool, ranges []event.Range) *oneStore {
	s := &oneStore{lost: make(chan struct{}), fence: lease.Fence{Owner: "us", Epoch: 4}}
	s.row = row{fence: s.fence, confirmed: confirmed, intent: Intent{Run: Run{1}, Seq: 7, Codec: 1, Ranges: ranges}}
	s.stand = progress.Row{Key: progress.Key{Sink: "x", Partition: onePart}, Next: next, LeaderEpoch: 1}
	return s
}

func (s *oneStore) takeOver(t *testing.T) (*Group, error) {
	t.Helper()
	g, err := (&State{o: Options{Sink: "x", Place: "twin", Owner: "us", LeaseTime: time.Minute, Codec: 1}, store: s}).
		TakeOver(t.Context(), 0, []event.Partition{onePart})
	if err == nil {
		t.Cleanup(func() { g.Release(context.Background()) })
	}
	return g, err
}

func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	if fault.CodeOf(err) != code {
		t.Errorf("%v, wanted %s", err, code)
	}
}

// An owner whose lease has run out stores nothing, and so sends nothing, though nobody took over yet.
func TestP5_LostLeaseStoresNothing(t *testing.T) {
	s := newOneStore(10, true, nil)
	g, err := s.takeOver(t)
	if err != nil {
		t.Fatal(err)
	}
	close(s.lost)
	_, err = g.Begin(t.Context(), oneRange(10, 15), nil)
	wantCode(t, err, codeFenced)
	if len(s.puts) > 0 {
		t.Errorf("%v was stored", s.puts)
	}
}

// One that was replaced finds out before it stores a batch, and while it takes over.
func TestP5_ReplacedOwnerStoresNothing(t *testing.T) {
	s := newOneStore(10, true, nil)
	g, err := s.takeOver(t)
	if err != nil {
		t.Fatal(err)
	}
	s.row.fence = lease.Fence{Owner: "them", Epoch: 5}
	i, err := g.Begin(t.Context(), oneRange(10, 15), nil)
	wantCode(t, err, codeFenced)
	if i != nil || len(s.puts) > 0 {
		t.Errorf("%v was stored, and is to be sent", s.puts)
	}
	_, err = s.takeOver(t)
	wantCode(t, err, codeFenced)
}

// A batch of an owner before that was perhaps sent and will not be sent again has marked nothing: its rollups are filled.
func TestP9_BatchThatIsGivenUpFillsRollups(t *testing.T) {
	for _, c := range []struct {
		name      string
		next      int64
		confirmed bool
		ranges    []event.Range
		pending   bool
		left      bool
	}{
		{"nothing was sent", 10, true, nil, false, false},
		{"it was confirmed", 15, true, oneRange(10, 15), false, false},
		{"it is sent again", 10, false, oneRange(10, 15), true, false},
		{"a gap was accepted", 12, false, oneRange(10, 15), false, true},
		{"progress was set back", 3, false, oneRange(10, 15), false, true},
	} {
		s := newOneStore(c.next, c.confirmed, c.ranges)
		g, err := s.takeOver(t)
		if err != nil {
			t.Fatal(err)
		}
		if (g.Pending() != nil) != c.pending || !slices.Equal(s.left, []bool{c.left}) {
			t.Errorf("%s: pending %v, given up: %v", c.name, g.Pending(), s.left)
		}
	}
}

// A batch whose rows a later release makes in another way cannot be sent again as it was.
func TestP9_BatchOfALaterReleaseIsRefused(t *testing.T) {
	s := newOneStore(10, false, oneRange(10, 15))
	s.row.intent.Codec = 2
	_, err := s.takeOver(t)
	wantCode(t, err, codeNewer)
}

// The state was restored while a batch of the owner before was on its way: what is cut below it is a batch of its own, and
// has a greater number than any before.
func TestP9_BatchesAfterARestoreAreNew(t *testing.T) {
	s := newOneStore(10, false, oneRange(10, 15))
	g, err := s.takeOver(t)
	if err != nil {
		t.Fatal(err)
	}
	i, err := g.Begin(t.Context(), oneRange(10, 15), nil)
	if err != nil || i.Seq != 7 || i.Run != (Run{1}) {
		t.Fatalf("%+v, %v", i, err)
	}
	s.oneRestore(5, 3)
	var rewound *event.Rewound
	if err := g.Commit(t.Context(), i, oneRange(10, 15)); !errors.As(err, &rewound) || rewound.Positions[0].Next != 5 {
		t.Fatal(err)
	}
	s.script = nil
	for at := int64(5); at < 20; at += 5 {
		i, err := g.Begin(t.Context(), oneRange(at, at+5), nil)
		if err != nil || i.Seq != 8+(at-5)/5 || i.Run == (Run{1}) {
			t.Fatalf("from %d: %+v, %v", at, i, err)
		}
		if err := g.Commit(t.Context(), i, oneRange(at, at+5)); err != nil {
			t.Fatal(err)
		}
	}
}

// oneRestore has the state go back while a commit is on its way: to an offset and the intent of a number.
func (s *oneStore) oneRestore(next, seq int64) {
	s.script = func(s *oneStore) bool {
		s.stand.Next = next
		s.row.intent = Intent{Run: Run{1}, Seq: seq, Codec: 1}
		return false
	}
}

// rowsDB is a database that says of each UPDATE how many rows it found, and notes what it is told.
type rowsDB struct {
	found func(statement string) int64
	log   []string
}

func (d *rowsDB) Connect(context.Context) (driver.Conn, error) { return rowsConn{d}, nil }
func (d *rowsDB) Driver() driver.Driver                        { return nil }

type rowsConn struct{ d *rowsDB }

func (c rowsConn) Prepare(string) (driver.Stmt, error) { return nil, errors.New("nothing is prepared") }
func (c rowsConn) Close() error                        { return nil }
func (c rowsConn) Begin() (driver.Tx, error)           { c.d.log = append(c.d.log, "BEGIN"); return c, nil }
func (c rowsConn) Commit() error                       { c.d.log = append(c.d.log, "COMMIT"); return nil }
func (c rowsConn) Rollback() error                     { c.d.log = append(c.d.log, "ROLLBACK"); return nil }
func (c rowsConn) CheckNamedValue(*driver.NamedValue) error {
	return nil
}
func (c rowsConn) ExecContext(_ context.Context, statement string, _ []driver.NamedValue) (driver.Result, error) {
	c.d.log = append(c.d.log, statement)
	return driver.RowsAffected(c.d.found(statement)), nil
}

// Confirmation, progress of all partitions and marks are committed together or not at all, whichever finds no row.
func TestP9_CommitIsAllOrNothing(t *testing.T) {
	advances := []progress.Advance{{Key: progress.Key{Sink: "x", Partition: onePart}, Start: 10, End: 15},
		{Key: progress.Key{Sink: "x", Partition: event.Partition{Topic: "t.events", Number: 7}}, Start: 1, End: 2}}
	touched := []rollup.Touched{{Rollup: "r", Pair: rollup.Pair{Tenant: "UA", Day: 3}}}
	for _, confirm := range []*Intent{nil, {Seq: 8}} {
		for _, missing := range []string{"", "slotline_intent", "`part`=2 ", "`part`=7 "} {
			d := &rowsDB{found: func(statement string) int64 {
				if missing != "" && strings.Contains(statement, missing) {
					return 0
				}
				return 1
			}}
			db := sql.OpenDB(d)
			done, err := sqlStore{db, "x"}.commit(t.Context(), 0, lease.Fence{Owner: "us", Epoch: 4}, confirm, advances, touched)
			db.Close()
			last := d.log[len(d.log)-1]
			if whole := missing == ""; err != nil || done != whole || (last == "COMMIT") != whole || slices.Contains(d.log, "COMMIT") != whole || !whole && last != "ROLLBACK" {
				t.Errorf("no row of %q: done %v, %v:\n%s", missing, done, err, strings.Join(d.log, "\n"))
			}
			if missing == "" && !slices.ContainsFunc(d.log, func(s string) bool { return strings.HasPrefix(s, "INSERT INTO `slotline_rollup_touched`") }) {
				t.Errorf("what was touched is not marked:\n%s", strings.Join(d.log, "\n"))
			}
		}
	}
}
