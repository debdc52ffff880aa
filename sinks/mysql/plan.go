package mysql

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/checkup"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/internal/plan"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/partitioner"
)

// Plan says what each shard lacks of what the file and the layout want, and how apply would mend it. Nothing is dropped
// or narrowed, ever.
func (s *Sink) Plan(ctx context.Context) ([]plan.Change, error) {
	st := s.state.Load()
	scans := make([]*scan, len(st.shards))
	for i, sh := range st.shards {
		var err error
		if scans[i], err = sh.scan(ctx); err != nil {
			return nil, err
		}
	}
	var changes []plan.Change
	for i, sc := range scans {
		changes = append(changes, sc.serverNotes()...)
		changes = append(changes, sc.progressChanges(s.seeds(st.layout, int32(i), scans))...)
		changes = append(changes, sc.retiredChange(scans)...)
		changes = append(changes, sc.newTables()...)
		changes = append(changes, sc.alterations()...)
	}
	return changes, nil
}

// scan is a shard as a plan finds it.
type scan struct {
	shard    *shard
	engine   *engine
	heading  string
	tables   map[string]*physical
	progress map[event.Partition]event.Position // where this sink's rows stand
	below    partitioner.Month                  // what is retired
	retires  bool                               // it has the row that says so
	server   *mysqldb.Server
}

func (sh *shard) scan(ctx context.Context) (*scan, error) {
	if sh.control == nil {
		_, err := sh.open(ctx) // says so
		return nil, err
	}
	e, err := sh.probe(ctx)
	if err != nil {
		return nil, err
	}
	sc := &scan{shard: sh, engine: e, heading: sh.heading(e), progress: make(map[event.Partition]event.Position)}
	if sc.tables, err = readSchema(ctx, sh.control, ""); err != nil {
		return nil, sh.wrap(err)
	}
	if err := progress.CheckFormat(ctx, sh.control, sh.where()); err != nil {
		return nil, sh.wrap(err)
	}
	if sc.tables[progress.Table] != nil {
		rows, err := progress.List(ctx, sh.control, sh.sink.name)
		if err != nil {
			return nil, sh.wrap(err)
		}
		for _, r := range rows {
			sc.progress[r.Partition] = r.Position()
		}
	}
	r, seeded, err := progress.ReadRetired(ctx, sh.control, sh.sink.line)
	if err != nil {
		return nil, sh.wrap(err)
	}
	sc.below, sc.retires = r.Below, seeded
	sc.server, err = mysqldb.ReadServer(ctx, sh.control)
	return sc, sh.wrap(err)
}

func (sc *scan) change(sign byte, what, note string, do func(ctx context.Context) error) plan.Change {
	return plan.Change{Where: sc.heading, Sign: sign, What: what, Note: note, Do: do}
}

// serverNotes are settings that change what a person may expect. slotline doctor looks at more.
func (sc *scan) serverNotes() []plan.Change {
	var changes []plan.Change
	for _, f := range sc.server.Settings(shardNeeds) {
		if f != (checkup.Finding{}) {
			changes = append(changes, sc.change(plan.Note, f.What, f.Why+": "+f.Do, nil))
		}
	}
	return changes
}

// seeds are the progress rows that a shard lacks, with where each begins: at the least position that other shards have
// for the partition, or at offset 0 when no shard has any. A partition with rows of broadcast tables, which every shard
// holds, is applied to a new shard from offset 0 too: the others drop what they have. Where the log begins later than
// that, events were lost before they were applied: the sink halts there and says so.
func (s *Sink) seeds(l *partitioner.Layout, shard int32, scans []*scan) []event.Position {
	var seeds []event.Position
	for _, topic := range s.topics {
		for _, number := range l.ShardPartitions(shard) {
			part := event.Partition{Topic: topic, Number: number}
			if _, seeded := scans[shard].progress[part]; seeded {
				continue
			}
			var least event.Position
			some := false
			for _, other := range scans {
				if at, ok := other.progress[part]; ok && (!some || at.Next < least.Next) {
					least, some = at, true
				}
			}
			if !some || number == l.Broadcast() && slices.Contains(s.broadcasts, topic) {
				least = event.Position{Partition: part, LeaderEpoch: -1}
			}
			seeds = append(seeds, least)
		}
	}
	return seeds
}

func (sc *scan) progressChanges(seeds []event.Position) []plan.Change {
	if len(seeds) == 0 && sc.tables[progress.Table] != nil && sc.tables[progress.GapTable] != nil {
		return nil
	}
	sh := sc.shard
	return []plan.Change{sc.change(plan.Create, fmt.Sprintf("slotline_progress (%d rows)", len(seeds)), "", func(ctx context.Context) error {
		for _, statement := range progress.DDL() {
			if _, err := sh.control.ExecContext(ctx, statement); err != nil {
				return sh.wrap(err)
			}
		}
		for _, at := range seeds {
			if err := progress.Seed(ctx, sh.control, sh.sink.name, at); err != nil {
				return sh.wrap(err)
			}
		}
		return nil
	})}
}

