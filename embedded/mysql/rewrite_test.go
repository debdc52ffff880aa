package mysql

import (
	"testing"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/outbox"
)

const monthTable = "CREATE TABLE IF NOT EXISTS `orders_202611` (\n  `tenant` VARCHAR(64) NOT NULL,\n  `id` BIGINT UNSIGNED NOT NULL,\n" +
	"  `total` DECIMAL(12,2) NULL,\n  `_ver` BIGINT NOT NULL,\n  `_deleted` TINYINT(1) GENERATED ALWAYS AS (`_ver` & 1) VIRTUAL,\n" +
	"  PRIMARY KEY (`tenant`,`id`)\n) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin COMMENT='slotline table format 1'"

const upsertSQL = "INSERT INTO `orders_202611` (`tenant`,`id`,`total`,`_ver`) VALUES ('a',1,?,?) AS `_n` ON DUPLICATE KEY UPDATE " +
	"`total`=IF(`_n`.`_ver`>`orders_202611`.`_ver`,`_n`.`total`,`orders_202611`.`total`)," +
	"`_ver`=GREATEST(`_n`.`_ver`,`orders_202611`.`_ver`)"

// The statements of a MySQL sink: the greater version wins, and _deleted follows it.
func TestVersionedUpsert(t *testing.T) {
	db := open(t, newLock())
	exec(t, db, monthTable)
	exec(t, db, monthTable)
	for _, step := range []struct {
		total       string
		ver         int
		want        string
		wantDeleted int
	}{
		{"1.50", 4, "1.50", 0},
		{"2.50", 9, "2.50", 1}, // deleted
		{"3.50", 8, "2.50", 1}, // late
		{"4.50", 12, "4.50", 0},
		{"5.50", 13, "5.50", 1},
	} {
		exec(t, db, "START TRANSACTION; "+upsertSQL+"; COMMIT", step.total, step.ver)
		var total string
		var deleted int
		err := db.QueryRowContext(t.Context(), "SELECT total, _deleted FROM orders_202611 WHERE tenant='a' AND id=1").Scan(&total, &deleted)
		if err != nil || total != step.want || deleted != step.wantDeleted {
			t.Fatalf("after version %d: total %s, deleted %d, want %s and %d (%v)", step.ver, total, deleted, step.want, step.wantDeleted, err)
		}
	}
	if n := count(t, db, "SELECT COUNT(*) FROM orders_202611 WHERE _deleted = 1"); n != 1 {
		t.Fatalf("%d deleted rows are found by _deleted, want 1", n)
	}
}

func TestCommentsAreKept(t *testing.T) {
	db := open(t, newLock())
	exec(t, db, monthTable)
	exec(t, db, "CREATE TABLE lane (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, p LONGBLOB NOT NULL, PRIMARY KEY (id)) ENGINE=InnoDB COMMENT='it''s (a) lane'\n"+
		"PARTITION BY RANGE (id) (PARTITION p1 VALUES LESS THAN (1000), PARTITION pmax VALUES LESS THAN MAXVALUE)")
	for table, want := range map[string]string{"orders_202611": "slotline table format 1", "lane": "it's (a) lane"} {
		var got string
		err := db.QueryRowContext(t.Context(), "SELECT table_comment FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?", table).Scan(&got)
		if err != nil || got != want {
			t.Errorf("comment of %s is %q, want %q (%v)", table, got, want, err)
		}
	}
	exec(t, db, "ALTER TABLE lane REORGANIZE PARTITION pmax INTO (PARTITION p2 VALUES LESS THAN (2000), PARTITION pmax VALUES LESS THAN MAXVALUE)")
}

