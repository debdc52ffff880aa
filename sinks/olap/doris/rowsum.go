package doris

import (
	"context"
	"database/sql"
	"encoding/base64"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/rowsum"
	"github.com/slotline/slotline/partitioner"
)

// Tenants are summed up by Doris; of single rows it tells the values, and the sum is made here. So a release that writes a
// value otherwise costs time, when sums differ that need not, and finds no difference where there is none.
//
// The functions are those that Doris 2.1 and MySQL have by the same names, with the same results: SHA2, CONV, LEFT, SUBSTRING,
// CONCAT, LENGTH (of bytes), IF, IFNULL, FROM_BASE64, DATE_FORMAT (with %f), CAST AS DECIMAL. Doris's are described at
// doris.apache.org/docs/2.1/sql-manual/sql-functions/; CONV is given eight digits at a time, because Doris reads a number of
// more bits as signed (be/src/vec/functions/function_conv.cpp).

// ByRow says that a table's sums say nothing: Doris has no function for the bytes of a DOUBLE, and writes JSON as it came.
func (s *Sink) ByRow(t *event.Table) bool { return byRow(t) }

func byRow(t *event.Table) bool {
	for _, c := range t.Columns {
		if c.Type.Kind == event.Float64 || c.Type.Kind == event.JSON {
			return true
		}
	}
	return false
}

// rowText is the text of a row that package rowsum describes, for a table that is not compared by rows.
func rowText(t *event.Table) string {
	texts := func(deleted bool) string {
		parts := []string{ident(verColumn), "','", "IF(" + ident(deletedColumn) + ", '1', '0')"}
		for i, c := range t.Columns {
			if rowsum.Counts(t, i, deleted) {
				parts = append(parts, "','", valueText(c))
			}
		}
		return "CONCAT(" + strings.Join(parts, ", ") + ")"
	}
	return "IF(" + ident(verColumn) + " % 2 = 1, " + texts(true) + ", " + texts(false) + ")"
}

func valueText(c event.Column) string {
	text := ident(c.Name)
	sized := func(value string) string { return "CONCAT(LENGTH(" + value + "), ':', " + value + ")" }
	switch c.Type.Kind {
	case event.Bool: // as text it is 1 or true, by release
		text = "IF(" + text + ", '1', '0')"
		if c.Nullable { // IF takes NULL for false
			return "IF(" + ident(c.Name) + " IS NULL, 'N', " + text + ")"
		}
	case event.Datetime:
		text = "DATE_FORMAT(" + text + ", '%Y-%m-%d %H:%i:%s.%f')"
	case event.String, event.Text:
		text = sized(text)
	case event.Bytes:
		text = sized("FROM_BASE64(" + text + ")")
	default:
		text = "CONCAT(" + text + ")"
	}
	if c.Nullable {
		return "IFNULL(" + text + ", 'N')"
	}
	return text
}

// ofMonth is the condition that a row is in one of some months; it goes by the column of the partition.
func ofMonth(t *event.Table, months ...partitioner.Month) string {
	if t.Month == event.None {
		return "1 = 1"
	}
	days := make([]string, len(months))
	for i, m := range months {
		days[i] = "'" + firstDay(m) + "'"
	}
	return ident(monthColumn) + " IN (" + strings.Join(days, ", ") + ")"
}

// firstDay is the first day of a month, as text.
func firstDay(m partitioner.Month) string { return fmt.Sprintf("%04d-%02d-01", int(m)/100, int(m)%100) }

// between is the condition that a key column lies after one value and up to another; nil is no bound.
func between(c event.Column, after, upTo *string) (where string) {
	if after != nil {
		where += " AND " + ident(c.Name) + " > " + keyValue(c, *after)
	}
	if upTo != nil {
		where += " AND " + ident(c.Name) + " <= " + keyValue(c, *upTo)
	}
	return where
}

