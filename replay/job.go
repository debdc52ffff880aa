package replay

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/lease"
)

// Stage says how far a job has come.
type Stage string

// The stages, in their order; the last four are ends.
const (
	StageShadow    Stage = "shadow"
	StageReplay    Stage = "replay"
	StageVerify    Stage = "verify"
	StageSwap      Stage = "swap"
	StageObserve   Stage = "observe"
	StageAccepting Stage = "accepting"
	StageUndoing   Stage = "undoing"
	StageAborting  Stage = "aborting"
	StageAccepted  Stage = "accepted"
	StageUndone    Stage = "undone"
	StageAborted   Stage = "aborted"
	StageVerified  Stage = "verified" // of a job that only verifies
)

// Ended says that nothing of the job is left but its row.
func (s Stage) Ended() bool {
	return s == StageAccepted || s == StageUndone || s == StageAborted || s == StageVerified
}

// What a person wants of a job, beside its stage.
const (
	wantRun   = "run"
	wantPause = "pause"
	wantOther = "other" // another command is to take the job over
)

// Spec is what a job is to do. It is kept with the job, so that whoever resumes it does the same.
type Spec struct {
	Tables    []string `json:"tables"`     // logical tables; none: all of the file
	PerSecond int      `json:"per_second"` // events a second at most; 0: as fast as it goes
	// YieldAbove is how far the live sink may be behind before the job waits for it.
	YieldAbove time.Duration `json:"yield_above"`
	// VerifyOnly ends the job after the comparison, in place of a swap.
	VerifyOnly bool `json:"verify_only,omitempty"`
	// Repair has a job that only verifies mend the live rows that are wrong, after Options.Confirm.
	Repair bool `json:"repair,omitempty"`
	// AllowEmpty has a job go on where no row was compared.
	AllowEmpty bool `json:"allow_empty,omitempty"`
	// AcceptDead has it go on though events were refused that the live sink has no dead letter of. It does not go with Repair.
	AcceptDead bool `json:"accept_dead,omitempty"`
}

// Job is a row of slotline_job.
type Job struct {
	Name     string    `json:"job"`
	Shard    string    `json:"shard"` // or clickhouse or doris, of a rebuild there
	Stage    Stage     `json:"stage"`
	Want     string    `json:"want"`
	Spec     Spec      `json:"spec"`
	MadeAt   time.Time `json:"made_at"`
	MovedAt  time.Time `json:"moved_at"` // to its stage
	Owner    string    `json:"owner,omitempty"`
	Running  bool      `json:"running"` // its owner's lease has not run out
	Layout   int64     `json:"layout_epoch"`
	Rejected int64     `json:"rejected"` // events that the rebuilt tables cannot hold

	olap bool // Shard is an OLAP store
	read []event.Position
}

// jobBody is what a job's row holds of it.
type jobBody struct {
	Spec
	// Read is up to where the log was read when events were passed over last: it must not be cut below.
	Read []event.Position `json:"read,omitempty"`
}

const (
	jobTable  = "slotline_job"
	jobFormat = "1"
	jobColumn = "`job`,`stage`,`want`,`body`,`layout_epoch`,`made_at`,`moved_at`,`owner`,`lease_until`>UTC_TIMESTAMP(6)"
)

// jobDeadDDL makes the table of events that a job's tables cannot hold.
const jobDeadDDL = "CREATE TABLE IF NOT EXISTS `slotline_job_dead` (`job` VARBINARY(16) NOT NULL, `topic` VARBINARY(249) NOT NULL, " +
	"`part` INT NOT NULL, `off` BIGINT NOT NULL, `reason` VARBINARY(64) NOT NULL, `error` TEXT CHARACTER SET utf8mb4 NOT NULL, " +
	"PRIMARY KEY (`job`,`topic`,`part`,`off`)) ENGINE=InnoDB COMMENT='slotline job dead format " + jobFormat + "'"

