package line

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/load"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/outbox"
)

// BenchOptions say what load Bench puts on a line.
type BenchOptions struct {
	Table   string        // "": the first of the file that has a tenant
	Tenants int           // at least 1
	Writers int           // connections, each with a transaction at a time; at least 1
	Rate    float64       // events a second of all writers; 0: as many as they can
	For     time.Duration // how long events are written
	Keep    bool          // do not delete the entities afterwards
	Say     func(text string)
}

// Bench is a load and what became of it.
type Bench struct {
	Line         string  `json:"line"`
	Table        string  `json:"table"`
	Tenants      int     `json:"tenants"`
	LargestShare float64 `json:"largest_tenant_share"` // of the events
	Writers      int     `json:"writers"`
	AskedRate    float64 `json:"asked_events_per_second"` // 0: as many as the writers can
	Seconds      float64 `json:"seconds"`                 // from the first transaction to the last commit
	Events       int64   `json:"events"`
	Entities     int64   `json:"entities"`
	EventsPerSec float64 `json:"events_per_second"`
	// Transaction is how long one of a single event takes its service, from BEGIN to COMMIT's answer.
	Transaction Spread       `json:"transaction"`
	Stores      []BenchStore `json:"stores"`
	Stopped     string       `json:"stopped,omitempty"`         // why the load ended before its time
	Left        int64        `json:"entities_left"`             // that are not deleted
	LeftBecause string       `json:"left_because,omitempty"`    // "" where they were to be kept
	Prefix      [2]string    `json:"first_and_last_tenant"`     // as their column has them
	Unknown     int64        `json:"commits_unknown,omitempty"` // connections that were lost in COMMIT
}

// BenchStore is how a load came to a store.
type BenchStore struct {
	Store string `json:"store"` // mysql/s1, clickhouse, doris
	// Commit to row: how long after its commit an entity's row could be read, of Samples entities.
	CommitToRow Spread  `json:"commit_to_row"`
	Unseen      int     `json:"unseen"`            // entities that it was asked for in vain; they are not among the samples
	CaughtUp    float64 `json:"caught_up_seconds"` // after the last commit, until all was applied; -1 where it was not
	Behind      int64   `json:"behind,omitempty"`  // events not applied when nothing moved any more
	Problem     string  `json:"problem,omitempty"`
}

// Spread is of the times of Samples events, in milliseconds.
type Spread struct {
	Samples int     `json:"samples"`
	P50     float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
	Max     float64 `json:"max_ms"`
}

