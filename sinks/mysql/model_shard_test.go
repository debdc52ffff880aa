package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/partitioner"
)

// modelShard is one shard's database in memory, behind database/sql: it understands the statements that the sink sends,
// locks progress rows as InnoDB does, and goes wrong at every statement in each way that a server, or the way to it, can.
// It decides by its own random source, so that a run is the same again however two shards' transactions interleave.
type modelShard struct {
	name    string
	random  *rand.Rand
	faults  bool
	between func(c *modelConn) // what other processes do between two statements of this one; nil: nothing
	checked func(c *modelConn, moved []int32)

	now     modelState
	below   partitioner.Month // what is retired; whoever restores a database retires again
	backups []modelState
	conns   map[*modelConn]bool
	locks   map[int32]*modelConn // by partition: whose transaction holds the progress row
	struck  map[string]int       // faults, by kind
}

// modelState is what is committed.
type modelState struct {
	progress map[int32]progress.Row
	rows     map[string]modelRow // by physical table and key
}

type modelRow struct {
	name string // "" of a deleted row
	ver  int64
}

func (s modelState) clone() modelState { return modelState{maps.Clone(s.progress), maps.Clone(s.rows)} }

// modelTx is what is not committed yet.
type modelTx struct {
	progress map[int32]progress.Row
	rows     []modelUpsert
}

type modelUpsert struct {
	key     string
	row     modelRow
	guarded bool // the greater version wins
}

type modelConn struct {
	shard *modelShard
	owner string // the process that it belongs to
	dead  bool   // to the client
	late  bool   // its COMMIT is on its way
	tx    *modelTx
}

func (c *modelConn) commit() {
	s := c.shard
	if c.tx == nil {
		return
	}
	for _, u := range c.tx.rows {
		if old, there := s.now.rows[u.key]; !there || !u.guarded || u.row.ver > old.ver {
			s.now.rows[u.key] = u.row
		}
	}
	maps.Copy(s.now.progress, c.tx.progress)
	moved := slices.Collect(maps.Keys(c.tx.progress))
	c.rollback()
	s.checked(c, moved)
	if s.random.IntN(4) == 0 {
		s.backups = append(s.backups, s.now.clone())
	}
}

func (c *modelConn) rollback() {
	for part, holder := range c.shard.locks {
		if holder == c {
			delete(c.shard.locks, part)
		}
	}
	c.tx, c.late = nil, false
}

// crash ends the server: what was not committed is gone, and every connection.
func (s *modelShard) crash() {
	for c := range s.conns {
		c.rollback()
		c.dead = true
	}
	clear(s.conns)
}

// restore puts a backup in place. What was backed up since is of a history that did not happen.
func (s *modelShard) restore() {
	if len(s.backups) == 0 {
		return
	}
	s.crash()
	i := s.random.IntN(len(s.backups))
	s.now, s.backups = s.backups[i].clone(), s.backups[:i+1]
	if s.below != partitioner.NoMonth { // the backup knows nothing of it
		s.retire()
	}
}

// retire bumps the owner epochs, so that nobody goes on who has not read what is retired, and drops the month tables.
func (s *modelShard) retire() {
	for p, r := range s.now.progress {
		r.OwnerEpoch++
		r.Owner = ""
		s.now.progress[p] = r
	}
	maps.DeleteFunc(s.now.rows, func(key string, _ modelRow) bool {
		return retired(202605, s.below) && strings.HasPrefix(key, "items_202605|")
	})
}

// lock takes a progress row. Who holds it and does not answer its client any more is found dead, or commits at last, or
// keeps the row for longer than anybody waits.
func (c *modelConn) lock(part int32) error {
	s := c.shard
	holder := s.locks[part]
	switch {
	case holder == nil || holder == c:
	case holder.late && s.random.IntN(2) == 0:
		holder.commit()
	case !s.faults || s.random.IntN(2) == 0:
		holder.dead = true
		holder.rollback()
	default:
		return &mysql.MySQLError{Number: 1205, Message: "Lock wait timeout exceeded"}
	}
	s.locks[part] = c
	return nil
}

// strike is asked before each packet. lost: it is carried out, and the client never hears of it.
func (c *modelConn) strike(query string) (lost bool, err error) {
	s := c.shard
	if !s.faults {
		return false, nil
	}
	if s.between != nil && s.random.IntN(8) == 0 {
		s.between(c)
		if c.dead {
			return false, mysql.ErrInvalidConn
		}
	}
	kind := ""
	switch n := s.random.IntN(100); {
	case n < 3:
		kind, err = "cut before", mysql.ErrInvalidConn
		c.rollback()
		c.dead = true
	case n < 7:
		kind, lost = "answer lost", true
	case n < 10 && strings.HasPrefix(query, "COMMIT"):
		kind, err = "COMMIT comes late", mysql.ErrInvalidConn
		c.dead, c.late = true, true
	case n < 10:
		kind, err = "deadlock", &mysql.MySQLError{Number: 1213, Message: "Deadlock found"}
		c.rollback()
	case n < 12:
		kind, err = "lock wait", &mysql.MySQLError{Number: 1205, Message: "Lock wait timeout exceeded"}
	case n < 14:
		kind, err = "read-only", &mysql.MySQLError{Number: 1290, Message: "The server is running with --read-only"}
	case n < 15:
		kind, err = "server killed", mysql.ErrInvalidConn
		s.crash()
	}
	if kind != "" {
		s.struck[kind]++
	}
	return lost, err
}

