// Package progress is the table slotline_progress: one row per (sink, topic, partition) that says how far a sink has
// applied a partition, and which owner may go on. A MySQL sink's rows are in the shard itself, so that rows and
// progress commit together; an OLAP sink's are in sinks.state.
//
// It promises: next_off moves only by the sink that is the owner of owner_epoch; by AcceptGap, which bumps the epoch and
// leaves a row in slotline_gap that says who went past what, and why; or back, by Fence, when a layout changes. It
// assumes sessions in UTC with clientFoundRows (internal/mysqldb opens such). It fails with the driver's own errors,
// which the caller classes, and with fault.Error where a person must act: a row that apply has not seeded, a table of a
// later format.
//
// The statements of a sink's transaction are text, because they are sent in one packet with the rows: Advance and Row
// are the seam to it.
package progress

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
)

const (
	// Table holds one row per partition and sink.
	Table = "slotline_progress"
	// GapTable holds one row per accepted gap.
	GapTable = "slotline_gap"
	// Format is the greatest format of either table that this release reads.
	Format = 1

	haltTextBytesMax = 8 << 10 // of a TEXT column; enough for any error that a person reads
)

// DDL creates both tables unless they exist.
func DDL() []string {
	return []string{
		"CREATE TABLE IF NOT EXISTS `slotline_progress` (\n" +
			"  `sink` VARBINARY(64) NOT NULL,\n" +
			"  `topic` VARBINARY(249) NOT NULL,\n" +
			"  `part` INT NOT NULL,\n" +
			"  `next_off` BIGINT NOT NULL,\n" +
			"  `applied_off` BIGINT NOT NULL,\n" +
			"  `topic_id` BINARY(16) NOT NULL,\n" +
			"  `leader_epoch` INT NOT NULL,\n" +
			"  `owner` VARBINARY(128) NOT NULL,\n" +
			"  `owner_epoch` BIGINT NOT NULL,\n" +
			"  `halted_at` DATETIME(6) NULL,\n" +
			"  `halt_code` VARBINARY(16) NULL,\n" +
			"  `halt_text` TEXT CHARACTER SET utf8mb4 NULL,\n" +
			"  `updated_at` DATETIME(6) NOT NULL,\n" +
			"  PRIMARY KEY (`sink`,`topic`,`part`)\n" +
			") ENGINE=InnoDB COMMENT='slotline progress format 1'",
		"CREATE TABLE IF NOT EXISTS `slotline_gap` (\n" +
			"  `sink` VARBINARY(64) NOT NULL,\n" +
			"  `topic` VARBINARY(249) NOT NULL,\n" +
			"  `part` INT NOT NULL,\n" +
			"  `from_off` BIGINT NOT NULL,\n" +
			"  `to_off` BIGINT NOT NULL,\n" +
			"  `owner_epoch` BIGINT NOT NULL,\n" +
			"  `accepted_at` DATETIME(6) NOT NULL,\n" +
			"  `accepted_by` VARBINARY(128) NOT NULL,\n" +
			"  `reason` TEXT CHARACTER SET utf8mb4 NOT NULL,\n" +
			"  PRIMARY KEY (`sink`,`topic`,`part`,`owner_epoch`)\n" +
			") ENGINE=InnoDB COMMENT='slotline gap format 1'",
	}
}

// Querier is *sql.DB, *sql.Conn or *sql.Tx.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Key names one row.
type Key struct {
	Sink string
	event.Partition
}

func (k Key) String() string { return fmt.Sprintf("%s/%s/%d", k.Sink, k.Topic, k.Number) }

// where appends the condition that picks the row, as text: keys are checked names, quoted all the same.
func (k Key) where() string {
	return "`sink`=" + quoteText(k.Sink) + " AND `topic`=" + quoteText(k.Topic) + " AND `part`=" + strconv.Itoa(int(k.Number))
}

// Row is one partition's progress.
type Row struct {
	Key
	Next        int64 // offset of the next record to apply
	Applied     int64 // the greatest Next ever committed: the rows equal the fold of the events below it
	TopicID     event.TopicID
	LeaderEpoch int32 // of the last record applied; -1 when none was
	Owner       string
	OwnerEpoch  int64
	HaltedAt    time.Time // zero: not halted
	HaltCode    string
	HaltText    string
	// UpdatedAt is when Next moved last, or the row was made, by the database's clock, in UTC. A take-over moves nothing:
	// a sink that is restarted again and again is as far behind as before.
	UpdatedAt time.Time
}

