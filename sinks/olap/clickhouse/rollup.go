package clickhouse

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/ch-go"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/plan"
	"github.com/slotline/slotline/sinks/olap/rollup"
)

const (
	rowsColumn = "_rows" // of the base in this group; 0 in the row that says that a slice is empty

	// The comment of a rollup's table holds its declaration: a table of another one is refused.
	rollupComment = "slotline rollup format 1, line "

	// slicesMax is how many slices one statement writes; they are of one month, so that they become one part.
	slicesMax = 500
)

// rollupColumns are a rollup's columns: tenant, bucket and dimensions, then the measures, as name and type.
func rollupColumns(r *config.Rollup) (keys, measures [][2]string) {
	t := r.Table
	column := func(i int) [2]string { return [2]string{t.Columns[i].Name, columnType(t.Columns[i])} }
	keys = append(keys, column(t.Tenant), [2]string{r.Bucket, "Date32"})
	for _, i := range r.By {
		keys = append(keys, column(i))
	}
	for _, m := range r.Measures {
		measures = append(measures, [2]string{m.Name, measureType(t, m)})
	}
	return keys, measures
}

// measureType is the type that ClickHouse's own function has.
func measureType(t *event.Table, m config.Measure) string {
	if m.Func == "count" || m.Func == "distinct" {
		return "UInt64"
	}
	c := t.Columns[m.Column]
	typ := baseType(c.Type)
	if m.Func == "sum" {
		switch c.Type.Kind {
		case event.Bool, event.Uint64:
			typ = "UInt64"
		case event.Int32, event.Int64:
			typ = "Int64"
		case event.Decimal:
			typ = fmt.Sprintf("Decimal(38, %d)", c.Type.Scale)
		}
	} else if m.Func == "avg" {
		typ = "Float64"
	}
	if c.Nullable {
		return "Nullable(" + typ + ")"
	}
	return typ
}

// rollupDDL creates a rollup's table unless it exists.
func rollupDDL(r *config.Rollup, line string, on cluster) []string {
	keys, measures := rollupColumns(r)
	var b strings.Builder
	fmt.Fprintf(&b, "CREATE TABLE IF NOT EXISTS %s%s (\n", ident(on.local(r.Name)), on.on())
	var order []string
	settings := slices.Clone(tableSettings[1:]) // its blocks have no tokens: the version decides
	for _, c := range keys {
		order = append(order, c[0])
		if strings.HasPrefix(c[1], "Nullable") && !slices.Contains(settings, "allow_nullable_key = 1") {
			settings = append(settings, "allow_nullable_key = 1")
		}
	}
	columns := slices.Concat(keys, measures, [][2]string{{rowsColumn, "UInt64"}, {verColumn, verType}})
	for i, c := range columns {
		fmt.Fprintf(&b, "  %s %s", ident(c[0]), c[1])
		if i < len(columns)-1 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
	}
	comment := rollupComment + line + ": " + r.String()
	fmt.Fprintf(&b, ")\nENGINE = %s\nPARTITION BY toYYYYMM(%s)\nORDER BY (%s)\n", on.engine(), ident(r.Bucket), identList(order))
	fmt.Fprintf(&b, "SETTINGS %s\nCOMMENT %s", strings.Join(settings, ", "), text(comment))
	return append([]string{b.String()}, on.distributed(r.Name, columns, keys[0][0], comment)...)
}

// rollupViewDDL makes the view, or makes it anew. Of each slice the greatest version counts, and no other: a worker that
// was late, or a combination that is no more, leaves rows of a lesser one. It needs no FINAL.
func rollupViewDDL(r *config.Rollup, on cluster) string {
	keys, measures := rollupColumns(r)
	var names []string
	for _, c := range slices.Concat(keys, measures) {
		names = append(names, c[0])
	}
	slice, in := names[:2], "IN"
	if on.name != "" {
		in = "GLOBAL IN" // asked once, not by each shard of each
	}
	return fmt.Sprintf("CREATE OR REPLACE VIEW %[1]s%[7]s AS\nSELECT %[2]s\nFROM %[3]s\nWHERE (%[4]s, %[5]s) %[8]s (SELECT %[4]s, max(%[5]s) FROM %[3]s GROUP BY %[4]s)\nAND %[6]s > 0",
		ident(r.Name+viewSuffix), identList(names), ident(r.Name), identList(slice), ident(verColumn), rowsColumn, on.on(), in)
}

// dayOf is a row's UTC day.
func dayOf(t *event.Table) string {
	name := ident(t.Columns[t.Month].Name)
	switch {
	case t.SnowflakeEpoch != nil:
		return fmt.Sprintf("toDate32(fromUnixTimestamp64Milli(toInt64(bitShiftRight(%s, 22)) + %d, 'UTC'))", name, t.SnowflakeEpoch.UnixMilli())
	case t.Columns[t.Month].Type.Kind == event.Date:
		return name
	}
	return "toDate32(" + name + ")"
}

