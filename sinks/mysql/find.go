package mysql

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/partitioner"
)

// FoundRow is an entity's row in one physical table.
type FoundRow struct {
	Table string
	Ver   int64 // _ver: version*2, plus 1 when deleted
}

// findTablesMax is how many physical tables one statement asks.
const findTablesMax = 50

// Find looks an entity up by primary key in a shard: in every month table that is there, or in the one of a month. tenant
// and id are canonical texts; tenant is empty for a broadcast table.
func (s *Sink) Find(ctx context.Context, shardName string, t *event.Table, tenant, id string, month partitioner.Month) ([]FoundRow, error) {
	sh := s.shards[shardName]
	if sh == nil {
		sh = &shard{sink: s, name: shardName}
	}
	if err := sh.known(); err != nil {
		return nil, err
	}
	names := []string{t.PhysicalName(month)}
	if month == partitioner.NoMonth && t.Month != event.None {
		var err error
		if names, err = sh.monthTables(ctx, t); err != nil {
			return nil, sh.wrap(err)
		}
	}
	var list []FoundRow
	for part := range slices.Chunk(names, findTablesMax) {
		query, args := findSQL(t, part, tenant, id)
		rows, err := sh.control.QueryContext(ctx, query, args...)
		if mysqldb.Number(err) == 1146 && len(names) == 1 {
			return nil, nil // the sink makes it with the first of its rows
		}
		if err != nil {
			return nil, sh.wrap(err)
		}
		for rows.Next() {
			var r FoundRow
			if err := rows.Scan(&r.Table, &r.Ver); err != nil {
				rows.Close()
				return nil, sh.wrap(err)
			}
			list = append(list, r)
		}
		if err := rows.Err(); err != nil {
			return nil, sh.wrap(err)
		}
	}
	return list, nil
}

// findSQL asks several tables of one logical table for an entity.
func findSQL(t *event.Table, names []string, tenant, id string) (query string, args []any) {
	var parts []string
	for _, name := range names {
		var where []string
		is := func(column int, value string) {
			where = append(where, mysqldb.Ident(t.Columns[column].Name)+" = ?")
			args = append(args, t.Columns[column].KeyArgument(value))
		}
		if !t.Broadcast() {
			is(t.Tenant, tenant)
		}
		is(t.ID, id)
		parts = append(parts, fmt.Sprintf("SELECT '%s', `_ver` FROM %s WHERE %s", name, mysqldb.Ident(name), strings.Join(where, " AND ")))
	}
	return strings.Join(parts, " UNION ALL "), args
}

// monthTables are the physical tables of a logical one that are there, in order of their names.
func (sh *shard) monthTables(ctx context.Context, t *event.Table) ([]string, error) {
	rows, err := sh.control.QueryContext(ctx, "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() ORDER BY TABLE_NAME")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		if _, ok := t.MonthOfName(name); ok {
			names = append(names, name)
		}
	}
	return names, rows.Err()
}
