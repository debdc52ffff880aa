package reader

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
)

// Pauses between two looks of Wait: a sink under load needs some milliseconds.
const (
	pauseLeast = 2 * time.Millisecond
	pauseMost  = 100 * time.Millisecond
)

// Wait returns when the entity's row, which may be deleted, was made by the version or a later one: after it a Query sees what the
// event with that version said. It is for tables whose version is a column of the service's (version: <column> in the file). Where
// the version became a dead letter it never comes: give ctx a time-out. The error then wraps ErrNotApplied and ctx's.
func (r *Reader) Wait(ctx context.Context, table, tenant, id string, version int64) error {
	t, err := r.table(table, tenant)
	if err != nil {
		return err
	}
	if id == "" || version < 1 || version > event.VersionMax {
		return &fault.Error{Code: codeUse, Class: fault.Usage, What: fmt.Sprintf("table %s: Wait for version %d of id %.70q: an id has at least one byte, a version is 1 to 2^62-1", table, version, id)}
	}
	q := Query{ID: id}
	if _, err := q.check(t); err != nil {
		return err
	}
	var held int64
	for pause := pauseLeast; ; pause = min(pauseMost, pause*3/2) {
		ver, err := r.version(ctx, t, tenant, id)
		held = max(held, ver)
		if err == nil && held >= 2*version {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			has := "no row"
			if held > 0 {
				has = fmt.Sprintf("version %d", held/2)
			}
			return &fault.Error{Code: codeNotYet, Class: fault.Transient, Err: errors.Join(ErrNotApplied, ctx.Err()),
				What: fmt.Sprintf("table %s, tenant %.70q, id %.70q: version %d is not applied yet: the shard has %s", table, tenant, id, version, has),
				Do:   fmt.Sprintf("wait longer; slotline where %s says where it is", strings.Join(strings.Fields(table+" "+tenant+" "+id), " "))}
		case <-time.After(pause):
		}
	}
}

// version is the `_ver` that the entity's row has, of a broadcast table the least of all shards; 0 where it has none.
func (r *Reader) version(ctx context.Context, t *event.Table, tenant, id string) (ver int64, err error) {
	places, err := r.places(ctx, t, tenant, "", time.Time{}, time.Time{})
	if err != nil {
		return 0, err
	}
	for i, p := range places {
		query := "SELECT COALESCE(MAX(`_ver`), 0) FROM " + mysqldb.Ident(p.Table) + " WHERE " + mysqldb.Ident(t.Columns[t.ID].Name) + " = ?"
		args := []any{t.Columns[t.ID].KeyArgument(id)}
		if !t.Broadcast() {
			query += " AND " + mysqldb.Ident(t.Columns[t.Tenant].Name) + " = ?"
			args = append(args, t.Columns[t.Tenant].KeyArgument(tenant))
		}
		var at int64
		switch err := p.DB.QueryRowContext(ctx, query, args...).Scan(&at); {
		case mysqldb.Number(err) == 1146:
			r.forget(p.Shard)
		case err != nil:
			return ver, readError(err, p)
		}
		if t.Broadcast() && i > 0 {
			ver = min(ver, at) // every shard must have it
		} else {
			ver = max(ver, at)
		}
	}
	return ver, nil
}
