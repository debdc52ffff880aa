package doristest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// This file is the statements by which a table, or a partition of it, takes another's place. What began before goes on with
// what it began with, as in Doris, which knows tables and partitions by number: a load of a table that changed its name goes
// into that, of one that was dropped fails, and rows of a partition that was replaced are lost with it.

// temporary is a temporary partition, which no query reads.
type temporary struct {
	from, to string // days: from one on, before the other
	rows     map[string]row
}

var (
	readNames     = regexp.MustCompile(`^SELECT TABLE_NAME, TABLE_TYPE FROM information_schema.tables WHERE TABLE_SCHEMA = '([^']*)'$`)
	renameTable   = regexp.MustCompile("^ALTER TABLE `([^`]+)` RENAME `([^`]+)`$")
	replaceTable  = regexp.MustCompile("^ALTER TABLE `([^`]+)` REPLACE WITH TABLE `([^`]+)` PROPERTIES \\('swap' = 'true'\\)$")
	dropTable     = regexp.MustCompile("^DROP TABLE IF EXISTS `([^`]+)`$")
	showTemporary = regexp.MustCompile("^SHOW TEMPORARY PARTITIONS FROM `([^`]+)`$")
	countTemp     = regexp.MustCompile("^SELECT COUNT\\(\\*\\) FROM `([^`]+)` TEMPORARY PARTITION \\(`([^`]+)`\\)$")
	addTemporary  = regexp.MustCompile("^ALTER TABLE `([^`]+)` ADD TEMPORARY PARTITION `([^`]+)` VALUES \\[\\(\"([0-9-]{10})\"\\), \\(\"([0-9-]{10})\"\\)\\)$")
	dropTemporary = regexp.MustCompile("^ALTER TABLE `([^`]+)` DROP TEMPORARY PARTITION `([^`]+)`$")
	replacePart   = regexp.MustCompile("^ALTER TABLE `([^`]+)` REPLACE PARTITION \\(`([^`]+)`\\) WITH TEMPORARY PARTITION \\(`([^`]+)`\\)$")
)

// alter carries out a statement of this file; known is false for another.
func (d *database) alter(statement string) (r result, known bool, err error) {
	if m := readNames.FindStringSubmatch(statement); m != nil {
		r.columns = []string{"TABLE_NAME", "TABLE_TYPE"}
		for name := range d.tables {
			r.add(name, "BASE TABLE")
		}
		for name := range d.views {
			r.add(name, "VIEW")
		}
		return r, true, nil
	}
	if m := dropTable.FindStringSubmatch(statement); m != nil {
		return r, true, d.dropTable(m[1])
	}
	for _, one := range []struct {
		form *regexp.Regexp
		do   func(t *table, m []string) (result, error)
	}{
		{renameTable, func(t *table, m []string) (result, error) {
			if d.tables[m[2]] != nil || d.views[m[2]] != nil {
				return r, detail("Table name[%s] is already used", m[2])
			}
			delete(d.tables, m[1])
			d.rename(t, m[2])
			return r, nil
		}},
		{replaceTable, func(t *table, m []string) (result, error) {
			other := d.tables[m[2]]
			if other == nil {
				return r, detail("Unknown table '%s'", m[2])
			}
			d.rename(t, m[2])
			d.rename(other, m[1])
			return r, nil
		}},
		{showTemporary, func(t *table, m []string) (result, error) {
			r.columns = []string{"PartitionId", "PartitionName"}
			for i, name := range slices.Sorted(maps.Keys(t.temporary)) {
				r.add(fmt.Sprint(20001+i), name)
			}
			return r, nil
		}},
		{countTemp, func(t *table, m []string) (result, error) {
			if t.temporary[m[2]] == nil {
				return r, detail("partition not found, name: %s", m[2])
			}
			r.columns = []string{"count(*)"}
			r.add(fmt.Sprint(len(t.temporary[m[2]].rows)))
			return r, nil
		}},
		{addTemporary, func(t *table, m []string) (result, error) {
			if t.partition < 0 {
				return r, detail("Only support adding partition to partitioned table")
			}
			for name, other := range t.temporary {
				if name == m[2] {
					return r, detail("Duplicate partition name %s", name)
				}
				if m[3] < other.to && other.from < m[4] {
					return r, detail("Range %s is intersected with range of temporary partition %s", m[3], name)
				}
			}
			if t.temporary == nil {
				t.temporary = map[string]*temporary{}
			}
			t.temporary[m[2]] = &temporary{m[3], m[4], map[string]row{}}
			return r, nil
		}},
		{dropTemporary, func(t *table, m []string) (result, error) {
			if t.temporary[m[2]] == nil {
				return r, detail("Error in list of partitions to %s", m[2])
			}
			delete(t.temporary, m[2])
			return r, nil
		}},
		{replacePart, func(t *table, m []string) (result, error) { return r, t.replacePartition(m[2], m[3]) }},
	} {
		m := one.form.FindStringSubmatch(statement)
		if m == nil {
			continue
		}
		t := d.tables[m[1]]
		if t == nil {
			return r, true, detail("Unknown table '%s'", m[1])
		}
		r, err := one.do(t, m)
		return r, true, err
	}
	return r, false, nil
}

// rename has a table be known by another name.
func (d *database) rename(t *table, name string) {
	t.create = strings.Replace(t.create, "`"+t.name+"`", "`"+name+"`", 1)
	t.name = name
	d.tables[name] = t
}

// dropTable refuses while loads are committed and not visible.
func (d *database) dropTable(name string) error {
	t := d.tables[name]
	if t == nil {
		return nil
	}
	for _, x := range d.txns {
		if x.state == committed && x.table == t {
			return detail("There are still some transactions in the COMMITTED state waiting to be completed. The table [%s] cannot be dropped.", name)
		}
	}
	delete(d.tables, name)
	t.dropped = true
	return nil
}

// partitionName is that of a month's partition, "2013-04", as AUTO PARTITION makes it.
func partitionName(month string) string { return "p" + strings.ReplaceAll(month, "-", "") + "01000000" }

// month is that of a row's partition, "2013-04"; "" in a table without partitions.
func (t *table) month(r row) string {
	if t.partition < 0 {
		return ""
	}
	return (*r[t.partition])[:len("2013-04")]
}

func (t *table) replacePartition(name, by string) error {
	with := t.temporary[by]
	if with == nil {
		return detail("Temp partition[%s] does not exist", by)
	}
	month := with.from[:len("2013-04")]
	found := false
	for _, r := range t.rows {
		found = found || t.month(r) == month
	}
	if partitionName(month) != name || !found {
		return detail("Partition[%s] does not exist", name)
	}
	for key, r := range t.rows {
		if t.month(r) == month {
			delete(t.rows, key)
		}
	}
	maps.Copy(t.rows, with.rows)
	delete(t.temporary, by)
	if t.replaced == nil {
		t.replaced = map[string]int{}
	}
	t.replaced[month]++
	t.changes++
	return nil
}

// begin is a transaction that loads into the table as it is now.
func (t *table) begin(id int64, label string) *txn {
	return &txn{id: id, label: label, state: prepare, table: t, begun: maps.Clone(t.replaced)}
}

// publish makes the rows of a transaction visible, but for those of partitions that are no more.
func (x *txn) publish(rows []row) {
	x.state = visible
	x.table.apply(slices.DeleteFunc(rows, func(r row) bool { return x.table.replaced[x.table.month(r)] != x.begun[x.table.month(r)] }))
}
