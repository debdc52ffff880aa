package mysqldb

import (
	"slices"
	"strings"
)

// Grants are the lines of SHOW GRANTS that are about tables.
type Grants []grant

type grant struct {
	privileges []string // upper case; "ALL PRIVILEGES"
	database   string   // a pattern as GRANT takes it; "*" for all
	table      string   // "*" for all
	revoked    bool     // a partial revoke
	literal    bool     // the database is a name, not a pattern: partial_revokes is on
}

// ParseGrants reads what SHOW GRANTS says. Grants of roles, of routines and of single columns are left out.
func ParseGrants(lines []string) Grants {
	var list Grants
	for _, line := range lines {
		rest, ok := strings.CutPrefix(line, "GRANT ")
		g := grant{}
		if !ok {
			if rest, ok = strings.CutPrefix(line, "REVOKE "); !ok {
				continue
			}
			g.revoked = true
		}
		names, rest, ok := cutOutside(rest, " ON ")
		if !ok {
			continue // of a role
		}
		end := " TO "
		if g.revoked {
			end = " FROM "
		}
		object, _, ok := cutOutside(rest, end)
		if !ok {
			continue
		}
		object = strings.TrimPrefix(object, "TABLE ")
		database, table, ok := cutOutside(object, ".")
		if !ok {
			continue // PROXY ON an account
		}
		if strings.HasPrefix(database, "PROCEDURE ") || strings.HasPrefix(database, "FUNCTION ") {
			continue
		}
		g.database, g.table = unquote(database), unquote(table)
		for names != "" {
			var name string
			name, names, _ = cutOutside(names, ",")
			if name = strings.ToUpper(strings.TrimSpace(name)); !strings.Contains(name, "(") {
				g.privileges = append(g.privileges, name)
			}
		}
		list = append(list, g)
	}
	return list
}

// cutOutside is strings.Cut, blind for what stands in quotes or parentheses.
func cutOutside(text, sep string) (before, after string, found bool) {
	var quote byte
	depth := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quote != 0:
			if c == quote {
				quote = 0 // a doubled one opens again at once
			}
		case depth == 0 && strings.HasPrefix(text[i:], sep):
			return text[:i], text[i+len(sep):], true
		case c == '`' || c == '\'' || c == '"':
			quote = c
		case c == '(':
			depth++
		case c == ')':
			depth--
		}
	}
	return text, "", false
}

func unquote(name string) string {
	if len(name) > 1 && (name[0] == '`' || name[0] == '"') && name[len(name)-1] == name[0] {
		return strings.ReplaceAll(name[1:len(name)-1], name[:1]+name[:1], name[:1])
	}
	return name
}

// Missing are those of the privileges that the grants do not give on a table, or with "*" on all tables of the database;
// with "*" for both, on everything. Where it cannot be told which of several patterns counts, all do.
func (list Grants) Missing(privileges []string, database, table string) (missing []string) {
	for _, p := range privileges {
		has := false
		for _, g := range list {
			if !slices.Contains(g.privileges, p) && !slices.Contains(g.privileges, "ALL PRIVILEGES") && !slices.Contains(g.privileges, "ALL") {
				continue
			}
			if g.revoked {
				if g.database == database && table != "" && (g.table == "*" || g.table == table) {
					has = false // partial revokes come last
				}
				continue
			}
			has = has || (g.database == "*" || database != "*" && g.of(database)) && (g.table == "*" || g.table == table)
		}
		if !has {
			missing = append(missing, p)
		}
	}
	return missing
}

// of says whether a grant on databases is on this one.
func (g *grant) of(database string) bool {
	return strings.EqualFold(g.database, database) || !g.literal && matches(g.database, database)
}

// on are the names, most of them patterns, by which whole databases are granted, of those that are this one. A server goes
// by one of them alone: what is granted on a further name may take away what these give.
func (list Grants) on(database string) (names []string) {
	for _, g := range list {
		if g.database != "*" && g.table == "*" && !g.revoked && g.of(database) && !slices.Contains(names, g.database) {
			names = append(names, g.database)
		}
	}
	return names
}

// by is the grants where the server goes by that one of the names on a database.
func (list Grants) by(name, database string) Grants {
	return slices.DeleteFunc(slices.Clone(list), func(g grant) bool {
		return g.database != "*" && g.table == "*" && !g.revoked && g.database != name && g.of(database)
	})
}

// matches says whether a database is one of a pattern: % and _ stand for others unless a backslash is before them.
func matches(pattern, name string) bool {
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '%':
			for j := 0; j <= len(name); j++ {
				if matches(pattern[i+1:], name[j:]) {
					return true
				}
			}
			return false
		case name == "":
			return false
		case c == '_':
		default:
			if c == '\\' && i+1 < len(pattern) {
				i++
			}
			if !strings.EqualFold(pattern[i:i+1], name[:1]) {
				return false
			}
		}
		name = name[1:]
	}
	return name == ""
}
