package line

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/partitioner"
)

// Query is a question to an OLAP store.
type Query struct {
	SQL     string // one SELECT
	Sink    string // clickhouse or doris; "" is the first that the file has
	RowsMax int    // rows that are printed; 0 is all
	Format  string // table, csv or json
}

// Query runs a question and prints the answer. more says that there are more rows than RowsMax.
func (l *Line) Query(ctx context.Context, w io.Writer, q Query) (more bool, err error) {
	sinks := l.olapSinks()
	if q.Sink == "" && len(sinks) > 0 {
		q.Sink = sinks[0]
	}
	if !slices.Contains(sinks, q.Sink) {
		what := l.Config.File + " has no OLAP sink to ask"
		if q.Sink != "" {
			what = l.Config.File + " has no sinks." + q.Sink
		}
		return false, &fault.Error{Code: "SL9020", Class: fault.Usage, What: what,
			Write: `sinks: { clickhouse: { dsn: "clickhouse://user:${CH_PASSWORD}@host:9000/database" } }`}
	}
	spec, err := l.Config.Layout.WithPartitions(l.Config.Kafka.Partitions) // asks nothing of the outbox
	if err != nil {
		return false, err
	}
	layout, err := partitioner.New(spec)
	if err != nil {
		return false, err
	}
	sink, err := l.openOLAP(q.Sink, l.Config, layout, nil, "")
	if err != nil {
		return false, err
	}
	defer sink.Close()
	out := bufio.NewWriter(w)
	var p answerWriter
	switch q.Format {
	case "csv":
		p = &csvAnswer{w: csv.NewWriter(out)}
	case "json":
		p = &jsonAnswer{w: out}
	default:
		p = &tableAnswer{w: out}
	}
	more, err = sink.Query(ctx, q.SQL, q.RowsMax, p.columns, p.row)
	if err != nil {
		return more, err
	}
	if err := p.end(); err != nil {
		return more, err
	}
	return more, out.Flush()
}

// answerWriter prints an answer in one format. Values are JSON.
type answerWriter interface {
	columns(names []string) error
	row(values []json.RawMessage) error
	end() error
}

// tableAnswer aligns columns. Tabs and ends of lines in a text would break them: they are escaped.
type tableAnswer struct {
	w io.Writer
	t table
}

func (a *tableAnswer) columns(names []string) error {
	a.t = newTable(a.w, names...)
	return nil
}

func (a *tableAnswer) row(values []json.RawMessage) error {
	cells := make([]string, len(values))
	for i, v := range values {
		if cells[i] = plainText(v); string(v) == "null" {
			cells[i] = "NULL"
		}
		cells[i] = lineBreaks.Replace(cells[i])
	}
	a.t.row(cells...)
	return nil
}

func (a *tableAnswer) end() error { return a.t.flush() }

var lineBreaks = strings.NewReplacer("\t", `\t`, "\n", `\n`, "\r", `\r`, "\v", `\v`, "\f", `\f`)

// csvAnswer is RFC 4180 with a head; NULL is an empty field.
type csvAnswer struct{ w *csv.Writer }

func (a *csvAnswer) columns(names []string) error { return a.w.Write(names) }

func (a *csvAnswer) row(values []json.RawMessage) error {
	cells := make([]string, len(values))
	for i, v := range values {
		if string(v) != "null" {
			cells[i] = plainText(v)
		}
	}
	return a.w.Write(cells)
}

func (a *csvAnswer) end() error {
	a.w.Flush()
	return a.w.Error()
}

// jsonAnswer is a list of objects, one a line, with the keys in the order of the columns.
type jsonAnswer struct {
	w    *bufio.Writer
	keys [][]byte
	rows int
}

func (a *jsonAnswer) columns(names []string) error {
	for _, name := range names {
		key, err := json.Marshal(name)
		if err != nil {
			return err
		}
		a.keys = append(a.keys, key)
	}
	return a.w.WriteByte('[')
}

func (a *jsonAnswer) row(values []json.RawMessage) error {
	if a.rows++; a.rows > 1 {
		a.w.WriteByte(',')
	}
	a.w.WriteString("\n  {")
	for i, v := range values {
		if i > 0 {
			a.w.WriteString(", ")
		}
		a.w.Write(a.keys[i])
		a.w.WriteString(": ")
		a.w.Write(v)
	}
	_, err := a.w.WriteString("}") // the writer keeps its first error
	return err
}

func (a *jsonAnswer) end() error {
	if a.rows > 0 {
		a.w.WriteByte('\n')
	}
	_, err := a.w.WriteString("]\n")
	return err
}

// plainText is a JSON string without its quotes, and any other value as it is.
func plainText(v json.RawMessage) string {
	var s string
	if len(v) > 0 && v[0] == '"' && json.Unmarshal(v, &s) == nil {
		return s
	}
	return string(v)
}
