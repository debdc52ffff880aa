package event

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a table.
const (
	// TableNameBytesMax leaves room for what is put behind a name, "_202611__old_rb7f3a", within the 64 bytes of a
	// MySQL identifier.
	TableNameBytesMax  = 40
	ColumnNameBytesMax = 64    // MySQL's identifiers
	ColumnsMax         = 1_000 // InnoDB has 1,017; two are ours
	IndexesMax         = 16    // each costs every insert; InnoDB has 64
	IndexColumnsMax    = 15    // InnoDB has 16, and appends the id of the primary key
)

// Codes of what can be wrong with a table's declaration.
const (
	codeName  = "SL1101" // a name that cannot be used
	codeRole  = "SL1103" // tenant, id, month, spread or version names no column, or one that cannot be it
	codeIndex = "SL1104" // an index that cannot be made
	codeShape = "SL1105" // no columns, or too many of something
)

// Validate finds everything that is wrong with a table, so that a person mends the file once. The error is Problems.
func (t *Table) Validate() error {
	c := check{t: t}
	c.names()
	c.types()
	c.roles()
	c.indexes()
	if len(c.problems) > 0 {
		return c.problems
	}
	return nil
}

type check struct {
	t        *Table
	problems Problems
}

func (c *check) add(code, key, what, why, write string) {
	c.problems = append(c.problems, Problem{Code: code, Table: c.t.Name, Key: key, What: what, Why: why, Write: write})
}

func (c *check) names() {
	t := c.t
	if what := tableName(t.Name); what != "" {
		c.add(codeName, "", "the table's name "+what, "", "")
	}
	seen := map[string]string{}
	for i := range t.Columns {
		name := t.Columns[i].Name
		key := "columns." + name
		if what := columnName(name); what != "" {
			c.add(codeName, key, "column "+quoteBounded(name)+" "+what, "", "")
		}
		// MySQL compares column names without case.
		folded := strings.ToLower(name)
		if other, ok := seen[folded]; ok {
			c.add(codeName, key, "columns "+other+" and "+name+" are one name to MySQL", "", "")
		}
		seen[folded] = name
	}
	if len(t.Columns) == 0 || len(t.Columns) > ColumnsMax {
		c.add(codeShape, "columns", "a table has 1 to "+strconv.Itoa(ColumnsMax)+" columns, this one "+strconv.Itoa(len(t.Columns)), "", "")
	}
}

// tableName says what is wrong with a table's name. Lower case only: servers differ in whether case counts. The
// endings are those of month tables, shadow tables and views.
func tableName(name string) string {
	switch {
	case len(name) == 0 || len(name) > TableNameBytesMax:
		return "has " + strconv.Itoa(len(name)) + " bytes, 1 to " + strconv.Itoa(TableNameBytesMax) + " are allowed"
	case strings.HasPrefix(name, "slotline_") || name[0] == '_':
		return "begins with slotline_ or _, which are reserved"
	case strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" || !lower(name[0]):
		return "may hold lower-case letters, digits and _, and begins with a letter"
	case strings.Contains(name, "__"):
		return "holds __, which is reserved for the tables of a rebuild"
	case strings.HasSuffix(name, "_now"):
		return "ends in _now, which is reserved for views"
	case monthEnding(name):
		return "ends like a month table"
	}
	return ""
}

func lower(c byte) bool { return 'a' <= c && c <= 'z' }

func monthEnding(name string) bool {
	const ending = len("_202611")
	if len(name) < ending || name[len(name)-ending] != '_' {
		return false
	}
	return digits([]byte(name[len(name)-ending+1:])) >= 0
}

func columnName(name string) string {
	switch {
	case len(name) == 0 || len(name) > ColumnNameBytesMax:
		return "has " + strconv.Itoa(len(name)) + " bytes, 1 to " + strconv.Itoa(ColumnNameBytesMax) + " are allowed"
	case strings.HasPrefix(strings.ToLower(name), "slotline_") || name[0] == '_':
		return "begins with slotline_ or _, which are reserved"
	case strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789_") != "" || !lower(name[0]|0x20):
		return "may hold letters, digits and _, and begins with a letter"
	}
	return ""
}

func (c *check) types() {
	for i := range c.t.Columns {
		col := &c.t.Columns[i]
		if col.Type.Kind < Bool || int(col.Type.Kind) >= len(kinds) {
			c.add(codeShape, "columns."+col.Name, "column "+col.Name+" has no type", "", "")
		} else if what, write := col.Type.bounds(); what != "" {
			c.add(codeShape, "columns."+col.Name, "column "+col.Name+", "+col.Type.String()+": "+what, "", write+optional(col.Nullable))
		}
	}
}

// role is one of the five parts that a column can play.
type role struct {
	name    string
	column  int
	needed  bool
	kinds   []Kind
	length  int // bound of a string's code points; 0: none
	mention string
}

