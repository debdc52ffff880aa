package doristest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// result is what a statement returns: rows, or nothing.
type result struct {
	columns []string
	types   []byte // of the protocol; without them all are texts
	rows    []row
}

// sqlError is an error as the server numbers it.
type sqlError struct {
	number int
	text   string
}

func (e *sqlError) Error() string { return e.text }

func detail(format string, args ...any) error {
	return &sqlError{1105, "errCode = 2, detailMessage = " + fmt.Sprintf(format, args...)}
}

var (
	createTable = regexp.MustCompile("(?s)^CREATE TABLE IF NOT EXISTS `([^`]+)` \\(\n(.*)\n\\) ENGINE=OLAP\nUNIQUE KEY\\(([^)]*)\\)\nCOMMENT '([^']*)'\n(AUTO PARTITION BY RANGE \\(date_trunc\\(`([^`]+)`, 'month'\\)\\) \\(\\)\n)?DISTRIBUTED BY HASH\\(([^)]*)\\) BUCKETS (?:\\d+|AUTO)\nPROPERTIES \\((.*)\\)$")
	addColumn   = regexp.MustCompile("^ALTER TABLE `([^`]+)` ADD COLUMN (.*)$")
	makeView    = regexp.MustCompile("(?s)^(CREATE|ALTER) VIEW `([^`]+)` AS\nSELECT (.*)\nFROM `([^`]+)`\nWHERE `([^`]+)` = 0$")
	dropColumn  = regexp.MustCompile("^ALTER TABLE `([^`]+)` (?:DROP COLUMN|MODIFY COLUMN) (.*)$")
	readTables  = regexp.MustCompile(`^SELECT TABLE_NAME, TABLE_TYPE, TABLE_COMMENT FROM information_schema.tables WHERE TABLE_SCHEMA = '([^']*)' AND TABLE_NAME IN \((.*)\)$`)
	partitions  = regexp.MustCompile("^SHOW PARTITIONS FROM `([^`]+)`$")
	describe    = regexp.MustCompile("^DESC `([^`]+)`$")
	showCreate  = regexp.MustCompile("^SHOW CREATE TABLE `([^`]+)`$")
	readRows    = regexp.MustCompile("^SELECT (`[^`]+`(?:,`[^`]+`)*) FROM `([^`]+)`(?: WHERE (.*))?$")
	equals      = regexp.MustCompile("^`([^`]+)` = (?:'((?:[^']|'')*)'|(-?[0-9]+))$")
	deleteRows  = regexp.MustCompile("^DELETE FROM `([^`]+)` WHERE (.*)$")
	updateRows  = regexp.MustCompile("^UPDATE `([^`]+)` SET `([^`]+)` = (?:'([^']*)'|([0-9]+)) WHERE (.*)$")
	committedOf = regexp.MustCompile("^SHOW TRANSACTION FROM `([^`]+)` WHERE STATUS = 'committed'$")
	sequence    = regexp.MustCompile(`"function_column\.sequence_col" = "([^"]+)"`)
)