// Position is where the row says that the sink stands.
func (r Row) Position() event.Position {
	return event.Position{Partition: r.Partition, Next: r.Next, LeaderEpoch: r.LeaderEpoch, TopicID: r.TopicID}
}

// Left says that the row is as held left it: no other owner took it over, and the database was not restored to an earlier
// state. held is what its owner last saw or wrote, before the row was read.
func (r Row) Left(held Row) bool {
	return r.Owner == held.Owner && r.OwnerEpoch == held.OwnerEpoch && r.Next >= held.Next
}

const rowColumns = "`sink`,`topic`,`part`,`next_off`,`applied_off`,`topic_id`,`leader_epoch`,`owner`,`owner_epoch`," +
	"`halted_at`,`halt_code`,`halt_text`,`updated_at`"

func scan(from interface{ Scan(...any) error }) (Row, error) {
	var r Row
	var topicID []byte
	var haltedAt sql.NullTime
	var haltCode, haltText sql.NullString
	err := from.Scan(&r.Sink, &r.Topic, &r.Number, &r.Next, &r.Applied, &topicID, &r.LeaderEpoch, &r.Owner, &r.OwnerEpoch,
		&haltedAt, &haltCode, &haltText, &r.UpdatedAt)
	copy(r.TopicID[:], topicID) // a server that cuts trailing zero bytes still yields the same id
	r.HaltedAt, r.HaltCode, r.HaltText = haltedAt.Time, haltCode.String, haltText.String
	return r, err
}

// Read returns one row; sql.ErrNoRows when it was never seeded.
func Read(ctx context.Context, q Querier, key Key) (Row, error) {
	return scan(q.QueryRowContext(ctx, "SELECT "+rowColumns+" FROM `slotline_progress` WHERE "+key.where()))
}

// List returns all rows, or those of one sink, in order of sink, topic and partition.
func List(ctx context.Context, q Querier, sink string) ([]Row, error) {
	where := ""
	if sink != "" {
		where = " WHERE `sink`=" + quoteText(sink)
	}
	return list(ctx, q, where, "")
}

