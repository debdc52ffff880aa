package clickhouse

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/ClickHouse/ch-go"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/rowsum"
	"github.com/slotline/slotline/partitioner"
)

// ByRow says that a table's sums say nothing: ClickHouse writes JSON as it came.
func (s *Sink) ByRow(t *event.Table) bool { return rowsum.HasJSON(t) }

// rowText is the text of a row that package rowsum describes.
func rowText(t *event.Table) string {
	texts := func(deleted bool) string {
		parts := []string{"toString(" + verColumn + ")", "','", "toString(" + deletedColumn + ")"}
		for i, c := range t.Columns {
			if rowsum.Counts(t, i, deleted) {
				parts = append(parts, "','", valueText(c))
			}
		}
		return "concat(" + strings.Join(parts, ", ") + ")"
	}
	return "if(bitAnd(" + verColumn + ", 1) = 1, " + texts(true) + ", " + texts(false) + ")"
}

func valueText(c event.Column) string {
	name := ident(c.Name)
	value := name
	if c.Nullable {
		value = "assumeNotNull(" + name + ")"
	}
	text := "toString(" + value + ")"
	switch c.Type.Kind {
	case event.Bool:
		text = "toString(toUInt8(" + value + "))"
	case event.Float64:
		text = "hex(reinterpretAsFixedString(" + value + " + 0.))"
	case event.Decimal:
		text = fmt.Sprintf("toDecimalString(%s, %d)", value, c.Type.Scale)
	case event.String, event.Text, event.Bytes:
		text = "concat(toString(length(" + value + ")), ':', " + value + ")"
	}
	if c.Nullable {
		return "if(isNull(" + name + "), 'N', " + text + ")"
	}
	return text
}

func rowSum(t *event.Table) string {
	return "reinterpretAsUInt64(reverse(substring(SHA256(" + rowText(t) + "), 1, 8)))"
}

// ofMonth is the condition that a row is in a month; it goes by the partition key.
func ofMonth(t *event.Table, m partitioner.Month) string {
	if key := partitionKey(t); key != "" {
		return fmt.Sprintf("%s = %d", key, m)
	}
	return "1"
}

// keyValue is a key's text as a literal of its column's type.
func keyValue(c event.Column, value string) string {
	switch c.Type.Kind {
	case event.Int32, event.Int64, event.Uint64:
		return value // canonical: digits, and a sign at most
	}
	return text(value)
}

// between is the condition that a key column lies after one value and up to another; nil is no bound.
func between(c event.Column, after, upTo *string) string {
	where := ""
	if after != nil {
		where += " AND " + ident(c.Name) + " > " + keyValue(c, *after)
	}
	if upTo != nil {
		where += " AND " + ident(c.Name) + " <= " + keyValue(c, *upTo)
	}
	return where
}

func tenantSumsSQL(t *event.Table, months []partitioner.Month, after, upTo *string, tenants int) string {
	sum := "sum(" + rowSum(t) + ")"
	if rowsum.HasJSON(t) {
		sum = "0" // the rows are looked at one by one
	}
	if t.Broadcast() {
		return fmt.Sprintf("SELECT '0', '', toString(count()), toString(%s) FROM %s FINAL", sum, ident(t.Name))
	}
	tenant, month, in := t.Columns[t.Tenant], "0", "1"
	if key := partitionKey(t); key != "" {
		list := make([]string, len(months))
		for i, m := range months {
			list[i] = strconv.Itoa(int(m))
		}
		month, in = key, key+" IN ("+strings.Join(list, ", ")+")"
	}
	return fmt.Sprintf("SELECT toString(%[1]s AS _month), toString(%[2]s), toString(count()), toString(%[3]s) FROM %[4]s FINAL WHERE %[5]s%[6]s GROUP BY _month, %[2]s ORDER BY _month, %[2]s LIMIT %[7]d",
		month, ident(tenant.Name), sum, ident(t.Name), in, between(tenant, after, upTo), tenants)
}

