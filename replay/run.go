package replay

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/lease"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/mysql"
)

// Options of a Replay. Config, Layout and Shard are needed.
type Options struct {
	Config *config.Config
	Layout *partitioner.Layout // the one in force
	Shard  string
	Logger *slog.Logger
	// Say is told what a job does, a line each time, for a person; nil: nobody listens.
	Say func(Line)
	// Confirm asks a person before the swap; nil: yes.
	Confirm func(question string) bool
	// Compared is told what comparing the tables has found, each time it was done; nil: nobody asks.
	Compared func(*Comparison)
	// Detach has Run end after the swap, in place of keeping the old tables current.
	Detach bool
}

// Line is one thing that a job says.
type Line struct {
	Stage string
	Text  string
	// Passing says that the next line of the same stage takes its place.
	Passing bool
}

// Replay runs and looks after the jobs of one shard. Its methods may be called from any goroutine.
type Replay struct {
	o     Options
	dsn   config.DSN
	db    *sql.DB // short statements
	long  *sql.DB // what may take long: reading tables, dropping them, swapping
	owner string
	place string // of db, in errors; "": the shard
}

const (
	// leaseTTL is how long another process waits for one that died.
	leaseTTL = 5 * time.Second
	// longReadTimeout bounds one statement on large tables.
	longReadTimeout = time.Hour
)

// Open makes the pools; it does no I/O. Close it.
func Open(o Options) (*Replay, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	at := slices.IndexFunc(o.Config.Shards, func(s config.Shard) bool { return s.Name == o.Shard })
	if at < 0 {
		return nil, &fault.Error{Code: codeNoTable, Class: fault.Usage,
			What: fmt.Sprintf("%s has no shard %q", o.Config.File, o.Shard), Do: "name one that stands under shards"}
	}
	r := &Replay{o: o, dsn: o.Config.Shards[at].DSN, owner: lease.NewOwner()}
	var err error
	if r.db, err = mysqldb.Open(r.dsn, mysqldb.Options{MaxConns: 4}); err != nil {
		return nil, err
	}
	if r.long, err = mysqldb.Open(r.dsn, mysqldb.Options{MaxConns: 4, ReadTimeout: longReadTimeout}); err != nil {
		r.db.Close()
		return nil, err
	}
	return r, nil
}

// Close closes the pools.
func (r *Replay) Close() error { return errors.Join(r.db.Close(), r.long.Close()) }

func (r *Replay) say(stage, text string) { r.tell(Line{Stage: stage, Text: text}) }

func (r *Replay) tell(l Line) {
	if r.o.Say != nil {
		r.o.Say(l)
	}
}

// normal fills in and checks the tables of a spec.
func (r *Replay) normal(s Spec) (Spec, error) {
	if len(s.Tables) == 0 {
		for _, t := range r.o.Config.Tables {
			s.Tables = append(s.Tables, t.Name)
		}
	}
	for _, name := range s.Tables {
		if r.o.Config.Table(name) == nil {
			return s, &fault.Error{Code: codeNoTable, Class: fault.Usage,
				What: fmt.Sprintf("%s has no table %q", r.o.Config.File, name), Do: "name tables that stand under tables"}
		}
	}
	slices.Sort(s.Tables)
	s.Tables = slices.Compact(s.Tables)
	return s, nil
}

// Begin makes a job, which Run carries out. The preflight is Plan's.
func (r *Replay) Begin(ctx context.Context, spec Spec) (*Job, error) {
	spec, err := r.normal(spec)
	if err != nil {
		return nil, err
	}
	if p, err := r.Plan(ctx, spec); err != nil {
		return nil, err
	} else if p.Refused != nil {
		return nil, p.Refused
	}
	return r.make(ctx, spec)
}

