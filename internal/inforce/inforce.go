// Package inforce reads the layout in force of a line, as its databases hold it. apply alone writes it (internal/line).
package inforce

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/partitioner"
)

// Read returns the line's layout in force in db, or nil where none was applied. shard is the name by which the
// line knows the database, "" for the outbox; where names it for errors. A database that was applied under another
// name is refused: two shards that are one database would move each other's progress.
func Read(ctx context.Context, db *sql.DB, line, shard, where string) (*partitioner.Layout, error) {
	var name, body, digest string
	err := db.QueryRowContext(ctx,
		"SELECT shard, body, digest FROM slotline_layout WHERE line = ? ORDER BY epoch DESC LIMIT 1", line).Scan(&name, &body, &digest)
	switch {
	case errors.Is(err, sql.ErrNoRows), mysqldb.Number(err) == 1146:
		return nil, nil
	case err != nil:
		return nil, err
	}
	if name != shard {
		called := func(name string) string {
			if name == "" {
				return "the outbox"
			}
			return "shard " + name
		}
		return nil, &fault.Error{Code: "SL1813", Class: fault.Usage,
			What: fmt.Sprintf("%s was applied as %s of line %s; the file calls it %s", where, called(name), line, called(shard)),
			Why:  "two shards that are one database would move each other's progress, and lose events",
			Do:   "give each shard a database of its own, and keep its name"}
	}
	spec, err := partitioner.ParseSpec([]byte(body))
	if err != nil {
		return nil, &fault.Error{Code: "SL1801", Class: fault.Fatal, Err: err,
			What: fmt.Sprintf("%s: the layout stored in slotline_layout cannot be read: %v", where, err),
			Do:   "use the release of slotline that wrote it, or restore the row from another database of the line"}
	}
	l, err := partitioner.New(spec)
	if err != nil {
		return nil, &fault.Error{Code: "SL1802", Class: fault.Fatal, Err: err,
			What: fmt.Sprintf("%s: the layout stored in slotline_layout is not valid: %v", where, err),
			Do:   "restore the row from another database of the line"}
	}
	if l.Digest() != digest {
		return nil, &fault.Error{Code: "SL1803", Class: fault.Fatal,
			What: fmt.Sprintf("%s: the layout of epoch %d in slotline_layout was altered after it was applied", where, spec.Epoch),
			Why:  "its digest is not that of its body; running on it could write rows to the wrong shard",
			Do:   "restore the row from another database of the line"}
	}
	return l, nil
}
