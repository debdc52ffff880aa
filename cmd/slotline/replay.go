package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/slotline/slotline/internal/line"
	"github.com/slotline/slotline/replay"
)

func replayCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "replay", Args: cobra.NoArgs, Short: "Rebuild a shard's tables from the topics while it serves",
		Long: `Fills tables beside the live ones from the log, compares the two row by row, and swaps them in one step that can be undone
until it is accepted. Readers see nothing of it before the swap. State is in the shard's own database: a job that was cut
off goes on with replay resume, in any process. See docs/replay.md.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	act := func(use, short, long, done string, do func(context.Context, *replay.Replay, string) error) *cobra.Command {
		return &cobra.Command{Use: use + " JOB", Args: cobra.ExactArgs(1), Short: short, Long: long,
			RunE: func(cmd *cobra.Command, args []string) error {
				return withJob(cmd, o, args[0], replay.Options{}, func(ctx context.Context, r *replay.Replay) error {
					if err := do(ctx, r, args[0]); err != nil {
						return err
					}
					fmt.Fprintln(os.Stderr, done)
					return nil
				})
			}}
	}
	cmd.AddCommand(replayPlanCommand(o), replayRebuildCommand(o), replayVerifyCommand(o), replayOLAPCommand(o), replayTenantCommand(o), replayStatusCommand(o),
		act("pause", "Have a job stop; replay resume goes on with it",
			"The process that runs it ends within a few seconds.", "The job stops, and goes on with slotline replay resume.",
			func(ctx context.Context, r *replay.Replay, job string) error { return r.Pause(ctx, job) }),
		replayResumeCommand(o),
		act("abort", "End a job that has not swapped, and drop its tables",
			"Readers and sinks do not notice. A job that has swapped is accepted or undone.", "Aborted.",
			func(ctx context.Context, r *replay.Replay, job string) error { return r.Abort(ctx, job) }),
		act("accept", "Drop the tables that a job has replaced", "After it there is no undo.", "Accepted.",
			func(ctx context.Context, r *replay.Replay, job string) error { return r.Accept(ctx, job) }),
		act("undo", "Have the old tables live again, and drop the rebuilt ones",
			"The old tables are brought up to the log's end first, so that readers never go back.", "Undone.",
			func(ctx context.Context, r *replay.Replay, job string) error { return r.Undo(ctx, job) }))
	return cmd
}

// specFlags say what a job is to do.
type specFlags struct {
	shard string
	spec  replay.Spec
}

func (f *specFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.shard, "shard", "", "`name` of the shard")
	flags.StringSliceVar(&f.spec.Tables, "tables", nil, "logical `tables`, separated by commas; all of the file when not given")
	flags.IntVar(&f.spec.PerSecond, "rate", 0, "`events` a second at most; 0: as fast as the shard takes it")
	flags.DurationVar(&f.spec.YieldAbove, "yield-above", 5*time.Second, "wait while the live sink is further behind than this `time`; 0: never")
}

func (f *specFlags) check() error {
	if f.shard == "" {
		return usageError{errors.New("--shard is needed: slotline status names the shards")}
	}
	if f.spec.PerSecond < 0 || f.spec.YieldAbove < 0 {
		return usageError{errors.New("--rate and --yield-above must not be negative")}
	}
	return nil
}

func replayPlanCommand(o *options) *cobra.Command {
	f := &specFlags{}
	cmd := &cobra.Command{Use: "plan", Args: cobra.NoArgs, Short: "What a rebuild would read, need and touch; changes nothing",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withShard(cmd, o, f, replay.Options{}, func(ctx context.Context, r *replay.Replay) error {
				p, err := r.Plan(ctx, f.spec)
				if err != nil {
					return err
				}
				plan := line.ReplayPlan{Plan: p}
				if err := render(o.output, plan, plan.WriteText); err != nil {
					return err
				}
				return p.Refused
			})
		}}
	f.add(cmd)
	return cmd
}

// addAllow adds the flags that let a job go on where it else would not.
func addAllow(cmd *cobra.Command, empty, dead *bool) {
	cmd.Flags().BoolVar(empty, "allow-empty", false, "go on though the log makes no row of the tables")
	cmd.Flags().BoolVar(dead, "accept-dead", false, "go on though events cannot be applied that the live sink has no dead letter of")
}

// runFlags say how a process runs a job.
type runFlags struct {
	yes, detach bool

	compared *replay.Comparison // what it has found last
}

func (f *runFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&f.detach, "detach", false, "end after the swap; the old tables are brought up to date when undo needs them")
}

func (f *runFlags) options(cmd *cobra.Command) replay.Options {
	ro := replay.Options{Detach: f.detach, Compared: func(c *replay.Comparison) { f.compared = c }}
	if !f.yes {
		ro.Confirm = func(question string) bool { return confirm(cmd, question) }
	}
	return ro
}

// beginJob makes a job and runs it.
func beginJob(cmd *cobra.Command, o *options, f *runFlags, r *replay.Replay, spec replay.Spec) error {
	job, err := r.Begin(cmd.Context(), spec)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "job %s\n", job.Name)
	return runJob(cmd, o, f, r, job)
}

// runJob carries a job on, and prints what one that only verifies has found; that a person said no to a swap is exit status 1.
func runJob(cmd *cobra.Command, o *options, f *runFlags, r *replay.Replay, j *replay.Job) error {
	err := r.Run(cmd.Context(), j.Name)
	if j.Spec.VerifyOnly && f.compared != nil {
		verdict := line.ReplayVerdict{Shard: j.Shard, Comparison: f.compared}
		if rerr := render(o.output, verdict, verdict.WriteText); err == nil {
			err = rerr
		}
	}
	if errors.Is(err, replay.ErrDeclined) {
		fmt.Fprintf(os.Stderr, "%v; next: slotline replay resume %s | slotline replay abort %s\n", err, j.Name, j.Name)
		return exit(exitFailed)
	}
	if errors.Is(err, replay.ErrDiffers) {
		return exit(exitDifferences)
	}
	if err != nil && cmd.Context().Err() != nil {
		fmt.Fprintf(os.Stderr, "stopped; next: slotline replay resume %s\n", j.Name)
		return exit(exitFailed)
	}
	return err
}

func replayRebuildCommand(o *options) *cobra.Command {
	f, rf := &specFlags{}, &runFlags{}
	cmd := &cobra.Command{Use: "rebuild", Args: cobra.NoArgs, Short: "Rebuild tables of a shard beside the live ones, compare, and swap",
		Long: `Asks before it starts and before it swaps. After the swap it keeps the old tables current until accept, undo or Ctrl-C;