func (t *Table) roleList() []role {
	keys := []Kind{String, Int32, Int64, Uint64}
	month := role{"month", t.Month, false, []Kind{Date, Datetime}, 0, "date or datetime; for ids that hold their time: { snowflake: column, epoch: … }"}
	if t.SnowflakeEpoch != nil {
		month = role{"month", t.Month, true, []Kind{Int64, Uint64}, 0, "int64 or uint64 for a snowflake id"}
	}
	return []role{
		{"tenant", t.Tenant, false, keys, TenantBytesMax, "string(1) to string(64) or an integer"},
		{"id", t.ID, true, keys, EntityIDBytesMax, "string(1) to string(255) or an integer"},
		month,
		{"spread", t.Spread, false, keys, SpreadBytesMax, "string(1) to string(255) or an integer"},
		{"version", t.Version, false, []Kind{Int32, Int64, Uint64}, 0, "int64 or another integer; or write version: auto"},
	}
}

func (c *check) roles() {
	t := c.t
	for _, r := range t.roleList() {
		switch {
		case r.column == None && r.needed:
			c.add(codeRole, r.name, r.name+" names no column", "it and the tenant name an entity", "")
		case r.column == None:
		case r.column < 0 || r.column >= len(t.Columns):
			c.add(codeRole, r.name, fmt.Sprintf("%s is column %d of %d", r.name, r.column, len(t.Columns)), "", "")
		default:
			c.role(r, &t.Columns[r.column])
		}
	}
	if t.Tenant == None && t.Spread != None {
		c.add(codeRole, "spread", "a table without a tenant is in every shard: there is nothing to spread", "", "")
	}
	if t.Tenant == None && t.Month != None {
		c.add(codeRole, "month", "a table without a tenant is in every shard whole: it has no months", "", "")
	}
	c.distinct("id", t.ID, "tenant", t.Tenant, "an entity is named by both")
	c.distinct("spread", t.Spread, "tenant", t.Tenant, "all rows of a tenant would land in one of its slots")
	for _, other := range t.roleList()[:4] {
		c.distinct("version", t.Version, other.name, other.column, "a version changes with every event, "+other.name+" never does")
	}
}

func (c *check) role(r role, col *Column) {
	if !slices.Contains(r.kinds, col.Type.Kind) || r.length > 0 && col.Type.Kind == String && col.Type.Length > r.length {
		c.add(codeRole, r.name, r.name+" cannot be column "+col.Name+" ("+col.TypeText()+")", "it is "+r.mention, "")
	}
	if col.Nullable {
		c.add(codeRole, r.name, r.name+" cannot be column "+col.Name+", which allows NULL", "", col.Name+": "+col.Type.String())
	}
}

func (c *check) distinct(role string, column int, other string, otherColumn int, why string) {
	if column != None && column == otherColumn && column >= 0 && column < len(c.t.Columns) {
		c.add(codeRole, role, role+" and "+other+" are one column, "+c.t.Columns[column].Name, why, "")
	}
}

func (c *check) indexes() {
	t := c.t
	if len(t.Indexes) > IndexesMax {
		c.add(codeShape, "indexes", "a table has at most "+strconv.Itoa(IndexesMax)+" indexes, this one "+strconv.Itoa(len(t.Indexes)), "", "")
	}
	for i, index := range t.Indexes {
		key := "indexes." + strconv.Itoa(i)
		if len(index) == 0 || len(index) > IndexColumnsMax {
			c.add(codeIndex, key, fmt.Sprintf("index %v has %d columns, 1 to %d are allowed", index, len(index), IndexColumnsMax), "", "")
			continue
		}
		for j, name := range index {
			c.indexColumn(key, index, j, name)
		}
		if t.Tenant >= 0 && t.Tenant < len(t.Columns) && index[0] != t.Columns[t.Tenant].Name {
			write := "[" + strings.Join(append([]string{t.Columns[t.Tenant].Name}, index...), ", ") + "]"
			c.add(codeIndex, key, fmt.Sprintf("index %v does not begin with the tenant", index),
				"every question to a shard names its tenant; an index without it would be read across all of them", write)
		}
		for j := range i {
			if slices.Equal(index, t.Indexes[j]) {
				c.add(codeIndex, key, fmt.Sprintf("index %v is there twice", index), "", "")
			}
		}
	}
}

func (c *check) indexColumn(key string, index []string, at int, name string) {
	col := c.t.Column(name)
	switch {
	case col == None:
		c.add(codeIndex, key, fmt.Sprintf("index %v names %s, which is not a column", index, name), "", "")
	case slices.Contains(index[:at], name):
		c.add(codeIndex, key, fmt.Sprintf("index %v names %s twice", index, name), "", "")
	default:
		if k := c.t.Columns[col].Type.Kind; k == Text || k == JSON {
			c.add(codeIndex, key, fmt.Sprintf("index %v names %s, a %s: MySQL cannot index it whole", index, name, k), "", "")
		}
	}
}

// Column is the index of the column of that name, or None.
func (t *Table) Column(name string) int {
	for i := range t.Columns {
		if t.Columns[i].Name == name {
			return i
		}
	}
	return None
}
