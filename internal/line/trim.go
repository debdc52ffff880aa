package line

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slotline/slotline/archive"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/outbox"
	"github.com/slotline/slotline/replay"
)

// Trim is what the topics can do without.
type Trim struct {
	Line             string           `json:"line"`
	Place            string           `json:"place"` // of the archive
	OlderThanSeconds int64            `json:"older_than_seconds"`
	DryRun           bool             `json:"dry_run"`
	Parts            []archive.Trim   `json:"partitions"`
	NotAsked         []NotAskedReason `json:"not_asked"` // what did not answer: its partitions stay as they are

	line    *Line
	archive *archive.Archive
}

// Trim looks what the topics hold that is older than so much, is in the archive, and is needed by no one. It reads the files that
// hold it, and changes nothing. say is told of each partition whose files were read.
func (l *Line) Trim(ctx context.Context, olderThan time.Duration, say func(string)) (*Trim, error) {
	a, err := archive.Open(l.Config, l.Log)
	if err != nil {
		return nil, err
	}
	t := &Trim{Line: l.Config.Line, Place: a.Place(), OlderThanSeconds: int64(olderThan.Seconds()), DryRun: true, line: l, archive: a}
	needs, err := t.needs(ctx)
	if err != nil {
		return nil, err
	}
	t.Parts, err = a.Trims(ctx, olderThan, needs, say)
	return t, err
}

// Remove removes what was found, as far as nobody needs it by now: it may be long since somebody was asked.
func (t *Trim) Remove(ctx context.Context) error {
	needs, err := t.needs(ctx)
	if err != nil {
		return err
	}
	t.DryRun = false
	return t.archive.Trim(ctx, t.Parts, needs)
}

// Any says that there is something to remove.
func (t *Trim) Any() bool {
	return slices.ContainsFunc(t.Parts, func(p archive.Trim) bool { return p.Becomes > p.Start })
}

// Failed says that something was not asked, or that a partition has a fault.
func (t *Trim) Failed() bool {
	return len(t.NotAsked) > 0 || slices.ContainsFunc(t.Parts, func(p archive.Trim) bool { return p.Problem != "" })
}

// Events are those that go, or have gone, of so many partitions.
func (t *Trim) Events() (events int64, partitions int) {
	for _, p := range t.Parts {
		if p.Becomes > p.Start {
			events, partitions = events+p.Records, partitions+1
		}
	}
	return events, partitions
}

// WriteText prints a line for each partition.
func (t *Trim) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "%s: archive %s\n", t.Line, t.Place)
	was, is, done := "BEGINS AT", "WOULD BEGIN AT", "would be removed"
	if !t.DryRun {
		was, is, done = "BEGAN AT", "BEGINS AT", "removed"
	}
	table := newTable(w, "TOPIC", "PARTITION", was, is, "EVENTS", "HELD BY")
	for _, p := range t.Parts {
		held := strings.Join(p.HeldBy, ", ")
		if held == "" {
			held = "-"
		}
		table.row(p.Topic, fmt.Sprint(p.Partition), fmt.Sprint(p.Start), fmt.Sprint(p.Becomes), fmt.Sprint(p.Records), held)
	}
	if err := table.flush(); err != nil {
		return err
	}
	for _, p := range t.Parts {
		if p.Problem != "" {
			fmt.Fprintf(w, "x %s\n", p.Problem)
		}
	}
	for _, n := range t.NotAsked {
		fmt.Fprintf(w, "NOT ASKED  %s: %s\n", n.Stage, n.Why)
	}
	events, partitions := t.Events()
	_, err := fmt.Fprintf(w, "%d events of %d partitions %s\n", events, partitions, done)
	return err
}

// standing is how far somebody has come in a partition.
type standing struct {
	by string // as a person names it
	at event.Position
}

