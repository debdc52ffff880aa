package doris

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
)

// physical is a table or view as the server tells of it.
type physical struct {
	name    string
	view    bool
	comment string
	create  string // the statement that makes it
	columns []physicalColumn
}

// readSchema reads the tables and views of the file that are there.
func (s *Sink) readSchema(ctx context.Context) (map[string]*physical, error) {
	var names []string
	for _, t := range s.tables {
		names = append(names, text(t.Name), text(viewName(t.Table)))
	}
	for _, r := range s.rollups {
		names = append(names, text(r.Name), text(r.Name+viewSuffix))
	}
	found, err := s.rows(ctx, "SELECT TABLE_NAME, TABLE_TYPE, TABLE_COMMENT FROM information_schema.tables WHERE TABLE_SCHEMA = "+
		text(s.dsn.Database())+" AND TABLE_NAME IN ("+strings.Join(names, ", ")+")", 3)
	if err != nil {
		return nil, err
	}
	tables := make(map[string]*physical)
	for _, f := range found {
		p := &physical{name: f[0], view: strings.Contains(f[1], "VIEW"), comment: f[2]}
		tables[p.name] = p
		create, err := s.rows(ctx, "SHOW CREATE TABLE "+ident(p.name), 2)
		if err != nil {
			return nil, err
		}
		for _, c := range create {
			p.create += c[1]
		}
		columns, err := s.rows(ctx, "DESC "+ident(p.name), 4) // Field, Type, Null, Key
		if err != nil {
			return nil, err
		}
		for _, c := range columns {
			p.columns = append(p.columns, physicalColumn{name: c[0], typ: plainType(c[1]), nullable: strings.EqualFold(c[2], "yes"),
				key: strings.EqualFold(c[3], "true")})
		}
	}
	return tables, nil
}

// plainType is a type in the spelling that columnType has, whatever release wrote it.
func plainType(t string) string {
	t = strings.ReplaceAll(strings.ToLower(t), " ", "")
	t = strings.NewReplacer("decimalv3", "decimal", "decimalv2", "decimal", "datetimev2", "datetime", "datev2", "date").Replace(t)
	switch t {
	case "text":
		return "string"
	case "tinyint(1)":
		return "boolean"
	}
	return t
}

// found is one difference between a table and the file.
type found struct {
	kind   foundKind
	column string // "" for the table as a whole
	what   string // for a person
	alter  string // the statement that mends it, for what apply mends
}

type foundKind uint8

const (
	foundMissing    foundKind = iota + 1 // apply adds it; the sink refuses the table until then
	foundDiffers                         // a person must decide; the sink refuses the table
	foundUnexpected                      // a column that the file does not name, filled by its default; nothing is done
)

// refused says that the sink must not write to the table.
func (k foundKind) refused() bool { return k == foundMissing || k == foundDiffers }

var (
	uniqueKey    = regexp.MustCompile(`(?i)UNIQUE KEY\s*\(([^)]*)\)`)
	mergeOnWrite = regexp.MustCompile(`(?i)"enable_unique_key_merge_on_write"\s*=\s*"true"`)
	sequenceCol  = regexp.MustCompile(`(?i)"function_column\.sequence_col"\s*=\s*"` + verColumn + `"`)
	autoMonth    = regexp.MustCompile("(?i)AUTO PARTITION BY RANGE\\s*\\(\\s*date_trunc\\(`?" + monthColumn + "`?,\\s*'month'\\)\\s*\\)")
	partitioned  = regexp.MustCompile(`(?i)PARTITION BY`)
)

