package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/internal/rowsum"
)

// rowText is the text of a row that package rowsum describes.
func rowText(t *event.Table) string {
	texts := func(deleted bool) string {
		parts := []string{"`_ver`", "','", "`_ver` & 1"}
		for i, c := range t.Columns {
			if rowsum.Counts(t, i, deleted) {
				parts = append(parts, "','", valueText(c))
			}
		}
		return "CONCAT(" + strings.Join(parts, ",") + ")"
	}
	return "IF(`_ver` & 1," + texts(true) + "," + texts(false) + ")"
}

func valueText(c event.Column) string {
	name := mysqldb.Ident(c.Name)
	text := name
	switch c.Type.Kind {
	case event.Float64: // its bytes stand in a point's binary form
		text = "HEX(SUBSTRING(ST_AsBinary(POINT(" + name + "+0e0,0)),6,8))"
	case event.String, event.Text, event.Bytes:
		text = "LENGTH(" + name + "),':'," + name
		if c.Nullable {
			text = "CONCAT(" + text + ")"
		}
	}
	if c.Nullable {
		return "IFNULL(" + text + ",'N')"
	}
	return text
}

// rowSum is the sum of a row. SHA2, because MySQL 9.6 has no MD5 any more.
func rowSum(t *event.Table) string {
	return "CAST(CONV(LEFT(SHA2(" + rowText(t) + ",256),16),16,10) AS UNSIGNED)"
}

// tenantSumsSQL sums up the rows of tenants after one, in order of the primary key, whose first column it goes by.
func tenantSumsSQL(t *event.Table, physical string, after bool, tenants int) string {
	sum := "CAST(COALESCE(SUM(" + rowSum(t) + "),0) % 18446744073709551616 AS UNSIGNED)"
	if rowsum.HasJSON(t) {
		sum = "0" // the rows are looked at one by one
	}
	if t.Broadcast() {
		return "SELECT '',COUNT(*)," + sum + " FROM " + mysqldb.Ident(physical)
	}
	tenant, where := mysqldb.Ident(t.Columns[t.Tenant].Name), ""
	if after {
		where = " WHERE " + tenant + ">?"
	}
	return fmt.Sprintf("SELECT %[1]s,COUNT(*),%[2]s FROM %[3]s%[4]s GROUP BY %[1]s ORDER BY %[1]s LIMIT %[5]d", tenant, sum, mysqldb.Ident(physical), where, tenants)
}

// TenantSums sums up the rows of at most so many tenants after one; nil is the first. A broadcast table is one item.
func TenantSums(ctx context.Context, q progress.Querier, t *event.Table, physical string, after *string, tenants int) (list []rowsum.Item, err error) {
	var args []any
	if t.Broadcast() && after != nil {
		return nil, nil
	}
	if after != nil {
		args = append(args, t.Columns[t.Tenant].KeyArgument(*after))
	}
	rows, err := q.QueryContext(ctx, tenantSumsSQL(t, physical, after != nil, tenants), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var i rowsum.Item
		if err := rows.Scan(&i.Key, &i.Rows, &i.Sum); err != nil {
			return nil, err
		}
		list = append(list, i)
	}
	return list, rows.Err()
}

// rowSumsSQL reads a tenant's rows in order of their ids.
func rowSumsSQL(t *event.Table, physical, where string) string {
	id, spread := mysqldb.Ident(t.Columns[t.ID].Name), "''"
	if t.Spread != event.None {
		spread = mysqldb.Ident(t.Columns[t.Spread].Name)
	}
	columns := []string{id, spread, "`_ver`", rowSum(t)}
	for _, i := range rowsum.JSONColumns(t) {
		columns = append(columns, mysqldb.Ident(t.Columns[i].Name))
	}
	return "SELECT " + strings.Join(columns, ",") + " FROM " + mysqldb.Ident(physical) + where + " ORDER BY " + id
}

// RowSums reads at most so many rows of a tenant after an id; nil is the first. With ids it reads those alone.
func RowSums(ctx context.Context, q progress.Querier, t *event.Table, physical, tenant string, after *string, ids []string, most int) (list []rowsum.Item, err error) {
	where, args := " WHERE TRUE", []any(nil)
	id := t.Columns[t.ID]
	if !t.Broadcast() {
		where += " AND " + mysqldb.Ident(t.Columns[t.Tenant].Name) + "=?"
		args = append(args, t.Columns[t.Tenant].KeyArgument(tenant))
	}
	if after != nil {
		where += " AND " + mysqldb.Ident(id.Name) + ">?"
		args = append(args, id.KeyArgument(*after))
	}
	if ids != nil {
		where += " AND " + mysqldb.Ident(id.Name) + " IN (" + strings.TrimSuffix(strings.Repeat("?,", len(ids)), ",") + ")"
		for _, text := range ids {
			args = append(args, id.KeyArgument(text))
		}
	}
	rows, err := q.QueryContext(ctx, rowSumsSQL(t, physical, where)+fmt.Sprintf(" LIMIT %d", most), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns := rowsum.JSONColumns(t)
	texts := make([]sql.RawBytes, len(columns))
	for rows.Next() {
		i := rowsum.Item{Rows: 1}
		into := []any{&i.Key, &i.Spread, &i.Ver, &i.Sum}
		for n := range texts {
			into = append(into, &texts[n])
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		for n, column := range columns {
			i.Sum = rowsum.WithJSON(i.Sum, column, texts[n], i.Ver)
		}
		list = append(list, i)
	}
	return list, rows.Err()
}

// Spreads reads the ids of a tenant, and the values of the spread column, of at most so many rows after an id; nil is the
// first.
func Spreads(ctx context.Context, q progress.Querier, t *event.Table, physical, tenant string, after *string, most int) (list []rowsum.Item, err error) {
	id, where := t.Columns[t.ID], ""
	args := []any{t.Columns[t.Tenant].KeyArgument(tenant)}
	if after != nil {
		where = " AND " + mysqldb.Ident(id.Name) + ">?"
		args = append(args, id.KeyArgument(*after))
	}
	rows, err := q.QueryContext(ctx, fmt.Sprintf("SELECT %[1]s,%[2]s FROM %[3]s WHERE %[4]s=?%[5]s ORDER BY %[1]s LIMIT %[6]d", mysqldb.Ident(id.Name),
		mysqldb.Ident(t.Columns[t.Spread].Name), mysqldb.Ident(physical), mysqldb.Ident(t.Columns[t.Tenant].Name), where, most), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var i rowsum.Item
		if err := rows.Scan(&i.Key, &i.Spread); err != nil {
			return nil, err
		}
		list = append(list, i)
	}
	return list, rows.Err()
}
