package line

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/outbox"
	"github.com/slotline/slotline/sinks/olap/intent"
	"github.com/slotline/slotline/sinks/olap/rollup"
)

// Status is every stage of a line, as its tables tell it: it asks neither Kafka nor the processes.
type Status struct {
	Line        string       `json:"line"`
	LayoutEpoch int64        `json:"layout_epoch"`
	At          time.Time    `json:"at"`
	Unreachable string       `json:"outbox_unreachable,omitempty"` // why the outbox database did not answer: lanes and lags are not known
	Lanes       []LaneStatus `json:"lanes"`
	Sinks       []SinkStatus `json:"sinks"`
	Halted      []HaltStatus `json:"halted"`
}

// LaneStatus is one lane of the outbox.
type LaneStatus struct {
	Lane          int     `json:"lane"`
	Owner         string  `json:"owner"` // "" when no relay owns it
	Cursor        uint64  `json:"cursor"`
	Backlog       int64   `json:"backlog"` // ids beyond the cursor; those of rolled-back transactions count too
	OldestSeconds float64 `json:"oldest_seconds"`
	SavedSeconds  float64 `json:"saved_seconds"`
	GapsHot       uint64  `json:"gaps_hot"`
	GapsCold      uint64  `json:"gaps_cold"`
	Parked        uint64  `json:"parked"`
}

// SinkStatus is one sink at one store: a MySQL shard, or the whole of an OLAP sink.
type SinkStatus struct {
	Name         string         `json:"name"` // mysql/s1, clickhouse, doris
	Partitions   int            `json:"partitions"`
	Owned        int            `json:"owned"`
	Owners       []string       `json:"owners"`
	Lag          int64          `json:"lag"`                 // offsets published and not applied
	IdleSeconds  float64        `json:"idle_seconds"`        // since the last move of the lagging partition that has waited longest; 0 without lag
	WaitsFor     string         `json:"waits_for,omitempty"` // the shard that does not answer and that lagging partitions are of, too
	RowsPerSec   float64        `json:"events_per_second"`
	Halted       int            `json:"halted"`
	Unreachable  string         `json:"unreachable,omitempty"` // why the store did not answer
	Rollups      *RollupStatus  `json:"rollups,omitempty"`     // of a sink that keeps some
	Retired      *RetiredMonths `json:"retired,omitempty"`     // of a shard that has retired some
	progressRows []progress.Row
	alive        map[string]bool // owners whose lease runs; nil where owners have none
	still, sure  bool            // a lagging partition that waits for no other shard stands still; and had lag all the time
}

// RollupStatus is how far a sink's rollups are behind.
type RollupStatus struct {
	LagSeconds float64 `json:"lag_seconds"` // since the first event that a rollup does not have
	Pairs      int64   `json:"pairs"`       // of tenant and day, to be computed
	Fills      int     `json:"fills"`       // rollups that are to be filled from the whole table
}

// text is what the state of the sink says.
func (r *RollupStatus) text() string {
	switch {
	case r.Fills > 0:
		return fmt.Sprintf("%d rollups are being filled", r.Fills)
	case r.Pairs > 0:
		return "rollups " + short(time.Duration(r.LagSeconds*float64(time.Second))) + " behind"
	}
	return "rollups up to date"
}

// HaltStatus is one halted partition of a sink, or a halted lane.
type HaltStatus struct {
	Sink      string    `json:"sink"` // or outbox
	Topic     string    `json:"topic,omitempty"`
	Partition int32     `json:"partition"` // or the lane
	Since     time.Time `json:"since"`
	Code      string    `json:"code"`
	Text      string    `json:"text"`
}

// sampleGap is the time between the two samples that rates come from.
const sampleGap = 500 * time.Millisecond

