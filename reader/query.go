package reader

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/partitioner"
)

// Query asks for rows of one tenant that are not deleted, in order of month and, within a month, of id.
type Query struct {
	Table  string
	Tenant string    // canonical text, an integer in decimal; "" for a broadcast table
	From   time.Time // rows whose month column says a time from this one on; zero: from the first
	To     time.Time // and before this one; zero: to the last
	ID     string    // one entity; "": all
	Spread string    // canonical text of the spread column: only the slot of a spread tenant that has it; "": all of them
	// Columns is what is selected, as SQL writes it: "flight_id, status". "" selects every column, in the file's order.
	Columns string
	// Where is a condition on top of those that follow from the fields above, as SQL writes it, with a ? for each of Args.
	Where string
	Args  []any

	Descending bool
	Limit      int    // rows at most; 0: all there are
	After      string // Row.Cursor of the last row of the page before; "": from the beginning
}

// Row is a row of a Query, while the loop is at it.
type Row struct {
	rows    *sql.Rows
	place   Place
	id      []byte // canonical text
	ver     int64
	columns int
}

// Scan copies the selected columns, as *sql.Rows does.
func (r *Row) Scan(dest ...any) error {
	all := make([]any, 0, 2+len(dest))
	return r.rows.Scan(append(append(all, unread{}, unread{}), dest...)...)
}

// unread takes a column that nobody looks at.
type unread struct{}

func (unread) Scan(any) error { return nil }

// idText takes an id's canonical text, and keeps it: the driver's own bytes are gone at the next Scan.
type idText []byte

func (t *idText) Scan(v any) error {
	switch v := v.(type) {
	case []byte:
		*t = append((*t)[:0], v...)
	case string:
		*t = append((*t)[:0], v...)
	default: // integers
		*t = fmt.Append((*t)[:0], v)
	}
	return nil
}

// Columns are the names of what was selected.
func (r *Row) Columns() ([]string, error) {
	names, err := r.rows.Columns()
	if err != nil {
		return nil, err
	}
	return names[2:], nil
}

// Version is the version of the event that made the row: `_ver` without its last bit.
func (r *Row) Version() int64 { return r.ver / 2 }

// Place is where the row is.
func (r *Row) Place() Place { return r.place }

// Cursor is what Query.After takes to go on behind this row.
func (r *Row) Cursor() string {
	month := ""
	if r.place.Month != partitioner.NoMonth {
		month = r.place.Month.String()
	}
	return month + "/" + string(r.id)
}

