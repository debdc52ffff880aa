package doris

import (
	"context"
	"fmt"
	"strings"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/plan"
)

// Plan says what the state database and Doris lack of what the file wants, and how apply would mend it. Nothing is
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
	heading := fmt.Sprintf("%s %s (%s)", s.name, s.place(), version)
	add := func(sign byte, what, note, statement string) {
		c := plan.Change{Where: heading, Sign: sign, What: what, Note: note}
		if statement != "" {
			c.Do = func(ctx context.Context) error { return s.define(ctx, what, statement) }
		}
		changes = append(changes, c)
	}
	for _, t := range s.tables {
		p := tables[t.Name]
		if p == nil {
			note := ""
			if t.Month != event.None {
				note = "by month"
			}
			add(plan.Create, "table "+t.Name, note, tableDDL(t.Table, s.line, s.replication))
		} else {
			for _, f := range compareTable(t.Table, p, s.line) {
				planFound(add, t.Table, f)
			}
		}
		switch v := tables[viewName(t.Table)]; {
		case v == nil:
			add(plan.Create, "view "+viewName(t.Table), "", viewDDL(t.Table, "CREATE"))
		case !v.view:
			add(plan.Decide, viewName(t.Table), "is a table, it must be a view: see docs/doris-sink.md", "")
		case viewDiffers(t.Table, v):
			add(plan.Alter, "view "+viewName(t.Table), "ALTER VIEW", viewDDL(t.Table, "ALTER"))
		}
	}
	s.planRollups(add, func(what string, do func(context.Context) error) {
		changes = append(changes, plan.Change{Where: heading, Sign: plan.Create, What: what, Note: "filled by the sink", Do: do})
	}, tables)
	return changes, nil
}

func planFound(add func(sign byte, what, note, statement string), t *event.Table, f found) {
	what := t.Name
	if f.column != "" {
		what += "." + f.column
	}
	switch f.kind {
	case foundMissing:
		_, note, _ := strings.Cut(f.alter, ident(t.Name)+" ")
		add(plan.Alter, t.Name, note, f.alter)
	case foundUnexpected:
		add(plan.Note, what, f.what, "")
	default:
		add(plan.Decide, what, f.what+": see docs/doris-sink.md", "")
	}
}

// define runs a statement of the plan. What another apply has made meanwhile is no failure: it is there.
func (s *Sink) define(ctx context.Context, what, statement string) error {
	err := s.exec(ctx, statement)
	if err != nil && strings.Contains(err.Error(), "already exist") {
		return nil
	}
	return wrap(err, codeDDL, s.where()+", "+what)
}

// version is the server's, as people say it: "2.1.7".
func (s *Sink) version(ctx context.Context) (string, error) {
	rows, err := s.rows(ctx, "SELECT @@version_comment", 1)
	if err != nil || len(rows) != 1 {
		return "", err
	}
	words := strings.Fields(rows[0][0]) // "Doris version doris-2.1.7-rc03-443e87e203"
	if len(words) == 0 {
		return "", nil
	}
	version := strings.TrimPrefix(words[len(words)-1], "doris-")
	version, _, _ = strings.Cut(version, "-")
	return version, nil
}

// Grants are the statements that give the file's user what apply and the sink need, for whoever runs the server.
func (s *Sink) Grants() []string {
	user := "the_user"
	if a, err := s.dsn.Resolve(); err == nil && a.User != "" {
		user = a.User
	}
	return []string{
		"-- " + s.place(),
		fmt.Sprintf("GRANT SELECT_PRIV, LOAD_PRIV, CREATE_PRIV, ALTER_PRIV, SHOW_VIEW_PRIV ON internal.%s.* TO %s;", ident(s.dsn.Database()), text(user)),
	}
}
