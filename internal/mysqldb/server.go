package mysqldb

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/slotline/slotline/config"
)

// Server is what a MySQL server says of itself and of the account that asks. Reading it changes nothing.
type Server struct {
	Version string
	MariaDB bool
	Account string // 'slotline'@'%'
	Grants  Grants
	// GrantsUnread says why the account's privileges are not known; "" where they are.
	GrantsUnread string
	// Ahead is how far the server's clock is ahead of this host's, within Doubt: the time that asking took.
	Ahead, Doubt time.Duration

	variables map[string]string // global; those that the server has
}

// serverVariables are the global variables that slotline looks at.
var serverVariables = []string{"auto_increment_increment", "binlog_format", "disabled_storage_engines", "innodb_flush_log_at_trx_commit",
	"innodb_lock_wait_timeout", "local_infile", "log_bin", "max_allowed_packet", "max_connections", "max_execution_time", "max_heap_table_size",
	"max_statement_time", "max_user_connections", "partial_revokes", "read_only", "sql_mode", "sql_require_primary_key", "sync_binlog",
	"transaction_read_only"}

// ReadServer asks for all that Findings judges.
func ReadServer(ctx context.Context, db *sql.DB) (*Server, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	s := &Server{variables: map[string]string{}}
	if err := conn.QueryRowContext(ctx, "SELECT VERSION(), CURRENT_USER()").Scan(&s.Version, &s.Account); err != nil {
		return nil, err
	}
	s.MariaDB = strings.Contains(strings.ToLower(s.Version), "mariadb")
	s.Account = quoteAccount(s.Account)
	var now time.Time
	asked := time.Now()
	if err := conn.QueryRowContext(ctx, "SELECT UTC_TIMESTAMP(6)").Scan(&now); err != nil {
		return nil, err
	}
	s.Doubt = time.Since(asked)
	s.Ahead = now.Sub(asked.Add(s.Doubt / 2))
	if err := s.readVariables(ctx, conn); err != nil {
		return nil, err
	}
	return s, s.readGrants(ctx, conn)
}

func (s *Server) readVariables(ctx context.Context, conn *sql.Conn) error {
	rows, err := conn.QueryContext(ctx, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('"+strings.Join(serverVariables, "','")+"')")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return err
		}
		s.variables[strings.ToLower(name)] = value
	}
	if err := rows.Err(); err != nil {
		return err
	}
	// The session's value is the account's own limit where it has one.
	var own string
	if conn.QueryRowContext(ctx, "SELECT @@SESSION.max_user_connections").Scan(&own) == nil {
		s.variables["max_user_connections"] = own
	}
	return ctx.Err()
}

// readGrants reads the account's privileges with those of its active roles. A server that does not show them is no failure.
func (s *Server) readGrants(ctx context.Context, conn *sql.Conn) error {
	show := []string{"SHOW GRANTS FOR CURRENT_USER()"} // in MySQL with those of the active roles
	var role sql.NullString
	if s.MariaDB && conn.QueryRowContext(ctx, "SELECT CURRENT_ROLE()").Scan(&role) == nil && role.Valid {
		show = append(show, "SHOW GRANTS FOR CURRENT_ROLE")
	}
	var lines []string
	for _, query := range show {
		more, err := texts(ctx, conn, query)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			s.GrantsUnread = "SHOW GRANTS: " + err.Error()
			return nil
		}
		lines = append(lines, more...)
	}
	s.Grants = ParseGrants(lines)
	for i := range s.Grants {
		s.Grants[i].literal = s.is("partial_revokes", true)
	}
	if len(s.Grants) == 0 {
		s.GrantsUnread = "SHOW GRANTS shows none"
	}
	return nil
}

func texts(ctx context.Context, conn *sql.Conn, query string) (list []string, err error) {
	rows, err := conn.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		list = append(list, text)
	}
	return list, rows.Err()
}

// quoteAccount writes slotline@% as a GRANT names it.
func quoteAccount(account string) string {
	at := strings.LastIndexByte(account, '@')
	if at < 0 {
		return "'" + account + "'"
	}
	quote := strings.NewReplacer(`\`, `\\`, "'", "''").Replace
	return "'" + quote(account[:at]) + "'@'" + quote(account[at+1:]) + "'"
}

// GrantTo is the user of a DSN as a GRANT for a DBA names it, on any host; the_user where it is not known here.
func GrantTo(dsn config.DSN) string {
	user := "the_user"
	if a, err := dsn.Resolve(); err == nil {
		user = a.User
	}
	return quoteAccount(user + "@%")
}

// Heading is "MySQL 8.4.3" or "MariaDB 10.11.14".
func (s *Server) Heading() string {
	engine := "MySQL"
	if s.MariaDB {
		engine = "MariaDB"
	}
	version, _, _ := strings.Cut(s.Version, "-")
	return engine + " " + version
}

// number is a variable's value as a number; ok is false where the server does not have it.
func (s *Server) number(name string) (n int64, ok bool) {
	n, err := strconv.ParseInt(s.variables[name], 10, 64)
	if err != nil { // max_statement_time has decimals
		f, ferr := strconv.ParseFloat(s.variables[name], 64)
		return int64(f), ferr == nil
	}
	return n, true
}

// is says whether a switch has the value; false where the server does not have it.
func (s *Server) is(name string, on bool) bool {
	switch strings.ToUpper(s.variables[name]) {
	case "ON", "1":
		return on
	case "OFF", "0":
		return !on
	}
	return false
}

// set is the statement that sets a global variable for good.
func (s *Server) set(name string, value any) string {
	if s.MariaDB {
		return fmt.Sprintf("SET GLOBAL %s = %v, and in the server's configuration", name, value)
	}
	return fmt.Sprintf("SET PERSIST %s = %v", name, value)
}

// olderThan compares the leading numbers of a version.
func olderThan(version string, least ...int) bool {
	rest := version
	for _, want := range least {
		i := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
		if i < 0 {
			i = len(rest)
		}
		n, err := strconv.Atoi(rest[:i])
		if err != nil {
			return false // no number: not judged
		}
		if n != want {
			return n < want
		}
		rest = strings.TrimPrefix(rest[i:], ".")
	}
	return false
}
