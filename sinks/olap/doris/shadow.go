package doris

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/olap"
	"github.com/slotline/slotline/sinks/olap/rollup"
)

// This file is what the rebuild of a table asks of Doris: ALTER TABLE … REPLACE WITH TABLE, which has two tables change names
// in one step (data-operate/delete/atomicity-replace), and temporary partitions, which take the place of others in one step
// (data-operate/delete/table-temp-partition).

// into is the table that rows of a table go to.
func (s *Sink) into(t *table) string {
	if s.shadow == nil {
		return t.Name
	}
	return s.shadow.Into()
}

// Seed makes the sink's rows in the state database.
func (s *Sink) Seed(ctx context.Context) error { return s.state.Seed(ctx, s.Groups()) }

// CheckShadow says why a table cannot be exchanged with one that is made anew; nil if it can.
func (s *Sink) CheckShadow(ctx context.Context, t *event.Table) error {
	refused := func(what, do string) error {
		return &fault.Error{Code: codeShadow, Class: fault.Fatal, What: fmt.Sprintf("%s: table %s %s", s.where(), t.Name, what), Do: do}
	}
	tables, err := s.readSchema(ctx)
	if err != nil {
		return wrap(err, codeQuery, s.where())
	}
	p := tables[t.Name]
	if p == nil {
		return refused("is not there", "slotline apply")
	}
	for _, f := range compareTable(t, p, s.line) {
		switch {
		case f.kind.refused():
			return s.foundError(t.Name, f)
		case f.kind == foundUnexpected:
			return refused("has column "+f.column+", which the file does not name: it would be lost", "name it in the file, or drop it")
		}
	}
	return nil
}

var (
	bucketsOf = regexp.MustCompile(`(?i)\bBUCKETS\s+(\d+|AUTO)\b`)
	// identityOf is the comment of _ver, which a table that was made beside another has.
	identityOf = regexp.MustCompile("(?i)`" + verColumn + "`[^,\n]* COMMENT ['\"]([0-9A-Z]+)['\"]")
)

// shadowDDL makes an empty table beside the live one, with as many buckets. The comment of _ver tells which it is, whatever
// its name.
func shadowDDL(t *event.Table, name, line string, replication int, live, identity string) string {
	ddl := tableDDL(olap.Named(t, name), line, replication)
	ver := ident(verColumn) + " " + verType + " NOT NULL"
	ddl = strings.Replace(ddl, ver, ver+" COMMENT "+text(identity), 1)
	if have := bucketsOf.FindStringSubmatch(live); have != nil {
		ddl = strings.Replace(ddl, " BUCKETS "+strconv.Itoa(buckets), " BUCKETS "+have[1], 1)
	}
	return ddl
}

// MakeShadow makes an empty table of another name.
func (s *Sink) MakeShadow(ctx context.Context, t *event.Table, name string) error {
	live, err := s.createOf(ctx, t.Name)
	if err != nil {
		return wrap(err, codeQuery, s.where())
	}
	return s.define(ctx, "table "+name, shadowDDL(t, name, s.line, s.replication, live, rand.Text()))
}

// createOf is the statement that makes a table.
func (s *Sink) createOf(ctx context.Context, name string) (create string, err error) {
	rows, err := s.rows(ctx, "SHOW CREATE TABLE "+ident(name), 2)
	for _, r := range rows {
		create += r[1]
	}
	return create, err
}

// TablesLike are the tables whose names begin with a prefix, with what identifies each whatever its name: "" for one that
// was not made beside another.
func (s *Sink) TablesLike(ctx context.Context, prefix string) (identities map[string]string, err error) {
	rows, err := s.rows(ctx, "SELECT TABLE_NAME, TABLE_TYPE FROM information_schema.tables WHERE TABLE_SCHEMA = "+text(s.dsn.Database()), 2)
	identities = map[string]string{}
	for _, r := range rows {
		if !strings.HasPrefix(r[0], prefix) || strings.Contains(r[1], "VIEW") {
			continue
		}
		create, err := s.createOf(ctx, r[0])
		if err != nil {
			return nil, wrap(err, codeQuery, s.where())
		}
		identities[r[0]] = ""
		if m := identityOf.FindStringSubmatch(create); m != nil {
			identities[r[0]] = m[1]
		}
	}
	return identities, wrap(err, codeQuery, s.where())
}

