// Package reader reads a tenant's rows where they are: in the shard that owns the tenant's slot, in the month tables that a span of
// time names. A service needs nothing else to read what the sinks of its line have written.
//
// It promises that every question goes to the shards of one tenant alone, by the layout in force, which it takes up while it runs;
// and that a page continues where the last one ended, across months and shards, whatever was written meanwhile. It writes nothing.
// Questions across tenants are the OLAP store's.
package reader

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/inforce"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/partitioner"
)

const (
	codeUse     = "SL5201" // no such table, no tenant, a value that no row has
	codeLayout  = "SL5202" // no layout in force, or a shard that the file does not name
	codeRead    = "SL5203" // the shard's answer
	codeNotYet  = "SL5204" // Wait ended before the version was there
	codeOptions = "SL5205" // an option names a shard that the file does not have
)

// ErrNotApplied is wrapped by the error of a Wait that ended before the row had the version.
var ErrNotApplied = errors.New("not applied yet")

// Reader reads the shards of one line. It is safe for concurrent use. Close it.
type Reader struct {
	cfg   *config.Config
	conns int
	now   func() time.Time

	mu      sync.Mutex
	shards  map[string]*shard
	layout  *partitioner.Layout // in force when it was last looked at; nil before
	looked  time.Time
	answers string // the shard from which a broadcast table was read last
	closed  bool
}

// shard is one shard's database and what is known of it.
type shard struct {
	name   string
	db     *sql.DB // nil until it is used
	given  bool    // by WithDatabase: it is not closed
	dsn    config.DSN
	used   bool     // it was found to be the shard's
	tables []string // the physical ones that are there
	listed time.Time
}

// Option changes a Reader.
type Option func(*Reader) error

// WithDatabase has one shard read from a pool of the caller's: a replica of the shard, or a pool with settings of its own. Its
// connections select the shard's database. A replica may lag; Wait then waits for the replica. The Reader does not close it.
func WithDatabase(shardName string, db *sql.DB) Option {
	return func(r *Reader) error {
		s := r.shards[shardName]
		if s == nil {
			return &fault.Error{Code: codeOptions, Class: fault.Usage, What: fmt.Sprintf("%s has no shard %q", r.cfg.File, shardName),
				Do: "name one of: " + strings.Join(r.shardNames(), ", ")}
		}
		if db == nil {
			return &fault.Error{Code: codeOptions, Class: fault.Usage, What: "shard " + shardName + " was given no pool: it is nil", Do: "give it one, or leave the option out"}
		}
		s.db, s.given = db, true
		return nil
	}
}

// WithConnections bounds the connections to each shard that is read by the file's DSN; 8 unless set.
func WithConnections(n int) Option {
	return func(r *Reader) error {
		r.conns = n
		return nil
	}
}

