package replay

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/internal/progress"
)

const (
	// compareRows of a side are compared by one statement: it bounds memory, and how long a snapshot is held.
	compareRows = 5000
	// compareAtOnce chunks are compared side by side, each on a connection of its own: a server takes one CPU for each.
	compareAtOnce = 2
	// shownMax differences are looked at column by column.
	shownMax = 20
	// decideFor is how long a row that keeps changing is looked at again.
	decideFor = 30 * time.Second
)

// Difference is a row in which the live table and the log are not one.
type Difference struct {
	Table   string `json:"table"`            // physical, live
	Tenant  string `json:"tenant,omitempty"` // "" for a broadcast table
	ID      string `json:"id"`
	LiveVer int64  `json:"live_ver"`       // _ver; 0: there is no such row
	LogVer  int64  `json:"log_ver"`        // of the row that the log makes; 0: there is none
	What    string `json:"what,omitempty"` // the columns that differ: "status scheduled -> arrived"
}

// String names the row, both versions, and what differs. The live side is wrong: the other was made from the log.
func (d *Difference) String() string {
	entity := strings.TrimSpace(d.Tenant + " " + d.ID)
	switch {
	case d.LiveVer == 0:
		return fmt.Sprintf("%s %s  missing; log _ver %d", d.Table, entity, d.LogVer)
	case d.LogVer == 0:
		return fmt.Sprintf("%s %s  live _ver %d; not in the log", d.Table, entity, d.LiveVer)
	}
	return fmt.Sprintf("%s %s  live _ver %d, log %d: %s", d.Table, entity, d.LiveVer, d.LogVer, d.What)
}

// Comparison is what comparing tables row by row has found.
type Comparison struct {
	Tables  int          `json:"tables"`
	Rows    int64        `json:"rows"` // of the log's side, all read; deleted rows count
	Equal   int64        `json:"equal"`
	Differ  int64        `json:"differ"`  // in both, not the same
	Missing int64        `json:"missing"` // not live
	Extra   int64        `json:"extra"`   // live, and not in the log
	Moving  int64        `json:"moving"`  // changed so often that no moment was found at which both sides had applied the same
	Mended  int64        `json:"mended"`
	Altered []string     `json:"altered"` // tables that are not as the file says, and how; their rows count as differing
	Shown   []Difference `json:"shown"`   // the first of them
}

// Differs counts the rows that are not the same.
func (c *Comparison) Differs() int64 { return c.Differ + c.Missing + c.Extra }

// comparer compares one pair of tables.
type comparer struct {
	r    *Replay
	job  *Job
	pair pair
	out  *Comparison
	keys []event.Column
	mend bool
}

