package replay

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/internal/rowsum"
	"github.com/slotline/slotline/lease"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/mysql"
	"github.com/slotline/slotline/sinks/olap"
)

const (
	// tenantsPage are summed up by one statement; rowsPage rows are looked at by one, where sums differ.
	tenantsPage = 500
	rowsPage    = 5000
	// Months of the store that hold few rows are summed up by one statement: each costs it much, however little it reads.
	togetherRows = 1_000_000
	togetherSums = 20_000
	// settleRows that differ are looked at again together.
	settleRows = 500
	// stillFor is how long a sink that is behind may apply nothing before it counts as stopped.
	stillFor = 10 * time.Second
	// namedMax differences are kept, and looked up in the log; the others are counted.
	namedMax = 1000
)

// Store is an OLAP store with what its sink has applied, as a comparison sees it; *clickhouse.Sink and *doris.Sink are.
type Store interface {
	Name() string
	Check(ctx context.Context) error
	TableSizes(ctx context.Context) ([]olap.TableSize, error)
	ByRow(t *event.Table) bool // the store cannot sum the table up: its rows are compared one by one
	TenantSums(ctx context.Context, t *event.Table, months []partitioner.Month, after, upTo *string, tenants int) ([]rowsum.Item, error)
	RowSums(ctx context.Context, t *event.Table, m partitioner.Month, tenant string, after, upTo *string, ids []string, most int) ([]rowsum.Item, error)
}

// AgainstOptions of a comparison. Config, Layout, Store and State are needed.
type AgainstOptions struct {
	Config    *config.Config
	Layout    *partitioner.Layout // the one in force
	Store     Store
	State     *sql.DB  // where the store's progress is
	Shards    []string // none: all
	Tables    []string // logical; none: all
	PerSecond int      // rows a second at most; 0: as fast as it goes
	// AllowEmpty has nothing to compare be no error.
	AllowEmpty bool
	Logger     *slog.Logger
	Say        func(Line)
}

// Agreement is what comparing shards with an OLAP store has found. Rows are entities: one that both sides have is one.
type Agreement struct {
	Store   string         `json:"store"`
	Shards  []string       `json:"shards"`
	Tables  int            `json:"tables"`  // of the shards, physical
	Rows    int64          `json:"rows"`    // compared; deleted ones count
	Equal   int64          `json:"equal"`   // those that are dead letters of one side, which it lacks therefore, are in it
	Dead    int64          `json:"dead"`    // of them
	Differ  int64          `json:"differ"`  // in one alone, not the same in both, or in a place that is not theirs
	Moving  int64          `json:"moving"`  // changed so often, or have a sink so far behind, that it could not be decided
	Skipped []string       `json:"skipped"` // what was not compared, and why
	Named   []Disagreement `json:"named"`   // the first 1000 that differ
}

// Disagreement is an entity that shards and store do not have alike.
type Disagreement struct {
	Table    string     `json:"table"` // logical
	Month    string     `json:"month,omitempty"`
	Tenant   string     `json:"tenant,omitempty"`
	ID       string     `json:"id"`
	Shards   []ShardRow `json:"shards"`    // its rows in shards, of this month
	StoreVer int64      `json:"store_ver"` // _ver; 0: there is no such row
	LogVer   int64      `json:"log_ver"`   // of the newest event of this place; 0: there is none
	Wrong    []string   `json:"wrong"`     // the shards, or the store, that are not as the log makes them; none: it does not say
	Why      string     `json:"why,omitempty"`
	Places   []string   `json:"places,omitempty"` // all its places in shards, where there are two or more

	key    string
	mark   ends
	where  bucket
	spread string
	at     sides
	log    map[string]*witness // by sink
}

// ShardRow is a row of a shard.
type ShardRow struct {
	Shard string `json:"shard"`
	Table string `json:"table"` // physical
	Ver   int64  `json:"ver"`
}