func spreadOf(times []time.Duration) Spread {
	if len(times) == 0 {
		return Spread{}
	}
	slices.Sort(times)
	at := func(q float64) float64 { return ms(times[min(len(times)-1, int(q*float64(len(times))))]) }
	return Spread{len(times), at(0.5), at(0.99), ms(times[len(times)-1])}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

const (
	samplesAtOne = 8                // entities that one store is asked for at a time; while they are not there no further one is
	benchQuiet   = 30 * time.Second // without any move of a store, what is behind stays so
	updateShare  = 2                // one of so many events is of a new entity
)

// BenchPlan says what Bench will do, before anything is written.
func (l *Line) BenchPlan(o BenchOptions) (string, error) {
	ld, err := l.benchLoad(&o)
	if err != nil {
		return "", err
	}
	rate := "as many events as its writers can"
	if o.Rate > 0 {
		rate = perSecond(o.Rate) + " events a second"
	}
	after := "deletes its entities afterwards"
	if o.Keep {
		after = "leaves its entities there"
	}
	return fmt.Sprintf("line %s, table %s: writes %s for %s into the outbox %s, of %d tenants, %s to %s, and %s", l.Config.Line, o.Table, rate, short(o.For),
		l.Config.Outbox.DSN.Place(), ld.Tenants(), printable(ld.TenantText(0)), printable(ld.TenantText(ld.Tenants()-1)), after), nil
}

func (l *Line) benchLoad(o *BenchOptions) (*load.Load, error) {
	if o.Table == "" {
		for _, t := range l.Config.Tables {
			if o.Table == "" && !t.Broadcast() {
				o.Table = t.Name
			}
		}
	}
	t := l.Config.Table(o.Table)
	if t == nil {
		return nil, &fault.Error{Code: "SL9030", Class: fault.Usage, What: fmt.Sprintf("%s has no table %q that a load can be of", l.Config.File, o.Table),
			Do: "write one of: " + strings.Join(l.tableNames(), ", ")}
	}
	return load.New(t, o.Tenants, time.Now(), rand.Uint64())
}

// bench is a running Bench.
type bench struct {
	*Line
	o       BenchOptions
	table   *event.Table
	load    *load.Load
	db      *sql.DB
	stores  []*sampled
	numbers atomic.Uint32 // entities begun
	began   time.Time
	stop    context.CancelCauseFunc
}

// Bench writes events of tenants of unequal size into the outbox, as services do, and measures how long they take to each store;
// then it deletes what it wrote. It goes on for as long as o says, until ctx ends, or until the outbox would refuse services. What
// it wrote is deleted then, too. Relay and sinks must run.
func (l *Line) Bench(ctx context.Context, o BenchOptions) (*Bench, error) {
	ld, err := l.benchLoad(&o)
	if err != nil {
		return nil, err
	}
	if err := l.loadLayout(ctx); err != nil {
		return nil, err
	}
	if err := l.relaysRun(ctx); err != nil {
		return nil, err
	}
	b := &bench{Line: l, o: o, table: l.Config.Table(o.Table), load: ld}
	if b.db, err = mysqldb.Open(l.Config.Outbox.DSN, mysqldb.Options{MaxConns: o.Writers}); err != nil {
		return nil, err
	}
	defer b.db.Close()
	var shards []string
	for _, s := range l.Config.Shards {
		shards = append(shards, s.Name)
	}
	r := &Bench{Line: l.Config.Line, Table: o.Table, Tenants: ld.Tenants(), LargestShare: ld.LargestShare(), Writers: o.Writers, AskedRate: o.Rate,
		Prefix: [2]string{ld.TenantText(0), ld.TenantText(ld.Tenants() - 1)}}
	problems := map[string]string{}
	stores, err := l.whereStores(b.table, shards, func(name string, err error) bool {
		if err != nil {
			problems[name] = err.Error()
		}
		return err != nil
	})
	if err != nil {
		return nil, err
	}
	for _, s := range stores {
		b.stores = append(b.stores, newSampled(s))
	}

	written, err := b.write(ctx, r)
	if err != nil {
		return nil, err
	}
	caught := map[string]BenchStore{}
	if ctx.Err() == nil {
		o.Say("the load is over; waiting for the stores to have all of it")
		caught = b.catchUp(ctx, time.Now())
	}
	if ctx.Err() != nil { // what became of questions that a person has ended says nothing of the stores
		r.Stopped = "interrupted"
		for name, at := range caught {
			at.Problem = ""
			caught[name] = at
		}
	}
	for _, s := range b.stores {
		at, ended := caught[s.store.name]
		if !ended { // a person did not wait for it
			at.CaughtUp = -1
		}
		times, unseen, problem := s.end()
		at.Store, at.CommitToRow, at.Unseen = s.store.name, spreadOf(times), unseen
		if at.Problem == "" && ctx.Err() == nil {
			at.Problem = problem
		}
		r.Stores = append(r.Stores, at)
	}
	for name, problem := range problems {
		r.Stores = append(r.Stores, BenchStore{Store: name, CaughtUp: -1, Problem: problem})
	}
	slices.SortFunc(r.Stores, func(a, b BenchStore) int {
		return slices.Index(l.storeNames(), a.Store) - slices.Index(l.storeNames(), b.Store)
	})
	b.delete(ctx, r, written)
	return r, nil
}

// storeNames are the stores of the file in its order: shards, then OLAP sinks.
func (l *Line) storeNames() (names []string) {
	for _, s := range l.Config.Shards {
		names = append(names, "mysql/"+s.Name)
	}
	return append(names, l.olapSinks()...)
}

// relaysRun refuses a line on which nobody would publish what a load writes.
func (l *Line) relaysRun(ctx context.Context) error {
	views, err := l.laneViews(ctx)
	if err != nil {
		return err
	}
	for _, v := range views {
		switch {
		case v.HaltedAt != nil:
			return &fault.Error{Code: "SL9032", Class: fault.Transient, What: "outbox lane " + laneName(v.Lane) + " is halted", Do: "slotline status says why"}
		case v.Owner == "":
			return &fault.Error{Code: "SL9032", Class: fault.Transient, What: "no relay owns outbox lane " + laneName(v.Lane),
				Why: "what a load writes would stay in the outbox", Do: "start slotline run, or relays and sinks, then run it again"}
		}
	}
	return nil
}

// write runs the writers until it is time, and returns the entities that are there.
func (b *bench) write(ctx context.Context, r *Bench) ([][]load.Entity, error) {
	whole := ctx
	ctx, b.stop = context.WithCancelCause(ctx)
	defer b.stop(nil)
	for _, s := range b.stores {
		go s.look(whole, b.table)
	}
	b.began = time.Now()
	writers := make([]*benchWriter, b.o.Writers)
	var wg, watch sync.WaitGroup
	var events atomic.Int64
	for i := range writers {
		w := &benchWriter{bench: b, draw: b.load.Drawer(uint64(b.began.UnixNano()), uint64(i))}
		writers[i] = w
		wg.Go(func() { w.run(ctx, &events) })
	}
	over, end := context.WithCancel(ctx)
	watch.Go(func() { b.watch(over, &events) })
	wg.Wait()
	end()
	watch.Wait()
	r.Seconds = time.Since(b.began).Seconds()
	var times []time.Duration
	var written [][]load.Entity
	for _, w := range writers {
		times = append(times, w.times...)
		written = append(written, w.entities)
		r.Entities += int64(len(w.entities))
		r.Unknown += w.unknown
	}
	r.Events = int64(len(times))
	r.EventsPerSec = float64(r.Events) / r.Seconds
	r.Transaction = spreadOf(times)
	switch cause := context.Cause(ctx); {
	case whole.Err() != nil:
		r.Stopped = "interrupted"
	case cause != nil:
		if r.Entities == 0 { // one whose commit is not known may be there, and is deleted
			return nil, cause
		}
		r.Stopped = cause.Error()
	}
	return written, nil
}

// watch tells how far the load is, and ends it where the outbox would refuse services, or no more entities have names.
func (b *bench) watch(ctx context.Context, events *atomic.Int64) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	told := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		views, err := b.laneViews(ctx)
		if err != nil {
			continue // an outage shows in the writers
		}
		var backlog int64
		for _, v := range views {
			backlog += v.Events()
			if what := v.Refuses(&b.Config.Outbox); what != "" {
				b.stop(fmt.Errorf("outbox lane %s refuses services: %s", laneName(v.Lane), what))
			}
		}
		if time.Since(told) > 5*time.Second {
			told = time.Now()
			b.o.Say(fmt.Sprintf("%s events in %s, %s in the outbox", count(events.Load()), short(time.Since(b.began)), count(backlog)))
		}
	}
}