// alter runs a statement that defines.
func (s *Sink) alter(ctx context.Context, table, format string, args ...any) error {
	return wrap(s.exec(ctx, fmt.Sprintf(format, args...)), codeDDL, s.where()+", table "+table)
}

// RenameTable gives a table another name.
func (s *Sink) RenameTable(ctx context.Context, from, to string) error {
	if from == to {
		return nil
	}
	return s.alter(ctx, from, "ALTER TABLE %s RENAME %s", ident(from), ident(to))
}

// ExchangeTables has two tables change names, in one step. Loads that began before go on into the table that they began with.
func (s *Sink) ExchangeTables(ctx context.Context, a, b string) error {
	return s.alter(ctx, a, "ALTER TABLE %s REPLACE WITH TABLE %s PROPERTIES ('swap' = 'true')", ident(a), ident(b))
}

// dropTries are more than enough: each meets a load that was committed just after the others had become visible.
const dropTries = 5

// DropTable drops a table, if it is there, once what was committed is visible: Doris refuses it before. It keeps the table for a
// day (RECOVER TABLE).
func (s *Sink) DropTable(ctx context.Context, name string) (err error) {
	for range dropTries {
		if err := s.settle(ctx); err != nil {
			return err
		}
		err = s.alter(ctx, name, "DROP TABLE IF EXISTS %s", ident(name))
		if err == nil || !strings.Contains(err.Error(), "COMMITTED state") {
			break
		}
	}
	return err
}

// settle waits until all that is committed by now is visible.
func (s *Sink) settle(ctx context.Context) error {
	conn, err := s.catalog.Conn(ctx)
	if err != nil {
		return wrap(err, codeQuery, s.where())
	}
	defer conn.Close()
	return wrap(s.settled(ctx, conn), codeQuery, s.where())
}

// ReplaceMonth has a table hold, of a month, what another holds, in one step: the rows are copied into a temporary partition,
// which takes the month's place. That has the name of the other table: a process that is late, and had made one from a table
// of another name, finds none to put in place.
func (s *Sink) ReplaceMonth(ctx context.Context, t *event.Table, m partitioner.Month, from string) error {
	if err := s.settle(ctx); err != nil { // what was loaded into the other, and is not visible, would not be copied
		return err
	}
	var left []string
	err := s.byName(ctx, "SHOW TEMPORARY PARTITIONS FROM "+ident(t.Name), func(value map[string]string) {
		if name := value["partitionname"]; strings.HasPrefix(name, t.Name+"__rb_") {
			left = append(left, name)
		}
	})
	if err != nil {
		return wrap(err, codeQuery, s.where()+", table "+t.Name)
	}
	for _, name := range left {
		if err := s.alter(ctx, t.Name, "ALTER TABLE %s DROP TEMPORARY PARTITION %s", ident(t.Name), ident(name)); err != nil {
			return err
		}
	}
	parts, err := s.partitions(ctx, t, t.Name)
	if err != nil {
		return wrap(err, codeQuery, s.where()+", table "+t.Name)
	}
	at := slices.IndexFunc(parts, func(p partition) bool { return p.Month == m })
	if at < 0 { // the copy makes it
		return s.copyMonth(ctx, t, m, from, "")
	}
	if err := s.alter(ctx, t.Name, "ALTER TABLE %s ADD TEMPORARY PARTITION %s VALUES [(\"%s\"), (\"%s\"))", ident(t.Name), ident(from), firstDay(m), firstDay(m.Add(1))); err != nil {
		return err
	}
	if err := s.copyMonth(ctx, t, m, from, "TEMPORARY PARTITION ("+ident(from)+") "); err != nil {
		return err
	}
	if err := s.checkCopy(ctx, t, m, from); err != nil {
		return err
	}
	return s.alter(ctx, t.Name, "ALTER TABLE %s REPLACE PARTITION (%s) WITH TEMPORARY PARTITION (%s)", ident(t.Name), ident(parts[at].name), ident(from))
}

