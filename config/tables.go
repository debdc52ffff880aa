package config

import (
	"errors"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
)

// tables reads the tables; limits are those of the sinks that the file has.
func (l loader) tables(e *entry, limits []*event.Limits) []*event.Table {
	var tables []*event.Table
	if e.present() && len(e.node.Content) == 0 {
		l.add(codeValue, e.example, []*yaml.Node{e.key}, "tables is empty")
	}
	for _, te := range e.kids {
		if t := l.table(te, limits); t != nil {
			tables = append(tables, t)
		}
	}
	return tables
}

// table reads one table; nil if it was reported.
func (l loader) table(e *entry, limits []*event.Limits) *event.Table {
	if !e.present() {
		return nil
	}
	before := len(l.problems)
	t := &event.Table{Name: e.key.Value, Month: event.None, Topic: l.topic(e.get("topic"), "")}
	columns := e.get("columns")
	for _, c := range columns.kids {
		t.Columns = append(t.Columns, l.column(c))
	}
	if columns.present() && len(columns.kids) == 0 {
		l.add(codeValue, columns.example, []*yaml.Node{columns.key}, "%s is empty", columns.path)
	}
	t.Tenant = l.role(e.get("tenant"), t)
	t.ID = l.role(e.get("id"), t)
	t.Spread = l.role(e.get("spread"), t)
	t.Version = event.None
	if v := e.get("version"); l.text(v) != v.def {
		t.Version = l.role(v, t)
	}
	l.monthRole(e.get("month"), t)
	l.indexes(e.get("indexes"), t)
	if len(l.problems) > before || !columns.present() || !e.get("id").present() {
		return nil // validating what was half read would name problems that are not there
	}
	if err := t.Validate(); err != nil {
		l.tableProblems(e, err)
		return nil
	}
	for _, limit := range limits {
		if err := limit.CheckTable(t); err != nil {
			l.tableProblems(e, err)
		}
	}
	return t
}

func (l loader) column(e *entry) event.Column {
	c := event.Column{Name: e.key.Value, Source: l.at(e.key)}
	if !e.present() {
		return c // reported
	}
	var err error
	if c.Type, c.Nullable, err = event.ParseType(e.node.Value); err != nil {
		code, what, write := codeValue, err.Error(), ""
		if f, ok := errors.AsType[*fault.Error](err); ok {
			code, what, write = f.Code, f.What, f.Write
		}
		if write != "" && !strings.Contains(write, " ") {
			write = e.key.Value + ": " + yamlScalar(write)
		}
		if strings.HasSuffix(strings.TrimSuffix(e.key.Value, "?"), ")") {
			what, write = "inside { } a type with a comma must stand in double quotes", `total: "decimal(12,2)"`
		}
		l.add(code, write, []*yaml.Node{e.key}, "table %s, column %s: %s", e.parent.parent.key.Value, quoteKey(e.key.Value), what)
	}
	return c
}

// yamlScalar quotes what a comma would end inside { }.
func yamlScalar(text string) string {
	if strings.ContainsAny(text, ",{}[]") {
		return `"` + text + `"`
	}
	return text
}

// role finds the column that a role names.
func (l loader) role(e *entry, t *event.Table) int {
	if !e.present() {
		return event.None
	}
	return l.columnIndex(e, e.node, t)
}

func (l loader) columnIndex(e *entry, node *yaml.Node, t *event.Table) int {
	i := slices.IndexFunc(t.Columns, func(c event.Column) bool { return c.Name == node.Value })
	if i < 0 && len(t.Columns) > 0 {
		columns := make([]string, len(t.Columns))
		for i, c := range t.Columns {
			columns[i] = c.Name
		}
		write := nearest(node.Value, columns)
		if write == "" {
			write = "one of " + strings.Join(columns[:min(len(columns), 16)], ", ")
		}
		l.add(codeColumn, write, []*yaml.Node{node}, "table %s, %s: there is no column %s", t.Name, e.name, quoteKey(node.Value))
	}
	return i
}

const snowflakeExample = "month: { snowflake: flight_id, epoch: 2020-01-01T00:00:00Z }"

// monthRole reads a column, or { snowflake: column, epoch: time }.
func (l loader) monthRole(e *entry, t *event.Table) {
	if !e.present() {
		return
	}
	if e.node.Kind == yaml.ScalarNode {
		t.Month = l.columnIndex(e, e.node, t)
		return
	}
	for i := 0; i+1 < len(e.node.Content); i += 2 {
		key, value := e.node.Content[i], e.node.Content[i+1]
		switch {
		case value.Kind != yaml.ScalarNode || value.Tag == "!!null" || key.Kind != yaml.ScalarNode:
			l.add(codeValue, snowflakeExample, []*yaml.Node{key}, "%s holds %s; here stand snowflake and epoch", e.path, kindWord(value))
			return
		case key.Value == "snowflake":
			t.Month = l.columnIndex(e, value, t)
		case key.Value == "epoch":
			epoch, err := time.Parse(time.RFC3339, value.Value)
			if err != nil {
				l.add(codeValue, "epoch: 2020-01-01T00:00:00Z", []*yaml.Node{value}, "%s.epoch: %s is not a time", e.path, quoteKey(value.Value))
				return
			}
			epoch = epoch.UTC()
			t.SnowflakeEpoch = &epoch
		default:
			l.add(codeUnknownKey, nearest(key.Value, []string{"snowflake", "epoch"}), []*yaml.Node{key}, "%s is not a key; %s has snowflake, epoch", quoteKey(e.path+"."+key.Value), e.path)
			return
		}
	}
	if t.Month == event.None || t.SnowflakeEpoch == nil {
		l.add(codeMissing, snowflakeExample, []*yaml.Node{e.key}, "%s needs both snowflake and epoch", e.path)
	}
}

func (l loader) indexes(e *entry, t *event.Table) {
	if !e.present() {
		return
	}
	for _, n := range e.node.Content {
		if n.Kind != yaml.SequenceNode {
			l.add(codeValue, "indexes: [[carrier, origin]]", []*yaml.Node{n}, "%s holds %s; here stands a list of lists of columns", e.path, kindWord(n))
			continue
		}
		var columns []string
		for _, c := range n.Content {
			if c.Kind != yaml.ScalarNode {
				l.add(codeValue, "indexes: [[carrier, origin]]", []*yaml.Node{c}, "%s holds %s; here stands a column", e.path, kindWord(c))
				continue
			}
			l.columnIndex(e, c, t)
			columns = append(columns, c.Value)
		}
		t.Indexes = append(t.Indexes, columns)
	}
}

// tableProblems adds file and line to what package event found.
func (l loader) tableProblems(e *entry, err error) {
	problems, ok := errors.AsType[event.Problems](err)
	if !ok {
		l.add(codeValue, "", []*yaml.Node{e.key}, "%v", err)
		return
	}
	for _, p := range problems {
		at := e
		for part := range strings.SplitSeq(p.Key, ".") {
			if part == "" || at.keyNode.kid(part) == nil {
				break
			}
			at = at.get(part)
		}
		l.addLines(p.Code, p.Write, []int{lineOf(at.at())}, p.Why, "table "+p.Table+": "+p.What)
	}
}