// compare reads every row of both sides of each pair; with mend it has the live rows that are wrong be as the log makes
// them.
func (r *Replay) compare(ctx context.Context, j *Job, mend bool) (*Comparison, error) {
	p, err := r.pairing(j, shadowSuffix(j.Name))
	if err != nil {
		return nil, err
	}
	defer p.close()
	if err := p.complete(ctx, r.db, r.o.Shard); err != nil {
		return nil, err
	}
	pairs, _, err := p.find(ctx, r.db)
	if err != nil {
		return nil, r.wrap(err)
	}
	live, err := p.live.PhysicalTables(ctx, r.db, r.o.Shard)
	if err != nil {
		return nil, err
	}
	out := &Comparison{Altered: []string{}, Shown: []Difference{}}
	for i, pr := range pairs {
		for _, t := range live {
			if t.Name == pr.live.Name {
				pr.live = t
			}
		}
		c := &comparer{r: r, job: j, pair: pr, out: out, mend: mend}
		if !pr.live.Broadcast() {
			c.keys = append(c.keys, pr.live.Columns[pr.live.Tenant])
		}
		c.keys = append(c.keys, pr.live.Columns[pr.live.ID])
		out.Tables++
		r.tell(Line{Stage: "verify", Text: fmt.Sprintf("%s, %d of %d tables, %d rows", pr.live.Name, i+1, len(pairs), out.Rows), Passing: true})
		if err := c.table(ctx); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// table walks both tables in order of their primary keys. One that was altered cannot be compared: none of its rows is
// taken for right.
func (c *comparer) table(ctx context.Context) error {
	if len(c.pair.live.Differs) > 0 {
		var live, rows int64
		err := c.r.long.QueryRowContext(ctx, "SELECT (SELECT COUNT(*) FROM "+mysqldb.Ident(c.pair.live.Name)+"), (SELECT COUNT(*) FROM "+
			mysqldb.Ident(c.pair.beside.Name)+")").Scan(&live, &rows)
		c.out.Altered = append(c.out.Altered, c.pair.live.Name+": "+strings.Join(c.pair.live.Differs, "; "))
		c.out.Rows, c.out.Differ = c.out.Rows+rows, c.out.Differ+rows
		return c.r.wrap(err)
	}
	var from []any
	for ended := false; !ended; {
		var chunks []chunk
		for len(chunks) < compareAtOnce && !ended {
			to, err := c.next(ctx, from)
			if err != nil {
				return err
			}
			chunks = append(chunks, chunk{from: from, to: to})
			from, ended = to, to == nil
		}
		counts := make([]func() error, len(chunks))
		for i := range chunks {
			counts[i] = func() error { return c.count(ctx, &chunks[i]) }
		}
		if err := atOnce(counts...); err != nil {
			return err
		}
		for _, k := range chunks {
			if err := c.add(ctx, k); err != nil {
				return err
			}
		}
	}
	return nil
}

// next is the last key of the next chunk; nil when both sides end before it is full.
func (c *comparer) next(ctx context.Context, from []any) ([]any, error) {
	side := func(table, alias string) (string, []any) {
		where, args := c.above(alias, from)
		return "(SELECT " + c.keyList(alias) + " FROM " + mysqldb.Ident(table) + " " + alias + where + " ORDER BY " + c.keyList(alias) +
			" LIMIT 1 OFFSET " + strconv.Itoa(compareRows-1) + ")", args
	}
	a, args := side(c.pair.live.Name, "a")
	b, more := side(c.pair.beside.Name, "b")
	row := c.r.long.QueryRowContext(ctx, "SELECT * FROM ("+a+" UNION ALL "+b+") u ORDER BY "+c.keyList("u")+" LIMIT 1", append(args, more...)...)
	to, err := c.scanKey(row.Scan)
	if err == sql.ErrNoRows {
		return nil, nil
	}
	return to, c.r.wrap(err)
}

// scanKey reads a key as values of its columns' types: an integer is not compared with a string.
func (c *comparer) scanKey(scan func(...any) error, more ...any) ([]any, error) {
	texts := make([]string, len(c.keys))
	into := make([]any, 0, len(texts)+len(more))
	for i := range texts {
		into = append(into, &texts[i])
	}
	if err := scan(append(into, more...)...); err != nil {
		return nil, err
	}
	key := make([]any, len(texts))
	for i, text := range texts {
		key[i] = text
		switch c.keys[i].Type.Kind {
		case event.Int32, event.Int64:
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return nil, err
			}
			key[i] = n
		case event.Uint64:
			n, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				return nil, err
			}
			key[i] = n
		}
	}
	return key, nil
}

// chunk is the rows above one key and up to another: how many there are live, how many of those are in both and the same,
// and how many the log makes.
type chunk struct {
	from, to         []any
	live, equal, log int64
}

// count looks at both sides in one statement, which sees them at one moment. Every live row that is the same as one of the
// log's, and as many of the log's: none is missing.
func (c *comparer) count(ctx context.Context, k *chunk) error {
	b, args := c.within("b", k.from, k.to)
	a, more := c.within("a", k.from, k.to)
	return c.r.wrap(c.r.long.QueryRowContext(ctx, "SELECT COUNT(*), COALESCE(SUM(b.`_ver` IS NOT NULL AND "+c.same()+"),0), "+
		"(SELECT COUNT(*) FROM "+mysqldb.Ident(c.pair.beside.Name)+" b"+b+") FROM "+c.join("a", "b")+a, append(args, more...)...).
		Scan(&k.live, &k.equal, &k.log))
}

// add takes a chunk into the comparison, after a closer look where it is not the same on both sides.
func (c *comparer) add(ctx context.Context, k chunk) error {
	c.out.Rows += k.log
	if k.equal == k.live && k.log == k.live {
		c.out.Equal += k.equal
		return nil
	}
	differ, gone, extra, moving, err := c.settle(ctx, k.from, k.to)
	if err != nil {
		return err
	}
	c.out.Differ += differ
	c.out.Missing += gone
	c.out.Extra += extra
	c.out.Moving += moving
	c.out.Equal += max(0, k.log-differ-gone-moving)
	return nil
}