// Query runs q and yields its rows; a page is read from one month after the other, of several shards side by side. After an error it
// ends. A row is valid until the loop goes on.
func (r *Reader) Query(ctx context.Context, q Query) iter.Seq2[*Row, error] {
	return func(yield func(*Row, error) bool) {
		t, err := r.table(q.Table, q.Tenant)
		var after cursor
		if err == nil {
			after, err = q.check(t)
		}
		var places []Place
		if err == nil {
			places, err = r.places(ctx, t, q.Tenant, q.Spread, q.From, q.To)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		if t.Broadcast() && len(places) > 1 {
			places = places[:1] // each shard has them all
		}
		left := q.Limit
		if left == 0 {
			left = math.MaxInt
		}
		for _, month := range months(places, q.Descending) {
			if left == 0 {
				return
			}
			if after.set && after.passed(month[0].Month, q.Descending) {
				continue
			}
			more, err := r.month(ctx, t, &q, month, after, &left, yield)
			if err != nil {
				yield(nil, err)
				return
			}
			if !more {
				return
			}
		}
	}
}

// months are the places month by month, in the order of a query.
func months(places []Place, descending bool) (list [][]Place) {
	for _, p := range places {
		if n := len(list); n > 0 && list[n-1][0].Month == p.Month {
			list[n-1] = append(list[n-1], p)
		} else {
			list = append(list, []Place{p})
		}
	}
	if descending {
		slices.Reverse(list)
	}
	return list
}

// cursor is where a page ended.
type cursor struct {
	set   bool
	month partitioner.Month
	id    string
}

// passed says that the month lies before the cursor's.
func (c cursor) passed(m partitioner.Month, descending bool) bool {
	if descending {
		return m > c.month
	}
	return m < c.month
}

// check refuses what no row can be found by, and reads the cursor.
func (q *Query) check(t *event.Table) (after cursor, err error) {
	use := func(format string, args ...any) error {
		return &fault.Error{Code: codeUse, Class: fault.Usage, What: fmt.Sprintf("table %s: ", t.Name) + fmt.Sprintf(format, args...)}
	}
	if t.Month == event.None && (!q.From.IsZero() || !q.To.IsZero()) {
		return after, use("it has no month column, and From or To is set")
	}
	if q.Limit < 0 {
		return after, use("Limit is %d", q.Limit)
	}
	if t.Spread == event.None && q.Spread != "" {
		return after, use("it has no spread column, and Spread is set")
	}
	keys := []struct {
		name, text string
		col        int
	}{{"ID", q.ID, t.ID}, {"Spread", q.Spread, t.Spread}}
	if q.After != "" {
		month, id, ok := strings.Cut(q.After, "/")
		after = cursor{set: true, id: id}
		if ok && t.Month != event.None {
			after.month, err = partitioner.ParseMonth(month)
		}
		if !ok || err != nil || id == "" || t.Month == event.None && month != "" {
			return after, use("After is %.70q, which is no cursor of it", q.After)
		}
		keys = append(keys, struct {
			name, text string
			col        int
		}{"After", id, t.ID})
	}
	for _, k := range keys {
		if k.text == "" {
			continue
		}
		if problem := wrongKey(t, k.col, k.text); problem != "" {
			return after, use("%s is %.70q, and %s", k.name, k.text, problem)
		}
	}
	return after, nil
}

// month yields the rows of one month, of all its places in order of id; more is false where the loop has ended.
func (r *Reader) month(ctx context.Context, t *event.Table, q *Query, places []Place, after cursor, left *int, yield func(*Row, error) bool) (more bool, err error) {
	if after.set && after.month != places[0].Month {
		after = cursor{}
	}
	var heads []*Row
	defer func() {
		for _, h := range heads {
			h.rows.Close()
		}
	}()
	for _, p := range places {
		query, args := q.sql(t, p.Table, after, *left)
		rows, err := p.DB.QueryContext(ctx, query, args...)
		if mysqldb.Number(err) == 1146 { // retired since its name was read
			r.forget(p.Shard)
			continue
		}
		if err != nil {
			return false, readError(err, p)
		}
		h := &Row{rows: rows, place: p}
		heads = append(heads, h)
		names, err := rows.Columns()
		if err != nil {
			return false, readError(err, p)
		}
		h.columns = len(names)
		if heads, err = advance(heads, h); err != nil {
			return false, err
		}
	}
	for len(heads) > 0 && *left > 0 {
		first := heads[0]
		for _, h := range heads[1:] {
			if c := compareIDs(t, h.id, first.id); c < 0 != q.Descending && c != 0 {
				first = h
			}
		}
		*left--
		if !yield(first, nil) {
			return false, nil
		}
		if heads, err = advance(heads, first); err != nil {
			return false, err
		}
	}
	return true, nil
}

// advance goes to the next row of h, and takes it from the list at its end.
func advance(heads []*Row, h *Row) ([]*Row, error) {
	if h.rows.Next() {
		dest := []any{(*idText)(&h.id), &h.ver}
		for range h.columns - 2 {
			dest = append(dest, unread{})
		}
		if err := h.rows.Scan(dest...); err != nil {
			return heads, readError(err, h.place)
		}
		return heads, nil
	}
	if err := h.rows.Err(); err != nil {
		return heads, readError(err, h.place)
	}
	h.rows.Close()
	return slices.DeleteFunc(heads, func(o *Row) bool { return o == h }), nil
}

func readError(err error, p Place) error {
	return mysqldb.Wrap(err, codeRead, fmt.Sprintf("shard %s, table %s", p.Shard, p.Table))
}

// compareIDs orders two ids as the shards' primary keys do: integers by value, strings by their bytes.
func compareIDs(t *event.Table, a, b []byte) int {
	if t.Columns[t.ID].Type.Kind == event.String {
		return bytes.Compare(a, b)
	}
	negative := func(n []byte) bool { return len(n) > 0 && n[0] == '-' }
	switch na, nb := negative(a), negative(b); {
	case na && nb:
		a, b = b[1:], a[1:]
	case na:
		return -1
	case nb:
		return 1
	}
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return bytes.Compare(a, b)
}

// sql is the statement for one physical table.
func (q *Query) sql(t *event.Table, table string, after cursor, limit int) (query string, args []any) {
	name := func(col int) string { return mysqldb.Ident(t.Columns[col].Name) }
	var b strings.Builder
	b.WriteString("SELECT " + name(t.ID) + ", `_ver`, ")
	if q.Columns != "" {
		b.WriteString(q.Columns)
	} else {
		for col := range t.Columns {
			if col > 0 {
				b.WriteString(", ")
			}
			b.WriteString(name(col))
		}
	}
	b.WriteString(" FROM " + mysqldb.Ident(table) + " WHERE `_deleted` = 0")
	and := func(condition string, more ...any) {
		b.WriteString(" AND " + condition)
		args = append(args, more...)
	}
	if !t.Broadcast() {
		and(name(t.Tenant)+" = ?", t.Columns[t.Tenant].KeyArgument(q.Tenant))
	}
	if q.ID != "" {
		and(name(t.ID)+" = ?", t.Columns[t.ID].KeyArgument(q.ID))
	}
	if q.Spread != "" {
		and(name(t.Spread)+" = ?", t.Columns[t.Spread].KeyArgument(q.Spread))
	}
	if !q.From.IsZero() {
		and(name(t.Month)+" >= ?", bound(t, q.From))
	}
	if !q.To.IsZero() {
		and(name(t.Month)+" < ?", bound(t, q.To))
	}
	if after.set {
		and(name(t.ID)+map[bool]string{false: " > ?", true: " < ?"}[q.Descending], t.Columns[t.ID].KeyArgument(after.id))
	}
	if q.Where != "" {
		and("("+q.Where+")", q.Args...)
	}
	b.WriteString(" ORDER BY " + name(t.ID))
	if q.Descending {
		b.WriteString(" DESC")
	}
	if limit < math.MaxInt {
		b.WriteString(" LIMIT " + strconv.Itoa(limit))
	}
	return b.String(), args
}

// bound is the least value of the month column that says the time or a later one.
func bound(t *event.Table, at time.Time) any {
	at = at.UTC()
	switch {
	case t.SnowflakeEpoch != nil:
		millis := max(0, at.Sub(*t.SnowflakeEpoch)+time.Millisecond-1) / time.Millisecond
		return int64(millis) << 22
	case t.Columns[t.Month].Type.Kind == event.Date:
		day := time.Date(at.Year(), at.Month(), at.Day(), 0, 0, 0, 0, time.UTC)
		if day.Before(at) {
			day = day.AddDate(0, 0, 1)
		}
		return day.Format(time.DateOnly)
	}
	if micros := at.Truncate(time.Microsecond); micros.Before(at) {
		at = micros.Add(time.Microsecond)
	}
	return at.Format("2006-01-02 15:04:05.000000")
}
