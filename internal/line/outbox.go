package line

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/outbox"
	outboxkafka "github.com/slotline/slotline/outbox/kafka"
)

// OutboxStatus is how the lanes and their tables stand.
type OutboxStatus struct {
	Line  string        `json:"line"`
	At    time.Time     `json:"at"`
	Lanes []OutboxLane  `json:"lanes"`
	views []outbox.View // as read
}

// OutboxLane is one lane and its table.
type OutboxLane struct {
	LaneStatus
	Partitions int    `json:"partitions"`        // the last, MAXVALUE, apart
	Ahead      int    `json:"partitions_ahead"`  // empty ones beyond the greatest id
	Behind     int    `json:"partitions_behind"` // wholly behind the cursor: to be purged
	Overrun    bool   `json:"overrun"`           // ids have reached the last partition
	Rows       int64  `json:"rows"`              // as InnoDB estimates
	Bytes      int64  `json:"bytes"`
	Waits      string `json:"purge_waits,omitempty"` // why what lies behind cannot be purged now
}

func laneStatus(v outbox.View) LaneStatus {
	return LaneStatus{Lane: v.Lane, Owner: v.Owner, Cursor: v.Cursor, Backlog: v.Events(), OldestSeconds: v.OldestAge.Seconds(),
		SavedSeconds: v.SavedAge.Seconds(), GapsHot: v.GapsHot, GapsCold: v.GapsCold, Parked: v.Parked}
}

// OutboxStatus reads the lanes and their tables.
func (l *Line) OutboxStatus(ctx context.Context) (*OutboxStatus, error) {
	db, err := l.outboxDB()
	if err != nil {
		return nil, err
	}
	where := "outbox " + l.Config.Outbox.DSN.Place()
	views, err := outbox.Views(ctx, db, l.Config.Outbox.Lanes)
	if err != nil {
		return nil, mysqldb.Wrap(err, "SL9006", where)
	}
	partitions, err := outbox.Partitions(ctx, db, l.Config.Outbox.Lanes)
	if err != nil {
		return nil, mysqldb.Wrap(err, "SL9006", where)
	}
	s := &OutboxStatus{Line: l.Config.Line, At: time.Now().UTC().Truncate(time.Millisecond), views: views}
	for i, v := range views {
		p := partitions[i]
		s.Lanes = append(s.Lanes, OutboxLane{LaneStatus: laneStatus(v), Partitions: p.Partitions, Ahead: p.Ahead, Behind: p.Behind,
			Overrun: p.Overrun, Rows: p.Rows, Bytes: p.Bytes, Waits: p.Waits})
	}
	return s, nil
}

// Halted says whether a lane stands still.
func (s *OutboxStatus) Halted() bool {
	for _, v := range s.views {
		if v.HaltedAt != nil {
			return true
		}
	}
	return false
}

// WriteText prints the lanes for a person.
func (s *OutboxStatus) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "%s  %s\n", s.Line, s.At.Format("2006-01-02 15:04:05Z"))
	t := newTable(w, "LANE", "OWNER", "CURSOR", "BACKLOG", "OLDEST", "GAPS hot/cold", "PARKED", "PARTITIONS behind/ahead", "ROWS", "MIB", "PURGE")
	for _, lane := range s.Lanes {
		t.row(append(lane.cells(), fmt.Sprintf("%d %d/%d", lane.Partitions, lane.Behind, lane.Ahead), count(lane.Rows),
			fmt.Sprint(lane.Bytes>>20), lane.purge())...)
	}
	return t.flush()
}

// purge is the last column: what is wrong with a lane's partitions, or ok.
func (l *OutboxLane) purge() string {
	switch {
	case l.Overrun:
		return "ids have reached the last partition: see the relay's log, SL5011"
	case l.Behind > 0 && l.Waits != "":
		return "waits: " + l.Waits
	case l.Behind > 0 && l.Owner == "":
		return "no relay runs: slotline outbox purge"
	case l.Behind > 0:
		return "to be purged"
	}
	return "ok"
}

// OutboxGaps are the ids below the cursors that are not published.
type OutboxGaps struct {
	Line string      `json:"line"`
	Gaps []OutboxGap `json:"gaps"`
}

// OutboxGap is a range of such ids.
type OutboxGap struct {
	Lane  int        `json:"lane"`
	Kind  string     `json:"kind"` // hot, cold, or parked
	From  uint64     `json:"from"`
	To    uint64     `json:"to"`
	Topic string     `json:"partition,omitempty"` // topic/partition that does not take parked ones
	Since *time.Time `json:"since,omitempty"`     // when the event after them was appended
}

// lanes are the lanes that a command is about: all, for −1.
func (l *Line) lanes(lane int) ([]int, error) {
	if lane >= l.Config.Outbox.Lanes || lane < -1 {
		return nil, &fault.Error{Code: "SL9019", Class: fault.Usage,
			What: fmt.Sprintf("line %s has no lane %d: it has 0 to %d", l.Config.Line, lane, l.Config.Outbox.Lanes-1)}
	}
	if lane >= 0 {
		return []int{lane}, nil
	}
	var all []int
	for n := range l.Config.Outbox.Lanes {
		all = append(all, n)
	}
	return all, nil
}