// copyMonth copies a month's rows from a table into another, or a partition of it, and returns once they are visible.
func (s *Sink) copyMonth(ctx context.Context, t *event.Table, m partitioner.Month, from, partition string) error {
	ctx, cancel := context.WithTimeout(ctx, computeTimeout)
	defer cancel()
	var names []string
	for _, c := range physicalColumns(t) {
		names = append(names, c.name)
	}
	sum := sha256.Sum256([]byte(s.line + " " + from))
	label := "month_" + hex.EncodeToString(sum[:16]) // of this owner of the job, which copies once
	_, err := s.catalog.ExecContext(ctx, copyMonthSQL(t, m, from, partition, label, names))
	if err == nil {
		err = s.loader.waitVisible(ctx, label)
	}
	return wrap(err, codeDDL, s.where()+", table "+t.Name)
}

func copyMonthSQL(t *event.Table, m partitioner.Month, from, partition, label string, names []string) string {
	return fmt.Sprintf("INSERT INTO %s %sWITH LABEL %s (%s)\nSELECT %s\nFROM %s\nWHERE %s", ident(t.Name), partition, ident(label), identList(names),
		identList(names), ident(from), ofMonth(t, m))
}

// checkCopy looks whether a temporary partition has as many rows as it was copied from: an empty one that takes a month's place
// would take its rows away.
func (s *Sink) checkCopy(ctx context.Context, t *event.Table, m partitioner.Month, from string) error {
	var counts []string
	for _, query := range []string{
		fmt.Sprintf("SELECT COUNT(*) FROM %s WHERE %s", ident(from), ofMonth(t, m)),
		fmt.Sprintf("SELECT COUNT(*) FROM %s TEMPORARY PARTITION (%s)", ident(t.Name), ident(from)),
	} {
		err := s.each(ctx, s.catalog, query, func(f []sql.RawBytes) error {
			counts = append(counts, string(f[0]))
			return nil
		})
		if err != nil {
			return wrap(err, codeQuery, s.where()+", table "+t.Name)
		}
	}
	if len(counts) != 2 || counts[0] != counts[1] {
		return &fault.Error{Code: codeShadow, Class: fault.Fatal, What: fmt.Sprintf("%s: table %s, month %s: rows of the new table and of its copy %v", s.where(), t.Name, m, counts),
			Why: "a copy that lacks rows must not take the month's place; nothing was replaced", Do: "again; if it comes back, rebuild the whole table"}
	}
	return nil
}

