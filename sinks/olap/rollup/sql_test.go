package rollup

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

// noteDB notes the statements that it is told, with their arguments; it knows the digest of one group.
type noteDB struct {
	digest string // "" for no row
	log    []string
	args   [][]driver.Value
}

func (d *noteDB) Connect(context.Context) (driver.Conn, error) { return noteConn{d}, nil }
func (d *noteDB) Driver() driver.Driver                        { return nil }

func (d *noteDB) note(statement string, args []driver.NamedValue) {
	var values []driver.Value
	for _, a := range args {
		values = append(values, a.Value)
	}
	d.log, d.args = append(d.log, statement), append(d.args, values)
}

// told says whether a statement that begins so was executed.
func (d *noteDB) told(prefix string) bool {
	return slices.ContainsFunc(d.log, func(s string) bool { return strings.HasPrefix(s, prefix) })
}

type noteConn struct{ d *noteDB }

func (c noteConn) Prepare(string) (driver.Stmt, error) { return nil, errors.New("nothing is prepared") }
func (c noteConn) Close() error                        { return nil }
func (c noteConn) Begin() (driver.Tx, error)           { c.d.note("BEGIN", nil); return c, nil }
func (c noteConn) Commit() error                       { c.d.note("COMMIT", nil); return nil }
func (c noteConn) Rollback() error                     { c.d.note("ROLLBACK", nil); return nil }
func (c noteConn) CheckNamedValue(v *driver.NamedValue) error {
	var err error
	if _, unsigned := v.Value.(uint64); !unsigned { // marks use all bits
		v.Value, err = driver.DefaultParameterConverter.ConvertValue(v.Value)
	}
	return err
}

func (c noteConn) ExecContext(_ context.Context, statement string, args []driver.NamedValue) (driver.Result, error) {
	c.d.note(statement, args)
	return driver.RowsAffected(1), nil
}

func (c noteConn) QueryContext(_ context.Context, statement string, args []driver.NamedValue) (driver.Rows, error) {
	c.d.note(statement, args)
	return &noteRows{c.d.digest}, nil
}

type noteRows struct{ digest string }

func (r *noteRows) Columns() []string { return []string{"digest"} }
func (r *noteRows) Close() error      { return nil }
func (r *noteRows) Next(dst []driver.Value) error {
	if r.digest == "" {
		return io.EOF
	}
	dst[0], r.digest = r.digest, ""
	return nil
}

// Two groups that mark one pair lock rows in one order; all marks of a call are the same, and no two calls have one.
func TestMarksAreInOrder(t *testing.T) {
	d := &noteDB{}
	db := sql.OpenDB(d)
	defer db.Close()
	var before driver.Value
	for range 2 {
		touched := []Touched{{"b", Pair{"UA", 1}}, {"a", Pair{"UA", 2}}, {"a", Pair{"AA", 9}}, {"a", Pair{"UA", -1}}}
		if err := Mark(t.Context(), db, "x", touched); err != nil {
			t.Fatal(err)
		}
		args := d.args[len(d.args)-1]
		mark := args[len(args)-1]
		want := []driver.Value{"x", "a", "AA", int64(9), mark, "x", "a", "UA", int64(-1), mark, "x", "a", "UA", int64(2), mark, "x", "b", "UA", int64(1), mark, mark}
		if !slices.Equal(args, want) || mark == before {
			t.Errorf("%v\nwanted %v", args, want)
		}
		before = mark
	}
	if want := "INSERT INTO `slotline_rollup_touched` (`sink`,`rollup`,`tenant`,`day`,`mark`,`touched_at`) VALUES " +
		"(?,?,?,?,?,UTC_TIMESTAMP(6)),(?,?,?,?,?,UTC_TIMESTAMP(6)),(?,?,?,?,?,UTC_TIMESTAMP(6)),(?,?,?,?,?,UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE `mark`=?"; d.log[0] != want {
		t.Errorf("%s\nwanted %s", d.log[0], want)
	}
}

// A pair that was touched again since it was read keeps its mark: what is cleared is named by its mark too.
func TestP9_ClearSparesWhatWasTouchedAgain(t *testing.T) {
	d := &noteDB{}
	db := sql.OpenDB(d)
	defer db.Close()
	list := []marked{{Pair{"UA", 1}, 11}, {Pair{"AA", 2}, 1<<64 - 1}}
	if err := (state{db, "x", "r"}).clear(t.Context(), list, "2026-11-30 12:00:00.000001"); err != nil {
		t.Fatal(err)
	}
	if len(d.log) != 2 || d.log[0] != "DELETE FROM `slotline_rollup_touched` WHERE `sink`=? AND `rollup`=? AND (`tenant`,`day`,`mark`) IN ((?,?,?),(?,?,?))" ||
		!slices.Equal(d.args[0], []driver.Value{"x", "r", "UA", int64(1), uint64(11), "AA", int64(2), uint64(1<<64 - 1)}) {
		t.Errorf("%q %v", d.log, d.args)
	}
}

// A take-over fills the rollups where the owner before marked for others, or left a batch that marked nothing; a fill has a
// number that a restored database has not given yet.
func TestP9_TakeOverFillsWhatWasNotMarked(t *testing.T) {
	for _, c := range []struct {
		name, before string
		left, fills  bool
	}{
		{"as before", "d1", false, false},
		{"as before, a batch was given up", "d1", true, true},
		{"other rollups", "d0", false, true},
		{"the first take-over", "", false, true},
	} {
		d := &noteDB{digest: c.before}
		db := sql.OpenDB(d)
		if err := TakeGroup(t.Context(), db, "x", 3, "d1", c.left); err != nil {
			t.Fatal(err)
		}
		db.Close()
		fills := d.told("UPDATE `slotline_rollup` SET `fills_wanted`=GREATEST(`fills_wanted`+1, CAST(UNIX_TIMESTAMP(NOW(6))*1000000 AS UNSIGNED)) WHERE `sink`=?")
		if fills != c.fills || fills != d.told("REPLACE INTO `slotline_rollup_group`") || fills != d.told("COMMIT") {
			t.Errorf("%s: %q", c.name, d.log)
		}
		if !strings.HasSuffix(d.log[1], " FOR UPDATE") {
			t.Errorf("%s: the group is not locked: %q", c.name, d.log)
		}
	}
}
