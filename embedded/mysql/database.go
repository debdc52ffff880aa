package mysql

import (
	"regexp"
	"strings"

	"github.com/dolthub/go-mysql-server/memory"
	gsql "github.com/dolthub/go-mysql-server/sql"
)

// database keeps the comments of tables that have a primary key; the engine's own forgets them.
type database struct{ *memory.Database }

var tableComment = regexp.MustCompile(`(?i)\)[^()]*\bCOMMENT\s*=?\s*'((?:[^']|'')*)'`)

// CreateIndexedTable is how the engine makes a table whose key is written as PRIMARY KEY (…).
func (d *database) CreateIndexedTable(ctx *gsql.Context, name string, schema gsql.PrimaryKeySchema, _ gsql.IndexDef, collation gsql.CollationID) error {
	comment := ""
	if found := tableComment.FindStringSubmatch(ctx.Query()); found != nil {
		comment = strings.ReplaceAll(found[1], "''", "'")
	}
	return d.CreateTable(ctx, name, schema, collation, comment)
}
