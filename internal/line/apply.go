package line

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/inforce"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/internal/plan"
	"github.com/slotline/slotline/outbox"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/mysql"
	"github.com/slotline/slotline/sinks/olap/intent"
)

// Plan is what apply would do, in the order in which it does it.
type Plan struct {
	Line        string       `json:"line"`
	LayoutEpoch int64        `json:"layout_epoch"`
	Slots       int          `json:"slots"`
	Partitions  int          `json:"partitions"`
	Lanes       int          `json:"lanes"`
	Shards      int          `json:"shards"`
	Sinks       []string     `json:"sinks"`
	Changes     []PlanChange `json:"changes"`
	Done        bool         `json:"done"` // the changes were made

	inForce int64 // the layout epoch that it was made for; 0 for a line that was never applied
}

// PlanChange is one line of a plan.
type PlanChange struct {
	Where string `json:"where"`
	Sign  string `json:"sign"` // + create, ~ alter, ! note, x needs a decision
	What  string `json:"what"`
	Note  string `json:"note,omitempty"`

	change plan.Change
}

// counts returns how many changes create, alter, and need a decision.
func (p *Plan) counts() (create, alter, decide int) {
	for _, c := range p.Changes {
		switch c.change.Sign {
		case plan.Create:
			create++
		case plan.Alter:
			alter++
		case plan.Decide:
			decide++
		}
	}
	return
}

// altersTables says whether there is something that sinks take from the file at their start. Topics and layouts are not.
func (p *Plan) altersTables() bool {
	return slices.ContainsFunc(p.Changes, func(c PlanChange) bool {
		return c.change.Sign == plan.Alter && !strings.HasPrefix(c.What, "topic ") && !strings.HasPrefix(c.What, "slotline_layout")
	})
}

// Differs says whether there is anything to do or to decide.
func (p *Plan) Differs() bool {
	create, alter, decide := p.counts()
	return create+alter+decide > 0
}

// WriteText prints the plan for a person.
func (p *Plan) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "%s: layout epoch %d, %d slots, %d partitions, %d lanes, %d shards, sinks %s\n", p.Line, p.LayoutEpoch,
		p.Slots, p.Partitions, p.Lanes, p.Shards, strings.Join(p.Sinks, " "))
	where, width := "", 0
	for _, c := range p.Changes {
		if c.Note != "" {
			width = max(width, len(c.What))
		}
	}
	for _, c := range p.Changes {
		if c.Where != where {
			where = c.Where
			fmt.Fprintln(w, where)
		}
		fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("  %s %-*s  %s", c.Sign, min(width, 48), c.What, c.Note), " "))
	}
	create, alter, decide := p.counts()
	switch {
	case p.Done:
		fmt.Fprintf(w, "Done: %d created, %d altered, %d need a decision.\n", create, alter, decide)
		if p.altersTables() {
			fmt.Fprintln(w, "Next: restart the sinks with this file, then let services emit what is new.")
		}
	case create+alter+decide == 0:
		fmt.Fprintln(w, "Plan: nothing to do. Nothing was changed.")
	default:
		fmt.Fprintf(w, "Plan: %d to create, %d to alter, %d need a decision. Nothing was changed.\n", create, alter, decide)
	}
	return nil
}

func (p *Plan) add(changes ...plan.Change) {
	for _, c := range changes {
		p.Changes = append(p.Changes, PlanChange{c.Where, string(c.Sign), c.What, c.Note, c})
	}
}

// Apply makes the changes in order. It stops at the first that fails; applying again goes on from there. With a
// decision pending it makes all changes that need none and then says so.
func (l *Line) Apply(ctx context.Context, p *Plan) error {
	end, err := l.applyAlone(ctx, p)
	if err != nil {
		return err
	}
	defer end()
	for _, c := range p.Changes {
		if err := c.change.Apply(ctx); err != nil {
			return fmt.Errorf("%s, %s: %w", c.Where, c.What, err)
		}
	}
	p.Done = true
	if _, _, decide := p.counts(); decide > 0 {
		return &fault.Error{Code: "SL9003", Class: fault.Unknown,
			What: fmt.Sprintf("%s: %d things need a decision; all else was applied", l.Config.File, decide),
			Do:   "see the lines that begin with x, mend them, and run slotline apply again"}
	}
	return nil
}

