package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// query runs a text statement on the driver's own connection and calls each with its rows. Values are valid during the
// call only. database/sql would convert each value once more, which costs a fifth of the rows read per second.
func query(ctx context.Context, conn *sql.Conn, statement string, columns int, each func(v []driver.Value) (more bool, err error)) error {
	return conn.Raw(func(dc any) error {
		q, ok := dc.(driver.QueryerContext)
		if !ok {
			return fmt.Errorf("the driver's connection %T cannot run a query", dc)
		}
		rows, err := q.QueryContext(ctx, statement, nil)
		if err != nil {
			return err
		}
		defer rows.Close()
		if n := len(rows.Columns()); n != columns {
			return fmt.Errorf("%d columns instead of %d", n, columns)
		}
		values := make([]driver.Value, columns)
		for {
			if err := rows.Next(values); err != nil {
				if errors.Is(err, io.EOF) {
					return nil
				}
				return err
			}
			if more, err := each(values); err != nil || !more {
				return err
			}
		}
	})
}

// rowColumnCount is the number of rowColumns.
var rowColumnCount = strings.Count(rowColumns, ",") + 1

// scanRow reads the rowColumns of one row; its bytes are copied into the arena.
func scanRow(v []driver.Value, row *laneRow, a *arena) (serverSum uint64, err error) {
	var s valueScanner
	row.id = s.uint(v[0])
	row.eventID = a.copy(s.bytes(v[1]))
	row.table = a.copy(s.bytes(v[2]))
	row.tenant = a.copy(s.bytes(v[3]))
	row.entityID = a.copy(s.bytes(v[4]))
	row.op = s.int(v[5])
	row.versioned = v[6] != nil
	row.version = 0
	if row.versioned {
		row.version = s.int(v[6])
	}
	row.codec = s.int(v[7])
	row.created = s.micros(v[8])
	row.trace = a.copy(s.bytes(v[9]))
	row.spread = a.copy(s.bytes(v[10]))
	row.payload = a.copy(s.bytes(v[11]))
	serverSum = s.uint(v[12])
	if s.err != nil {
		return 0, fmt.Errorf("row %d: %w", row.id, s.err)
	}
	return serverSum, nil
}

// valueScanner converts what the text protocol gives: numbers as such or as text, by the driver's version.
type valueScanner struct{ err error }

func (s *valueScanner) fail(v driver.Value, want string) {
	if s.err == nil {
		s.err = fmt.Errorf("%T is not %s", v, want)
	}
}

func (s *valueScanner) uint(v driver.Value) uint64 {
	switch n := v.(type) {
	case uint64:
		return n
	case int64:
		return uint64(n)
	case []byte:
		u, err := strconv.ParseUint(text(n), 10, 64)
		if err == nil {
			return u
		}
	}
	s.fail(v, "an unsigned number")
	return 0
}

func (s *valueScanner) int(v driver.Value) int64 {
	switch n := v.(type) {
	case int64:
		return n
	case uint64:
		return int64(n)
	case []byte:
		i, err := strconv.ParseInt(text(n), 10, 64)
		if err == nil {
			return i
		}
	}
	s.fail(v, "a number")
	return 0
}

func (s *valueScanner) bytes(v driver.Value) []byte {
	switch b := v.(type) {
	case nil:
		return nil
	case []byte:
		return b
	case string:
		return []byte(b)
	}
	s.fail(v, "bytes")
	return nil
}

func (s *valueScanner) micros(v driver.Value) int64 {
	switch t := v.(type) {
	case time.Time:
		return t.UnixMicro()
	case []byte:
		at, err := time.Parse(timeFormat, text(t))
		if err == nil {
			return at.UnixMicro()
		}
	}
	s.fail(v, "a time")
	return 0
}
