package clickhouse

import (
	"context"
	"strconv"
	"strings"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/olap"
)

// tableSizesSQL asks, on a cluster, one replica of each shard.
func (c cluster) tableSizesSQL() string {
	from, database := "system.parts", "currentDatabase()"
	if c.name != "" {
		from, database = "cluster("+text(c.name)+", system.parts)", text(c.database)
	}
	return "SELECT table, partition, toString(sum(rows)), toString(sum(bytes_on_disk)) FROM " + from +
		" WHERE active AND database = " + database + " GROUP BY table, partition ORDER BY table, partition"
}

// TableSizes are the partitions of the file's tables that hold rows, in order of table and month. Rows are not merged yet:
// an entity counts once per image. Bytes are those on disk.
func (s *Sink) TableSizes(ctx context.Context) (list []olap.TableSize, err error) {
	months := map[string]bool{}
	for _, t := range s.tables {
		months[t.Name] = t.Month != event.None
	}
	err = s.pool.rows(ctx, s.cluster.tableSizesSQL(), 4, func(f []string) {
		if s.cluster.name != "" {
			f[0] = strings.TrimSuffix(f[0], localSuffix)
		}
		byMonth, known := months[f[0]]
		if !known {
			return
		}
		size := olap.TableSize{Table: f[0]}
		size.Rows, _ = strconv.ParseInt(f[2], 10, 64)
		size.Bytes, _ = strconv.ParseInt(f[3], 10, 64)
		if byMonth {
			var err error
			if size.Month, err = partitioner.ParseMonth(f[1]); err != nil {
				return // a partition that is no month's was not made by slotline
			}
		}
		list = append(list, size)
	})
	if err != nil {
		return nil, wrap(err, codeQuery, s.where())
	}
	return list, nil
}
