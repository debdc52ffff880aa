package line

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/replay"
)

// Replay opens the jobs of one shard.
func (l *Line) Replay(ctx context.Context, o replay.Options) (*replay.Replay, error) {
	if err := l.loadLayout(ctx); err != nil {
		return nil, err
	}
	return l.openReplay(o)
}

// openReplay is Replay by the layout that was loaded.
func (l *Line) openReplay(o replay.Options) (*replay.Replay, error) {
	o.Config, o.Layout, o.Logger = l.Config, l.layout, l.Log
	return replay.Open(o)
}

// ReplayOf opens the shard that has a job.
func (l *Line) ReplayOf(ctx context.Context, job string, o replay.Options) (*replay.Replay, error) {
	var first error
	for _, shard := range l.Config.Shards {
		r, err := l.replayIf(ctx, shard, job, o)
		if err == nil {
			return r, nil
		}
		if !replay.IsNoJob(err) && first == nil {
			first = err // a shard that does not answer may be the one
		}
	}
	if first != nil {
		return nil, first
	}
	return nil, replay.NoJob(job)
}

func (l *Line) replayIf(ctx context.Context, shard config.Shard, job string, o replay.Options) (*replay.Replay, error) {
	o.Shard = shard.Name
	r, err := l.Replay(ctx, o)
	if err != nil {
		return nil, err
	}
	if _, err := r.Job(ctx, job); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// ReplayJobs are the jobs of all shards.
type ReplayJobs struct {
	Line     string           `json:"line"`
	Jobs     []replay.Job     `json:"jobs"` // by shard, the newest first
	NotAsked []NotAskedReason `json:"not_asked"`
}

// ReplayJobs asks every shard.
func (l *Line) ReplayJobs(ctx context.Context) (*ReplayJobs, error) {
	list := &ReplayJobs{Line: l.Config.Line, Jobs: []replay.Job{}, NotAsked: []NotAskedReason{}}
	if err := l.loadLayout(ctx); err != nil {
		return nil, err
	}
	shards := make([]*replay.Replay, len(l.Config.Shards))
	for i, shard := range l.Config.Shards {
		var err error
		if shards[i], err = l.openReplay(replay.Options{Shard: shard.Name}); err != nil {
			return nil, err
		}
		defer shards[i].Close()
	}
	jobs, errs := make([][]replay.Job, len(shards)), make([]error, len(shards))
	var wg sync.WaitGroup
	for i, r := range shards {
		wg.Go(func() { jobs[i], errs[i] = r.Jobs(ctx) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, interrupted(ctx)
	}
	for i, shard := range l.Config.Shards {
		if errs[i] != nil {
			list.NotAsked = append(list.NotAsked, NotAskedReason{Stage: "shard " + shard.Name, Why: errs[i].Error()})
		}
		list.Jobs = append(list.Jobs, jobs[i]...)
	}
	if len(l.olapSinks()) == 0 {
		return list, nil
	}
	state, err := l.stateDB()
	if err != nil {
		return nil, err
	}
	olap, err := replay.OLAPJobs(ctx, state)
	if err != nil {
		list.NotAsked = append(list.NotAsked, NotAskedReason{Stage: "state of the OLAP sinks", Why: err.Error()})
	}
	list.Jobs = append(list.Jobs, olap...)
	return list, nil
}

// WriteText prints a line for each job.
func (j *ReplayJobs) WriteText(w io.Writer) error {
	if len(j.Jobs) == 0 {
		fmt.Fprintf(w, "%s: no jobs\n", j.Line)
	} else {
		t := newTable(w, "JOB", "SHARD", "STAGE", "SINCE", "RUNS IN", "TABLES", "NEXT")
		for _, job := range j.Jobs {
			owner := "-"
			if job.Running {
				owner = job.Owner
			}
			t.row(job.Name, job.Shard, string(job.Stage), job.MovedAt.UTC().Format("2006-01-02 15:04:05Z"), owner,
				strings.Join(job.Spec.Tables, " "), job.Next())
		}
		if err := t.flush(); err != nil {
			return err
		}
	}
	for _, n := range j.NotAsked {
		fmt.Fprintf(w, "not asked: %s: %s\n", n.Stage, firstLine(n.Why))
	}
	return nil
}

// ReplayVerdict is what comparing a shard with the log has found.
type ReplayVerdict struct {
	Shard string `json:"shard"`
	*replay.Comparison
}

// WriteText prints it in one line; the rows were named before.
func (v ReplayVerdict) WriteText(w io.Writer) error {
	_, err := fmt.Fprintf(w, "shard %s: %d rows of the log, %d equal, %d differ, %d missing, %d extra\n", v.Shard, v.Rows, v.Equal, v.Differ, v.Missing, v.Extra)
	return err
}

// ReplayPlan is a plan, for a person.
type ReplayPlan struct{ *replay.Plan }

// WriteText prints what a job would do.
func (p ReplayPlan) WriteText(w io.Writer) error {
	limit, yields := "as fast as the shard takes it", ""
	if p.PerSecond > 0 {
		limit = fmt.Sprintf("at most %d ev/s", p.PerSecond)
	}
	if p.YieldAbove > 0 {
		yields = ", yields above " + short(p.YieldAbove) + " live lag"
	}
	fmt.Fprintf(w, "shard %s (MySQL %s), %s, %d tables, about %s rows now\n", p.Shard, p.Server, strings.Join(p.Tables, ", "), p.Physical, count(p.Rows))
	state := "complete from offset 0"
	if p.Refused != nil {
		state = "not complete"
	}
	from := ""
	if p.Archived > 0 {
		from = fmt.Sprintf(", %d of them from the archive", p.Archived)
	}
	fmt.Fprintf(w, "  source  %d partitions, %d events of all their shards and tables%s, %s\n", p.Partitions, p.Events, from, state)
	fmt.Fprintf(w, "  space   %s more on the shard's server until accept\n", size(p.Bytes))
	fmt.Fprintf(w, "  time    about %s, %s%s\n", short(p.About), limit, yields)
	if !p.AllTables {
		fmt.Fprintf(w, "          about %s for all tables of the shard\n", short(p.AboutWhole))
	}
	fmt.Fprintf(w, "  swap    one RENAME of %d tables; who reads or writes them waits, 5 to 80 ms for each table, as fast as the disk is\n", p.Physical)
	for _, n := range p.Notes {
		fmt.Fprintf(w, "  !       %s\n", n)
	}
	return nil
}