func (c *modelConn) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if c.dead {
		return nil, driver.ErrBadConn
	}
	lost, err := c.strike(query)
	if err != nil {
		return nil, err
	}
	var counts modelResult
	for _, statement := range strings.Split(strings.Clone(query), ";") { // the sink writes over it
		n, err := c.statement(statement, args)
		if err != nil {
			return nil, err // what came before it in the transaction stays
		}
		counts = append(counts, n)
	}
	if lost {
		c.dead = true
		return nil, mysql.ErrInvalidConn
	}
	return counts, nil
}

func (c *modelConn) statement(query string, args []driver.NamedValue) (int64, error) {
	switch {
	case query == "START TRANSACTION":
		c.commit() // as MySQL does
		c.tx = &modelTx{progress: map[int32]progress.Row{}}
		return 0, nil
	case query == "COMMIT":
		c.commit()
		return 0, nil
	case query == "ROLLBACK":
		c.rollback()
		return 0, nil
	case strings.HasPrefix(query, "SET SESSION "):
		return 0, nil
	}
	alone := c.tx == nil
	if alone {
		c.tx = &modelTx{progress: map[int32]progress.Row{}}
	}
	n, err := int64(0), error(nil)
	if rest, ok := strings.CutPrefix(query, "UPDATE `slotline_progress` SET "); ok {
		n, err = c.update(rest, args)
	} else if rest, ok := strings.CutPrefix(query, "INSERT INTO `"); ok {
		err = c.insert(rest)
	} else {
		err = fmt.Errorf("the model does not know %q", query)
	}
	switch {
	case alone && err == nil:
		c.commit()
	case alone:
		c.rollback()
	}
	return n, err
}

// update changes one progress row, if it is as the condition says. An unknown part of a statement is an error: what the
// model does not look at it would not prove.
func (c *modelConn) update(query string, args []driver.NamedValue) (int64, error) {
	set, where, _ := strings.Cut(query, " WHERE ")
	value := func(text string) string {
		if text == "?" {
			text, args = fmt.Sprint(args[0].Value), args[1:]
		}
		return strings.Trim(text, "'")
	}
	var changes []func(*progress.Row)
	for _, assign := range strings.Split(strings.ReplaceAll(set, "(`applied_off`,", "("), ",") {
		column, text, _ := strings.Cut(assign, "=")
		v := value(text)
		n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(v, "GREATEST("), ")"), 10, 64)
		switch column {
		case "`next_off`":
			changes = append(changes, func(r *progress.Row) { r.Next = n })
		case "`applied_off`":
			changes = append(changes, func(r *progress.Row) { r.Applied = max(r.Applied, n) })
		case "`owner`":
			changes = append(changes, func(r *progress.Row) { r.Owner = v })
		case "`owner_epoch`":
			changes = append(changes, func(r *progress.Row) { r.OwnerEpoch++ })
		case "`leader_epoch`", "`topic_id`", "`halted_at`", "`halt_code`", "`halt_text`", "`updated_at`":
		default:
			return 0, fmt.Errorf("the model does not know SET %q", assign)
		}
	}
	conditions := strings.Split(where, " AND ")
	part, err := modelPart(where)
	if err != nil {
		return 0, err
	}
	held := c.shard.locks[part] == c
	if err := c.lock(part); err != nil {
		return 0, err
	}
	row := c.row(part)
	found := true
	for _, condition := range conditions {
		column, text, _ := strings.Cut(condition, "=")
		v := value(text)
		switch column {
		case "`sink`":
			found = found && v == row.Sink
		case "`topic`":
			found = found && v == row.Topic
		case "`part`":
		case "`owner`":
			found = found && v == row.Owner
		case "`owner_epoch`":
			found = found && v == strconv.FormatInt(row.OwnerEpoch, 10)
		case "`next_off`":
			found = found && v == strconv.FormatInt(row.Next, 10)
		default:
			return 0, fmt.Errorf("the model does not know WHERE %q", condition)
		}
	}
	if !found {
		if !held {
			delete(c.shard.locks, part)
		}
		return 0, nil
	}
	for _, change := range changes {
		change(&row)
	}
	c.tx.progress[part] = row
	return 1, nil
}

func modelPart(where string) (int32, error) {
	_, text, _ := strings.Cut(where, "`part`=")
	text, _, _ = strings.Cut(text, " ")
	n, err := strconv.ParseInt(text, 10, 32)
	return int32(n), err
}

// row is what this connection sees.
func (c *modelConn) row(part int32) progress.Row {
	if c.tx != nil {
		if r, ok := c.tx.progress[part]; ok {
			return r
		}
	}
	return c.shard.now.progress[part]
}

