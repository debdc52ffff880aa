package replay

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/sinks/mysql"
)

// Plan is what a job would read, need and touch.
type Plan struct {
	Shard      string        `json:"shard"`
	Server     string        `json:"server"`
	Tables     []string      `json:"tables"`          // logical
	Physical   int           `json:"physical_tables"` // live ones
	Rows       int64         `json:"rows"`            // the server's estimate
	Bytes      int64         `json:"bytes"`           // of data and indexes, now; as much is needed beside
	Partitions int           `json:"partitions"`
	Events     int64         `json:"events"`   // offsets of the log to be read, those of other shards and tables too
	Archived   int64         `json:"archived"` // of them, those that only the archive has
	About      time.Duration `json:"about"`    // until the swap, roughly
	AboutWhole time.Duration `json:"about_whole_shard"`
	AllTables  bool          `json:"all_tables"` // of the shard: both are the same
	PerSecond  int           `json:"per_second"`
	YieldAbove time.Duration `json:"yield_above"`
	Notes      []string      `json:"notes"`
	// Refused is why it cannot be done; nil when it can.
	Refused error `json:"-"`
}

// What a small server that serves besides does with ease (docs/replay.md): plans go by it, since how fast a job is shows only
// while it runs.
const (
	planRead    = 100_000 // events a second that are read and passed over
	planApply   = 10_000  // events a second that are applied
	planCompare = 50_000  // rows a second
	planTable   = 300 * time.Millisecond
	planBegin   = 3 * time.Second
)

// about is how long a job takes up to its swap: of so many events the share is the job's, in so many tables, and so many rows
// are compared. perSecond bounds the events that are applied, 0 does not. It is pure.
func about(events int64, share float64, rows int64, tables, perSecond int) time.Duration {
	took := func(applied, read float64) float64 {
		seconds := applied/planApply + (read-applied)/planRead
		if perSecond > 0 {
			seconds = max(seconds, applied/float64(perSecond))
		}
		return seconds
	}
	own := share * float64(events)
	seconds := took(own, float64(events))
	if rows > 0 { // it may read the log twice, and apply the newest of each row alone (worthReading)
		seconds = min(seconds, took(min(own, float64(rows)), 2*float64(events)))
	}
	seconds += float64(rows) / planCompare
	return planBegin + time.Duration(tables)*planTable + time.Duration(seconds*float64(time.Second))
}

// Plan looks at what a job would meet, and changes nothing.
func (r *Replay) Plan(ctx context.Context, spec Spec) (*Plan, error) {
	spec, err := r.normal(spec)
	if err != nil {
		return nil, err
	}
	p := &Plan{Shard: r.o.Shard, Tables: spec.Tables, PerSecond: spec.PerSecond, YieldAbove: spec.YieldAbove}
	if err := r.db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&p.Server); err != nil {
		return nil, r.wrap(err)
	}
	if err := r.checkEngine(p.Server); err != nil {
		p.Refused = err
		return p, nil
	}
	s, err := r.sinkOf(&Job{Spec: spec}, liveSink, "")
	if err != nil {
		return nil, err
	}
	defer s.Close()
	size, err := r.sizeOf(ctx, s, spec)
	if err != nil {
		return nil, err
	}
	p.Physical, p.Rows, p.Bytes = size.tables, size.rows, size.bytes
	physical, err := s.PhysicalTables(ctx, r.db, r.o.Shard)
	if err != nil {
		return nil, err
	}
	for _, t := range physical {
		if !slices.Contains(spec.Tables, t.Table.Name) {
			continue
		}
		for _, d := range t.Differs {
			p.Notes = append(p.Notes, t.Name+": "+d+"; the rebuilt table is as the file says")
		}
		for _, b := range t.Beside {
			p.Notes = append(p.Notes, t.Name+": "+b+"; the rebuilt table does not have it")
		}
	}
	err = r.planLog(ctx, p)
	p.About = about(p.Events, size.share(), p.Rows, p.Physical, p.PerSecond)
	p.AboutWhole = about(p.Events, 1, size.allRows, size.allTables, p.PerSecond)
	p.AllTables = p.Physical == size.allTables
	return p, err
}