// retiredChange makes the row that says what is retired. A shard that is new begins where the others are.
func (sc *scan) retiredChange(scans []*scan) []plan.Change {
	if sc.retires {
		return nil
	}
	var below partitioner.Month
	for _, other := range scans {
		below = max(below, other.below)
	}
	sh := sc.shard
	return []plan.Change{sc.change(plan.Create, progress.RetiredTable, "", func(ctx context.Context) error {
		if _, err := sh.control.ExecContext(ctx, progress.RetiredDDL()); err != nil {
			return sh.wrap(err)
		}
		return sh.wrap(progress.SeedRetired(ctx, sh.control, sh.sink.line, below))
	})}
}

// newTables are the tables that are not there: those without month, and the months that are made ahead.
func (sc *scan) newTables() []plan.Change {
	var changes []plan.Change
	for _, t := range sc.shard.sink.tables {
		var names []string
		var statements []string
		for _, m := range sc.shard.sink.monthsToHave(t.Table) {
			if name := t.Table.PhysicalName(m); sc.tables[name] == nil {
				names = append(names, name)
				statements = append(statements, tableDDL(t.Table, m, sc.engine.dialect))
			}
		}
		if len(names) == 0 {
			continue
		}
		note := ""
		if t.Month != event.None {
			note = "older months when an event needs them"
		}
		changes = append(changes, sc.change(plan.Create, nameRange(names), note, sc.exec(nameRange(names), statements)))
	}
	return changes
}

// alterations compare every physical table with the file. Months that differ in the same way share a line.
func (sc *scan) alterations() []plan.Change {
	type group struct {
		found found
		names []string
	}
	var changes []plan.Change
	for i, t := range sc.shard.sink.tables {
		var groups []*group
		for _, name := range slices.Sorted(maps.Keys(sc.tables)) {
			if index, _, ok := sc.shard.sink.logical(name); !ok || index != i {
				continue
			}
			for _, f := range compare(t.Table, sc.tables[name], sc.engine.dialect) {
				at := slices.IndexFunc(groups, func(g *group) bool { return g.found == f })
				if at < 0 {
					at = len(groups)
					groups = append(groups, &group{found: f})
				}
				groups[at].names = append(groups[at].names, name)
			}
		}
		for _, g := range groups {
			changes = append(changes, sc.alteration(g.names, g.found))
			if note := lateNote(t.Table, g.found); note != "" {
				changes = append(changes, sc.change(plan.Note, t.Name+"."+g.found.column, note, nil))
			}
		}
	}
	return changes
}

func (sc *scan) alteration(names []string, f found) plan.Change {
	what := nameRange(names)
	if f.column != "" {
		what += "." + f.column
	}
	switch f.kind {
	case foundMissing, foundNarrow, foundIndex:
		var statements []string
		for _, name := range names {
			statements = append(statements, "ALTER TABLE "+mysqldb.Ident(name)+" "+f.alter)
		}
		return sc.change(plan.Alter, nameRange(names), f.alter, sc.alter(nameRange(names), statements))
	case foundUnexpected:
		return sc.change(plan.Note, what, f.what, nil)
	}
	remedy := "see docs/mysql-sink.md"
	if e, ok := errors.AsType[*fault.Error](sc.shard.foundError(names[0], f)); ok && f.err == codeUniqueKey {
		remedy = e.Do
	}
	return sc.change(plan.Decide, what, f.what+": "+remedy, nil)
}

// nameRange names one table, or the first and last of several: "flights_202611 .. flights_202701".
func nameRange(names []string) string {
	switch n := len(names); n {
	case 1:
		return names[0]
	case 2:
		return names[0] + ", " + names[1]
	default:
		return fmt.Sprintf("%s .. %s (%d tables)", names[0], names[n-1], n)
	}
}

func (sc *scan) exec(what string, statements []string) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, statement := range statements {
			if _, err := sc.shard.alter.ExecContext(ctx, statement); err != nil {
				return sc.failed(what, err)
			}
		}
		return nil
	}
}

// alter runs ALTER TABLEs, INSTANT where the server can. A change that is there already is no error: apply may be
// repeated after it was cut off.
func (sc *scan) alter(what string, statements []string) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, statement := range statements {
			_, err := sc.shard.alter.ExecContext(ctx, statement+", ALGORITHM=INSTANT")
			switch mysqldb.Number(err) {
			case 1845, 1846, 1221, 1064, 1235: // not INSTANT for this change, or by this server
				_, err = sc.shard.alter.ExecContext(ctx, statement)
			}
			switch mysqldb.Number(err) {
			case 1060, 1061: // the column, or the index, is there
				err = nil
			}
			if err != nil {
				return sc.failed(what, err)
			}
		}
		return nil
	}
}

func (sc *scan) failed(what string, err error) error {
	if denied(err) {
		return sc.shard.deniedError(err)
	}
	return mysqldb.Wrap(err, codeTableNotAltered, fmt.Sprintf("%s, table %s", sc.shard.where(), what))
}