// Status reads the tables of the line, twice for rates. A database that does not answer is shown as such; it does not hide
// the others.
func (l *Line) Status(ctx context.Context) (*Status, error) {
	silent, err := l.layoutFromAnywhere(ctx)
	if err != nil {
		return nil, err
	}
	s := &Status{Line: l.Config.Line, LayoutEpoch: l.layout.Epoch(), At: time.Now().UTC().Truncate(time.Millisecond),
		Lanes: []LaneStatus{}, Sinks: []SinkStatus{}, Halted: []HaltStatus{}}
	stores := l.sinkStores()
	s.isSilent(silent, stores)
	before := l.sinkRows(ctx, stores)
	began := time.Now()
	select {
	case <-ctx.Done():
		return nil, interrupted(ctx)
	case <-time.After(sampleGap):
	}
	// The lanes are read before the sinks' second sample: what was published then must be in the lag of the sinks.
	var views []outbox.View
	if silent == nil {
		views, silent = l.laneViews(ctx)
		s.isSilent(silent, stores)
	}
	for i := range before { // what did not answer just now is not waited for twice
		if before[i].Unreachable != "" {
			stores[i].silent = before[i].Unreachable
		}
	}
	known := &laneEnds{ends: map[event.Partition]int64{}, before: map[event.Partition]int64{}}
	for _, v := range views {
		s.Lanes = append(s.Lanes, laneStatus(v))
		if v.HaltedAt != nil {
			s.Halted = append(s.Halted, HaltStatus{Sink: "outbox", Partition: int32(v.Lane), Since: v.HaltedAt.UTC(), Code: v.HaltCode, Text: v.HaltText})
		}
		known.add(v.Ends, v.SavedAge)
	}
	lanes := len(s.Halted)
	for {
		s.Sinks, s.Halted = l.sinkRows(ctx, stores), s.Halted[:lanes]
		waits := l.waitsFor(s.Sinks)
		for i := range s.Sinks {
			s.Halted = append(s.Halted, s.Sinks[i].measure(before[i], known, waits, time.Now(), time.Since(began).Seconds())...)
		}
		if ctx.Err() != nil {
			return nil, interrupted(ctx)
		}
		// After idle minutes the last move says nothing: whether a sink goes on with what has come is watched.
		if time.Since(began) > watched || !slices.ContainsFunc(s.Sinks, func(k SinkStatus) bool { return k.still && !k.sure }) {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(sampleGap):
		}
	}
	return s, nil
}

// laneEnds is what the lanes say of the partitions that they publish to.
type laneEnds struct {
	ends   map[event.Partition]int64 // the offsets after the last event
	before map[event.Partition]int64 // those that were stored when a sink that stands still since would be stalled
}

func (k *laneEnds) add(ends map[event.Partition]int64, age time.Duration) {
	for p, end := range ends {
		k.ends[p] = max(k.ends[p], end)
		if age >= stalled {
			k.before[p] = max(k.before[p], end)
		}
	}
}

// waitsFor are the partitions of the shards that do not answer: no other shard goes on with these.
func (l *Line) waitsFor(sinks []SinkStatus) map[event.Partition]string {
	waits := map[event.Partition]string{}
	for _, k := range sinks {
		name, isShard := strings.CutPrefix(k.Name, "mysql/")
		if !isShard || k.Unreachable == "" {
			continue
		}
		shard, _ := l.layout.ShardIndex(name)
		for _, topic := range l.Config.Topics() {
			for _, n := range l.layout.ShardPartitions(shard) {
				waits[event.Partition{Topic: topic, Number: n}] = k.Name
			}
		}
	}
	return waits
}

// laneViews are the lanes as their tables tell them.
func (l *Line) laneViews(ctx context.Context) ([]outbox.View, error) {
	db, err := l.outboxDB()
	if err != nil {
		return nil, err
	}
	ask, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	views, err := outbox.Views(ask, db, l.Config.Outbox.Lanes)
	if err != nil && tooLate(ctx, ask) {
		err = errNoAnswer
	}
	return views, mysqldb.Wrap(err, "SL9006", "outbox "+l.Config.Outbox.DSN.Place())
}

// interrupted is the error of a look that a person ended.
func interrupted(ctx context.Context) error {
	return &fault.Error{Code: "SL9024", Class: fault.Transient, Err: ctx.Err(), What: "interrupted before every server had answered"}
}

