package clickhouse

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/ch-go/proto"

	"github.com/slotline/slotline/internal/checkup"
)

// serverState is what a server says of itself and of the user that asks.
type serverState struct {
	version  string
	settings map[string]setting
	missing  []string // privileges on the database
	unread   []string // what could not be read, and why
	// parts are the most that one partition of a table of the file has, where it has many.
	parts, partsDelay, partsThrow int
	partsOf                       string   // table and partition
	forgets                       []string // tables that forget tokens at once
}

// setting is a setting of the session.
type setting struct {
	value string
	fixed bool // the user's profile does not let it be changed
}

// sentSettings go with each block, and must be what the sink sends.
var sentSettings = map[string]string{"async_insert": "0", "insert_deduplicate": "1"}

// Checkup asks the server what it says of itself, and judges it. It changes nothing.
func (s *Sink) Checkup(ctx context.Context) (*checkup.Server, error) {
	st, err := s.readServer(ctx)
	if err != nil {
		return nil, wrap(err, codeQuery, s.where())
	}
	c := &checkup.Server{Where: fmt.Sprintf("%s %s (%s)", s.name, s.pool.place(), shortVersion(st.version)), Unchecked: st.unread}
	user := "the_user"
	if a, err := s.pool.dsn.Resolve(); err == nil && a.User != "" {
		user = a.User
	}
	c.Add(st.findings(s.pool.dsn.Database(), user)...)
	return c, nil
}

func (s *Sink) readServer(ctx context.Context) (*serverState, error) {
	st := &serverState{settings: map[string]setting{}}
	err := s.pool.rows(ctx, "SELECT version()", 1, func(f []string) { st.version = f[0] })
	if err != nil {
		return nil, err
	}
	err = s.pool.rows(ctx, "SELECT name, value, toString(readonly) FROM system.settings WHERE name IN "+
		"('readonly','async_insert','insert_deduplicate')", 3, func(f []string) {
		st.settings[f[0]] = setting{f[1], f[2] == "1"}
	})
	if err != nil {
		return nil, err
	}
	if err := s.readPrivileges(ctx, st); err != nil {
		return nil, err
	}
	tables, err := s.readSchema(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range s.tables {
		if slices.ContainsFunc(s.compare(t.Table, tables), func(f found) bool { return f.kind == foundSetting }) {
			st.forgets = append(st.forgets, t.Name)
		}
	}
	err = s.readParts(ctx, st)
	if x, ok := ch.AsException(err); ok { // the sink itself does without these tables
		st.unread, err = append(st.unread, "parts: "+message(x)), nil
	}
	return st, err
}

// readPrivileges has the server decide: it knows which privileges and roles hold which others. One that does not know the
// question (before 24.11) is no failure.
func (s *Sink) readPrivileges(ctx context.Context, st *serverState) error {
	for p := range strings.SplitSeq(privileges, ", ") {
		granted := proto.ColUInt8{}
		err := s.pool.query(ctx, ch.Query{Body: fmt.Sprintf("CHECK GRANT %s ON %s.*", p, ident(s.pool.dsn.Database())),
			Result: proto.Results{{Data: &granted}}})
		if x, ok := ch.AsException(err); ok {
			st.unread = append(st.unread, "privileges: CHECK GRANT: "+message(x))
			return nil
		}
		if err != nil {
			return err
		}
		if len(granted) != 1 {
			st.unread = append(st.unread, "privileges: CHECK GRANT gave no answer")
			return nil
		}
		if granted[0] == 0 {
			st.missing = append(st.missing, p)
		}
	}
	return nil
}

func (s *Sink) readParts(ctx context.Context, st *serverState) error {
	err := s.pool.rows(ctx, "SELECT name, value FROM system.merge_tree_settings WHERE name IN ('parts_to_delay_insert','parts_to_throw_insert')", 2, func(f []string) {
		n, _ := strconv.Atoi(f[1])
		if f[0] == "parts_to_delay_insert" {
			st.partsDelay = n
		} else {
			st.partsThrow = n
		}
	})
	if err != nil {
		return err
	}
	var names []string
	for _, t := range s.tables {
		names = append(names, text(s.cluster.local(t.Name)))
	}
	return s.pool.rows(ctx, "SELECT table || ' partition ' || partition, toString(count()) AS parts FROM system.parts WHERE active AND database = currentDatabase() "+
		"AND table IN ("+strings.Join(names, ", ")+") GROUP BY table, partition ORDER BY count() DESC LIMIT 1", 2, func(f []string) {
		st.partsOf = f[0]
		st.parts, _ = strconv.Atoi(f[1])
	})
}

// shortVersion is a version as people say it: "26.7".
func shortVersion(version string) string {
	if parts := strings.SplitN(version, ".", 3); len(parts) == 3 {
		return parts[0] + "." + parts[1]
	}
	return version
}

// findings judges what a server said. It is pure.
func (st *serverState) findings(database, user string) []checkup.Finding {
	var list []checkup.Finding
	add := func(sign, what, why, do string) {
		list = append(list, checkup.Finding{Sign: sign, What: what, Why: why, Do: do})
	}
	var year, month int
	if n, _ := fmt.Sscanf(st.version, "%d.%d", &year, &month); n == 2 && (year < 24 || year == 24 && month < 8) {
		add(checkup.Stops, "version "+st.version, "the sink is made for ClickHouse 24.8 or later", "a newer server")
	}
	if v := st.settings["readonly"].value; v != "" && v != "0" {
		add(checkup.Stops, "readonly is "+v, "the server refuses each block", fmt.Sprintf("give %s a profile without readonly", ident(user)))
	}
	for _, name := range slices.Sorted(maps.Keys(sentSettings)) {
		if have := st.settings[name]; have.fixed && have.value != sentSettings[name] && len(list) == 0 {
			add(checkup.Stops, fmt.Sprintf("%s may not change %s, which is %s", user, name, have.value), "the server refuses each block: the sink sends "+name+" = "+sentSettings[name],
				"take the constraint on "+name+" out of the user's settings and profiles")
		}
	}
	if len(st.missing) > 0 {
		names := strings.Join(st.missing, ", ")
		add(checkup.Stops, fmt.Sprintf("%s lacks %s on %s.*", user, names, database), "the sink and apply need it; slotline apply --grants prints all",
			fmt.Sprintf("GRANT %s ON %s.* TO %s", names, ident(database), ident(user)))
	}
	if len(st.forgets) > 0 {
		add(checkup.Hurts, "tables "+strings.Join(st.forgets, ", ")+" forget tokens at once", "what is sent again is stored twice until it is merged; views count it once", "slotline apply")
	}
	if st.partsDelay > 0 && st.parts >= st.partsDelay {
		add(checkup.Hurts, fmt.Sprintf("%s has %d parts", st.partsOf, st.parts), fmt.Sprintf("merging lags behind: from %d on the server slows inserts down, from %d on it refuses them", st.partsDelay, st.partsThrow),
			"greater sinks.clickhouse.batch_age and batch_rows, or fewer groups")
	}
	return list
}
