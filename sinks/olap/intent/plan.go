package intent

import (
	"context"
	"fmt"
	"strings"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/checkup"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/internal/plan"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/sinks/olap/rollup"
)

// Plan says which tables and rows are missing. A partition that is new begins at offset 0: if its log does not, the
// consumer halts and says so.
func (s *State) Plan(ctx context.Context, groups [][]event.Partition) ([]plan.Change, error) {
	heading, err := s.heading(ctx)
	if err != nil {
		return nil, s.wrap(err)
	}
	if err := progress.CheckFormat(ctx, s.o.DB, s.where()); err != nil {
		return nil, s.wrap(err)
	}
	if err := s.checkFormat(ctx); err != nil {
		return nil, s.wrap(err)
	}
	tables, err := s.tables(ctx)
	if err != nil {
		return nil, s.wrap(err)
	}
	seededGroups, seededParts := map[int]bool{}, map[event.Partition]bool{}
	if tables[Table] {
		if seededGroups, err = s.seededGroups(ctx); err != nil {
			return nil, s.wrap(err)
		}
	}
	if tables[progress.Table] {
		rows, err := progress.List(ctx, s.o.DB, s.o.Sink)
		if err != nil {
			return nil, s.wrap(err)
		}
		for _, r := range rows {
			seededParts[r.Partition] = true
		}
	}
	var newGroups []int
	var newParts []event.Partition
	for g, parts := range groups {
		if !seededGroups[g] {
			newGroups = append(newGroups, g)
		}
		for _, p := range parts {
			if !seededParts[p] {
				newParts = append(newParts, p)
			}
		}
	}
	var changes []plan.Change
	if !tables[Table] || len(newGroups) > 0 {
		changes = append(changes, plan.Change{Where: heading, Sign: plan.Create,
			What: fmt.Sprintf("%s (%d groups of %s)", Table, len(newGroups), s.o.Sink),
			Do:   func(ctx context.Context) error { return s.wrap(s.seedGroups(ctx, newGroups)) }})
	}
	if !tables[progress.Table] || !tables[progress.GapTable] || len(newParts) > 0 {
		changes = append(changes, plan.Change{Where: heading, Sign: plan.Create,
			What: fmt.Sprintf("%s (%d rows of %s)", progress.Table, len(newParts), s.o.Sink),
			Do:   func(ctx context.Context) error { return s.wrap(s.seedProgress(ctx, newParts)) }})
	}
	rollups, err := rollup.Plan(ctx, s.o.DB, s.where(), s.o.Sink, heading, s.o.Rollups)
	return append(changes, rollups...), err
}

// privileges are what apply and the sinks need of the state's database.
const privileges = "SELECT, INSERT, UPDATE, DELETE, CREATE"

// Grants are the statements that give the user of sinks.state what apply and the sinks need, where it is no database of
// another purpose.
func Grants(cfg *config.Config) []string {
	return []string{"-- sinks.state, " + cfg.Sinks.State.Place(),
		fmt.Sprintf("GRANT %s ON %s.* TO %s;", privileges, mysqldb.Ident(cfg.Sinks.State.Database()), mysqldb.GrantTo(cfg.Sinks.State))}
}

// Needs is what apply and the sinks need of the server of sinks.state. It asks nobody.
func Needs(cfg *config.Config) mysqldb.Needs {
	return mysqldb.Needs{Privileges: []mysqldb.Privileges{{Names: mysqldb.PrivilegeNames(privileges), Database: cfg.Sinks.State.Database(), Table: "*",
		Sign: checkup.Stops, Why: "apply and the OLAP sinks need it; slotline apply --grants prints all"}}}
}

// heading is the line that the changes stand under: "outbox db0/flights (MySQL 8.4.3)".
func (s *State) heading(ctx context.Context) (string, error) {
	var version string
	if err := s.o.DB.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return "", err
	}
	engine := "MySQL"
	if strings.Contains(strings.ToLower(version), "mariadb") {
		engine = "MariaDB"
	}
	version, _, _ = strings.Cut(version, "-")
	return fmt.Sprintf("%s (%s %s)", s.o.Heading, engine, version), nil
}

func (s *State) tables(ctx context.Context) (map[string]bool, error) {
	rows, err := s.o.DB.QueryContext(ctx, "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA=DATABASE() "+
		"AND TABLE_NAME IN ('slotline_intent','slotline_progress','slotline_gap')")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	there := make(map[string]bool)
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		there[strings.ToLower(name)] = true
	}
	return there, rows.Err()
}

func (s *State) seededGroups(ctx context.Context) (map[int]bool, error) {
	rows, err := s.o.DB.QueryContext(ctx, "SELECT `grp` FROM `slotline_intent` WHERE `sink`=?", s.o.Sink)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	there := make(map[int]bool)
	for rows.Next() {
		var g int
		if err := rows.Scan(&g); err != nil {
			return nil, err
		}
		there[g] = true
	}
	return there, rows.Err()
}

const seedSQL = "INSERT INTO `slotline_intent` (`sink`,`grp`,`run_id`,`seq`,`codec`,`ranges`,`excluded`,`confirmed`,`updated_at`) " +
	"VALUES (?,?,?,0,?,'[]','[]',1,UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE `seq`=`slotline_intent`.`seq`"

func (s *State) seedGroups(ctx context.Context, groups []int) error {
	if _, err := s.o.DB.ExecContext(ctx, DDL()); err != nil {
		return err
	}
	for _, g := range groups {
		if _, err := s.o.DB.ExecContext(ctx, seedSQL, s.o.Sink, g, make([]byte, len(Run{})), s.o.Codec); err != nil {
			return err
		}
	}
	return nil
}

func (s *State) seedProgress(ctx context.Context, parts []event.Partition) error {
	for _, statement := range progress.DDL() {
		if _, err := s.o.DB.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	for _, p := range parts {
		if err := progress.Seed(ctx, s.o.DB, s.o.Sink, event.Position{Partition: p, LeaderEpoch: -1}); err != nil {
			return err
		}
	}
	return nil
}