// jobDDL makes the tables of jobs.
func jobDDL() []string {
	return []string{
		"CREATE TABLE IF NOT EXISTS `slotline_job` (`job` VARBINARY(16) NOT NULL, `line` VARBINARY(64) NOT NULL, " +
			"`stage` VARBINARY(16) NOT NULL, `want` VARBINARY(16) NOT NULL, `body` TEXT CHARACTER SET utf8mb4 NOT NULL, " +
			"`layout_epoch` BIGINT NOT NULL, `made_at` DATETIME(6) NOT NULL, `moved_at` DATETIME(6) NOT NULL, " + lease.Columns +
			", PRIMARY KEY (`job`)) ENGINE=InnoDB COMMENT='slotline job format " + jobFormat + "'",
		jobDeadDDL,
		"CREATE TABLE IF NOT EXISTS `slotline_repair` (`job` VARBINARY(16) NOT NULL, `tbl` VARBINARY(64) NOT NULL, " +
			"`tenant` VARBINARY(64) NOT NULL, `entity_id` VARBINARY(1020) NOT NULL, `live_ver` BIGINT NOT NULL, `log_ver` BIGINT NOT NULL, " +
			"`repaired_at` DATETIME(6) NOT NULL, KEY (`job`)) ENGINE=InnoDB COMMENT='slotline repair format " + jobFormat + "'",
	}
}

// The names of a job's tables and progress rows.
func shadowSuffix(job string) string { return "__rb_" + job }
func oldSuffix(job string) string    { return "__old_" + job }
func shadowSink(job string) string   { return "mysql__rb_" + job }
func oldSink(job string) string      { return "mysql__old_" + job }

// liveSink is the sink whose tables are rebuilt.
const liveSink = "mysql"

func newJobName() string {
	var b [2]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return "rb" + hex.EncodeToString(b[:])
}

// row is the job's for its lease.
func leaseRow(job string) lease.Row {
	return lease.Row{Table: jobTable, Where: "job = ?", Args: []any{[]byte(job)}}
}

// Jobs lists the jobs of the line in this shard, the newest first. A shard that never had one has none.
func (r *Replay) Jobs(ctx context.Context) ([]Job, error) {
	if err := r.checkFormat(ctx); err != nil {
		return nil, err
	}
	rows, err := r.db.QueryContext(ctx, "SELECT "+jobColumn+",(SELECT COUNT(*) FROM `slotline_job_dead` d WHERE d.`job`=j.`job`) "+
		"FROM `slotline_job` j WHERE `line`=? ORDER BY `made_at` DESC", []byte(r.o.Config.Line))
	if mysqldb.Number(err) == errNoSuchTable {
		return nil, nil
	}
	if err != nil {
		return nil, r.wrap(err)
	}
	defer rows.Close()
	var list []Job
	for rows.Next() {
		j := Job{Shard: r.o.Shard}
		var body []byte
		if err := rows.Scan(&j.Name, &j.Stage, &j.Want, &body, &j.Layout, &j.MadeAt, &j.MovedAt, &j.Owner, &j.Running, &j.Rejected); err != nil {
			return nil, r.wrap(err)
		}
		var b jobBody
		if err := json.Unmarshal(body, &b); err != nil {
			return nil, fmt.Errorf("job %s in shard %s: %w", j.Name, r.o.Shard, err)
		}
		j.Spec, j.read = b.Spec, b.Read
		j.Running = j.Running && j.Owner != ""
		list = append(list, j)
	}
	return list, r.wrap(rows.Err())
}

// Job is one of them. SL7506: there is none of this name.
func (r *Replay) Job(ctx context.Context, name string) (*Job, error) {
	list, err := r.Jobs(ctx)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].Name == name {
			return &list[i], nil
		}
	}
	return nil, NoJob(name)
}

// NoJob is the error for a job that is in none of the shards.
func NoJob(name string) error {
	return &fault.Error{Code: codeNoJob, Class: fault.Usage, What: fmt.Sprintf("there is no job %q", name),
		Do: "slotline replay status lists them"}
}

