package line

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/inforce"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/outbox"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/mysql"
)

// Entity names what Where looks for.
type Entity struct {
	Table  string
	Tenant string // empty for a broadcast table
	ID     string
	Month  partitioner.Month // NoMonth: in all month tables
	Spread string            // of a tenant with several slots; empty: in all of them
	// Events is how many records are looked for per partition, the newest first; OffsetsMax how far back.
	Events     int
	OffsetsMax int64
}

// Where is one entity at every stage of a line.
type Where struct {
	Line   string `json:"line"`
	Table  string `json:"table"`
	Tenant string `json:"tenant"`
	ID     string `json:"id"`
	Lane   int    `json:"lane"`
	// Outbox are the rows that are not purged yet, among the newest million ids.
	Outbox      []OutboxRow      `json:"outbox"`
	Log         []LogPartition   `json:"log"`
	Stores      []StoreRow       `json:"stores"`
	DeadLetters []DeadLetter     `json:"dead_letters"`
	NotAsked    []NotAskedReason `json:"not_asked"` // stages that did not answer
}

// OutboxRow is a row of the lane table.
type OutboxRow struct {
	ID        uint64    `json:"id"`
	Op        string    `json:"op"`
	Version   int64     `json:"version"`
	At        time.Time `json:"at"`
	Published bool      `json:"published"` // or a dead letter
}

// LogPartition is what was found in one partition.
type LogPartition struct {
	Topic     string     `json:"topic"`
	Partition int32      `json:"partition"`
	Start     int64      `json:"start"`
	End       int64      `json:"end"`
	From      int64      `json:"searched_from"`
	Events    []LogEvent `json:"events"` // the newest first
}

// LogEvent is one record of the entity.
type LogEvent struct {
	Offset  int64     `json:"offset"`
	Op      string    `json:"op"`
	Version int64     `json:"version"`
	At      time.Time `json:"at"` // of the append to the outbox
	Outbox  string    `json:"outbox"`
	ver     int64
	month   partitioner.Month // NoMonth: none, or the body cannot be read
}

// StoreRow is the entity in one store: a shard, or the whole of an OLAP sink.
type StoreRow struct {
	Store     string      `json:"store"` // mysql/s1, clickhouse, doris
	Rows      []StoredRow `json:"rows"`
	Positions []StandsAt  `json:"positions"`
	Verdict   string      `json:"verdict"` // see judge
	Text      string      `json:"text"`
	sink      string
	retired   *RetiredMonths // nil: nothing was retired here
	below     partitioner.Month
}

// StoredRow is the entity's row in one physical table.
type StoredRow struct {
	Table   string `json:"table"`
	Version int64  `json:"version"`
	Deleted bool   `json:"deleted"`
	ver     int64
}

// StandsAt is how far the sink has come in one partition.
type StandsAt struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Next      int64  `json:"next"`
	HaltCode  string `json:"halt_code,omitempty"`
	halted    bool
}

// NotAskedReason is a stage that could not be asked.
type NotAskedReason struct {
	Stage string `json:"stage"`
	Why   string `json:"why"`
}

// Verdicts of a store.
const (
	VerdictApplied  = "applied"     // it holds the greatest version that was found
	VerdictBehind   = "behind"      // the sink has not come to it yet
	VerdictHalted   = "halted"      // nor will it before a person mends its partition
	VerdictDead     = "dead_letter" // the sink refused it
	VerdictRetired  = "retired"     // its month was retired there
	VerdictMissing  = "missing"     // the sink has passed it, and the store does not hold it
	VerdictTwice    = "twice"       // it is in more than one table of the store
	VerdictNotThere = "not_there"   // neither the store nor what was searched of the log has it
)

// What Where looks for unless told.
const (
	WhereEvents     = 5
	WhereOffsetsMax = 200_000
)

