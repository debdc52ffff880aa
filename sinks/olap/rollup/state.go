package rollup

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/internal/plan"
	"github.com/slotline/slotline/lease"
)

// Tables of this package, in the database of sinks.state.
const (
	Table        = "slotline_rollup"         // per sink and rollup: the worker's lease, the version, whether a fill is wanted
	TouchedTable = "slotline_rollup_touched" // the pairs that are to be computed anew
	GroupTable   = "slotline_rollup_group"   // per group of the sink: the rollups that its last owner marked
)

const codeState = "SL4301" // the rollup tables of sinks.state failed

// ddl creates the tables unless they exist.
var ddl = []string{
	"CREATE TABLE IF NOT EXISTS `slotline_rollup` (\n" +
		"  `sink` VARBINARY(64) NOT NULL,\n" +
		"  `rollup` VARBINARY(64) NOT NULL,\n" +
		"  " + lease.Columns + ",\n" +
		"  `version` BIGINT UNSIGNED NOT NULL DEFAULT 0,\n" +
		"  `fills_wanted` BIGINT UNSIGNED NOT NULL DEFAULT 1,\n" +
		"  `fills_done` BIGINT UNSIGNED NOT NULL DEFAULT 0,\n" +
		"  PRIMARY KEY (`sink`,`rollup`)\n" +
		") ENGINE=InnoDB COMMENT='slotline rollup format 1'",
	"CREATE TABLE IF NOT EXISTS `slotline_rollup_touched` (\n" +
		"  `sink` VARBINARY(64) NOT NULL,\n" +
		"  `rollup` VARBINARY(64) NOT NULL,\n" +
		"  `tenant` VARBINARY(64) NOT NULL,\n" +
		"  `day` INT NOT NULL,\n" +
		"  `mark` BIGINT UNSIGNED NOT NULL,\n" +
		"  `touched_at` DATETIME(6) NOT NULL,\n" +
		"  PRIMARY KEY (`sink`,`rollup`,`tenant`,`day`),\n" +
		"  KEY `oldest` (`sink`,`rollup`,`touched_at`)\n" +
		") ENGINE=InnoDB COMMENT='slotline rollup format 1'",
	"CREATE TABLE IF NOT EXISTS `slotline_rollup_group` (\n" +
		"  `sink` VARBINARY(64) NOT NULL,\n" +
		"  `grp` INT NOT NULL,\n" +
		"  `digest` VARBINARY(64) NOT NULL,\n" +
		"  PRIMARY KEY (`sink`,`grp`)\n" +
		") ENGINE=InnoDB COMMENT='slotline rollup format 1'",
}

// Pair is a tenant and a UTC day of its rows.
type Pair struct {
	Tenant string // canonical text
	Day    int32  // days since 1970-01-01
}

// Touched is a pair of one rollup.
type Touched struct {
	Rollup string
	Pair
}

