package mysql

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/partitioner"
)

// The staging path: many rows of one table are loaded into a temporary table first, and one INSERT … SELECT puts them
// where they belong, which spares the server's parser most of its work. It promises nothing of its own: whatever goes
// wrong on it, the same batch goes as text at once, and only what that meets counts.

const (
	// stagingRowsMin is from how many rows of a table on staging is faster than text (docs/benchmarks.md).
	stagingRowsMin = 2000
	// stagingHeapBytesMax is the largest MEMORY table, half of what a server allows by default. InnoDB takes more.
	stagingHeapBytesMax = 8 << 20
	// stagingRest is how long a shard's batches go as text after the server, or what lies before it, refused staging.
	stagingRest = time.Minute
)

// staged is the rows of one table that were loaded.
type staged struct {
	place   place
	entries []entry
	stagingSQL
}

// stagingSQL is what one table's rows need on the staging path.
type stagingSQL struct{ name, create, load, insert string }

// newStagingSQL names the temporary table by its number in the batch (names that begin with _ are reserved, so it hides
// nobody's table), and reads it from the reader of the given name. Characters are given in hex: they mean the same under any
// sql_mode. The server takes the bytes as they are (binary): they are valid UTF-8 where the column is text.
func newStagingSQL(t *event.Table, m partitioner.Month, d dialect, number, rows int, reader string) stagingSQL {
	var create strings.Builder
	columns := make([]string, 0, len(t.Columns)+1)
	heap, rowBytes := true, 16 // _ver, and what the engine adds
	name := mysqldb.Ident("_staging_" + strconv.Itoa(number))
	create.WriteString("CREATE TEMPORARY TABLE " + name + " (")
	for _, c := range t.Columns {
		columns = append(columns, c.Name)
		switch c.Type.Kind {
		case event.Text, event.JSON:
			heap = false // MEMORY has no LONGTEXT
		case event.String:
			rowBytes += 4*c.Type.Length + 2 // MEMORY rows have one length
		case event.Bytes:
			rowBytes += c.Type.Length + 2
		default:
			rowBytes += 16
		}
		if c.Type.Kind == event.JSON {
			c.Type.Kind = event.Text // binary is no JSON to the server; INSERT parses it
		}
		create.WriteString(columnDDL(c) + ", ")
	}
	columns = append(columns, "_ver")
	engine := "InnoDB"
	if heap && rows*rowBytes <= stagingHeapBytesMax {
		engine = "MEMORY"
	}
	create.WriteString("`_ver` BIGINT NOT NULL) ENGINE=" + engine + " DEFAULT CHARACTER SET utf8mb4 COLLATE " + d.collation())

	list, table := identList(columns), mysqldb.Ident(d.name(t, m))
	fresh := func(c event.Column) string {
		if c.Type.Kind == event.JSON {
			return "CAST(`_n`." + mysqldb.Ident(c.Name) + " AS JSON)" // else IF would make text of both
		}
		return "`_n`." + mysqldb.Ident(c.Name)
	}
	return stagingSQL{
		name:   name,
		create: create.String(),
		load: "LOAD DATA LOCAL INFILE 'Reader::" + reader + "' INTO TABLE " + name + " CHARACTER SET binary " +
			"FIELDS TERMINATED BY x'09' ESCAPED BY x'5C' LINES TERMINATED BY x'0A' (" + list + ")",
		insert: "INSERT INTO " + table + " (" + list + ") SELECT " + list + " FROM " + name + " AS `_n`" + guard(t, table, fresh),
	}
}

// toStage is the tables of a batch that have at least so many rows.
func toStage(entries []entry, rowsMin int) [][]entry {
	var list [][]entry
	for rest := entries; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].place == rest[0].place {
			n++
		}
		if n >= rowsMin {
			list = append(list, rest[:n])
		}
		rest = rest[n:]
	}
	return list
}

// stages says what of the task goes by staging. MariaDB and servers without the row alias are not asked: what they make
// of it was not tested.
func (t *task) stages(e *engine) [][]entry {
	rowsMin := t.owned.sink.stagingRows
	if t.plain || rowsMin < 0 || len(t.entries) < rowsMin || e.MariaDB || !e.RowAlias || !t.shard.staging.ready() {
		return nil
	}
	return toStage(t.entries, rowsMin)
}

// readers numbers the readers of this process: the driver knows them by name, whatever the connection.
var readers atomic.Uint64

// load fills temporary tables. It runs before the transaction: the progress row is locked no longer than by text, and a
// MEMORY table that is written inside a transaction is a warning.
func (t *task) load(ctx context.Context, conn *sql.Conn, e *engine, lists [][]entry) ([]staged, error) {
	var done []staged
	for i, entries := range lists {
		p := entries[0].place
		reader := "slotline_" + strconv.FormatUint(readers.Add(1), 10)
		s := staged{p, entries, newStagingSQL(t.owned.sink.tables[p.table()].Table, p.month(), e.dialect, i, len(entries), reader)}
		if _, err := exec(ctx, conn, s.create); err != nil {
			return nil, err
		}
		mysql.RegisterReaderHandler(reader, func() io.Reader { return &lines{rows: t.buffer, entries: entries} })
		result, err := exec(ctx, conn, s.load)
		mysql.DeregisterReaderHandler(reader)
		if err != nil {
			return nil, err
		}
		// LOCAL makes a warning of what would be an error, and alters the value.
		if err := warned(ctx, conn); err != nil {
			return nil, err
		}
		if n, err := result.RowsAffected(); err != nil || n != int64(len(entries)) {
			return nil, fmt.Errorf("%w: %d of %d rows were loaded", errWarned, n, len(entries))
		}
		done = append(done, s)
	}
	return done, nil
}