// isSilent notes that the outbox database did not answer. Sinks whose state is there cannot be asked either.
func (s *Status) isSilent(err error, stores []sinkStore) {
	if err == nil {
		return
	}
	s.Unreachable = err.Error()
	for i := range stores {
		if stores[i].inOutbox {
			stores[i].silent = s.Unreachable
		}
	}
}

// Partial says whether a store did not answer.
func (s *Status) Partial() bool {
	return s.Unreachable != "" || slices.ContainsFunc(s.Sinks, func(k SinkStatus) bool { return k.Unreachable != "" })
}

// sinkStore is where the progress of a sink is kept: a MySQL shard, or the state database of an OLAP sink.
type sinkStore struct {
	name, sink, place, leases string
	db                        *sql.DB
	inOutbox                  bool   // it is the outbox database
	silent                    string // why it is not asked again
}

// sinkStores are those of all sinks. One whose secret cannot be resolved is silent, as one that does not answer.
func (l *Line) sinkStores() (stores []sinkStore) {
	for i, shard := range l.Config.Shards {
		db, err := l.shardDB(i)
		stores = append(stores, sinkStore{name: "mysql/" + shard.Name, sink: "mysql", place: shard.DSN.Place(), db: db, silent: errorText(err)})
	}
	for _, name := range l.olapSinks() {
		db, err := l.stateDB()
		stores = append(stores, sinkStore{name: name, sink: name, place: l.Config.Sinks.State.Place(), leases: intent.Table, db: db, silent: errorText(err),
			inOutbox: l.Config.Sinks.State.Key() == l.Config.Outbox.DSN.Key()})
	}
	return stores
}

// sinkRows reads the progress rows of each store, all at once: one that does not answer hides none of the others.
func (l *Line) sinkRows(ctx context.Context, stores []sinkStore) []SinkStatus {
	list := make([]SinkStatus, len(stores))
	topics := l.Config.Topics()
	var wg sync.WaitGroup
	for i, at := range stores {
		list[i] = SinkStatus{Name: at.name, Owners: []string{}, Unreachable: at.silent}
		if at.silent != "" {
			continue
		}
		wg.Go(func() {
			s := SinkStatus{Name: at.name, Owners: []string{}}
			ask, cancel := context.WithTimeout(ctx, checkTimeout)
			defer cancel()
			rows, err := progress.List(ask, at.db, at.sink)
			if err == nil && at.leases != "" {
				s.alive, err = leaseOwners(ask, at.db, at.leases, at.sink)
			}
			if err == nil && at.leases == intent.Table && len(l.Config.Rollups) > 0 {
				var lag rollup.Lag
				lag, err = rollup.ReadLag(ask, at.db, at.sink, l.Config.Rollups)
				s.Rollups = &RollupStatus{LagSeconds: lag.Oldest.Seconds(), Pairs: lag.Pairs, Fills: lag.Fills}
			}
			if err == nil && at.sink == "mysql" {
				s.Retired, _, err = retiredMonths(ask, at.db, l.Config.Line, at.name)
			}
			switch {
			case mysqldb.Number(err) == 1146:
				err = &fault.Error{Code: "SL9007", Class: fault.Usage, Err: err, What: at.name + " " + at.place + ": not applied yet", Do: "slotline apply"}
			case err != nil && tooLate(ctx, ask):
				err = errNoAnswer
			}
			s.Unreachable = errorText(mysqldb.Wrap(err, "SL9007", at.name+" "+at.place))
			name, isShard := strings.CutPrefix(at.name, "mysql/")
			shard, _ := l.layout.ShardIndex(name)
			for _, r := range rows {
				if slices.Contains(topics, r.Topic) && (!isShard || slices.Contains(l.layout.ShardPartitions(shard), r.Number)) {
					s.progressRows = append(s.progressRows, r) // not those of another line, or of a layout of before
				}
			}
			list[i] = s
		})
	}
	wg.Wait()
	return list
}