both work without it. --detach ends after the swap.`,
		Example: "  slotline replay rebuild --shard s2 --tables flights --rate 20000",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withShard(cmd, o, f, rf.options(cmd), func(ctx context.Context, r *replay.Replay) error {
				p, err := r.Plan(ctx, f.spec)
				if err != nil {
					return err
				}
				if err := (line.ReplayPlan{Plan: p}).WriteText(os.Stderr); err != nil {
					return err
				}
				if p.Refused != nil {
					return p.Refused
				}
				if !rf.yes && !confirm(cmd, "Start? Readers see nothing until the swap.") {
					fmt.Fprintln(os.Stderr, "Nothing was changed.")
					return exit(exitFailed)
				}
				return beginJob(cmd, o, rf, r, f.spec)
			})
		}}
	f.add(cmd)
	rf.add(cmd)
	addAllow(cmd, &f.spec.AllowEmpty, &f.spec.AcceptDead)
	return cmd
}

// olapStores are the stores that tables are compared with, and rebuilt in.
var olapStores = []string{"clickhouse", "doris"}

func replayVerifyCommand(o *options) *cobra.Command {
	f, rf := &specFlags{}, &runFlags{}
	var store string
	cmd := &cobra.Command{Use: "verify", Args: cobra.NoArgs, Short: "Compare every row of a shard with the log, or with an OLAP store; --repair mends the rows that are wrong",
		Long: `Fills tables beside the live ones from the log, compares the two row by row, and drops them. Each row that differs is named
with both versions. --repair has the live rows be as the log makes them, after it has asked, and writes each into
slotline_repair.

With --against clickhouse, or doris, it makes no tables: the shard, or without --shard all of them, is compared with it, by
counts and checksums of each tenant and month, and row by row where those differ. The log decides which side is wrong.
--rate bounds the rows a second.