// bucketOf is a row's bucket. toStartOfMonth would be a Date, which ends in 2149.
func bucketOf(r *config.Rollup) string {
	day := dayOf(r.Table)
	if r.Bucket == "month" {
		return fmt.Sprintf("subtractDays(%[1]s, toDayOfMonth(%[1]s) - 1)", day)
	}
	return day
}

// computeSQL reads slices of one month from the base and writes them whole. Of each pair there is one row of zeros at
// least, so that an empty slice has a version too.
func computeSQL(r *config.Rollup, pairs []rollup.Pair, version int64) string {
	t := r.Table
	keys, measures := rollupColumns(r)
	var into, inner, zero, outer, group []string
	bucket := bucketOf(r)
	for i, c := range keys {
		into = append(into, c[0])
		key := fmt.Sprintf("_k%d", i)
		from := ident(c[0])
		none := "defaultValueOfTypeName(" + text(c[1]) + ")"
		switch i {
		case 0:
			none = "CAST(_pair.1, " + text(c[1]) + ")"
		case 1:
			from, none = bucket, "_pair.2"
		}
		inner = append(inner, from+" AS "+key)
		zero = append(zero, none)
		group = append(group, key)
	}
	outer = slices.Clone(group)
	for i, m := range r.Measures {
		into = append(into, measures[i][0])
		if m.Func == "count" {
			outer = append(outer, "countIf(_in)")
			continue
		}
		c := t.Columns[m.Column]
		from, typ, value := ident(c.Name), columnType(c), fmt.Sprintf("_m%d", i)
		if c.Type.Kind == event.Bool {
			from, typ = "toUInt8("+from+")", strings.Replace(typ, "Bool", "UInt8", 1)
		}
		inner = append(inner, from+" AS "+value)
		zero = append(zero, "defaultValueOfTypeName("+text(typ)+")")
		function := m.Func
		if function == "distinct" {
			function = "uniqExact"
		}
		outer = append(outer, fmt.Sprintf("%sIf(%s, _in)", function, value))
	}
	into = append(into, rowsColumn, verColumn)
	outer = append(outer, "countIf(_in)", strconv.FormatInt(version, 10))
	inner, zero = append(inner, "1 AS _in"), append(zero, "0")

	slicesText, tenants := make([]string, len(pairs)), []string{}
	first, last := int32(math.MaxInt32), int32(math.MinInt32)
	for i, p := range pairs {
		tenant := tenantText(t, p.Tenant)
		slicesText[i] = "(" + tenant + ", toDate32('" + rollup.DayText(p.Day) + "'))"
		tenants = append(tenants, tenant)
		first, last = min(first, p.Day), max(last, p.Day)
	}
	slices.Sort(tenants)
	return fmt.Sprintf("INSERT INTO %s (%s)\nSELECT %s FROM (\nSELECT %s\nFROM %s FINAL\nWHERE %s AND %s IN (%s) AND (%s, %s) IN (%s) AND %s = 0\n"+
		"UNION ALL\nSELECT %s FROM (SELECT arrayJoin([%s]) AS _pair)\n) GROUP BY %s",
		ident(r.Name), identList(into), strings.Join(outer, ", "), strings.Join(inner, ", "), ident(t.Name),
		monthRange(r, first, last), ident(t.Columns[t.Tenant].Name), strings.Join(slices.Compact(tenants), ", "),
		ident(t.Columns[t.Tenant].Name), bucket, strings.Join(slicesText, ", "), ident(deletedColumn),
		strings.Join(zero, ", "), strings.Join(slicesText, ", "), strings.Join(group, ", "))
}

// monthRange is a condition on the month column itself, by which ClickHouse leaves the other months unread.
func monthRange(r *config.Rollup, first, last int32) string {
	t := r.Table
	name := ident(t.Columns[t.Month].Name)
	from, to := rollup.Date(first), rollup.Date(last).AddDate(0, 0, 1) // to is excluded
	if r.Bucket == "month" {
		to = rollup.Date(last).AddDate(0, 1, 0)
	}
	switch {
	case t.SnowflakeEpoch != nil:
		id := func(at time.Time) int64 { return max(0, at.Sub(*t.SnowflakeEpoch).Milliseconds()) << 22 }
		return fmt.Sprintf("%[1]s >= %[2]d AND %[1]s < %[3]d", name, id(from), id(to))
	case t.Columns[t.Month].Type.Kind == event.Date:
		return fmt.Sprintf("%[1]s >= toDate32('%[2]s') AND %[1]s < toDate32('%[3]s')", name, from.Format(time.DateOnly), to.Format(time.DateOnly))
	}
	return fmt.Sprintf("%[1]s >= toDateTime64('%[2]s 00:00:00', 6, 'UTC') AND %[1]s < toDateTime64('%[3]s 00:00:00', 6, 'UTC')",
		name, from.Format(time.DateOnly), to.Format(time.DateOnly))
}

