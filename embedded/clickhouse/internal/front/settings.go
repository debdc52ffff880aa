package front

import (
	"errors"
	"strconv"
	"strings"

	"github.com/slotline/slotline/embedded/clickhouse/internal/chdb"
)

// settingsPlan is what to run on a session so that its settings become those of the next query: each query brings
// all of its settings, and one that it does not bring has its default.
type settingsPlan struct {
	set   []setting
	reset []string
}

// planSettings compares what the session has with what the query wants. The last of a repeated name wins, as it
// does in the server.
func planSettings(applied map[string]string, wanted []setting) settingsPlan {
	final := make(map[string]setting, len(wanted))
	for _, s := range wanted {
		final[s.name] = s
	}
	var plan settingsPlan
	for _, s := range wanted {
		last, ok := final[s.name]
		if !ok {
			continue // already planned
		}
		delete(final, s.name)
		if value, has := applied[s.name]; !has || value != last.value {
			plan.set = append(plan.set, last)
		}
	}
	for _, s := range wanted {
		final[s.name] = s
	}
	for name := range applied {
		if _, ok := final[name]; !ok {
			plan.reset = append(plan.reset, name)
		}
	}
	return plan
}

// applySettings brings the session's settings to those of the query. log_comment is this front's own: KILL QUERY
// finds the statement by it.
func (s *session) applySettings(wanted []setting) error {
	own := wanted[:0:0]
	for _, w := range wanted {
		if w.name != "log_comment" {
			own = append(own, w)
		}
	}
	plan := planSettings(s.settings, own)
	for _, name := range plan.reset {
		if err := s.engine.Exec("SET " + quoteName(name) + " = DEFAULT"); err != nil && !unknownSetting(err) {
			return err
		}
		delete(s.settings, name)
	}
	for _, w := range plan.set {
		err := s.engine.Exec("SET " + quoteName(w.name) + " = " + quoteString(w.value))
		if err != nil && (w.important || !unknownSetting(err)) {
			return err
		}
		s.settings[w.name] = w.value
	}
	return nil
}

// unknownSetting: a setting that is not marked as important may be unknown to the server.
func unknownSetting(err error) bool {
	var engine *chdb.Error
	return errors.As(err, &engine) && strings.HasPrefix(engine.Text, "Code: 115.")
}

func quoteName(name string) string { return quote(name, '`') }

func quoteString(value string) string { return quote(value, '\'') }

func quote(s string, mark byte) string {
	var b strings.Builder
	b.Grow(len(s) + 2)
	b.WriteByte(mark)
	for i := range len(s) {
		if s[i] == mark || s[i] == '\\' {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
	b.WriteByte(mark)
	return b.String()
}

// parameterValue takes a parameter from the quoted literal that the wire carries. The engine then reads the result
// as escaped text, so a backslash that is to arrive is escaped twice by the client, as for the server.
func parameterValue(literal string) string {
	if len(literal) < 2 || literal[0] != '\'' || literal[len(literal)-1] != '\'' {
		return literal
	}
	literal = literal[1 : len(literal)-1]
	if !strings.Contains(literal, `\`) {
		return literal
	}
	var b strings.Builder
	for i := 0; i < len(literal); i++ {
		c := literal[i]
		if c != '\\' || i+1 == len(literal) {
			b.WriteByte(c)
			continue
		}
		i++
		switch c = literal[i]; c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'a':
			c = '\a'
		case 'v':
			c = '\v'
		case 'e':
			c = 0x1b
		case '0':
			c = 0
		case 'x':
			if i+2 < len(literal) {
				if v, err := strconv.ParseUint(literal[i+1:i+3], 16, 8); err == nil {
					c = byte(v)
					i += 2
				}
			}
		case '\\', '\'', '"', '`', '/', '=':
		default:
			b.WriteByte('\\') // not an escape: both stay
		}
		b.WriteByte(c)
	}
	return b.String()
}
