package clickhouse

import (
	"context"
	"fmt"
	"strings"

	"github.com/ClickHouse/ch-go"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/plan"
)

// Plan says what the state database and ClickHouse lack of what the file wants, and how apply would mend it. Nothing is
// dropped or narrowed, ever, and no database is made.
func (s *Sink) Plan(ctx context.Context) ([]plan.Change, error) {
	changes, err := s.state.Plan(ctx, s.Groups())
	if err != nil {
		return nil, err
	}
	version, err := s.version(ctx)
	if err != nil {
		return nil, wrap(err, codeQuery, s.where())
	}
	tables, err := s.readSchema(ctx)
	if err != nil {
		return nil, wrap(err, codeQuery, s.where())
	}
	heading := fmt.Sprintf("%s %s (%s)", s.name, s.pool.place(), version)
	add := func(sign byte, what, note string, statements ...string) {
		c := plan.Change{Where: heading, Sign: sign, What: what, Note: note}
		if len(statements) > 0 {
			c.Do = func(ctx context.Context) error { return s.execAll(ctx, what, statements) }
		}
		changes = append(changes, c)
	}
	if strings.Contains(s.pool.place(), ",") && s.cluster.name == "" {
		add(plan.Note, "several hosts", "all of them must serve the same data: they are tried in turn, and only the first that answers is written to")
	}
	for _, t := range s.tables {
		if !s.isThere(t.Name, tables) {
			var notes []string
			if partitionKey(t.Table) != "" {
				notes = append(notes, "by month")
			}
			if s.cluster.name != "" {
				notes = append(notes, "on cluster "+s.cluster.name)
			}
			add(plan.Create, "table "+t.Name, strings.Join(notes, ", "), tableDDL(t.Table, s.line, s.cluster)...)
		}
		for _, f := range s.compare(t.Table, tables) {
			s.planFound(add, t.Table, f)
		}
		switch v := tables[viewName(t.Table)]; {
		case v == nil:
			add(plan.Create, "view "+viewName(t.Table), "", viewDDL(t.Table, s.cluster))
		case v.engine != "View":
			add(plan.Decide, viewName(t.Table), "is a "+v.engine+", it must be a view: see docs/clickhouse-sink.md")
		case viewDiffers(t.Table, v):
			add(plan.Alter, "view "+viewName(t.Table), "CREATE OR REPLACE", viewDDL(t.Table, s.cluster))
		}
	}
	s.planRollups(add, func(what string, do func(context.Context) error) {
		changes = append(changes, plan.Change{Where: heading, Sign: plan.Create, What: what, Note: "filled by the sink", Do: do})
	}, tables)
	return changes, nil
}

func (s *Sink) planFound(add func(sign byte, what, note string, statements ...string), t *event.Table, f found) {
	what := t.Name
	if f.column != "" {
		what += "." + f.column
	}
	switch f.kind {
	case foundMissing, foundSetting:
		add(plan.Alter, t.Name, f.alter, s.cluster.alter(t.Name, f.alter)...)
	case foundUnexpected:
		add(plan.Note, what, f.what)
	default:
		add(plan.Decide, what, f.what+": see docs/clickhouse-sink.md")
	}
}

func (s *Sink) execAll(ctx context.Context, what string, statements []string) error {
	for _, statement := range statements {
		if err := s.pool.query(ctx, ch.Query{Body: statement, Settings: s.cluster.session()}); err != nil {
			return wrap(err, codeDDL, s.where()+", "+what)
		}
	}
	return nil
}

// version is the server's, as people say it: "26.7".
func (s *Sink) version(ctx context.Context) (version string, err error) {
	err = s.pool.rows(ctx, "SELECT version()", 1, func(f []string) { version = shortVersion(f[0]) })
	return version, err
}

// privileges are what the sink and apply need of the database.
const privileges = "SELECT, INSERT, CREATE TABLE, CREATE VIEW, DROP VIEW, ALTER ADD COLUMN, ALTER SETTINGS"

// Grants are the statements that give the file's user what apply and the sink need, for whoever runs the server.
func (s *Sink) Grants() []string {
	user := "the_user"
	if a, err := s.pool.dsn.Resolve(); err == nil && a.User != "" {
		user = a.User
	}
	list := []string{
		"-- " + s.pool.place(),
		fmt.Sprintf("GRANT %s ON %s.* TO %s;", privileges, ident(s.pool.dsn.Database()), ident(user)),
	}
	if on := s.cluster.on(); on != "" {
		list[1] = fmt.Sprintf("GRANT%s %s, SYSTEM SYNC REPLICA ON %s.* TO %s;", on, privileges, ident(s.pool.dsn.Database()), ident(user))
		list = append(list, fmt.Sprintf("GRANT%s CLUSTER, REMOTE ON *.* TO %s;", on, ident(user)))
	}
	return list
}
