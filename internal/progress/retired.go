package progress

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/partitioner"
)

// RetiredTable holds one row per line: below which month the shard keeps nothing of it any more.
const RetiredTable = "slotline_retired"

// RetiredDDL creates it unless it exists.
func RetiredDDL() string {
	return "CREATE TABLE IF NOT EXISTS `slotline_retired` (\n" +
		"  `line` VARBINARY(64) NOT NULL,\n" +
		"  `below` INT NOT NULL,\n" +
		"  `retired_at` DATETIME(6) NULL,\n" +
		"  `retired_by` VARBINARY(128) NOT NULL,\n" +
		"  PRIMARY KEY (`line`)\n" +
		") ENGINE=InnoDB COMMENT='slotline retired format 1'"
}

// Retired is one row of it. It only grows.
type Retired struct {
	Below partitioner.Month // months before it are retired; NoMonth: none is
	At    time.Time         // when Below grew last, by the database's clock; zero: never
	By    string            // who did it
}

// SeedRetired makes the line's row unless there is one. A shard that is new begins where the others are.
func SeedRetired(ctx context.Context, q Querier, line string, below partitioner.Month) error {
	_, err := q.ExecContext(ctx, "INSERT INTO `slotline_retired` (`line`,`below`,`retired_by`) VALUES (?,?,'') "+
		"ON DUPLICATE KEY UPDATE `below`=`slotline_retired`.`below`", line, int(below))
	return err
}

// ReadRetired reads the line's row. Where there is none, or no table, apply has not made it, and nothing is retired.
func ReadRetired(ctx context.Context, q Querier, line string) (r Retired, seeded bool, err error) {
	var below int
	var at sql.NullTime
	err = q.QueryRowContext(ctx, "SELECT `below`,`retired_at`,`retired_by` FROM `slotline_retired` WHERE `line`=?", line).Scan(&below, &at, &r.By)
	if errors.Is(err, sql.ErrNoRows) || mysqldb.Number(err) == 1146 {
		return Retired{}, false, nil
	}
	r.Below, r.At = partitioner.Month(below), at.Time
	return r, true, err
}

// Retire stores below, unless the row is there already, and bumps the owner epoch of each row of the topics that the sink
// and its rebuilds have in this database: whoever has taken one over changes nothing from then on, and reads the row when
// it takes over again. In tx, so that neither is seen without the other.
func Retire(ctx context.Context, tx *sql.Tx, line, sink string, topics []string, below partitioner.Month, by string) error {
	for _, topic := range topics {
		rebuilds := sink + "__"
		if _, err := tx.ExecContext(ctx, "UPDATE `slotline_progress` SET `owner_epoch`=`owner_epoch`+1,`owner`='' WHERE `topic`=? AND "+
			"(`sink`=? OR LEFT(`sink`,?)=?)", topic, sink, len(rebuilds), rebuilds); err != nil {
			return err
		}
	}
	_, err := tx.ExecContext(ctx, "UPDATE `slotline_retired` SET `below`=?,`retired_at`=UTC_TIMESTAMP(6),`retired_by`=? WHERE `line`=? AND `below`<?",
		int(below), by, line, int(below))
	return err
}