// Plan asks every server what it lacks. It changes nothing.
func (l *Line) Plan(ctx context.Context) (*Plan, error) {
	applied, err := l.appliedLayout(ctx)
	if err != nil {
		return nil, err
	}
	if applied != nil && l.Config.Layout.Epoch <= applied.Epoch() {
		if _, err := agree(l.Config.File, l.Config.Layout, l.Config.Kafka.Partitions, applied); err != nil {
			return nil, err
		}
	}
	p := &Plan{Line: l.Config.Line, LayoutEpoch: l.Config.Layout.Epoch, Slots: l.Config.Layout.Slots, Partitions: l.Config.Kafka.Partitions,
		Lanes: l.Config.Outbox.Lanes, Shards: len(l.Config.Shards), Sinks: []string{"mysql"}, Changes: []PlanChange{}}
	cl, err := l.kafkaClient(ctx, "apply")
	if err != nil {
		return nil, err
	}
	l.onClose(cl.Close)
	partitions := 0
	if applied != nil {
		p.inForce, partitions = applied.Epoch(), applied.Partitions()
	}
	changes, widen, err := kafka.Plan(ctx, cl, l.Config, partitions)
	if err != nil {
		return nil, err
	}
	p.add(changes...)

	db, err := l.outboxDB()
	if err != nil {
		return nil, err
	}
	if changes, err = outbox.Plan(ctx, db, l.Config); err != nil {
		return nil, err
	}
	p.add(changes...)

	if err := l.checkDatabases(ctx, db); err != nil {
		return nil, err
	}
	c, err := l.settleChange(ctx, applied)
	if err != nil {
		return nil, err
	}
	layout := c.target
	sink, err := mysql.New(mysql.Options{Config: l.Config, Layout: layout, Logger: l.Log})
	if err != nil {
		return nil, err
	}
	l.onClose(func() { _ = sink.Close() })
	if changes, err = sink.Plan(ctx); err != nil {
		return nil, err
	}
	p.add(changes...)

	for _, name := range l.olapSinks() {
		p.Sinks = append(p.Sinks, name)
		state, err := l.stateDB()
		if err != nil {
			return nil, err
		}
		olap, err := l.openOLAP(name, l.Config, layout, state, "")
		if err != nil {
			return nil, err
		}
		l.onClose(func() { _ = olap.Close() })
		if changes, err = olap.Plan(ctx); err != nil {
			return nil, err
		}
		p.add(changes...)
	}

	p.add(widen...)
	return p, l.planChange(ctx, p, c, sink)
}

// shardWhere names a shard in errors.
func shardWhere(shard config.Shard) string {
	return fmt.Sprintf("shard %s %s", shard.Name, shard.DSN.Place())
}

// databases are the databases of a line by what their servers call them: the file shows addresses alone.
type databases struct {
	mu   sync.Mutex
	list []knownDatabase
}

type knownDatabase struct{ where, identity string }

// identify asks a server what it and the database are called.
func (d *databases) identify(ctx context.Context, db *sql.DB, where string) error {
	var server, database string
	err := db.QueryRowContext(ctx, "SELECT @@server_uuid, DATABASE()").Scan(&server, &database)
	if mysqldb.Number(err) == 1193 { // MariaDB has another, since 10.6.19 and 10.11.9; two hosts may have one name
		err = db.QueryRowContext(ctx, "SELECT @@server_uid, DATABASE()").Scan(&server, &database)
	}
	if mysqldb.Number(err) == 1193 {
		err = db.QueryRowContext(ctx, "SELECT CONCAT(@@hostname, ' ', @@port, ' ', @@datadir), DATABASE()").Scan(&server, &database)
	}
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, knownDatabase{where, server + "/" + database})
	return nil
}

// twice is the error of a database that is another one of the line too, by another address; nil if it is not.
func (d *databases) twice(where string) *fault.Error {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.list, func(k knownDatabase) bool { return k.where == where })
	if i < 0 {
		return nil
	}
	for j, k := range d.list {
		if j != i && k.identity == d.list[i].identity {
			return &fault.Error{Code: "SL1814", Class: fault.Usage,
				What: fmt.Sprintf("%s and %s are one database on one server, under two addresses", k.where, where),
				Why:  "they would move each other's progress, and events would be lost",
				Do:   "give each shard, and the outbox, a database of its own"}
		}
	}
	return nil
}

