package mysql

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/partitioner"
)

// suffix stands behind the name of each physical table that the sink keeps.
func (s *Sink) suffix() string {
	if s.shadow == nil {
		return ""
	}
	return s.shadow.Suffix
}

// met are the shards of a partition that the sink writes to.
func (s *Sink) met(l *partitioner.Layout, part int32) []int32 {
	met := l.PartitionShards(part)
	if s.shadow == nil {
		return met
	}
	return slices.DeleteFunc(met, func(i int32) bool { return l.ShardName(i) != s.shadow.Shard })
}

// keeps says whether rows of a shard are the sink's business.
func (s *Sink) keeps(shard string) bool { return s.shadow == nil || s.shadow.Shard == shard }

// passesOver says that an event is of a table of the file that the sink does not keep. One of an unknown table is looked
// at: that is a fault of the event, or of the file.
func (s *Sink) passesOver(key []byte) bool {
	if s.shadow == nil {
		return false
	}
	table, _, _ := bytes.Cut(key, []byte{0})
	_, known := s.tableIndex[string(table)]
	return known && !slices.Contains(s.shadow.Tables, string(table))
}

// ensure makes the tables that the task needs. A rebuild whose rows are gone has ended: a process of it that wakes must
// leave no tables behind.
func (t *task) ensure(ctx context.Context) error {
	list := places(t.entries)
	if t.owned.sink.shadow != nil && slices.ContainsFunc(list, func(p place) bool { return !t.shard.catalog.has(p) }) {
		if err := t.read(ctx); err != nil && !errors.Is(err, errAgain) {
			return err
		}
	}
	return t.shard.ensure(ctx, list)
}

// PhysicalTable is one of the sink's tables as a shard has it.
type PhysicalTable struct {
	*event.Table
	Month partitioner.Month // NoMonth for a table without months
	Name  string
	// Differs says what the sink would refuse the table for.
	Differs []string
	// Lacks are the indexes of the file that are not there, as ALTER TABLE takes them: "ADD KEY …".
	Lacks []string
	// Beside says what the table has that the file does not name: columns and indexes that a table made anew lacks.
	Beside []string
}

// PhysicalTables are the sink's tables in the database that q is connected to, in order of their names.
func (s *Sink) PhysicalTables(ctx context.Context, q progress.Querier, shard string) ([]PhysicalTable, error) {
	sh, err := s.shardNamed(shard)
	if err != nil {
		return nil, err
	}
	e, err := sh.probe(ctx)
	if err != nil {
		return nil, err
	}
	tables, err := readSchema(ctx, q, "")
	if err != nil {
		return nil, sh.wrap(err)
	}
	var list []PhysicalTable
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		i, m, ok := s.logical(name)
		if !ok {
			continue
		}
		p := PhysicalTable{Table: s.tables[i].Table, Month: m, Name: name}
		for _, f := range compare(p.Table, tables[name], e.dialect) {
			text := f.what
			if f.column != "" {
				text = "column " + f.column + " " + text
			}
			switch {
			case f.err != "":
				p.Differs = append(p.Differs, text)
			case f.kind == foundUnexpected:
				p.Beside = append(p.Beside, text)
			case f.kind == foundIndex:
				p.Lacks = append(p.Lacks, f.alter)
			}
		}
		for _, ix := range tables[name].indexes {
			if ix.name != "PRIMARY" && !slices.ContainsFunc(p.Indexes, func(columns []string) bool { return slices.Equal(columns, ix.columns) }) {
				p.Beside = append(p.Beside, fmt.Sprintf("index %s (%s) is not in the file", ix.name, strings.Join(ix.columns, ", ")))
			}
		}
		list = append(list, p)
	}
	return list, nil
}

// TableNames are the names of the sink's tables in the database that q is connected to, in order. Nothing else is asked, on
// no other connection: q may have locked the tables.
func (s *Sink) TableNames(ctx context.Context, q progress.Querier) ([]PhysicalTable, error) {
	rows, err := q.QueryContext(ctx, "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() ORDER BY TABLE_NAME")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []PhysicalTable
	for rows.Next() {
		p := PhysicalTable{}
		if err := rows.Scan(&p.Name); err != nil {
			return nil, err
		}
		if i, m, ok := s.logical(p.Name); ok {
			p.Table, p.Month = s.tables[i].Table, m
			list = append(list, p)
		}
	}
	return list, rows.Err()
}

// MakeTable makes one of the sink's tables in a shard, unless it is there. IsRetired tells the error for a month that is
// retired.
func (s *Sink) MakeTable(ctx context.Context, shard string, t *event.Table, m partitioner.Month) error {
	sh, err := s.shardNamed(shard)
	if err != nil {
		return err
	}
	e, err := sh.probe(ctx)
	if err != nil {
		return err
	}
	if err := sh.make(ctx, t, m, e.dialect); err != nil {
		return sh.tableError(err, t, m)
	}
	return nil
}

// IsRetired says that a table was not made because its month is retired.
func IsRetired(err error) bool { return fault.CodeOf(err) == codeRetired }

func (s *Sink) shardNamed(name string) (*shard, error) {
	sh := s.shards[name]
	if sh == nil {
		sh = &shard{sink: s, name: name}
	}
	return sh, sh.known()
}
