package doris

import (
	"context"
	"database/sql"
	"regexp"
	"strconv"
	"strings"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/olap"
)

// TableSizes are the partitions of the file's tables, in order of table and month. A table that is not there has none. Rows
// are what the frontend was last told by the backends, 0 from releases that do not say; bytes are those of one replica.
func (s *Sink) TableSizes(ctx context.Context) (list []olap.TableSize, err error) {
	tables, err := s.readSchema(ctx)
	if err != nil {
		return nil, wrap(err, codeQuery, s.where())
	}
	for _, t := range s.tables {
		if tables[t.Name] == nil {
			continue
		}
		parts, err := s.partitions(ctx, t.Table, t.Name)
		if err != nil {
			return nil, wrap(err, codeQuery, s.where()+", table "+t.Name)
		}
		for _, p := range parts {
			list = append(list, p.TableSize)
		}
	}
	return list, nil
}

var rangeBegin = regexp.MustCompile(`keys: \[(\d{4})-(\d{2})-`)

// partition is one of a physical table.
type partition struct {
	olap.TableSize
	name string
}

// partitions reads SHOW PARTITIONS of the table that has a name, whose columns differ among releases: they are found by name.
func (s *Sink) partitions(ctx context.Context, t *event.Table, physical string) (list []partition, err error) {
	err = s.byName(ctx, "SHOW PARTITIONS FROM "+ident(physical), func(value map[string]string) {
		p := partition{olap.TableSize{Table: t.Name, Bytes: dataSize(value["datasize"])}, value["partitionname"]}
		p.Rows, _ = strconv.ParseInt(value["rowcount"], 10, 64)
		if t.Month != event.None {
			m := rangeBegin.FindStringSubmatch(value["range"])
			if m == nil {
				return // a partition that is no month's was not made by slotline
			}
			var err error
			if p.Month, err = partitioner.ParseMonth(m[1] + m[2]); err != nil {
				return
			}
		}
		list = append(list, p)
	})
	return list, err
}

// byName runs a query and passes on each row by its columns' names, in lower case.
func (s *Sink) byName(ctx context.Context, query string, row func(value map[string]string)) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	return s.eachNamed(ctx, s.catalog, query, func(names []string, f []sql.RawBytes) error {
		value := map[string]string{}
		for i, name := range names {
			value[strings.ToLower(name)] = string(f[i])
		}
		row(value)
		return nil
	})
}

// dataSize reads "12.345 KB".
func dataSize(text string) int64 {
	number, unit, _ := strings.Cut(strings.TrimSpace(text), " ")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0
	}
	for _, u := range []string{"B", "KB", "MB", "GB", "TB", "PB"} {
		if strings.EqualFold(strings.TrimSpace(unit), u) {
			return int64(v)
		}
		v *= 1024
	}
	return 0
}
