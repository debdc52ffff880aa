package replay

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/consumers"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/lease"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/olap"
	"github.com/slotline/slotline/sinks/olap/intent"
	"github.com/slotline/slotline/sinks/olap/rollup"
)

// The stages of the rebuild of a table in an OLAP store, in the column stage of slotline_olap_job.
const (
	olapFill = "fill" // a new table is filled from the log
	olapSwap = "swap" // it may have taken the live one's place
	olapTail = "tail" // it has; what the live sink had sent to the old one, and it lacks, is applied to it
)

// olapJobDDL makes the table of jobs in the state database: one row for each table that is being rebuilt.
const olapJobDDL = "CREATE TABLE IF NOT EXISTS `slotline_olap_job` (`sink` VARBINARY(64) NOT NULL, `tbl` VARBINARY(64) NOT NULL, " +
	"`job` VARBINARY(16) NOT NULL, `month` INT NOT NULL, `stage` VARBINARY(16) NOT NULL, `uuid` VARBINARY(36) NOT NULL, " +
	"`layout_epoch` BIGINT NOT NULL, `made_at` DATETIME(6) NOT NULL, " + lease.Columns +
	", PRIMARY KEY (`sink`,`tbl`)) ENGINE=InnoDB COMMENT='slotline olap job format 1'"

// OLAPSink is a store with tables that can be rebuilt, and its sink; *clickhouse.Sink and *doris.Sink are.
type OLAPSink interface {
	consumers.FixedGroups
	consumers.Halter
	Seed(ctx context.Context) error // its rows in the state database
	Close() error

	CheckShadow(ctx context.Context, t *event.Table) error // why the table cannot be exchanged with one that is made anew
	MakeShadow(ctx context.Context, t *event.Table, name string) error
	TablesLike(ctx context.Context, prefix string) (identities map[string]string, err error) // that a table keeps, whatever its name
	RenameTable(ctx context.Context, from, to string) error
	ExchangeTables(ctx context.Context, a, b string) error
	ReplaceMonth(ctx context.Context, t *event.Table, m partitioner.Month, from string) error
	DropTable(ctx context.Context, name string) error
	MonthsOf(ctx context.Context, t *event.Table, names ...string) ([]partitioner.Month, error)
	CompareTables(ctx context.Context, t *event.Table, m partitioner.Month, first, second string) (olap.Compared, error)
	RollupPairs(ctx context.Context, r *config.Rollup, m partitioner.Month, each func(rollup.Pair) error) error
}

// OLAPOptions of RebuildOLAP. Config, Layout, State, Store, Open, Batch and Table are needed.
type OLAPOptions struct {
	Config     *config.Config
	Layout     *partitioner.Layout
	State      *sql.DB                                                  // of sinks.state
	Store      string                                                   // clickhouse or doris: the name of the live sink
	Open       func(sink string, shadow *olap.Shadow) (OLAPSink, error) // one of that name; without a shadow it is the live one
	Batch      consumers.Limits                                         // of the store; their age is the job's own
	Table      string
	Month      partitioner.Month // NoMonth: the whole table
	PerSecond  int               // events a second at most, of all tables; 0: as fast as it goes
	YieldAbove time.Duration     // how far the live sink may be behind before the job waits for it; 0: never
	Abort      bool              // end the table's job, in place of carrying it on
	AllowEmpty bool              // a table without a row may take the live one's place
	AcceptDead bool              // and one that lacks events that the live sink has no dead letter of
	Logger     *slog.Logger
	Say        func(Line)
	Confirm    func(question string) bool // before the swap; nil: yes
}

// olapJob is a row of slotline_olap_job.
type olapJob struct {
	name, stage, uuid string
	month             partitioner.Month
	layout            int64
}

type olapRebuild struct {
	filling
	o      OLAPOptions
	t      *event.Table
	job    olapJob
	held   *lease.Held
	store  OLAPSink // the live one
	shadow OLAPSink
	name   string // of the table beside; another for each owner of the job

	into atomic.Pointer[string]
}

// again is the command that carries the job on.
func (b *olapRebuild) again() string {
	return "slotline replay " + olapCommand(b.o.Store, b.o.Table)
}

// olapCommand names the store where it is not the one that a command without a name takes.
func olapCommand(store, table string) string {
	command := "olap --table " + table
	if store != "clickhouse" {
		command += " --sink " + store
	}
	return command
}

