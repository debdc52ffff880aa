package outbox

import (
	"fmt"
	"strings"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/lease"
)

// Formats of the tables, kept in each table's comment. A release refuses a greater one.
const (
	laneTableFormat = 1
	stateFormat     = 1
)

const (
	partitionsAhead = 4 // empty partitions kept between the one that is filled and the last, MAXVALUE
	lastPartition   = "pmax"
)

// LaneTable is the name of a lane's table.
func LaneTable(lane int) string { return fmt.Sprintf("slotline_outbox_%02d", lane) }

// laneColumns are the columns of a lane table in their order, with their definitions.
var laneColumns = []struct{ name, definition string }{
	{"id", "BIGINT UNSIGNED NOT NULL AUTO_INCREMENT"},
	{"event_id", "BINARY(16) NOT NULL"},
	{"tbl", "VARBINARY(64) NOT NULL"},
	{"tenant", "VARBINARY(64) NOT NULL"},
	{"entity_id", "VARBINARY(255) NOT NULL"},
	{"op", "TINYINT NOT NULL"},
	{"version", "BIGINT NULL"},
	{"month", "INT NULL"},
	{"spread", "VARBINARY(255) NULL"},
	{"codec", "TINYINT NOT NULL"},
	{"created_at", "DATETIME(6) NOT NULL"},
	{"trace", "VARBINARY(64) NULL"},
	{"payload", "LONGBLOB NOT NULL"},
}

// LaneDDL makes a lane's table, with partitions for its first purgeRows ids and partitionsAhead times as many more.
func LaneDDL(lane int, purgeRows int64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "CREATE TABLE IF NOT EXISTS %s (\n", LaneTable(lane))
	for _, c := range laneColumns {
		fmt.Fprintf(&b, "  %s %s,\n", c.name, c.definition)
	}
	fmt.Fprintf(&b, "  PRIMARY KEY (id)\n) ENGINE=InnoDB COMMENT='slotline outbox lane format %d'\nPARTITION BY RANGE (id) (\n", laneTableFormat)
	for _, p := range partitionsUpTo(0, uint64(purgeRows), 1+partitionsAhead) {
		fmt.Fprintf(&b, "  %s,\n", p.ddl())
	}
	fmt.Fprintf(&b, "  PARTITION %s VALUES LESS THAN MAXVALUE\n)", lastPartition)
	return b.String()
}

// stateDDL makes the tables that the relay keeps its state in.
func stateDDL() []string {
	leaseColumns := strings.ReplaceAll(lease.Columns, ", ", ",\n  ")
	return []string{
		fmt.Sprintf("CREATE TABLE IF NOT EXISTS slotline_lane (\n"+
			"  lane INT NOT NULL,\n"+
			"  %s,\n"+
			"  server_uuid VARBINARY(64) NOT NULL DEFAULT '',\n"+
			"  cursor_id BIGINT UNSIGNED NOT NULL DEFAULT 0,\n"+
			"  hot MEDIUMTEXT CHARACTER SET ascii NOT NULL,\n"+
			"  offsets MEDIUMTEXT CHARACTER SET ascii NOT NULL,\n"+
			"  generations TEXT CHARACTER SET ascii NOT NULL,\n"+
			"  saved_at DATETIME(6) NOT NULL,\n"+
			"  halted_at DATETIME(6) NULL,\n"+
			"  halt_code VARBINARY(16) NULL,\n"+
			"  halt_text TEXT CHARACTER SET utf8mb4 NULL,\n"+
			"  PRIMARY KEY (lane)\n"+
			") ENGINE=InnoDB COMMENT='slotline lane format %d'", leaseColumns, stateFormat),
		fmt.Sprintf("CREATE TABLE IF NOT EXISTS slotline_lane_gap (\n"+
			"  lane INT NOT NULL,\n"+
			"  kind VARBINARY(260) NOT NULL,\n"+
			"  bucket BIGINT UNSIGNED NOT NULL,\n"+
			"  ids MEDIUMTEXT CHARACTER SET ascii NOT NULL,\n"+
			"  PRIMARY KEY (lane, kind, bucket)\n"+
			") ENGINE=InnoDB COMMENT='slotline lane gap format %d'", stateFormat),
		fmt.Sprintf("CREATE TABLE IF NOT EXISTS slotline_relay (\n"+
			"  owner VARBINARY(128) NOT NULL,\n"+
			"  since DATETIME(6) NOT NULL,\n"+
			"  lease_until DATETIME(6) NOT NULL,\n"+
			"  declines BIGINT UNSIGNED NOT NULL,\n"+
			"  PRIMARY KEY (owner)\n"+
			") ENGINE=InnoDB COMMENT='slotline relay format %d'", stateFormat),
		fmt.Sprintf("CREATE TABLE IF NOT EXISTS slotline_dead (\n"+
			"  lane INT NOT NULL,\n"+
			"  generation BIGINT NOT NULL,\n"+
			"  id BIGINT UNSIGNED NOT NULL,\n"+
			"  reason VARBINARY(64) NOT NULL,\n"+
			"  detail TEXT CHARACTER SET utf8mb4 NOT NULL,\n"+
			"  dead_at DATETIME(6) NOT NULL,\n"+
			"  %s,\n"+
			"  %s,\n"+
			"  PRIMARY KEY (lane, generation, id)\n"+
			") ENGINE=InnoDB COMMENT='slotline dead format %d'", strings.Join(deadColumns(), ",\n  "), strings.Join(settledColumns, ",\n  "), stateFormat),
	}
}

// settledColumns say how a person settled a dead letter; all NULL while it is open. The relay does not name them: a table
// of an earlier release, which lacks them, does for it.
var settledColumns = []string{
	"settled VARBINARY(16) NULL",
	"settled_at DATETIME(6) NULL",
	"settled_by VARCHAR(255) CHARACTER SET utf8mb4 NULL",
	"settled_why TEXT CHARACTER SET utf8mb4 NULL",
}

// addSettledSQL brings a table of an earlier release up to date.
func addSettledSQL() string {
	return "ALTER TABLE slotline_dead ADD COLUMN " + strings.Join(settledColumns, ", ADD COLUMN ")
}

// deadColumns are a lane table's columns after its id, as slotline_dead has them.
func deadColumns() []string {
	var columns []string
	for _, c := range laneColumns[1:] {
		columns = append(columns, c.name+" "+c.definition)
	}
	return columns
}

// seedLaneSQL makes a lane's row of slotline_lane.
func seedLaneSQL(lane int) string {
	return fmt.Sprintf("INSERT INTO slotline_lane (lane, hot, offsets, generations, saved_at)"+
		" VALUES (%d, '', '{}', '1:1', UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE lane = lane", lane)
}

// DDL is everything that the outbox database needs, in order; each statement can be run again.
func DDL(cfg *config.Config) []string {
	statements := stateDDL()
	for lane := range cfg.Outbox.Lanes {
		statements = append(statements, LaneDDL(lane, cfg.Outbox.PurgeRows))
	}
	for lane := range cfg.Outbox.Lanes {
		statements = append(statements, seedLaneSQL(lane))
	}
	return statements
}