// String names the entity, the versions of each side, and which is wrong.
func (d *Disagreement) String() string {
	var parts []string
	for _, r := range d.Shards {
		parts = append(parts, fmt.Sprintf("%s %s _ver %d", r.Shard, r.Table, r.Ver))
	}
	if len(parts) == 0 {
		parts = append(parts, "in no shard")
	}
	store := "no row"
	if d.StoreVer != 0 {
		store = fmt.Sprintf("_ver %d", d.StoreVer)
	}
	log := "no event"
	if d.LogVer != 0 {
		log = fmt.Sprintf("_ver %d", d.LogVer)
	}
	name := strings.Join(strings.Fields(d.Table+" "+d.Month), " ") + " " + strings.TrimSpace(d.Tenant+" "+d.ID)
	text := fmt.Sprintf("%s  %s, %s %s, log %s", name, strings.Join(parts, ", "), d.where.store, store, log)
	if d.Why != "" {
		text += ": " + d.Why
	}
	if len(d.Places) > 1 {
		text += "; it is in " + strings.Join(d.Places, " and ")
	}
	switch len(d.Wrong) {
	case 0:
		return text
	case 1:
		return text + "  (" + d.Wrong[0] + " is wrong)"
	}
	return text + "  (" + strings.Join(d.Wrong, " and ") + " are wrong)"
}

// bucket is rows that are summed up: those of a tenant in a month.
type bucket struct {
	store  string // its name
	table  *event.Table
	month  partitioner.Month
	tenant string
	shards []*shardSide // that have a table of the month
}

func (b *bucket) monthText() string {
	if b.month == partitioner.NoMonth {
		return ""
	}
	return b.month.String()
}

type shardSide struct {
	name     string
	tables   []mysql.PhysicalTable
	db       *sql.DB
	physical string // table of the month
	index    int32  // of the layout
}

// sides is what both have of one entity in a bucket.
type sides struct {
	rows  []rowsum.Item // by shard of the bucket; Rows is 0 where there is none
	own   int           // the shard that the entity belongs to; -1: it has no table of the month, or is not compared
	store rowsum.Item
}

// found counts the rows in shards; ver is that of the one that is where it belongs.
func (s *sides) found() (n int) {
	for _, r := range s.rows {
		n += int(r.Rows)
	}
	return n
}

func (s *sides) shard() rowsum.Item {
	if s.own < 0 {
		return rowsum.Item{}
	}
	return s.rows[s.own]
}

func (s *sides) agree() bool {
	shard := s.shard()
	return s.found() == int(shard.Rows) && shard.Rows == s.store.Rows && shard.Ver == s.store.Ver && shard.Sum == s.store.Sum
}

// verdict of a second look at an entity that differed at the first.
type sidesVerdict uint8

const (
	sidesAgree sidesVerdict = iota
	sidesDiffer
	sidesMove
)

// decide compares an entity as it is, after both sinks have passed all that the log held at the first look, with how it
// was then: what one side had, the other must have by now. It is pure.
func decide(first, now *sides) sidesVerdict {
	shard, store := now.shard(), now.store
	switch {
	case now.agree():
		return sidesAgree
	case now.found() != int(shard.Rows), shard.Ver == store.Ver: // a place that is not its own; one version, two images
		return sidesDiffer
	case min(shard.Ver, store.Ver) < max(first.shard().Ver, first.store.Ver):
		return sidesDiffer
	}
	return sidesMove
}

// against compares.
type against struct {
	o      AgainstOptions
	kafka  *kgo.Client
	mysql  *mysql.Sink
	shards []*shardSide
	below  partitioner.Month // months before it are retired
	sizes  []olap.TableSize
	pace   *pace
	out    *Agreement
	// patience is how long a sink is waited for that does not go on.
	patience time.Duration
}