// Allow adds to what a job that was begun may do: Spec.AllowEmpty, Spec.AcceptDead. It is written down before Run finds it.
func (r *Replay) Allow(ctx context.Context, name string, empty, dead bool) error {
	j, err := r.Job(ctx, name)
	if err != nil {
		return err
	}
	if j.Stage.Ended() {
		return r.stageError(j, "resume")
	}
	if dead && j.Spec.Repair {
		return &fault.Error{Code: codeStage, Class: fault.Usage, What: fmt.Sprintf("job %s repairs: events that cannot be applied are not accepted there", name),
			Why: "it would take away what those events have made", Do: "correct the file, slotline replay abort " + name + ", and begin anew"}
	}
	j.Spec.AllowEmpty, j.Spec.AcceptDead = j.Spec.AllowEmpty || empty, j.Spec.AcceptDead || dead
	body, err := json.Marshal(jobBody{j.Spec, j.read})
	if err != nil {
		return err
	}
	_, err = r.db.ExecContext(ctx, "UPDATE `slotline_job` SET `body`=? WHERE `job`=?", string(body), name)
	return r.wrap(err)
}

// Run carries a job on, from the stage it is at, until it is observed by nobody any more: ctx ends, or another command
// takes it. It returns nil then. A job that another process runs is taken over when its lease has run out.
func (r *Replay) Run(ctx context.Context, name string) error {
	j, err := r.Job(ctx, name)
	if err != nil {
		return err
	}
	switch j.Stage {
	case StageShadow, StageReplay, StageVerify, StageSwap, StageObserve:
	default:
		return r.stageError(j, "resume")
	}
	if err := r.want(ctx, name, wantRun); err != nil {
		return err
	}
	return r.with(ctx, name, true, func(ctx context.Context, h *lease.Held, j *Job) error {
		if j.Layout != r.o.Layout.Epoch() && j.Stage != StageObserve {
			return r.newFeed(j, "").layoutChanged()
		}
		if j.Spec.VerifyOnly {
			return r.verifyOnly(ctx, h, j)
		}
		if j.Stage != StageObserve {
			if err := r.rebuild(ctx, h, j); err != nil {
				return err
			}
		}
		if r.o.Detach {
			r.say("done", r.nextText(j))
			return nil
		}
		return r.observe(ctx, h, j)
	})
}

func (r *Replay) stageError(j *Job, what string) error {
	do := "slotline replay status"
	if !j.Stage.Ended() {
		do = fmt.Sprintf("slotline replay %s %s", next(j.Stage), j.Name)
	}
	return &fault.Error{Code: codeStage, Class: fault.Usage, What: fmt.Sprintf("job %s is at stage %s: there is nothing to %s", j.Name, j.Stage, what), Do: do}
}

// with has do run under the job's lease, and ends it when the lease is lost. With yields it ends do, and returns nil, when
// another command wants the job.
func (r *Replay) with(ctx context.Context, name string, yields bool, do func(ctx context.Context, h *lease.Held, j *Job) error) error {
	var watch func(ctx context.Context, end context.CancelCauseFunc)
	if yields {
		watch = func(ctx context.Context, end context.CancelCauseFunc) {
			for sleep(ctx, time.Second) == nil {
				var want string
				if r.db.QueryRowContext(ctx, "SELECT `want` FROM `slotline_job` WHERE `job`=?", name).Scan(&want) == nil && want != wantRun {
					end(errTaken)
				}
			}
		}
	}
	err := r.leased(ctx, name, leaseRow(name), watch, func(ctx context.Context, h *lease.Held) error {
		j, err := r.Job(ctx, name) // as it is under the lease
		if err != nil {
			return err
		}
		return do(ctx, h, j)
	})
	if errors.Is(err, errTaken) {
		r.say("paused", "another command has the job now, or it was paused")
		return nil
	}
	return err
}

// leased has do run under a job's lease, and ends it when the lease is lost, or when watch, which runs beside it, ends it: the
// error is then why.
func (r *Replay) leased(ctx context.Context, job string, row lease.Row, watch func(ctx context.Context, end context.CancelCauseFunc),
	do func(ctx context.Context, h *lease.Held) error) error {
	h, err := r.acquire(ctx, row)
	if err != nil {
		return err
	}
	work, cancel := context.WithCancelCause(ctx)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := h.Keep(work); err != nil {
			cancel(err)
		}
	})
	if watch != nil {
		serving.Go(func() { watch(work, cancel) })
	}
	err = do(work, h)
	cause := context.Cause(work)
	cancel(nil)
	serving.Wait()
	end, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer stop()
	if rerr := h.Release(end); rerr != nil {
		r.o.Logger.Debug("could not release the job; it is free when the lease has run out", "job", job, "error", rerr)
	}
	if cause != nil && ctx.Err() == nil && (err == nil || isCanceled(err)) { // why work ended
		err = cause
	}
	return err
}

