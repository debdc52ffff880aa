package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/fault"
)

// LatencyBounds are the upper bounds of LaneStatus.Latency, in seconds; one bucket more holds what is above the last.
var LatencyBounds = []float64{0.001, 0.002, 0.003, 0.005, 0.008, 0.012, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}

// LaneStatus is what a relay knows of a lane that it owns, or tries to own. Counters are since Run began.
type LaneStatus struct {
	Lane      int
	Owner     string // of the lease, when this relay has it; "" otherwise
	Since     time.Time
	Cursor    uint64 // saved
	GapsHot   uint64 // ids
	GapsCold  uint64
	Published uint64 // acknowledged by Kafka
	Found     uint64 // in the topic already when this relay took over
	Dead      uint64 // dead letters
	Lost      uint64 // events in the topic whose transactions a failover or a restore lost
	TakeOvers uint64 // times that this relay got the lane's lease
	HandOvers uint64 // times that it gave the lane back drained
	InFlight  int
	Refusals  []Refusal
	// PurgeHeldSince is when partitions behind the cursor began to wait, and PurgeHeld why; zero and nil when none waits.
	PurgeHeldSince   time.Time
	PurgeHeld        error
	PurgedPartitions uint64
	PurgedRows       uint64
	PartitionsAhead  int // empty partitions beyond the greatest id, before the last; 0 when ids have come near it or reached it
	// Latency counts acknowledged events by the time from append to acknowledgement; append is stamped by the
	// emitter's clock, acknowledgement by the relay's.
	Latency    []uint64
	LatencySum float64 // seconds
	Halted     *fault.Error
	Err        error // the last failure, until it is over
}

// laneStats is the shared copy of a LaneStatus. Reader and session write it, Lanes reads it.
type laneStats struct {
	mu sync.Mutex
	s  LaneStatus
}

func newLaneStats(lane int) *laneStats {
	return &laneStats{s: LaneStatus{Lane: lane, Latency: make([]uint64, len(LatencyBounds)+1)}}
}

func (l *laneStats) update(change func(s *LaneStatus)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.s)
}

func (l *laneStats) cursor() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.s.Cursor
}

func (l *laneStats) gaps(hot, cold uint64) {
	l.update(func(s *LaneStatus) { s.GapsHot, s.GapsCold = hot, cold })
}

func (l *laneStats) failed(err error) { l.update(func(s *LaneStatus) { s.Err = err }) }

func (l *laneStats) get() LaneStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.s
	s.Refusals, s.Latency = slices.Clone(s.Refusals), slices.Clone(s.Latency)
	return s
}

// latency adds one acknowledged event; the caller holds the lock through update.
func (s *LaneStatus) latency(d time.Duration) {
	seconds := max(0, d.Seconds())
	i, _ := slices.BinarySearch(LatencyBounds, seconds)
	s.Latency[i]++
	s.LatencySum += seconds
}

// Backlog is how far a lane is behind, as the database tells it: true also when no relay runs.
type Backlog struct {
	Lane       int
	Cursor     uint64
	MaxID      uint64        // the greatest committed id
	OldestAge  time.Duration // since the append of the first row beyond the cursor; 0 when there is none
	SavedAge   time.Duration // since the lane's row was last saved
	Owner      string        // "" when the lease is free or has run out
	OwnerEpoch int64
	LeaseLeft  time.Duration // until the lease ends; negative when it has
	Hot        string        // gaps, as ranges
	HaltedAt   *time.Time
	HaltCode   string
	HaltText   string
	// WentBack says that the table gives out ids at or below the cursor again. A relay that owns the lane finds out and
	// reads the table anew. Only Views fills it in: asking costs too much for admission.
	WentBack bool
}

// Refuses says why a service's events are not taken for this lane, by the outbox's bounds; "" if they are. An empty lane takes
// them, whatever rolled-back ids are in it.
func (b Backlog) Refuses(o *config.Outbox) string {
	switch {
	case b.OldestAge > o.BacklogAgeMax:
		return fmt.Sprintf("its oldest unpublished event is %v old, outbox.backlog_age_max is %v", b.OldestAge.Round(time.Second), o.BacklogAgeMax)
	case b.Events() > o.BacklogEventsMax && b.OldestAge > 0:
		return fmt.Sprintf("about %d events are unpublished, outbox.backlog_events_max is %d", b.Events(), o.BacklogEventsMax)
	}
	return ""
}

