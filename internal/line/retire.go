package line

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/mysql"
)

// Retirement is what the shards give up by months.keep.
type Retirement struct {
	Line     string            `json:"line"`
	Keep     int               `json:"keep"`
	DryRun   bool              `json:"dry_run"`
	Shards   []ShardRetirement `json:"shards"`
	NotAsked []NotAskedReason  `json:"not_asked"` // shards that did not answer, or have a rebuild: nothing is changed there

	plans []*mysql.Retirement // of Shards
	sink  *mysql.Sink
	line  *Line
}

// ShardRetirement is one shard's part.
type ShardRetirement struct {
	Store  string         `json:"store"`  // mysql/s1
	Below  string         `json:"below"`  // 202411: months before it are retired; none
	Before string         `json:"before"` // what was retired before
	Tables []RetiredTable `json:"tables"` // that go, oldest first per table
	Failed string         `json:"failed,omitempty"`
}

// RetiredTable is one month table.
type RetiredTable struct {
	Table string `json:"table"` // flights_202410
	Rows  int64  `json:"rows"`  // an estimate
	Bytes int64  `json:"bytes"`
}

// Retirement asks every shard what it has to give up, and changes nothing. One that does not answer is listed in NotAsked.
func (l *Line) Retirement(ctx context.Context) (*Retirement, error) {
	if l.Config.Months.Keep == 0 {
		return nil, &fault.Error{Code: "SL9021", Class: fault.Usage, What: l.Config.File + ": months.keep is forever: nothing is retired",
			Write: "months: { keep: 24 }, to keep this month and the 24 before it"}
	}
	if err := l.loadLayout(ctx); err != nil {
		return nil, err
	}
	sink, err := mysql.New(mysql.Options{Config: l.Config, Layout: l.layout, Logger: l.Log})
	if err != nil {
		return nil, err
	}
	l.onClose(func() { _ = sink.Close() })
	r := &Retirement{Line: l.Config.Line, Keep: l.Config.Months.Keep, DryRun: true, Shards: []ShardRetirement{}, NotAsked: []NotAskedReason{}, sink: sink, line: l}
	rebuilds, err := l.rebuilds(ctx)
	if err != nil {
		return nil, err
	}
	plans, errs := make([]*mysql.Retirement, len(l.Config.Shards)), make([]error, len(l.Config.Shards))
	var wg sync.WaitGroup
	for i, shard := range l.Config.Shards {
		wg.Go(func() {
			ask, cancel := context.WithTimeout(ctx, checkTimeout)
			defer cancel()
			plans[i], errs[i] = sink.Retirement(ask, shard.Name)
			if ask.Err() != nil && ctx.Err() == nil {
				errs[i] = fmt.Errorf("no answer within %v", checkTimeout)
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, interrupted(ctx)
	}
	for i, shard := range l.Config.Shards {
		if rebuilds[shard.Name] != nil {
			errs[i] = rebuilds[shard.Name]
		}
		if errs[i] != nil {
			r.NotAsked = append(r.NotAsked, NotAskedReason{"mysql/" + shard.Name, errs[i].Error()})
			continue
		}
		at := ShardRetirement{Store: "mysql/" + shard.Name, Below: plans[i].Below.String(), Before: plans[i].Before.String(), Tables: []RetiredTable{}}
		for _, t := range plans[i].Tables {
			at.Tables = append(at.Tables, RetiredTable{t.Name, t.Rows, t.Bytes})
		}
		r.plans, r.Shards = append(r.plans, plans[i]), append(r.Shards, at)
	}
	return r, nil
}

// rebuilds are, by shard, why nothing can be retired there now: a job has tables of each month, and a swap would bring a
// retired one back.
func (l *Line) rebuilds(ctx context.Context) (map[string]error, error) {
	all, err := l.ReplayJobs(ctx)
	if err != nil {
		return nil, err
	}
	list := map[string]error{}
	for _, job := range all.Jobs {
		if !job.Stage.Ended() {
			list[job.Shard] = &fault.Error{Code: "SL9022", Class: fault.Usage,
				What: fmt.Sprintf("shard %s is being rebuilt by job %s, at stage %s; its months stay until that has ended", job.Shard, job.Name, job.Stage),
				Do:   "slotline replay status says what comes next; then run slotline tables retire again"}
		}
	}
	return list, nil
}

// Any says that there is something to give up: tables, or months whose late events would still make tables.
func (r *Retirement) Any() bool {
	for _, s := range r.Shards {
		if len(s.Tables) > 0 || s.Below != s.Before {
			return true
		}
	}
	return false
}

// Failed says that a shard was not asked, or did not give up all that it should.
func (r *Retirement) Failed() bool {
	for _, s := range r.Shards {
		if s.Failed != "" {
			return true
		}
	}
	return len(r.NotAsked) > 0
}

// Retire does in each shard what was found. What fails in one keeps none of the others from it; all of it may be repeated.
func (r *Retirement) Retire(ctx context.Context, who string) error {
	rebuilds, err := r.line.rebuilds(ctx) // it may be long since somebody was asked
	if err != nil {
		return err
	}
	r.DryRun = false
	for i, plan := range r.plans {
		err := rebuilds[plan.Shard]
		if err == nil {
			err = r.sink.Retire(ctx, plan, who)
		}
		if err != nil {
			r.Shards[i].Failed = err.Error()
		}
	}
	return nil
}

// WriteText prints a line per table that goes.
func (r *Retirement) WriteText(w io.Writer) error {
	done := "dropped"
	if r.DryRun {
		done = "would be dropped"
	}
	t := newTable(w, "STORE", "TABLE", "ROWS ABOUT", "BYTES", "")
	rows := 0
	for _, s := range r.Shards {
		said := done
		if s.Failed != "" {
			said = "see below"
		}
		for _, table := range s.Tables {
			rows++
			t.row(s.Store, table.Table, count(table.Rows), size(table.Bytes), said)
		}
	}
	if rows > 0 {
		if err := t.flush(); err != nil {
			return err
		}
	}
	for _, s := range r.Shards {
		switch {
		case s.Failed != "":
			fmt.Fprintf(w, "FAILED  %s: %s\n", s.Store, s.Failed)
		case s.Below == s.Before:
			fmt.Fprintf(w, "%s: months before %s are retired, as before\n", s.Store, s.Below)
		case r.DryRun:
			fmt.Fprintf(w, "%s: months before %s would be retired (so far: %s)\n", s.Store, s.Below, s.Before)
		default:
			fmt.Fprintf(w, "%s: months before %s are retired\n", s.Store, s.Below)
		}
	}
	for _, n := range r.NotAsked {
		fmt.Fprintf(w, "NOT ASKED  %s: %s\n", n.Stage, n.Why)
	}
	return nil
}

// RetiredMonths is what a store has retired.
type RetiredMonths struct {
	Store string `json:"store"`
	Below string `json:"below"` // 202411: months before it are retired
	At    string `json:"at"`
	By    string `json:"by"`
}

// retiredMonths is nil where nothing was retired.
func retiredMonths(ctx context.Context, q progress.Querier, line, store string) (*RetiredMonths, partitioner.Month, error) {
	r, _, err := progress.ReadRetired(ctx, q, line)
	if err != nil || r.Below == partitioner.NoMonth {
		return nil, partitioner.NoMonth, err
	}
	return &RetiredMonths{store, r.Below.String(), r.At.UTC().Format("2006-01-02 15:04:05Z"), r.By}, r.Below, nil
}

func (r *RetiredMonths) writeText(w io.Writer) {
	fmt.Fprintf(w, "RETIRED  %s: months before %s, on %s by %s\n", r.Store, r.Below, r.At, r.By)
}