// VerifyAgainst compares shards with an OLAP store: counts and checksums by tenant and month, which both compute, then, where
// those differ, the rows. The log decides which side is wrong. Live sinks go on: a row counts as differing only when both
// have passed what the log held as it was looked at.
func VerifyAgainst(ctx context.Context, o AgainstOptions) (*Agreement, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	a := &against{o: o, patience: stillFor, pace: &pace{perSecond: o.PerSecond}, out: &Agreement{Store: o.Store.Name(), Skipped: []string{}, Named: []Disagreement{}, Shards: []string{}}}
	if err := a.open(ctx); err != nil {
		return nil, err
	}
	defer a.close()
	if err := o.Store.Check(ctx); err != nil {
		return nil, err
	}
	if err := a.look(ctx); err != nil {
		return nil, err
	}
	for _, t := range o.Config.Tables {
		if len(o.Tables) == 0 || slices.Contains(o.Tables, t.Name) {
			if err := a.table(ctx, t); err != nil {
				return nil, err
			}
		}
	}
	if err := a.witness(ctx); err != nil {
		return nil, err
	}
	if a.out.Rows == 0 && !o.AllowEmpty {
		return a.out, &fault.Error{Code: codeNothing, Class: fault.Fatal,
			What: fmt.Sprintf("neither the shards nor %s have a row to compare: nothing was verified", a.out.Store), Do: "if that is right: --allow-empty"}
	}
	if a.out.Moving > 0 {
		return a.out, &fault.Error{Code: codeUndecided, Class: fault.Transient,
			What: fmt.Sprintf("%d rows differ, and no moment was found at which both sinks had passed what the log holds of them", a.out.Moving),
			Why:  "a sink is far behind, stopped or halted", Do: "slotline status; verify again when both have caught up"}
	}
	return a.out, nil
}

func (a *against) open(ctx context.Context) (err error) {
	c := a.o.Config
	for _, name := range a.o.Tables {
		if c.Table(name) == nil {
			return &fault.Error{Code: codeNoTable, Class: fault.Usage, What: fmt.Sprintf("%s has no table %q", c.File, name), Do: "name tables that stand under tables"}
		}
	}
	for _, name := range a.o.Shards {
		if !slices.ContainsFunc(c.Shards, func(s config.Shard) bool { return s.Name == name }) {
			return &fault.Error{Code: codeNoTable, Class: fault.Usage, What: fmt.Sprintf("%s has no shard %q", c.File, name), Do: "name one that stands under shards"}
		}
	}
	if a.mysql, err = mysql.New(mysql.Options{Config: c, Layout: a.o.Layout, Sink: liveSink, Owner: lease.NewOwner(), Logger: a.o.Logger}); err != nil {
		return err
	}
	for _, s := range c.Shards {
		index, known := a.o.Layout.ShardIndex(s.Name)
		if !known || len(a.o.Shards) > 0 && !slices.Contains(a.o.Shards, s.Name) {
			continue
		}
		db, err := mysqldb.Open(s.DSN, mysqldb.Options{MaxConns: 2, ReadTimeout: longReadTimeout})
		if err != nil {
			a.close()
			return err
		}
		a.shards = append(a.shards, &shardSide{name: s.Name, db: db, index: index})
		a.out.Shards = append(a.out.Shards, s.Name)
	}
	if a.kafka, err = kafka.Open(ctx, c, "verify", a.o.Logger); err != nil {
		a.close()
	}
	return err
}

func (a *against) close() {
	for _, s := range a.shards {
		s.db.Close()
	}
	if a.kafka != nil {
		a.kafka.Close()
	}
	a.mysql.Close()
}

func (a *against) say(format string, args ...any) {
	if a.o.Say != nil {
		a.o.Say(Line{Stage: "verify", Text: fmt.Sprintf(format, args...)})
	}
}

// wrap gives an error of a shard's database a code and a place.
func (s *shardSide) wrap(err error) error { return mysqldb.Wrap(err, codeDatabase, "shard "+s.name) }

// look reads which tables there are.
func (a *against) look(ctx context.Context) (err error) {
	for _, s := range a.shards {
		r, _, err := progress.ReadRetired(ctx, s.db, a.o.Config.Line)
		if err != nil {
			return s.wrap(err)
		}
		a.below = max(a.below, r.Below)
		if s.tables, err = a.mysql.PhysicalTables(ctx, s.db, s.name); err != nil {
			return err
		}
	}
	a.sizes, err = a.o.Store.TableSizes(ctx)
	return err
}

