package doris

import (
	"context"
	"database/sql"
	"encoding/json"
	"strings"
	"time"

	"github.com/slotline/slotline/fault"
)

const codeReadOnly = "SL4411" // a person's query is not a SELECT

// queryTimeout bounds a person's query.
const queryTimeout = 10 * time.Minute

// Query runs one SELECT and passes on its columns' names and each row, up to rowsMax rows (0: all of them): more says
// that there are others. Integers and floats are JSON numbers, NULL is null, all else are JSON strings. A statement
// that could write is refused. What columns or row returns ends it.
func (s *Sink) Query(ctx context.Context, text string, rowsMax int, columns func([]string) error, row func([]json.RawMessage) error) (more bool, err error) {
	if word := writes(text); word != "" {
		return false, &fault.Error{Code: codeReadOnly, Class: fault.Usage, What: "the query has the word " + word + ": only SELECT is run",
			Why: "Doris has no session that cannot write", Do: "put a column of that name into backquotes; use Doris's own client for anything else"}
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	rows, err := s.catalog.QueryContext(ctx, text)
	if err != nil {
		return false, wrap(err, codeQuery, s.where())
	}
	defer func() {
		cancel() // what is left of the answer is not read
		rows.Close()
	}()
	types, err := rows.ColumnTypes()
	if err != nil {
		return false, wrap(err, codeQuery, s.where())
	}
	names, number := make([]string, len(types)), make([]bool, len(types))
	into, fields := make([]any, len(types)), make([]sql.NullString, len(types))
	for i, t := range types {
		names[i] = t.Name()
		switch name := strings.TrimPrefix(t.DatabaseTypeName(), "UNSIGNED "); name {
		case "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE":
			number[i] = true
		}
		into[i] = &fields[i]
	}
	if err := columns(names); err != nil {
		return false, err
	}
	for count := 0; rows.Next(); count++ {
		if rowsMax > 0 && count == rowsMax {
			return true, nil
		}
		if err := rows.Scan(into...); err != nil {
			return false, wrap(err, codeQuery, s.where())
		}
		values := make([]json.RawMessage, len(fields))
		for i, f := range fields {
			values[i] = jsonValue(f, number[i])
		}
		if err := row(values); err != nil {
			return false, err
		}
	}
	return false, wrap(rows.Err(), codeQuery, s.where())
}

// jsonValue is a value as JSON. A float may be nan or inf, which JSON has no number for.
func jsonValue(v sql.NullString, number bool) json.RawMessage {
	switch {
	case !v.Valid:
		return json.RawMessage("null")
	case number && json.Valid([]byte(v.String)):
		return json.RawMessage(v.String)
	}
	b, err := json.Marshal(v.String)
	if err != nil {
		panic(err) // a string
	}
	return b
}

// writes is the word by which a statement is no plain SELECT; "" if it is one. It reads past quoted texts and comments:
// WITH may begin an INSERT, and SELECT may end in INTO OUTFILE.
func writes(text string) string {
	words := sqlWords(text)
	if len(words) == 0 {
		return "(none)"
	}
	if words[0] != "SELECT" && words[0] != "WITH" {
		return words[0]
	}
	for _, w := range words {
		switch w {
		case "INSERT", "INTO", "UPDATE", "DELETE", ";":
			return w
		}
	}
	return ""
}

// sqlWords are the bare words of a statement in capitals, and ";" where more follows one.
func sqlWords(text string) (words []string) {
	text = strings.TrimRight(text, "; \t\r\n")
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '\'' || c == '"' || c == '`':
			for i++; i < len(text) && text[i] != c; i++ {
				if text[i] == '\\' && c != '`' {
					i++
				}
			}
			i++
		case strings.HasPrefix(text[i:], "--"), c == '#':
			if end := strings.IndexByte(text[i:], '\n'); end >= 0 {
				i += end + 1
			} else {
				i = len(text)
			}
		case strings.HasPrefix(text[i:], "/*") && !strings.HasPrefix(text[i:], "/*!"):
			if end := strings.Index(text[i+2:], "*/"); end >= 0 {
				i += end + 4
			} else {
				i = len(text)
			}
		case c == ';':
			words = append(words, ";")
			i++
		case isWord(c):
			begin := i
			for i < len(text) && isWord(text[i]) {
				i++
			}
			words = append(words, strings.ToUpper(text[begin:i]))
		default:
			i++
		}
	}
	return words
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}