// isCanceled says that an error is that of a context that ended, whatever wraps it.
func isCanceled(err error) bool {
	return errors.Is(err, context.Canceled) || strings.Contains(err.Error(), context.Canceled.Error())
}

// acquire takes the job's lease; while another process has it, it waits for as long as one that died would keep it.
func (r *Replay) acquire(ctx context.Context, row lease.Row) (*lease.Held, error) {
	deadline := time.Now().Add(leaseTTL + 2*time.Second)
	for {
		h, err := lease.Acquire(ctx, r.db, row, r.owner, leaseTTL)
		if err == nil || !fault.Is(err, fault.Fenced) || time.Now().After(deadline) {
			return h, err
		}
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// takes has a command take the job from whoever runs it, and carry it out.
func (r *Replay) takes(ctx context.Context, name, what string, from []Stage, do func(ctx context.Context, h *lease.Held, j *Job) error) error {
	j, err := r.Job(ctx, name)
	if err != nil {
		return err
	}
	if !slices.Contains(from, j.Stage) {
		return r.stageError(j, what)
	}
	if err := r.want(ctx, name, wantOther); err != nil {
		return err
	}
	return r.with(ctx, name, false, func(ctx context.Context, h *lease.Held, j *Job) error {
		if !slices.Contains(from, j.Stage) { // it went on before it was ours
			return r.stageError(j, what)
		}
		return do(ctx, h, j)
	})
}

// Pause has whoever runs the job stop; it goes on with Run.
func (r *Replay) Pause(ctx context.Context, name string) error {
	j, err := r.Job(ctx, name)
	if err != nil {
		return err
	}
	if j.Stage.Ended() {
		return r.stageError(j, "pause")
	}
	return r.want(ctx, name, wantPause)
}

// Abort drops the shadow tables of a job that has not swapped. SL7507: it has.
func (r *Replay) Abort(ctx context.Context, name string) error {
	return r.takes(ctx, name, "abort", []Stage{StageShadow, StageReplay, StageVerify, StageSwap, StageAborting},
		func(ctx context.Context, h *lease.Held, j *Job) error {
			if swapped, err := r.swapped(ctx, j); err != nil {
				return err
			} else if swapped {
				if err := r.move(ctx, h, j, StageObserve); err != nil {
					return err
				}
				return r.stageError(j, "abort")
			}
			if err := r.move(ctx, h, j, StageAborting); err != nil {
				return err
			}
			return r.end(ctx, h, j, shadowSuffix(name), StageAborted)
		})
}

// Accept drops the tables that a swap has replaced; undo is not possible any more.
func (r *Replay) Accept(ctx context.Context, name string) error {
	return r.takes(ctx, name, "accept", []Stage{StageObserve, StageAccepting}, func(ctx context.Context, h *lease.Held, j *Job) error {
		if err := r.move(ctx, h, j, StageAccepting); err != nil {
			return err
		}
		return r.end(ctx, h, j, oldSuffix(name), StageAccepted)
	})
}

// Undo has the old tables live again, as soon as they hold what the live ones do, and drops the rebuilt ones.
func (r *Replay) Undo(ctx context.Context, name string) error {
	return r.takes(ctx, name, "undo", []Stage{StageObserve, StageUndoing}, func(ctx context.Context, h *lease.Held, j *Job) error {
		if err := r.move(ctx, h, j, StageUndoing); err != nil {
			return err
		}
		left, err := r.there(ctx, j, oldSuffix(name))
		if err != nil {
			return err
		}
		if left { // else it was swapped back before, and cut off
			f, err := r.feedFor(ctx, h, j, oldSink(name), oldSuffix(name), nil)
			if err != nil {
				return err
			}
			defer f.stop()
			if err := r.catchUp(ctx, f, "undo"); err != nil {
				return err
			}
			err = f.beside(ctx, func(ctx context.Context) error {
				s, err := r.swap(ctx, f, oldSuffix(name), shadowSuffix(name), shadowSink(name))
				if err == nil {
					r.saySwapped("undo", s)
				}
				return err
			})
			if err != nil {
				return err
			}
			f.stop()
		}
		return r.end(ctx, h, j, shadowSuffix(name), StageUndone)
	})
}

func (r *Replay) saySwapped(stage string, s Swapped) {
	r.say(stage, fmt.Sprintf("%d tables in %d ms; a reader or writer waited %d ms at most", s.Tables, s.Held.Milliseconds(), s.Waited.Milliseconds()))
}

// end drops what is not live, and ends the job.
func (r *Replay) end(ctx context.Context, h *lease.Held, j *Job, suffix string, stage Stage) error {
	if err := r.forgetProgress(ctx, j.Name); err != nil {
		return err
	}
	n, err := r.drop(ctx, j, suffix)
	if err != nil {
		return err
	}
	if err := r.forgetDead(ctx, j.Name); err != nil {
		return err
	}
	if err := r.move(ctx, h, j, stage); err != nil {
		return err
	}
	r.say(string(stage), fmt.Sprintf("%d tables dropped", n))
	return nil
}

// there says whether the job has tables with a suffix.
func (r *Replay) there(ctx context.Context, j *Job, suffix string) (bool, error) {
	p, err := r.pairing(j, suffix)
	if err != nil {
		return false, err
	}
	defer p.close()
	list, err := p.named(ctx, r.db, p.beside)
	return len(list) > 0, r.wrap(err)
}

// swapped says whether the job's one RENAME was carried out: the stage is written after it.
func (r *Replay) swapped(ctx context.Context, j *Job) (bool, error) {
	if j.Stage != StageSwap {
		return false, nil
	}
	return r.there(ctx, j, oldSuffix(j.Name))
}

// rebuild is a job up to its swap.
func (r *Replay) rebuild(ctx context.Context, h *lease.Held, j *Job) error {
	if done, err := r.swapped(ctx, j); err != nil {
		return err
	} else if done {
		return r.move(ctx, h, j, StageObserve)
	}
	f, err := r.fill(ctx, h, j)
	if err != nil {
		return err
	}
	defer f.stop()
	return f.beside(ctx, func(ctx context.Context) error {
		if _, err := r.verify(ctx, j); err != nil {
			return err
		}
		if r.o.Confirm != nil && !r.o.Confirm("Swap?") {
			return ErrDeclined
		}
		if err := r.move(ctx, h, j, StageSwap); err != nil {
			return err
		}
		s, err := r.swap(ctx, f, shadowSuffix(j.Name), oldSuffix(j.Name), oldSink(j.Name))
		if err != nil {
			return err
		}
		r.saySwapped("swap", s)
		return r.move(ctx, h, j, StageObserve)
	})
}

// fill makes the job's tables and has them catch up with the log. What it returns goes on keeping them current.
func (r *Replay) fill(ctx context.Context, h *lease.Held, j *Job) (*feed, error) {
	if j.Stage == StageShadow {
		if err := r.shadow(ctx, j); err != nil {
			return nil, err
		}
		if err := r.move(ctx, h, j, StageReplay); err != nil {
			return nil, err
		}
	}
	var first func(context.Context, *feed) error
	if j.Stage == StageReplay {
		first = func(ctx context.Context, f *feed) error { return f.learn(ctx, h) }
	}
	f, err := r.feedFor(ctx, h, j, shadowSink(j.Name), shadowSuffix(j.Name), first)
	if err != nil {
		return nil, err
	}
	done := false // and f goes on
	defer func() {
		if !done {
			f.stop()
		}
	}()
	if err := r.catchUp(ctx, f, string(j.Stage)); err != nil {
		return nil, err
	}
	if j.Stage != StageReplay {
		done = true
		return f, nil
	}
	if err := f.unbroken(ctx, j.read); err != nil {
		return nil, err
	}
	// The tables are past where learn has read: what was refused below is kept with the job.
	refused, err := r.refused(ctx, j)
	if err != nil {
		return nil, err
	}
	again := len(refused) > 0 && f.mayLack()
	if j.Spec.VerifyOnly && !again {
		if err := r.move(ctx, h, j, StageVerify); err != nil {
			return nil, err
		}
		done = true
		return f, nil
	}
	f.stop() // an index is made fastest while nothing is written
	if again {
		if err := r.lookAgain(ctx, h, j, refused); err != nil {
			return nil, err
		}
	}
	if !j.Spec.VerifyOnly {
		if err := r.index(ctx, j); err != nil {
			return nil, err
		}
	}
	if err := r.move(ctx, h, j, StageVerify); err != nil {
		return nil, err
	}
	return r.fill(ctx, h, j)
}

// index gives the job's tables the secondary indexes of the file. A statement of a process that died may be at it still:
// it is waited for.
func (r *Replay) index(ctx context.Context, j *Job) error {
	p, err := r.pairing(j, shadowSuffix(j.Name))
	if err != nil {
		return err
	}
	defer p.close()
	conn, id, err := r.alterer(ctx)
	if err != nil {
		return err
	}
	defer mysqldb.Discard(conn)
	for began, made := time.Now(), 0; ; {
		tables, err := p.beside.PhysicalTables(ctx, r.db, r.o.Shard)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(tables, func(t mysql.PhysicalTable) bool { return len(t.Lacks) > 0 })
		if at < 0 {
			r.say("index", fmt.Sprintf("%d indexes made in %s", made, short(time.Since(began))))
			return nil
		}
		t := tables[at]
		r.tell(Line{Stage: "index", Text: fmt.Sprintf("%s, %d of %d tables", t.Name, at+1, len(tables)), Passing: true})
		statement := "ALTER TABLE " + mysqldb.Ident(t.Name) + " " + strings.Join(t.Lacks, ", ")
		err = r.killable(ctx, conn, id, statement, longReadTimeout, longReadTimeout)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			made += len(t.Lacks)
		case mysqldb.Number(err) == errLockWait || mysqldb.Number(err) == errKeyExists:
			if err := sleep(ctx, lockPause); err != nil {
				return err
			}
		default:
			return r.wrap(err)
		}
	}
}

// ErrDeclined is what Run returns when a person said no to the swap; the job can be resumed or aborted.
var ErrDeclined = errors.New("not swapped; nothing that readers see was changed")

// shadow makes the tables, one for each that is live.
func (r *Replay) shadow(ctx context.Context, j *Job) error {
	p, err := r.pairing(j, shadowSuffix(j.Name))
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.complete(ctx, r.db, r.o.Shard); err != nil {
		return err
	}
	list, err := p.named(ctx, r.db, p.beside)
	if err != nil {
		return r.wrap(err)
	}
	r.say("shadow", namesOf(list))
	return nil
}

// partitions are the live sink's progress rows in this shard.
func (r *Replay) partitions(ctx context.Context) ([]progress.Row, error) {
	rows, err := progress.List(ctx, r.db, liveSink)
	if err != nil {
		return nil, r.wrap(err)
	}
	return slices.DeleteFunc(rows, func(row progress.Row) bool { return !slices.Contains(r.o.Config.Topics(), row.Topic) }), nil
}

// catchUp waits until the feed's tables hold nearly all of the log.
func (r *Replay) catchUp(ctx context.Context, f *feed, stage string) error {
	meter := newMeter()
	err := f.until(ctx, string(f.job.Stage), func(s standing) bool {
		done, all := s.mine.sum(), max(s.log.sum(), 1)
		r.tell(Line{Stage: stage, Text: meter.text(time.Now(), done, all, s), Passing: true})
		return s.near()
	})
	f.pace.hold(false)
	if err == nil {
		r.say(stage, "has caught up with the log")
	}
	return err
}

func (r *Replay) nextText(j *Job) string {
	return fmt.Sprintf("next: slotline replay accept %s | slotline replay undo %s", j.Name, j.Name)
}

// observe keeps the old tables current until ctx ends.
func (r *Replay) observe(ctx context.Context, h *lease.Held, j *Job) error {
	f, err := r.feedFor(ctx, h, j, oldSink(j.Name), oldSuffix(j.Name), nil)
	if err != nil {
		return err
	}
	defer f.stop()
	r.say("observe", fmt.Sprintf("the old tables are kept current as …%s while this runs; %s", oldSuffix(j.Name), r.nextText(j)))
	err = f.until(ctx, string(j.Stage), func(standing) bool { return false })
	if ctx.Err() != nil {
		return nil
	}
	return err
}