// Digest names what the rollups of a file are: processes whose digests differ mark other pairs.
func Digest(rollups []*config.Rollup) string {
	h := sha256.New()
	for _, r := range rollups {
		fmt.Fprintf(h, "%s %s\n", r.Name, r)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

var none = Digest(nil)

type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// chunk is how many pairs go into one statement.
const chunk = 500

// Mark stores touched pairs, in the transaction that advances the progress. Each call has a mark of its own: a pair that
// is touched again after it was cleared is never taken for the one of before.
func Mark(ctx context.Context, tx execer, sink string, touched []Touched) error {
	var random [8]byte
	rand.Read(random[:]) // never fails (crypto/rand)
	mark := binary.LittleEndian.Uint64(random[:])
	// Two groups that mark one pair lock rows in one order.
	slices.SortFunc(touched, func(a, b Touched) int {
		if c := strings.Compare(a.Rollup, b.Rollup); c != 0 {
			return c
		}
		if c := strings.Compare(a.Tenant, b.Tenant); c != 0 {
			return c
		}
		return int(a.Day) - int(b.Day)
	})
	for part := range slices.Chunk(touched, chunk) {
		args := make([]any, 0, 5*len(part)+1)
		for _, t := range part {
			args = append(args, sink, t.Rollup, t.Tenant, t.Day, mark)
		}
		// The time stays that of the first touch: it is the lag.
		query := "INSERT INTO `slotline_rollup_touched` (`sink`,`rollup`,`tenant`,`day`,`mark`,`touched_at`) VALUES " +
			strings.Repeat("(?,?,?,?,?,UTC_TIMESTAMP(6)),", len(part)-1) + "(?,?,?,?,?,UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE `mark`=?"
		if _, err := tx.ExecContext(ctx, query, append(args, mark)...); err != nil {
			return err
		}
	}
	return nil
}

// TakeGroup is told of each take-over of a group, before its first batch. If the owner before marked for other rollups,
// or left is true (it left a batch that was perhaps sent and is not sent again), all of them are filled.
func TakeGroup(ctx context.Context, db *sql.DB, sink string, group int, digest string, left bool) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var before string
	err = tx.QueryRowContext(ctx, "SELECT `digest` FROM `slotline_rollup_group` WHERE `sink`=? AND `grp`=? FOR UPDATE", sink, group).Scan(&before)
	if mysqldb.Number(err) == errNoTable && digest == none {
		return nil // no rollups were ever applied
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if before == digest && !left {
		return nil
	}
	if _, err := tx.ExecContext(ctx, wantFillSQL+"`sink`=?", sink); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "REPLACE INTO `slotline_rollup_group` (`sink`,`grp`,`digest`) VALUES (?,?,?)", sink, group, digest); err != nil {
		return err
	}
	return tx.Commit()
}

// Plan says which tables and rows are missing for the file's rollups. heading is the line that the changes stand under.
func Plan(ctx context.Context, db *sql.DB, place, sink, heading string, rollups []*config.Rollup) ([]plan.Change, error) {
	if len(rollups) == 0 {
		return nil, nil
	}
	wrap := func(err error) error { return mysqldb.Wrap(err, codeState, place) }
	seeded := map[string]bool{}
	rows, err := db.QueryContext(ctx, "SELECT `rollup` FROM `slotline_rollup` WHERE `sink`=?", sink)
	if err != nil && mysqldb.Number(err) != errNoTable {
		return nil, wrap(err)
	}
	if err == nil {
		defer rows.Close()
		for rows.Next() {
			var name string
			if err := rows.Scan(&name); err != nil {
				return nil, wrap(err)
			}
			seeded[name] = true
		}
		if err := rows.Err(); err != nil {
			return nil, wrap(err)
		}
	}
	var missing []string
	for _, r := range rollups {
		if !seeded[r.Name] {
			missing = append(missing, r.Name)
		}
	}
	if len(missing) == 0 {
		return nil, nil
	}
	return []plan.Change{{Where: heading, Sign: plan.Create, What: fmt.Sprintf("%s (%d rows of %s)", Table, len(missing), sink),
		Do: func(ctx context.Context) error {
			for _, statement := range ddl {
				if _, err := db.ExecContext(ctx, statement); err != nil {
					return wrap(err)
				}
			}
			for _, name := range missing {
				if _, err := db.ExecContext(ctx, "INSERT IGNORE INTO `slotline_rollup` (`sink`,`rollup`) VALUES (?,?)", sink, name); err != nil {
					return wrap(err)
				}
			}
			return nil
		}}}, nil
}

// wantFillSQL gives a fill a number that none before had, those that a restored database has forgotten included.
const wantFillSQL = "UPDATE `slotline_rollup` SET `fills_wanted`=GREATEST(`fills_wanted`+1, " + clockSQL + ") WHERE "

// clockSQL is the database's clock in microseconds.
const clockSQL = "CAST(UNIX_TIMESTAMP(NOW(6))*1000000 AS UNSIGNED)"

// errNoTable is MySQL's number for a table that is not there.
const errNoTable = 1146

// WantFill asks for a fill of one rollup; apply does so before it makes the engine's table.
func WantFill(ctx context.Context, db *sql.DB, place, sink, rollup string) error {
	_, err := db.ExecContext(ctx, wantFillSQL+"`sink`=? AND `rollup`=?", sink, rollup)
	return mysqldb.Wrap(err, codeState, place)
}

// Lag is how far the rollups of a sink are behind.
type Lag struct {
	Pairs  int64         // that are to be computed
	Oldest time.Duration // since the first event that a rollup does not have; 0 without one
	Fills  int           // rollups that are to be filled: their pairs are not counted yet
}

// None says that each rollup equals the base.
func (l Lag) None() bool { return l.Pairs == 0 && l.Fills == 0 }

// ReadLag reads it. Rollups that the file does not have any more do not count.
func ReadLag(ctx context.Context, db *sql.DB, sink string, rollups []*config.Rollup) (Lag, error) {
	var l Lag
	for _, r := range rollups {
		var pairs, micros int64
		var fill bool
		// The fill is read first: what it marks is there when it is done.
		err := db.QueryRowContext(ctx, "SELECT `fills_done`<`fills_wanted` FROM `slotline_rollup` WHERE `sink`=? AND `rollup`=?", sink, r.Name).Scan(&fill)
		if err != nil {
			return l, err
		}
		err = db.QueryRowContext(ctx, "SELECT COUNT(*), COALESCE(TIMESTAMPDIFF(MICROSECOND, MIN(`touched_at`), UTC_TIMESTAMP(6)), 0) "+
			"FROM `slotline_rollup_touched` WHERE `sink`=? AND `rollup`=?", sink, r.Name).Scan(&pairs, &micros)
		if err != nil {
			return l, err
		}
		l.Pairs += pairs
		l.Oldest = max(l.Oldest, time.Duration(micros)*time.Microsecond)
		if fill {
			l.Fills++
		}
	}
	return l, nil
}

// state is what a worker reads and writes for one rollup.
type state struct {
	db           *sql.DB
	sink, rollup string
}

func (s state) lease(ctx context.Context, owner string, ttl time.Duration) (*lease.Held, error) {
	return lease.Acquire(ctx, s.db, lease.Row{Table: Table, Where: "sink = ? AND rollup = ?", Args: []any{s.sink, s.rollup}}, owner, ttl)
}

// fill returns the number of the fill that is wanted; 0 if none is.
func (s state) fill(ctx context.Context) (number uint64, err error) {
	err = s.db.QueryRowContext(ctx, "SELECT IF(`fills_done`<`fills_wanted`, `fills_wanted`, 0) FROM `slotline_rollup` WHERE `sink`=? AND `rollup`=?",
		s.sink, s.rollup).Scan(&number)
	return number, err
}

// filled records that all pairs were marked after the fill of this number was asked for.
func (s state) filled(ctx context.Context, number uint64) error {
	_, err := s.db.ExecContext(ctx, "UPDATE `slotline_rollup` SET `fills_done`=GREATEST(`fills_done`,?) WHERE `sink`=? AND `rollup`=?", number, s.sink, s.rollup)
	return err
}

func (s state) mark(ctx context.Context, touched []Touched) error {
	return Mark(ctx, s.db, s.sink, touched)
}

// marked is a pair as it was read.
type marked struct {
	Pair
	mark uint64
}

// marks reads the pairs that have waited longest, and the time at which it did.
func (s state) marks(ctx context.Context, most int) (list []marked, at string, err error) {
	if err := s.db.QueryRowContext(ctx, "SELECT CAST(UTC_TIMESTAMP(6) AS CHAR)").Scan(&at); err != nil {
		return nil, "", err
	}
	rows, err := s.db.QueryContext(ctx, "SELECT `tenant`,`day`,`mark` FROM `slotline_rollup_touched` WHERE `sink`=? AND `rollup`=? "+
		"ORDER BY `touched_at` LIMIT ?", s.sink, s.rollup, most)
	if err != nil {
		return nil, "", err
	}
	defer rows.Close()
	for rows.Next() {
		var m marked
		if err := rows.Scan(&m.Tenant, &m.Day, &m.mark); err != nil {
			return nil, "", err
		}
		list = append(list, m)
	}
	return list, at, rows.Err()
}

const versionSQL = "UPDATE `slotline_rollup` SET `version`=LAST_INSERT_ID(GREATEST(`version`+1, " + clockSQL + ")) WHERE `sink`=? AND `rollup`=?"

// version takes a version that is greater than every one before.
func (s state) version(ctx context.Context) (int64, error) {
	result, err := s.db.ExecContext(ctx, versionSQL, s.sink, s.rollup)
	if err != nil {
		return 0, err
	}
	return result.LastInsertId()
}

// clear removes pairs that were not touched since they were read. The others lag from then on.
func (s state) clear(ctx context.Context, list []marked, readAt string) error {
	for part := range slices.Chunk(list, chunk) {
		args := []any{s.sink, s.rollup}
		for _, m := range part {
			args = append(args, m.Tenant, m.Day, m.mark)
		}
		_, err := s.db.ExecContext(ctx, "DELETE FROM `slotline_rollup_touched` WHERE `sink`=? AND `rollup`=? AND (`tenant`,`day`,`mark`) IN ("+
			strings.Repeat("(?,?,?),", len(part)-1)+"(?,?,?))", args...)
		if err != nil {
			return err
		}
		args = []any{readAt, s.sink, s.rollup, readAt}
		for _, m := range part {
			args = append(args, m.Tenant, m.Day)
		}
		_, err = s.db.ExecContext(ctx, "UPDATE `slotline_rollup_touched` SET `touched_at`=? WHERE `sink`=? AND `rollup`=? AND `touched_at`<? AND (`tenant`,`day`) IN ("+
			strings.Repeat("(?,?),", len(part)-1)+"(?,?))", args...)
		if err != nil {
			return err
		}
	}
	return nil
}
