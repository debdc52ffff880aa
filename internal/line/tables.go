package line

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/mysql"
)

// Tables are the tables of a line in every store.
type Tables struct {
	Line     string           `json:"line"`
	Tables   []StoreTable     `json:"tables"`
	Retired  []RetiredMonths  `json:"retired"`   // by slotline tables retire
	NotAsked []NotAskedReason `json:"not_asked"` // stores that did not answer
}

// StoreTable is one logical table in one store.
type StoreTable struct {
	Store  string       `json:"store"` // mysql/s1, clickhouse, doris
	Table  string       `json:"table"`
	Rows   int64        `json:"rows"` // an estimate
	Bytes  int64        `json:"bytes"`
	Months []MonthTable `json:"months"` // oldest first; empty for a table without months
	// MissingAhead are the month tables that should have been made ahead of their time.
	MissingAhead []string `json:"missing_ahead"`
}

// MonthTable is one month of a table.
type MonthTable struct {
	Month string `json:"month"` // 202611
	Rows  int64  `json:"rows"`
	Bytes int64  `json:"bytes"`
	Age   int    `json:"age"` // in months; 0 for this one, negative for those to come
}

// Tables asks every store for its tables. One that does not answer is listed in NotAsked and hides none of the others.
func (l *Line) Tables(ctx context.Context) (*Tables, error) {
	if _, err := l.layoutFromAnywhere(ctx); err != nil {
		return nil, err
	}
	cfg, unopened := l.openedShards()
	sink, err := mysql.New(mysql.Options{Config: cfg, Layout: l.layout, Logger: l.Log})
	if err != nil {
		return nil, err
	}
	defer sink.Close()
	now := partitioner.MonthOf(time.Now())
	type store struct {
		name string
		ask  func(ctx context.Context) ([]StoreTable, error)
	}
	var stores []store
	retired := make([]*RetiredMonths, len(l.Config.Shards))
	for i, shard := range l.Config.Shards {
		name := "mysql/" + shard.Name
		stores = append(stores, store{name, func(ctx context.Context) ([]StoreTable, error) {
			if unopened[i] != nil {
				return nil, unopened[i]
			}
			have, missing, err := sink.TableSizes(ctx, shard.Name)
			list := l.emptyTables(name)
			for _, t := range have {
				tableNamed(list, t.Table).add(t.Month, t.Rows, t.Bytes, now)
			}
			for _, t := range missing {
				at := tableNamed(list, t.Table)
				at.MissingAhead = append(at.MissingAhead, t.Name)
			}
			if err == nil {
				retired[i], _, err = retiredMonths(ctx, l.shards[i], l.Config.Line, name)
			}
			return list, err
		}})
	}
	for _, name := range l.olapSinks() {
		stores = append(stores, store{name, func(ctx context.Context) ([]StoreTable, error) {
			olap, err := l.openOLAP(name, l.Config, l.layout, nil, "")
			if err != nil {
				return nil, err
			}
			defer olap.Close()
			sizes, err := olap.TableSizes(ctx)
			list := l.emptyTables(name)
			for _, t := range sizes {
				tableNamed(list, t.Table).add(t.Month, t.Rows, t.Bytes, now)
			}
			return list, err
		}})
	}
	answers, errs := make([][]StoreTable, len(stores)), make([]error, len(stores))
	var wg sync.WaitGroup
	for i, s := range stores {
		wg.Go(func() {
			ask, cancel := context.WithTimeout(ctx, checkTimeout)
			defer cancel()
			answers[i], errs[i] = s.ask(ask)
			if ask.Err() != nil {
				errs[i] = fmt.Errorf("no answer within %v", checkTimeout)
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, interrupted(ctx)
	}
	all := &Tables{Line: l.Config.Line, Tables: []StoreTable{}, Retired: []RetiredMonths{}, NotAsked: []NotAskedReason{}}
	for _, r := range retired {
		if r != nil {
			all.Retired = append(all.Retired, *r)
		}
	}
	for i, s := range stores {
		if errs[i] != nil {
			all.NotAsked = append(all.NotAsked, NotAskedReason{s.name, errs[i].Error()})
			continue
		}
		all.Tables = append(all.Tables, answers[i]...)
	}
	return all, nil
}

// emptyTables has an entry for each table of the file: one that is not there shows as such.
func (l *Line) emptyTables(store string) []StoreTable {
	var list []StoreTable
	for _, name := range l.tableNames() {
		list = append(list, StoreTable{Store: store, Table: name, Months: []MonthTable{}, MissingAhead: []string{}})
	}
	return list
}

func tableNamed(list []StoreTable, name string) *StoreTable {
	return &list[slices.IndexFunc(list, func(t StoreTable) bool { return t.Table == name })]
}

func (t *StoreTable) add(m partitioner.Month, rows, bytes int64, now partitioner.Month) {
	t.Rows += rows
	t.Bytes += bytes
	if m != partitioner.NoMonth {
		t.Months = append(t.Months, MonthTable{m.String(), rows, bytes, monthsBetween(m, now)})
	}
}

// monthsBetween counts months from one to another.
func monthsBetween(from, to partitioner.Month) int {
	ordinal := func(m partitioner.Month) int { return int(m)/100*12 + int(m)%100 }
	return ordinal(to) - ordinal(from)
}

// WriteText prints a line per store and table.
func (a *Tables) WriteText(w io.Writer) error {
	t := newTable(w, "STORE", "TABLE", "MONTHS", "OLDEST", "NEWEST", "ROWS ABOUT", "BYTES", "MISSING AHEAD")
	for _, s := range a.Tables {
		months, oldest, newest, missing := "-", "-", "-", "-"
		if n := len(s.Months); n > 0 {
			months = fmt.Sprint(n)
			oldest = s.Months[0].Month + ageText(s.Months[0].Age)
			newest = s.Months[n-1].Month
		}
		if n := len(s.MissingAhead); n > 0 {
			missing = nameList(s.MissingAhead)
		}
		t.row(s.Store, s.Table, months, oldest, newest, count(s.Rows), size(s.Bytes), missing)
	}
	if err := t.flush(); err != nil {
		return err
	}
	return a.writeRest(w)
}

// WriteMonths prints a line per store, table and month.
func (a *Tables) WriteMonths(w io.Writer) error {
	t := newTable(w, "STORE", "TABLE", "MONTH", "AGE", "ROWS ABOUT", "BYTES")
	for _, s := range a.Tables {
		for _, m := range s.Months {
			t.row(s.Store, s.Table, m.Month, fmt.Sprint(m.Age), count(m.Rows), size(m.Bytes))
		}
		if len(s.Months) == 0 {
			t.row(s.Store, s.Table, "-", "-", count(s.Rows), size(s.Bytes))
		}
	}
	if err := t.flush(); err != nil {
		return err
	}
	return a.writeRest(w)
}

func (a *Tables) writeRest(w io.Writer) error {
	for _, r := range a.Retired {
		r.writeText(w)
	}
	for _, n := range a.NotAsked {
		writeNotAsked(w, n.Stage+": "+n.Why)
	}
	return nil
}

func ageText(months int) string {
	if months < 1 {
		return ""
	}
	return fmt.Sprintf(" (%d months)", months)
}

// nameList names up to two, and counts the rest.
func nameList(names []string) string {
	switch len(names) {
	case 1:
		return names[0]
	case 2:
		return names[0] + " " + names[1]
	}
	return fmt.Sprintf("%s %s and %d more", names[0], names[1], len(names)-2)
}

// size prints bytes: 16 KiB, 340 MiB.
func size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	f, i := float64(n), 0
	for ; f >= 1024 && i < len(units)-1; i++ {
		f /= 1024
	}
	if i == 0 || f >= 10 {
		return fmt.Sprintf("%.0f %s", f, units[i])
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}