// MonthsOf are the months that any of some tables holds, whatever their names; NoMonth for tables without months.
func (s *Sink) MonthsOf(ctx context.Context, t *event.Table, names ...string) (list []partitioner.Month, err error) {
	if t.Month == event.None {
		return []partitioner.Month{partitioner.NoMonth}, nil
	}
	for _, name := range names {
		parts, err := s.partitions(ctx, t, name)
		if err != nil {
			return nil, wrap(err, codeQuery, s.where()+", table "+name)
		}
		for _, p := range parts {
			list = append(list, p.Month)
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// CompareTables compares two tables of the same columns in a month, row by row; NoMonth: as a whole.
func (s *Sink) CompareTables(ctx context.Context, t *event.Table, m partitioner.Month, first, second string) (c olap.Compared, err error) {
	if err := s.settle(ctx); err != nil {
		return c, err
	}
	err = s.each(ctx, s.catalog, compareTablesSQL(t, m, first, second), func(f []sql.RawBytes) error {
		for i, n := range []*int64{&c.Rows, &c.Equal, &c.Missing, &c.Extra} {
			*n, _ = strconv.ParseInt(string(f[i]), 10, 64) // NULL where there are no rows
		}
		return nil
	})
	return c, wrap(err, codeQuery, s.where())
}

func compareTablesSQL(t *event.Table, m partitioner.Month, first, second string) string {
	parts := []string{ident(verColumn), "','", "IF(" + ident(deletedColumn) + ", '1', '0')"}
	for _, c := range t.Columns {
		switch c.Type.Kind {
		case event.Bytes, event.JSON:
			c.Type.Kind = event.Text // as they are stored
		}
		parts = append(parts, "','", valueText(c))
		if c.Type.Kind == event.Float64 {
			parts = append(parts, "','", "IFNULL(CONCAT("+lacking(c)+"), 'N')")
		}
	}
	keys := identList(keyNames(t))
	in := "1 = 1"
	if m != partitioner.NoMonth {
		in = ofMonth(t, m)
	}
	side := func(table string, n int) string {
		return fmt.Sprintf("SELECT %s, SHA2(CONCAT(%s), 256) AS `_h`, %d AS `_side` FROM %s WHERE %s", keys, strings.Join(parts, ", "), n, ident(table), in)
	}
	return fmt.Sprintf("SELECT COUNT(*), SUM(IF(`_n` = 2 AND `_low` = `_high`, 1, 0)), SUM(IF(`_first` = 0, 1, 0)), SUM(IF(`_first` = `_n`, 1, 0)) FROM (\n"+
		"SELECT COUNT(*) AS `_n`, MIN(`_h`) AS `_low`, MAX(`_h`) AS `_high`, SUM(`_side`) AS `_first` FROM (\n%s\nUNION ALL\n%s\n) AS u GROUP BY %s\n) AS g",
		side(first, 1), side(second, 0), keys)
}

// RollupPairs calls each for the pairs of a rollup that its base or it itself has in a month; NoMonth: in all.
func (s *Sink) RollupPairs(ctx context.Context, r *config.Rollup, m partitioner.Month, each func(rollup.Pair) error) error {
	if err := s.settle(ctx); err != nil { // what is marked must be seen by whoever reads the mark
		return err
	}
	var failed error
	err := s.each(ctx, s.catalog, rollupPairsSQL(r, m), func(f []sql.RawBytes) error {
		day, err := strconv.ParseInt(string(f[1]), 10, 32)
		if err != nil {
			return err
		}
		failed = each(rollup.Pair{Tenant: string(f[0]), Day: int32(day)})
		return failed
	})
	if failed != nil {
		return failed
	}
	return wrap(err, codeRollup, s.where()+", rollup "+r.Name)
}

// rollupPairsSQL reads the rollup too: it has slices of rows that the base has no more.
func rollupPairsSQL(r *config.Rollup, m partitioner.Month) string {
	t := r.Table
	tenant, day := ident(t.Columns[t.Tenant].Name), "DATEDIFF(%s, '1970-01-01') AS `_d`"
	base, own := "1 = 1", "1 = 1"
	if m != partitioner.NoMonth {
		base = ofMonth(t, m)
		own = fmt.Sprintf("%[1]s >= '%[2]s' AND %[1]s < '%[3]s'", ident(r.Bucket), firstDay(m), firstDay(m.Add(1)))
	}
	side := func(day, from, where string) string {
		return fmt.Sprintf("SELECT %s AS `_t`, %s FROM %s WHERE %s", tenant, day, ident(from), where)
	}
	return fmt.Sprintf("SELECT `_t`, `_d` FROM (\n%s\nUNION ALL\n%s\n) AS u GROUP BY `_t`, `_d`",
		side(fmt.Sprintf(day, dayOf(t)), t.Name, base), side(fmt.Sprintf(day, ident(r.Bucket)), r.Name, own))
}
