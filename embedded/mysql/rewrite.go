package mysql

import (
	"regexp"
	"strings"
	"sync"
)

// rewriter turns what MySQL takes and the engine does not, or gets wrong, into what means the same to it. It leaves all
// else as it is.
type rewriter struct {
	mu        sync.Mutex
	generated map[string][]generatedColumn // by table
}

// generatedColumn is a column that was declared VIRTUAL. The engine's index is out of range when a query reads some
// columns of such a table, and its upserts change nothing there. So it is declared STORED; and because the engine does
// not compute that one anew in ON DUPLICATE KEY UPDATE, it is assigned there, last.
type generatedColumn struct{ name, expression string }

var (
	// maxvalue is RANGE's bound without the parentheses that the engine's parser wants.
	maxvalue = regexp.MustCompile(`(?i)\bVALUES\s+LESS\s+THAN\s+MAXVALUE\b`)

	created     = regexp.MustCompile("(?is)^\\s*CREATE\\s+TABLE\\s+(?:IF\\s+NOT\\s+EXISTS\\s+)?`?([0-9A-Za-z_]+)`?\\s*\\(")
	virtual     = regexp.MustCompile("(?i)(`[^`]+`) ([^,()]*(?:\\(\\d+\\))?[^,()]*GENERATED ALWAYS AS \\(([^()]*)\\) )VIRTUAL\\b")
	upserted    = regexp.MustCompile("(?i)^\\s*INSERT\\s+INTO\\s+`?([0-9A-Za-z_]+)`?[\\s(]")
	onDuplicate = regexp.MustCompile(`(?i)\bON\s+DUPLICATE\s+KEY\s+UPDATE\b`)
	column      = regexp.MustCompile("`[^`]+`")

	// greatest of an empty table is no row at all to the engine, which looks it up in the index; what is computed is not looked up.
	greatest = regexp.MustCompile("(?i)\\bCOALESCE\\(MAX\\((`?\\w+`?)\\), 0\\)")

	// greatestColumn gets an alias: two nameless subqueries in a UNION of three are one to the engine, which panics.
	greatestColumn = regexp.MustCompile(`(\(SELECT COALESCE\(MAX\(IFNULL\([^()]*\)\), 0\) FROM [^ ()]+\)),`)

	// explainInsert fails in the engine's tabular form: it writes NULL into a number.
	explainInsert = regexp.MustCompile(`(?i)^\s*EXPLAIN\s+INSERT\b`)
)

// statement rewrites one statement.
func (r *rewriter) statement(query string) string {
	switch verb := firstWord(query); verb {
	case "CREATE", "ALTER":
		return r.ddl(maxvalue.ReplaceAllString(query, "VALUES LESS THAN (MAXVALUE)"))
	case "INSERT":
		return r.upsert(query)
	case "SELECT":
		query = greatest.ReplaceAllString(query, "COALESCE(MAX(IFNULL($1, 0)), 0)")
		return greatestColumn.ReplaceAllString(query, "$1 AS greatest,")
	case "EXPLAIN":
		return explainInsert.ReplaceAllString(query, "EXPLAIN FORMAT=TREE INSERT")
	}
	return query
}

func (r *rewriter) ddl(query string) string {
	table := created.FindStringSubmatch(query)
	if table == nil {
		return query
	}
	var columns []generatedColumn
	for _, m := range virtual.FindAllStringSubmatch(query, -1) {
		expression := column.ReplaceAllStringFunc(m[3], func(c string) string { return "`" + table[1] + "`." + c })
		columns = append(columns, generatedColumn{m[1], expression})
	}
	if columns == nil {
		return query
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.generated == nil {
		r.generated = map[string][]generatedColumn{}
	}
	r.generated[table[1]] = columns
	return virtual.ReplaceAllString(query, "${1} ${2}STORED")
}

func (r *rewriter) upsert(query string) string {
	table := upserted.FindStringSubmatch(query)
	if table == nil {
		return query
	}
	r.mu.Lock()
	columns := r.generated[table[1]]
	r.mu.Unlock()
	if columns == nil || !onDuplicate.MatchString(query) {
		return query
	}
	for _, c := range columns {
		query += "," + c.name + "=(" + c.expression + ")"
	}
	return query
}

// firstWord is the statement's verb, in capitals.
func firstWord(query string) string {
	query = strings.TrimLeft(query, " \t\r\n")
	if end := strings.IndexAny(query, " \t\r\n("); end >= 0 {
		query = query[:end]
	}
	const longest = len("CREATE TABLE") // longer words are no verbs
	return strings.ToUpper(query[:min(len(query), longest)])
}

// cutStatement splits a packet of several statements after the first.
func cutStatement(query string) (first, rest string) {
	for i := 0; i < len(query); i++ {
		switch c := query[i]; c {
		case '\'', '"', '`':
			for i++; i < len(query) && query[i] != c; i++ {
				if query[i] == '\\' && c != '`' {
					i++
				}
			}
		case '/':
			if strings.HasPrefix(query[i:], "/*") {
				end := strings.Index(query[i+2:], "*/")
				if end < 0 {
					return query, ""
				}
				i += 2 + end + 1
			}
		case ';':
			return query[:i], strings.TrimLeft(query[i+1:], "; \t\r\n")
		}
	}
	return query, ""
}
