package reader

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
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
	// Columns is what is selected, as SQL writes it: "flight_id, status". "" and "*" select every column, in the file's order. A
	// function over several rows, as COUNT(*), would be of one month's page: write that on Places.
	Columns string
	// Where is a condition on top of those that follow from the fields above, as SQL writes it, with a ? for each of Args. It is the
	// program's text, never a user's: a user's values are Args.
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
//
// The loop holds a connection to each shard that it reads until it ends: one that asks the reader for more in its body needs
// further ones, and where all are taken by such loops none goes on. Collect the rows first, or ask by another Reader.
func (r *Reader) Query(ctx context.Context, q Query) iter.Seq2[*Row, error] {
	return func(yield func(*Row, error) bool) {
		t, err := r.table(q.Table, q.Tenant)
		var after cursor
		if err == nil {
			after, err = q.check(t)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		if t.Broadcast() {
			err = r.anyShard(ctx, t, &q, after, yield)
		} else if places, perr := r.places(ctx, t, q.Tenant, q.Spread, q.From, q.To); perr != nil {
			err = perr
		} else {
			_, err = r.read(ctx, t, &q, places, after, yield)
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// read yields the rows of the places; begun says that there was one.
func (r *Reader) read(ctx context.Context, t *event.Table, q *Query, places []Place, after cursor, yield func(*Row, error) bool) (begun bool, err error) {
	left := q.Limit
	if left == 0 {
		left = math.MaxInt
	}
	most := left
	for _, month := range months(places, q.Descending) {
		if left == 0 {
			break
		}
		if after.set && after.passed(month[0].Month, q.Descending) {
			continue
		}
		more, err := r.month(ctx, t, q, month, after, &left, yield)
		if err != nil || !more {
			return left < most, err
		}
	}
	return left < most, nil
}

// anyShard reads a broadcast table from the shard that answered last, or else from the next that does: each has all of it.
func (r *Reader) anyShard(ctx context.Context, t *event.Table, q *Query, after cursor, yield func(*Row, error) bool) error {
	var errs []error
	names := r.shardNames()
	r.mu.Lock()
	first := max(0, slices.Index(names, r.answers))
	r.mu.Unlock()
	for i := range names {
		name := names[(first+i)%len(names)]
		ask, cancel := context.WithTimeout(ctx, lookMost)
		places, err := r.placesIn(ask, t, []string{name}, q.From, q.To)
		cancel()
		begun := false
		if err == nil {
			r.mu.Lock()
			r.answers = name
			r.mu.Unlock()
			begun, err = r.read(ctx, t, q, places, after, yield)
		}
		if err == nil || begun || ctx.Err() != nil {
			return err
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
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
	if !balanced(q.Where) {
		return after, use("Where is %.70q, whose parentheses or quotes do not match", q.Where)
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

// balanced says that a condition within parentheses stays within them: that its own match, outside of quotes.
func balanced(where string) bool {
	depth, quote := 0, byte(0)
	for i := 0; i < len(where); i++ {
		c := where[i]
		switch {
		case quote != 0:
			if c == '\\' && quote != '`' {
				i++
			} else if c == quote {
				quote = 0 // one that is doubled begins the next
			}
		case c == '\'' || c == '"' || c == '`':
			quote = c
		case c == '(':
			depth++
		case c == ')':
			if depth--; depth < 0 {
				return false
			}
		}
	}
	return depth == 0 && quote == 0
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
	// With the table's name, since ORDER BY would take an alias in Columns before a column.
	name := func(col int) string { return mysqldb.Ident(table) + "." + mysqldb.Ident(t.Columns[col].Name) }
	var b strings.Builder
	b.WriteString("SELECT " + name(t.ID) + ", `_ver`, ")
	if q.Columns != "" && q.Columns != "*" {
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
		switch value, lies := bound(t, q.From); lies {
		case among:
			and(name(t.Month)+" >= ?", value)
		case aboveAll:
			and("FALSE")
		}
	}
	if !q.To.IsZero() {
		switch value, lies := bound(t, q.To); lies {
		case among:
			and(name(t.Month)+" < ?", value)
		case belowAll:
			and("FALSE")
		}
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

// Where a bound lies, of all the values that a month column can have.
const (
	belowAll = -1 // no value is lower
	among    = 0
	aboveAll = 1 // no value is as high
)

// bound is the least value of the month column that says the time or a later one.
func bound(t *event.Table, at time.Time) (value any, lies int) {
	at = at.UTC()
	if t.SnowflakeEpoch != nil {
		// Not by a Duration, which ends after 292 years.
		seconds, nanos := at.Unix()-t.SnowflakeEpoch.Unix(), int64(at.Nanosecond()-t.SnowflakeEpoch.Nanosecond())
		millis := seconds*1000 + int64(math.Ceil(float64(nanos)/1e6))
		most := int64(math.MaxInt64 >> 22)
		if t.Columns[t.Month].Type.Kind == event.Uint64 {
			most = math.MaxUint64 >> 22
		}
		switch {
		case millis <= 0:
			return nil, belowAll
		case millis > most:
			return nil, aboveAll
		case t.Columns[t.Month].Type.Kind == event.Uint64:
			return uint64(millis) << 22, among
		}
		return millis << 22, among
	}
	form, step := "2006-01-02 15:04:05.000000", time.Microsecond
	if t.Columns[t.Month].Type.Kind == event.Date {
		form, step = time.DateOnly, 24*time.Hour
	}
	if down := at.Truncate(step); down.Before(at) { // of days too: the zero time is a midnight
		at = down.Add(step)
	}
	switch {
	case at.Year() > 9999:
		return nil, aboveAll
	case at.Year() < 1:
		return nil, belowAll
	}
	return at.Format(form), among
}
