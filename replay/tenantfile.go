package replay

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/mysql"
)

// RowOutput is a RowWriter with an end. Without Done, Close takes away what was written to files.
type RowOutput interface {
	RowWriter
	// Done writes what is left; then the files have their names.
	Done(ctx context.Context) error
	Close() error
}

func toError(what, do string, err error) error {
	return &fault.Error{Code: codeTo, Class: fault.Usage, What: what, Do: do, Err: err}
}

// OpenRowOutput opens what --to names: a mysql:// URL; or a file, whose ending says in which form it is: .jsonl one JSON
// object a line; .csv, one file for each table, as ua.flights.csv for ua.csv; .sql, statements for MySQL.
func OpenRowOutput(ctx context.Context, cfg *config.Config, to string) (RowOutput, error) {
	if strings.HasPrefix(to, "mysql://") {
		return openRowDatabase(ctx, cfg, to)
	}
	switch filepath.Ext(to) {
	case ".jsonl":
		f, err := createPart(to)
		if err != nil {
			return nil, err
		}
		return &jsonOutput{f}, nil
	case ".sql":
		f, err := createPart(to)
		if err != nil {
			return nil, err
		}
		return &sqlOutput{f, mysql.NewExport(false)}, nil
	case ".csv":
		return &csvOutput{path: to, files: map[*event.Table]*csvFile{}}, nil
	}
	return nil, toError(fmt.Sprintf("--to %s: its ending says nothing", to), "end it in .jsonl, .csv or .sql; or write a mysql:// URL", nil)
}

// partFile is a file that has its name when it is whole.
type partFile struct {
	*bufio.Writer
	file *os.File
	path string
	done bool
}

func createPart(path string) (*partFile, error) {
	if _, err := os.Stat(path); err == nil {
		return nil, toError(path+" is there", "name a file that is not", nil)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, toError(err.Error(), "", err)
	}
	f, err := os.OpenFile(path+".part", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) // it holds what a person may not read who is not let
	if err != nil {
		return nil, toError(err.Error(), "", err)
	}
	return &partFile{Writer: bufio.NewWriterSize(f, 256<<10), file: f, path: path}, nil
}

func (p *partFile) Done(context.Context) error {
	err := p.Flush()
	if err == nil {
		err = p.file.Sync()
	}
	if err == nil {
		err = os.Rename(p.path+".part", p.path)
	}
	if err != nil {
		return toError(err.Error(), "", err)
	}
	p.done = true
	return nil
}

func (p *partFile) Close() error {
	err := p.file.Close()
	if !p.done {
		err = os.Remove(p.path + ".part")
	}
	return err
}

// jsonOutput writes {"table":"flights","_ver":42,"row":{…}}; the row is as docs/formats.md has it in events.
type jsonOutput struct{ *partFile }

func (o *jsonOutput) Row(_ context.Context, t *event.Table, _ *event.Row, ver int64, body []byte) error {
	fmt.Fprintf(o, `{"table":%q,"_ver":%d,"row":`, t.Name, ver)
	o.Write(body)
	_, err := o.WriteString("}\n") // the writer keeps its first error
	return err
}

type sqlOutput struct {
	*partFile
	x *mysql.Export
}

func (o *sqlOutput) Row(_ context.Context, t *event.Table, row *event.Row, ver int64, _ []byte) error {
	return o.write(o.x.Add(t, row, ver))
}

func (o *sqlOutput) write(statements []string) (err error) {
	for _, s := range statements {
		o.WriteString(s)
		_, err = o.WriteString(";\n")
	}
	return err
}

func (o *sqlOutput) Done(ctx context.Context) error {
	if err := o.write(o.x.Rest()); err != nil {
		return err
	}
	return o.partFile.Done(ctx)
}

// csvOutput is RFC 4180 with a head; NULL is an empty field, bytes are in base64.
type csvOutput struct {
	path  string
	files map[*event.Table]*csvFile
}

type csvFile struct {
	*partFile
	w *csv.Writer
}

func (o *csvOutput) Row(_ context.Context, t *event.Table, row *event.Row, ver int64, _ []byte) error {
	f := o.files[t]
	if f == nil {
		part, err := createPart(strings.TrimSuffix(o.path, ".csv") + "." + t.Name + ".csv")
		if err != nil {
			return err
		}
		f = &csvFile{part, csv.NewWriter(part)}
		o.files[t] = f
		head := make([]string, 0, len(t.Columns)+1)
		for _, c := range t.Columns {
			head = append(head, c.Name)
		}
		if err := f.w.Write(append(head, "_ver")); err != nil {
			return err
		}
	}
	cells := make([]string, 0, len(t.Columns)+1)
	for i, c := range t.Columns {
		cells = append(cells, cellOf(c.Type.Kind, &row.Values[i]))
	}
	return f.w.Write(append(cells, strconv.FormatInt(ver, 10)))
}

