package statement

import "strings"

type kind int

const (
	kindEnd    kind = iota
	kindWord        // a keyword, name or number
	kindQuoted      // "name" or `name`
	kindString      // 'text' or $tag$text$tag$
	kindSign        // any other single byte
)

type token struct {
	kind       kind
	start, end int
}

// scanner cuts a query into tokens as ClickHouse's lexer does, as far as it takes to find where things begin.
type scanner struct {
	sql string
	pos int
}

func (s *scanner) text(t token) string { return s.sql[t.start:t.end] }

// is compares a word without regard to case.
func (s *scanner) is(t token, word string) bool {
	return t.kind == kindWord && strings.EqualFold(s.text(t), word)
}

func (s *scanner) sign(t token, b byte) bool { return t.kind == kindSign && s.sql[t.start] == b }

// skipSpace skips white space and comments.
func (s *scanner) skipSpace() {
	for s.pos < len(s.sql) {
		rest := s.sql[s.pos:]
		switch c := rest[0]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v':
			s.pos++
		case strings.HasPrefix(rest, "--"), strings.HasPrefix(rest, "#!"), strings.HasPrefix(rest, "# "):
			if n := strings.IndexByte(rest, '\n'); n >= 0 {
				s.pos += n + 1
			} else {
				s.pos = len(s.sql)
			}
		case strings.HasPrefix(rest, "/*"):
			if n := strings.Index(rest[2:], "*/"); n >= 0 {
				s.pos += n + 4
			} else {
				s.pos = len(s.sql)
			}
		default:
			return
		}
	}
}

func wordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

func (s *scanner) next() token {
	s.skipSpace()
	if s.pos >= len(s.sql) {
		return token{kind: kindEnd, start: len(s.sql), end: len(s.sql)}
	}
	t := token{start: s.pos}
	switch c := s.sql[s.pos]; {
	case wordByte(c):
		t.kind = kindWord
		for s.pos < len(s.sql) && wordByte(s.sql[s.pos]) {
			s.pos++
		}
	case c == '\'':
		t.kind = kindString
		s.pos = quotedEnd(s.sql, s.pos)
	case c == '"' || c == '`':
		t.kind = kindQuoted
		s.pos = quotedEnd(s.sql, s.pos)
	case c == '$':
		t.kind = kindSign
		s.pos++
		if end := heredocEnd(s.sql, t.start); end > 0 {
			t.kind, s.pos = kindString, end
		}
	default:
		t.kind = kindSign
		s.pos++
	}
	t.end = s.pos
	return t
}

// quotedEnd returns the position after the quoted text that starts at i; an open one reaches to the end.
func quotedEnd(s string, i int) int {
	quote := s[i]
	for i++; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			i++
		case s[i] == quote && i+1 < len(s) && s[i+1] == quote:
			i++
		case s[i] == quote:
			return i + 1
		}
	}
	return len(s)
}

// heredocEnd returns the position after $tag$...$tag$ at i, 0 when there is none.
func heredocEnd(s string, i int) int {
	j := i + 1
	for j < len(s) && wordByte(s[j]) {
		j++
	}
	if j >= len(s) || s[j] != '$' {
		return 0
	}
	tag := s[i : j+1]
	n := strings.Index(s[j+1:], tag)
	if n < 0 {
		return 0
	}
	return j + 1 + n + len(tag)
}

// unquote returns the name that a word or a quoted token means.
func (s *scanner) unquote(t token) string {
	text := s.text(t)
	if t.kind != kindQuoted || len(text) < 2 {
		return text
	}
	quote := text[0]
	var b strings.Builder
	for i := 1; i < len(text)-1; i++ {
		if (text[i] == '\\' || text[i] == quote) && i+1 < len(text)-1 {
			i++
		}
		b.WriteByte(text[i])
	}
	return b.String()
}