// TenantSums sums up the rows of at most so many tenants in some months, after one and up to another; nil is no bound. A
// broadcast table is one item.
func (s *Sink) TenantSums(ctx context.Context, t *event.Table, months []partitioner.Month, after, upTo *string, tenants int) (list []rowsum.Item, err error) {
	if t.Broadcast() && after != nil {
		return nil, nil
	}
	err = s.sums(ctx, tenantSumsSQL(t, months, after, upTo, tenants), 4, func(f []string) {
		i := rowsum.Item{Key: f[1]}
		month, _ := strconv.Atoi(f[0])
		i.Month = partitioner.Month(month)
		i.Rows, _ = strconv.ParseInt(f[2], 10, 64)
		i.Sum, _ = strconv.ParseUint(f[3], 10, 64)
		list = append(list, i)
	})
	return list, err
}

// jsonText is a json column as text: a letter in front says whether it is NULL.
func jsonText(c event.Column) string {
	if c.Nullable {
		return "if(isNull(" + ident(c.Name) + "), 'N', concat('V', assumeNotNull(" + ident(c.Name) + ")))"
	}
	return "concat('V', " + ident(c.Name) + ")"
}

func rowSumsSQL(t *event.Table, m partitioner.Month, tenant string, where string, most int) string {
	id, spread := t.Columns[t.ID], "''"
	if t.Spread != event.None {
		spread = "toString(" + ident(t.Columns[t.Spread].Name) + ")"
	}
	columns := []string{"toString(" + ident(id.Name) + ")", spread, "toString(" + verColumn + ")", "toString(" + rowSum(t) + ")"}
	for _, i := range rowsum.JSONColumns(t) {
		columns = append(columns, jsonText(t.Columns[i]))
	}
	of := ofMonth(t, m)
	if !t.Broadcast() {
		of += " AND " + keyIs(t.Columns[t.Tenant], tenant)
	}
	return fmt.Sprintf("SELECT %s FROM %s FINAL WHERE %s%s ORDER BY %s LIMIT %d", strings.Join(columns, ", "), ident(t.Name), of, where, ident(id.Name), most)
}

// RowSums reads at most so many rows of a tenant in a month, after one id and up to another; nil is no bound. With ids it
// reads those alone.
func (s *Sink) RowSums(ctx context.Context, t *event.Table, m partitioner.Month, tenant string, after, upTo *string, ids []string, most int) (list []rowsum.Item, err error) {
	id := t.Columns[t.ID]
	where := between(id, after, upTo)
	if ids != nil {
		values := make([]string, len(ids))
		for i, value := range ids {
			values[i] = keyValue(id, value)
		}
		where += " AND " + ident(id.Name) + " IN (" + strings.Join(values, ", ") + ")"
	}
	columns := rowsum.JSONColumns(t)
	err = s.sums(ctx, rowSumsSQL(t, m, tenant, where, most), 4+len(columns), func(f []string) {
		i := rowsum.Item{Key: f[0], Spread: f[1], Rows: 1}
		i.Ver, _ = strconv.ParseInt(f[2], 10, 64)
		i.Sum, _ = strconv.ParseUint(f[3], 10, 64)
		for n, column := range columns {
			text := []byte(f[4+n])
			if string(text) == "N" {
				text = nil
			} else {
				text = text[1:]
			}
			i.Sum = rowsum.WithJSON(i.Sum, column, text, i.Ver)
		}
		list = append(list, i)
	})
	return list, err
}

// sums runs a statement that reads much, and returns little. Small blocks, because a row may be as large as an event; each
// month is merged by itself, so that an entity that is in two counts in both.
func (s *Sink) sums(ctx context.Context, query string, columns int, each func(f []string)) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	q := queryOf(query, columns, func(f []string) error {
		each(f)
		return nil
	})
	for _, setting := range [][2]string{{"readonly", "2"}, {"max_block_size", "8192"}, {"max_query_size", "10000000"},
		{"do_not_merge_across_partitions_select_final", "1"}, {"optimize_aggregation_in_order", "1"}} {
		q.Settings = append(q.Settings, ch.Setting{Key: setting[0], Value: setting[1], Important: true})
	}
	c, err := s.pool.get(ctx)
	if err != nil {
		return wrap(err, codeQuery, s.where())
	}
	return wrap(c.do(ctx, q), codeQuery, s.where())
}

// Check looks whether the tables are as the file says: SL4004 where one is not.
func (s *Sink) Check(ctx context.Context) error { return s.verify(ctx) }