// IsNoJob says that an error is NoJob's.
func IsNoJob(err error) bool { return fault.CodeOf(err) == codeNoJob }

// make writes the job's row, if no other job that has not ended has one of its tables.
func (r *Replay) make(ctx context.Context, spec Spec) (*Job, error) {
	for _, statement := range jobDDL() {
		if _, err := r.db.ExecContext(ctx, statement); err != nil {
			return nil, r.wrap(err)
		}
	}
	body, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	conn, err := r.db.Conn(ctx)
	if err != nil {
		return nil, r.wrap(err)
	}
	defer conn.Close()
	// Two commands at once must not both find no job.
	lock := "CONCAT('slotline_job ', DATABASE())"
	var alone sql.NullInt64
	if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK("+lock+", 10)").Scan(&alone); err != nil {
		return nil, r.wrap(err)
	}
	defer conn.ExecContext(context.WithoutCancel(ctx), "SELECT RELEASE_LOCK("+lock+")")
	jobs, err := r.Jobs(ctx)
	if err != nil {
		return nil, err
	}
	for _, j := range jobs {
		if j.Stage.Ended() {
			continue
		}
		for _, table := range spec.Tables {
			if slices.Contains(j.Spec.Tables, table) {
				return nil, &fault.Error{Code: codeJobActive, Class: fault.Usage,
					What: fmt.Sprintf("job %s of shard %s, at stage %s, has table %s already", j.Name, r.o.Shard, j.Stage, table),
					Do:   fmt.Sprintf("slotline replay %s %s", next(j.Stage), j.Name)}
			}
		}
	}
	j := &Job{Name: newJobName(), Shard: r.o.Shard, Stage: StageShadow, Want: wantRun, Spec: spec, Layout: r.o.Layout.Epoch()}
	_, err = conn.ExecContext(ctx, "INSERT INTO `slotline_job` (`job`,`line`,`stage`,`want`,`body`,`layout_epoch`,`made_at`,`moved_at`) "+
		"VALUES (?,?,?,?,?,?,UTC_TIMESTAMP(6),UTC_TIMESTAMP(6))", j.Name, r.o.Config.Line, string(j.Stage), j.Want, string(body), j.Layout)
	return j, r.wrap(err)
}

// Next is what a person may do about the job: commands of slotline replay, "-" when it has ended.
func (j *Job) Next() string {
	switch {
	case j.Stage.Ended() || j.olap && j.Running:
		return "-"
	case j.olap:
		return olapCommand(j.Shard, strings.Join(j.Spec.Tables, " "))
	case j.Stage == StageObserve:
		return "accept | undo"
	case j.Stage == StageShadow || j.Stage == StageReplay || j.Stage == StageVerify || j.Stage == StageSwap:
		if j.Running {
			return "pause | abort"
		}
		return "resume | abort"
	}
	return next(j.Stage)
}

// next is the command that goes on with a job at a stage.
func next(s Stage) string {
	switch s {
	case StageObserve, StageAccepting:
		return "accept"
	case StageUndoing:
		return "undo"
	case StageAborting:
		return "abort"
	}
	return "resume"
}

// move has the job at another stage, if the lease is still ours.
func (r *Replay) move(ctx context.Context, h *lease.Held, j *Job, to Stage) error {
	result, err := r.db.ExecContext(ctx, "UPDATE `slotline_job` SET `stage`=?,`moved_at`=UTC_TIMESTAMP(6) WHERE `job`=? AND "+lease.Guard,
		append([]any{string(to), j.Name}, h.Fence().Args()...)...)
	if err != nil {
		return r.wrap(err)
	}
	if n, err := result.RowsAffected(); err != nil {
		return r.wrap(err)
	} else if n != 1 {
		return lost(j.Name)
	}
	j.Stage = to
	return nil
}