// Events is an upper bound of the rows that are not published: ids of rolled-back transactions count too, and in a
// table that went back all rows.
func (b Backlog) Events() int64 {
	if b.WentBack {
		return int64(b.MaxID)
	}
	return int64(b.MaxID - min(b.MaxID, b.Cursor))
}

// Querier is a *sql.DB, *sql.Conn or *sql.Tx.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// backlogSQL asks for lanes in one round trip; each subquery is one look into the primary key.
func backlogSQL(lanes []int) string {
	parts := make([]string, len(lanes))
	for i, lane := range lanes {
		parts[i] = fmt.Sprintf("SELECT l.lane, l.cursor_id,"+
			" (SELECT COALESCE(MAX(id), 0) FROM %[1]s),"+
			" (SELECT created_at FROM %[1]s WHERE id > l.cursor_id ORDER BY id LIMIT 1),"+
			" l.saved_at, l.owner, l.owner_epoch, l.lease_until, l.hot, l.halted_at, l.halt_code, l.halt_text, UTC_TIMESTAMP(6)"+
			" FROM slotline_lane l WHERE l.lane = %[2]d", LaneTable(lane), lane)
	}
	return strings.Join(parts, " UNION ALL ")
}

// Backlogs asks the database how far each lane is behind. The connection's time zone does not matter; its parseTime
// may be on or off.
func Backlogs(ctx context.Context, db Querier, lanes int) ([]Backlog, error) {
	all := make([]int, lanes)
	for i := range all {
		all[i] = i
	}
	return BacklogsOf(ctx, db, all)
}

// BacklogsOf is Backlogs of some lanes. In a transaction it leaves a metadata lock on their tables, as any read does.
func BacklogsOf(ctx context.Context, db Querier, lanes []int) ([]Backlog, error) {
	rows, err := db.QueryContext(ctx, backlogSQL(lanes))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []Backlog
	for rows.Next() {
		var b Backlog
		var oldest, saved, until, halted, now anyTime
		var code, why sql.NullString
		err := rows.Scan(&b.Lane, &b.Cursor, &b.MaxID, &oldest, &saved, &b.Owner, &b.OwnerEpoch, &until, &b.Hot, &halted, &code, &why, &now)
		if err != nil {
			return nil, err
		}
		if oldest.set {
			b.OldestAge = max(0, now.Sub(oldest.Time))
		}
		b.SavedAge = now.Sub(saved.Time)
		b.LeaseLeft = until.Sub(now.Time)
		if b.LeaseLeft <= 0 {
			b.Owner = ""
		}
		if halted.set {
			b.HaltedAt, b.HaltCode, b.HaltText = &halted.Time, code.String, why.String
		}
		list = append(list, b)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if len(list) != len(lanes) {
		return nil, &fault.Error{Code: codeNotApplied, Class: fault.Fatal,
			What: fmt.Sprintf("slotline_lane has rows for %d of %d lanes", len(list), len(lanes)),
			Do:   "slotline apply makes them"}
	}
	return list, nil
}

// anyTime reads a UTC DATETIME whether or not the connection has parseTime; with it, in whatever zone it labels them.
type anyTime struct {
	time.Time
	set bool
}

func (t *anyTime) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*t = anyTime{}
		return nil
	case time.Time:
		// The wall clock is UTC's; the label is the DSN's loc.
		y, m, d := v.Date()
		t.Time, t.set = time.Date(y, m, d, v.Hour(), v.Minute(), v.Second(), v.Nanosecond(), time.UTC), true
		return nil
	case []byte:
		return t.parse(string(v))
	case string:
		return t.parse(v)
	}
	return fmt.Errorf("%T is not a time", v)
}

func (t *anyTime) parse(text string) (err error) {
	t.Time, err = time.Parse("2006-01-02 15:04:05.999999", text)
	t.set = err == nil
	return err
}
