package clickhouse

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/ch-go/proto"

	"github.com/slotline/slotline/fault"
)

// queryTimeout bounds a person's query; the server gives up at the same time.
const queryTimeout = 10 * time.Minute

// Query runs one SELECT and passes on its columns' names and each row, up to rowsMax rows (0: all of them): more says
// that there are others. A value is the JSON that ClickHouse writes: numbers as numbers, decimals, dates and times as
// strings. The statement can change nothing: it runs as a subquery, with readonly. What columns or row returns ends it.
func (s *Sink) Query(ctx context.Context, sql string, rowsMax int, columns func([]string) error, row func([]json.RawMessage) error) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	sql = strings.TrimRight(sql, "; \t\r\n")
	var names []string
	describe := queryOf(fmt.Sprintf("DESCRIBE TABLE (\n%s\n)", sql), describeColumns, func(f []string) error {
		names = append(names, f[0])
		return nil
	})
	if err := s.ask(ctx, describe); err != nil {
		return false, s.asked(err)
	}
	if err := columns(names); err != nil {
		return false, err
	}
	// The server writes the values: it knows its types.
	text := fmt.Sprintf("SELECT formatRowNoNewline('JSONCompactEachRow', *) FROM (\n%s\n)", sql)
	if rowsMax > 0 {
		text += fmt.Sprintf(" LIMIT %d", rowsMax+1)
	}
	count := 0
	var failed error
	err = s.ask(ctx, queryOf(text, 1, func(f []string) error {
		if count++; rowsMax > 0 && count > rowsMax {
			more = true
			return nil
		}
		var values []json.RawMessage
		if failed = json.Unmarshal([]byte(f[0]), &values); failed == nil {
			failed = row(values)
		}
		return failed
	}))
	if failed != nil {
		return more, failed
	}
	return more, s.asked(err)
}

// asked is the error of a person's query. What an error number means for the sink's own statements does not hold.
func (s *Sink) asked(err error) error {
	_, answered := ch.AsException(err)
	err = wrap(err, codeAsk, s.where())
	if f, ok := errors.AsType[*fault.Error](err); ok && answered && f.Code == codeAsk {
		f.Why, f.Do = "", ""
	}
	return err
}

// describeColumns is what DESCRIBE TABLE answers with: name, type, and five that a subquery leaves empty.
const describeColumns = 7

// ask runs a person's statement, which may read for long and change nothing.
func (s *Sink) ask(ctx context.Context, q ch.Query) error {
	// readonly = 2 rather than 1: the statement may bring SETTINGS of its own. Should it set this one for itself, it is a
	// subquery still, which writes nothing.
	for _, setting := range [][2]string{{"readonly", "2"}, {"max_execution_time", fmt.Sprint(int(queryTimeout.Seconds()))},
		{"output_format_json_quote_64bit_integers", "0"}, {"output_format_json_quote_decimals", "1"},
		{"output_format_json_quote_denormals", "1"}, {"output_format_decimal_trailing_zeros", "1"}} {
		q.Settings = append(q.Settings, ch.Setting{Key: setting[0], Value: setting[1], Important: true})
	}
	c, err := s.pool.get(ctx)
	if err != nil {
		return err
	}
	return c.do(ctx, q)
}

// queryOf is a query whose columns are strings. What each returns ends it.
func queryOf(query string, columns int, each func(fields []string) error) ch.Query {
	values := make([]proto.ColStr, columns)
	result := make(proto.Results, columns)
	for i := range values {
		result[i] = proto.ResultColumn{Data: &values[i]}
	}
	return ch.Query{Body: query, Result: result, OnResult: func(_ context.Context, b proto.Block) error {
		fields := make([]string, columns)
		for row := range b.Rows {
			for i := range values {
				fields[i] = values[i].Row(row)
			}
			if err := each(fields); err != nil {
				return err
			}
		}
		for i := range values {
			values[i].Reset()
		}
		return nil
	}}
}
