package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/internal/plan"
)

// inventory is what a database has of the outbox.
type inventory struct {
	version   string
	increment int64 // auto_increment_increment, for new connections
	formats   map[string]int
	foreign   []string // tables of slotline's names that are not slotline's
	lanes     int      // rows of slotline_lane
	settled   bool     // slotline_dead has the columns of settled letters
}

var (
	outboxTable  = regexp.MustCompile(`^slotline_(outbox_\d{2,}|lane|lane_gap|relay|dead)$`)
	tableComment = regexp.MustCompile(`^slotline (?:outbox lane|lane|lane gap|relay|dead) format (\d+)$`)
)

func inspect(ctx context.Context, db *sql.DB) (*inventory, error) {
	inv := &inventory{formats: map[string]int{}}
	if err := db.QueryRowContext(ctx, "SELECT VERSION(), @@GLOBAL.auto_increment_increment").Scan(&inv.version, &inv.increment); err != nil {
		return nil, err
	}
	rows, err := db.QueryContext(ctx, "SELECT table_name, table_comment FROM information_schema.tables"+
		" WHERE table_schema = DATABASE() AND table_name LIKE 'slotline%'")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name, comment string
		if err := rows.Scan(&name, &comment); err != nil {
			return nil, err
		}
		if !outboxTable.MatchString(name) {
			continue
		}
		if m := tableComment.FindStringSubmatch(comment); m != nil {
			inv.formats[name], _ = strconv.Atoi(m[1])
		} else {
			inv.foreign = append(inv.foreign, name)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if _, ok := inv.formats["slotline_lane"]; ok {
		if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM slotline_lane").Scan(&inv.lanes); err != nil {
			return nil, err
		}
	}
	if _, ok := inv.formats["slotline_dead"]; ok {
		err := db.QueryRowContext(ctx, "SELECT COUNT(*) > 0 FROM information_schema.columns"+
			" WHERE table_schema = DATABASE() AND table_name = 'slotline_dead' AND column_name = 'settled'").Scan(&inv.settled)
		if err != nil {
			return nil, err
		}
	}
	return inv, nil
}

func stateTables() []string {
	return []string{"slotline_lane", "slotline_lane_gap", "slotline_relay", "slotline_dead"}
}

func tables(lanes int) []string {
	names := stateTables()
	for lane := range lanes {
		names = append(names, LaneTable(lane))
	}
	return names
}

// refuse is the first of refusals, or nil.
func (inv *inventory) refuse(cfg *config.Config) error {
	if list := inv.refusals(cfg); len(list) > 0 {
		return list[0]
	}
	return nil
}

// refusals are what neither apply nor the relay works with.
func (inv *inventory) refusals(cfg *config.Config) (list []*fault.Error) {
	place := "outbox " + cfg.Outbox.DSN.Place()
	if len(inv.foreign) > 0 {
		slices.Sort(inv.foreign)
		list = append(list, &fault.Error{Code: codeTableForeign, Class: fault.Fatal,
			What: fmt.Sprintf("%s: table %s does not say that it is slotline's", place, strings.Join(inv.foreign, ", ")),
			Why:  "names that begin with slotline_ are reserved, and each table's comment says its format",
			Do:   "rename the table, or restore its comment if something stripped it: " + laneCommentExample})
	}
	for _, name := range slices.Sorted(maps.Keys(inv.formats)) {
		if format, newest := inv.formats[name], newestFormat(name); format > newest {
			list = append(list, &fault.Error{Code: codeFormatNewer, Class: fault.Fatal,
				What: fmt.Sprintf("%s: table %s has format %d, this release reads up to %d", place, name, format, newest),
				Do:   "run a release of slotline that is at least as new as the one that made it"})
		}
	}
	if inv.lanes > 0 && inv.lanes != cfg.Outbox.Lanes {
		list = append(list, &fault.Error{Code: codeLanesChanged, Class: fault.Fatal,
			What: fmt.Sprintf("%s has %d lanes, outbox.lanes in %s says %d", place, inv.lanes, cfg.File, cfg.Outbox.Lanes),
			Why:  "a tenant's lane is its hash modulo the lanes: with another number, versions of one entity would come from two counters",
			Do:   fmt.Sprintf("write lanes: %d", inv.lanes)})
	}
	if inv.increment != 1 {
		list = append(list, &fault.Error{Code: codeIncrement, Class: fault.Fatal,
			What: fmt.Sprintf("%s: auto_increment_increment is %d", place, inv.increment),
			Why:  "every id between would be a gap to look after for ever",
			Do:   "SET PERSIST auto_increment_increment = 1, and reconnect the service; multi-primary replication is not supported"})
	}
	return list
}