// table compares one logical table, month by month.
func (a *against) table(ctx context.Context, t *event.Table) error {
	months := map[partitioner.Month][]*shardSide{}
	for _, s := range a.shards {
		for _, p := range s.tables {
			if p.Table.Name != t.Name {
				continue
			}
			if len(p.Differs) > 0 {
				return &fault.Error{Code: codeAltered, Class: fault.Fatal, What: fmt.Sprintf("shard %s, table %s: %s", s.name, p.Name, strings.Join(p.Differs, "; ")),
					Why: "rows of a table that was altered cannot be compared", Do: "slotline apply --dry-run; or slotline replay rebuild --shard " + s.name + " --tables " + t.Name}
			}
			side := *s
			side.physical = p.Name
			months[p.Month] = append(months[p.Month], &side)
			a.out.Tables++
		}
	}
	stored := map[partitioner.Month]int64{}
	for _, size := range a.sizes {
		if size.Table == t.Name {
			stored[size.Month] = size.Rows
			months[size.Month] = slices.Clip(months[size.Month])
		}
	}
	retired := 0
	order := slices.Sorted(maps.Keys(months))
	sums := map[partitioner.Month][]rowsum.Item{}
	for i, m := range order {
		if m != partitioner.NoMonth && m < a.below {
			retired++
			continue
		}
		told := func() error { return a.together(ctx, t, order[i:], stored, sums) }
		b := &bucket{store: a.out.Store, table: t, month: m, shards: months[m]}
		if a.o.Say != nil {
			a.o.Say(Line{Stage: "verify", Text: fmt.Sprintf("%s %s, %d rows", t.Name, b.monthText(), a.out.Rows), Passing: true})
		}
		if !t.Broadcast() {
			if err := a.month(ctx, b, told, sums); err != nil {
				return err
			}
			delete(sums, m)
			continue
		}
		for _, s := range b.shards { // each has all rows
			one := *b
			one.shards = []*shardSide{s}
			if err := a.month(ctx, &one, told, sums); err != nil {
				return err
			}
		}
	}
	if retired > 0 {
		a.out.Skipped = append(a.out.Skipped, fmt.Sprintf("%s: %d months before %s, which are retired in the shards", t.Name, retired, a.below))
	}
	return nil
}

// together asks the store for the sums of the next months that hold few rows, unless it has told them. Many tenants are
// asked for page by page instead.
func (a *against) together(ctx context.Context, t *event.Table, next []partitioner.Month, stored map[partitioner.Month]int64, sums map[partitioner.Month][]rowsum.Item) error {
	if _, have := sums[next[0]]; have || t.Broadcast() {
		return nil
	}
	n, rows := 0, int64(0)
	for n < len(next) && rows+stored[next[n]] <= togetherRows {
		rows += stored[next[n]]
		n++
	}
	if n == 0 {
		return nil
	}
	list, err := a.o.Store.TenantSums(ctx, t, next[:n], nil, nil, togetherSums)
	if err != nil || len(list) == togetherSums {
		return err
	}
	for _, m := range next[:n] {
		sums[m] = []rowsum.Item{}
	}
	for _, i := range list {
		sums[i.Month] = append(sums[i.Month], i)
	}
	return nil
}

