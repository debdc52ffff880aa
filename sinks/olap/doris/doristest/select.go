package doristest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// This file has what needs an SQL engine carried out by one: the rows are copied there before each statement, into
// tables of the same columns, and the views are made there by the statements that made them here.

// engine is a database in which SELECTs are carried out.
type engine struct {
	db     *sql.DB
	copied map[string]copied // by name
	views  map[string]string
}

// copied is a table, and its changes as it was copied.
type copied struct {
	table   *table
	changes int
}

// SelectBy has every SELECT that the server does not know itself, and the SELECT of an INSERT, carried out by a MySQL:
// open is asked once for each database, and gives an empty one there. Without it they are refused.
func (s *Server) SelectBy(open func(database string) *sql.DB) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = open
}

var (
	selects      = regexp.MustCompile(`(?is)^\s*(SELECT|WITH)\s`)
	insertSelect = regexp.MustCompile("(?s)^INSERT INTO `([^`]+)` (?:TEMPORARY PARTITION \\(`([^`]+)`\\) )?WITH LABEL `([^`]+)` \\(([^)]*)\\)\n(SELECT .*)$")
	makeJoin     = regexp.MustCompile("(?s)^CREATE VIEW `([^`]+)` AS\n(SELECT [^\n]*)\nFROM `([^`]+)` r JOIN .*$")
	joinColumn   = regexp.MustCompile("AS `([^`]+)`")
)

const selectTimeout = time.Minute

// typeIn is a column's type in the engine. Texts are bytes there, as in Doris: they have no character set, and no order but
// that of their bytes.
func (c *column) typeIn() string {
	switch base, _, _ := strings.Cut(c.typ, "("); base {
	case "boolean":
		return "tinyint"
	case "largeint":
		return "decimal(39,0)"
	case "string":
		return "longblob"
	case "varchar":
		if c.bytes > 1000 {
			return "longblob"
		}
		return "varbinary(" + strconv.Itoa(c.bytes) + ")"
	}
	return c.typ
}

// selectLocked carries out a SELECT.
func (s *Server) selectLocked(name string, d *database, statement string) (result, error) {
	if s.open == nil {
		return result{}, detail("Syntax error: %.200s", statement)
	}
	if d.engine == nil {
		d.engine = &engine{db: s.open(name), copied: map[string]copied{}, views: map[string]string{}}
	}
	ctx, cancel := context.WithTimeout(context.Background(), selectTimeout)
	defer cancel()
	r, err := d.engine.run(ctx, d, statement)
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		err = detail("%s", e.Message)
	}
	return r, err
}

func (e *engine) run(ctx context.Context, d *database, statement string) (result, error) {
	for _, t := range d.tables {
		if err := e.copy(ctx, t); err != nil {
			return result{}, err
		}
	}
	for _, v := range d.views {
		if e.views[v.name] == v.create {
			continue
		}
		_, body, _ := strings.Cut(v.create, " AS\n")
		if _, err := e.db.ExecContext(ctx, "CREATE OR REPLACE VIEW `"+v.name+"` AS\n"+body); err != nil {
			return result{}, err
		}
		e.views[v.name] = v.create
	}
	rows, err := e.db.QueryContext(ctx, statement)
	if err != nil {
		return result{}, err
	}
	defer rows.Close()
	types, err := rows.ColumnTypes()
	if err != nil {
		return result{}, err
	}
	var r result
	for _, t := range types {
		r.columns = append(r.columns, t.Name())
		typ := byte(varString)
		switch strings.TrimPrefix(t.DatabaseTypeName(), "UNSIGNED ") {
		case "TINYINT", "SMALLINT", "INT", "BIGINT":
			typ = bigint
		case "DOUBLE":
			typ = double
		}
		r.types = append(r.types, typ)
	}
	for rows.Next() {
		fields, into := make([]any, len(types)), make([]any, len(types))
		for i := range fields {
			into[i] = &fields[i]
		}
		if err := rows.Scan(into...); err != nil {
			return r, err
		}
		values := make(row, len(fields))
		for i := range fields {
			if fields[i] != nil {
				text := textOf(fields[i], types[i].DatabaseTypeName())
				values[i] = &text
			}
		}
		r.rows = append(r.rows, values)
	}
	return r, rows.Err()
}

// textOf is a value as the protocol sends it. The driver may have made a time of a date.
func textOf(v any, typ string) string {
	switch v := v.(type) {
	case []byte:
		return string(v)
	case time.Time:
		if typ == "DATE" {
			return v.Format(time.DateOnly)
		}
		return v.Format("2006-01-02 15:04:05.000000")
	}
	return fmt.Sprint(v)
}