// tenantSumsSQL sums up the first and the last four of the eight bytes apart.
func tenantSumsSQL(t *event.Table, months []partitioner.Month, after, upTo *string, tenants int) string {
	hash, sums := "SHA2("+rowText(t)+", 256)", "SUM(CAST(CONV(LEFT(`_h`, 8), 16, 10) AS DECIMAL(20,0))), SUM(CAST(CONV(SUBSTRING(`_h`, 9, 8), 16, 10) AS DECIMAL(20,0)))"
	if byRow(t) {
		hash, sums = "''", "0, 0"
	}
	if t.Broadcast() {
		return fmt.Sprintf("SELECT '', '', COUNT(*), %s FROM (SELECT %s AS `_h` FROM %s) AS s", sums, hash, ident(t.Name))
	}
	tenant, keys, shown, columns := t.Columns[t.Tenant], "`_t`", "'', `_t`", ""
	if t.Month != event.None {
		keys, shown, columns = "`_m`, `_t`", "`_m`, `_t`", ident(monthColumn)+" AS `_m`, "
	}
	return fmt.Sprintf("SELECT %s, COUNT(*), %s FROM (SELECT %s%s AS `_t`, %s AS `_h` FROM %s WHERE %s%s) AS s GROUP BY %s ORDER BY %s LIMIT %d",
		shown, sums, columns, ident(tenant.Name), hash, ident(t.Name), ofMonth(t, months...), between(tenant, after, upTo), keys, keys, tenants)
}

// TenantSums sums up the rows of at most so many tenants in some months, after one and up to another; nil is no bound. A
// broadcast table is one item.
func (s *Sink) TenantSums(ctx context.Context, t *event.Table, months []partitioner.Month, after, upTo *string, tenants int) (list []rowsum.Item, err error) {
	if t.Broadcast() && after != nil {
		return nil, nil
	}
	err = s.each(ctx, s.catalog, tenantSumsSQL(t, months, after, upTo, tenants), func(f []sql.RawBytes) error {
		i := rowsum.Item{Key: string(f[1])}
		if t.Month != event.None {
			var err error
			if i.Month, err = partitioner.ParseMonth(string(f[0][:min(len(f[0]), len("2026-11"))])); err != nil {
				return err
			}
		}
		i.Rows, _ = strconv.ParseInt(string(f[2]), 10, 64)
		i.Sum = uint64Of(f[3])<<32 + uint64Of(f[4])
		list = append(list, i)
		return nil
	})
	return list, wrap(err, codeQuery, s.where())
}

// uint64Of is a whole number modulo 2^64; that of no rows is NULL.
func uint64Of(text []byte) uint64 {
	n, ok := new(big.Int).SetString(string(text), 10)
	if !ok {
		return 0
	}
	return n.And(n, new(big.Int).SetUint64(math.MaxUint64)).Uint64()
}

// rowSumsSQL reads a tenant's rows in order of their ids. A DOUBLE is told as text and what the text lacks of it: some
// releases write 16 digits of one.
func rowSumsSQL(t *event.Table, m partitioner.Month, tenant string, where string, most int) string {
	id, spread := ident(t.Columns[t.ID].Name), "''"
	if t.Spread != event.None {
		spread = ident(t.Columns[t.Spread].Name)
	}
	columns := []string{id, spread, ident(verColumn), ident(deletedColumn)}
	for _, c := range t.Columns {
		name := ident(c.Name)
		columns = append(columns, name)
		if c.Type.Kind == event.Float64 {
			columns[len(columns)-1] = "CONCAT(" + name + ")"
			columns = append(columns, lacking(c))
		}
	}
	of := ofMonth(t, m)
	if !t.Broadcast() {
		of += " AND " + keyIs(t.Columns[t.Tenant], tenant)
	}
	return fmt.Sprintf("SELECT %s FROM %s WHERE %s%s ORDER BY %s LIMIT %d", strings.Join(columns, ", "), ident(t.Name), of, where, id, most)
}

// lacking is what the text of a DOUBLE lacks of it.
func lacking(c event.Column) string {
	return ident(c.Name) + " - CAST(CONCAT(" + ident(c.Name) + ") AS DOUBLE)"
}

