package mysql

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/partitioner"
)

// physical is a table as information_schema tells of it.
type physical struct {
	name    string
	comment string
	columns []physicalColumn
	indexes []physicalIndex // the primary key is called PRIMARY
}

type physicalColumn struct {
	name      string
	typ       string // normal form, as columnType writes it
	nullable  bool
	supplied  bool // has a default or is generated: an INSERT may leave it out
	collation string
	keyed     bool // part of the primary key, whether or not the server lists that among the indexes
}

type physicalIndex struct {
	name    string
	unique  bool
	columns []string
}

// readSchema reads all tables of the database, or one.
func readSchema(ctx context.Context, q progress.Querier, only string) (map[string]*physical, error) {
	where, args := " WHERE TABLE_SCHEMA = DATABASE()", []any(nil)
	if only != "" {
		where, args = where+" AND TABLE_NAME = ?", []any{only}
	}
	tables := make(map[string]*physical)
	at := func(name string) *physical {
		if tables[name] == nil {
			tables[name] = &physical{name: name}
		}
		return tables[name]
	}
	rows, err := q.QueryContext(ctx, "SELECT TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, COLUMN_DEFAULT IS NOT NULL, "+
		"EXTRA, COALESCE(COLLATION_NAME,''), COLUMN_KEY FROM information_schema.COLUMNS"+where+" ORDER BY TABLE_NAME, ORDINAL_POSITION", args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var table, nullable, extra, key string
		var c physicalColumn
		if err := rows.Scan(&table, &c.name, &c.typ, &nullable, &c.supplied, &extra, &c.collation, &key); err != nil {
			return nil, err
		}
		c.typ, c.keyed = normalType(c.typ), key == "PRI"
		c.nullable = strings.EqualFold(nullable, "YES")
		c.supplied = c.supplied || c.nullable || strings.Contains(strings.ToUpper(extra), "GENERATED") ||
			strings.Contains(strings.ToLower(extra), "auto_increment")
		at(table).columns = append(at(table).columns, c)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	rows, err = q.QueryContext(ctx, "SELECT TABLE_NAME, INDEX_NAME, NON_UNIQUE, COALESCE(COLUMN_NAME,'') FROM information_schema.STATISTICS"+
		where+" ORDER BY TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX", args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var table, name, column string
		var nonUnique int
		if err := rows.Scan(&table, &name, &nonUnique, &column); err != nil {
			return nil, err
		}
		t := tables[table]
		if t == nil {
			continue // made between the two queries: the caller did not see it, and makes it "if not exists"
		}
		if n := len(t.indexes); n == 0 || t.indexes[n-1].name != name {
			t.indexes = append(t.indexes, physicalIndex{name: name, unique: nonUnique == 0})
		}
		last := &t.indexes[len(t.indexes)-1]
		last.columns = append(last.columns, column)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	rows, err = q.QueryContext(ctx, "SELECT TABLE_NAME, COALESCE(TABLE_COMMENT,'') FROM information_schema.TABLES"+where, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var table, comment string
		if err := rows.Scan(&table, &comment); err != nil {
			return nil, err
		}
		if t := tables[table]; t != nil {
			t.comment = comment
		}
	}
	return tables, rows.Err()
}

var displayWidth = regexp.MustCompile(`^(int|bigint)\(\d+\)`)

// normalType drops what old servers and MariaDB add and nobody means: int(11).
func normalType(t string) string {
	t = displayWidth.ReplaceAllString(strings.ToLower(t), "$1")
	if t == "tinyint" {
		return "tinyint(1)"
	}
	return t
}

// found is one difference between a table and the file.
type found struct {
	kind   foundKind
	column string // "" for the table as a whole
	what   string // for a person
	alter  string // what ALTER TABLE needs, for those that apply mends
	err    string // code, where the sink refuses the table
}

type foundKind uint8

const (
	foundMissing    foundKind = iota + 1 // apply adds it; the sink refuses the table until then
	foundNarrow                          // the table holds less than the file; apply widens it; the sink refuses until then
	foundIndex                           // an index of the file is not there; apply makes it
	foundWider                           // the table holds more than the file: apply does not narrow, the sink does not mind
	foundDiffers                         // a person must decide; the sink refuses the table
	foundUnexpected                      // a column that the file does not name, filled by its default; nothing is done
)

// compare finds the differences. It is pure.
func compare(t *event.Table, p *physical, d dialect) []found {
	var list []found
	differs := func(column, code, format string, args ...any) {
		list = append(list, found{kind: foundDiffers, column: column, what: fmt.Sprintf(format, args...), err: code})
	}
	if number, ok := strings.CutPrefix(p.comment, tableComment); ok && number != tableFormat {
		differs("", codeTableDiffers, "is of format %s, this release reads %s: run the release that made it, or a later one", number, tableFormat)
	}
	have := make(map[string]physicalColumn)
	for _, c := range p.columns {
		have[c.name] = c
	}
	if _, ok := have["_ver"]; !ok {
		differs("", codeTableDiffers, "has no column _ver: it was not made by slotline")
		return list
	}
	key := primaryKey(t)
	for _, c := range t.Columns {
		h, ok := have[c.Name]
		delete(have, c.Name)
		if !ok {
			list = append(list, found{kind: foundMissing, column: c.Name, what: "is not there", alter: "ADD COLUMN " + addedColumn(c), err: codeTableDiffers})
			continue
		}
		want := columnType(c.Type)
		if want == "json" && d.MariaDB {
			want = "longtext"
		}
		modify := "MODIFY COLUMN " + columnDDL(c)
		switch {
		case h.typ != want && wider(want, h.typ) && !slices.Contains(key, c.Name):
			list = append(list, found{kind: foundNarrow, column: c.Name, what: "is " + h.typ + ", file says " + c.Type.String(), alter: modify, err: codeTableDiffers})
		case h.typ != want && wider(h.typ, want):
			list = append(list, found{kind: foundWider, column: c.Name, what: "is " + h.typ + ", file says " + c.Type.String()})
		case h.typ != want:
			differs(c.Name, codeTableDiffers, "is %s, file says %s", h.typ, c.Type)
		case c.Nullable && !h.nullable:
			list = append(list, found{kind: foundNarrow, column: c.Name, what: "is NOT NULL, file allows NULL", alter: modify, err: codeTableDiffers})
		case !c.Nullable && h.nullable:
			list = append(list, found{kind: foundWider, column: c.Name, what: "allows NULL, file does not"})
		}
		if slices.Contains(key, c.Name) && h.collation != "" && h.collation != d.collation() && h.collation != "binary" {
			differs(c.Name, codeCollation, "has collation %s, which takes ids that differ for equal; it must be %s", h.collation, d.collation())
		}
	}
	delete(have, "_ver")
	delete(have, "_deleted")
	for _, c := range p.columns {
		if h, ok := have[c.name]; !ok {
			continue
		} else if h.supplied {
			list = append(list, found{kind: foundUnexpected, column: c.name, what: "is not in the file; left as it is"})
		} else {
			differs(c.name, codeTableDiffers, "is not in the file, NOT NULL and without default: no row could be written")
		}
	}
	wanted := slices.Clone(t.Indexes)
	for _, ix := range p.indexes {
		switch {
		case ix.name == "PRIMARY":
			if !slices.Equal(ix.columns, key) {
				differs("", codeTableDiffers, "has PRIMARY KEY (%s), it must be (%s)", strings.Join(ix.columns, ","), strings.Join(key, ","))
			}
		case ix.unique:
			differs("", codeUniqueKey, "UNIQUE KEY %s (%s) would let one row overwrite another", ix.name, strings.Join(ix.columns, ", "))
		}
		wanted = slices.DeleteFunc(wanted, func(columns []string) bool { return slices.Equal(columns, ix.columns) })
	}
	if !slices.ContainsFunc(p.columns, func(c physicalColumn) bool { return c.keyed }) {
		differs("", codeTableDiffers, "has no primary key; it must be (%s)", strings.Join(key, ","))
	}
	for _, columns := range wanted {
		list = append(list, found{kind: foundIndex, what: "index (" + strings.Join(columns, ",") + ") is not there",
			alter: "ADD " + indexDDL(columns)})
	}
	return list
}

// addedColumn is the definition of a column that is added to rows that are there: they hold what a deleted row holds. The
// default also lets a sink that does not know the column yet go on writing.
func addedColumn(c event.Column) string {
	definition := columnDDL(c)
	switch {
	case c.Nullable:
	case c.Type.Kind == event.Text || c.Type.Kind == event.JSON: // a literal is refused there, an expression is not
		definition += " DEFAULT (" + zeroLiteral(c) + ")"
	default:
		definition += " DEFAULT " + zeroLiteral(c)
	}
	return definition
}

// lateNote warns of a column that older events cannot have: a row image lacks it only where it may be NULL.
func lateNote(t *event.Table, f found) string {
	for _, c := range t.Columns {
		if f.kind == foundMissing && f.column == c.Name && !c.Nullable {
			return "is NOT NULL: events that were emitted without it become dead letters, also when the log is read again; write " + c.TypeText() + "?"
		}
	}
	return ""
}

var sizedType = regexp.MustCompile(`^(varchar|varbinary|decimal)\((\d+)(?:,(\d+))?\)$`)

// wider says that every value of type b is one of type a, stored the same.
func wider(a, b string) bool {
	x, y := sizedType.FindStringSubmatch(a), sizedType.FindStringSubmatch(b)
	if x != nil && y != nil {
		return x[1] == y[1] && x[3] == y[3] && atoi(x[2]) > atoi(y[2])
	}
	return a == "bigint" && b == "int" || y != nil && y[1] == "varchar" && a == "longtext"
}

func atoi(digits string) (n int) {
	for _, c := range digits {
		n = n*10 + int(c-'0')
	}
	return n
}

// check refuses a table that the sink must not write to.
func (sh *shard) check(t *event.Table, p *physical, d dialect) error {
	if p == nil {
		return nil // an engine whose information_schema does not show it
	}
	for _, f := range compare(t, p, d) {
		if f.err != "" {
			return sh.foundError(p.name, f)
		}
	}
	return nil
}

// foundError is what the sink says of a table that it refuses.
func (sh *shard) foundError(table string, f found) error {
	where := fmt.Sprintf("shard %s, table %s", sh.name, table)
	if f.column != "" {
		where += ", column " + f.column
	}
	e := &fault.Error{Code: f.err, Class: fault.Fatal, What: where + " " + f.what}
	switch {
	case f.err == codeUniqueKey:
		e.What = fmt.Sprintf("shard %s, table %s: %s", sh.name, table, f.what)
		e.Why = "ON DUPLICATE KEY UPDATE follows every unique key, not only the primary key"
		_, rest, _ := strings.Cut(f.what, "UNIQUE KEY ")
		key, _, _ := strings.Cut(rest, " ")
		e.Do = fmt.Sprintf("ALTER TABLE %s.%s DROP KEY %s; a plain KEY is fine", sh.dsn.Database(), table, key)
	case f.alter != "":
		e.Do = "slotline apply"
	default:
		e.Why = "values could be altered or rows mixed up in silence"
		e.Do = "see docs/mysql-sink.md, \"Changing a column\""
	}
	return e
}

// uniqueKey is the error that names a table's secondary unique key, or nil.
func (sh *shard) uniqueKey(ctx context.Context, table string) error {
	tables, err := readSchema(ctx, sh.control, table)
	if err != nil || tables[table] == nil {
		return nil
	}
	for _, ix := range tables[table].indexes {
		if ix.unique && ix.name != "PRIMARY" {
			return sh.foundError(table, found{err: codeUniqueKey,
				what: fmt.Sprintf("UNIQUE KEY %s (%s) would let one row overwrite another", ix.name, strings.Join(ix.columns, ", "))})
		}
	}
	return nil
}

// load fills the catalog with the tables that are there, or refuses the shard for one of them.
func (sh *shard) load(ctx context.Context, d dialect) error {
	tables, err := readSchema(ctx, sh.control, "")
	if err != nil {
		return sh.wrap(err)
	}
	for name, p := range tables {
		i, m, ok := sh.sink.logical(name)
		if !ok {
			continue
		}
		t := sh.sink.tables[i].Table
		if err := sh.check(t, p, d); err != nil {
			return err
		}
		sh.catalog.add(newPlace(0, i, m), newUpsert(t, m, d))
	}
	return nil
}

// logical says which table and month a physical table is of.
func (s *Sink) logical(name string) (index int, m partitioner.Month, ok bool) {
	name, ok = strings.CutSuffix(name, s.suffix())
	if !ok {
		return 0, 0, false
	}
	for _, base := range []string{name, name[:max(0, len(name)-len("_202611"))]} {
		if i, there := s.tableIndex[base]; there {
			if m, ok := s.tables[i].MonthOfName(name); ok {
				return i, m, true
			}
		}
	}
	return 0, 0, false
}
