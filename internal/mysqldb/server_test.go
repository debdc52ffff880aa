package mysqldb

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/internal/checkup"
)

func TestGrantsAreReadAsServersShowThem(t *testing.T) {
	lines := []string{
		"GRANT USAGE ON *.* TO `slotline`@`%`",
		"GRANT SELECT, INSERT, CREATE TEMPORARY TABLES ON `flights\\_s1`.* TO `slotline`@`%`",
		"GRANT UPDATE (`total`, `note`), DELETE ON `flights_s1`.`orders` TO `slotline`@`%`",
		"GRANT SELECT ON `performance_schema`.* TO `slotline`@`%`",
		"GRANT `reader`@`%`,`role ON x.*`@`%` TO `slotline`@`%`",
		"GRANT EXECUTE ON PROCEDURE `flights_s1`.`p` TO `slotline`@`%`",
		"GRANT PROXY ON ``@`` TO 'root'@'localhost' WITH GRANT OPTION",
		"GRANT ALTER ON `odd``TO `.* TO `slotline`@`%`",
		"GRANT ALL PRIVILEGES ON `whole%`.* TO `slotline`@`%` WITH GRANT OPTION",
		"GRANT SUPER, PROCESS ON *.* TO `slotline`@`%`",
	}
	g := ParseGrants(lines)
	for _, c := range []struct {
		privileges, database, table, missing string
	}{
		{"SELECT, INSERT, CREATE TEMPORARY TABLES", "flights_s1", "*", ""},
		{"SELECT, UPDATE, DROP", "flights_s1", "*", "UPDATE, DROP"},
		{"DELETE", "flights_s1", "orders", ""},
		{"DELETE", "flights_s1", "*", "DELETE"},
		{"UPDATE", "flights_s1", "orders", "UPDATE"}, // of two columns alone
		{"SELECT", "flightsxs1", "*", "SELECT"},      // the backslash takes its meaning from _
		{"SELECT", "performance_schema", "metadata_locks", ""},
		{"EXECUTE", "flights_s1", "*", "EXECUTE"},
		{"ALTER", "odd`TO ", "*", ""},
		{"SELECT, DROP, LOCK TABLES", "wholesale", "*", ""},
		{"SELECT", "whole", "*", ""},
		{"SELECT", "unwhole", "*", "SELECT"},
		{"PROCESS", "*", "*", ""},
		{"RELOAD", "*", "*", "RELOAD"},
		{"SELECT", "*", "*", "SELECT"},
	} {
		if got := strings.Join(g.Missing(PrivilegeNames(c.privileges), c.database, c.table), ", "); got != c.missing {
			t.Errorf("%s on %s.%s: %q is missing, want %q", c.privileges, c.database, c.table, got, c.missing)
		}
	}
	root := ParseGrants([]string{"GRANT SELECT, INSERT ON *.* TO `root`@`%`", "REVOKE INSERT ON `flights`.* FROM `root`@`%`"})
	if got := root.Missing([]string{"SELECT", "INSERT"}, "flights", "*"); !slices.Equal(got, []string{"INSERT"}) {
		t.Errorf("after a partial revoke %v is missing", got)
	}
	if got := root.Missing([]string{"INSERT"}, "other", "*"); got != nil {
		t.Errorf("of another database %v is missing", got)
	}
	byLetter := ParseGrants([]string{"GRANT SELECT ON `d_`.* TO `app`@`%`"})
	for _, literal := range []bool{false, true} { // partial_revokes is off, on
		byLetter[0].literal = literal
		if got := byLetter.Missing([]string{"SELECT"}, "db", "*"); literal != (len(got) == 1) {
			t.Errorf("of a name that is a pattern (%t) %v is missing", !literal, got)
		}
	}
	if all := ParseGrants([]string{"GRANT ALL PRIVILEGES ON *.* TO `root`@`%` IDENTIFIED BY PASSWORD '*90' WITH GRANT OPTION"}); all.Missing([]string{"LOCK TABLES"}, "db", "*") != nil {
		t.Error("ALL PRIVILEGES lacks LOCK TABLES")
	}
}