// Where looks for one entity in the outbox, in Kafka, in its shard, in the OLAP stores and among the dead letters. A stage that
// does not answer is listed in NotAsked and hides none of the others. progress is told what the search of the log does.
func (l *Line) Where(ctx context.Context, e Entity, tell func(text string)) (*Where, error) {
	t, err := l.entityTable(&e)
	if err != nil {
		return nil, err
	}
	w := &Where{Line: l.Config.Line, Table: e.Table, Tenant: e.Tenant, ID: e.ID, Lane: partitioner.Lane(e.Tenant, l.Config.Outbox.Lanes),
		Outbox: []OutboxRow{}, Log: []LogPartition{}, Stores: []StoreRow{}, DeadLetters: []DeadLetter{}, NotAsked: []NotAskedReason{}}
	silent, err := l.layoutFromAnywhere(ctx)
	if err != nil {
		return nil, err
	}
	routes := l.layout.Routes(e.Tenant)
	switch {
	case t.Broadcast():
		routes = nil
		for i := range l.layout.Shards() {
			routes = append(routes, partitioner.Route{Partition: l.layout.Broadcast(), Shard: int32(i)})
		}
	case e.Spread != "" || len(routes) == 1:
		routes = []partitioner.Route{l.layout.Route(e.Tenant, e.Spread)}
	}
	var parts []event.Partition
	var shards []string
	for _, r := range routes {
		if p := (event.Partition{Topic: l.Config.Topic(t), Number: r.Partition}); !slices.Contains(parts, p) {
			parts = append(parts, p)
		}
		if name := l.layout.ShardName(r.Shard); !slices.Contains(shards, name) {
			shards = append(shards, name)
		}
	}
	var mu sync.Mutex // guards w.NotAsked
	notAsked := func(stage string, err error) bool {
		if err == nil {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		w.NotAsked = append(w.NotAsked, NotAskedReason{stage, err.Error()})
		return true
	}
	// First the outbox, then the log, then the stores: what is found here must have come there, or be on its way.
	if !notAsked("outbox", silent) {
		if w.Outbox, err = l.whereOutbox(ctx, e, w.Lane); notAsked("outbox", err) {
			w.Outbox = []OutboxRow{}
		}
	}
	log, err := l.whereLog(ctx, t, e, parts, tell)
	if !notAsked("kafka", err) {
		w.Log = log
	}
	stores, err := l.whereStores(t, shards, notAsked)
	if err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	rows := make([]*StoreRow, len(stores))
	for i, s := range stores {
		wg.Go(func() {
			ask, cancel := context.WithTimeout(ctx, checkTimeout)
			defer cancel()
			row, err := s.look(ask, t, e, parts)
			if ask.Err() != nil && ctx.Err() == nil {
				err = fmt.Errorf("no answer within %v", checkTimeout)
			}
			if !notAsked(s.name, err) {
				rows[i] = row
			}
		})
	}
	wg.Wait()
	for _, r := range rows {
		if r != nil {
			w.Stores = append(w.Stores, *r)
		}
	}
	l.whereDead(ctx, e, w, notAsked)
	if ctx.Err() != nil {
		return nil, interrupted(ctx)
	}
	slices.SortFunc(w.NotAsked, func(a, b NotAskedReason) int { return strings.Compare(a.Stage, b.Stage) })
	for i := range w.Stores {
		w.Stores[i].judge(w.Log, w.DeadLetters)
	}
	return w, nil
}

// entityTable finds the table, and brings the entity's texts into the form that rows and keys have.
func (l *Line) entityTable(e *Entity) (*event.Table, error) {
	bad := func(what, do string) (*event.Table, error) {
		return nil, &fault.Error{Code: "SL9017", Class: fault.Usage, What: what, Do: do}
	}
	i := slices.IndexFunc(l.Config.Tables, func(t *event.Table) bool { return t.Name == e.Table })
	if i < 0 {
		return bad(fmt.Sprintf("%s has no table %q", l.Config.File, e.Table), "write one of: "+strings.Join(l.tableNames(), ", "))
	}
	t := l.Config.Tables[i]
	switch {
	case t.Tenant == event.None && e.Tenant != "":
		return bad(fmt.Sprintf("table %s has no tenant: its rows are in every shard", t.Name), "leave the tenant out: slotline where "+t.Name+" ID")
	case t.Tenant != event.None && e.Tenant == "":
		return bad(fmt.Sprintf("table %s has a tenant, column %s: two arguments are one too few", t.Name, t.Columns[t.Tenant].Name),
			"slotline where "+t.Name+" TENANT ID")
	}
	type key struct {
		column int
		text   *string
		what   string
	}
	keys := []key{{t.Tenant, &e.Tenant, "tenant"}, {t.ID, &e.ID, "id"}}
	if e.Spread != "" {
		keys = append(keys, key{t.Spread, &e.Spread, "spread value"})
	}
	for _, key := range keys {
		if key.column == event.None {
			continue
		}
		c, given := &t.Columns[key.column], *key.text
		canonical, problem := columnText(c, given)
		if problem == "" && key.what == "tenant" && len(given) > tenantBytesMax {
			problem = fmt.Sprintf("that has %d bytes, and a tenant has %d at most", len(given), tenantBytesMax)
		}
		if problem != "" {
			return bad(fmt.Sprintf("%.70q is no %s of table %s: column %s is %s, and %s", given, key.what, t.Name, c.Name, c.Type, problem), "write it as the column holds it")
		}
		*key.text = canonical
	}
	if t.Spread != event.None && t.Spread == t.ID {
		e.Spread = e.ID
	}
	if t.Spread == event.None && e.Spread != "" {
		return bad(fmt.Sprintf("table %s has no spread column", t.Name), "leave --spread out")
	}
	if e.Events == 0 {
		e.Events = WhereEvents
	}
	if e.OffsetsMax == 0 {
		e.OffsetsMax = WhereOffsetsMax
	}
	return t, nil
}

// errNoAnswer is what became of a database that was asked for checkTimeout.
var errNoAnswer = fmt.Errorf("%w within %v", mysqldb.ErrNoAnswer, checkTimeout)

// tooLate says that a question within ctx took longer than it may.
func tooLate(ctx, ask context.Context) bool { return ask.Err() != nil && ctx.Err() == nil }

// layoutFromAnywhere takes the layout in force from the outbox database or, where that does not answer, from a shard. Then
// silent says what became of the outbox.
func (l *Line) layoutFromAnywhere(ctx context.Context) (silent, err error) {
	ask, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	silent = l.loadLayout(ask)
	if tooLate(ctx, ask) && silent != nil {
		silent = mysqldb.Wrap(errNoAnswer, "SL1807", "outbox "+l.Config.Outbox.DSN.Place())
	}
	// What the database holds may be wrong; that it lets nobody in, or its secret cannot be resolved, is as if it were away.
	_, unopened := l.outboxDB()
	asked := unopened == nil && mysqldb.Number(silent) == 0
	if silent == nil || asked && (fault.Is(silent, fault.Usage) || fault.Is(silent, fault.Fatal)) || ctx.Err() != nil {
		return nil, silent
	}
	stored := make([]*partitioner.Layout, len(l.Config.Shards))
	var wg sync.WaitGroup
	for i, shard := range l.Config.Shards {
		db, err := l.shardDB(i)
		if err != nil {
			continue
		}
		wg.Go(func() {
			ask, cancel := context.WithTimeout(ctx, checkTimeout)
			defer cancel()
			stored[i], _ = inforce.Read(ask, db, l.Config.Line, shard.Name, "shard "+shard.Name)
		})
	}
	wg.Wait()
	for _, layout := range stored {
		if layout != nil {
			l.layout, err = agree(l.Config.File, l.Config.Layout, l.Config.Kafka.Partitions, layout)
			return silent, err
		}
	}
	return nil, silent
}

func (l *Line) whereOutbox(ctx context.Context, e Entity, lane int) ([]OutboxRow, error) {
	db, err := l.outboxDB()
	if err != nil {
		return nil, err
	}
	found, err := outbox.Find(ctx, db, lane, e.Table, e.Tenant, e.ID)
	if err != nil {
		return nil, mysqldb.Wrap(err, "SL9018", "outbox "+l.Config.Outbox.DSN.Place())
	}
	rows := []OutboxRow{}
	for _, r := range found.Rows {
		rows = append(rows, OutboxRow{r.ID, r.Op.String(), r.Version, r.CreatedAt.UTC(), r.Published})
	}
	return rows, nil
}

func (l *Line) whereLog(ctx context.Context, t *event.Table, e Entity, parts []event.Partition, tell func(text string)) ([]LogPartition, error) {
	cl, err := l.kafkaClient(ctx, "where")
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	key := []byte(e.Table + "\x00" + e.Tenant + "\x00" + e.ID)
	list := []LogPartition{}
	for _, p := range parts {
		told := time.Now()
		s, err := kafka.FindKey(ctx, l.Config, l.Log, cl, p, key, e.Events, e.OffsetsMax, func(offsets int64) {
			if tell != nil && time.Since(told) > time.Second {
				told = time.Now()
				tell(fmt.Sprintf("%s partition %d: %s offsets searched", p.Topic, p.Number, count(offsets)))
			}
		})
		if err != nil {
			return nil, err
		}
		found := LogPartition{Topic: p.Topic, Partition: p.Number, Start: s.Start, End: s.End, From: s.From, Events: []LogEvent{}}
		for _, r := range s.Records {
			var v event.View
			if err := event.ParseView(r.Record, &v); err != nil {
				continue // a record that only looks like one of ours; sinks refuse it
			}
			var row event.Row
			month := partitioner.NoMonth
			if err := t.DecodeView(&v, &row); err == nil {
				month = row.Month
			}
			found.Events = append(found.Events, LogEvent{Offset: r.Offset, Op: v.Op.String(), Version: v.Version, At: v.Time, Outbox: v.Outbox.String(),
				ver: verOf(v.Version, v.Op), month: month})
		}
		list = append(list, found)
	}
	return list, nil
}

func verOf(version int64, op event.Op) int64 {
	if op == event.Delete {
		return version*2 + 1
	}
	return version * 2
}

// whereStore is a store that can be asked for an entity.
type whereStore struct {
	name, sink string
	look       func(ctx context.Context, t *event.Table, e Entity, parts []event.Partition) (*StoreRow, error)
	find       func(ctx context.Context, t *event.Table, e Entity) ([]StoredRow, error) // the rows of look alone
}

// whereStores are the stores that can be asked; notAsked is told of those whose secrets cannot be resolved.
func (l *Line) whereStores(t *event.Table, shards []string, notAsked func(string, error) bool) ([]whereStore, error) {
	cfg, unopened := l.openedShards()
	sink, err := mysql.New(mysql.Options{Config: cfg, Layout: l.layout, Logger: l.Log})
	if err != nil {
		return nil, err
	}
	l.onClose(func() { _ = sink.Close() })
	var stores []whereStore
	for i, shard := range l.Config.Shards {
		name := "mysql/" + shard.Name
		if !slices.Contains(shards, shard.Name) || notAsked(name, unopened[i]) {
			continue
		}
		db := l.shards[i]
		find := func(ctx context.Context, t *event.Table, e Entity) (rows []StoredRow, err error) {
			found, err := sink.Find(ctx, shard.Name, t, e.Tenant, e.ID, e.Month)
			for _, f := range found {
				rows = append(rows, storedRow(f.Table, f.Ver))
			}
			return rows, err
		}
		stores = append(stores, whereStore{name: name, sink: "mysql", find: find, look: func(ctx context.Context, t *event.Table, e Entity, parts []event.Partition) (*StoreRow, error) {
			r := &StoreRow{Store: name, sink: "mysql", Rows: []StoredRow{}}
			if err := r.stands(ctx, db, parts); err != nil {
				return nil, mysqldb.Wrap(err, "SL9018", name)
			}
			var err error
			if r.retired, r.below, err = retiredMonths(ctx, db, l.Config.Line, name); err != nil {
				return nil, mysqldb.Wrap(err, "SL9018", name)
			}
			rows, err := find(ctx, t, e)
			r.Rows = append(r.Rows, rows...)
			return r, err
		}})
	}
	for _, name := range l.olapSinks() {
		state, err := l.stateDB()
		if notAsked(name, err) {
			continue
		}
		olap, err := l.openOLAP(name, l.Config, l.layout, state, "")
		if notAsked(name, err) {
			continue
		}
		l.onClose(func() { _ = olap.Close() })
		find := func(ctx context.Context, t *event.Table, e Entity) (rows []StoredRow, err error) {
			ver, err := olap.Find(ctx, t, e.Tenant, e.ID)
			if ver > 0 {
				rows = append(rows, storedRow(t.Name, ver))
			}
			return rows, err
		}
		stores = append(stores, whereStore{name: name, sink: name, find: find, look: func(ctx context.Context, t *event.Table, e Entity, parts []event.Partition) (*StoreRow, error) {
			r := &StoreRow{Store: name, sink: name, Rows: []StoredRow{}}
			if err := r.stands(ctx, state, parts); err != nil {
				return nil, mysqldb.Wrap(err, "SL9018", "state "+l.Config.Sinks.State.Place())
			}
			rows, err := find(ctx, t, e)
			r.Rows = append(r.Rows, rows...)
			return r, err
		}})
	}
	return stores, nil
}

func storedRow(table string, ver int64) StoredRow { return StoredRow{table, ver / 2, ver%2 == 1, ver} }

// stands reads how far the sink has come. Progress is read before rows, and commits with them: what lies below it is there.
func (r *StoreRow) stands(ctx context.Context, db progress.Querier, parts []event.Partition) error {
	rows, err := progress.List(ctx, db, r.sink)
	if err != nil {
		return err
	}
	r.Positions = []StandsAt{}
	for _, row := range rows {
		if slices.Contains(parts, row.Partition) {
			r.Positions = append(r.Positions, StandsAt{row.Topic, row.Number, row.Next, row.HaltCode, !row.HaltedAt.IsZero()})
		}
	}
	return nil
}

// whereDead adds the entity's dead letters of both kinds.
func (l *Line) whereDead(ctx context.Context, e Entity, w *Where, notAsked func(string, error) bool) {
	of := func(letters []DeadLetter) {
		for _, d := range letters {
			if d.entity == (entityKey{e.Table, e.Tenant, e.ID}) {
				w.DeadLetters = append(w.DeadLetters, d)
			}
		}
	}
	if w.notAsked("kafka") == "" {
		letters, err := l.sinkLetters(ctx, "")
		if !notAsked("dead letters of sinks", err) {
			of(letters)
		}
	}
	if w.notAsked("outbox") == "" {
		letters, err := l.relayLetters(ctx, "")
		if !notAsked("dead letters of the relay", err) {
			of(letters)
		}
	}
}

// notAsked is why a stage was not asked, or "".
func (w *Where) notAsked(stage string) string {
	for _, n := range w.NotAsked {
		if n.Stage == stage {
			return n.Why
		}
	}
	return ""
}

// judge compares the store's row with the greatest version in the log that the sink has not refused. It is pure.
func (r *StoreRow) judge(log []LogPartition, letters []DeadLetter) {
	var held int64
	for _, row := range r.Rows {
		held = max(held, row.ver)
	}
	var best, dead LogEvent
	var at LogPartition
	var letter DeadLetter
	searched := len(log) > 0
	for _, p := range log {
		for _, e := range p.Events {
			key := fmt.Sprintf("%s/%s/%d/%d", r.sink, p.Topic, p.Partition, e.Offset)
			i := slices.IndexFunc(letters, func(d DeadLetter) bool { return d.Key == key })
			switch {
			case i >= 0 && e.ver > dead.ver:
				dead, letter = e, letters[i]
			case i < 0 && e.ver > best.ver:
				best, at = e, p
			}
		}
	}
	say := func(verdict, format string, args ...any) { r.Verdict, r.Text = verdict, fmt.Sprintf(format, args...) }
	switch {
	case len(r.Rows) > 1:
		var names []string
		for _, row := range r.Rows {
			names = append(names, row.Table)
		}
		say(VerdictTwice, "found in %s: an entity belongs in one of them; its month must not change", strings.Join(names, " and "))
	case held == 0 && best.ver == 0 && dead.ver == 0:
		say(VerdictNotThere, "not there, and no event of it in what was searched of the log")
	case held < best.ver:
		r.judgeLess(best, at, held, say)
	case dead.ver > held:
		say(VerdictDead, "version %d (offset %d) is dead letter %s, %s: %s", dead.Version, dead.Offset, letter.Key, letter.State, letter.Reason)
	case !searched:
		say(VerdictApplied, "holds version %d; the log was not asked", held/2)
	case best.ver == 0:
		say(VerdictApplied, "holds version %d; no event of it in what was searched of the log", held/2)
	case held > best.ver:
		say(VerdictApplied, "holds version %d, greater than any that was searched of the log", held/2)
	default:
		say(VerdictApplied, "applied")
	}
}

// judgeLess is for a store that holds less than the log.
func (r *StoreRow) judgeLess(best LogEvent, at LogPartition, held int64, say func(verdict, format string, args ...any)) {
	what := fmt.Sprintf("version %d, partition %d offset %d", best.Version, at.Partition, best.Offset)
	i := slices.IndexFunc(r.Positions, func(p StandsAt) bool { return p.Topic == at.Topic && p.Partition == at.Partition })
	has := "nothing"
	if held > 0 {
		has = fmt.Sprintf("version %d", held/2)
	}
	switch {
	case i < 0:
		say(VerdictBehind, "%s is not applied: the sink has no progress of that partition here; slotline apply makes it", what)
	case best.Offset < r.Positions[i].Next && best.month != partitioner.NoMonth && best.month < r.below:
		say(VerdictRetired, "%s is of month %s: months before %s were retired here on %s by %s", what, best.month, r.retired.Below, r.retired.At, r.retired.By)
	case best.Offset < r.Positions[i].Next:
		say(VerdictMissing, "MISSING: %s was passed, the sink stands at offset %d, and the row holds %s", what, r.Positions[i].Next, has)
	case r.Positions[i].halted:
		say(VerdictHalted, "%s is not applied: the partition is halted at offset %d [%s], see slotline status", what, r.Positions[i].Next, r.Positions[i].HaltCode)
	default:
		say(VerdictBehind, "%s is not applied yet: the sink stands at offset %d, %s offsets before it", what, r.Positions[i].Next, count(best.Offset-r.Positions[i].Next))
	}
}

// Has says that a store has one of the verdicts.
func (w *Where) Has(verdicts ...string) bool {
	return slices.ContainsFunc(w.Stores, func(s StoreRow) bool { return slices.Contains(verdicts, s.Verdict) })
}

// WriteText prints what was found, stage by stage, and what it means.
func (w *Where) WriteText(out io.Writer) error {
	tenant := ""
	if w.Tenant != "" {
		tenant = ", tenant " + printable(w.Tenant)
	}
	fmt.Fprintf(out, "%s  table %s%s, id %s\n", w.Line, w.Table, tenant, printable(w.ID))
	t := newTable(out, "STAGE", "PLACE", "VERSION", "OP", "AT", "")
	at := func(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05Z") }
	for _, r := range w.Outbox {
		state := "published"
		if !r.Published {
			state = "not published yet"
		}
		t.row("outbox lane "+laneName(w.Lane), fmt.Sprintf("id %d", r.ID), fmt.Sprint(r.Version), r.Op, at(r.At), state)
	}
	for _, p := range w.Log {
		name := fmt.Sprintf("%s/%d", p.Topic, p.Partition)
		for _, e := range p.Events {
			t.row("kafka "+name, fmt.Sprintf("offset %d", e.Offset), fmt.Sprint(e.Version), e.Op, at(e.At), "from outbox "+e.Outbox)
		}
		if len(p.Events) == 0 {
			t.row("kafka "+name, "none", "-", "-", "-", "")
		}
	}
	for _, s := range w.Stores {
		for _, r := range s.Rows {
			op := "upsert"
			if r.Deleted {
				op = "delete"
			}
			t.row(s.Store, r.Table, fmt.Sprint(r.Version), op, "-", "")
		}
		if len(s.Rows) == 0 {
			t.row(s.Store, "none", "-", "-", "-", "")
		}
	}
	for _, d := range w.DeadLetters {
		t.row("dead letter", d.Key, "-", "-", at(d.At), d.Reason+", "+d.State)
	}
	if err := t.flush(); err != nil {
		return err
	}
	for _, p := range w.Log {
		rest := ""
		if p.From > p.Start {
			rest = fmt.Sprintf("; the log begins at %d, --scan searches further", p.Start)
		}
		fmt.Fprintf(out, "searched  %s partition %d, offsets %d to %d%s\n", p.Topic, p.Partition, p.From, p.End, rest)
	}
	for _, n := range w.NotAsked {
		writeNotAsked(out, n.Stage+": "+n.Why)
	}
	if pending := len(slices.DeleteFunc(slices.Clone(w.Outbox), func(r OutboxRow) bool { return r.Published })); pending > 0 {
		fmt.Fprintf(out, "outbox: %d rows of it are not published yet\n", pending)
	}
	for _, s := range w.Stores {
		fmt.Fprintf(out, "%s: %s\n", s.Store, s.Text)
	}
	return nil
}