// insert takes an upsert's rows. One with a bad name is refused, and with it the statement;
// one that is bad@s1, in s1 alone.
func (c *modelConn) insert(query string) error {
	table, rest, _ := strings.Cut(query, "` (")
	_, rest, _ = strings.Cut(rest, ") VALUES (")
	tuples, tail, ok := strings.Cut(rest, ") AS `_n` ON DUPLICATE KEY UPDATE ")
	if !ok {
		return fmt.Errorf("the model does not know this insert into %s", table)
	}
	guarded := strings.HasSuffix(tail, "`_ver`=GREATEST(`_n`.`_ver`,`"+table+"`.`_ver`)")
	var list []modelUpsert
	for _, tuple := range strings.Split(tuples, "),(") {
		f := strings.Split(tuple, ",")
		key, name := f[0]+","+f[1], f[len(f)-2]
		if table == "places" {
			key = f[0]
		}
		ver, err := strconv.ParseInt(f[len(f)-1], 10, 64)
		if err != nil {
			return err
		}
		if _, at, one := strings.Cut(name, "@"); strings.HasPrefix(name, "'bad") && (!one || at == c.shard.name+"'") {
			return &mysql.MySQLError{Number: 3819, Message: "Check constraint 'no_bad' is violated."}
		}
		if ver&1 == 1 {
			name = ""
		}
		list = append(list, modelUpsert{table + "|" + key, modelRow{name, ver}, guarded})
	}
	c.tx.rows = append(c.tx.rows, list...)
	return nil
}

func (c *modelConn) QueryContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	if c.dead {
		return nil, driver.ErrBadConn
	}
	lost, err := c.strike(query)
	if err != nil {
		return nil, err
	}
	if lost {
		c.dead = true
		return nil, mysql.ErrInvalidConn
	}
	switch {
	case strings.HasPrefix(query, "SELECT CONNECTION_ID()"):
		return &modelRows{{int64(1)}}, nil
	case strings.Contains(query, "FROM `slotline_retired`"):
		return &modelRows{{int64(c.shard.below), nil, ""}}, nil
	case strings.Contains(query, "FROM slotline_layout"):
		return nil, &mysql.MySQLError{Number: 1146, Message: "Table doesn't exist"}
	case strings.Contains(query, "FROM `slotline_progress` WHERE "):
		parts := []int32{}
		if strings.HasSuffix(query, " WHERE `sink`='mysql' ORDER BY `sink`,`topic`,`part`") {
			parts = slices.Sorted(maps.Keys(c.shard.now.progress))
		} else if part, err := modelPart(query); err != nil {
			return nil, err
		} else {
			parts = append(parts, part)
		}
		var rows modelRows
		for _, part := range parts {
			r := c.row(part)
			rows = append(rows, []driver.Value{r.Sink, r.Topic, int64(r.Number), r.Next, r.Applied, r.TopicID[:], int64(r.LeaderEpoch),
				r.Owner, r.OwnerEpoch, nil, nil, nil, time.Time{}})
		}
		return &rows, nil
	}
	return nil, fmt.Errorf("the model does not know %q", query)
}

// modelConnector is how one process's pools reach a shard.
type modelConnector struct {
	shard *modelShard
	owner string
}

func (m modelConnector) Connect(context.Context) (driver.Conn, error) {
	c := &modelConn{shard: m.shard, owner: m.owner}
	m.shard.conns[c] = true
	return c, nil
}

func (m modelConnector) Driver() driver.Driver { return nil }

// Close rolls back, unless the server does not hear of it.
func (c *modelConn) Close() error {
	if !c.dead {
		c.rollback()
		delete(c.shard.conns, c)
	}
	return nil
}

func (c *modelConn) ResetSession(context.Context) error {
	if c.dead {
		return driver.ErrBadConn
	}
	return nil
}

func (c *modelConn) Prepare(string) (driver.Stmt, error) {
	return nil, errors.New("nothing is prepared")
}
func (c *modelConn) Begin() (driver.Tx, error) {
	return c, c.send("START TRANSACTION")
}
func (c *modelConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return c.Begin() }

func (c *modelConn) Commit() error   { return c.send("COMMIT") }
func (c *modelConn) Rollback() error { return c.send("ROLLBACK") }
func (c *modelConn) send(query string) error {
	_, err := c.ExecContext(context.Background(), query, nil)
	return err
}

// modelResult counts per statement, as the driver's results do.
type modelResult []int64

func (r modelResult) LastInsertId() (int64, error) { return 0, nil }
func (r modelResult) RowsAffected() (int64, error) { return r[len(r)-1], nil }
func (r modelResult) AllRowsAffected() []int64     { return r }
func (r modelResult) AllLastInsertIds() []int64    { return make([]int64, len(r)) }

// modelRows is an answer of one row or more.
type modelRows [][]driver.Value

func (r *modelRows) Columns() []string { return make([]string, len((*r)[0])) }
func (r *modelRows) Close() error      { return nil }
func (r *modelRows) Next(dst []driver.Value) error {
	if len(*r) == 0 {
		return io.EOF
	}
	copy(dst, (*r)[0])
	*r = (*r)[1:]
	return nil
}