// compareTable finds the differences. It is pure.
func compareTable(t *event.Table, p *physical, line string) []found {
	var list []found
	differs := func(column, format string, args ...any) {
		list = append(list, found{kind: foundDiffers, column: column, what: fmt.Sprintf(format, args...)})
	}
	if p.view {
		differs("", "is a view: it was not made by slotline")
		return list
	}
	if told, ok := strings.CutPrefix(p.comment, tableComment); ok {
		number, owner, _ := strings.Cut(told, lineComment)
		if number != tableFormat {
			differs("", "is of format %s, this release reads %s: run the release that made it, or a later one", number, tableFormat)
		}
		if owner != "" && owner != line {
			differs("", "is line %s's: two lines that write one table drop each other's rows by version; give line %s a database of its own", owner, line)
		}
	}
	want := strings.Join(keyNames(t), ",")
	switch key := uniqueKey.FindStringSubmatch(p.create); {
	case key == nil:
		differs("", "has no UNIQUE KEY: it was not made by slotline")
		return list
	case plainKey(key[1]) != want:
		differs("", "has UNIQUE KEY(%s), it must be (%s)", plainKey(key[1]), want)
	}
	if !mergeOnWrite.MatchString(p.create) {
		differs("", "is not merge-on-write: enable_unique_key_merge_on_write must be true")
	}
	if !sequenceCol.MatchString(p.create) {
		differs("", "has no sequence column %s: old rows would win", verColumn)
	}
	switch {
	case t.Month != event.None && !autoMonth.MatchString(p.create):
		differs("", "is not partitioned by month: AUTO PARTITION BY RANGE (date_trunc(%s, 'month'))", monthColumn)
	case t.Month == event.None && partitioned.MatchString(p.create):
		differs("", "is partitioned, the file has no month for it")
	}
	have := make(map[string]physicalColumn)
	for _, c := range p.columns {
		have[c.name] = c
	}
	for _, c := range physicalColumns(t) {
		h, ok := have[c.name]
		delete(have, c.name)
		var told string
		if c.source.Name != "" {
			told = "file says " + c.source.TypeText() + " (" + c.typ + " " + null(c.nullable) + ")"
		} else {
			told = "it must be " + c.typ + " " + null(c.nullable)
		}
		switch {
		case !ok && (c.key || c.source.Name == ""):
			differs(c.name, "is not there: the table was not made by slotline")
		case !ok:
			list = append(list, found{kind: foundMissing, column: c.name, what: "is not there", alter: addColumnDDL(t, c)})
		case h.typ != c.typ || h.nullable != c.nullable:
			differs(c.name, "is %s %s, %s", h.typ, null(h.nullable), told)
		}
	}
	for _, c := range p.columns {
		if _, ok := have[c.name]; ok && !strings.HasPrefix(c.name, "__DORIS_") {
			list = append(list, found{kind: foundUnexpected, column: c.name, what: "is not in the file; left as it is"})
		}
	}
	return list
}

// plainKey drops quotes and spaces.
func plainKey(key string) string { return strings.NewReplacer("`", "", " ", "", "\n", "").Replace(key) }

// viewDiffers says whether a view is not the one that viewDDL makes.
func viewDiffers(t *event.Table, p *physical) bool {
	var have []string
	for _, c := range p.columns {
		have = append(have, c.name)
	}
	return !slices.Equal(have, viewColumns(t)) || !strings.Contains(p.create, deletedColumn)
}

// verify refuses tables that the sink must not write to. Once they are as they should be it asks no more, until a batch
// was refused.
func (s *Sink) verify(ctx context.Context) error {
	s.verifying.Lock()
	defer s.verifying.Unlock()
	if s.verified.Load() || s.shadow != nil {
		return nil
	}
	tables, err := s.readSchema(ctx)
	if err != nil {
		return wrap(err, codeQuery, s.where())
	}
	for _, t := range s.tables {
		p := tables[t.Name]
		if p == nil {
			return &fault.Error{Code: codeTable, Class: fault.Fatal, What: fmt.Sprintf("%s: table %s is not there", s.where(), t.Name), Do: "slotline apply"}
		}
		for _, f := range compareTable(t.Table, p, s.line) {
			if f.kind.refused() {
				return s.foundError(t.Name, f)
			}
		}
	}
	s.verified.Store(true)
	return nil
}

// foundError is what the sink says of a table that it refuses.
func (s *Sink) foundError(table string, f found) error {
	what := fmt.Sprintf("%s: table %s", s.where(), table)
	if f.column != "" {
		what += ", column " + f.column
	}
	e := &fault.Error{Code: codeTable, Class: fault.Fatal, What: what + " " + f.what, Do: "slotline apply"}
	if f.kind == foundDiffers {
		e.Why = "values could be altered, or old rows win, in silence"
		e.Do = "see docs/doris-sink.md, \"Changing a table\""
	}
	return e
}