// month compares the sums of all tenants, and the rows of those whose sums differ. What the store tells of several months
// (told, into sums) it works out while the shards do theirs.
func (a *against) month(ctx context.Context, b *bucket, told func() error, sums map[partitioner.Month][]rowsum.Item) error {
	var cursors []*cursor
	for _, s := range b.shards {
		cursors = append(cursors, &cursor{fetch: func(ctx context.Context, after, _ *string) ([]rowsum.Item, error) {
			list, err := mysql.TenantSums(ctx, s.db, b.table, s.physical, after, tenantsPage)
			return list, s.wrap(err)
		}})
	}
	if err := atOnce(told, func() error { return readAll(ctx, tenantsPage, cursors, false, nil) }); err != nil {
		return err
	}
	store := &cursor{bounded: true, fetch: func(ctx context.Context, after, upTo *string) ([]rowsum.Item, error) {
		return a.o.Store.TenantSums(ctx, b.table, []partitioner.Month{b.month}, after, upTo, tenantsPage)
	}}
	if items, have := sums[b.month]; have {
		store.items, store.end = items, true
	}
	cursors = append(cursors, store)
	order := strings.Compare
	if !b.table.Broadcast() {
		order = keyOrder(b.table.Columns[b.table.Tenant].Type.Kind)
	}
	byRow := a.o.Store.ByRow(b.table)
	return walk(ctx, order, tenantsPage, cursors, func(tenant string, at []rowsum.Item) error {
		shards, store := total(at[:len(at)-1]), at[len(at)-1]
		if err := a.pace.wait(ctx, int(max(shards.Rows, store.Rows))); err != nil {
			return err
		}
		here, foreign, spread := a.places(b, tenant, at)
		if !here && shards.Rows == 0 {
			return nil // of shards that are not compared
		}
		one := *b
		one.tenant = tenant
		if here && !foreign && !byRow && shards.Rows == store.Rows && shards.Sum == store.Sum {
			if spread { // the sums say nothing about which shard has a row
				var err error
				if foreign, err = a.misplaced(ctx, &one); err != nil {
					return err
				}
			}
			if !foreign {
				a.out.Rows, a.out.Equal = a.out.Rows+shards.Rows, a.out.Equal+shards.Rows
				return nil
			}
		}
		return a.rows(ctx, &one)
	})
}

// places says whether rows of the tenant belong to a shard that is compared, whether there are rows in one that they do not
// belong to, and whether they may be in several.
func (a *against) places(b *bucket, tenant string, at []rowsum.Item) (here, foreign, spread bool) {
	if b.table.Broadcast() {
		return true, false, false
	}
	own := map[int32]bool{}
	if b.table.Spread == event.None {
		own[a.o.Layout.Route(tenant, "").Shard] = true
	} else {
		for _, r := range a.o.Layout.Routes(tenant) {
			own[r.Shard] = true
		}
	}
	for i, s := range b.shards {
		foreign = foreign || !own[s.index] && at[i].Rows > 0
	}
	for _, s := range a.shards {
		here = here || own[s.index]
	}
	return here, foreign, len(own) > 1
}

// misplaced says whether a row of a spread tenant is in a shard that is not its own.
func (a *against) misplaced(ctx context.Context, b *bucket) (bool, error) {
	for _, s := range b.shards {
		var after *string
		for {
			list, err := mysql.Spreads(ctx, s.db, b.table, s.physical, b.tenant, after, rowsPage)
			if err != nil {
				return false, s.wrap(err)
			}
			for _, i := range list {
				if a.o.Layout.Route(b.tenant, i.Spread).Shard != s.index {
					return true, nil
				}
			}
			if len(list) < rowsPage {
				break
			}
			after = &list[len(list)-1].Key
		}
	}
	return false, nil
}

// rows compares the rows of one tenant.
func (a *against) rows(ctx context.Context, b *bucket) error {
	var cursors []*cursor
	for _, s := range b.shards {
		cursors = append(cursors, &cursor{fetch: func(ctx context.Context, after, _ *string) ([]rowsum.Item, error) {
			list, err := mysql.RowSums(ctx, s.db, b.table, s.physical, b.tenant, after, nil, rowsPage)
			return list, s.wrap(err)
		}})
	}
	cursors = append(cursors, &cursor{bounded: true, fetch: func(ctx context.Context, after, upTo *string) ([]rowsum.Item, error) {
		return a.o.Store.RowSums(ctx, b.table, b.month, b.tenant, after, upTo, nil, rowsPage)
	}})
	open := map[string]*sides{}
	err := walk(ctx, keyOrder(b.table.Columns[b.table.ID].Type.Kind), rowsPage, cursors, func(id string, at []rowsum.Item) error {
		s, here := a.sidesOf(b, at)
		if !here {
			return nil
		}
		a.out.Rows++
		if s.agree() {
			a.out.Equal++
			return nil
		}
		open[id] = s
		if len(open) < settleRows {
			return nil
		}
		err := a.settle(ctx, b, open)
		clear(open)
		return err
	})
	if err != nil {
		return err
	}
	return a.settle(ctx, b, open)
}