func list(ctx context.Context, q Querier, where, lock string) ([]Row, error) {
	rows, err := q.QueryContext(ctx, "SELECT "+rowColumns+" FROM `slotline_progress`"+where+" ORDER BY `sink`,`topic`,`part`"+lock)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []Row
	for rows.Next() {
		r, err := scan(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, rows.Err()
}

// Seed makes a row that begins at a position, unless there is one.
func Seed(ctx context.Context, q Querier, sink string, at event.Position) error {
	_, err := q.ExecContext(ctx, "INSERT INTO `slotline_progress` (`sink`,`topic`,`part`,`next_off`,`applied_off`,"+
		"`topic_id`,`leader_epoch`,`owner`,`owner_epoch`,`updated_at`) VALUES (?,?,?,?,?,?,?,'',0,UTC_TIMESTAMP(6)) "+
		"ON DUPLICATE KEY UPDATE `next_off`=`slotline_progress`.`next_off`",
		sink, at.Topic, at.Number, at.Next, at.Next, at.TopicID[:], at.LeaderEpoch)
	return err
}

// TakeOver bumps the owner epoch by one and returns the row as it then is. From its commit on, every earlier owner's
// transaction changes nothing. It blocks while another transaction holds the row.
//
// UPDATE then SELECT in one transaction, not LAST_INSERT_ID(owner_epoch+1): engines that only speak the protocol
// return 0 for the latter, and the row is needed anyway.
func TakeOver(ctx context.Context, conn *sql.Conn, key Key, owner string) (Row, error) {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return Row{}, err
	}
	defer tx.Rollback()
	_, err = tx.ExecContext(ctx, "UPDATE `slotline_progress` SET `owner_epoch`=`owner_epoch`+1,`owner`=? WHERE "+
		key.where(), owner)
	if err != nil {
		return Row{}, err
	}
	row, err := Read(ctx, tx, key)
	if err != nil {
		return Row{}, err // sql.ErrNoRows: the UPDATE found nothing either
	}
	return row, tx.Commit()
}

// Lock returns the rows of one sink, locked until tx ends: no owner commits a batch meanwhile.
func Lock(ctx context.Context, tx *sql.Tx, sink string) ([]Row, error) {
	return list(ctx, tx, " WHERE `sink`="+quoteText(sink), " FOR UPDATE")
}

// Fence bumps the owner epoch, so that whoever has taken the row over changes nothing from then on, and has the row
// stand at a position, unless it stands below.
func Fence(ctx context.Context, tx *sql.Tx, sink string, at event.Position) error {
	_, err := tx.ExecContext(ctx, "UPDATE `slotline_progress` SET `owner_epoch`=`owner_epoch`+1,`owner`='',"+
		"`leader_epoch`=IF(`next_off`>?,?,`leader_epoch`),`next_off`=LEAST(`next_off`,?) WHERE "+Key{sink, at.Partition}.where(),
		at.Next, at.LeaderEpoch, at.Next)
	return err
}

// Release clears the owner's name, if owner and epoch are still the row's. The epoch stays.
func Release(ctx context.Context, q Querier, key Key, owner string, epoch int64) error {
	_, err := q.ExecContext(ctx, "UPDATE `slotline_progress` SET `owner`='' WHERE "+key.where()+
		" AND `owner_epoch`=? AND `owner`=?", epoch, owner)
	return err
}

// Advance is one move of a row, the first statement of a sink's transaction.
type Advance struct {
	Key
	Owner       string // with OwnerEpoch the fence: a restored table gives an epoch out twice
	OwnerEpoch  int64
	Start, End  int64 // next_off before and after
	LeaderEpoch int32
	TopicID     event.TopicID
}

// AppendSQL appends the UPDATE. It finds one row (clientFoundRows) if owner and epoch are the row's and Start is where it
// stands; else none, and Decide says why. A move forward also ends a halt: what stopped the partition is past.
func (a *Advance) AppendSQL(dst []byte) []byte {
	dst = append(dst, "UPDATE `slotline_progress` SET `next_off`="...)
	dst = strconv.AppendInt(dst, a.End, 10)
	dst = append(dst, ",`applied_off`=GREATEST(`applied_off`,"...)
	dst = strconv.AppendInt(dst, a.End, 10)
	dst = append(dst, "),`leader_epoch`="...)
	dst = strconv.AppendInt(dst, int64(a.LeaderEpoch), 10)
	dst = append(dst, ",`topic_id`=x'"...)
	for _, b := range a.TopicID {
		dst = append(dst, hexDigits[b>>4], hexDigits[b&15])
	}
	dst = append(dst, "',`halted_at`=NULL,`halt_code`=NULL,`halt_text`=NULL,`updated_at`=UTC_TIMESTAMP(6) WHERE "...)
	dst = append(dst, a.where()...)
	dst = append(dst, " AND `owner_epoch`="...)
	dst = strconv.AppendInt(dst, a.OwnerEpoch, 10)
	dst = append(dst, " AND `owner`="...)
	dst = append(dst, quoteText(a.Owner)...)
	dst = append(dst, " AND `next_off`="...)
	return strconv.AppendInt(dst, a.Start, 10)
}

const hexDigits = "0123456789ABCDEF"

// Verdict says why an Advance found no row.
type Verdict uint8

const (
	Fenced   Verdict = iota + 1 // another owner took over
	Done                        // it is applied already: an unknown COMMIT had committed
	Pending                     // it is not applied: send it again
	WentBack                    // the database was restored to an earlier state: seek there
	Between                     // the row stands inside the batch: somebody else moves it
)

func (v Verdict) String() string {
	return [...]string{"", "fenced", "done", "pending", "went back", "between"}[v]
}

// Decide compares the row as it is with the move that was tried.
func (a *Advance) Decide(r Row) Verdict {
	switch {
	case r.OwnerEpoch != a.OwnerEpoch || r.Owner != a.Owner:
		return Fenced
	case r.Next >= a.End:
		return Done
	case r.Next < a.Start:
		return WentBack
	case r.Next == a.Start:
		return Pending
	default:
		return Between
	}
}

// Halt records that the partition has stopped, why, and since when (the first time counts until it moves again).
func Halt(ctx context.Context, q Querier, key Key, code, text string) error {
	if len(text) > haltTextBytesMax {
		text = strings.ToValidUTF8(text[:haltTextBytesMax], "")
	}
	_, err := q.ExecContext(ctx, "UPDATE `slotline_progress` SET `halted_at`=COALESCE(`halted_at`,UTC_TIMESTAMP(6)),"+
		"`halt_code`=?,`halt_text`=? WHERE "+key.where(), code, text)
	return err
}

// Resume ends a recorded halt whose reason is gone, where no event moves the row.
func Resume(ctx context.Context, q Querier, key Key) error {
	_, err := q.ExecContext(ctx, "UPDATE `slotline_progress` SET `halted_at`=NULL,`halt_code`=NULL,`halt_text`=NULL WHERE "+
		key.where()+" AND `halted_at` IS NOT NULL")
	return err
}

// Gap is the offsets of one partition that a person gave up: From <= offset < To.
type Gap struct {
	Key
	From, To int64
	// LeaderEpoch and TopicID are what the log has at To: the next check starts from them.
	LeaderEpoch int32
	TopicID     event.TopicID
	By, Reason  string
}

// AcceptGap moves next_off from From to To, records who and why, and bumps the owner epoch, so that whatever ran before
// is fenced. It changes nothing unless the row stands at From. To may be less than From: then the log was replaced by a
// shorter one, and its records from To on are applied (the version guard makes that safe).
func AcceptGap(ctx context.Context, db *sql.DB, g Gap) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	result, err := tx.ExecContext(ctx, "UPDATE `slotline_progress` SET `next_off`=?,`applied_off`=GREATEST(`applied_off`,?),"+
		"`leader_epoch`=?,`topic_id`=?,`owner_epoch`=`owner_epoch`+1,`owner`='',`halted_at`=NULL,`halt_code`=NULL,"+
		"`halt_text`=NULL,`updated_at`=UTC_TIMESTAMP(6) WHERE "+g.where()+" AND `next_off`=?",
		g.To, g.To, g.LeaderEpoch, g.TopicID[:], g.From)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil {
		return err
	} else if n != 1 {
		return &fault.Error{Code: "SL6201", Class: fault.Usage,
			What: fmt.Sprintf("progress of %s is not at offset %d any more; nothing was changed", g.Key, g.From),
			Do:   "look at slotline status and decide again"}
	}
	row, err := Read(ctx, tx, g.Key)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO `slotline_gap` (`sink`,`topic`,`part`,`from_off`,`to_off`,`owner_epoch`,"+
		"`accepted_at`,`accepted_by`,`reason`) VALUES (?,?,?,?,?,?,UTC_TIMESTAMP(6),?,?)",
		g.Sink, g.Topic, g.Number, g.From, g.To, row.OwnerEpoch, g.By, g.Reason)
	if err != nil {
		return err
	}
	return tx.Commit()
}