func cellOf(k event.Kind, v *event.Value) string {
	switch {
	case v.Null:
		return ""
	case k == event.Bool:
		return strconv.FormatBool(v.Int == 1)
	case k == event.Int32 || k == event.Int64:
		return strconv.FormatInt(v.Int, 10)
	case k == event.Uint64:
		return strconv.FormatUint(v.Uint, 10)
	case k == event.Float64:
		b, _ := json.Marshal(v.Float) // finite
		return string(b)
	case k == event.Date:
		return string(event.AppendDate(nil, v.Int))
	case k == event.Datetime:
		return string(event.AppendDatetime(nil, v.Int))
	case k == event.Bytes:
		return base64.StdEncoding.EncodeToString(v.Bytes)
	}
	return string(v.Bytes)
}

func (o *csvOutput) Done(ctx context.Context) error {
	for _, f := range o.files {
		f.w.Flush()
		if err := f.w.Error(); err != nil {
			return err
		}
		if err := f.partFile.Done(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (o *csvOutput) Close() error {
	var errs []error
	for _, f := range o.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// rowDatabase writes into tables of another database, made as the sink makes them. They must be empty: rows of another
// moment would be mixed with these.
type rowDatabase struct {
	dsn   config.DSN
	db    *sql.DB
	x     *mysql.Export
	known map[string]bool // physical tables that were empty, or not there
}

func openRowDatabase(ctx context.Context, cfg *config.Config, to string) (*rowDatabase, error) {
	dsn, err := config.ParseDSN("--to", to)
	if err != nil {
		return nil, err
	}
	own := []config.DSN{cfg.Outbox.DSN, cfg.Sinks.State}
	for _, s := range cfg.Shards {
		own = append(own, s.DSN)
	}
	for _, o := range own {
		if o.Place() == dsn.Place() {
			return nil, toError(fmt.Sprintf("--to %s is a database of the line", dsn.Place()), "name another: rows as they were must not be mixed with live ones", nil)
		}
	}
	db, err := mysqldb.Open(dsn, mysqldb.Options{MaxConns: 1})
	if err != nil {
		return nil, err
	}
	r := &rowDatabase{dsn: dsn, db: db, known: map[string]bool{}}
	var version string
	if err := db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		db.Close()
		return nil, r.wrap(err)
	}
	r.x = mysql.NewExport(strings.Contains(strings.ToLower(version), "mariadb"))
	return r, nil
}

func (r *rowDatabase) wrap(err error) error { return mysqldb.Wrap(err, codeTo, "--to "+r.dsn.Place()) }

func (r *rowDatabase) Row(ctx context.Context, t *event.Table, row *event.Row, ver int64, _ []byte) error {
	if err := r.empty(ctx, t, row.Month); err != nil {
		return err
	}
	return r.run(ctx, r.x.Add(t, row, ver))
}

// empty refuses a table that holds rows before the first of ours.
func (r *rowDatabase) empty(ctx context.Context, t *event.Table, m partitioner.Month) error {
	name := t.PhysicalName(m)
	if r.known[name] {
		return nil
	}
	var one int
	err := r.db.QueryRowContext(ctx, "SELECT 1 FROM "+mysqldb.Ident(name)+" LIMIT 1").Scan(&one)
	switch {
	case err == nil:
		return toError(fmt.Sprintf("--to %s: table %s holds rows", r.dsn.Place(), name), "name a database where it is empty, or not there", nil)
	case !errors.Is(err, sql.ErrNoRows) && mysqldb.Number(err) != errNoSuchTable:
		return r.wrap(err)
	}
	r.known[name] = true
	return nil
}

func (r *rowDatabase) run(ctx context.Context, statements []string) error {
	for _, s := range statements {
		if _, err := r.db.ExecContext(ctx, s); err != nil {
			return r.wrap(err)
		}
	}
	return nil
}

func (r *rowDatabase) Done(ctx context.Context) error { return r.run(ctx, r.x.Rest()) }

func (r *rowDatabase) Close() error { return r.db.Close() }
