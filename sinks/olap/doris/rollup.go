package doris

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/plan"
	"github.com/slotline/slotline/sinks/olap/rollup"
)

const (
	rowsColumn = "_rows" // of the base in this group; 0 where there are deleted ones alone

	// The comment of a rollup's table holds its declaration: a table of another one is refused.
	rollupComment = "slotline rollup format 1, line "

	// slicesMax is how many slices one statement writes; they are of one month.
	slicesMax = 500

	// varcharMax is the longest text that can be part of a key.
	varcharMax = 65533

	// computeTimeout bounds one statement of a rollup.
	computeTimeout = 10 * time.Minute
)

// rollupColumns are a rollup's columns: tenant, bucket and dimensions, then the measures.
func rollupColumns(r *config.Rollup) (keys, measures []physicalColumn) {
	t := r.Table
	column := func(i int) physicalColumn {
		c := t.Columns[i]
		typ := columnType(c.Type)
		if c.Type.Kind == event.Bytes { // base64 in the base; a STRING cannot be part of a key
			typ = fmt.Sprintf("varchar(%d)", min(varcharMax, 4*((c.Type.Length+2)/3)))
		}
		return physicalColumn{name: c.Name, typ: typ, nullable: c.Nullable, key: true}
	}
	keys = append(keys, column(t.Tenant), physicalColumn{name: r.Bucket, typ: "date", key: true})
	for _, i := range r.By {
		keys = append(keys, column(i))
	}
	for _, m := range r.Measures {
		c := physicalColumn{name: m.Name, typ: measureType(t, m)}
		c.nullable = m.Func != "count" && m.Func != "distinct"
		measures = append(measures, c)
	}
	return keys, measures
}

// measureType is the type that Doris's own function has.
func measureType(t *event.Table, m config.Measure) string {
	if m.Func == "count" || m.Func == "distinct" {
		return "bigint"
	}
	c := t.Columns[m.Column]
	switch m.Func {
	case "avg":
		return "double"
	case "sum":
		switch c.Type.Kind {
		case event.Bool, event.Int32, event.Int64:
			return "bigint"
		case event.Decimal:
			return fmt.Sprintf("decimal(38,%d)", c.Type.Scale)
		}
	}
	return columnType(c.Type)
}

// rollupDDL creates a rollup's table unless it exists.
func rollupDDL(r *config.Rollup, line string, replication int) string {
	keys, measures := rollupColumns(r)
	var names, columns []string
	for _, c := range keys {
		names = append(names, c.name)
	}
	for _, c := range slices.Concat(keys, measures, []physicalColumn{{name: rowsColumn, typ: "bigint"}, {name: verColumn, typ: verType}}) {
		columns = append(columns, "  "+columnDDL(c))
	}
	return fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (\n%s\n) ENGINE=OLAP\nUNIQUE KEY(%s)\nCOMMENT %s\n"+
		"AUTO PARTITION BY RANGE (date_trunc(%s, 'month')) ()\nDISTRIBUTED BY HASH(%s) BUCKETS %d\n"+
		`PROPERTIES ("replication_num" = "%d", "enable_unique_key_merge_on_write" = "true", "function_column.sequence_col" = "%s")`,
		ident(r.Name), strings.Join(columns, ",\n"), identList(names), text(rollupComment+line+": "+r.String()), ident(r.Bucket),
		identList(names[:1]), buckets, replication, verColumn)
}

// rollupViewDDL makes the view. Of each slice the greatest version counts, and no other: a worker that was late, or a
// combination that is no more, leaves rows of a lesser one.
func rollupViewDDL(r *config.Rollup) string {
	keys, measures := rollupColumns(r)
	var names []string
	for _, c := range slices.Concat(keys, measures) {
		names = append(names, "r."+ident(c.name)+" AS "+ident(c.name))
	}
	tenant, bucket := ident(keys[0].name), ident(r.Bucket)
	return fmt.Sprintf("CREATE VIEW %[1]s AS\nSELECT %[2]s\nFROM %[3]s r JOIN (SELECT %[4]s, %[5]s, MAX(%[6]s) AS %[6]s FROM %[3]s GROUP BY %[4]s, %[5]s) s\n"+
		"ON r.%[4]s = s.%[4]s AND r.%[5]s = s.%[5]s AND r.%[6]s = s.%[6]s\nWHERE r.%[7]s > 0",
		ident(r.Name+viewSuffix), strings.Join(names, ", "), ident(r.Name), tenant, bucket, ident(verColumn), ident(rowsColumn))
}