// CheckFormat refuses a progress table that a later release made. where names the database. A table that is not there
// is no error.
func CheckFormat(ctx context.Context, q Querier, where string) error {
	var comment string
	err := q.QueryRowContext(ctx, "SELECT TABLE_COMMENT FROM information_schema.TABLES WHERE TABLE_SCHEMA=DATABASE() "+
		"AND TABLE_NAME='slotline_progress'").Scan(&comment)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	_, number, found := strings.Cut(comment, "slotline progress format ")
	format, err := strconv.Atoi(number)
	if found && err == nil && format <= Format {
		return nil
	}
	if comment == "" {
		return nil // an engine that does not keep comments
	}
	return &fault.Error{Code: "SL6202", Class: fault.Fatal,
		What: fmt.Sprintf("%s: table slotline_progress says %q, this release reads format %d", where, comment, Format),
		Do:   "run the release that wrote it, or a later one"}
}

// NotSeeded is the error for a row that apply should have made.
func NotSeeded(where string, key Key) error {
	return &fault.Error{Code: "SL6203", Class: fault.Fatal,
		What: fmt.Sprintf("%s has no row in slotline_progress for sink %s, %s partition %d", where, key.Sink, key.Topic, key.Number),
		Why:  "the layout says that the partition meets it, but apply has not been run since",
		Do:   "slotline apply"}
}

// quoteText is a string literal without backslash escapes, which sql_mode may switch off.
func quoteText(s string) string {
	if strings.ContainsAny(s, "\\\x00") {
		return fmt.Sprintf("x'%X'", s)
	}
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}
