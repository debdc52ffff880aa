package clickhouse

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/ClickHouse/ch-go"

	"github.com/slotline/slotline/event"
)

// cluster is where the tables are: the zero value is one server. On a cluster each table is two, made on all hosts:
// <table>_local, replicated, holds the rows of a shard; <table> is Distributed over those. The sink, the rollups and the
// views use <table> alone. Rows are placed by the hash of the tenant, so that all versions of an entity, and all of a
// rollup's slice, are in one shard: FINAL, which each shard does by itself, is right.
type cluster struct{ name, database string }

const localSuffix = "_local"

// on is what a statement has behind the name of what it defines.
func (c cluster) on() string {
	if c.name == "" {
		return ""
	}
	return " ON CLUSTER " + ident(c.name)
}

// local is the table that holds the rows.
func (c cluster) local(name string) string {
	if c.name == "" {
		return name
	}
	return name + localSuffix
}

// engine is ReplacingMergeTree by _ver. A replicated one has the server's own paths, and remembers tokens by itself.
func (c cluster) engine() string {
	if c.name == "" {
		return "ReplacingMergeTree(" + ident(verColumn) + ")"
	}
	return "ReplicatedReplacingMergeTree(" + ident(verColumn) + ")"
}

// settings of a table that holds rows.
func (c cluster) settings() []string {
	if c.name == "" {
		return tableSettings
	}
	return tableSettings[1:]
}

// shardingKey places a row of a table with this first column in its key.
func shardingKey(column string) string { return "xxHash64(" + ident(column) + ")" }

// distributed makes the table that is over the local ones; nothing on one server.
func (c cluster) distributed(name string, columns [][2]string, shardBy, comment string) []string {
	if c.name == "" {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "CREATE TABLE IF NOT EXISTS %s%s (\n", ident(name), c.on())
	for i, column := range columns {
		fmt.Fprintf(&b, "  %s %s", ident(column[0]), column[1])
		if i < len(columns)-1 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, ")\nENGINE = Distributed(%s, %s, %s, %s)\nCOMMENT %s", text(c.name), text(c.database), text(c.local(name)), shardingKey(shardBy), text(comment))
	return []string{b.String()}
}

// alter is the statements that alter a table.
func (c cluster) alter(name, change string) []string {
	list := []string{"ALTER TABLE " + ident(c.local(name)) + c.on() + " " + change}
	if c.name != "" && strings.HasPrefix(change, "ADD COLUMN") {
		list = append(list, "ALTER TABLE "+ident(name)+c.on()+" "+change)
	}
	return list
}

var distributedEngine = regexp.MustCompile(`^Distributed\('([^']*)', '([^']*)', '([^']*)', (.*)\)$`)

// compareDistributed finds how a Distributed table is not the one over a table of the file. It is pure.
func (c cluster) compareDistributed(t *event.Table, p *physical) (list []found) {
	differs := func(column, format string, args ...any) {
		list = append(list, found{kind: foundDiffers, column: column, what: fmt.Sprintf(format, args...)})
	}
	m := distributedEngine.FindStringSubmatch(p.engineFull)
	if p.engine != "Distributed" || m == nil {
		differs("", "has engine %s: with sinks.clickhouse.cluster it must be Distributed over %s", p.engine, c.local(t.Name))
		return list
	}
	if m[1] != c.name || m[2] != c.database || m[3] != c.local(t.Name) {
		differs("", "is over %s.%s of cluster %s, it must be over %s.%s of %s", m[2], m[3], m[1], c.database, c.local(t.Name), c.name)
	}
	if want := shardingKey(sortingKey(t)[0]); plainKey(m[4]) != plainKey(want) {
		differs("", "is sharded by %s, it must be %s: versions of one entity would be in several shards", m[4], want)
	}
	have := map[string]string{}
	for _, column := range p.columns {
		have[column.name] = column.typ
	}
	after := "FIRST"
	for _, column := range tableColumns(t) {
		switch typ, ok := have[column[0]]; {
		case !ok:
			list = append(list, found{kind: foundMissing, column: column[0], what: "is not there",
				alter: "ADD COLUMN IF NOT EXISTS " + ident(column[0]) + " " + column[1] + " " + after})
		case plainType(typ) != plainType(column[1]):
			differs(column[0], "is %s, the table below it has %s", typ, column[1])
		}
		after = "AFTER " + ident(column[0])
	}
	return list
}

// session is the settings of statements: an INSERT into a Distributed table is acknowledged when the shards have it, and
// what is done ON CLUSTER fails when one host fails, and returns no rows.
func (c cluster) session() []ch.Setting {
	if c.name == "" {
		return nil
	}
	return []ch.Setting{{Key: "distributed_foreground_insert", Value: "1", Important: true}, {Key: "distributed_ddl_output_mode", Value: "none", Important: true}}
}

// sync waits until every replica has what any of them has acknowledged: a SELECT may go to another one than the INSERT
// before it.
func (s *Sink) sync(ctx context.Context, table string) error {
	if s.cluster.name == "" {
		return nil
	}
	return s.compute(ctx, ch.Query{Body: s.cluster.syncSQL(table)})
}

func (c cluster) syncSQL(table string) string {
	return fmt.Sprintf("SYSTEM SYNC REPLICA%s %s.%s LIGHTWEIGHT", c.on(), ident(c.database), ident(c.local(table)))
}

// compare finds the differences between a table of the file and what is there of it.
func (s *Sink) compare(t *event.Table, tables map[string]*physical) (list []found) {
	local := tables[s.cluster.local(t.Name)]
	if local == nil {
		return nil
	}
	list = compareTable(t, local, s.line)
	if over := tables[t.Name]; s.cluster.name != "" && over != nil {
		for _, f := range s.cluster.compareDistributed(t, over) {
			// One that both lack is added to both.
			if f.kind != foundMissing || !hasMissing(list, f.column) {
				list = append(list, f)
			}
		}
	}
	return list
}

func hasMissing(list []found, column string) bool {
	for _, f := range list {
		if f.kind == foundMissing && f.column == column {
			return true
		}
	}
	return false
}

// isThere says whether a table of the file is, with all that belongs to it.
func (s *Sink) isThere(name string, tables map[string]*physical) bool {
	return tables[name] != nil && tables[s.cluster.local(name)] != nil
}