// matchesTwin is matches, by trying each split.
func matchesTwin(pattern, name string) bool {
	switch {
	case pattern == "":
		return name == ""
	case pattern[0] == '%':
		return matchesTwin(pattern[1:], name) || name != "" && matchesTwin(pattern, name[1:])
	case name == "":
		return false
	case pattern[0] == '_':
		return matchesTwin(pattern[1:], name[1:])
	case pattern[0] == '\\' && len(pattern) > 1:
		return pattern[1] == name[0] && matchesTwin(pattern[2:], name[1:])
	}
	return pattern[0] == name[0] && matchesTwin(pattern[1:], name[1:])
}

func FuzzDatabasePatterns(f *testing.F) {
	for _, s := range [][2]string{{"flights\\_s1", "flights_s1"}, {"f%s_", "flights_s1"}, {"%", ""}, {"a%b%c", "aXbYbc"}, {"\\", "\\"}, {"a", ""}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(pattern) > 12 || len(name) > 12 || strings.EqualFold(pattern, name) {
			return
		}
		if lower := strings.ToLower(pattern); lower != pattern || strings.ToLower(name) != name {
			return
		}
		if got, want := matches(pattern, name), matchesTwin(pattern, name); got != want {
			t.Errorf("%q for %q: %v, want %v", pattern, name, got, want)
		}
	})
}

// healthy is a MySQL server that nothing is wrong with.
func healthy() *Server {
	return &Server{Version: "8.4.3", Account: "'slotline'@'%'", Ahead: 12 * time.Millisecond, Doubt: time.Millisecond,
		Grants: ParseGrants([]string{"GRANT SELECT, INSERT ON `db`.* TO `slotline`@`%`"}),
		variables: map[string]string{"auto_increment_increment": "1", "binlog_format": "ROW", "disabled_storage_engines": "",
			"innodb_flush_log_at_trx_commit": "1", "innodb_lock_wait_timeout": "50", "local_infile": "ON", "log_bin": "ON",
			"max_allowed_packet": "67108864", "max_connections": "151", "max_execution_time": "0", "max_user_connections": "0",
			"max_heap_table_size": "16777216", "read_only": "OFF", "sql_mode": "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES",
			"sql_require_primary_key": "OFF", "sync_binlog": "1", "transaction_read_only": "OFF"}}
}

var (
	someNeeds  = Privileges{Names: []string{"SELECT", "INSERT"}, Database: "db", Table: "*", Sign: checkup.Stops, Why: "x"}
	ofAnOutbox = Needs{Outbox: true, PacketBytes: 8 << 20, PacketWhy: "x", Connections: 12, ClockMax: time.Minute, Privileges: []Privileges{someNeeds}}
	ofAShard   = Needs{Staging: true, HeapBytes: 16 << 20, PacketBytes: 4 << 20, PacketWhy: "x", Connections: 12, Privileges: []Privileges{someNeeds}}
)

func findings(s *Server, n Needs) (list []checkup.Finding) {
	c := s.Checkup("outbox db", n)
	return c.Findings
}

func TestAHealthyServerHasNoFindings(t *testing.T) {
	mariaDB := healthy()
	mariaDB.Version, mariaDB.MariaDB = "10.11.14-MariaDB-log", true
	delete(mariaDB.variables, "max_execution_time")
	delete(mariaDB.variables, "sql_require_primary_key")
	maps.Copy(mariaDB.variables, map[string]string{"max_statement_time": "0.000000", "log_bin": "OFF", "sync_binlog": "0", "local_infile": "OFF", "binlog_format": "STATEMENT"})
	bare := &Server{Version: "8.0.31", GrantsUnread: "it does not say", variables: map[string]string{}} // a server that only speaks the protocol
	for name, list := range map[string][]checkup.Finding{
		"outbox": findings(healthy(), ofAnOutbox), "shard": findings(healthy(), ofAShard), "MariaDB shard": findings(mariaDB, ofAShard),
		"outbox that says nothing": findings(bare, ofAnOutbox), "shard that says nothing": findings(bare, ofAShard),
	} {
		if len(list) != 0 {
			t.Errorf("%s: %+v", name, list)
		}
	}
	if c := bare.Checkup("x", ofAShard); len(c.Unchecked) != 1 {
		t.Errorf("privileges were taken for checked: %+v", c)
	}
}