// benchWriter is one connection of a service.
type benchWriter struct {
	*bench
	draw     *load.Drawer
	entities []load.Entity
	times    []time.Duration
	unknown  int64
}

var errNoNames = fmt.Errorf("%d entities are all that a load has names for", load.EntitiesMax)

func (w *benchWriter) run(ctx context.Context, events *atomic.Int64) {
	for ctx.Err() == nil && time.Since(w.began) < w.o.For {
		if w.o.Rate > 0 { // the whole load's n-th event is due at n/rate, whoever writes it
			due := w.began.Add(time.Duration(float64(events.Add(1)-1) / w.o.Rate * float64(time.Second)))
			if due.Sub(w.began) >= w.o.For || !pause(ctx, time.Until(due)) {
				events.Add(-1)
				return
			}
		} else {
			events.Add(1)
		}
		if err := w.transaction(ctx); err != nil {
			events.Add(-1)
			if ctx.Err() == nil {
				w.stop(err)
			}
			return
		}
	}
}

// pause waits; it is over at once where d is not positive, and false where ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// transaction writes one event: of a new entity, or of one of this writer's.
func (w *benchWriter) transaction(ctx context.Context) error {
	fresh := len(w.entities) == 0 || w.draw.Index(updateShare) == 0
	at := len(w.entities) - 1
	if fresh {
		number := w.numbers.Add(1) - 1
		if number >= load.EntitiesMax {
			return errNoNames
		}
		w.entities = append(w.entities, w.draw.Entity(number, time.Now()))
		at++
	} else {
		at = w.draw.Index(len(w.entities))
	}
	e, err := w.draw.Upsert(&w.entities[at], time.Now())
	if err != nil {
		return err
	}
	began := time.Now()
	err = w.insert(ctx, []event.Event{e})
	committed := time.Now()
	switch {
	case errors.Is(err, errUnknown):
		w.unknown++ // it may be there, and is deleted in any case
		return nil
	case err != nil:
		if fresh {
			w.entities = w.entities[:at]
		}
		return err
	}
	w.times = append(w.times, committed.Sub(began))
	if fresh {
		w.sample(e, committed)
	}
	return nil
}