// bare says that the job's tables have no secondary indexes yet; those that are never swapped in get none.
func (j *Job) bare() bool {
	return j.Spec.VerifyOnly || j.Stage == StageShadow || j.Stage == StageReplay
}

// errTaken ends a run because another command has the job now.
var errTaken = errors.New("another process has the job now")

func lost(job string) error { return fmt.Errorf("job %s: %w", job, errTaken) }

// want says what a person wants of the job; whoever runs it sees that within a second.
func (r *Replay) want(ctx context.Context, job, want string) error {
	_, err := r.db.ExecContext(ctx, "UPDATE `slotline_job` SET `want`=? WHERE `job`=?", want, job)
	return r.wrap(err)
}

func (r *Replay) checkFormat(ctx context.Context) error {
	var comment string
	err := r.db.QueryRowContext(ctx, "SELECT TABLE_COMMENT FROM information_schema.TABLES WHERE TABLE_SCHEMA=DATABASE() AND TABLE_NAME='slotline_job'").Scan(&comment)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return r.wrap(err)
	}
	if number, ok := strings.CutPrefix(comment, "slotline job format "); ok && number != jobFormat {
		return &fault.Error{Code: codeJobFormat, Class: fault.Fatal,
			What: fmt.Sprintf("shard %s: table slotline_job is of format %s, this release reads %s", r.o.Shard, number, jobFormat),
			Do:   "run the release that wrote it, or a later one"}
	}
	return nil
}

const errNoSuchTable = 1146

// wrap gives an error of the shard's database a code and a place.
func (r *Replay) wrap(err error) error {
	if r.place != "" {
		return mysqldb.Wrap(err, codeDatabase, r.place)
	}
	switch mysqldb.Number(err) {
	case 1044, 1142, 1143, 1227:
		return &fault.Error{Code: codeDenied, Class: fault.Fatal, Err: err, What: fmt.Sprintf("shard %s: %v", r.o.Shard, err),
			Why: "a rebuild needs more than the sink does: it locks, renames and drops its tables",
			Do:  fmt.Sprintf("GRANT %s ON %s.* TO the user in shards.%s.dsn", Privileges, mysqldb.Ident(r.dsn.Database()), r.o.Shard)}
	}
	return mysqldb.Wrap(err, codeDatabase, "shard "+r.o.Shard)
}

// Privileges are what a rebuild needs on a shard's database, beside what the sink needs.
const Privileges = "ALTER, DELETE, DROP, LOCK TABLES"

// keepDead keeps events that the rebuilt tables cannot hold, by their place in the log.
func (r *Replay) keepDead(ctx context.Context, job string, letters []deadLetter) error {
	for part := range slices.Chunk(letters, 200) {
		var b strings.Builder
		b.WriteString("INSERT INTO `slotline_job_dead` (`job`,`topic`,`part`,`off`,`reason`,`error`) VALUES ")
		var args []any
		for i, l := range part {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString("(?,?,?,?,?,?)")
			args = append(args, job, l.Partition.Topic, l.Partition.Number, l.Offset, l.Reason, l.Error)
		}
		b.WriteString(" ON DUPLICATE KEY UPDATE `reason`=`slotline_job_dead`.`reason`")
		if _, err := r.db.ExecContext(ctx, b.String(), args...); err != nil {
			return r.wrap(err)
		}
	}
	return nil
}

// forgetDead deletes the letters of an ended job.
func (r *Replay) forgetDead(ctx context.Context, job string) error {
	_, err := r.db.ExecContext(ctx, "DELETE FROM `slotline_job_dead` WHERE `job`=?", job)
	return r.wrap(err)
}

// forgetProgress deletes the job's progress rows.
func (r *Replay) forgetProgress(ctx context.Context, job string) error {
	for _, sink := range []string{shadowSink(job), oldSink(job)} {
		if err := progress.Forget(ctx, r.db, sink, r.o.Config.Topics()); err != nil {
			return r.wrap(err)
		}
	}
	return nil
}