// size is how large a job's tables are in a shard, beside all of the file's there. Rows are the server's estimate.
type size struct {
	tables, allTables int
	rows, allRows     int64
	bytes             int64
}

// share is the part of the rows that is the job's tables'.
func (s size) share() float64 {
	if s.allRows == 0 {
		return 1
	}
	return float64(s.rows) / float64(s.allRows)
}

func (r *Replay) sizeOf(ctx context.Context, s *mysql.Sink, spec Spec) (n size, err error) {
	list, _, err := s.TableSizes(ctx, r.o.Shard)
	for _, t := range list {
		n.allTables, n.allRows = n.allTables+1, n.allRows+t.Rows
		if slices.Contains(spec.Tables, t.Table) {
			n.tables, n.rows, n.bytes = n.tables+1, n.rows+t.Rows, n.bytes+t.Bytes
		}
	}
	return n, err
}

// checkEngine refuses a server on which RENAME under LOCK TABLES is not one step.
func (r *Replay) checkEngine(version string) error {
	refused := &fault.Error{Code: codeEngine, Class: fault.Fatal,
		What: fmt.Sprintf("shard %s runs on %s: a rebuild needs MySQL 8.0.13 or later", r.o.Shard, version),
		Why:  "the swap renames tables while they are locked, all at once or not at all",
		Do:   "rebuild into a new shard's database on such a server"}
	if strings.Contains(strings.ToLower(version), "mariadb") {
		return refused
	}
	var numbers [3]int
	for i, text := range strings.SplitN(version, ".", 3) {
		digits := strings.IndexFunc(text, func(c rune) bool { return c < '0' || c > '9' })
		if digits >= 0 {
			text = text[:digits]
		}
		numbers[i], _ = strconv.Atoi(text)
	}
	if slices.Compare(numbers[:], []int{8, 0, 13}) < 0 {
		return refused
	}
	return nil
}

// planLog looks whether the log holds everything that the shard was made from.
func (r *Replay) planLog(ctx context.Context, p *Plan) error {
	rows, err := r.partitions(ctx)
	if err != nil {
		return err
	}
	var parts []event.Partition
	for _, row := range rows {
		parts = append(parts, row.Partition)
	}
	logs, holes, err := r.history().stand(ctx, "replay", parts)
	if err != nil {
		return err
	}
	p.Partitions = len(rows)
	for _, row := range rows {
		log := logs[row.Partition]
		switch {
		case row.TopicID != (event.TopicID{}) && log.TopicID != (event.TopicID{}) && row.TopicID != log.TopicID:
			holes = append(holes, fmt.Sprintf("%s partition %d: the topic was deleted and made again", row.Topic, row.Number))
		case row.Next > log.End && !log.Gone:
			holes = append(holes, fmt.Sprintf("%s partition %d ends at offset %d, the shard has applied up to %d", row.Topic, row.Number, log.End, row.Next))
		}
		p.Events, p.Archived = p.Events+log.Stable-log.Start, p.Archived+log.Archived
	}
	gaps, err := r.gaps(ctx)
	if err != nil {
		return err
	}
	if holes = append(holes, gaps...); len(holes) > 0 {
		p.Refused = r.history().hole(holes...)
	}
	return nil
}

// gaps are the accepted gaps after which the log was another: it began again at a lower offset.
func (r *Replay) gaps(ctx context.Context) (holes []string, err error) {
	rows, err := r.db.QueryContext(ctx, "SELECT `topic`,`part`,`from_off`,`to_off` FROM `slotline_gap` WHERE `sink`=? AND `to_off`<=`from_off`", liveSink)
	if err != nil {
		return nil, r.wrap(err)
	}
	defer rows.Close()
	for rows.Next() {
		var topic string
		var part int32
		var from, to int64
		if err := rows.Scan(&topic, &part, &from, &to); err != nil {
			return nil, r.wrap(err)
		}
		if slices.Contains(r.o.Config.Topics(), topic) {
			holes = append(holes, fmt.Sprintf("%s partition %d went from offset %d back to %d by accept-gap: the log before is gone", topic, part, from, to))
		}
	}
	return holes, r.wrap(rows.Err())
}
