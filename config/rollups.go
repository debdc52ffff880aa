package config

import (
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/slotline/slotline/event"
)

// String is the declaration in one line: "flights by carrier, day, origin: flights count, late sum(late)".
func (r *Rollup) String() string {
	t := r.Table
	text := t.Name + " by " + t.Columns[t.Tenant].Name + ", " + r.Bucket
	for _, c := range r.By {
		text += ", " + t.Columns[c].Name
	}
	for i, m := range r.Measures {
		text += [...]string{": ", ", "}[min(i, 1)] + m.Name + " " + m.Func
		if m.Column != event.None {
			text += "(" + t.Columns[m.Column].Name + ")"
		}
	}
	return text
}

var (
	measurePattern = regexp.MustCompile(`^(count|(sum|min|max|avg|distinct)\(([^()]+)\))$`)
	rollupColumn   = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)
)

// rollups reads the rollups; one that was reported is left out.
func (l loader) rollups(e *entry, cfg *Config) (list []*Rollup) {
	if !e.present() {
		return nil
	}
	if cfg.Sinks.ClickHouse == nil && cfg.Sinks.Doris == nil {
		l.add(codeConflict, "sinks.clickhouse or sinks.doris, or no rollups", []*yaml.Node{e.key}, "rollups are kept in ClickHouse and in Doris, and the file has neither")
	}
	for _, re := range e.kids {
		if r := l.rollup(re, cfg); r != nil {
			list = append(list, r)
		}
	}
	return list
}

func (l loader) rollup(e *entry, cfg *Config) *Rollup {
	if !e.present() {
		return nil
	}
	before := len(l.problems)
	r := &Rollup{Name: e.key.Value, Bucket: l.choice(e.get("bucket"))}
	l.rollupName(e, cfg)
	table := e.get("table")
	if !table.present() {
		return nil // reported
	}
	if r.Table = cfg.Table(table.node.Value); r.Table == nil {
		if len(cfg.Tables) > 0 { // else the tables were reported
			var names []string
			for _, t := range cfg.Tables {
				names = append(names, t.Name)
			}
			l.wrong(codeColumn, table, "is no table of this file", nearest(table.node.Value, names))
		}
		return nil
	}
	if r.Table.Broadcast() || r.Table.Month == event.None {
		l.wrong(codeConflict, table, "has no tenant, or no month: a rollup is kept by tenant, and by day or month of the month column", "")
		return nil
	}
	seen := map[string]bool{r.Bucket: true, r.Table.Columns[r.Table.Tenant].Name: true}
	l.dimensions(e.get("by"), r, seen)
	l.measures(e.get("measures"), r, seen)
	if len(l.problems) > before {
		return nil
	}
	return r
}

// rollupName refuses what cannot name a table beside those of the file.
func (l loader) rollupName(e *entry, cfg *Config) {
	name := e.key.Value
	probe := &event.Table{Name: name, Columns: []event.Column{{Name: "x", Type: event.Type{Kind: event.Int64}}}, Month: event.None, Tenant: event.None,
		Spread: event.None, Version: event.None}
	if err := probe.Validate(); err != nil {
		l.add(codeName, "", []*yaml.Node{e.key}, "rollup %s cannot name a table: lower-case letters, digits and _, not as a month table, a view or slotline_", quoteKey(name))
	} else if cfg.Table(name) != nil {
		l.add(codeConflict, "another name", []*yaml.Node{e.key}, "%s is a table and a rollup", quoteKey(name))
	}
}

func (l loader) dimensions(e *entry, r *Rollup, seen map[string]bool) {
	if !e.present() {
		return
	}
	for _, n := range e.node.Content {
		i := l.columnIndex(e, n, r.Table)
		if i < 0 {
			continue
		}
		switch c := r.Table.Columns[i]; {
		case i == r.Table.Tenant:
			// It is always there, and may be named.
		case c.Type.Kind == event.Float64 || c.Type.Kind == event.JSON || c.Type.Kind == event.Text:
			l.add(codeConflict, "", []*yaml.Node{n}, "%s: column %s is %s, which is no dimension", e.path, c.Name, c.TypeText())
		case seen[c.Name]:
			l.add(codeValue, "it once", []*yaml.Node{n}, "%s: %s stands twice, or is the bucket's name", e.path, c.Name)
		default:
			seen[c.Name] = true
			r.By = append(r.By, i)
		}
	}
}

func (l loader) measures(e *entry, r *Rollup, seen map[string]bool) {
	if e.present() && len(e.kids) == 0 {
		l.add(codeValue, e.example, []*yaml.Node{e.key}, "%s is empty", e.path)
	}
	for _, me := range e.kids {
		if !me.present() {
			continue
		}
		m := Measure{Name: me.key.Value, Column: event.None}
		found := measurePattern.FindStringSubmatch(strings.ReplaceAll(me.node.Value, " ", ""))
		switch {
		case !rollupColumn.MatchString(m.Name):
			l.add(codeName, "", []*yaml.Node{me.key}, "%s cannot name a column: a letter a-z, then at most 63 of a-z 0-9 _", me.path)
			continue
		case seen[m.Name]:
			l.add(codeConflict, "another name", []*yaml.Node{me.key}, "%s: the rollup has a column of this name", me.path)
			continue
		case found == nil:
			l.add(codeValue, m.Name+": sum(column)", []*yaml.Node{me.key}, "%s: %s is not count, or sum, min, max, avg or distinct of a column", me.path, quoteKey(me.node.Value))
			continue
		}
		seen[m.Name] = true
		if m.Func = found[1]; found[2] != "" {
			m.Func = found[2]
			column := *me.node
			column.Value = found[3]
			if m.Column = l.columnIndex(e, &column, r.Table); m.Column < 0 {
				continue
			}
			if c := r.Table.Columns[m.Column]; !measurable(m.Func, c.Type.Kind) {
				l.wrong(codeConflict, me, "is not possible: column "+c.Name+" is "+c.TypeText(), "")
				continue
			}
		}
		r.Measures = append(r.Measures, m)
	}
}

// measurable says whether a function takes a kind.
func measurable(function string, k event.Kind) bool {
	switch function {
	case "sum", "avg":
		return slices.Contains([]event.Kind{event.Bool, event.Int32, event.Int64, event.Uint64, event.Float64, event.Decimal}, k)
	}
	return k != event.JSON
}
