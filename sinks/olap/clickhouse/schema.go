package clickhouse

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
)

// physical is a table or view as system.tables tells of it.
type physical struct {
	name, engine, engineFull string
	partitionKey, sortingKey string
	create, comment          string // create: the statement that makes it
	columns                  []physicalColumn
}

type physicalColumn struct{ name, typ string }

// readSchema reads the tables and views of the file that are there.
func (s *Sink) readSchema(ctx context.Context) (map[string]*physical, error) {
	var names []string
	for _, t := range s.tables {
		names = append(names, text(t.Name), text(viewName(t.Table)), text(s.cluster.local(t.Name)))
	}
	for _, r := range s.rollups {
		names = append(names, text(r.Name), text(r.Name+viewSuffix), text(s.cluster.local(r.Name)))
	}
	in := " IN (" + strings.Join(names, ", ") + ")"
	tables := make(map[string]*physical)
	err := s.pool.rows(ctx, "SELECT name, engine, engine_full, partition_key, sorting_key, create_table_query, comment FROM system.tables "+
		"WHERE database = currentDatabase() AND name"+in, 7, func(f []string) {
		tables[f[0]] = &physical{name: f[0], engine: f[1], engineFull: f[2], partitionKey: f[3], sortingKey: f[4], create: f[5], comment: f[6]}
	})
	if err != nil {
		return nil, err
	}
	err = s.pool.rows(ctx, "SELECT table, name, type FROM system.columns WHERE database = currentDatabase() AND table"+in+
		" ORDER BY table, position", 3, func(f []string) {
		if t := tables[f[0]]; t != nil {
			t.columns = append(t.columns, physicalColumn{f[1], f[2]})
		}
	})
	return tables, err
}

// rows runs a query whose columns are strings.
func (p *pool) rows(ctx context.Context, query string, columns int, each func(fields []string)) error {
	return p.query(ctx, queryOf(query, columns, func(fields []string) error {
		each(fields)
		return nil
	}))
}

// found is one difference between a table and the file.
type found struct {
	kind   foundKind
	column string // "" for the table as a whole
	what   string // for a person
	alter  string // what ALTER TABLE needs, for what apply mends
}

type foundKind uint8

const (
	foundMissing    foundKind = iota + 1 // apply adds it; the sink refuses the table until then
	foundDiffers                         // a person must decide; the sink refuses the table
	foundSetting                         // apply sets it; the sink does not mind
	foundUnexpected                      // a column that the file does not name, filled by its default; nothing is done
)

// refused says that the sink must not write to the table.
func (k foundKind) refused() bool { return k == foundMissing || k == foundDiffers }

var windowSetting = regexp.MustCompile(`non_replicated_deduplication_window = [1-9]`)

// compareTable finds the differences. It is pure.
func compareTable(t *event.Table, p *physical, line string) []found {
	var list []found
	differs := func(column, format string, args ...any) {
		list = append(list, found{kind: foundDiffers, column: column, what: fmt.Sprintf(format, args...)})
	}
	if !strings.HasSuffix(p.engine, "ReplacingMergeTree") {
		differs("", "has engine %s: it was not made by slotline", p.engine)
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
	if !strings.Contains(plainType(p.engineFull), verColumn+")") {
		differs("", "has engine %s, which does not keep the greatest %s", p.engineFull, verColumn)
	}
	if want := strings.Join(sortingKey(t), ", "); plainKey(p.sortingKey) != plainKey(want) {
		differs("", "has ORDER BY (%s), it must be (%s)", p.sortingKey, want)
	}
	if want := partitionKey(t); plainKey(p.partitionKey) != plainKey(want) {
		differs("", "has PARTITION BY %s, it must be %s", orNothing(p.partitionKey), orNothing(strings.ReplaceAll(want, "`", "")))
	}
	have := make(map[string]string)
	for _, c := range p.columns {
		have[c.name] = c.typ
	}
	after := ""
	for _, c := range t.Columns {
		typ, ok := have[c.Name]
		switch want := columnType(c); {
		case !ok:
			alter := "ADD COLUMN IF NOT EXISTS " + ident(c.Name) + " " + want + " FIRST"
			if after != "" {
				alter = strings.TrimSuffix(alter, "FIRST") + "AFTER " + ident(after)
			}
			list = append(list, found{kind: foundMissing, column: c.Name, what: "is not there", alter: alter})
		case plainType(typ) != plainType(want):
			differs(c.Name, "is %s, file says %s (%s)", typ, c.TypeText(), want)
		}
		delete(have, c.Name)
		after = c.Name
	}
	for _, c := range []physicalColumn{{verColumn, verType}, {deletedColumn, deletedType}} {
		if typ, ok := have[c.name]; !ok {
			differs(c.name, "is not there: the table was not made by slotline")
		} else if typ != c.typ {
			differs(c.name, "is %s, it must be %s", typ, c.typ)
		}
		delete(have, c.name)
	}
	for _, c := range p.columns {
		if _, ok := have[c.name]; ok {
			list = append(list, found{kind: foundUnexpected, column: c.name, what: "is not in the file; left as it is"})
		}
	}
	if p.engine == "ReplacingMergeTree" && !windowSetting.MatchString(p.engineFull) {
		list = append(list, found{kind: foundSetting, what: "forgets tokens at once: what is sent again is stored twice until it is merged",
			alter: "MODIFY SETTING " + tableSettings[0]})
	}
	return list
}

// plainKey drops what a server may write differently: quotes, spaces, and parentheses around the whole.
func plainKey(key string) string {
	key = strings.NewReplacer("`", "", " ", "").Replace(key)
	if strings.HasPrefix(key, "(") {
		key = strings.TrimSuffix(key[1:], ")")
	}
	return key
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}

// viewDiffers says whether a view is not the one that viewDDL makes.
func viewDiffers(t *event.Table, p *physical) bool {
	var have []string
	for _, c := range p.columns {
		have = append(have, c.name)
	}
	query := plainKey(p.create)
	return p.engine != "View" || !slices.Equal(have, viewColumns(t)) || !strings.Contains(p.create, " FINAL") ||
		!strings.Contains(query, deletedColumn+"=0")
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
		if !s.isThere(t.Name, tables) {
			return &fault.Error{Code: codeTable, Class: fault.Fatal, What: fmt.Sprintf("%s: table %s is not there", s.where(), t.Name), Do: "slotline apply"}
		}
		for _, f := range s.compare(t.Table, tables) {
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
		e.Do = "see docs/clickhouse-sink.md, \"Changing a table\""
	}
	return e
}