// settle tells lag from difference: it looks at the rows that are not the same in one snapshot with both sides' progress. A
// row whose lesser version stands on the side that has applied more, or as much, is wrong; else that side may have it
// still to come, and is asked again.
func (c *comparer) settle(ctx context.Context, from, to []any) (differ, missing, extra, moving int64, err error) {
	deadline := time.Now().Add(decideFor)
	for {
		list, open, err := c.details(ctx, from, to)
		if err != nil {
			return 0, 0, 0, 0, err
		}
		if open > 0 && time.Now().Before(deadline) {
			if err := sleep(ctx, 50*time.Millisecond); err != nil {
				return 0, 0, 0, 0, err
			}
			continue
		}
		for i := range list {
			d := &list[i]
			switch {
			case d.LiveVer == 0:
				missing++
			case d.LogVer == 0:
				extra++
			default:
				differ++
			}
			if len(c.out.Shown) < shownMax {
				if err := c.columns(ctx, d); err != nil {
					return 0, 0, 0, 0, err
				}
				c.out.Shown = append(c.out.Shown, *d)
			}
		}
		if c.mend && len(list) > 0 {
			if err := c.repair(ctx, list); err != nil {
				return 0, 0, 0, 0, err
			}
			c.out.Mended += int64(len(list))
		}
		return differ, missing, extra, int64(open), nil
	}
}

// details are the rows of a chunk that differ; open is how many more may only be late.
func (c *comparer) details(ctx context.Context, from, to []any) (list []Difference, open int, err error) {
	conn, err := c.r.long.Conn(ctx)
	if err != nil {
		return nil, 0, c.r.wrap(err)
	}
	defer mysqldb.Discard(conn)
	for _, statement := range []string{"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return nil, 0, c.r.wrap(err)
		}
	}
	rows, err := progress.List(ctx, conn, "")
	if err != nil {
		return nil, 0, c.r.wrap(err)
	}
	live, log := ends{}, ends{}
	for _, row := range rows {
		switch row.Sink {
		case liveSink:
			live[row.Partition] = row.Next
		case shadowSink(c.job.Name):
			log[row.Partition] = row.Next
		}
	}
	spread := "''"
	if t := c.pair.live.Table; t.Spread != event.None {
		spread = "CAST(%s." + mysqldb.Ident(t.Columns[t.Spread].Name) + " AS CHAR)"
	}
	of := func(alias string) string { return strings.ReplaceAll(spread, "%s", alias) }
	where, args := c.within("a", from, to)
	query := "SELECT " + c.keyList("a") + "," + of("a") + ",a.`_ver`,COALESCE(b.`_ver`,0) FROM " + c.join("a", "b") + where +
		" AND (b.`_ver` IS NULL OR NOT (" + c.same() + "))"
	where, more := c.within("b", from, to)
	query += " UNION ALL SELECT " + c.keyList("b") + "," + of("b") + ",0,b.`_ver` FROM " + c.join("b", "a") + where + " AND a.`_ver` IS NULL"
	found, err := conn.QueryContext(ctx, query, append(args, more...)...)
	if err != nil {
		return nil, 0, c.r.wrap(err)
	}
	defer found.Close()
	for found.Next() {
		d := Difference{Table: c.pair.live.Name}
		var spreadText string
		key, err := c.scanKey(found.Scan, &spreadText, &d.LiveVer, &d.LogVer)
		if err != nil {
			return nil, 0, c.r.wrap(err)
		}
		d.ID = fmt.Sprint(key[len(key)-1])
		if len(key) > 1 {
			d.Tenant = fmt.Sprint(key[0])
		}
		if c.decided(&d, spreadText, live, log) {
			list = append(list, d)
		} else {
			open++
		}
	}
	return list, open, c.r.wrap(found.Err())
}

// decided says whether a difference cannot be lag: the side with the lesser version has applied as much of the entity's
// partition as the other.
func (c *comparer) decided(d *Difference, spread string, live, log ends) bool {
	if d.LiveVer == d.LogVer {
		return true
	}
	part := event.Partition{Topic: c.r.o.Config.Topic(c.pair.live.Table), Number: c.r.o.Layout.Broadcast()}
	if !c.pair.live.Broadcast() {
		part.Number = c.r.o.Layout.Route(d.Tenant, spread).Partition
	}
	if d.LiveVer < d.LogVer {
		return live[part] >= log[part]
	}
	return log[part] >= live[part]
}