// OutboxGaps lists the gaps of a lane, or of all for −1.
func (l *Line) OutboxGaps(ctx context.Context, lane int) (*OutboxGaps, error) {
	lanes, err := l.lanes(lane)
	if err != nil {
		return nil, err
	}
	db, err := l.outboxDB()
	if err != nil {
		return nil, err
	}
	g := &OutboxGaps{Line: l.Config.Line, Gaps: []OutboxGap{}}
	for _, n := range lanes {
		list, err := outbox.Gaps(ctx, db, n)
		if err != nil {
			return nil, err
		}
		for _, v := range list {
			gap := OutboxGap{Lane: n, Kind: v.Kind, From: v.From, To: v.To}
			if v.Kind != "hot" && v.Kind != "cold" {
				gap.Kind, gap.Topic = "parked", v.Kind
			}
			if !v.Since.IsZero() {
				since := v.Since
				gap.Since = &since
			}
			g.Gaps = append(g.Gaps, gap)
		}
	}
	return g, nil
}

// WriteText prints the gaps for a person.
func (g *OutboxGaps) WriteText(w io.Writer) error {
	if len(g.Gaps) == 0 {
		fmt.Fprintf(w, "%s has no gaps: every id below the cursors is published or a dead letter\n", g.Line)
		return nil
	}
	t := newTable(w, "LANE", "KIND", "FROM", "TO", "IDS", "SINCE", "PARTITION")
	for _, gap := range g.Gaps {
		since := "-"
		if gap.Since != nil {
			since = gap.Since.Format("2006-01-02 15:04:05Z")
		}
		t.row(laneName(gap.Lane), gap.Kind, fmt.Sprint(gap.From), fmt.Sprint(gap.To), count(int64(gap.To-gap.From+1)), since, gap.Topic)
	}
	return t.flush()
}

// OutboxPurge is what a purge did, or would do.
type OutboxPurge struct {
	Line   string      `json:"line"`
	DryRun bool        `json:"dry_run"`
	Lanes  []LanePurge `json:"lanes"`
}

// LanePurge is that of one lane.
type LanePurge struct {
	Lane   int    `json:"lane"`
	Owner  string `json:"owner"`  // the relay that owns the lane, and purges it by itself; "" if none does
	Purged int    `json:"purged"` // partitions
	Rows   uint64 `json:"rows"`   // that went with them
	Behind int    `json:"behind"` // partitions behind the cursor that are left
	Waits  string `json:"waits,omitempty"`
}

// OutboxPurge purges the partitions behind the cursor of a lane, or of all for −1, where no relay does.
func (l *Line) OutboxPurge(ctx context.Context, lane int, dryRun bool) (*OutboxPurge, error) {
	lanes, err := l.lanes(lane)
	if err != nil {
		return nil, err
	}
	if err := l.loadLayout(ctx); err != nil {
		return nil, err
	}
	db, err := l.outboxDB()
	if err != nil {
		return nil, err
	}
	relay := outbox.New(outbox.Options{Config: l.Config, Layout: l.layout, DB: db, Logger: l.Log,
		NewWriter: func(lane int) (outbox.Writer, error) { return outboxkafka.New(l.Config, lane, l.Log) }})
	before, err := l.OutboxStatus(ctx)
	if err != nil {
		return nil, err
	}
	p := &OutboxPurge{Line: l.Config.Line, DryRun: dryRun, Lanes: []LanePurge{}}
	for _, n := range lanes {
		at := LanePurge{Lane: n, Owner: before.Lanes[n].Owner}
		switch {
		case dryRun || at.Owner != "" || before.Lanes[n].Behind == 0:
		case before.views[n].HaltedAt != nil:
			at.Waits = "the lane is halted: slotline status says why"
		default:
			list, waits, err := relay.Purge(ctx, n)
			if err != nil && !fault.Is(err, fault.Fenced) { // one that took the lane meanwhile purges it
				return nil, err
			}
			for _, done := range list {
				at.Purged++
				at.Rows += done.Rows
			}
			at.Waits = waits
		}
		p.Lanes = append(p.Lanes, at)
	}
	after, err := l.OutboxStatus(ctx)
	if err != nil {
		return nil, err
	}
	for i := range p.Lanes {
		at, now := &p.Lanes[i], after.Lanes[p.Lanes[i].Lane]
		at.Owner, at.Behind = now.Owner, now.Behind
		if at.Behind > 0 && at.Waits == "" {
			at.Waits = now.Waits
		}
	}
	return p, nil
}

// Left says whether partitions are left that lie behind a cursor.
func (p *OutboxPurge) Left() bool {
	for _, lane := range p.Lanes {
		if lane.Behind > 0 {
			return true
		}
	}
	return false
}

// WriteText prints what was done for a person.
func (p *OutboxPurge) WriteText(w io.Writer) error {
	for _, at := range p.Lanes {
		text := fmt.Sprintf("%s  lane %s: ", p.Line, laneName(at.Lane))
		if !p.DryRun && at.Owner == "" {
			text += fmt.Sprintf("%d partitions purged, %s rows; ", at.Purged, count(int64(at.Rows)))
		}
		text += fmt.Sprintf("%d behind the cursor", at.Behind)
		if at.Owner != "" {
			text += "; " + at.Owner + " owns the lane and purges them by itself"
		}
		if at.Waits != "" {
			text += "; they wait: " + at.Waits
		}
		fmt.Fprintln(w, text)
	}
	return nil
}