// New makes a Reader of the file's line. It does no I/O, and resolves the secrets of a shard when that is first read.
func New(cfg *config.Config, opts ...Option) (*Reader, error) {
	r := &Reader{cfg: cfg, now: time.Now, shards: map[string]*shard{}}
	for _, s := range cfg.Shards {
		r.shards[s.Name] = &shard{name: s.Name, dsn: s.DSN}
	}
	for _, o := range opts {
		if err := o(r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Close closes the pools that the Reader has opened.
func (r *Reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	var errs []error
	for _, s := range r.shards {
		if s.db != nil && !s.given {
			errs = append(errs, s.db.Close())
		}
	}
	return errors.Join(errs...)
}

func (r *Reader) shardNames() (names []string) {
	for _, s := range r.cfg.Shards {
		names = append(names, s.Name)
	}
	return names
}

// Place is a physical table that may hold rows of a tenant.
type Place struct {
	Shard string
	DB    *sql.DB           // of the shard; not to be closed
	Table string            // physical name: flights_201302, or flights of a table without months
	Month partitioner.Month // NoMonth of a table without months
}

// Places are the physical tables that may hold the tenant's rows of a logical table whose month column says a time within
// [from, to), in order of their months; a zero time is no bound. It is for SQL of your own: say tenant and _deleted = 0 in it. A
// tenant that is spread has places in several shards. A broadcast table has no tenant, "", and a place in every shard.
//
// All tables of one tenant are in the same shards, so that they can be joined there.
func (r *Reader) Places(ctx context.Context, table, tenant string, from, to time.Time) ([]Place, error) {
	t, err := r.table(table, tenant)
	if err != nil {
		return nil, err
	}
	return r.places(ctx, t, tenant, "", from, to)
}

// table finds the logical table, and refuses a question without tenant.
func (r *Reader) table(name, tenant string) (*event.Table, error) {
	use := func(what, why, do string) error {
		return &fault.Error{Code: codeUse, Class: fault.Usage, What: what, Why: why, Do: do}
	}
	t := r.cfg.Table(name)
	switch {
	case t == nil:
		var names []string
		for _, t := range r.cfg.Tables {
			names = append(names, t.Name)
		}
		return nil, use(fmt.Sprintf("%s has no table %q", r.cfg.File, name), "", "name one of: "+strings.Join(names, ", "))
	case t.Broadcast() && tenant != "":
		return nil, use(fmt.Sprintf("table %s has no tenant, and is asked for tenant %.70q", name, tenant), "its rows are in every shard", "leave the tenant out")
	case !t.Broadcast() && tenant == "":
		return nil, use(fmt.Sprintf("table %s is asked without a tenant", name), "a question to a shard names its tenant; all shards are asked by nobody",
			"name the tenant, or ask the OLAP store")
	case !t.Broadcast():
		if problem := wrongKey(t, t.Tenant, tenant); problem != "" {
			return nil, use(fmt.Sprintf("table %s: no tenant is %.70q: %s", name, tenant, problem), "", "write it as its column holds it; an integer in decimal")
		}
	}
	return t, nil
}

// wrongKey says why no row has the text in a key column: it is not the one by which a route is chosen.
func wrongKey(t *event.Table, col int, text string) string {
	c := &t.Columns[col]
	argument := c.KeyArgument(text)
	if _, isText := argument.(string); !isText && fmt.Sprint(argument) == text || isText && c.Type.Kind == event.String {
		return ""
	}
	return fmt.Sprintf("column %s is %s", c.Name, c.Type)
}

// layoutAge is how long a layout is gone by before the shard that is read is asked whether another is in force: what may change is
// where a tenant without rows will have its rows.
const layoutAge = 5 * time.Second

// tablesAge is how long the list of a shard's tables is gone by.
const tablesAge = time.Second

// lookMost is how long one shard is waited for where any other serves as well.
const lookMost = 3 * time.Second

// route says which shards have the tenant's rows; spread narrows it to that of one value.
func (r *Reader) route(ctx context.Context, t *event.Table, tenant, spread string) (names []string, err error) {
	l, err := r.layoutInForce(ctx)
	if err != nil {
		return nil, err
	}
	names = shardsOf(l, t, tenant, spread)
	r.mu.Lock()
	stale := !t.Broadcast() && r.now().Sub(r.looked) >= layoutAge // every shard has what is broadcast, by any layout
	if stale {
		r.looked = r.now() // others go by what is known meanwhile
	}
	r.mu.Unlock()
	if !stale {
		return names, nil
	}
	// The shard that is read is asked, and no other: one that is down is nobody else's business.
	newer, err := r.readLayout(ctx, names[0])
	if err != nil {
		return nil, err
	}
	if l, err = r.take(newer); err != nil {
		return nil, err
	}
	return shardsOf(l, t, tenant, spread), nil
}

// readLayout is the layout in force as a shard has it.
func (r *Reader) readLayout(ctx context.Context, name string) (*partitioner.Layout, error) {
	db, err := r.database(name)
	if err != nil {
		return nil, err
	}
	l, err := inforce.Read(ctx, db, r.cfg.Line, name, "shard "+name)
	if err == nil && l == nil {
		err = &fault.Error{Code: codeLayout, Class: fault.Usage, What: "shard " + name + ": line " + r.cfg.Line + " was never applied in this database",
			Do: "slotline apply; or, if the pool was given by WithDatabase, have it select the shard's database"}
	}
	return l, mysqldb.Wrap(err, codeLayout, "shard "+name+", the layout in force")
}

// shardsOf are the shards by a layout, in order of their names.
func shardsOf(l *partitioner.Layout, t *event.Table, tenant, spread string) (names []string) {
	routes := l.Routes(tenant)
	switch {
	case t.Broadcast():
		return l.Shards()
	case spread != "":
		routes = []partitioner.Route{l.Route(tenant, spread)}
	}
	for _, route := range routes {
		if name := l.ShardName(route.Shard); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names) // one order for all: who holds a connection to one waits for the next alone
	return names
}

// layoutInForce is the layout by which rows are placed: the one that is known, or as the first shard that answers has it.
func (r *Reader) layoutInForce(ctx context.Context) (*partitioner.Layout, error) {
	r.mu.Lock()
	layout := r.layout
	r.mu.Unlock()
	if layout != nil {
		return layout, nil
	}
	// All at once, and for longer than one question may wait: what a shard says late serves the next.
	type answer struct {
		layout *partitioner.Layout
		err    error
	}
	answers := make(chan answer, len(r.cfg.Shards))
	for _, name := range r.shardNames() {
		go func() { // ends with its answer or its time
			ask, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookMost)
			defer cancel()
			l, err := r.readLayout(ask, name)
			if err == nil {
				l, err = r.take(l)
			}
			answers <- answer{l, err}
		}()
	}
	var errs []error
	for range r.cfg.Shards {
		select {
		case a := <-answers:
			if a.err == nil {
				return a.layout, nil
			}
			errs = append(errs, a.err)
		case <-ctx.Done():
			return nil, &fault.Error{Code: codeLayout, Class: fault.Transient, Err: ctx.Err(),
				What: "no shard has said in time which layout is in force: " + strings.Join(r.shardNames(), ", ")}
		}
	}
	return nil, errors.Join(errs...)
}

// take goes by a layout that was read, unless a newer one is known: of two shards one may have been applied first.
func (r *Reader) take(l *partitioner.Layout) (*partitioner.Layout, error) {
	for _, name := range l.Shards() {
		if r.shards[name] == nil {
			return nil, &fault.Error{Code: codeLayout, Class: fault.Usage,
				What: fmt.Sprintf("the layout in force, epoch %d, has shard %s, which %s does not name", l.Epoch(), name, r.cfg.File), Do: "give the service the file that was applied"}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.looked = r.now()
	if r.layout == nil || l.Epoch() >= r.layout.Epoch() {
		r.layout = l
	}
	return r.layout, nil
}

// database is the pool of a shard.
func (r *Reader) database(name string) (*sql.DB, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.shards[name]
	if r.closed {
		return nil, &fault.Error{Code: codeUse, Class: fault.Usage, What: "the reader is closed"}
	}
	if s.db == nil {
		db, err := mysqldb.Open(s.dsn, mysqldb.Options{MaxConns: r.conns})
		if err != nil {
			return nil, err
		}
		s.db = db
	}
	return s.db, nil
}

// places are those of a table's rows, in order of months and, within one, of shards.
func (r *Reader) places(ctx context.Context, t *event.Table, tenant, spread string, from, to time.Time) (list []Place, err error) {
	names, err := r.route(ctx, t, tenant, spread)
	if err != nil {
		return nil, err
	}
	return r.placesIn(ctx, t, names, from, to)
}

func (r *Reader) placesIn(ctx context.Context, t *event.Table, names []string, from, to time.Time) (list []Place, err error) {
	for _, name := range names {
		db, err := r.database(name)
		if err != nil {
			return nil, err
		}
		tables, err := r.tables(ctx, name, db)
		if err != nil {
			return nil, mysqldb.Wrap(err, codeRead, "shard "+name+", its tables")
		}
		for _, table := range tables {
			if m, ok := t.MonthOfName(table); ok && within(m, from, to) {
				list = append(list, Place{name, db, table, m})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b Place) int { return int(a.Month) - int(b.Month) })
	return list, nil
}

// within says that some time of the month lies in [from, to).
func within(m partitioner.Month, from, to time.Time) bool {
	return m == partitioner.NoMonth || (from.IsZero() || m.End().After(from)) && (to.IsZero() || m.Start().Before(to))
}

// tables are the tables of a shard's database, as it was at most tablesAge ago.
func (r *Reader) tables(ctx context.Context, name string, db *sql.DB) ([]string, error) {
	r.mu.Lock()
	s := r.shards[name]
	tables, used, fresh := s.tables, s.used, !s.listed.IsZero() && r.now().Sub(s.listed) < tablesAge
	r.mu.Unlock()
	if fresh {
		return tables, nil
	}
	if !used { // another database than the shard's would seem to have no rows
		if _, err := r.readLayout(ctx, name); err != nil {
			return nil, err
		}
	}
	began := r.now()
	rows, err := db.QueryContext(ctx, "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() ORDER BY TABLE_NAME")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	tables = nil
	for rows.Next() {
		var table string
		if err := rows.Scan(&table); err != nil {
			return nil, err
		}
		tables = append(tables, table)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if began.After(s.listed) { // else somebody has a newer list
		s.tables, s.listed = tables, began
	}
	s.used = true
	return tables, nil
}

// forget has the next question ask for the shard's tables: one of them is not there any more.
func (r *Reader) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shards[name].listed = time.Time{}
}
