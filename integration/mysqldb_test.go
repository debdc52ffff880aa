package integration

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/internal/mysqldb"
)

func openPool(t *testing.T, url string, o mysqldb.Options) *sql.DB {
	t.Helper()
	dsn, err := config.ParseDSN("shards.s1.dsn", url)
	if err != nil {
		t.Fatal(err)
	}
	db, err := mysqldb.Open(dsn, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

const sessionQuery = "SELECT CONCAT_WS(' ', @@transaction_isolation, @@autocommit, @@sql_mode, @@time_zone, @@wait_timeout, @@character_set_client, @@character_set_connection, @@character_set_results, @@transaction_read_only, @@completion_type, @@sql_safe_updates, @@sql_select_limit)"

// Every connection of a pool has the session's rules, also one that the pool made in place of a killed one, whatever
// the server's own defaults.
func TestMySQLSessionsAreAlike(t *testing.T) {
	server := harness.PrivateMySQL(t, "--transaction-isolation=SERIALIZABLE", "--autocommit=0", "--sql-mode=ANSI_QUOTES",
		"--default-time-zone=+05:00", "--wait-timeout=28800", "--character-set-server=latin1")
	database := server.NewDatabase(t, harness.Name(t))
	admin := server.Open(t, "")
	for _, v := range []string{"completion_type = CHAIN", "sql_safe_updates = ON", "sql_select_limit = 7", "transaction_read_only = ON"} {
		if _, err := admin.Exec("SET GLOBAL " + v); err != nil {
			t.Fatal(err)
		}
	}
	db := openPool(t, server.URL(database), mysqldb.Options{MaxConns: 6})
	const want = "READ-COMMITTED 1 STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION +00:00 60 utf8mb4 utf8mb4 utf8mb4 0 NO_CHAIN 0 9223372036854775807"
	for round := range 2 {
		var held sync.WaitGroup
		held.Add(6)
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				conn, err := db.Conn(t.Context())
				held.Done()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				held.Wait() // six at once: six connections
				var got string
				if err := conn.QueryRowContext(t.Context(), sessionQuery).Scan(&got); err != nil || got != want {
					t.Errorf("session is %q (%v), want %q", got, err, want)
				}
				if round == 0 {
					var id int64
					if err := conn.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id); err != nil {
						t.Error(err)
					}
					if _, err := conn.ExecContext(t.Context(), fmt.Sprint("KILL ", id)); err != nil && mysqldb.Classify(err) != fault.Transient {
						t.Errorf("a killed session: %v", err)
					}
					for conn.PingContext(t.Context()) == nil { // until the pool has seen that it is dead
					}
				}
			})
		}
		all.Wait()
	}

	// clientFoundRows: an UPDATE that finds its row and changes nothing counts 1.
	for _, q := range []string{"CREATE TABLE found (id INT PRIMARY KEY, v INT)", "INSERT INTO found VALUES (1, 1)"} {
		if _, err := db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	res, err := db.Exec("UPDATE found SET v = 1 WHERE id = 1")
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := res.RowsAffected(); n != 1 {
		t.Errorf("an unchanged row counts %d", n)
	}

	// A server that became a replica is an outage (P7): nothing of it is data.
	if _, err := admin.Exec("SET GLOBAL super_read_only = ON"); err != nil {
		t.Fatal(err)
	}
	_, err = db.Exec("UPDATE found SET v = 2 WHERE id = 1")
	if mysqldb.Number(err) != 1290 || mysqldb.Classify(err) != fault.Transient {
		t.Errorf("a read-only server: %v", err)
	}
}

// What a server really says of bad values is data, each time, and nothing of it is stored.
func TestP7_MySQLDataErrorsAreData(t *testing.T) {
	server := harness.MySQL(t)
	db := openPool(t, server.URL(server.NewDatabase(t, harness.Name(t))), mysqldb.Options{})
	if _, err := db.Exec(`CREATE TABLE v (id INT PRIMARY KEY, i INT, u BIGINT UNSIGNED, s VARCHAR(3) CHARACTER SET utf8mb4, l VARCHAR(3) CHARACTER SET latin1,
		d DATE, dt DATETIME(6), n DECIMAL(4,2), nn INT NOT NULL DEFAULT 0, j JSON, b VARBINARY(2), c INT CHECK (c > 0))`); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []struct {
		column string
		value  any
		number uint16
	}{
		{"i", int64(1) << 40, 1264}, {"u", -1, 1264}, {"s", "abcd", 1406}, {"l", "日本", 1366}, {"d", "2026-02-30", 1292},
		{"dt", "2026-11-30 25:00:00", 1292}, {"n", "1000.00", 1264}, {"i", "x", 1366}, {"nn", nil, 1048}, {"j", "{", 3140}, {"b", []byte("abc"), 1406}, {"c", -5, 3819},
	} {
		_, err := db.Exec("INSERT INTO v (id, `"+bad.column+"`) VALUES (1, ?)", bad.value)
		if mysqldb.Number(err) != bad.number || mysqldb.Classify(err) != fault.Data {
			t.Errorf("%s = %v: %v is error %d, %v; want %d", bad.column, bad.value, err, mysqldb.Number(err), mysqldb.Classify(err), bad.number)
		}
	}
	var rows int
	if err := db.QueryRow("SELECT COUNT(*) FROM v").Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d rows were stored (%v)", rows, err)
	}
}

func TestMySQLUnreachable(t *testing.T) {
	server := harness.MySQL(t)
	ping := func(url string) error {
		return mysqldb.Wrap(openPool(t, url, mysqldb.Options{}).PingContext(t.Context()), "SL9999", "shard s1")
	}
	const secret = "hunter2"
	for name, c := range map[string]struct {
		url   string
		class fault.Class
		says  string
	}{
		"nobody listens":   {"mysql://root:" + secret + "@127.0.0.1:1/x", fault.Transient, "127.0.0.1:1"},
		"wrong password":   {"mysql://root:" + secret + "@" + server.Addr + "/x", fault.Fatal, "(error 1045)"},
		"no such database": {server.URL("slotline_none"), fault.Fatal, "(error 1049)"},
	} {
		err := ping(c.url)
		if fault.ClassOf(err) != c.class || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v (%v), want %q, %v", name, err, fault.ClassOf(err), c.says, c.class)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := openPool(t, server.URL("mysql"), mysqldb.Options{}).PingContext(ctx); mysqldb.Classify(err) != fault.Transient {
		t.Errorf("a caller that gave up: %v", err)
	}
}

// The names beside the numbers are the server's own.
func TestMySQLErrorNumbersAreTheServers(t *testing.T) {
	db := openPool(t, harness.MySQL(t).URL("performance_schema"), mysqldb.Options{})
	document, err := os.ReadFile("../docs/mysql-errors.md")
	if err != nil {
		t.Fatal(err)
	}
	// MariaDB's own, and two that MySQL only writes to its log or has given up.
	elsewhere := map[string]bool{"1927": true, "1969": true, "1977": true, "4025": true, "1077": true, "1021": true}
	rows := regexp.MustCompile(`(?m)^\| (\d+) \| (\w+) \|`).FindAllStringSubmatch(string(document), -1)
	if len(rows) < 100 {
		t.Fatalf("%d numbers in the document", len(rows))
	}
	for _, row := range rows {
		if elsewhere[row[1]] {
			continue
		}
		var name string
		err := db.QueryRow("SELECT error_name FROM events_errors_summary_global_by_error WHERE error_number = ?", row[1]).Scan(&name)
		if err != nil || name != row[2] {
			t.Errorf("%s is %s here, %q there (%v)", row[1], row[2], name, err)
		}
	}
}