// checkDatabases refuses shards that are one database by two addresses, or the outbox's, and tables that another line
// has there.
func (l *Line) checkDatabases(ctx context.Context, outboxDB *sql.DB) error {
	seen := &databases{}
	identify := func(db *sql.DB, where string) error {
		if err := seen.identify(ctx, db, where); err != nil {
			return mysqldb.Wrap(err, "SL1807", where)
		}
		if e := seen.twice(where); e != nil {
			return e
		}
		return nil
	}
	if err := identify(outboxDB, "outbox "+l.Config.Outbox.DSN.Place()); err != nil {
		return err
	}
	for i, shard := range l.Config.Shards {
		db, err := l.shardDB(i)
		if err != nil {
			return err
		}
		where := shardWhere(shard)
		if err := identify(db, where); err != nil {
			return err
		}
		if err := sharedTables(ctx, db, l.Config.Line, where, l.tableNames()); err != nil {
			return mysqldb.Wrap(err, "SL1807", where)
		}
	}
	return nil
}

// planLayout adds the storing of the layout, where it is not stored yet.
func (l *Line) planLayout(ctx context.Context, p *Plan, db *sql.DB, shard, where string, c *change) error {
	layout := c.target
	stored, err := inforce.Read(ctx, db, l.Config.Line, shard, where)
	if err != nil {
		return mysqldb.Wrap(err, "SL1807", where)
	}
	if stored != nil && stored.Digest() == layout.Digest() {
		return nil
	}
	// A shard that is new may hold what an apply that was taken back has left; never an older layout of this line.
	left := stored != nil && c.isNewer() && stored.Epoch() > c.applied.Epoch()
	if stored != nil && !left && (c.isNewer() || stored.Epoch() >= layout.Epoch()) {
		return &fault.Error{Code: "SL1808", Class: fault.Usage,
			What: fmt.Sprintf("%s holds another layout, of epoch %d; this one has epoch %d", where, stored.Epoch(), layout.Epoch()),
			Why:  "the database belongs to an earlier life of this line",
			Do:   "give the line databases of its own; nothing was changed"}
	}
	p.add(plan.Change{Where: where, Sign: plan.Create, What: "slotline_layout", Note: fmt.Sprintf("epoch %d", layout.Epoch()),
		Do: func(ctx context.Context) error {
			return writeLayout(ctx, db, l.Config.Line, shard, l.tableNames(), layout)
		}})
	return nil
}

// WriteGrants prints what each account needs, for a DBA to run. It asks no server, so that no password need be there: only
// what names users, hosts and databases.
func (l *Line) WriteGrants(w io.Writer) error {
	cfg := withoutPasswords(l.Config)
	spec, err := cfg.Layout.WithPartitions(cfg.Kafka.Partitions)
	if err != nil {
		return err
	}
	layout, err := partitioner.New(spec)
	if err != nil {
		return err
	}
	sink, err := mysql.New(mysql.Options{Config: cfg, Layout: layout, Logger: l.Log})
	if err != nil {
		return err
	}
	defer sink.Close()
	if _, err := cfg.Outbox.DSN.Resolve(); err != nil { // a shard's was resolved just now
		return err
	}
	grants := append([]string{"-- a user that is not there yet: CREATE USER 'name'@'%' IDENTIFIED BY '…'; first, and a database: CREATE DATABASE name;"}, outbox.Grants(cfg)...)
	grants = append(grants, sink.Grants()...)
	for _, name := range l.olapSinks() {
		olap, err := l.openOLAP(name, cfg, layout, nil, "")
		if err != nil {
			return err
		}
		defer olap.Close()
		grants = append(grants, olap.Grants()...)
	}
	if l.hasState() {
		grants = append(grants, intent.Grants(cfg)...)
	}
	grants = append(grants, kafka.Grants(cfg)...)
	for _, statement := range grants {
		fmt.Fprintln(w, statement)
	}
	return nil
}

// withoutPasswords is the file for who opens no session.
func withoutPasswords(file *config.Config) *config.Config {
	cfg := *file
	cfg.Outbox.DSN = cfg.Outbox.DSN.WithoutPassword()
	cfg.Shards = slices.Clone(cfg.Shards)
	for i := range cfg.Shards {
		cfg.Shards[i].DSN = cfg.Shards[i].DSN.WithoutPassword()
	}
	cfg.Sinks.State = cfg.Sinks.State.WithoutPassword()
	if ch := cfg.Sinks.ClickHouse; ch != nil {
		none := *ch
		none.DSN, cfg.Sinks.ClickHouse = ch.DSN.WithoutPassword(), &none
	}
	if doris := cfg.Sinks.Doris; doris != nil {
		none := *doris
		none.DSN, cfg.Sinks.Doris = doris.DSN.WithoutPassword(), &none
	}
	return &cfg
}