// dayOf is a row's UTC day. A snowflake id holds milliseconds above its 22 bits.
func dayOf(t *event.Table) string {
	name := ident(t.Columns[t.Month].Name)
	switch {
	case t.SnowflakeEpoch != nil:
		return fmt.Sprintf("DATE(DATE_ADD('1970-01-01', INTERVAL (%s DIV 4194304 + %d) DIV 86400000 DAY))", name, t.SnowflakeEpoch.UnixMilli())
	case t.Columns[t.Month].Type.Kind == event.Date:
		return name
	}
	return "DATE(" + name + ")"
}

// bucketOf is a row's bucket.
func bucketOf(r *config.Rollup) string {
	if r.Bucket == "month" {
		return ident(monthColumn)
	}
	return dayOf(r.Table)
}

// aggregate is a measure over the rows that are not deleted.
func aggregate(t *event.Table, m config.Measure) string {
	only := func(value string) string { return "CASE WHEN " + ident(deletedColumn) + " = 0 THEN " + value + " END" }
	if m.Func == "count" {
		return "COUNT(" + only("1") + ")"
	}
	c := t.Columns[m.Column]
	value := ident(c.Name)
	if c.Type.Kind == event.Bool {
		value = "(CASE WHEN " + value + " = 1 THEN 1 WHEN " + value + " = 0 THEN 0 END)"
	}
	switch m.Func {
	case "distinct":
		return "COUNT(DISTINCT " + only(value) + ")"
	case "avg":
		return "AVG(" + only(value+" * 1e0") + ")"
	case "min", "max":
		if c.Type.Kind == event.Bytes { // base64 has another order
			return fmt.Sprintf("TO_BASE64(%s(%s))", strings.ToUpper(m.Func), only("FROM_BASE64("+value+")"))
		}
	}
	return strings.ToUpper(m.Func) + "(" + only(value) + ")"
}

// computeSQL reads slices of one month from the base, deleted rows too: they are of some group, so that a slice without
// others has a version all the same.
func computeSQL(r *config.Rollup, pairs []rollup.Pair, version int64) string {
	t := r.Table
	keys, measures := rollupColumns(r)
	tenant := ident(t.Columns[t.Tenant].Name)
	group := []string{tenant, bucketOf(r)}
	for _, i := range r.By {
		group = append(group, ident(t.Columns[i].Name))
	}
	values := slices.Clone(group)
	for _, m := range r.Measures {
		values = append(values, aggregate(t, m))
	}
	values = append(values, "COUNT("+"CASE WHEN "+ident(deletedColumn)+" = 0 THEN 1 END"+")", strconv.FormatInt(version, 10))
	var into []string
	for _, c := range slices.Concat(keys, measures) {
		into = append(into, c.name)
	}

	tenants := map[int32][]string{} // by day
	var days []int32
	for _, p := range pairs {
		if tenants[p.Day] == nil {
			days = append(days, p.Day)
		}
		tenants[p.Day] = append(tenants[p.Day], keyValue(t.Columns[t.Tenant], p.Tenant))
	}
	slices.Sort(days)
	var where []string
	for _, day := range days {
		slices.Sort(tenants[day])
		of := tenant + " IN (" + strings.Join(tenants[day], ", ") + ")"
		if r.Bucket == "day" {
			of += " AND " + isDay(t, day)
		}
		where = append(where, "("+of+")")
	}
	return fmt.Sprintf("INSERT INTO %s WITH LABEL %s (%s)\nSELECT %s\nFROM %s\nWHERE %s = '%s' AND (%s)\nGROUP BY %s",
		ident(r.Name), ident(rollupLabel(r, pairs, version)), identList(append(into, rowsColumn, verColumn)), strings.Join(values, ", "), ident(t.Name),
		ident(monthColumn), rollup.Date(pairs[0].Day).Format("2006-01-")+"01", strings.Join(where, " OR "), strings.Join(group, ", "))
}

// rollupLabel is another for each statement: a version is taken once, and its statements begin with other slices.
func rollupLabel(r *config.Rollup, pairs []rollup.Pair, version int64) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d %s", r.Name, version, pairs[0].Day, pairs[0].Tenant))
	return "rollup_" + hex.EncodeToString(sum[:16])
}