Exit status: 3 when rows differ and were not mended.`,
		Example: `  slotline replay verify --shard s2 --tables flights
  slotline replay verify --against clickhouse`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if store != "" {
				return verifyAgainst(cmd, o, f, store)
			}
			f.spec.VerifyOnly = true
			return withShard(cmd, o, f, rf.options(cmd), func(_ context.Context, r *replay.Replay) error {
				return beginJob(cmd, o, rf, r, f.spec)
			})
		}}
	f.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&store, "against", "", "compare with the `store`, clickhouse or doris, and not with the log")
	_ = cmd.RegisterFlagCompletionFunc("against", cobra.FixedCompletions(olapStores, cobra.ShellCompDirectiveNoFileComp)) // fails where there is no such flag
	flags.BoolVar(&rf.yes, "yes", false, "do not ask")
	flags.BoolVar(&f.spec.Repair, "repair", false, "have the live rows that are wrong be as the log makes them")
	addAllow(cmd, &f.spec.AllowEmpty, &f.spec.AcceptDead)
	cmd.MarkFlagsMutuallyExclusive("repair", "accept-dead") // it would take away what those events have made
	for _, other := range []string{"repair", "accept-dead", "yield-above"} {
		cmd.MarkFlagsMutuallyExclusive("against", other)
	}
	return cmd
}

// verifyAgainst compares shards with an OLAP store.
func verifyAgainst(cmd *cobra.Command, o *options, f *specFlags, store string) error {
	if f.spec.PerSecond < 0 {
		return usageError{errors.New("--rate must not be negative")}
	}
	l, err := o.openQuiet()
	if err != nil {
		return err
	}
	defer l.Close()
	ao := replay.AgainstOptions{Tables: f.spec.Tables, PerSecond: f.spec.PerSecond, AllowEmpty: f.spec.AllowEmpty, Say: newLines(os.Stderr).say}
	if f.shard != "" {
		ao.Shards = []string{f.shard}
	}
	a, err := l.ReplayAgainst(cmd.Context(), store, ao)
	if a != nil {
		if rerr := render(o.output, a, a.WriteText); err == nil {
			err = rerr
		}
		if err == nil && a.Differ > 0 {
			return exit(exitDifferences)
		}
	}
	return err
}

func replayResumeCommand(o *options) *cobra.Command {
	rf := &runFlags{}
	var allowEmpty, acceptDead bool
	cmd := &cobra.Command{Use: "resume JOB", Args: cobra.ExactArgs(1), Short: "Carry a job on from where it stopped",
		Long: `What the job was begun with goes on to hold: --rate, --yield-above, --repair, --allow-empty, --accept-dead; the last two can be
added here. A process that died keeps its job for another five seconds.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withJob(cmd, o, args[0], rf.options(cmd), func(ctx context.Context, r *replay.Replay) error {
				if allowEmpty || acceptDead {
					if err := r.Allow(ctx, args[0], allowEmpty, acceptDead); err != nil {
						return err
					}
				}
				j, err := r.Job(ctx, args[0])
				if err != nil {
					return err
				}
				return runJob(cmd, o, rf, r, j)
			})
		}}
	rf.add(cmd)
	addAllow(cmd, &allowEmpty, &acceptDead)
	return cmd
}

func replayStatusCommand(o *options) *cobra.Command {
	return &cobra.Command{Use: "status", Args: cobra.NoArgs, Short: "Jobs of all shards and of OLAP stores, and what comes next",
		Long: "Exit status: 1 when a shard could not be asked.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := o.openQuiet()
			if err != nil {
				return err
			}
			defer l.Close()
			jobs, err := l.ReplayJobs(cmd.Context())
			if err != nil {
				return err
			}
			if err := render(o.output, jobs, jobs.WriteText); err != nil {
				return err
			}
			if len(jobs.NotAsked) > 0 {
				return exit(exitFailed)
			}
			return nil
		}}
}

// withShard opens the shard that f names, which it checks first.
func withShard(cmd *cobra.Command, o *options, f *specFlags, ro replay.Options, do func(context.Context, *replay.Replay) error) error {
	if err := f.check(); err != nil {
		return err
	}
	ro.Shard = f.shard
	return withReplay(cmd, o, ro, (*line.Line).Replay, do)
}

// withJob opens the shard that has a job.
func withJob(cmd *cobra.Command, o *options, job string, ro replay.Options, do func(context.Context, *replay.Replay) error) error {
	return withReplay(cmd, o, ro, func(l *line.Line, ctx context.Context, ro replay.Options) (*replay.Replay, error) {
		return l.ReplayOf(ctx, job, ro)
	}, do)
}

func withReplay(cmd *cobra.Command, o *options, ro replay.Options,
	open func(*line.Line, context.Context, replay.Options) (*replay.Replay, error), do func(context.Context, *replay.Replay) error) error {
	l, err := o.openQuiet()
	if err != nil {
		return err
	}
	defer l.Close()
	ro.Say = newLines(os.Stderr).say
	r, err := open(l, cmd.Context(), ro)
	if err != nil {
		return err
	}
	defer r.Close()
	return do(cmd.Context(), r)
}

// lines prints what a job says: on a terminal a passing line is written over, elsewhere one is printed now and then.
type lines struct {
	w        io.Writer
	terminal bool

	mu      sync.Mutex
	open    bool // the last line is passing, and on a terminal
	stage   string
	printed time.Time // the last passing line, elsewhere
}

// passingEvery is how often a passing line is printed where it cannot be written over.
const passingEvery = 10 * time.Second

func newLines(f *os.File) *lines {
	info, err := f.Stat()
	return &lines{w: f, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

func (l *lines) say(line replay.Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if line.Passing && !l.terminal {
		if line.Stage == l.stage && now.Sub(l.printed) < passingEvery {
			return
		}
		l.stage, l.printed = line.Stage, now
	}
	begin, end := "", "\n"
	if l.open {
		begin = "\r\x1b[K"
	}
	if l.open = line.Passing && l.terminal; l.open {
		end = ""
	}
	fmt.Fprintf(l.w, "%s%s %-8s %s%s", begin, now.UTC().Format(time.TimeOnly), line.Stage, line.Text, end)
}
