package mysqldb

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slotline/slotline/internal/checkup"
)

// Needs is what a part of slotline needs of a server.
type Needs struct {
	// Outbox says that services commit there: a crash must lose nothing that was published.
	Outbox bool
	// Staging says that a sink loads batches there, into MEMORY tables of up to half of HeapBytes.
	Staging   bool
	HeapBytes int64
	// PacketBytes is the least max_allowed_packet, and PacketWhy what a smaller one does. 0: any.
	PacketBytes int64
	PacketWhy   string
	// Connections is how many one `slotline run` opens there at most, for all databases of the server. 0: not judged.
	Connections int
	// ClockMax is the difference of clocks from which something stops. 0: nothing does.
	ClockMax   time.Duration
	Privileges []Privileges
}

// Privileges are privileges of the account that belong together.
type Privileges struct {
	Names           []string // as GRANT writes them: "CREATE TEMPORARY TABLES"
	Database, Table string   // "*" for all
	Sign, Why       string   // of the finding where one is missing
}

// PrivilegeNames takes a list as GRANT writes it apart.
func PrivilegeNames(list string) []string { return strings.Split(list, ", ") }

const (
	// clockNoted is a difference that a person sees in ages. Clocks under NTP differ by milliseconds.
	clockNoted = 5 * time.Second
	// connectionsSpare are left for services and people.
	connectionsSpare = 10
)

// Findings is what is wrong with the server for who needs that. It is pure.
func (s *Server) Findings(n Needs) []checkup.Finding {
	list := []checkup.Finding{s.version(n), s.statementBinlog(), s.clock(n), s.ownConnections(n), s.connections(n), s.statementTime(), s.lockWait(),
		s.lax(n), s.syncBinlog(n), s.primaryKeys(n), s.engines(n), s.heap(n)}
	return slices.Concat(list, s.Settings(n), s.privileges(n))
}

// Settings are the findings that a plan shows as notes.
func (s *Server) Settings(n Needs) []checkup.Finding {
	return []checkup.Finding{s.readOnly(n), s.sessionsReadOnly(n), s.flush(n), s.localInfile(n), s.packet(n)}
}

func (s *Server) version(n Needs) checkup.Finding {
	f := checkup.Finding{Sign: checkup.Stops, What: "version " + s.Version}
	switch {
	case s.MariaDB && n.Outbox:
		f.Why = "MariaDB has no server_uuid: the relay could not see that a failover went back"
		f.Do = "keep the outbox in MySQL 8.0 or later; MariaDB is for shards"
	case s.MariaDB && olderThan(strings.TrimPrefix(s.Version, "5.5.5-"), 10, 6), !s.MariaDB && olderThan(s.Version, 8, 0):
		f.Why = "slotline is made for MySQL 8.0 or later, and MariaDB 10.6 or later as a shard"
		f.Do = "a newer server"
	default:
		return checkup.Finding{}
	}
	return f
}

// statementBinlog: InnoDB refuses to write under READ COMMITTED, which slotline's sessions use, where it is logged as statements.
func (s *Server) statementBinlog() checkup.Finding {
	if !s.is("log_bin", true) || !strings.EqualFold(s.variables["binlog_format"], "STATEMENT") {
		return checkup.Finding{}
	}
	return checkup.Finding{Sign: checkup.Stops, What: "binlog_format is STATEMENT",
		Why: "the server refuses each write of a session that is READ COMMITTED, as slotline's are (error 1665): nothing is published or applied",
		Do:  s.set("binlog_format", "ROW")}
}

func (s *Server) clock(n Needs) checkup.Finding {
	off := s.Ahead.Abs() - s.Doubt
	if off < clockNoted {
		return checkup.Finding{}
	}
	direction := "ahead of"
	if s.Ahead < 0 {
		direction = "behind"
	}
	f := checkup.Finding{Sign: checkup.Hurts, What: fmt.Sprintf("its clock is %v %s this host's", s.Ahead.Abs().Round(time.Second), direction),
		Why: "ages in status and metrics are wrong by as much; leases are not: they use the server's time alone",
		Do:  "synchronise both clocks, with NTP"}
	if n.ClockMax > 0 && off > n.ClockMax {
		f.Sign = checkup.Stops
		f.Why = fmt.Sprintf("outbox.backlog_age_max is %v: a service whose clock differs like this host's is refused each event while one waits, or never", n.ClockMax)
	}
	return f
}