// columns says in which columns a row differs.
func (c *comparer) columns(ctx context.Context, d *Difference) error {
	if d.LiveVer == 0 || d.LogVer == 0 {
		return nil
	}
	read := func(table string) ([]sql.NullString, error) {
		var columns []string
		for _, col := range c.pair.live.Columns {
			columns = append(columns, "CAST("+mysqldb.Ident(col.Name)+" AS CHAR)")
		}
		is, args := c.keyIs(d)
		values := make([]sql.NullString, len(columns))
		into := make([]any, len(values))
		for i := range values {
			into[i] = &values[i]
		}
		err := c.r.long.QueryRowContext(ctx, "SELECT "+strings.Join(columns, ",")+" FROM "+mysqldb.Ident(table)+" WHERE "+is, args...).Scan(into...)
		return values, err
	}
	a, err := read(c.pair.live.Name)
	b, errB := read(c.pair.beside.Name)
	if err != nil || errB != nil {
		return nil // it is gone by now: the versions say enough
	}
	var texts []string
	for i, col := range c.pair.live.Columns {
		if a[i] != b[i] {
			texts = append(texts, fmt.Sprintf("%s %s -> %s", col.Name, shown(a[i]), shown(b[i])))
		}
	}
	d.What = strings.Join(texts, ", ")
	if d.What == "" {
		d.What = "the version alone"
	}
	return nil
}

// keyIs finds the row of a difference by its primary key.
func (c *comparer) keyIs(d *Difference) (where string, args []any) {
	texts := []string{d.ID}
	if len(c.keys) > 1 {
		texts = []string{d.Tenant, d.ID}
	}
	var parts []string
	for i, k := range c.keys {
		parts = append(parts, mysqldb.Ident(k.Name)+"=?")
		if k.Type.Kind == event.String {
			args = append(args, texts[i])
		} else {
			args = append(args, integer(texts[i], k.Type.Kind))
		}
	}
	return strings.Join(parts, " AND "), args
}