// needs asks from which offset on each partition's topic is needed: by the lanes of the outbox, which read the topic's tail when
// they are taken over, and by whatever applies events to tables. Whoever cannot be asked needs all, and is in NotAsked.
func (t *Trim) needs(ctx context.Context) (map[event.Partition][]archive.Need, error) {
	l := t.line
	if err := l.loadLayout(ctx); err != nil {
		return nil, err
	}
	t.NotAsked = []NotAskedReason{}
	views, err := l.laneViews(ctx)
	if err != nil {
		return nil, err
	}
	stand := lanesStand(views, l.partitionsOf(""))
	stores := l.sinkStores()
	found, errs := make([][]standing, len(stores)), make([]error, len(stores))
	var wg sync.WaitGroup
	for i, s := range stores {
		wg.Go(func() {
			ask, cancel := context.WithTimeout(ctx, checkTimeout)
			defer cancel()
			found[i], errs[i] = l.storeStands(ask, s)
			if errs[i] != nil && tooLate(ctx, ask) {
				errs[i] = mysqldb.Wrap(errNoAnswer, codeTrim, s.name+" "+s.place)
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, interrupted(ctx)
	}
	for i, s := range stores {
		if errs[i] != nil {
			t.NotAsked = append(t.NotAsked, NotAskedReason{s.name, errs[i].Error()})
			found[i] = nil
			for _, p := range l.partitionsOf(s.name) {
				found[i] = append(found[i], fromStart(s.name, p))
			}
		}
		stand = append(stand, found[i]...)
	}
	return l.needsOf(ctx, stand)
}

// codeTrim is for a store that cannot say what it has applied.
const codeTrim = "SL9027"

func fromStart(by string, p event.Partition) standing {
	return standing{by, event.Position{Partition: p, LeaderEpoch: -1}}
}

// partitionsOf are those that a store meets: a shard some, everything else all.
func (l *Line) partitionsOf(store string) (parts []event.Partition) {
	shard, isShard := strings.CutPrefix(store, "mysql/")
	at, _ := l.layout.ShardIndex(shard)
	meets := l.layout.ShardPartitions(at)
	for _, topic := range l.Config.Topics() {
		for n := range int32(l.layout.Partitions()) {
			if !isShard || slices.Contains(meets, n) {
				parts = append(parts, event.Partition{Topic: topic, Number: n})
			}
		}
	}
	return parts
}

// lanesStand is where the scan of a take-over begins in each partition, of the lane that begins first.
func lanesStand(views []outbox.View, parts []event.Partition) (stand []standing) {
	for _, p := range parts {
		at := fromStart("outbox", p)
		for i, v := range views {
			if from := max(0, v.Ends[p]-outbox.TailBack); i == 0 || from < at.at.Next {
				at.at.Next = from
			}
		}
		stand = append(stand, at)
	}
	return stand
}

// storeStands asks a store how far its tables are, and those of jobs beside them.
func (l *Line) storeStands(ctx context.Context, s sinkStore) ([]standing, error) {
	if s.silent != "" {
		return nil, errors.New(s.silent)
	}
	where := s.name + " " + s.place
	jobs, err := l.storeJobs(ctx, s)
	if err != nil {
		return nil, err
	}
	// After the jobs: what a job that begins now needs is in the archive.
	rows, err := progress.List(ctx, s.db, "")
	if err != nil {
		return nil, mysqldb.Wrap(err, codeTrim, where)
	}
	return tablesStand(s.name, s.sink, l.partitionsOf(s.name), rows, jobs), nil
}

// storeJobs are the jobs of a shard, or of an OLAP store, which must be there.
func (l *Line) storeJobs(ctx context.Context, s sinkStore) ([]replay.Job, error) {
	if shard, isShard := strings.CutPrefix(s.name, "mysql/"); isShard {
		r, err := l.openReplay(replay.Options{Shard: shard})
		if err != nil {
			return nil, err
		}
		defer r.Close()
		return r.Jobs(ctx)
	}
	store, err := l.openOLAP(s.name, l.Config, l.layout, s.db, "")
	if err != nil {
		return nil, err
	}
	defer store.Close()
	_, err = store.Query(ctx, "SELECT 1 AS there", 1, func([]string) error { return nil }, func([]json.RawMessage) error { return nil })
	if err != nil {
		return nil, err
	}
	jobs, err := replay.OLAPJobs(ctx, s.db)
	return slices.DeleteFunc(jobs, func(j replay.Job) bool { return j.Shard != s.name }), err
}

// tablesStand is how far the tables of a store are in each of its partitions: those of the sink, those that a job fills, and old
// ones that a job keeps current. Tables whose progress is not there need the log from its beginning.
func tablesStand(store, sink string, parts []event.Partition, rows []progress.Row, jobs []replay.Job) (stand []standing) {
	seen := map[string]map[event.Partition]bool{store: {}}
	for _, j := range jobs {
		if !j.Stage.Ended() {
			seen["job "+j.Name] = map[event.Partition]bool{}
		}
	}
	for _, r := range rows {
		by, beside := store, strings.TrimPrefix(r.Sink, sink+"__") // of a job: mysql__rb_<job>, mysql__old_<job>
		switch {
		case !slices.Contains(parts, r.Partition):
			continue // another line's, or of a layout of before
		case beside != r.Sink:
			_, job, _ := strings.Cut(beside, "_")
			by = "job " + job
		case r.Sink != sink:
			continue
		}
		stand = append(stand, standing{by, r.Position()})
		if seen[by] != nil {
			seen[by][r.Partition] = true
		}
	}
	for _, by := range slices.Sorted(maps.Keys(seen)) {
		for _, p := range parts {
			if !seen[by][p] {
				stand = append(stand, fromStart(by, p))
			}
		}
	}
	return stand
}

// needsOf are the needs of whoever stands at these positions: what lies above them, or all where the log is another than the one
// that was applied.
func (l *Line) needsOf(ctx context.Context, stand []standing) (map[event.Partition][]archive.Need, error) {
	cl, err := l.kafkaClient(ctx, "archive")
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	needs := map[event.Partition][]archive.Need{}
	for len(stand) > 0 { // Kafka is asked for one position of each partition at a time
		var at []event.Position
		var now, later []standing
		asked := map[event.Partition]bool{}
		for _, s := range stand {
			if asked[s.at.Partition] {
				later = append(later, s)
				continue
			}
			asked[s.at.Partition] = true
			at, now = append(at, s.at), append(now, s)
		}
		logs, err := kafka.Inspect(ctx, cl, at)
		if err != nil {
			return nil, err
		}
		for _, s := range now {
			p := s.at.Partition
			needs[p] = append(needs[p], need(s, logs[p]))
		}
		stand = later
	}
	return needs, nil
}

func need(s standing, log kafka.Log) archive.Need {
	n := archive.Need{By: s.by, From: s.at.Next}
	if _, gap := resumeAt(s.at, log); gap || log.Gone || log.Err != nil {
		n.From = 0
	}
	return n
}