// ownConnections is the account's own limit, which is for slotline alone.
func (s *Server) ownConnections(n Needs) checkup.Finding {
	most, ok := s.number("max_user_connections")
	if !ok || most == 0 || most >= int64(n.Connections) {
		return checkup.Finding{}
	}
	return checkup.Finding{Sign: checkup.Hurts, What: fmt.Sprintf("max_user_connections is %d for %s", most, s.Account),
		Why: fmt.Sprintf("one slotline run opens up to %d here: what gets none waits", n.Connections),
		Do:  fmt.Sprintf("ALTER USER %s WITH MAX_USER_CONNECTIONS %d", s.Account, n.Connections)}
}

func (s *Server) connections(n Needs) checkup.Finding {
	need := int64(n.Connections + connectionsSpare)
	most, ok := s.number("max_connections")
	if !ok || n.Connections == 0 || most >= need {
		return checkup.Finding{}
	}
	return checkup.Finding{Sign: checkup.Hurts, What: fmt.Sprintf("max_connections is %d", most),
		Why: fmt.Sprintf("one slotline run opens up to %d here, services and people more: what gets none waits", n.Connections),
		Do:  s.set("max_connections", need)}
}

func (s *Server) statementTime() checkup.Finding {
	name, unit := "max_execution_time", "ms"
	if s.MariaDB {
		name, unit = "max_statement_time", "s"
	}
	if v, err := strconv.ParseFloat(s.variables[name], 64); err != nil || v == 0 {
		return checkup.Finding{}
	}
	return checkup.Finding{Sign: checkup.Hurts, What: fmt.Sprintf("%s is %s %s", name, s.variables[name], unit),
		Why: "the server cuts what reads for longer: replay rebuild and verify read whole tables", Do: s.set(name, 0)}
}

func (s *Server) lockWait() checkup.Finding {
	n, ok := s.number("innodb_lock_wait_timeout")
	if !ok || time.Duration(n)*time.Second < defaultReadTimeout {
		return checkup.Finding{}
	}
	return checkup.Finding{Sign: checkup.Hurts, What: fmt.Sprintf("innodb_lock_wait_timeout is %d s", n),
		Why: fmt.Sprintf("slotline gives a connection up that is silent for %v, and does not learn that a lock was in the way", defaultReadTimeout),
		Do:  s.set("innodb_lock_wait_timeout", 50)}
}

// lax: slotline's sessions are strict whatever the server's default; those of services need not be.
func (s *Server) lax(n Needs) checkup.Finding {
	mode, ok := s.variables["sql_mode"]
	if !n.Outbox || !ok || strings.Contains(mode, "STRICT_TRANS_TABLES") || strings.Contains(mode, "STRICT_ALL_TABLES") {
		return checkup.Finding{}
	}
	return checkup.Finding{Sign: checkup.Hurts, What: "sql_mode is not strict",
		Why: "a service that emits in SQL of its own could have a tenant, id or body cut in silence, and published so; slotline's own sessions are strict",
		Do:  s.set("sql_mode", "'"+strings.TrimPrefix(mode+",STRICT_TRANS_TABLES", ",")+"'")}
}

func (s *Server) readOnly(n Needs) checkup.Finding {
	if !s.is("read_only", true) {
		return checkup.Finding{}
	}
	f := checkup.Finding{Sign: checkup.Stops, What: "the server is read-only", Why: "batches wait until it is not",
		Do: "point the dsn at the primary; or, if this is it, " + s.set("read_only", "OFF")}
	if n.Outbox {
		f.Why = "nothing can be emitted, and the relay cannot save what it has published"
	}
	return f
}

// sessionsReadOnly is another switch than read_only: it is what sessions begin with that do not say otherwise, as ours do.
func (s *Server) sessionsReadOnly(n Needs) checkup.Finding {
	if !n.Outbox || !s.is("transaction_read_only", true) {
		return checkup.Finding{}
	}
	return checkup.Finding{Sign: checkup.Hurts, What: "transaction_read_only is ON for new sessions",
		Why: "a service whose sessions do not say READ WRITE cannot emit; slotline's own sessions do", Do: s.set("transaction_read_only", "OFF")}
}

func (s *Server) flush(n Needs) checkup.Finding {
	v, ok := s.number("innodb_flush_log_at_trx_commit")
	if !ok || v == 1 {
		return checkup.Finding{}
	}
	f := checkup.Finding{Sign: checkup.Hurts, What: fmt.Sprintf("innodb_flush_log_at_trx_commit is %d", v),
		Why: "after a crash of the machine the last second is applied again, and readers see it go back until then",
		Do:  s.set("innodb_flush_log_at_trx_commit", 1)}
	if n.Outbox {
		f.Why = "a crash of the machine loses commits of the last second whose events may be published; they are listed then, under lost_commit"
	}
	return f
}