// leaseOwners are the owners whose lease of a group of the sink runs, by the database's clock.
func leaseOwners(ctx context.Context, db *sql.DB, table, sink string) (map[string]bool, error) {
	rows, err := db.QueryContext(ctx, "SELECT owner FROM "+mysqldb.Ident(table)+" WHERE sink = ? AND owner <> '' AND lease_until > UTC_TIMESTAMP(6)", sink)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	alive := map[string]bool{}
	for rows.Next() {
		var owner string
		if err := rows.Scan(&owner); err != nil {
			return nil, err
		}
		alive[owner] = true
	}
	return alive, rows.Err()
}

// stalled is how long a sink with lag may stand still before status says so: longer than any pause of a sink that runs.
const stalled = 15 * time.Second

// watched is how long status looks for a move before it says that of a sink that may have got something to apply just now.
const watched = 5 * time.Second

// measure fills in what rows and log ends say, and returns the halted partitions. waits names what partitions wait for.
func (s *SinkStatus) measure(before SinkStatus, known *laneEnds, waits map[event.Partition]string, now time.Time, seconds float64) (halted []HaltStatus) {
	was := map[event.Partition]int64{}
	for _, r := range before.progressRows {
		was[r.Partition] = r.Next
	}
	var moved int64
	for _, r := range s.progressRows {
		s.Partitions++
		if r.Owner != "" && (s.alive == nil || s.alive[r.Owner]) {
			s.Owned++
			if !slices.Contains(s.Owners, r.Owner) {
				s.Owners = append(s.Owners, r.Owner)
			}
		}
		from, ok := was[r.Partition]
		if ok {
			moved += max(0, r.Next-from)
		}
		if lag := known.ends[r.Partition] - r.Next; lag > 0 {
			s.Lag += lag
			idle := now.Sub(r.UpdatedAt)
			s.IdleSeconds = max(s.IdleSeconds, idle.Seconds())
			switch {
			case s.Name != waits[r.Partition] && waits[r.Partition] != "" && strings.HasPrefix(s.Name, "mysql/"):
				s.WaitsFor = waits[r.Partition]
			case idle > stalled && r.HaltedAt.IsZero():
				s.still = true
				s.sure = s.sure || known.before[r.Partition] > r.Next
			}
		}
		if !r.HaltedAt.IsZero() {
			s.Halted++
			halted = append(halted, HaltStatus{Sink: s.Name, Topic: r.Topic, Partition: r.Number, Since: r.HaltedAt.UTC(), Code: r.HaltCode, Text: r.HaltText})
		}
	}
	slices.Sort(s.Owners)
	s.RowsPerSec = float64(moved) / seconds
	return halted
}

// WriteText prints the status for a person.
func (s *Status) WriteText(w io.Writer) error {
	head := fmt.Sprintf("%s  layout epoch %d  %s", s.Line, s.LayoutEpoch, s.At.Format("2006-01-02 15:04:05Z"))
	if n := len(s.Halted); n > 0 {
		head += fmt.Sprintf("  %d halted", n)
	}
	fmt.Fprintln(w, head)
	if s.Unreachable != "" {
		writeNotAsked(w, s.Unreachable)
		fmt.Fprintln(w, "  its lanes are not shown, nor how far the sinks are behind")
	} else if err := s.writeLanes(w); err != nil {
		return err
	}
	t := newTable(w, "SINK", "PARTITIONS", "OWNERS", "LAG", "LAST MOVE", "EVENTS/S", "STATE")
	for _, k := range s.Sinks {
		moved, owners, lag := "-", strings.Join(k.Owners, " "), count(k.Lag)+" ev"
		if k.Lag > 0 {
			moved = short(time.Duration(k.IdleSeconds*float64(time.Second))) + " ago"
		}
		if owners == "" {
			owners = "none"
		}
		if s.Unreachable != "" {
			lag = "?"
		}
		if k.Unreachable != "" {
			t.row(k.Name, "?", "?", "?", "?", "?", k.state())
			continue
		}
		t.row(k.Name, fmt.Sprintf("%d of %d", k.Owned, k.Partitions), owners, lag, moved, fmt.Sprintf("%.0f", k.RowsPerSec), k.state())
	}
	if err := t.flush(); err != nil {
		return err
	}
	for _, k := range s.Sinks {
		if k.Unreachable != "" && k.Unreachable != s.Unreachable {
			writeNotAsked(w, k.Unreachable)
		}
		if k.Retired != nil {
			k.Retired.writeText(w)
		}
	}
	for _, g := range groupHalts(s.Halted) {
		fmt.Fprintf(w, "HALTED  %s, since %s\n", g.what(), g.Since.Format("2006-01-02 15:04:05Z"))
		for line := range strings.SplitSeq(g.Text, "\n") {
			fmt.Fprintln(w, "  "+strings.TrimPrefix(line, "  "))
		}
	}
	return nil
}