func tenantText(t *event.Table, tenant string) string {
	switch t.Columns[t.Tenant].Type.Kind {
	case event.Int32, event.Int64, event.Uint64:
		return tenant // canonical: digits, and a sign at most
	}
	return text(tenant)
}

// rollupEngine is ClickHouse as package rollup sees it.
type rollupEngine struct{ *Sink }

func (s rollupEngine) Pairs(ctx context.Context, r *config.Rollup, each func(rollup.Pair) error) error {
	t := r.Table
	query := fmt.Sprintf("SELECT toString(%s), toString(toInt32(%s)) FROM %s GROUP BY 1, 2", ident(t.Columns[t.Tenant].Name), dayOf(t), ident(t.Name))
	var failed error
	ctx, cancel := context.WithTimeout(ctx, computeTimeout)
	defer cancel()
	if err := s.sync(ctx, t.Name); err != nil {
		return wrap(err, codeRollup, s.where()+", rollup "+r.Name)
	}
	err := s.compute(ctx, queryOf(query, 2, func(f []string) error {
		var day int64
		if day, failed = strconv.ParseInt(f[1], 10, 32); failed == nil {
			failed = each(rollup.Pair{Tenant: f[0], Day: int32(day)})
		}
		return failed
	}))
	if failed != nil {
		return failed
	}
	return wrap(err, codeRollup, s.where()+", rollup "+r.Name)
}

// computeTimeout bounds one statement of a rollup.
const computeTimeout = 10 * time.Minute

func (s rollupEngine) Compute(ctx context.Context, r *config.Rollup, pairs []rollup.Pair, version int64) error {
	ctx, cancel := context.WithTimeout(ctx, computeTimeout)
	defer cancel()
	if err := s.sync(ctx, r.Table.Name); err != nil {
		return wrap(err, codeRollup, s.where()+", rollup "+r.Name)
	}
	for _, month := range rollup.Slices(r, pairs, slicesMax) {
		if err := s.compute(ctx, ch.Query{Body: computeSQL(r, month, version)}); err != nil {
			return wrap(err, codeRollup, s.where()+", rollup "+r.Name)
		}
	}
	return nil
}

func (s *Sink) compute(ctx context.Context, q ch.Query) error {
	q.Settings = append(q.Settings, s.cluster.session()...)
	for _, setting := range [][2]string{
		{"do_not_merge_across_partitions_select_final", "1"}, // a row's month never changes
		// One block, so that the slices become visible whole or not at all.
		{"max_insert_threads", "1"}, {"min_insert_block_size_rows", "1000000000"}, {"min_insert_block_size_bytes", "0"},
		{"async_insert", "0"}, {"max_query_size", "10000000"},
	} {
		q.Settings = append(q.Settings, ch.Setting{Key: setting[0], Value: setting[1], Important: true})
	}
	c, err := s.pool.get(ctx)
	if err != nil {
		return err
	}
	return c.do(ctx, q)
}

// planRollups says which tables and views of rollups are missing.
func (s *Sink) planRollups(add func(sign byte, what, note string, statements ...string), addDo func(what string, do func(context.Context) error), tables map[string]*physical) {
	for _, r := range s.rollups {
		view, want := r.Name+viewSuffix, rollupComment+s.line+": "+r.String()
		switch p := tables[s.cluster.local(r.Name)]; {
		case !s.isThere(r.Name, tables):
			addDo("rollup "+r.Name, func(ctx context.Context) error {
				// Before the table: cut off in between, the fill is still wanted.
				if err := s.state.WantFill(ctx, r.Name); err != nil {
					return err
				}
				return s.execAll(ctx, "rollup "+r.Name, append(rollupDDL(r, s.line, s.cluster), rollupViewDDL(r, s.cluster)))
			})
			continue
		case p.comment != want:
			add(plan.Decide, r.Name, fmt.Sprintf("says %q, the file says %q: drop the table and its view, and apply makes and fills it anew", p.comment, want))
			continue
		}
		if v := tables[view]; v == nil {
			add(plan.Create, "view "+view, "", rollupViewDDL(r, s.cluster))
		}
	}
}

// Maintain keeps the rollups until ctx ends.
func (s *Sink) Maintain(ctx context.Context) { s.state.Worker(rollupEngine{s}, s.pool.log).Run(ctx) }

// RollUp brings every rollup up to the moment at which it was called, whatever other workers do meanwhile.
func (s *Sink) RollUp(ctx context.Context) error {
	return s.state.Worker(rollupEngine{s}, s.pool.log).RollUp(ctx)
}