func (s *Server) syncBinlog(n Needs) checkup.Finding {
	v, ok := s.number("sync_binlog")
	if !ok || v == 1 || !s.is("log_bin", true) {
		return checkup.Finding{}
	}
	f := checkup.Finding{Sign: checkup.Hurts, What: fmt.Sprintf("sync_binlog is %d", v),
		Why: "after a crash of the machine the last commits are applied again, and replicas may have what the primary lost",
		Do:  s.set("sync_binlog", 1)}
	if n.Outbox {
		f.Why = "a crash of the machine loses commits whose events may be published, and replicas may have what the primary lost"
	}
	return f
}

// unstaged is a finding about what the staging path needs. MariaDB is not asked for it.
func (s *Server) unstaged(n Needs, wrong bool, what, do string) checkup.Finding {
	if !n.Staging || s.MariaDB || !wrong {
		return checkup.Finding{}
	}
	return checkup.Finding{Sign: checkup.Hurts, What: what, Why: "the faster staging path stays unused", Do: do}
}

func (s *Server) localInfile(n Needs) checkup.Finding {
	return s.unstaged(n, s.is("local_infile", false), "local_infile is OFF", s.set("local_infile", "ON"))
}

func (s *Server) primaryKeys(n Needs) checkup.Finding {
	return s.unstaged(n, s.is("sql_require_primary_key", true), "sql_require_primary_key is ON", s.set("sql_require_primary_key", "OFF"))
}

func (s *Server) engines(n Needs) checkup.Finding {
	disabled := strings.FieldsFunc(strings.ToUpper(s.variables["disabled_storage_engines"]), func(r rune) bool { return r == ',' || r == ' ' })
	return s.unstaged(n, slices.Contains(disabled, "MEMORY"), "disabled_storage_engines has MEMORY", "take MEMORY out of disabled_storage_engines, and restart the server")
}

func (s *Server) heap(n Needs) checkup.Finding {
	v, ok := s.number("max_heap_table_size")
	return s.unstaged(n, ok && v < n.HeapBytes, fmt.Sprintf("max_heap_table_size is %d KiB", v>>10), s.set("max_heap_table_size", n.HeapBytes))
}

func (s *Server) packet(n Needs) checkup.Finding {
	v, ok := s.number("max_allowed_packet")
	if !ok || v >= n.PacketBytes {
		return checkup.Finding{}
	}
	return checkup.Finding{Sign: checkup.Hurts, What: fmt.Sprintf("max_allowed_packet is %d KiB", v>>10), Why: n.PacketWhy,
		Do: s.set("max_allowed_packet", 64<<20)}
}

func (s *Server) privileges(n Needs) (list []checkup.Finding) {
	if s.GrantsUnread != "" {
		return nil
	}
	for _, p := range n.Privileges {
		// What is lacking is granted on the name that the account has: a further one would take its place.
		names := []string{p.Database}
		if have := s.Grants.on(p.Database); p.Table == "*" && len(have) > 0 {
			names = have
		}
		for _, name := range names {
			missing := strings.Join(s.Grants.by(name, p.Database).Missing(p.Names, p.Database, p.Table), ", ")
			if missing == "" {
				continue
			}
			f := checkup.Finding{Sign: p.Sign, What: fmt.Sprintf("%s lacks %s on %s.%s", s.Account, missing, p.Database, p.Table), Why: p.Why,
				Do: fmt.Sprintf("GRANT %s ON %s.%s TO %s", missing, identOrAll(name), identOrAll(p.Table), s.Account)}
			if len(names) > 1 {
				f.What += ", should the server go by its grant on " + Ident(name)
			}
			list = append(list, f)
		}
	}
	return list
}

func identOrAll(name string) string {
	if name == "*" {
		return name
	}
	return Ident(name)
}

// Checkup judges the server for who needs that.
func (s *Server) Checkup(where string, n Needs) *checkup.Server {
	c := &checkup.Server{Where: where + " (" + s.Heading() + ")"}
	c.Add(s.Findings(n)...)
	if s.GrantsUnread != "" {
		c.Unchecked = append(c.Unchecked, "privileges: "+s.GrantsUnread)
	}
	return c
}