var errUnknown = errors.New("the connection was lost in COMMIT")

// insert writes events in one transaction.
func (b *bench) insert(ctx context.Context, events []event.Event) error {
	failed := func(err error) error {
		return mysqldb.Wrap(err, "SL9033", "outbox "+b.Config.Outbox.DSN.Place()+": a transaction of the load failed")
	}
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return failed(err)
	}
	defer tx.Rollback() // does nothing after Commit
	for _, in := range outbox.Inserts(events, b.Config.Outbox.Lanes) {
		if _, err := tx.ExecContext(ctx, in.SQL); err != nil {
			return failed(err)
		}
	}
	if err := tx.Commit(); err != nil {
		if mysqldb.Number(err) == 0 && !errors.Is(err, sql.ErrTxDone) {
			return errUnknown // also where the load is being ended: it is deleted in any case
		}
		return failed(err)
	}
	return nil
}

// sample has the stores that the event goes to looked at, where they are not busy with others.
func (b *bench) sample(e event.Event, committed time.Time) {
	shard := "mysql/" + b.layout.ShardName(b.layout.Route(e.Tenant, e.Spread).Shard)
	for _, s := range b.stores {
		if s.store.sink == "mysql" && s.store.name != shard {
			continue
		}
		s.offer(sample{Entity{Table: e.Table, Tenant: e.Tenant, ID: e.EntityID, Month: e.Month}, committed, committed})
	}
}

// catchUp waits until every store has all that was written, and says when that was.
func (b *bench) catchUp(ctx context.Context, last time.Time) map[string]BenchStore {
	found := map[string]BenchStore{}
	db, err := b.outboxDB()
	var ids []outbox.Backlog
	if err == nil {
		ids, err = outbox.Backlogs(ctx, db, b.Config.Outbox.Lanes)
	}
	stores := b.sinkStores()
	moved, was := time.Now(), int64(-1)
	again := map[string]time.Time{} // a store that did not answer holds up the look at the others no second time
	for ctx.Err() == nil && err == nil {
		var views []outbox.View
		if views, err = b.laneViews(ctx); err != nil {
			break
		}
		var unpublished int64
		ends := map[event.Partition]int64{}
		for i, v := range views {
			unpublished += int64(ids[i].MaxID) - int64(min(v.Cursor, ids[i].MaxID))
			for p, end := range v.Ends {
				ends[p] = max(ends[p], end)
			}
		}
		sum := unpublished
		for i := range stores {
			if stores[i].silent != "" && time.Now().After(again[stores[i].name]) && again[stores[i].name] != (time.Time{}) {
				stores[i].silent = ""
			}
		}
		for i, k := range b.sinkRows(ctx, stores) {
			if k.Unreachable != "" && stores[i].silent == "" {
				stores[i].silent, again[k.Name] = k.Unreachable, time.Now().Add(4*checkTimeout)
			}
			at, seen := found[k.Name]
			if seen && at.CaughtUp >= 0 {
				continue
			}
			at = BenchStore{Store: k.Name, CaughtUp: -1, Behind: unpublished + behind(k.progressRows, ends), Problem: k.Unreachable}
			if at.Behind == 0 && at.Problem == "" {
				at.CaughtUp = time.Since(last).Seconds()
			}
			sum += at.Behind
			found[k.Name] = at
		}
		if sum != was {
			moved, was = time.Now(), sum
		}
		if !slices.ContainsFunc(stores, func(s sinkStore) bool { return found[s.name].CaughtUp < 0 }) || time.Since(moved) > benchQuiet {
			break
		}
		pause(ctx, 50*time.Millisecond)
	}
	if err != nil {
		for _, s := range stores {
			found[s.name] = BenchStore{Store: s.name, CaughtUp: -1, Problem: "outbox: " + err.Error()}
		}
	}
	return found
}

