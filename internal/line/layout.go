package line

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/partitioner"
)

// layoutDDL is the table that holds applied layouts, in the outbox database and in each shard. One row per line and
// epoch, since lines may share shards; the greatest epoch is in force. apply alone writes it.
const layoutDDL = "CREATE TABLE IF NOT EXISTS slotline_layout (\n" +
	"  line VARBINARY(64) NOT NULL,\n" +
	"  epoch BIGINT NOT NULL,\n" +
	"  shard VARBINARY(64) NOT NULL,\n" + // "" in the outbox database
	"  table_names TEXT CHARACTER SET ascii NOT NULL,\n" + // of the line, separated by blanks
	"  digest CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,\n" +
	"  body LONGTEXT NOT NULL,\n" +
	"  applied_at DATETIME(6) NOT NULL,\n" +
	"  PRIMARY KEY (line, epoch)\n" +
	") ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='slotline layout format 1'"

// codeNeverApplied is the one layout error that apply mends.
const codeNeverApplied = "SL1804"

// otherLine refuses an outbox database that belongs to another line: two lines on one would take each other's events.
func otherLine(ctx context.Context, db *sql.DB, line, where string) error {
	var other string
	err := db.QueryRowContext(ctx, "SELECT line FROM slotline_layout WHERE line <> ? LIMIT 1", line).Scan(&other)
	switch {
	case errors.Is(err, sql.ErrNoRows), mysqldb.Number(err) == 1146:
		return nil
	case err != nil:
		return err
	}
	return &fault.Error{Code: "SL1812", Class: fault.Usage,
		What: fmt.Sprintf("%s is the outbox of line %s; this file says line %s", where, other, line),
		Why:  "two lines on one outbox would publish each other's events",
		Do:   "put line: " + other + " back (a line's name never changes), or give this line an outbox database of its own"}
}

// sharedTables refuses a shard where another line has a table of the same name: the lines would write each other's rows.
func sharedTables(ctx context.Context, db *sql.DB, line, where string, tables []string) error {
	rows, err := db.QueryContext(ctx, "SELECT line, table_names FROM slotline_layout WHERE line <> ?", line)
	if mysqldb.Number(err) == 1146 {
		return nil
	}
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var other, names string
		if err := rows.Scan(&other, &names); err != nil {
			return err
		}
		for _, name := range strings.Fields(names) {
			if slices.Contains(tables, name) {
				return &fault.Error{Code: "SL1815", Class: fault.Usage,
					What: fmt.Sprintf("%s: table %s is line %s's there", where, name, other),
					Why:  "two lines that write one table drop each other's rows by version",
					Do:   "give this line a database of its own, or its table another name"}
			}
		}
	}
	return rows.Err()
}

// writeLayout stores l as applied. Storing the same layout again changes nothing.
func writeLayout(ctx context.Context, db *sql.DB, line, shard string, tables []string, l *partitioner.Layout) error {
	if _, err := db.ExecContext(ctx, layoutDDL); err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := storeLayout(ctx, tx, line, shard, tables, l.Epoch()-1, l); err != nil {
		return err
	}
	return tx.Commit()
}

// storeLayout stores l in place of any layout that is newer than the one in force: nobody has run by those.
func storeLayout(ctx context.Context, tx *sql.Tx, line, shard string, tables []string, inForce int64, l *partitioner.Layout) error {
	if _, err := tx.ExecContext(ctx, "DELETE FROM slotline_layout WHERE line = ? AND epoch > ?", line, inForce); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO slotline_layout (line, epoch, shard, table_names, digest, body, applied_at) "+
		"VALUES (?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE table_names = VALUES(table_names)",
		line, l.Epoch(), shard, strings.Join(tables, " "), l.Digest(), l.Body())
	return err
}

// agree compares the layout that the file describes with the one in force. A file says nothing of the slot→partition
// map, so that is taken from applied. It returns the layout to run from.
func agree(file string, spec partitioner.Spec, partitions int, applied *partitioner.Layout) (*partitioner.Layout, error) {
	if applied == nil {
		return nil, &fault.Error{Code: codeNeverApplied, Class: fault.Usage,
			What: file + ": this line was never applied: no layout is stored in the outbox database",
			Do:   "slotline apply --dry-run, then slotline apply"}
	}
	differs := func(why string) error {
		e := &fault.Error{Code: "SL1806", Class: fault.Usage, Why: why}
		switch {
		case spec.Epoch < applied.Epoch():
			e.What = fmt.Sprintf("%s is older than the layout in force: it has layout epoch %d, the applied one is %d", file, spec.Epoch, applied.Epoch())
			e.Do = fmt.Sprintf("put the file that was applied last, of layout epoch %d, in its place", applied.Epoch())
		case spec.Epoch > applied.Epoch():
			e.What = fmt.Sprintf("%s has layout epoch %d, which is not applied: epoch %d is in force", file, spec.Epoch, applied.Epoch())
			e.Do = "slotline apply --dry-run, then slotline apply"
		default:
			e.What = fmt.Sprintf("%s differs from the layout in force, and both are layout epoch %d", file, applied.Epoch())
			e.Do = fmt.Sprintf("put the file back; or, to change the layout, set layout.epoch: %d and run slotline apply", applied.Epoch()+1)
		}
		return e
	}
	if partitions != applied.Partitions() {
		return nil, differs(fmt.Sprintf("kafka.partitions is %d, the layout in force has %d", partitions, applied.Partitions()))
	}
	spec, err := spec.After(applied, partitions, nil)
	if err != nil {
		return nil, err
	}
	want, err := partitioner.New(spec)
	if err != nil {
		return nil, err
	}
	if want.Digest() == applied.Digest() {
		return applied, nil
	}
	return nil, differs(strings.Join(partitioner.Diff(applied, want).Lines(), "\n"))
}
