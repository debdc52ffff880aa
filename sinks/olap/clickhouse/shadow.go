package clickhouse

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/olap"
	"github.com/slotline/slotline/sinks/olap/rollup"
)

// insertOf is the statement that a block goes by.
func (s *Sink) insertOf(t *table) string {
	if s.shadow == nil {
		return t.insert
	}
	return insertSQL(olap.Named(t.Table, s.shadow.Into()))
}

// Seed makes the sink's rows in the state database.
func (s *Sink) Seed(ctx context.Context) error { return s.state.Seed(ctx, s.Groups()) }

// CheckShadow says why a table cannot be exchanged with one that is made anew; nil if it can.
func (s *Sink) CheckShadow(ctx context.Context, t *event.Table) error {
	refused := func(what, do string) error {
		return &fault.Error{Code: codeShadow, Class: fault.Fatal, What: fmt.Sprintf("%s: table %s %s", s.where(), t.Name, what), Do: do}
	}
	if s.cluster.name != "" {
		return refused("is on a cluster, where rebuilding it is not built", "make a table under another name on the cluster, fill it by INSERT … SELECT, and exchange the two")
	}
	tables, err := s.readSchema(ctx)
	if err != nil {
		return wrap(err, codeQuery, s.where())
	}
	if tables[t.Name] == nil {
		return refused("is not there", "slotline apply")
	}
	for _, f := range s.compare(t, tables) {
		switch {
		case f.kind.refused():
			return s.foundError(t.Name, f)
		case f.kind == foundUnexpected:
			return refused("has column "+f.column+", which the file does not name: it would be lost", "name it in the file, or drop it")
		}
	}
	return nil
}

// MakeShadow makes an empty table of another name.
func (s *Sink) MakeShadow(ctx context.Context, t *event.Table, name string) error {
	return s.execAll(ctx, "table "+name, tableDDL(olap.Named(t, name), s.line, cluster{}))
}

// TablesLike are the tables whose names begin with a prefix, with what identifies each whatever its name.
func (s *Sink) TablesLike(ctx context.Context, prefix string) (uuids map[string]string, err error) {
	uuids = map[string]string{}
	err = s.pool.rows(ctx, "SELECT name, toString(uuid) FROM system.tables WHERE database = currentDatabase() AND startsWith(name, "+text(prefix)+")", 2,
		func(f []string) { uuids[f[0]] = f[1] })
	return uuids, wrap(err, codeQuery, s.where())
}

// RenameTable gives a table another name.
func (s *Sink) RenameTable(ctx context.Context, from, to string) error {
	return s.execAll(ctx, "table "+from, []string{"RENAME TABLE " + ident(from) + " TO " + ident(to)})
}

// ExchangeTables has two tables change names, in one step.
func (s *Sink) ExchangeTables(ctx context.Context, a, b string) error {
	return s.execAll(ctx, "table "+a, []string{"EXCHANGE TABLES " + ident(a) + " AND " + ident(b)})
}

// ReplaceMonth has a table hold, of a month, what another holds, in one step.
func (s *Sink) ReplaceMonth(ctx context.Context, t *event.Table, m partitioner.Month, from string) error {
	return s.execAll(ctx, "table "+t.Name, []string{fmt.Sprintf("ALTER TABLE %s REPLACE PARTITION ID '%d' FROM %s", ident(t.Name), m, ident(from))})
}

// DropTable drops a table, if it is there.
func (s *Sink) DropTable(ctx context.Context, name string) error {
	return s.execAll(ctx, "table "+name, []string{"DROP TABLE IF EXISTS " + ident(name) + " SYNC"})
}