const laneCommentExample = "ALTER TABLE slotline_lane COMMENT = 'slotline lane format 1'"

func newestFormat(table string) int {
	if strings.HasPrefix(table, "slotline_outbox_") {
		return laneTableFormat
	}
	return stateFormat
}

// check is what the relay needs.
func (inv *inventory) check(cfg *config.Config) error {
	if err := inv.refuse(cfg); err != nil {
		return err
	}
	var missing []string
	for _, name := range tables(cfg.Outbox.Lanes) {
		if _, ok := inv.formats[name]; !ok {
			missing = append(missing, name)
		}
	}
	if inv.lanes == 0 && len(missing) == 0 {
		missing = []string{"rows of slotline_lane"}
	}
	if len(missing) > 0 {
		return &fault.Error{Code: codeNotApplied, Class: fault.Fatal,
			What: fmt.Sprintf("outbox %s lacks %s", cfg.Outbox.DSN.Place(), strings.Join(missing, ", ")),
			Do:   "slotline apply makes them"}
	}
	return nil
}

// Check makes sure that a relay can work on the database: tables, formats, lanes, auto_increment_increment.
func Check(ctx context.Context, db *sql.DB, cfg *config.Config) error {
	return checkReady(ctx, db, cfg)
}

// Plan says what apply would do in the outbox database. It changes nothing.
func Plan(ctx context.Context, db *sql.DB, cfg *config.Config) ([]plan.Change, error) {
	inv, err := inspect(ctx, db)
	if err != nil {
		return nil, mysqldb.Wrap(err, codeDatabase, "outbox "+cfg.Outbox.DSN.Place())
	}
	if err := inv.refuse(cfg); err != nil {
		return nil, err
	}
	where := fmt.Sprintf("outbox %s (MySQL %s)", cfg.Outbox.DSN.Place(), inv.version)
	var missing []string
	for _, name := range tables(cfg.Outbox.Lanes) {
		if _, ok := inv.formats[name]; !ok {
			missing = append(missing, name)
		}
	}
	var changes []plan.Change
	if _, ok := inv.formats["slotline_dead"]; ok && !inv.settled {
		changes = append(changes, plan.Change{Where: where, Sign: plan.Alter, What: "slotline_dead", Note: "ADD COLUMN settled, settled_at, settled_by, settled_why",
			Do: func(ctx context.Context) error {
				_, err := db.ExecContext(ctx, addSettledSQL())
				if mysqldb.Number(err) == 1060 {
					err = nil // another apply was first
				}
				return mysqldb.Wrap(err, codeDatabase, "outbox "+cfg.Outbox.DSN.Place())
			}})
	}
	if len(missing) == 0 && inv.lanes == cfg.Outbox.Lanes {
		return changes, nil
	}
	what := "tables " + shorten(missing)
	if len(missing) == 0 {
		what = "rows of slotline_lane"
	}
	return append(changes, plan.Change{Where: where, Sign: plan.Create, What: what,
		Note: fmt.Sprintf("%d lanes", cfg.Outbox.Lanes),
		Do: func(ctx context.Context) error {
			for _, statement := range DDL(cfg) {
				if _, err := db.ExecContext(ctx, statement); err != nil {
					return mysqldb.Wrap(err, codeDatabase, "outbox "+cfg.Outbox.DSN.Place())
				}
			}
			return nil
		}}), nil
}

// shorten writes lane tables as slotline_outbox_00..03.
func shorten(names []string) string {
	var lanes, others []string
	for _, n := range names {
		if strings.HasPrefix(n, "slotline_outbox_") {
			lanes = append(lanes, n)
		} else {
			others = append(others, n)
		}
	}
	slices.Sort(lanes)
	switch len(lanes) {
	case 0:
		return strings.Join(others, ", ")
	case 1:
		return strings.Join(append(lanes, others...), ", ")
	}
	last := strings.TrimPrefix(lanes[len(lanes)-1], "slotline_outbox_")
	return strings.Join(append([]string{lanes[0] + ".." + last}, others...), ", ")
}