// RowSums reads at most so many rows of a tenant in a month, after one id and up to another; nil is no bound. With ids it
// reads those alone, and sees whatever was loaded before.
func (s *Sink) RowSums(ctx context.Context, t *event.Table, m partitioner.Month, tenant string, after, upTo *string, ids []string, most int) (list []rowsum.Item, err error) {
	id := t.Columns[t.ID]
	where := between(id, after, upTo)
	conn, err := s.catalog.Conn(ctx)
	if err != nil {
		return nil, wrap(err, codeQuery, s.where())
	}
	defer conn.Close()
	if ids != nil {
		values := make([]string, len(ids))
		for i, value := range ids {
			values[i] = keyValue(id, value)
		}
		where += " AND " + ident(id.Name) + " IN (" + strings.Join(values, ", ") + ")"
		if err := s.settled(ctx, conn); err != nil {
			return nil, wrap(err, codeQuery, s.where())
		}
	}
	row := event.Row{Values: make([]event.Value, len(t.Columns))}
	err = s.each(ctx, conn, rowSumsSQL(t, m, tenant, where, most), func(f []sql.RawBytes) error {
		i := rowsum.Item{Key: string(f[0]), Spread: string(f[1]), Rows: 1}
		var err error
		if i.Ver, err = strconv.ParseInt(string(f[2]), 10, 64); err != nil {
			return err
		}
		if readRow(t, &row, f[4:]) && string(f[3]) == strconv.FormatInt(i.Ver&1, 10) {
			i.Sum = rowsum.Of(t, &row, i.Ver)
		} // else it is 0: no event makes such a row
		list = append(list, i)
		return nil
	})
	return list, wrap(err, codeQuery, s.where())
}

// readRow reads the values of a row; false where one is none that the sink writes. Texts stay where they are.
func readRow(t *event.Table, row *event.Row, fields []sql.RawBytes) bool {
	for i, c := range t.Columns {
		v := &row.Values[i]
		*v = event.Value{Null: fields[0] == nil}
		switch {
		case v.Null:
		case c.Type.Kind == event.Float64:
			v.Float = doubleOf(string(fields[0]), string(fields[1]))
		case !readValue(c.Type.Kind, fields[0], v):
			return false
		}
		fields = fields[1:]
		if c.Type.Kind == event.Float64 {
			fields = fields[1:]
		}
	}
	return true
}

// readValue reads a value that is no DOUBLE.
func readValue(k event.Kind, text []byte, v *event.Value) bool {
	var err error
	var at time.Time
	switch k {
	case event.Bool, event.Int32, event.Int64:
		v.Int, err = strconv.ParseInt(string(text), 10, 64)
	case event.Uint64:
		v.Uint, err = strconv.ParseUint(string(text), 10, 64)
	case event.Date:
		at, err = time.Parse(time.DateOnly, string(text))
		v.Int = at.Unix() / 86400
	case event.Datetime:
		at, err = time.Parse("2006-01-02 15:04:05.999999", string(text))
		v.Int = at.UnixMicro()
	case event.Bytes:
		v.Bytes, err = base64.StdEncoding.Strict().DecodeString(string(text))
	default:
		v.Bytes = text
	}
	return err == nil
}

// doubleOf is the sum of a number and of what it lacks. Text of 16 digits may lie beyond the greatest double: then that is
// the number.
func doubleOf(text, rest string) float64 {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.Copysign(math.MaxFloat64, f)
	}
	if r, err := strconv.ParseFloat(rest, 64); err == nil {
		f += r
	}
	return f
}

const (
	// settlePeriod is how often loads that are committed are looked at until readers see them.
	settlePeriod = 200 * time.Millisecond
	// committedSQL tells of loads that are committed and not visible yet (sql-statements/Show-Statements/SHOW-TRANSACTION).
	committedSQL = "SHOW TRANSACTION FROM %s WHERE STATUS = 'committed'"
	// syncSQL has a frontend that is not the master know what the master knows (sql-statements/Database-Administration-Statements/SYNC).
	syncSQL = "SYNC"
)

// settled waits until what is committed by now is visible, and the connection's frontend knows of it.
func (s *Sink) settled(ctx context.Context, conn *sql.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	var open map[string]bool // nil before the first look
	for {
		now := map[string]bool{}
		err := s.each(ctx, conn, fmt.Sprintf(committedSQL, ident(s.dsn.Database())), func(f []sql.RawBytes) error {
			if id := string(f[0]); open == nil || open[id] {
				now[id] = true
			}
			return nil
		})
		if err != nil {
			return err
		}
		if open = now; len(open) == 0 {
			_, err := conn.ExecContext(ctx, syncSQL)
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(settlePeriod):
		}
	}
}

// Check looks whether the tables are as the file says: SL4404 where one is not.
func (s *Sink) Check(ctx context.Context) error { return s.verify(ctx) }