// MonthsOf are the months that any of some tables holds, whatever their names; NoMonth for tables without months.
func (s *Sink) MonthsOf(ctx context.Context, t *event.Table, names ...string) (list []partitioner.Month, err error) {
	if t.Month == event.None {
		return []partitioner.Month{partitioner.NoMonth}, nil
	}
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = text(name)
	}
	err = s.pool.rows(ctx, "SELECT DISTINCT partition FROM system.parts WHERE active AND database = currentDatabase() AND table IN ("+
		strings.Join(quoted, ", ")+") ORDER BY partition", 1, func(f []string) {
		if m, err := partitioner.ParseMonth(f[0]); err == nil { // another partition was not made by slotline
			list = append(list, m)
		}
	})
	return list, wrap(err, codeQuery, s.where())
}

// CompareTables compares two tables of the same columns in a month, row by row; NoMonth: as a whole.
func (s *Sink) CompareTables(ctx context.Context, t *event.Table, m partitioner.Month, first, second string) (c olap.Compared, err error) {
	err = s.sums(ctx, compareTablesSQL(t, m, first, second), 4, func(f []string) {
		for i, n := range []*int64{&c.Rows, &c.Equal, &c.Missing, &c.Extra} {
			*n, _ = strconv.ParseInt(f[i], 10, 64)
		}
	})
	return c, err
}

func compareTablesSQL(t *event.Table, m partitioner.Month, first, second string) string {
	names := []string{ident(verColumn), ident(deletedColumn)}
	for _, c := range t.Columns {
		names = append(names, ident(c.Name))
	}
	key := identList(sortingKey(t))
	in := "1"
	if m != partitioner.NoMonth {
		in = ofMonth(t, m)
	}
	side := func(table string, n int) string {
		return fmt.Sprintf("SELECT %s, sipHash64(toString(tuple(%s))) AS _sum, %d AS _side FROM %s FINAL WHERE %s", key, strings.Join(names, ", "), n, ident(table), in)
	}
	return fmt.Sprintf("SELECT toString(count()), toString(countIf(_n = 2 AND _x = 0)), toString(countIf(_first = 0)), toString(countIf(_first = _n)) FROM (\n"+
		"SELECT count() AS _n, groupBitXor(_sum) AS _x, countIf(_side = 1) AS _first FROM (\n%s\nUNION ALL\n%s\n) GROUP BY %s\n) SETTINGS max_bytes_before_external_group_by = 1000000000",
		side(first, 1), side(second, 2), key)
}

// RollupPairs calls each for the pairs of a rollup that its base or it itself has in a month; NoMonth: in all.
func (s *Sink) RollupPairs(ctx context.Context, r *config.Rollup, m partitioner.Month, each func(rollup.Pair) error) error {
	ctx, cancel := context.WithTimeout(ctx, computeTimeout)
	defer cancel()
	var failed error
	q := queryOf(rollupPairsSQL(r, m), 2, func(f []string) error {
		var day int64
		if day, failed = strconv.ParseInt(f[1], 10, 32); failed == nil {
			failed = each(rollup.Pair{Tenant: f[0], Day: int32(day)})
		}
		return failed
	})
	err := s.compute(ctx, q)
	if failed != nil {
		return failed
	}
	return wrap(err, codeRollup, s.where()+", rollup "+r.Name)
}

// rollupPairsSQL reads the rollup too: it has slices of rows that the base has no more.
func rollupPairsSQL(r *config.Rollup, m partitioner.Month) string {
	t := r.Table
	tenant := ident(t.Columns[t.Tenant].Name)
	base, own := "1", "1"
	if m != partitioner.NoMonth {
		base, own = ofMonth(t, m), fmt.Sprintf("toYYYYMM(%s) = %d", ident(r.Bucket), m)
	}
	return fmt.Sprintf("SELECT toString(_t), toString(_d) FROM (SELECT %[1]s AS _t, toInt32(%[2]s) AS _d FROM %[3]s WHERE %[4]s\nUNION ALL\nSELECT %[1]s AS _t, toInt32(%[5]s) AS _d FROM %[6]s WHERE %[7]s) GROUP BY _t, _d",
		tenant, dayOf(t), ident(t.Name), base, ident(r.Bucket), ident(r.Name), own)
}