// behind counts the offsets that progress lacks to the ends.
func behind(rows []progress.Row, ends map[event.Partition]int64) (n int64) {
	for _, r := range rows {
		n += max(0, ends[r.Partition]-r.Next)
	}
	return n
}

// deleteRate is how many deletes a second are written at least; a load that was faster is deleted as fast.
const deleteRate = 1000

// deleteRows are the deletes of one transaction.
const deleteRows = 200

// delete emits a delete of every entity, also when a person has ended the load.
func (b *bench) delete(ctx context.Context, r *Bench, written [][]load.Entity) {
	r.Left = r.Entities
	if b.o.Keep || r.Entities == 0 {
		return
	}
	rate := max(deleteRate, r.EventsPerSec)
	most := time.Duration(float64(r.Entities) / rate * float64(time.Second))
	b.o.Say(fmt.Sprintf("deleting %s entities, some %s", count(r.Entities), short(most)))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*most+time.Minute)
	defer cancel()
	draw, began := b.load.Drawer(0, 0), time.Now()
	for _, entities := range written {
		for some := range slices.Chunk(entities, deleteRows) {
			var events []event.Event
			for i := range some {
				e, err := draw.Delete(&some[i], time.Now())
				if err != nil {
					r.LeftBecause = err.Error()
					return
				}
				events = append(events, e)
			}
			due := began.Add(time.Duration(float64(r.Entities-r.Left) / rate * float64(time.Second)))
			err := b.insert(ctx, events)
			if err == nil && !pause(ctx, time.Until(due)) {
				err = ctx.Err()
			}
			if err != nil {
				r.LeftBecause = err.Error()
				return
			}
			r.Left -= int64(len(some))
		}
	}
}

// sample is an entity that a store is asked for.
type sample struct {
	entity    Entity
	committed time.Time
	next      time.Time // to be asked for
}

// sampled is a store that is asked for entities.
type sampled struct {
	store   whereStore
	every   time.Duration // an entity is looked for that often
	least   time.Duration // between two looks for one
	in      chan sample
	due     atomic.Int64 // unix nanoseconds: when the next may be offered
	ended   chan struct{}
	done    chan struct{}
	times   []time.Duration
	unseen  int
	problem string
}

// newSampled asks a store for little beside what it has to do: a shard is asked by primary key, an OLAP store takes longer for that.
func newSampled(s whereStore) *sampled {
	every, least := 100*time.Millisecond, time.Millisecond
	if s.sink != "mysql" {
		every, least = 500*time.Millisecond, 50*time.Millisecond
	}
	return &sampled{store: s, every: every, least: least, in: make(chan sample, samplesAtOne), ended: make(chan struct{}), done: make(chan struct{})}
}

func (s *sampled) offer(e sample) {
	due := s.due.Load()
	if e.committed.UnixNano() < due || !s.due.CompareAndSwap(due, e.committed.Add(s.every).UnixNano()) {
		return
	}
	select {
	case s.in <- e:
	default: // the store is behind: those it is asked for already say how far
	}
}

// look asks for each sample, at growing intervals, until its row is there.
func (s *sampled) look(ctx context.Context, t *event.Table) {
	defer close(s.done)
	var waiting []sample
	defer func() { s.unseen = len(waiting) + len(s.in) }()
	for {
		var wake <-chan time.Time
		in := s.in
		if len(waiting) > 0 {
			slices.SortFunc(waiting, func(a, b sample) int { return a.next.Compare(b.next) })
			wake = time.After(time.Until(waiting[0].next))
		}
		if len(waiting) == samplesAtOne {
			in = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-s.ended:
			return
		case e := <-in:
			waiting = append(waiting, e)
			continue
		case <-wake:
		}
		ask, cancel := context.WithTimeout(ctx, checkTimeout)
		rows, err := s.store.find(ask, t, waiting[0].entity)
		cancel()
		now := time.Now()
		switch {
		case err != nil && ctx.Err() == nil:
			s.problem = err.Error()
			waiting[0].next = now.Add(time.Second)
		case slices.ContainsFunc(rows, func(r StoredRow) bool { return !r.Deleted }):
			s.problem = ""
			s.times = append(s.times, now.Sub(waiting[0].committed))
			waiting = waiting[1:]
		default:
			waiting[0].next = now.Add(max(s.least, now.Sub(waiting[0].committed)/10))
		}
	}
}