// errWarned says that the server altered or passed over a row.
var errWarned = errors.New("LOAD DATA gave warnings")

// warned returns errWarned with the first warning of the statement before, or nil.
func warned(ctx context.Context, conn *sql.Conn) error {
	var count, number int
	if err := conn.QueryRowContext(ctx, "SELECT @@warning_count").Scan(&count); err != nil || count == 0 {
		return err
	}
	var level, text string
	if err := conn.QueryRowContext(ctx, "SHOW WARNINGS LIMIT 1").Scan(&level, &number, &text); err != nil {
		return fmt.Errorf("%w: %d", errWarned, count)
	}
	return fmt.Errorf("%w: %d, the first: %s (%d)", errWarned, count, text, number)
}

// dropSQL follows COMMIT in its packet: nothing of a batch stays in the session. A connection whose batch did not come
// so far is closed.
func dropSQL(list []staged) string {
	names := make([]string, len(list))
	for i, s := range list {
		names[i] = s.name
	}
	return ";DROP TEMPORARY TABLE " + strings.Join(names, ",")
}

// unstaged is an error that the batch met on the staging path and need not meet as text.
type unstaged struct{ err error }

func (e *unstaged) Error() string { return e.err.Error() }
func (e *unstaged) Unwrap() error { return e.err }

// fellBack notes why a batch goes as text. What lies in its data says nothing of the next batch.
func (t *task) fellBack(ctx context.Context, err error) {
	t.plain = true
	log := t.owned.sink.log.With("shard", t.shard.name, "error", err)
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, errWarned), mysqldb.Classify(err) == fault.Data:
		log.Debug("a batch that was loaded is sent as text")
	case t.shard.staging.rest(err):
		do := "nothing: text is slower, not less safe"
		switch mysqldb.Number(err) {
		case 1044, 1142, 1227:
			do = "grant CREATE TEMPORARY TABLES: slotline apply --grants prints it"
		case 1148, 3948:
			do = "SET PERSIST local_infile=ON, for speed alone"
		case 1114:
			do = "SET PERSIST max_heap_table_size to 16 MiB or more, for speed alone"
		}
		log.Info("large batches go as text: the staging path was refused", "do", do)
	}
}

// stagingState is whether a shard's server is asked for staging.
type stagingState struct {
	mu    sync.Mutex
	until time.Time // before it, everything goes as text
	said  string    // the last reason that was logged
}

func (s *stagingState) ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !time.Now().Before(s.until)
}

// rest puts staging off, and says whether the reason is a new one.
func (s *stagingState) rest(err error) (fresh bool) {
	reason := err.Error()
	if n := mysqldb.Number(err); n != 0 {
		reason = strconv.Itoa(int(n))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh = s.said != reason
	s.until, s.said = time.Now().Add(stagingRest), reason
	return fresh
}

// lines reads rows as LOAD DATA wants them.
type lines struct {
	rows    *rows
	entries []entry // not in buf yet
	buf     []byte  // read up to at
	at      int
}

// Read fills p, so that each packet but the last is full.
func (l *lines) Read(p []byte) (int, error) {
	if len(l.buf)-l.at < len(p) {
		l.buf, l.at = l.buf[:copy(l.buf, l.buf[l.at:])], 0
		for len(l.entries) > 0 && len(l.buf) < len(p) {
			l.buf = appendLine(l.buf, l.rows.bytes(l.entries[0].tuple))
			l.entries = l.entries[1:]
		}
		if len(l.buf) == 0 {
			return 0, io.EOF
		}
	}
	n := copy(p, l.buf[l.at:])
	l.at += n
	return n, nil
}

// appendLine appends a tuple, as appendTuple writes it, as a line of LOAD DATA: values between tabs, \N for NULL, and a
// backslash before what would end a value or a line. A quoted literal holds no such byte: what does is in hex.
func appendLine(dst, tuple []byte) []byte {
	s := tuple[1 : len(tuple)-1]
	for {
		switch s[0] {
		case '\'':
			for more := true; more; {
				s = s[1:]
				end := bytes.IndexByte(s, '\'')
				dst, s = append(dst, s[:end]...), s[end+1:]
				if more = len(s) > 0 && s[0] == '\''; more { // '' is one quote
					dst = append(dst, '\'')
				}
			}
		case 'x', '_': // x'00', _utf8mb4 x'00'
			s = s[bytes.IndexByte(s, '\'')+1:]
			for ; s[0] != '\''; s = s[2:] {
				dst = appendEscaped(dst, unhex(s[0])<<4|unhex(s[1]))
			}
			s = s[1:]
		case 'N':
			dst, s = append(dst, `\N`...), s[len("NULL"):]
		default:
			end := bytes.IndexByte(s, ',')
			if end < 0 { // _ver is the last one
				return append(append(dst, s...), '\n')
			}
			dst, s = append(dst, s[:end]...), s[end:]
		}
		dst, s = append(dst, '\t'), s[1:]
	}
}

func appendEscaped(dst []byte, c byte) []byte {
	switch c {
	case '\t':
		return append(dst, `\t`...)
	case '\n':
		return append(dst, `\n`...)
	case '\\':
		return append(dst, `\\`...)
	}
	return append(dst, c)
}

// unhex is the value of one of hexDigits.
func unhex(digit byte) byte {
	if digit >= 'A' {
		return digit - 'A' + 10
	}
	return digit - '0'
}