// RebuildOLAP fills a table of an OLAP store beside the live one from the log, and has it take the live one's place, or that of
// one month. Called again after it was cut off it goes on where it stopped.
func RebuildOLAP(ctx context.Context, o OLAPOptions) error {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Replay{o: Options{Config: o.Config, Layout: o.Layout, Logger: o.Logger, Say: o.Say}, db: o.State,
		place: "state of " + o.Store, owner: lease.NewOwner()}
	b := &olapRebuild{o: o, t: o.Config.Table(o.Table), filling: newFilling(r, o.Store, o.PerSecond)}
	if b.t == nil || o.Month != partitioner.NoMonth && b.t.Month == event.None {
		return &fault.Error{Code: codeNoTable, Class: fault.Usage, What: fmt.Sprintf("%s has no table %q, or none by months", o.Config.File, o.Table), Do: "name a table that stands under tables"}
	}
	var err error
	if b.store, err = o.Open(o.Store, nil); err != nil {
		return err
	}
	defer b.store.Close()
	if err := b.store.CheckShadow(ctx, b.t); err != nil {
		return err
	}
	return b.owned(ctx, func(ctx context.Context) error {
		if o.Abort {
			return b.abort(ctx)
		}
		return b.run(ctx)
	})
}

// owned has do run under the job's lease, in a job that is made where there is none.
func (b *olapRebuild) owned(ctx context.Context, do func(ctx context.Context) error) error {
	for _, statement := range []string{olapJobDDL, jobDeadDDL} {
		if _, err := b.o.State.ExecContext(ctx, statement); err != nil {
			return b.r.wrap(err)
		}
	}
	if b.o.Abort {
		var job string
		err := b.o.State.QueryRowContext(ctx, "SELECT `job` FROM `slotline_olap_job` WHERE `sink`=? AND `tbl`=?", b.o.Store, b.t.Name).Scan(&job)
		if errors.Is(err, sql.ErrNoRows) {
			return &fault.Error{Code: codeNoJob, Class: fault.Usage, What: fmt.Sprintf("there is no job for table %s of %s", b.t.Name, b.o.Store), Do: "slotline replay status lists them"}
		}
		if err != nil {
			return b.r.wrap(err)
		}
	} else {
		_, err := b.o.State.ExecContext(ctx, "INSERT INTO `slotline_olap_job` (`sink`,`tbl`,`job`,`month`,`stage`,`uuid`,`layout_epoch`,`made_at`) "+
			"VALUES (?,?,?,?,?,'',?,UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE `job`=`slotline_olap_job`.`job`",
			b.o.Store, b.t.Name, newJobName(), int(b.o.Month), olapFill, b.o.Layout.Epoch())
		if err != nil {
			return b.r.wrap(err)
		}
	}
	row := lease.Row{Table: "slotline_olap_job", Where: "sink = ? AND tbl = ?", Args: []any{[]byte(b.o.Store), []byte(b.t.Name)}}
	return b.r.leased(ctx, b.t.Name, row, nil, func(ctx context.Context, h *lease.Held) error {
		b.held = h
		if err := b.read(ctx); err != nil {
			return err
		}
		return do(ctx)
	})
}

// read learns the job as it is under the lease, and gives its table a name that no owner before knew: a process that wakes
// late exchanges, and writes to, a table that is not there.
func (b *olapRebuild) read(ctx context.Context) error {
	var month int
	err := b.o.State.QueryRowContext(ctx, "SELECT `job`,`stage`,`uuid`,`month`,`layout_epoch` FROM `slotline_olap_job` WHERE `sink`=? AND `tbl`=?", b.o.Store, b.t.Name).
		Scan(&b.job.name, &b.job.stage, &b.job.uuid, &month, &b.job.layout)
	if err != nil {
		return b.r.wrap(err)
	}
	b.jobName, b.sink, b.next = b.job.name, b.o.Store+shadowSuffix(b.job.name), b.again()+" again"
	if b.job.month = partitioner.Month(month); b.job.month != b.o.Month && !b.o.Abort {
		what := "the whole table"
		if b.job.month != partitioner.NoMonth {
			what = "month " + b.job.month.String()
		}
		return &fault.Error{Code: codeJobActive, Class: fault.Usage, What: fmt.Sprintf("job %s has table %s of %s already, for %s", b.job.name, b.t.Name, b.o.Store, what),
			Do: "carry that one on, or end it: " + b.again() + " --abort"}
	}
	prefix := b.t.Name + shadowSuffix(b.job.name) + "_"
	b.name = prefix + strconv.FormatInt(b.held.Fence().Epoch, 10)
	tables, err := b.store.TablesLike(ctx, prefix)
	if err != nil {
		return err
	}
	for name := range tables {
		if err := b.store.RenameTable(ctx, name, b.name); err != nil {
			return err
		}
	}
	if len(tables) == 0 && b.job.stage == olapFill {
		b.job.uuid = ""
	}
	return nil
}

