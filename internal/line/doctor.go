package line

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/checkup"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/outbox"
	"github.com/slotline/slotline/sinks/mysql"
	"github.com/slotline/slotline/sinks/olap/intent"
)

// codeCheckup is for what a MySQL server answers to doctor, and for any server that does not answer it.
const codeCheckup = "SL9026"

// Checkup is what slotline doctor has found.
type Checkup struct {
	Line    string            `json:"line"`
	Servers []*checkup.Server `json:"servers"`
}

// patient is a server that doctor asks. What ask returns is judged when all have answered. silent is what is said of one that
// has not after checkTimeout; nil for what is said of any.
type patient struct {
	where  string
	ask    func(ctx context.Context) error
	judge  func() *checkup.Server
	silent error
}

// Doctor asks every server of the file at once, and changes nothing. One that does not answer is shown as such, and hides
// none of the others.
func (l *Line) Doctor(ctx context.Context) (*Checkup, error) {
	partitions := -1 // of the layout in force: not known
	seen := &databases{}
	var patients []patient
	own, err := l.doctorOutbox(&partitions, seen)
	if err != nil {
		return nil, err
	}
	patients = append(patients, l.doctorKafka(&partitions), own)
	for i, shard := range l.Config.Shards {
		p, err := l.doctorShard(i, shard, seen)
		if err != nil {
			return nil, err
		}
		patients = append(patients, p)
	}
	more, err := l.doctorOLAP()
	if err != nil {
		return nil, err
	}
	patients = append(patients, more...)

	errs := make([]error, len(patients))
	var wg sync.WaitGroup
	for i, p := range patients {
		wg.Go(func() {
			ask, cancel := context.WithTimeout(ctx, checkTimeout)
			defer cancel()
			if errs[i] = p.ask(ask); errs[i] != nil && tooLate(ctx, ask) && !answered(errs[i]) {
				errs[i] = cmp.Or(p.silent, mysqldb.Wrap(errNoAnswer, codeCheckup, p.where))
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, interrupted(ctx)
	}
	c := &Checkup{Line: l.Config.Line}
	for i, p := range patients {
		if errs[i] == nil {
			c.add(p.judge())
			continue
		}
		s := &checkup.Server{Where: p.where}
		e, isFault := errors.AsType[*fault.Error](errs[i])
		if !isFault {
			e = &fault.Error{What: firstLine(errs[i].Error())}
		}
		f := checkup.OfFault(checkup.Stops, e)
		f.What = strings.TrimPrefix(f.What, p.where+": ") // it stands above
		if answered(errs[i]) {
			s.Add(f)
		} else {
			s.NotAsked, s.Why, s.Do = f.Headline(), f.Why, f.Do
		}
		c.add(s)
	}
	return c, nil
}

// answered says that a server did answer, though not as it must.
func answered(err error) bool {
	class := fault.ClassOf(err)
	return class == fault.Fatal || class == fault.Usage || kafka.Answered(err)
}

// add makes lists of nil, for JSON.
func (c *Checkup) add(s *checkup.Server) {
	s.Sort()
	s.Findings = append([]checkup.Finding{}, s.Findings...)
	s.Unchecked = append([]string{}, s.Unchecked...)
	c.Servers = append(c.Servers, s)
}

func (l *Line) doctorKafka(partitions *int) patient {
	var b *kafka.Brokers
	return patient{"kafka " + strings.Join(l.Config.Kafka.Brokers, ","), func(ctx context.Context) error {
		cl, err := l.kafkaClient(ctx, "doctor")
		if err != nil {
			return err
		}
		defer cl.Close()
		b, err = kafka.ReadBrokers(ctx, cl, l.Config)
		return err
	}, func() *checkup.Server { return b.Checkup(l.Config, *partitions) }, kafka.Silent(l.Config, checkTimeout)}
}

// doctorMySQL asks a MySQL server and, unless seen is nil, whether the database is another one of the line too. more asks
// for the rest.
func (l *Line) doctorMySQL(where string, db *sql.DB, seen *databases, needs func(*mysqldb.Server) mysqldb.Needs,
	more func(ctx context.Context) ([]checkup.Finding, error)) patient {
	var server *mysqldb.Server
	var rest []checkup.Finding
	return patient{where, func(ctx context.Context) (err error) {
		if server, err = mysqldb.ReadServer(ctx, db); err == nil && seen != nil {
			err = seen.identify(ctx, db, where)
		}
		if err == nil && more != nil {
			rest, err = more(ctx)
		}
		return mysqldb.Wrap(err, codeCheckup, where)
	}, func() *checkup.Server {
		s := server.Checkup(where, needs(server))
		s.Add(rest...)
		if seen != nil {
			if e := seen.twice(where); e != nil {
				s.Add(checkup.OfFault(checkup.Stops, e))
			}
		}
		return s
	}, nil}
}

func (l *Line) doctorOutbox(partitions *int, seen *databases) (patient, error) {
	db, err := l.outboxDB()
	if err != nil {
		return patient{}, err
	}
	place := l.Config.Outbox.DSN.Place()
	needs := outbox.Needs(l.Config)
	needs.Connections = l.connections(l.Config.Outbox.DSN)
	return l.doctorMySQL("outbox "+place, db, seen, func(*mysqldb.Server) mysqldb.Needs { return needs }, func(ctx context.Context) ([]checkup.Finding, error) {
		var list []checkup.Finding
		refusals, err := outbox.Refusals(ctx, db, l.Config)
		if err != nil {
			return nil, err
		}
		for _, e := range refusals {
			list = append(list, checkup.OfFault(checkup.Stops, e))
		}
		applied, err := l.appliedLayout(ctx)
		if e, ok := errors.AsType[*fault.Error](err); ok && (e.Class == fault.Fatal || e.Class == fault.Usage) {
			return append(list, checkup.OfFault(checkup.Stops, e)), nil
		}
		if err != nil {
			return nil, err
		}
		if *partitions = 0; applied != nil {
			*partitions = applied.Partitions()
		}
		return list, nil
	}), nil
}

func (l *Line) doctorShard(i int, shard config.Shard, seen *databases) (patient, error) {
	db, err := l.shardDB(i)
	if err != nil {
		return patient{}, err
	}
	where := shardWhere(shard)
	return l.doctorMySQL(where, db, seen, func(s *mysqldb.Server) mysqldb.Needs {
		n := mysql.Needs(l.Config, shard, s.MariaDB)
		n.Connections = l.connections(shard.DSN)
		return n
	}, func(ctx context.Context) ([]checkup.Finding, error) {
		err := sharedTables(ctx, db, l.Config.Line, where, l.tableNames())
		if e, ok := errors.AsType[*fault.Error](err); ok {
			return []checkup.Finding{checkup.OfFault(checkup.Stops, e)}, nil
		}
		return nil, err
	}), nil
}

// doctorOLAP are the OLAP engines, and the database of their state where it is one of its own.
func (l *Line) doctorOLAP() (list []patient, err error) {
	if l.hasState() {
		db, err := l.stateDB()
		if err != nil {
			return nil, err
		}
		needs := intent.Needs(l.Config)
		needs.Connections = l.connections(l.Config.Sinks.State)
		list = append(list, l.doctorMySQL("sinks.state "+l.Config.Sinks.State.Place(), db, nil, func(*mysqldb.Server) mysqldb.Needs { return needs }, nil))
	}
	for _, name := range l.olapSinks() {
		sink, err := l.openOLAP(name, l.Config, nil, nil, "")
		if err != nil {
			return nil, err
		}
		l.onClose(func() { _ = sink.Close() })
		var dsn config.DSN
		if name == "doris" {
			dsn = l.Config.Sinks.Doris.DSN
		} else {
			dsn = l.Config.Sinks.ClickHouse.DSN
		}
		var s *checkup.Server
		list = append(list, patient{name + " " + strings.TrimSuffix(dsn.Place(), "/"), func(ctx context.Context) (err error) {
			s, err = sink.Checkup(ctx)
			return err
		}, func() *checkup.Server { return s }, nil})
	}
	return list, nil
}

// hasState says that OLAP sinks keep their state in a database of its own.
func (l *Line) hasState() bool {
	return len(l.olapSinks()) > 0 && l.Config.Sinks.State.Key() != l.Config.Outbox.DSN.Key()
}

// connections is how many sessions one `slotline run` opens at most on the server of a dsn, in all of its databases.
func (l *Line) connections(dsn config.DSN) (n int) {
	host := func(d config.DSN) string {
		a, err := d.Resolve()
		if err != nil || len(a.Hosts) == 0 {
			return ""
		}
		return a.Hosts[0]
	}
	at := host(dsn)
	if host(l.Config.Outbox.DSN) == at {
		n += l.outboxConnections()
	}
	for _, shard := range l.Config.Shards {
		if host(shard.DSN) == at {
			n += mysql.Connections(l.Config) + shardConnections
		}
	}
	if l.hasState() && host(l.Config.Sinks.State) == at {
		n += mysqldb.DefaultMaxConns
	}
	return n
}

// Found says whether anything was found.
func (c *Checkup) Found() bool { stops, hurts, _ := c.counts(); return stops+hurts > 0 }

// Partial says whether a server did not answer.
func (c *Checkup) Partial() bool { _, _, silent := c.counts(); return silent > 0 }

func (c *Checkup) counts() (stops, hurts, silent int) {
	for _, s := range c.Servers {
		if s.NotAsked != "" {
			silent++
		}
		for _, f := range s.Findings {
			if f.Sign == checkup.Stops {
				stops++
			} else {
				hurts++
			}
		}
	}
	return
}

// WriteText prints it for a person.
func (c *Checkup) WriteText(w io.Writer) error {
	more := func(why, do string) {
		for line := range strings.SplitSeq(why, "\n") {
			if line != "" {
				fmt.Fprintln(w, "    "+line)
			}
		}
		if do != "" {
			fmt.Fprintln(w, "    do: "+do)
		}
	}
	for _, s := range c.Servers {
		fmt.Fprintln(w, s.Where)
		if s.NotAsked != "" {
			fmt.Fprintf(w, "  NOT ASKED  %s\n", s.NotAsked)
			more(s.Why, s.Do)
			continue
		}
		if len(s.Findings) == 0 {
			fmt.Fprintln(w, "  ok")
		}
		for _, f := range s.Findings {
			fmt.Fprintf(w, "  %s %s\n", f.Sign, f.Headline())
			more(f.Why, f.Do)
		}
		for _, u := range s.Unchecked {
			fmt.Fprintln(w, "  not checked: "+u)
		}
	}
	stops, hurts, silent := c.counts()
	unasked := fmt.Sprintf("%d servers could not be asked", silent)
	if silent == 1 {
		unasked = "1 server could not be asked"
	}
	found := fmt.Sprintf("%d to mend (x), %d worth mending (!)", stops, hurts)
	var text string
	switch {
	case silent == 0 && stops+hurts == 0:
		text = "nothing found"
	case silent == 0:
		text = found
	case stops+hurts > 0:
		text = found + ". " + unasked
	case silent == len(c.Servers):
		text = "no server could be asked"
	default:
		text = unasked + "; nothing found on the others"
	}
	_, err := fmt.Fprintln(w, "Doctor: "+text+". Nothing was changed.")
	return err
}