func TestGreatestOfNothing(t *testing.T) {
	db := open(t, newLock())
	exec(t, db, "CREATE TABLE t (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY)")
	for _, query := range []string{"SELECT COALESCE(MAX(id), 0) FROM t", "SELECT (SELECT COALESCE(MAX(id), 0) FROM t)"} {
		if n := count(t, db, query); n != 0 {
			t.Errorf("%s: %d", query, n)
		}
	}
	exec(t, db, "INSERT INTO t VALUES (18446744073709551614)")
	var n uint64
	if err := db.QueryRowContext(t.Context(), "SELECT (SELECT COALESCE(MAX(id), 0) FROM t)").Scan(&n); err != nil || n != 1<<64-2 {
		t.Errorf("%d, %v", n, err)
	}
}

// The outbox's own statements, for the number of lanes that is the default.
func TestBacklogOfFourLanes(t *testing.T) {
	s, err := Start(Options{Databases: []string{"test"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	dsn, err := config.ParseDSN("outbox.dsn", s.URL("test"))
	if err != nil {
		t.Fatal(err)
	}
	db, err := mysqldb.Open(dsn, mysqldb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	cfg := &config.Config{Outbox: config.Outbox{DSN: dsn, Lanes: 4, PurgeRows: 1000}}
	for _, statement := range outbox.DDL(cfg) {
		exec(t, db, statement)
	}
	exec(t, db, "INSERT INTO slotline_outbox_02 (event_id, tbl, tenant, entity_id, op, codec, created_at, payload)"+
		" VALUES (x'000102030405060708090A0B0C0D0E0F', 't', 'a', '1', 1, 1, UTC_TIMESTAMP(6), '{}')")
	backlogs, err := outbox.Backlogs(t.Context(), db, 4)
	if err != nil {
		t.Fatal(err)
	}
	for lane, b := range backlogs {
		want := int64(0)
		if lane == 2 {
			want = 1
		}
		if b.Lane != lane || b.Events() != want {
			t.Errorf("lane %d: %d events, want %d", lane, b.Events(), want)
		}
	}
	if err := outbox.Check(t.Context(), db, cfg); err != nil {
		t.Error(err)
	}
}

// Errors have the numbers by which internal/mysqldb tells a bad row from a wrong statement.
func TestErrorNumbers(t *testing.T) {
	db := open(t, newLock())
	exec(t, db, "CREATE TABLE t (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, s VARCHAR(2) NOT NULL, d DATETIME(6) NULL)")
	for statement, want := range map[string]uint16{
		"SELEC 1":                                   1064,
		"SELECT x FROM t":                           1054,
		"SELECT * FROM u":                           1146,
		"SELECT @@no_such_variable":                 1193,
		"INSERT INTO t VALUES (1,'abc',NULL)":       1406,
		"INSERT INTO t VALUES (-1,'a',NULL)":        1264,
		"INSERT INTO t VALUES (1,NULL,NULL)":        1048,
		"INSERT INTO t VALUES (1,'a','2026-13-01')": 1292,
		"SAVEPOINT a":                               1235,
	} {
		_, err := db.ExecContext(t.Context(), statement)
		if got := number(err); got != want {
			t.Errorf("%s: error %d, want %d (%v)", statement, got, want, err)
		}
	}
}

func TestCutStatement(t *testing.T) {
	for text, want := range map[string][2]string{
		"SELECT 1":                         {"SELECT 1", ""},
		"SELECT 1;":                        {"SELECT 1", ""},
		"SELECT ';'; SELECT 2":             {"SELECT ';'", "SELECT 2"},
		`SELECT 'a\';', "b;", ` + "`c;`;d": {`SELECT 'a\';', "b;", ` + "`c;`", "d"},
		"SELECT 'it''s;' /* a;b */ ; x; y": {"SELECT 'it''s;' /* a;b */ ", "x; y"},
		"SELECT 'open;":                    {"SELECT 'open;", ""},
		"SELECT 1 /* open; SELECT 2":       {"SELECT 1 /* open; SELECT 2", ""},
	} {
		if first, rest := cutStatement(text); [2]string{first, rest} != want {
			t.Errorf("%q is cut into %q and %q, want %q", text, first, rest, want)
		}
	}
}