// isDay is a condition on the month column itself, by which Doris leaves other rows unread.
func isDay(t *event.Table, day int32) string {
	name := ident(t.Columns[t.Month].Name)
	from, to := rollup.Date(day), rollup.Date(day+1)
	switch {
	case t.SnowflakeEpoch != nil:
		id := func(at time.Time) int64 { return max(0, at.Sub(*t.SnowflakeEpoch).Milliseconds()) << 22 }
		return fmt.Sprintf("%[1]s >= %[2]d AND %[1]s < %[3]d", name, id(from), id(to))
	case t.Columns[t.Month].Type.Kind == event.Date:
		return name + " = '" + rollup.DayText(day) + "'"
	}
	return fmt.Sprintf("%[1]s >= '%[2]s 00:00:00' AND %[1]s < '%[3]s 00:00:00'", name, from.Format(time.DateOnly), to.Format(time.DateOnly))
}

// rollupEngine is Doris as package rollup sees it.
type rollupEngine struct{ *Sink }

func (s rollupEngine) Pairs(ctx context.Context, r *config.Rollup, each func(rollup.Pair) error) error {
	ctx, cancel := context.WithTimeout(ctx, computeTimeout)
	defer cancel()
	fail := func(err error) error { return wrap(err, codeRollup, s.where()+", rollup "+r.Name) }
	tenant := ident(r.Table.Columns[r.Table.Tenant].Name)
	rows, err := s.catalog.QueryContext(ctx, fmt.Sprintf("SELECT %s, DATEDIFF(%s, '1970-01-01')\nFROM %s\nGROUP BY %s, DATEDIFF(%s, '1970-01-01')",
		tenant, dayOf(r.Table), ident(r.Table.Name), tenant, dayOf(r.Table)))
	if err != nil {
		return fail(err)
	}
	defer rows.Close()
	for rows.Next() {
		var p rollup.Pair
		if err := rows.Scan(&p.Tenant, &p.Day); err != nil {
			return fail(err)
		}
		if err := each(p); err != nil {
			return err
		}
	}
	return fail(rows.Err())
}

// Compute writes each month's slices by one statement, which Doris carries out whole or not at all, on the master, which
// knows of every load.
func (s rollupEngine) Compute(ctx context.Context, r *config.Rollup, pairs []rollup.Pair, version int64) error {
	ctx, cancel := context.WithTimeout(ctx, computeTimeout)
	defer cancel()
	for _, month := range rollup.Slices(r, pairs, slicesMax) {
		_, err := s.catalog.ExecContext(ctx, computeSQL(r, month, version))
		if err == nil {
			err = s.loader.waitVisible(ctx, rollupLabel(r, month, version))
		}
		if err != nil {
			return wrap(err, codeRollup, s.where()+", rollup "+r.Name)
		}
	}
	return nil
}

// planRollups says which tables and views of rollups are missing.
func (s *Sink) planRollups(add func(sign byte, what, note, statement string), addDo func(what string, do func(context.Context) error), tables map[string]*physical) {
	for _, r := range s.rollups {
		view, want := r.Name+viewSuffix, rollupComment+s.line+": "+r.String()
		switch p := tables[r.Name]; {
		case p == nil:
			what := "rollup " + r.Name
			addDo(what, func(ctx context.Context) error {
				// Before the table: cut off in between, the fill is still wanted.
				if err := s.state.WantFill(ctx, r.Name); err != nil {
					return err
				}
				if err := s.define(ctx, what, rollupDDL(r, s.line, s.replication)); err != nil {
					return err
				}
				return s.define(ctx, what, rollupViewDDL(r))
			})
			continue
		case p.comment != want:
			add(plan.Decide, r.Name, fmt.Sprintf("says %q, the file says %q: drop the table and its view, and apply makes and fills it anew", p.comment, want), "")
			continue
		}
		if tables[view] == nil {
			add(plan.Create, "view "+view, "", rollupViewDDL(r))
		}
	}
}

// Maintain keeps the rollups until ctx ends.
func (s *Sink) Maintain(ctx context.Context) { s.state.Worker(rollupEngine{s}, s.loader.log).Run(ctx) }

// RollUp brings every rollup up to the moment at which it was called, whatever other workers do meanwhile.
func (s *Sink) RollUp(ctx context.Context) error {
	return s.state.Worker(rollupEngine{s}, s.loader.log).RollUp(ctx)
}