// sidesOf puts what the cursors have of one entity in its place. here is false when it is of a shard that is not compared.
func (a *against) sidesOf(b *bucket, at []rowsum.Item) (s *sides, here bool) {
	n := len(b.shards)
	s = &sides{rows: at[:n], own: -1, store: at[n]}
	if b.table.Broadcast() {
		s.own = 0
		return s, true
	}
	spread := s.store.Spread
	for _, r := range s.rows {
		if r.Rows > 0 {
			spread = r.Spread
		}
	}
	own := a.o.Layout.Route(b.tenant, spread).Shard
	s.own = slices.IndexFunc(b.shards, func(s *shardSide) bool { return s.index == own })
	compared := slices.ContainsFunc(a.shards, func(s *shardSide) bool { return s.index == own })
	if !compared {
		s.store = rowsum.Item{}
	}
	return s, compared || s.found() > 0
}

// settle looks again at entities that differ, until it cannot be lag.
func (a *against) settle(ctx context.Context, b *bucket, open map[string]*sides) error {
	deadline := time.Now().Add(decideFor)
	for len(open) > 0 {
		mark, err := a.passed(ctx, b)
		if err != nil {
			return err
		}
		if mark == nil {
			a.out.Moving += int64(len(open))
			return nil
		}
		if b, err = a.refreshed(ctx, b); err != nil {
			return err
		}
		now, err := a.again(ctx, b, slices.Sorted(maps.Keys(open)))
		if err != nil {
			return err
		}
		for id, first := range open {
			s := now[id]
			if s == nil { // gone on both sides
				s = &sides{rows: make([]rowsum.Item, len(b.shards)), own: first.own}
			}
			switch decide(first, s) {
			case sidesMove:
				open[id] = s
				continue
			case sidesAgree:
				a.out.Equal++
			case sidesDiffer:
				a.out.Differ++
				a.name(b, id, s, mark)
			}
			delete(open, id)
		}
		if len(open) > 0 && time.Now().After(deadline) {
			a.out.Moving += int64(len(open))
			return nil
		}
	}
	return nil
}

// refreshed is a bucket with the shards that have made their table of the month meanwhile.
func (a *against) refreshed(ctx context.Context, b *bucket) (*bucket, error) {
	now := *b
	for _, s := range a.shards {
		if b.table.Broadcast() || slices.ContainsFunc(b.shards, func(have *shardSide) bool { return have.index == s.index }) {
			continue
		}
		list, err := a.mysql.TableNames(ctx, s.db)
		if err != nil {
			return nil, s.wrap(err)
		}
		for _, p := range list {
			if p.Table.Name == b.table.Name && p.Month == b.month {
				side := *s
				side.physical = p.Name
				now.shards = append(slices.Clip(now.shards), &side)
			}
		}
	}
	return &now, nil
}

// again reads both sides of some entities anew.
func (a *against) again(ctx context.Context, b *bucket, ids []string) (map[string]*sides, error) {
	at := map[string][]rowsum.Item{}
	put := func(side int, list []rowsum.Item) {
		for _, i := range list {
			if at[i.Key] == nil {
				at[i.Key] = make([]rowsum.Item, len(b.shards)+1)
			}
			at[i.Key][side] = i
		}
	}
	for i, s := range b.shards {
		list, err := mysql.RowSums(ctx, s.db, b.table, s.physical, b.tenant, nil, ids, len(ids))
		if err != nil {
			return nil, s.wrap(err)
		}
		put(i, list)
	}
	list, err := a.o.Store.RowSums(ctx, b.table, b.month, b.tenant, nil, nil, ids, len(ids))
	if err != nil {
		return nil, err
	}
	put(len(b.shards), list)
	now := map[string]*sides{}
	for id, items := range at {
		now[id], _ = a.sidesOf(b, items)
	}
	return now, nil
}