// copy brings a table of the engine up to date.
func (e *engine) copy(ctx context.Context, t *table) error {
	if at, there := e.copied[t.name]; there && at == (copied{t, t.changes}) {
		return nil
	}
	var defs []string
	for i := range t.columns {
		defs = append(defs, "`"+t.columns[i].name+"` "+t.columns[i].typeIn())
	}
	for _, statement := range []string{"DROP TABLE IF EXISTS `" + t.name + "`", "CREATE TABLE `" + t.name + "` (" + strings.Join(defs, ", ") + ")"} {
		if _, err := e.db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	var all []row
	for _, r := range t.rows {
		all = append(all, r)
	}
	for part := range slices.Chunk(all, 200) {
		var args []any
		for _, r := range part {
			for _, v := range r {
				args = append(args, v)
			}
		}
		one := "(" + strings.TrimSuffix(strings.Repeat("?,", len(t.columns)), ",") + ")"
		if _, err := e.db.ExecContext(ctx, "INSERT INTO `"+t.name+"` VALUES "+strings.TrimSuffix(strings.Repeat(one+",", len(part)), ","), args...); err != nil {
			return err
		}
	}
	e.copied[t.name] = copied{t, t.changes}
	return nil
}

// insert carries out INSERT INTO … WITH LABEL … SELECT …: all of its rows become visible, or none.
func (s *Server) insert(db string, m []string) (result, error) {
	s.mu.Lock()
	ask := s.fault
	s.mu.Unlock()
	var fault Fault
	if ask != nil {
		fault = ask(Load{Label: m[3], Table: m[1], Try: 1})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.databases[db]
	t := d.tables[m[1]]
	switch {
	case t == nil:
		return result{}, detail("Unknown table '%s'", m[1])
	case !labelPattern.MatchString(m[3]):
		return result{}, detail("Label format error. regex: %s, label: %s", labelPattern, m[3])
	case m[2] != "" && t.temporary[m[2]] == nil:
		return result{}, detail("partition name %s is not exists", m[2])
	case fault.Fail != "":
		return result{}, detail("%s", fault.Fail)
	}
	for _, x := range d.txns {
		if x.label == m[3] && x.state != aborted {
			return result{}, detail("Label [%s] has already been used, relate to txn [%d]", m[3], x.id)
		}
	}
	columns, err := t.plan(m[4])
	if err != nil {
		return result{}, detail("%v", err)
	}
	selected, err := s.selectLocked(db, d, m[5])
	if err != nil {
		return result{}, err
	}
	var rows []row
	for _, values := range selected.rows {
		r := make(row, len(t.columns))
		for i, at := range columns {
			c := &t.columns[at]
			if values[i] == nil {
				if !c.nullable {
					return result{}, detail("column(%s) values is null while columns is not nullable", c.name)
				}
				continue
			}
			text, err := c.cast(*values[i])
			if err != nil {
				return result{}, detail("Insert has filtered data in strict mode: column(%s) %v", c.name, err)
			}
			r[at] = &text
		}
		rows = append(rows, r)
	}
	s.next++
	x := t.begin(s.next, m[3])
	d.txns = append(d.txns, x)
	if m[2] != "" {
		into := t.temporary[m[2]]
		for _, r := range rows {
			if day := *r[t.partition]; day < into.from || day >= into.to {
				x.state = aborted
				return result{}, detail("no partition for this tuple. tuple=%s", day)
			}
		}
		x.state = visible
		if !s.lose {
			t.merge(into.rows, rows)
		}
		return result{}, nil
	}
	if fault.PublishTimeout == nil {
		x.publish(rows)
		return result{}, nil
	}
	x.state = committed
	go func() { // ends when the test closes the channel
		<-fault.PublishTimeout
		s.mu.Lock()
		defer s.mu.Unlock()
		x.publish(rows)
	}()
	return result{}, nil
}

// changeLocked has each row of a table changed that a condition is true of: for tests, which harm rows by hand.
func (s *Server) changeLocked(name string, d *database, from, where string, change func(t *table, key string) error) error {
	t := d.tables[from]
	if t == nil {
		return detail("Unknown table '%s'", from)
	}
	var keys []string
	for _, k := range t.keys {
		keys = append(keys, "`"+t.columns[k].name+"`")
	}
	found, err := s.selectLocked(name, d, "SELECT "+strings.Join(keys, ", ")+" FROM `"+from+"` WHERE "+where)
	if err != nil {
		return err
	}
	t.changes++
	for _, r := range found.rows {
		if err := change(t, keyText(r)); err != nil {
			return err
		}
	}
	return nil
}

// joinView is the view of a rollup.
func joinView(m []string) *view {
	v := &view{name: m[1], create: m[0], table: m[3], join: true}
	for _, c := range joinColumn.FindAllStringSubmatch(m[2], -1) {
		v.columns = append(v.columns, c[1])
	}
	return v
}
