package doris

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/slotline/slotline/internal/checkup"
)

// serverState is what the frontends say of themselves and of the backends.
type serverState struct {
	version  string
	backends []backend
	unread   []string // what could not be read, and why
}

type backend struct {
	host  string
	alive bool
}

// Checkup asks the frontends what they say of themselves, and judges it. It changes nothing.
func (s *Sink) Checkup(ctx context.Context) (*checkup.Server, error) {
	version, err := s.version(ctx)
	if err != nil {
		return nil, wrap(err, codeQuery, s.where())
	}
	st := serverState{version: version}
	if st.backends, err = s.backends(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, wrap(err, codeQuery, s.where())
		}
		st.unread = append(st.unread, "backends: "+err.Error())
	}
	c := &checkup.Server{Where: fmt.Sprintf("%s %s (%s)", s.name, s.place(), version), Unchecked: st.unread}
	c.Add(st.findings(s.replication)...)
	return c, nil
}

// backends needs a privilege that the sink does not: ADMIN_PRIV or NODE_PRIV.
func (s *Sink) backends(ctx context.Context) (list []backend, err error) {
	rows, err := s.catalog.QueryContext(ctx, "SHOW BACKENDS")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		fields, into := make([]sql.NullString, len(names)), make([]any, len(names))
		for i := range fields {
			into[i] = &fields[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		var b backend
		for i, name := range names {
			switch strings.ToLower(name) {
			case "host", "ip": // the latter before 2.0
				b.host = fields[i].String
			case "alive":
				b.alive = fields[i].String == "true"
			}
		}
		list = append(list, b)
	}
	return list, rows.Err()
}

// findings judges what the frontends said. It is pure.
func (st *serverState) findings(replication int) []checkup.Finding {
	var list []checkup.Finding
	add := func(sign, what, why, do string) {
		list = append(list, checkup.Finding{Sign: sign, What: what, Why: why, Do: do})
	}
	var major, minor int
	if n, _ := fmt.Sscanf(st.version, "%d.%d", &major, &minor); n == 2 && (major < 2 || major == 2 && minor < 1) {
		add(checkup.Stops, "version "+st.version, "the sink is made for Doris 2.1 or later: AUTO PARTITION, and a sequence column with merge-on-write", "a newer server")
	}
	var dead []string
	for _, b := range st.backends {
		if !b.alive {
			dead = append(dead, b.host)
		}
	}
	alive := len(st.backends) - len(dead)
	switch need := replication/2 + 1; {
	case len(st.backends) == 0:
	case len(st.backends) < replication:
		add(checkup.Stops, fmt.Sprintf("there are %d backends, sinks.doris.replication is %d", len(st.backends), replication), "no table can be made",
			fmt.Sprintf("more backends; or replication: %d, before the first apply", len(st.backends)))
	case alive < need:
		add(checkup.Stops, fmt.Sprintf("%d backends are alive, down: %s", alive, strings.Join(dead, ", ")), fmt.Sprintf("a load needs %d of %d replicas: batches wait", need, replication), "start them")
	case len(dead) > 0:
		add(checkup.Hurts, "backends are down: "+strings.Join(dead, ", "), "a load fails where most replicas of a tablet are there, and then the batch waits", "start them")
	}
	return list
}