// end ends look, and returns what it measured.
func (s *sampled) end() (times []time.Duration, unseen int, problem string) {
	close(s.ended)
	<-s.done
	return s.times, s.unseen, s.problem
}

// Whole says that the load came to every store, and that nothing of it is left that was not to be kept.
func (r *Bench) Whole() bool {
	return r.Stopped == "" && r.LeftBecause == "" && !slices.ContainsFunc(r.Stores, func(s BenchStore) bool { return s.CaughtUp < 0 })
}

// WriteText prints the load as a table: what a service waits, and how long after its commit an event can be read.
func (r *Bench) WriteText(w io.Writer) error {
	asked := "as fast as they can"
	if r.AskedRate > 0 {
		asked = perSecond(r.AskedRate) + " events/s asked"
	}
	fmt.Fprintf(w, "%s  table %s, %d tenants, the largest with %.0f %% of the events; %d writers, %s\n", r.Line, r.Table, r.Tenants, 100*r.LargestShare, r.Writers, asked)
	fmt.Fprintf(w, "%d events of %d entities in %.1f s, %s events/s, one in a transaction\n", r.Events, r.Entities, r.Seconds, perSecond(r.EventsPerSec))
	t := newTable(w, "", "P50", "P99", "MAX", "SAMPLES", "CAUGHT UP")
	row := func(name string, s Spread, caught string) {
		if s.Samples == 0 {
			t.row(name, "-", "-", "-", "0", caught)
			return
		}
		t.row(name, millis(s.P50), millis(s.P99), millis(s.Max), fmt.Sprint(s.Samples), caught)
	}
	row("transaction", r.Transaction, "-")
	for _, s := range r.Stores {
		caught := "-"
		switch {
		case s.CaughtUp >= 0:
			caught = short(time.Duration(s.CaughtUp * float64(time.Second)))
		case s.Behind > 0:
			caught = count(s.Behind) + " behind"
		}
		if s.Unseen > 0 {
			caught += fmt.Sprintf("; %d samples not seen", s.Unseen)
		}
		row("commit to "+s.Store, s.CommitToRow, caught)
	}
	if err := t.flush(); err != nil {
		return err
	}
	for _, s := range r.Stores {
		if s.Problem != "" {
			writeNotAsked(w, s.Store+": "+s.Problem)
		}
	}
	if r.Stopped != "" {
		fmt.Fprintf(w, "the load ended early: %s\n", r.Stopped)
	}
	if r.Unknown > 0 {
		fmt.Fprintf(w, "%d connections were lost in COMMIT: their events are not counted\n", r.Unknown)
	}
	tenants := "tenants " + printable(r.Prefix[0]) + " to " + printable(r.Prefix[1])
	switch {
	case r.LeftBecause != "":
		fmt.Fprintf(w, "%d entities of %s were not deleted: %s\n", r.Left, tenants, r.LeftBecause)
	case r.Left > 0:
		fmt.Fprintf(w, "%d entities of %s stay\n", r.Left, tenants)
	default:
		fmt.Fprintf(w, "its entities are deleted again: their deletes are on the way\n")
	}
	return nil
}

// perSecond prints a rate.
func perSecond(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.2g", v)
	}
	return count(int64(v))
}

// millis prints milliseconds with the digits that say something.
func millis(v float64) string {
	switch {
	case v < 10:
		return fmt.Sprintf("%.1f ms", v)
	case v < 1000:
		return fmt.Sprintf("%.0f ms", v)
	}
	return short(time.Duration(v * float64(time.Millisecond)))
}
