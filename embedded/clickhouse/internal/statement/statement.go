// Package statement tells what kind of statement a query text is, because each kind goes to the engine by another
// call, and finds the target and the columns of an INSERT.
//
// It promises: a pure function of the text; no panic on any text. It looks no deeper than it must: the engine's own
// parser judges the rest, so a text that is wrong is passed on as Other and refused there.
package statement

import "strings"

// Kind is the way that a statement is run.
type Kind int

const (
	// Other runs as one call whose whole answer is kept: DDL, SET, SHOW, INSERT ... SELECT, anything unknown.
	Other Kind = iota
	// Select runs as a stream of blocks.
	Select
	// Insert is fed with blocks from the client.
	Insert
	// Many is more than one statement, which the server refuses.
	Many
)

// Statement is what Parse found.
type Statement struct {
	Kind Kind
	// Text of a Select or an Other is the query without FORMAT (a client of the native protocol gets blocks whatever
	// it names) and without a closing semicolon.
	Text string
	// Head of an Insert is its text without VALUES, FORMAT or a closing semicolon.
	Head string
	// Target of an Insert, as DESCRIBE TABLE takes it: a table's name or a table function.
	Target string
	// Columns of an Insert; nil when it names none.
	Columns []string
	// ColumnsText is set instead when the list is more than names, such as (* EXCEPT (a)).
	ColumnsText string
}

// Parse looks at a query.
func Parse(sql string) Statement {
	s := &scanner{sql: sql}
	first := s.next()
	for s.sign(first, '(') {
		first = s.next()
	}
	switch {
	case s.is(first, "INSERT"):
		return parseInsert(s)
	case s.is(first, "WITH"):
		return parseWith(s)
	case s.is(first, "SELECT"), s.is(first, "FROM"):
		return s.toEnd(Select)
	}
	return s.toEnd(Other)
}

// toEnd returns k, or Many when something follows a semicolon.
func (s *scanner) toEnd(k Kind) Statement {
	level, end := 0, len(s.sql)
	formatStart, formatEnd := 0, 0
	for t := s.next(); ; t = s.next() {
		switch {
		case t.kind == kindEnd:
			return Statement{Kind: k, Text: s.without(formatStart, formatEnd, end)}
		case s.sign(t, ';'):
			end = t.start
			for s.sign(t, ';') {
				t = s.next()
			}
			if t.kind != kindEnd {
				return Statement{Kind: Many}
			}
			return Statement{Kind: k, Text: s.without(formatStart, formatEnd, end)}
		case s.sign(t, '('):
			level++
		case s.sign(t, ')'):
			level--
		case level == 0 && s.is(t, "FORMAT"):
			after := *s
			name, last := after.next(), after.next()
			if name.kind == kindWord && (last.kind == kindEnd || after.sign(last, ';') || after.is(last, "SETTINGS")) {
				formatStart, formatEnd = t.start, name.end
			}
		}
	}
}

// without returns the text up to end, less what stands between the other two positions.
func (s *scanner) without(from, to, end int) string {
	if to == 0 {
		return s.sql[:end]
	}
	return s.sql[:from] + s.sql[to:end]
}

// parseWith tells WITH ... SELECT from WITH ... INSERT: the first of the two words outside brackets.
func parseWith(s *scanner) Statement {
	level := 0
	for {
		t := s.next()
		switch {
		case t.kind == kindEnd, s.sign(t, ';'):
			return s.other()
		case s.sign(t, '('), s.sign(t, '['), s.sign(t, '{'):
			level++
		case s.sign(t, ')'), s.sign(t, ']'), s.sign(t, '}'):
			level--
		case level == 0 && s.is(t, "SELECT"):
			return s.toEnd(Select)
		case level == 0 && s.is(t, "INSERT"):
			return s.toEnd(Other)
		}
	}
}