// run runs one statement in a database.
func (s *Server) run(db, statement string) (result, error) {
	if m := insertSelect.FindStringSubmatch(statement); m != nil {
		return s.insert(db, m)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.databases[db]
	if d == nil {
		return result{}, &sqlError{1049, "errCode = 2, detailMessage = Unknown database '" + db + "'"}
	}
	if m := createTable.FindStringSubmatch(statement); m != nil {
		s.statement++
		return result{}, d.createTable(m, statement)
	}
	if r, known, err := d.alter(statement); known {
		return r, err
	}
	if m := addColumn.FindStringSubmatch(statement); m != nil {
		s.statement++
		return result{}, d.addColumn(m[1], m[2])
	}
	if m := dropColumn.FindStringSubmatch(statement); m != nil {
		return result{}, d.changeColumn(m[1], m[2], strings.Contains(statement, "DROP"))
	}
	if m := makeView.FindStringSubmatch(statement); m != nil {
		s.statement++
		if (d.views[m[2]] != nil) != (m[1] == "ALTER") {
			return result{}, detail("Table '%s' already exists, or does not", m[2])
		}
		v := &view{name: m[2], create: statement, table: m[4], where: m[5]}
		for name := range strings.SplitSeq(m[3], ",") {
			v.columns = append(v.columns, strings.Trim(name, "` "))
		}
		d.views[v.name] = v
		return result{}, nil
	}
	if m := makeJoin.FindStringSubmatch(statement); m != nil {
		s.statement++
		if d.views[m[1]] != nil {
			return result{}, detail("Table '%s' already exists", m[1])
		}
		d.views[m[1]] = joinView(m)
		return result{}, nil
	}
	if m := readTables.FindStringSubmatch(statement); m != nil {
		r := result{columns: []string{"TABLE_NAME", "TABLE_TYPE", "TABLE_COMMENT"}}
		for name := range strings.SplitSeq(m[2], ", ") {
			name = strings.Trim(name, "'")
			if t := d.tables[name]; t != nil {
				r.add(name, "BASE TABLE", t.comment)
			}
			if d.views[name] != nil {
				r.add(name, "VIEW", "")
			}
		}
		return r, nil
	}
	if m := partitions.FindStringSubmatch(statement); m != nil {
		return d.partitions(m[1])
	}
	if m := describe.FindStringSubmatch(statement); m != nil {
		return d.describe(m[1])
	}
	if m := showCreate.FindStringSubmatch(statement); m != nil {
		r := result{columns: []string{"Table", "Create Table"}}
		switch {
		case d.tables[m[1]] != nil:
			r.add(m[1], d.tables[m[1]].create)
		case d.views[m[1]] != nil:
			r = result{columns: []string{"View", "Create View", "character_set_client", "collation_connection"}}
			r.add(m[1], d.views[m[1]].create, "utf8mb4", "utf8mb4_0900_bin")
		default:
			return r, detail("Unknown table '%s'", m[1])
		}
		return r, nil
	}
	if m := readRows.FindStringSubmatch(statement); m != nil && (d.views[m[2]] == nil || !d.views[m[2]].join) {
		return d.read(strings.Split(m[1], ","), m[2], m[3])
	}
	if m := deleteRows.FindStringSubmatch(statement); m != nil {
		return result{}, s.changeLocked(db, d, m[1], m[2], func(t *table, key string) error {
			delete(t.rows, key)
			return nil
		})
	}
	if m := updateRows.FindStringSubmatch(statement); m != nil {
		return result{}, s.changeLocked(db, d, m[1], m[5], func(t *table, key string) error {
			i := t.index(m[2])
			if i < 0 || slices.Contains(t.keys, i) {
				return detail("Only value columns of unique table could be updated")
			}
			value, err := t.columns[i].cast(m[3] + m[4])
			if err != nil {
				return detail("%v", err)
			}
			r := slices.Clone(t.rows[key])
			r[i], t.rows[key] = &value, r
			return nil
		})
	}
	if m := committedOf.FindStringSubmatch(statement); m != nil {
		return s.committedLocked(m[1])
	}
	if statement == "SYNC" { // one frontend, which is the master
		return result{}, nil
	}
	if statement == "SELECT @@version_comment" {
		r := result{columns: []string{"@@version_comment"}}
		r.add("Doris version " + Version)
		return r, nil
	}
	if statement == "SHOW BACKENDS" {
		r := result{columns: []string{"BackendId", "Host", "HeartbeatPort", "BePort", "HttpPort", "BrpcPort", "LastStartTime", "LastHeartbeat", "Alive", "Version"}}
		for i, alive := range s.backends {
			r.add(fmt.Sprint(10001+i), fmt.Sprintf("be%d", i+1), "9050", "9060", "8040", "8060", "2026-11-01 00:00:00", "2026-11-01 00:00:00", fmt.Sprint(alive), Version)
		}
		return r, nil
	}
	if selects.MatchString(statement) {
		return s.selectLocked(db, d, statement)
	}
	return result{}, detail("Syntax error: %.200s", statement)
}

// committedLocked are the transactions of a database that are committed and not visible yet.
func (s *Server) committedLocked(db string) (result, error) {
	r := result{columns: []string{"TransactionId", "Label", "Coordinator", "TransactionStatus"}}
	d := s.databases[db]
	if d == nil {
		return r, detail("Unknown database '%s'", db)
	}
	for _, x := range d.txns {
		if x.state == committed {
			r.add(fmt.Sprint(x.id), x.label, "BE: 10001", string(committed))
		}
	}
	return r, nil
}

func (r *result) add(fields ...string) {
	values := make(row, len(fields))
	for i := range fields {
		values[i] = &fields[i]
	}
	r.rows = append(r.rows, values)
}

func (d *database) createTable(m []string, statement string) error {
	if d.tables[m[1]] != nil {
		return nil
	}
	t := &table{name: m[1], comment: m[4], create: statement, partition: -1, rows: map[string]row{}}
	for def := range strings.SplitSeq(m[2], ",\n") {
		c, err := parseColumn(def)
		if err != nil {
			return detail("%v", err)
		}
		t.columns = append(t.columns, c)
	}
	for i, name := range strings.Split(m[3], ",") {
		if t.index(name) != i {
			return detail("Key columns should be a ordered prefix of the schema. KeyColumns[%d] (starts from zero) is %s", i, name)
		}
		if base := t.columns[i].typ; base == "string" || base == "double" {
			return detail("%s column can not be a key", base)
		}
		t.keys = append(t.keys, i)
	}
	if m[6] != "" {
		if t.partition = t.index(m[6]); !slices.Contains(t.keys, t.partition) {
			return detail("Merge-on-Write table's partition column must be KEY column")
		}
		if t.columns[t.partition].nullable {
			return detail("AUTO RANGE PARTITION doesn't support NULL column")
		}
	}
	for name := range strings.SplitSeq(m[7], ",") {
		if !slices.Contains(t.keys, t.index(name)) {
			return detail("Distribution column[%s] is not key column", name)
		}
	}
	seq := sequence.FindStringSubmatch(m[8])
	if seq == nil || t.index(seq[1]) < 0 {
		return detail("The sequence column is not there")
	}
	t.sequence = t.index(seq[1])
	d.tables[t.name] = t
	return nil
}

func (d *database) addColumn(name, def string) error {
	t := d.tables[name]
	c, err := parseColumn(def)
	switch {
	case t == nil:
		return detail("Unknown table '%s'", name)
	case err != nil:
		return detail("%v", err)
	case t.index(c.name) >= 0:
		return detail("Can not add column which already exists in base table: %s", c.name)
	case !c.nullable && c.standard == nil:
		return detail("Column[%s] is not nullable and has no default", c.name)
	}
	t.changes++
	t.columns = append(t.columns, c)
	for key, r := range t.rows {
		t.rows[key] = append(r, c.standard)
	}
	return nil
}

// changeColumn drops a column, or gives it another type: for tests.
func (d *database) changeColumn(name, def string, drop bool) error {
	t := d.tables[name]
	if t == nil {
		return detail("Unknown table '%s'", name)
	}
	t.changes++
	if drop {
		i := t.index(def)
		if i < 0 {
			return detail("Column does not exist: %s", def)
		}
		t.columns = slices.Delete(t.columns, i, i+1)
		if t.sequence > i {
			t.sequence--
		}
		for key, r := range t.rows {
			t.rows[key] = slices.Delete(r, i, i+1)
		}
		return nil
	}
	c, err := parseColumn(def)
	if err != nil || t.index(c.name) < 0 {
		return detail("%v", err)
	}
	t.columns[t.index(c.name)] = c
	return nil
}

func (d *database) describe(name string) (result, error) {
	r := result{columns: []string{"Field", "Type", "Null", "Key", "Default", "Extra"}}
	yes := map[bool]string{true: "Yes", false: "No"}
	lower := map[bool]string{true: "true", false: "false"}
	if v := d.views[name]; v != nil {
		t := d.tables[v.table]
		for _, c := range v.columns {
			if i := t.index(c); i >= 0 {
				r.add(c, t.columns[i].typ, yes[t.columns[i].nullable], "false", "", "NONE")
			}
		}
		return r, nil
	}
	t := d.tables[name]
	if t == nil {
		return r, detail("Unknown table '%s'", name)
	}
	for i, c := range t.columns {
		typ := c.typ
		if typ == "string" {
			typ = "text"
		}
		r.add(c.name, typ, yes[c.nullable], lower[slices.Contains(t.keys, i)], "", "NONE")
	}
	return r, nil
}

// partitions are those that hold rows, by month; of a table without months the table itself.
func (d *database) partitions(name string) (result, error) {
	r := result{columns: []string{"PartitionId", "PartitionName", "State", "PartitionKey", "Range", "DataSize", "RowCount"}}
	t := d.tables[name]
	if t == nil {
		return r, detail("Unknown table '%s'", name)
	}
	rows, size := map[string]int{}, map[string]int{}
	for _, have := range t.rows {
		month := ""
		if t.partition >= 0 {
			month = (*have[t.partition])[:7]
		}
		rows[month]++
		for _, v := range have {
			if v != nil {
				size[month] += len(*v)
			}
		}
	}
	for i, month := range slices.Sorted(maps.Keys(rows)) {
		name, key, bounds := t.name, "", ""
		if month != "" {
			name, key = partitionName(month), t.columns[t.partition].name
			bounds = fmt.Sprintf("[types: [DATEV2]; keys: [%s-01]; ..types: [DATEV2]; keys: [a month later]; )", month)
		}
		r.add(fmt.Sprint(10001+i), name, "NORMAL", key, bounds, fmt.Sprintf("%.3f KB", float64(size[month])/1024), fmt.Sprint(rows[month]))
	}
	return r, nil
}

// read reads columns of a table or view, where columns have values.
func (d *database) read(names []string, from, where string) (result, error) {
	r := result{columns: names}
	hidden := -1
	t := d.tables[from]
	if v := d.views[from]; v != nil {
		if t = d.tables[v.table]; t != nil {
			hidden = t.index(v.where)
		}
	}
	if t == nil {
		return r, detail("Unknown table '%s'", from)
	}
	var at []int
	for _, name := range names {
		i := t.index(name)
		if i < 0 {
			return r, detail("Unknown column '%s' in 'table list'", name)
		}
		at = append(at, i)
	}
	want := map[int]string{}
	if where != "" {
		for condition := range strings.SplitSeq(where, " AND ") {
			m := equals.FindStringSubmatch(condition)
			if m == nil || t.index(m[1]) < 0 {
				return r, detail("Syntax error: %s", condition)
			}
			want[t.index(m[1])] = strings.NewReplacer("''", "'", `\\`, `\`).Replace(m[2]) + m[3]
		}
	}
rows:
	for _, have := range t.rows {
		for i, value := range want {
			if have[i] == nil || *have[i] != value {
				continue rows
			}
		}
		if hidden >= 0 && *have[hidden] != "0" {
			continue
		}
		out := make(row, len(at))
		for i, c := range at {
			out[i] = have[c]
		}
		r.rows = append(r.rows, out)
	}
	return r, nil
}
