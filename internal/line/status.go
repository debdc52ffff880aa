package line

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/outbox"
)

// Status is every stage of a line, as its tables tell it: it asks neither Kafka nor the processes.
type Status struct {
	Line        string       `json:"line"`
	LayoutEpoch int64        `json:"layout_epoch"`
	At          time.Time    `json:"at"`
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
	Name         string   `json:"name"` // mysql/s1, clickhouse
	Partitions   int      `json:"partitions"`
	Owned        int      `json:"owned"`
	Owners       []string `json:"owners"`
	Lag          int64    `json:"lag"`            // offsets published and not applied
	BehindAge    float64  `json:"behind_seconds"` // since the last move of the partition that has waited longest; 0 without lag
	RowsPerSec   float64  `json:"events_per_second"`
	Halted       int      `json:"halted"`
	Unreachable  string   `json:"unreachable,omitempty"` // why the store did not answer
	progressRows []progress.Row
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

// Status reads the tables of the line, twice for rates. A shard that does not answer is shown as such; it does not hide
// the others.
func (l *Line) Status(ctx context.Context) (*Status, error) {
	if err := l.loadLayout(ctx); err != nil {
		return nil, err
	}
	db, err := l.outboxDB()
	if err != nil {
		return nil, err
	}
	s := &Status{Line: l.Config.Line, LayoutEpoch: l.layout.Epoch(), At: time.Now().UTC().Truncate(time.Second),
		Lanes: []LaneStatus{}, Sinks: []SinkStatus{}, Halted: []HaltStatus{}}
	before, err := l.sinkRows(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(sampleGap):
	}
	// The lanes are read before the sinks' second sample: what was published then must be in the lag of the sinks.
	views, err := outbox.Views(ctx, db, l.Config.Outbox.Lanes)
	if err != nil {
		return nil, mysqldb.Wrap(err, "SL9006", "outbox "+l.Config.Outbox.DSN.Place())
	}
	s.Sinks, err = l.sinkRows(ctx)
	if err != nil {
		return nil, err
	}
	seconds := time.Since(began).Seconds()
	ends := map[event.Partition]int64{}
	for _, v := range views {
		s.Lanes = append(s.Lanes, LaneStatus{Lane: v.Lane, Owner: v.Owner, Cursor: v.Cursor, Backlog: v.Events(),
			OldestSeconds: v.OldestAge.Seconds(), SavedSeconds: v.SavedAge.Seconds(), GapsHot: v.GapsHot, GapsCold: v.GapsCold, Parked: v.Parked})
		if v.HaltedAt != nil {
			s.Halted = append(s.Halted, HaltStatus{Sink: "outbox", Partition: int32(v.Lane), Since: v.HaltedAt.UTC(), Code: v.HaltCode, Text: v.HaltText})
		}
		for p, end := range v.Ends {
			ends[p] = max(ends[p], end)
		}
	}
	for i := range s.Sinks {
		s.Halted = append(s.Halted, s.Sinks[i].measure(before[i], ends, s.At, seconds)...)
	}
	return s, nil
}

// Partial says whether a store did not answer.
func (s *Status) Partial() bool {
	return slices.ContainsFunc(s.Sinks, func(k SinkStatus) bool { return k.Unreachable != "" })
}

// sinkRows reads the progress rows of each store.
func (l *Line) sinkRows(ctx context.Context) ([]SinkStatus, error) {
	var list []SinkStatus
	read := func(name, sink, place string, db *sql.DB, err error) error {
		if err != nil {
			return err // a secret that cannot be resolved: not an outage
		}
		s := SinkStatus{Name: name, Owners: []string{}}
		if s.progressRows, err = progress.List(ctx, db, sink); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			s.Unreachable = firstLine(mysqldb.Wrap(err, "SL9007", name+" "+place).Error())
		}
		list = append(list, s)
		return nil
	}
	for i, shard := range l.Config.Shards {
		db, err := l.shardDB(i)
		if err := read("mysql/"+shard.Name, "mysql", shard.DSN.Place(), db, err); err != nil {
			return nil, err
		}
	}
	if l.Config.Sinks.ClickHouse != nil {
		db, err := l.stateDB()
		if err := read("clickhouse", "clickhouse", l.Config.Sinks.State.Place(), db, err); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// measure fills in what rows and log ends say, and returns the halted partitions.
func (s *SinkStatus) measure(before SinkStatus, ends map[event.Partition]int64, now time.Time, seconds float64) (halted []HaltStatus) {
	was := map[event.Partition]int64{}
	for _, r := range before.progressRows {
		was[r.Partition] = r.Next
	}
	var moved int64
	for _, r := range s.progressRows {
		s.Partitions++
		if r.Owner != "" {
			s.Owned++
			if !slices.Contains(s.Owners, r.Owner) {
				s.Owners = append(s.Owners, r.Owner)
			}
		}
		if lag := ends[r.Partition] - r.Next; lag > 0 {
			s.Lag += lag
			s.BehindAge = max(s.BehindAge, now.Sub(r.UpdatedAt).Seconds())
		}
		if from, ok := was[r.Partition]; ok {
			moved += max(0, r.Next-from)
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
	t := newTable(w, "OUTBOX LANE", "OWNER", "CURSOR", "BACKLOG", "OLDEST", "GAPS hot/cold", "PARKED")
	for _, lane := range s.Lanes {
		owner, oldest := lane.Owner, "-"
		if owner == "" {
			owner = "none"
		}
		if lane.OldestSeconds > 0 {
			oldest = short(time.Duration(lane.OldestSeconds * float64(time.Second)))
		}
		t.row(laneName(lane.Lane), owner, fmt.Sprint(lane.Cursor), count(lane.Backlog), oldest,
			fmt.Sprintf("%d/%d", lane.GapsHot, lane.GapsCold), count(int64(lane.Parked)))
	}
	if err := t.flush(); err != nil {
		return err
	}
	t = newTable(w, "SINK", "PARTITIONS", "OWNERS", "LAG", "BEHIND", "EVENTS/S", "STATE")
	for _, k := range s.Sinks {
		state, behind, owners := "ok", "-", strings.Join(k.Owners, " ")
		if k.Lag > 0 {
			behind = short(time.Duration(k.BehindAge * float64(time.Second)))
		}
		if owners == "" {
			owners = "none"
		}
		switch {
		case k.Unreachable != "":
			state = k.Unreachable
		case k.Halted > 0:
			state = fmt.Sprintf("%d halted", k.Halted)
		case k.Owned < k.Partitions:
			state = "not running"
			if k.Owned > 0 {
				state = "taking over"
			}
		}
		t.row(k.Name, fmt.Sprintf("%d of %d", k.Owned, k.Partitions), owners, count(k.Lag)+" ev", behind, fmt.Sprintf("%.0f", k.RowsPerSec), state)
	}
	if err := t.flush(); err != nil {
		return err
	}
	for _, h := range s.Halted {
		what := fmt.Sprintf("%s, %s partition %d", h.Sink, h.Topic, h.Partition)
		if h.Topic == "" {
			what = fmt.Sprintf("outbox lane %02d", h.Partition)
		}
		fmt.Fprintf(w, "HALTED  %s, since %s\n", what, h.Since.Format("15:04:05Z"))
		for line := range strings.SplitSeq(h.Text, "\n") {
			fmt.Fprintln(w, "  "+strings.TrimPrefix(line, "  "))
		}
	}
	return nil
}

func laneName(lane int) string { return fmt.Sprintf("%02d", lane) }

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