// parseInsert goes on after the word INSERT.
func parseInsert(s *scanner) Statement {
	t := s.next()
	if s.is(t, "INTO") {
		t = s.next()
	}
	if s.is(t, "TABLE") {
		t = s.next()
	}
	st := Statement{Kind: Insert}
	if s.is(t, "FUNCTION") {
		t = s.next()
		start := t.start
		if open := s.next(); !s.sign(open, '(') {
			return s.other()
		}
		end, ok := s.closing()
		if !ok {
			return s.other()
		}
		st.Target = s.sql[start:end]
		t = s.next()
	} else {
		start := t.start
		end, next, ok := s.name(t)
		if !ok {
			return s.other()
		}
		t = next
		if s.sign(t, '.') {
			if end, next, ok = s.name(s.next()); !ok {
				return s.other()
			}
			t = next
		}
		st.Target = s.sql[start:end]
	}
	// What may follow: PARTITION BY ..., (columns), SETTINGS ..., and then the data's form.
	for ; ; t = s.next() {
		switch {
		case t.kind == kindEnd:
			st.Head = s.sql
			return st
		case s.sign(t, ';'):
			st.Head = s.sql[:t.start]
			return st.unlessInline(s)
		case s.sign(t, '('):
			start := t.end
			columns := &scanner{sql: s.sql, pos: start}
			if word := columns.next(); columns.is(word, "SELECT") || columns.is(word, "WITH") {
				return s.toEnd(Other)
			}
			end, ok := s.closing()
			if !ok {
				return s.other()
			}
			if st.Columns == nil && st.ColumnsText == "" {
				st.setColumns(s.sql[start : end-1])
			}
		case s.is(t, "VALUES"):
			st.Head = s.sql[:t.start]
			return st.unlessInline(s)
		case s.is(t, "FORMAT"):
			st.Head = s.sql[:t.start]
			s.next()
			return st.unlessInline(s)
		case s.is(t, "SELECT"), s.is(t, "WITH"), s.is(t, "FROM"), s.is(t, "WATCH"):
			return s.toEnd(Other)
		}
	}
}

// unlessInline returns the insert, or Other when its data stands in the text.
func (st Statement) unlessInline(s *scanner) Statement {
	t := s.next()
	for s.sign(t, ';') {
		t = s.next()
	}
	if t.kind != kindEnd {
		return s.other()
	}
	return st
}

// other is a text that does not look like what it began as.
func (s *scanner) other() Statement { return Statement{Kind: Other, Text: s.sql} }

// name goes over a part of a table's name that starts with t: a word, a quoted name or a {parameter:Identifier}.
func (s *scanner) name(t token) (end int, next token, ok bool) {
	switch {
	case t.kind == kindWord, t.kind == kindQuoted:
		return t.end, s.next(), true
	case s.sign(t, '{'):
		for {
			t = s.next()
			if t.kind == kindEnd {
				return 0, t, false
			}
			if s.sign(t, '}') {
				return t.end, s.next(), true
			}
		}
	}
	return 0, t, false
}

// closing goes to the bracket that closes the one just read, and returns the position after it.
func (s *scanner) closing() (int, bool) {
	for level := 1; ; {
		t := s.next()
		switch {
		case t.kind == kindEnd:
			return 0, false
		case s.sign(t, '('):
			level++
		case s.sign(t, ')'):
			if level--; level == 0 {
				return t.end, true
			}
		}
	}
}

// setColumns takes the text between the brackets.
func (st *Statement) setColumns(text string) {
	s := &scanner{sql: text}
	var names []string
	for {
		name, next, ok := s.columnName()
		if !ok {
			st.ColumnsText = strings.TrimSpace(text)
			return
		}
		names = append(names, name)
		if next.kind == kindEnd {
			st.Columns = names
			return
		}
		if !s.sign(next, ',') {
			st.ColumnsText = strings.TrimSpace(text)
			return
		}
	}
}

// columnName reads a name, which may have dots (a column of a Nested).
func (s *scanner) columnName() (name string, next token, ok bool) {
	for {
		t := s.next()
		if t.kind != kindWord && t.kind != kindQuoted {
			return "", t, false
		}
		name += s.unquote(t)
		next = s.next()
		if !s.sign(next, '.') {
			return name, next, true
		}
		name += "."
	}
}