// stage records how far the job is, if the lease is still ours.
func (b *olapRebuild) stage(ctx context.Context, stage, uuid string) error {
	result, err := b.o.State.ExecContext(ctx, "UPDATE `slotline_olap_job` SET `stage`=?,`uuid`=? WHERE `sink`=? AND `tbl`=? AND "+lease.Guard,
		append([]any{stage, uuid, b.o.Store, b.t.Name}, b.held.Fence().Args()...)...)
	if err != nil {
		return b.r.wrap(err)
	}
	if n, err := result.RowsAffected(); err != nil {
		return b.r.wrap(err)
	} else if n != 1 {
		return lost(b.job.name)
	}
	b.job.stage, b.job.uuid = stage, uuid
	return nil
}

// abort drops what a job that has not swapped has made.
func (b *olapRebuild) abort(ctx context.Context) error {
	tables, err := b.store.TablesLike(ctx, b.t.Name)
	if err != nil {
		return err
	}
	tried := b.job.stage == olapSwap && b.job.month == partitioner.NoMonth && tables[b.t.Name] != b.job.uuid // and failed
	if b.job.stage != olapFill && !tried {
		return &fault.Error{Code: codeStage, Class: fault.Usage, What: fmt.Sprintf("job %s has swapped, or is at it: it cannot be aborted", b.job.name),
			Do: "carry it on: " + b.again()}
	}
	return b.end(ctx)
}

// end drops the table beside, and all that is known of the job.
func (b *olapRebuild) end(ctx context.Context) error {
	if err := b.store.DropTable(ctx, b.name); err != nil {
		return err
	}
	if err := intent.Forget(ctx, b.o.State, b.sink, b.o.Config.Topics()); err != nil {
		return b.r.wrap(err)
	}
	if err := b.r.forgetDead(ctx, b.job.name); err != nil {
		return err
	}
	_, err := b.o.State.ExecContext(ctx, "DELETE FROM `slotline_olap_job` WHERE `sink`=? AND `tbl`=? AND "+lease.Guard,
		append([]any{b.o.Store, b.t.Name}, b.held.Fence().Args()...)...)
	return b.r.wrap(err)
}

func (b *olapRebuild) run(ctx context.Context) error {
	if b.job.layout != b.o.Layout.Epoch() && b.job.stage == olapFill {
		return &fault.Error{Code: codeLayout, Class: fault.Fatal,
			What: fmt.Sprintf("job %s began with layout epoch %d, and a newer one is in force", b.job.name, b.job.layout),
			Do:   b.again() + " --abort, and begin anew"}
	}
	for _, topic := range b.o.Config.Topics() {
		for n := range b.o.Layout.Partitions() {
			b.parts = append(b.parts, event.Partition{Topic: topic, Number: int32(n)})
		}
	}
	_, holes, err := b.r.history().stand(ctx, "replay", b.parts)
	if err != nil {
		return err
	}
	if len(holes) > 0 && b.job.stage == olapFill {
		return &fault.Error{Code: codeHistory, Class: fault.Fatal, What: fmt.Sprintf("the log does not hold all that table %s of %s was made from", b.t.Name, b.o.Store),
			Why: strings.Join(holes, "\n"), Do: "fill a new table from the shards, or restore a backup"}
	}
	if b.kafka, err = kafka.Open(ctx, b.o.Config, "replay", b.o.Logger); err != nil {
		return err
	}
	defer b.kafka.Close()
	if err := b.prepare(ctx); err != nil {
		return err
	}
	feed, stop := context.WithCancel(ctx)
	var feeding sync.WaitGroup
	defer feeding.Wait()
	defer stop()
	defer b.shadow.Close()
	feeding.Go(func() { b.feed(feed) })
	if b.job.stage == olapFill {
		if err := b.fill(ctx); err != nil {
			return err
		}
	}
	if err := b.tail(ctx); err != nil {
		return err
	}
	stop()
	feeding.Wait()
	if err := b.end(ctx); err != nil {
		return err
	}
	b.r.say("done", "the rebuilt table is live; the old one was dropped")
	return nil
}