// Each thing that is wrong is one finding, with what mends it; and mending it, as said, takes the finding away.
func TestEachThingThatIsWrongIsNamed(t *testing.T) {
	set := func(name, value string) func(*Server) { return func(s *Server) { s.variables[name] = value } }
	for _, c := range []struct {
		name          string
		wrong         func(*Server)
		outbox, shard string // the sign, or ""
		what, why, do string
	}{
		{"old", func(s *Server) { s.Version = "5.7.44-log" }, "x", "x", "version 5.7.44", "MySQL 8.0 or later", "newer"},
		{"old MariaDB", func(s *Server) { s.Version, s.MariaDB = "5.5.5-10.5.2-MariaDB", true }, "x", "x", "10.5.2", "", ""},
		{"MariaDB outbox", func(s *Server) { s.Version, s.MariaDB = "11.8.2-MariaDB", true }, "x", "", "11.8.2", "server_uuid", "MySQL 8.0"},
		{"statement", set("binlog_format", "STATEMENT"), "x", "x", "STATEMENT", "error 1665", "SET PERSIST binlog_format = ROW"},
		{"read-only", set("read_only", "ON"), "x", "x", "read-only", "", "SET PERSIST read_only = OFF"},
		{"read-only sessions", set("transaction_read_only", "ON"), "!", "", "transaction_read_only is ON", "emit", "SET PERSIST transaction_read_only = OFF"},
		{"flush", set("innodb_flush_log_at_trx_commit", "2"), "!", "!", "is 2", "crash", "innodb_flush_log_at_trx_commit = 1"},
		{"binlog", set("sync_binlog", "1000"), "!", "!", "is 1000", "crash", "sync_binlog = 1"},
		{"local_infile", set("local_infile", "OFF"), "", "!", "local_infile", "staging", "local_infile = ON"},
		{"primary key", set("sql_require_primary_key", "ON"), "", "!", "sql_require_primary_key", "staging", "sql_require_primary_key = OFF"},
		{"engines", set("disabled_storage_engines", "MyISAM, Memory"), "", "!", "MEMORY", "staging", "disabled_storage_engines"},
		{"heap", set("max_heap_table_size", "16384"), "", "!", "16 KiB", "staging", "max_heap_table_size = 16777216"},
		{"small packet", set("max_allowed_packet", "1048576"), "!", "!", "1024 KiB", "", "max_allowed_packet = 67108864"},
		{"outbox's packet", set("max_allowed_packet", "4194304"), "!", "", "4096 KiB", "", "max_allowed_packet"},
		{"connections", set("max_connections", "21"), "!", "!", "max_connections is 21", "up to 12", "max_connections = 22"},
		{"connections of the account", set("max_user_connections", "11"), "!", "!", "max_user_connections is 11 for 'slotline'@'%'", "up to 12", "ALTER USER 'slotline'@'%' WITH MAX_USER_CONNECTIONS 12"},
		{"statement time", set("max_execution_time", "30000"), "!", "!", "30000 ms", "replay", "max_execution_time = 0"},
		{"lock wait", set("innodb_lock_wait_timeout", "120"), "!", "!", "120 s", "1m10s", "innodb_lock_wait_timeout = 50"},
		{"sql_mode", set("sql_mode", "ONLY_FULL_GROUP_BY"), "!", "", "not strict", "cut in silence", "sql_mode = 'ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES'"},
		{"no sql_mode", set("sql_mode", ""), "!", "", "not strict", "", "sql_mode = 'STRICT_TRANS_TABLES'"},
		{"clock", func(s *Server) { s.Ahead = -9 * time.Second }, "!", "!", "9s behind", "leases are not", "NTP"},
		{"clock far off", func(s *Server) { s.Ahead = 2 * time.Minute }, "x", "!", "2m0s ahead", "", "NTP"},
		{"privilege", func(s *Server) { s.Grants = ParseGrants([]string{"GRANT SELECT ON `db`.* TO `slotline`@`%`"}) }, "x", "x", "lacks INSERT on db.*", "", "GRANT INSERT ON `db`.* TO 'slotline'@'%'"},
		{"privilege by a pattern", func(s *Server) { s.Grants = ParseGrants([]string{"GRANT SELECT ON `d%`.* TO `slotline`@`%`"}) }, "x", "x", "lacks INSERT on db.*", "", "GRANT INSERT ON `d%`.* TO 'slotline'@'%'"},
		{"privilege by two patterns", func(s *Server) {
			s.Grants = ParseGrants([]string{"GRANT SELECT, INSERT ON `d%`.* TO `slotline`@`%`", "GRANT SELECT ON `db`.* TO `slotline`@`%`"})
		}, "x", "x", "lacks INSERT on db.*, should the server go by its grant on `db`", "", "GRANT INSERT ON `db`.* TO 'slotline'@'%'"},
		{"a pattern taken by the letter", func(s *Server) {
			s.Grants = ParseGrants([]string{"GRANT SELECT, INSERT ON `d_`.* TO `slotline`@`%`", "GRANT SELECT ON `db`.* TO `slotline`@`%`"})
			s.Grants[0].literal, s.Grants[1].literal = true, true
		}, "x", "x", "lacks INSERT on db.*", "", "GRANT INSERT ON `db`.* TO 'slotline'@'%'"},
	} {
		for name, n := range map[string]Needs{"outbox": ofAnOutbox, "shard": ofAShard} {
			s := healthy()
			c.wrong(s)
			want := c.shard
			if n.Outbox {
				want = c.outbox
			}
			list := findings(s, n)
			if want == "" {
				if len(list) != 0 {
					t.Errorf("%s, %s: %+v", c.name, name, list)
				}
				continue
			}
			if len(list) != 1 {
				t.Errorf("%s, %s: %d findings: %+v", c.name, name, len(list), list)
				continue
			}
			f := list[0]
			if f.Sign != want || !strings.Contains(f.What, c.what) || !strings.Contains(f.Why, c.why) && !n.Outbox || !strings.Contains(f.Do, c.do) || f.Why == "" || f.Do == "" {
				t.Errorf("%s, %s: %+v", c.name, name, f)
			}
		}
	}
}