// partitions are those that may hold events of a tenant: in an earlier layout it may have had another.
func (a *against) partitions(t *event.Table, tenant string) (list []event.Partition) {
	topic := a.o.Config.Topic(t)
	switch {
	case a.o.Layout.Epoch() > 1:
		for n := range a.o.Layout.Partitions() {
			list = append(list, event.Partition{Topic: topic, Number: int32(n)})
		}
	case t.Broadcast():
		list = []event.Partition{{Topic: topic, Number: a.o.Layout.Broadcast()}}
	default:
		for _, r := range a.o.Layout.Routes(tenant) {
			if p := (event.Partition{Topic: topic, Number: r.Partition}); !slices.Contains(list, p) {
				list = append(list, p)
			}
		}
	}
	return list
}

// passed waits until both sinks have applied what the log holds now of the bucket's partitions, for as long as they go on;
// nil: they do not.
func (a *against) passed(ctx context.Context, b *bucket) (mark ends, err error) {
	logs, err := a.logs(ctx, a.partitions(b.table, b.tenant))
	if err != nil {
		return nil, err
	}
	mark = ends{}
	for p, log := range logs {
		mark[p] = log.Stable
	}
	var before int64
	for moved := time.Now(); ; {
		missing, err := a.missing(ctx, mark)
		switch {
		case err != nil:
			return nil, err
		case missing == 0:
			return mark, nil
		case missing != before:
			before, moved = missing, time.Now()
		case time.Since(moved) > a.patience:
			a.patience = 0 // one that stands still is waited for once
			return nil, nil
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// missing is how many offsets below the mark the sinks have not applied. A shard that a partition does not meet has no row
// of it.
func (a *against) missing(ctx context.Context, mark ends) (n int64, err error) {
	add := func(rows []progress.Row) {
		for _, r := range rows {
			n += max(0, mark[r.Partition]-r.Next)
		}
	}
	for _, s := range a.shards {
		rows, err := progress.List(ctx, s.db, liveSink)
		if err != nil {
			return 0, s.wrap(err)
		}
		add(rows)
	}
	rows, err := progress.List(ctx, a.o.State, a.out.Store)
	if err != nil {
		return 0, mysqldb.Wrap(err, codeDatabase, "state of "+a.out.Store)
	}
	add(rows)
	return n, nil
}

func (a *against) logs(ctx context.Context, parts []event.Partition) (map[event.Partition]kafka.Log, error) {
	logs, err := inspect(ctx, a.kafka, parts)
	if err != nil {
		return nil, err
	}
	for _, log := range logs {
		if log.Err != nil {
			return nil, log.Err
		}
	}
	return logs, nil
}

// name keeps a difference, to be looked up in the log.
func (a *against) name(b *bucket, id string, s *sides, mark ends) {
	if len(a.out.Named) >= namedMax {
		return
	}
	d := Disagreement{Table: b.table.Name, Month: b.monthText(), Tenant: b.tenant, ID: id, StoreVer: s.store.Ver, Wrong: []string{}, Shards: []ShardRow{},
		key: b.table.Name + "\x00" + b.tenant + "\x00" + id, mark: mark, where: *b, at: *s, spread: s.store.Spread,
		log: map[string]*witness{liveSink: {}, a.out.Store: {}}}
	for i, r := range s.rows {
		if r.Rows > 0 {
			d.Shards = append(d.Shards, ShardRow{b.shards[i].name, b.shards[i].physical, r.Ver})
			d.spread = r.Spread
		}
	}
	a.out.Named = append(a.out.Named, d)
}