// prepare makes the table beside, and the sink that fills it, or finds which of the two tables is live.
func (b *olapRebuild) prepare(ctx context.Context) (err error) {
	if b.job.stage == olapSwap {
		tables, err := b.store.TablesLike(ctx, b.t.Name)
		if err != nil {
			return err
		}
		switch {
		case b.job.month != partitioner.NoMonth: // once more does no harm: what came since is applied after it
			if err := b.store.ReplaceMonth(ctx, b.t, b.job.month, b.name); err != nil {
				return err
			}
		case tables[b.t.Name] != b.job.uuid:
			if err := b.store.ExchangeTables(ctx, b.t.Name, b.name); err != nil {
				return err
			}
		}
		if err := b.stage(ctx, olapTail, b.job.uuid); err != nil {
			return err
		}
	}
	into := b.name
	if b.job.stage == olapTail {
		into = b.t.Name
	}
	b.into.Store(&into)
	b.shadow, err = b.o.Open(b.sink, &olap.Shadow{Table: b.t.Name, Month: b.job.month, Into: func() string { return *b.into.Load() }})
	if err == nil && b.job.stage != olapFill {
		return b.shadow.Seed(ctx) // a layout that came meanwhile may have more partitions
	}
	if err != nil {
		return err
	}
	if b.job.uuid == "" {
		if err := intent.Forget(ctx, b.o.State, b.sink, b.o.Config.Topics()); err != nil && mysqldb.Number(err) != errNoSuchTable {
			return b.r.wrap(err)
		}
		if err := b.store.MakeShadow(ctx, b.t, b.name); err != nil {
			return err
		}
		tables, err := b.store.TablesLike(ctx, b.name)
		if err != nil {
			return err
		}
		if err := b.shadow.Seed(ctx); err != nil {
			return err
		}
		if err := b.stage(ctx, olapFill, tables[b.name]); err != nil {
			return err
		}
		b.r.say("shadow", "table "+b.name)
	}
	return nil
}

// feed applies the log to the table beside, until ctx ends.
func (b *olapRebuild) feed(ctx context.Context) {
	batch := b.o.Batch
	batch.Age = feedBatchAge
	b.consume(ctx, &olapBeside{b.shadow, b}, batch, func(context.Context) error {
		err := &fault.Error{Code: codeLayout, Class: fault.Fatal, What: fmt.Sprintf("job %s: a newer layout came into force", b.job.name),
			Do: b.again() + " --abort, and begin anew"}
		b.fail(err)
		return err
	})
}

// olapBeside is the sink as consumers see it: its batches wait for the job's pace, and for the swap.
type olapBeside struct {
	OLAPSink
	b *olapRebuild
}

func (s *olapBeside) TakeOver(ctx context.Context, parts []event.Partition) (event.Owned, error) {
	o, err := s.OLAPSink.TakeOver(ctx, parts)
	if err != nil {
		return nil, err
	}
	return newFilledOwned(o, &s.b.filling), nil
}

// Halt ends the job's run: a person must act.
func (s *olapBeside) Halt(ctx context.Context, p event.Partition, why *fault.Error) error {
	s.b.halted(p, why)
	return s.OLAPSink.Halt(ctx, p, why)
}

// fill waits until the table beside has caught up, has it compared, and has it take the live one's place.
func (b *olapRebuild) fill(ctx context.Context) error {
	b.yieldAbove = b.o.YieldAbove
	m := newMeter()
	caught := func(s standing) bool {
		b.r.tell(Line{Stage: "fill", Text: m.text(time.Now(), s.mine.sum(), s.log.sum(), standing{}), Passing: true})
		return s.near()
	}
	if err := b.until(ctx, olapFill, caught); err != nil {
		return err
	}
	if err := b.compare(ctx); err != nil {
		return err
	}
	what := "Exchange the tables?"
	if b.job.month != partitioner.NoMonth {
		what = "Replace month " + b.job.month.String() + "?"
	}
	if b.o.Confirm != nil && !b.o.Confirm(what) {
		return ErrDeclined
	}
	if err := b.until(ctx, olapFill, caught); err != nil { // a person may have taken long
		return err
	}
	b.yieldAbove = 0
	b.pace.hold(false)
	began := time.Now()
	b.sending.Lock()
	defer b.sending.Unlock()
	if err := b.stage(ctx, olapSwap, b.job.uuid); err != nil {
		return err
	}
	var err error
	if b.job.month == partitioner.NoMonth {
		err = b.store.ExchangeTables(ctx, b.t.Name, b.name)
	} else {
		err = b.store.ReplaceMonth(ctx, b.t, b.job.month, b.name)
	}
	if err != nil {
		return err
	}
	if err := b.stage(ctx, olapTail, b.job.uuid); err != nil {
		return err
	}
	into := b.t.Name
	b.into.Store(&into)
	b.r.say("swap", fmt.Sprintf("in %s", short(time.Since(began))))
	return nil
}

