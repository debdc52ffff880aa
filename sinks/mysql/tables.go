package mysql

import (
	"context"

	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/partitioner"
)

// TableSize is one physical table of a shard.
type TableSize struct {
	Table string            // logical
	Name  string            // physical
	Month partitioner.Month // NoMonth for a table without months
	Rows  int64             // the server's estimate; deleted rows count
	Bytes int64             // of data and indexes
}

const tableSizesSQL = "SELECT TABLE_NAME, COALESCE(TABLE_ROWS,0), COALESCE(DATA_LENGTH,0)+COALESCE(INDEX_LENGTH,0) " +
	"FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() ORDER BY TABLE_NAME"

// TableSizes are the physical tables of a shard that the file's tables have, in order of their names, and the ones that
// should be there ahead of their time and are not.
func (s *Sink) TableSizes(ctx context.Context, shardName string) (have, missing []TableSize, err error) {
	sh := s.shards[shardName]
	if sh == nil {
		sh = &shard{sink: s, name: shardName}
	}
	if err := sh.known(); err != nil {
		return nil, nil, err
	}
	conn, err := sh.control.Conn(ctx)
	if err != nil {
		return nil, nil, sh.wrap(err)
	}
	defer func() {
		mysqldb.Discard(conn) // its statistics setting is its own
		conn.Close()
	}()
	// Else the server may answer with the figures of yesterday. Only MySQL has the setting.
	if _, err := conn.ExecContext(ctx, "SET SESSION information_schema_stats_expiry = 0"); err != nil && mysqldb.Number(err) != 1193 {
		return nil, nil, sh.wrap(err)
	}
	rows, err := conn.QueryContext(ctx, tableSizesSQL)
	if err != nil {
		return nil, nil, sh.wrap(err)
	}
	defer rows.Close()
	there := map[string]bool{}
	for rows.Next() {
		var t TableSize
		if err := rows.Scan(&t.Name, &t.Rows, &t.Bytes); err != nil {
			return nil, nil, sh.wrap(err)
		}
		if i, m, ok := s.logical(t.Name); ok {
			t.Table, t.Month = s.tables[i].Name, m
			have, there[t.Name] = append(have, t), true
		}
	}
	if err := rows.Err(); err != nil {
		return nil, nil, sh.wrap(err)
	}
	for _, t := range s.tables {
		for _, m := range s.monthsToHave(t.Table) {
			if name := t.Table.PhysicalName(m); !there[name] {
				missing = append(missing, TableSize{Table: t.Name, Name: name, Month: m})
			}
		}
	}
	return have, missing, nil
}
