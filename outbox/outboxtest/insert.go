package outboxtest

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/outbox"
	"github.com/slotline/slotline/partitioner"
)

const lanePrefix = "INSERT INTO slotline_outbox_"

// laneOf is the lane whose table the statement appends to.
func laneOf(statement string) (lane int, ok bool) {
	rest, ok := strings.CutPrefix(statement, lanePrefix)
	if !ok {
		return 0, false
	}
	digits, _, _ := strings.Cut(rest, " ")
	lane, err := strconv.Atoi(digits)
	return lane, err == nil
}

// parseInsert reads an INSERT into a lane table: rows of literals, or of placeholders.
func parseInsert(statement string, args []any, lane, lanes int) ([]event.Event, error) {
	s := scanner{text: statement, args: args}
	s.word(lanePrefix)
	s.until('(')
	names := strings.Split(s.until(')'), ",")
	s.word("VALUES")
	var events []event.Event
	for !s.failed {
		row := map[string]any{}
		s.word("(")
		for i, name := range names {
			if i > 0 {
				s.word(",")
			}
			row[strings.Trim(name, " `")] = s.value()
		}
		s.word(")")
		if s.failed {
			break
		}
		e, err := eventOf(row)
		if err != nil {
			return nil, fmt.Errorf("an INSERT into %s: %w", outbox.LaneTable(lane), err)
		}
		if want := partitioner.Lane(e.Tenant, lanes); want != lane {
			return nil, fmt.Errorf("an event of tenant %q was inserted into %s, it belongs into %s", e.Tenant, outbox.LaneTable(lane), outbox.LaneTable(want))
		}
		events = append(events, e)
		if !s.next(",") {
			break
		}
	}
	if s.space(); s.failed || s.text != "" && s.text != ";" {
		return nil, fmt.Errorf("an INSERT into %s is not of the form that Emit writes, at %.60q", outbox.LaneTable(lane), s.text)
	}
	return events, nil
}

// eventOf makes the event of a lane table's row.
func eventOf(row map[string]any) (e event.Event, err error) {
	text := func(name string) string {
		switch v := row[name].(type) {
		case string:
			return v
		case []byte:
			return string(v)
		case nil:
			return ""
		}
		err = fmt.Errorf("column %s is a %T", name, row[name])
		return ""
	}
	number := func(name string) int64 {
		switch v := row[name].(type) {
		case int64:
			return v
		case nil:
			return 0
		}
		err = fmt.Errorf("column %s is a %T", name, row[name])
		return 0
	}
	if n := copy(e.ID[:], text("event_id")); n != len(e.ID) {
		return e, fmt.Errorf("event_id has %d bytes, 16 are needed", n)
	}
	e.Table, e.Tenant, e.EntityID, e.Spread = text("tbl"), text("tenant"), text("entity_id"), text("spread")
	e.Op, e.Version, e.Month = event.Op(number("op")), number("version"), partitioner.Month(number("month"))
	e.TraceParent, e.Body = text("trace"), []byte(text("payload"))
	switch at := row["created_at"].(type) {
	case time.Time:
		e.Time = at.UTC()
	default:
		if e.Time, err = time.Parse("2006-01-02 15:04:05.999999", text("created_at")); err != nil {
			return e, err
		}
	}
	return e, err
}

// scanner reads an INSERT from its beginning; after a failure it reads nothing more.
type scanner struct {
	text   string
	args   []any
	failed bool
}

func (s *scanner) space() { s.text = strings.TrimLeft(s.text, " \t\r\n") }

func (s *scanner) next(word string) bool {
	s.space()
	rest, ok := strings.CutPrefix(s.text, word)
	if ok && !s.failed {
		s.text = rest
	}
	return ok && !s.failed
}

func (s *scanner) word(word string) { s.failed = !s.next(word) || s.failed }

func (s *scanner) until(end byte) string {
	i := strings.IndexByte(s.text, end)
	if i < 0 || s.failed {
		s.failed = true
		return ""
	}
	before := s.text[:i]
	s.text = s.text[i+1:]
	return before
}

// value is a string (from x'…' and '…'), an int64, nil, or an argument.
func (s *scanner) value() any {
	switch {
	case s.next("?"):
		if len(s.args) == 0 {
			s.failed = true
			return nil
		}
		v := s.args[0]
		s.args = s.args[1:]
		return v
	case s.next("NULL"):
		return nil
	case s.next("x'"):
		b, err := hex.DecodeString(s.until('\''))
		s.failed = s.failed || err != nil
		return string(b)
	case s.next("'"):
		// Emit writes times and empty strings so: nothing in them is escaped.
		v := s.until('\'')
		s.failed = s.failed || strings.HasPrefix(s.text, "'") || strings.Contains(v, `\`)
		return v
	}
	s.space()
	end := len(s.text) - len(strings.TrimLeft(s.text, "-0123456789"))
	n, err := strconv.ParseInt(s.text[:end], 10, 64)
	if err != nil {
		s.failed = true
		return nil
	}
	s.text = s.text[end:]
	return n
}