// compare says how the table beside and the live one compare. What a sink has still to apply counts as a difference: a
// person decides.
func (b *olapRebuild) compare(ctx context.Context) error {
	months := []partitioner.Month{b.job.month}
	if b.job.month == partitioner.NoMonth {
		var err error
		if months, err = b.store.MonthsOf(ctx, b.t, b.t.Name, b.name); err != nil {
			return err
		}
	}
	var all olap.Compared
	for _, m := range months {
		c, err := b.store.CompareTables(ctx, b.t, m, b.t.Name, b.name)
		if err != nil {
			return err
		}
		all.Rows, all.Equal, all.Missing, all.Extra = all.Rows+c.Rows, all.Equal+c.Equal, all.Missing+c.Missing, all.Extra+c.Extra
	}
	b.r.say("verify", fmt.Sprintf("%d rows: %d equal, %d differ, %d are not live, %d live ones are not in the log; what came in the last seconds may be among them",
		all.Rows, all.Equal, all.Rows-all.Equal-all.Missing-all.Extra, all.Missing, all.Extra))
	if all.Rows == all.Extra && !b.o.AllowEmpty {
		return &fault.Error{Code: codeNothing, Class: fault.Fatal, What: fmt.Sprintf("job %s: the log makes no row of %s: nothing was exchanged", b.job.name, b.t.Name),
			Do: "if that is right: --allow-empty"}
	}
	return b.r.checkDead(ctx, &Job{Name: b.job.name, Spec: Spec{AcceptDead: b.o.AcceptDead}}, b.o.Store, b.again())
}

// tail waits until the table that is live now has all that the live sink had sent to the old one, and has the rollups
// computed anew.
func (b *olapRebuild) tail(ctx context.Context) error {
	mark, err := intent.Ends(ctx, b.o.State, b.o.Store)
	if err != nil {
		return b.r.wrap(err)
	}
	began := time.Now()
	if err := b.until(ctx, olapTail, func(s standing) bool { return s.mine.reached(mark) }); err != nil {
		return err
	}
	b.r.say("tail", fmt.Sprintf("has what was sent to the old table, %s after the swap", short(time.Since(began))))
	for _, r := range b.o.Config.Rollups {
		if r.Table != b.t {
			continue
		}
		var touched []rollup.Touched
		pairs := 0
		mark := func() error {
			err := rollup.Mark(ctx, b.o.State, b.o.Store, touched)
			pairs, touched = pairs+len(touched), touched[:0]
			return b.r.wrap(err)
		}
		err := b.store.RollupPairs(ctx, r, b.job.month, func(p rollup.Pair) error {
			if touched = append(touched, rollup.Touched{Rollup: r.Name, Pair: p}); len(touched) < 500 {
				return nil
			}
			return mark()
		})
		if err == nil {
			err = mark()
		}
		if err != nil {
			return err
		}
		b.r.say("tail", fmt.Sprintf("rollup %s: %d slices are to be computed anew", r.Name, pairs))
	}
	return nil
}

// OLAPJobs lists the jobs of RebuildOLAP of all stores; db is that of sinks.state.
func OLAPJobs(ctx context.Context, db *sql.DB) (list []Job, err error) {
	rows, err := db.QueryContext(ctx, "SELECT `sink`,`job`,`tbl`,`stage`,`layout_epoch`,`made_at`,`owner`,`lease_until`>UTC_TIMESTAMP(6) FROM `slotline_olap_job` ORDER BY `sink`,`tbl`")
	if mysqldb.Number(err) == errNoSuchTable {
		return nil, nil
	}
	if err != nil {
		return nil, mysqldb.Wrap(err, codeDatabase, "state of the OLAP sinks")
	}
	defer rows.Close()
	for rows.Next() {
		j := Job{olap: true, Want: wantRun}
		var table string
		if err := rows.Scan(&j.Shard, &j.Name, &table, &j.Stage, &j.Layout, &j.MadeAt, &j.Owner, &j.Running); err != nil {
			return nil, mysqldb.Wrap(err, codeDatabase, "state of the OLAP sinks")
		}
		j.Spec.Tables, j.MovedAt, j.Running = []string{table}, j.MadeAt, j.Running && j.Owner != ""
		list = append(list, j)
	}
	return list, mysqldb.Wrap(rows.Err(), codeDatabase, "state of the OLAP sinks")
}