func TestHalfASecondIsATimeToo(t *testing.T) {
	s := &Server{MariaDB: true, variables: map[string]string{"max_statement_time": "0.500000"}}
	if f := s.statementTime(); !strings.Contains(f.What, "max_statement_time is 0.500000 s") {
		t.Errorf("%+v", f)
	}
	if s.variables["max_statement_time"] = "0.000000"; s.statementTime().What != "" {
		t.Error("no bound is found to be one")
	}
}

// What asking took is doubt, not difference.
func TestASlowAnswerIsNoDifferenceOfClocks(t *testing.T) {
	s := healthy()
	s.Ahead, s.Doubt = 6*time.Second, 4*time.Second
	if list := findings(s, ofAnOutbox); len(list) != 0 {
		t.Errorf("%+v", list)
	}
	if s.Doubt = 0; len(findings(s, ofAnOutbox)) != 1 {
		t.Error("the same without doubt is not noted")
	}
}

func TestAccountsAreQuotedAsGrantWritesThem(t *testing.T) {
	for from, want := range map[string]string{"slotline@%": "'slotline'@'%'", "o'b@x@10.0.0.%": "'o''b@x'@'10.0.0.%'", "nobody": "'nobody'"} {
		if got := quoteAccount(from); got != want {
			t.Errorf("%s: %s, want %s", from, got, want)
		}
	}
}