func integer(text string, k event.Kind) any {
	if k == event.Uint64 {
		if n, err := strconv.ParseUint(text, 10, 64); err == nil {
			return n
		}
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	return text
}

func shown(v sql.NullString) string {
	switch {
	case !v.Valid:
		return "NULL"
	case len(v.String) > 40:
		return strconv.Quote(strings.ToValidUTF8(v.String[:40], "")) + "…"
	case v.String == "" || strings.ContainsFunc(v.String, func(r rune) bool { return r < ' ' }):
		return strconv.Quote(v.String)
	}
	return v.String
}

// keyList is "x.`tenant`,x.`id`".
func (c *comparer) keyList(alias string) string {
	names := make([]string, len(c.keys))
	for i, k := range c.keys {
		names[i] = alias + "." + mysqldb.Ident(k.Name)
	}
	return strings.Join(names, ",")
}

// join is every row of one side with the other's of the same key. a is the live one.
func (c *comparer) join(left, right string) string {
	name := map[string]string{"a": c.pair.live.Name, "b": c.pair.beside.Name}
	var on []string
	for _, k := range c.keys {
		on = append(on, right+"."+mysqldb.Ident(k.Name)+"="+left+"."+mysqldb.Ident(k.Name))
	}
	return mysqldb.Ident(name[left]) + " " + left + " LEFT JOIN " + mysqldb.Ident(name[right]) + " " + right + " ON " + strings.Join(on, " AND ")
}

// same says that two rows hold the same bytes in each column; JSON, which the server keeps by value, the same value.
func (c *comparer) same() string {
	parts := []string{"a.`_ver`=b.`_ver`"}
	for _, col := range c.pair.live.Columns {
		if slices.ContainsFunc(c.keys, func(k event.Column) bool { return k.Name == col.Name }) {
			continue
		}
		x, y := "a."+mysqldb.Ident(col.Name), "b."+mysqldb.Ident(col.Name)
		if col.Type.Kind == event.String || col.Type.Kind == event.Text { // whatever collation the live column has by now
			x, y = "CAST("+x+" AS BINARY)", "CAST("+y+" AS BINARY)"
		}
		parts = append(parts, x+"<=>"+y)
	}
	return strings.Join(parts, " AND ")
}

// above is the rows after a key, in a form that the server finds by range.
func (c *comparer) above(alias string, from []any) (where string, args []any) {
	return c.within(alias, from, nil)
}

// within is the rows after one key and up to another; nil is no bound.
func (c *comparer) within(alias string, from, to []any) (where string, args []any) {
	var parts []string
	bound := func(key []any, first, last string) {
		if key == nil {
			return
		}
		k := func(i int) string { return alias + "." + mysqldb.Ident(c.keys[i].Name) }
		if len(key) == 1 {
			parts, args = append(parts, k(0)+last+"?"), append(args, key[0])
			return
		}
		parts = append(parts, "("+k(0)+first+"? OR ("+k(0)+"=? AND "+k(1)+last+"?))")
		args = append(args, key[0], key[0], key[1])
	}
	bound(from, ">", ">")
	bound(to, "<", "<=")
	if parts == nil {
		return " WHERE TRUE", nil
	}
	return " WHERE " + strings.Join(parts, " AND "), args
}

// verify compares the shadow tables with the live ones, and says what was found, before a person decides.
func (r *Replay) verify(ctx context.Context, j *Job) (*Comparison, error) {
	began := time.Now()
	c, err := r.compare(ctx, j, false)
	if err != nil {
		return nil, err
	}
	if r.o.Compared != nil {
		r.o.Compared(c)
	}
	r.say("verify", fmt.Sprintf("%d rows in %d tables, both sides read in full in %s: %d equal, %d differ, %d missing, %d extra",
		c.Rows, c.Tables, short(time.Since(began)), c.Equal, c.Differ, c.Missing, c.Extra))
	for _, text := range c.Altered {
		r.say("verify", text+" (the live table was altered: its rows were not compared)")
	}
	for i := range c.Shown {
		r.say("verify", c.Shown[i].String()+"  (the live side is wrong)")
	}
	if n := c.Differs() - int64(len(c.Shown)); n > 0 && len(c.Shown) > 0 {
		r.say("verify", fmt.Sprintf("and %d more", n))
	}
	if c.Moving > 0 {
		return c, &fault.Error{Code: codeUndecided, Class: fault.Transient,
			What: fmt.Sprintf("job %s: %d rows changed so fast that no moment was found at which both sides had applied the same", j.Name, c.Moving),
			Do:   "slotline replay resume " + j.Name + ", when there is less traffic"}
	}
	if c.Rows == 0 && !j.Spec.AllowEmpty {
		return c, &fault.Error{Code: codeNothing, Class: fault.Fatal,
			What: fmt.Sprintf("job %s: the log makes no row of %s in shard %s: nothing was verified", j.Name, strings.Join(j.Spec.Tables, ", "), r.o.Shard),
			Do:   "if that is right: slotline replay resume " + j.Name + " --allow-empty"}
	}
	return c, r.checkDead(ctx, j, liveSink, "slotline replay resume "+j.Name)
}

// checkDead says which events the rebuilt tables could not hold. Those that the live sink refused too are known; of
// others a person must decide.
func (r *Replay) checkDead(ctx context.Context, j *Job, live, again string) error {
	type place struct {
		event.Partition
		offset int64
	}
	rows, err := r.db.QueryContext(ctx, "SELECT `topic`,`part`,`off`,`reason`,`error` FROM `slotline_job_dead` WHERE `job`=? ORDER BY 1,2,3", j.Name)
	if err != nil {
		return r.wrap(err)
	}
	defer rows.Close()
	refused := map[place]string{}
	for rows.Next() {
		var p place
		var reason, text string
		if err := rows.Scan(&p.Topic, &p.Number, &p.offset, &reason, &text); err != nil {
			return r.wrap(err)
		}
		text, _, _ = strings.Cut(text, "\n")
		refused[p] = reason + ": " + text
	}
	if err := rows.Err(); err != nil {
		return r.wrap(err)
	}
	if len(refused) == 0 {
		return nil
	}
	letters, err := kafka.DeadLetters(ctx, r.o.Config, r.o.Logger, nil)
	if err != nil {
		return err
	}
	known := 0
	for _, l := range letters {
		p := place{l.Partition, l.Offset}
		if _, ok := refused[p]; ok && l.Sink == live {
			delete(refused, p)
			known++
		}
	}
	r.say("verify", fmt.Sprintf("%d events could not be applied: %d are dead letters of the live sink, %d are not", known+len(refused), known, len(refused)))
	if len(refused) == 0 {
		return nil
	}
	places := make([]place, 0, len(refused))
	for p := range refused {
		places = append(places, p)
	}
	slices.SortFunc(places, func(a, b place) int {
		if a.Number != b.Number {
			return int(a.Number - b.Number)
		}
		return int(a.offset - b.offset)
	})
	for _, p := range places[:min(len(places), shownMax)] {
		r.say("verify", fmt.Sprintf("%s partition %d offset %d  %s", p.Topic, p.Number, p.offset, refused[p]))
	}
	if j.Spec.AcceptDead {
		return nil
	}
	do := "correct the file, abort and begin anew"
	if !j.Spec.Repair {
		do += "; or " + again + " --accept-dead"
	}
	return &fault.Error{Code: codeDead, Class: fault.Fatal,
		What: fmt.Sprintf("job %s: %d events cannot be applied that the live sink has no dead letter of; nothing was changed", j.Name, len(refused)),
		Why:  "a schema, a table or a range that the file has no more; or their dead letters have expired", Do: do}
}