func (s *Status) writeLanes(w io.Writer) error {
	t := newTable(w, "OUTBOX LANE", "OWNER", "CURSOR", "BACKLOG", "OLDEST", "GAPS hot/cold", "PARKED")
	for _, lane := range s.Lanes {
		t.row(lane.cells()...)
	}
	return t.flush()
}

// cells are a lane's columns, from its number to its parked ids.
func (l *LaneStatus) cells() []string {
	owner, oldest := cmp.Or(l.Owner, "none"), "-"
	if l.OldestSeconds > 0 {
		oldest = short(time.Duration(l.OldestSeconds * float64(time.Second)))
	}
	return []string{laneName(l.Lane), owner, fmt.Sprint(l.Cursor), count(l.Backlog), oldest,
		fmt.Sprintf("%d/%d", l.GapsHot, l.GapsCold), count(int64(l.Parked))}
}

// state is the last column: what is wrong with a sink, or ok.
func (k *SinkStatus) state() string {
	switch {
	case k.Unreachable != "":
		return "not asked"
	case k.Halted > 0:
		return fmt.Sprintf("%d halted", k.Halted)
	case k.Owned == 0:
		return "not running"
	case k.Owned < k.Partitions:
		return "taking over"
	case k.still:
		return "stalled: does its process run?"
	case k.WaitsFor != "":
		return "waits for " + k.WaitsFor
	}
	if k.Rollups != nil {
		return "ok, " + k.Rollups.text()
	}
	return "ok"
}

// haltGroup are partitions of one sink that are halted for the same reason.
type haltGroup struct {
	HaltStatus
	partitions []string
}

func (g *haltGroup) what() string {
	switch {
	case g.Topic == "":
		return "outbox lane " + laneName(int(g.Partition))
	case len(g.partitions) == 1:
		return fmt.Sprintf("%s, %s partition %s", g.Sink, g.Topic, g.partitions[0])
	}
	return fmt.Sprintf("%s, %s partitions %s", g.Sink, g.Topic, strings.Join(g.partitions, " "))
}

// groupHalts puts partitions together that have the same sink, topic and text.
func groupHalts(halts []HaltStatus) (groups []*haltGroup) {
	for _, h := range halts {
		i := slices.IndexFunc(groups, func(g *haltGroup) bool {
			return h.Topic != "" && g.Sink == h.Sink && g.Topic == h.Topic && g.Text == h.Text
		})
		if i < 0 {
			groups, i = append(groups, &haltGroup{HaltStatus: h}), len(groups)
		}
		if h.Since.Before(groups[i].Since) {
			groups[i].Since = h.Since
		}
		groups[i].partitions = append(groups[i].partitions, fmt.Sprint(h.Partition))
	}
	return groups
}

func laneName(lane int) string { return fmt.Sprintf("%02d", lane) }

// writeNotAsked prints why something was not asked, and what to do.
func writeNotAsked(w io.Writer, text string) {
	fmt.Fprintln(w, "NOT ASKED  "+text)
}

// errorText is all that an error says; "" for none.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
