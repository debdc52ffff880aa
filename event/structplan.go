package event

import (
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/slotline/slotline/fault"
)

// roleNames are the roles of a tag, in the order in which they are written.
var roleNames = [...]string{"tenant", "id", "month", "spread", "version"}

// rolesOf are the roles of a column.
func (t *Table) rolesOf(col int) (roles []string) {
	for i, role := range [...]int{t.Tenant, t.ID, t.Month, t.Spread, t.Version} {
		if role == col {
			roles = append(roles, roleNames[i])
		}
	}
	return roles
}

// taggedField is a field that names a column.
type taggedField struct {
	name   string // "Total", or "Audit.Total" in an embedded struct
	typ    reflect.Type
	offset uintptr
	column string
	roles  []string
}

// planner collects everything that is wrong with a struct.
type planner struct {
	t      *Table
	fields []taggedField
	errs   []error
}

func planStruct(t *Table, typ reflect.Type) (*structPlan, error) {
	p := planner{t: t}
	if typ.Kind() != reflect.Struct {
		p.tagError("type "+typ.String()+" is not a struct", "register the struct itself, not a pointer to it")
		return nil, errors.Join(p.errs...)
	}
	p.collect(typ, "", 0)
	plan := &structPlan{table: t, fields: make([]structField, len(t.Columns))}
	taken := map[int]string{}
	for i := range p.fields {
		f := &p.fields[i]
		col := t.Column(f.column)
		if col == None {
			p.mismatch(f, "names column "+f.column+", which the table does not have", p.freeColumns(), "")
			continue
		}
		if other, ok := taken[col]; ok {
			p.mismatch(f, "names column "+f.column+", as field "+other+" does", "a column has one field", "")
			continue
		}
		taken[col] = f.name
		p.roles(f, col)
		plan.fields[col] = structField{f.offset, p.reader(f, col)}
	}
	for col := range t.Columns {
		if _, ok := taken[col]; !ok {
			p.missing(typ, col)
		}
	}
	return plan, errors.Join(p.errs...)
}

// collect finds the tagged fields of a struct and of those embedded in it.
func (p *planner) collect(typ reflect.Type, path string, offset uintptr) {
	for i := range typ.NumField() {
		field := typ.Field(i)
		tag, tagged := field.Tag.Lookup("slotline")
		name := path + field.Name
		switch {
		case tag == "-":
		case !tagged && field.Anonymous && field.Type.Kind() == reflect.Struct:
			p.collect(field.Type, name+".", offset+field.Offset)
		case !tagged && field.Anonymous && field.Type.Kind() == reflect.Pointer && hasTags(field.Type.Elem()):
			p.tagError("field "+name+" of "+typ.String()+" embeds a pointer to a struct with slotline tags",
				"embed the struct itself: a nil pointer has no columns")
		case !tagged:
		case !field.IsExported():
			p.tagError("field "+name+" of "+typ.String()+" has a slotline tag and is not exported", "export it, or drop the tag")
		default:
			parts := strings.Split(tag, ",")
			f := taggedField{name, field.Type, offset + field.Offset, parts[0], parts[1:]}
			if p.checkTag(typ, &f, tag) {
				p.fields = append(p.fields, f)
			}
		}
	}
}

func hasTags(typ reflect.Type) bool {
	if typ.Kind() != reflect.Struct {
		return false
	}
	for i := range typ.NumField() {
		if _, ok := typ.Field(i).Tag.Lookup("slotline"); ok {
			return true
		}
	}
	return false
}

func (p *planner) checkTag(typ reflect.Type, f *taggedField, tag string) bool {
	for i, role := range f.roles {
		if !slices.Contains(roleNames[:], role) || slices.Contains(f.roles[:i], role) {
			p.tagError("field "+f.name+" of "+typ.String()+": tag "+quoteBounded(tag)+" has "+quoteBounded(role)+" as a role",
				"a tag is the column's name, then each of its roles once: tenant, id, month, spread, version")
			return false
		}
	}
	if f.column == "" {
		p.tagError("field "+f.name+" of "+typ.String()+": tag "+quoteBounded(tag)+" names no column",
			"a tag is the column's name, then its roles")
		return false
	}
	return true
}

// tagError is about the struct alone.
func (p *planner) tagError(what, do string) {
	p.errs = append(p.errs, &fault.Error{Code: "SL1108", Class: fault.Usage, What: "table " + p.t.Name + ": " + what, Do: do})
}

// mismatch is a difference between a field and the table.
func (p *planner) mismatch(f *taggedField, what, why, write string) {
	p.differ("field "+f.name+" ("+f.typ.String()+"): ", what, why, write)
}

func (p *planner) differ(where, what, why, write string) {
	p.errs = append(p.errs, &fault.Error{Code: "SL1107", Class: fault.Usage,
		What: "table " + p.t.Name + ", " + where + what, Why: why, Write: write})
}

// column says what a column is and where it is written.
func (p *planner) column(col int) string {
	c := &p.t.Columns[col]
	text := "column " + c.Name + " is " + c.TypeText()
	if c.Source != "" {
		text += " in " + c.Source
	}
	return text
}

func (p *planner) missing(typ reflect.Type, col int) {
	c := &p.t.Columns[col]
	tag := strings.Join(append([]string{c.Name}, p.t.rolesOf(col)...), ",")
	p.differ("struct "+typ.String()+": ", "no field for a column; "+p.column(col),
		"an event is a full image: a column without a field would be written as nothing",
		exportedName(c.Name)+" "+goType(c)+" `slotline:\""+tag+"\"`")
}

// freeColumns names the columns that no field names yet.
func (p *planner) freeColumns() string {
	var free []string
	for i := range p.t.Columns {
		name := p.t.Columns[i].Name
		if !slices.ContainsFunc(p.fields, func(f taggedField) bool { return f.column == name }) {
			free = append(free, name)
		}
	}
	if len(free) == 0 {
		return "every column has a field already"
	}
	return "without a field are: " + strings.Join(free, ", ")
}

// roles compares a tag's roles with the table's.
func (p *planner) roles(f *taggedField, col int) {
	want := p.t.rolesOf(col)
	for _, role := range f.roles {
		if !slices.Contains(want, role) {
			p.mismatch(f, "the tag gives column "+f.column+" the role "+role+"; the table says "+p.roleText(role), "", tagText(f.column, want))
			return
		}
	}
	for _, role := range want {
		// Which field spreads a tenant is a matter of the layout; the others decide what an event is.
		if role != "spread" && !slices.Contains(f.roles, role) {
			p.mismatch(f, "column "+f.column+" is the table's "+role+", the tag does not say so", "", tagText(f.column, want))
			return
		}
	}
}

func (p *planner) roleText(role string) string {
	for i := range p.t.Columns {
		if slices.Contains(p.t.rolesOf(i), role) {
			return role + ": " + p.t.Columns[i].Name
		}
	}
	if role == "version" {
		return "version: auto"
	}
	return "that it has no " + role
}

func tagText(column string, roles []string) string {
	return "`slotline:\"" + strings.Join(append([]string{column}, roles...), ",") + "\"`"
}

// exportedName is FlightID for flight_id.
func exportedName(column string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(column, "_") {
		if part == "id" {
			b.WriteString("ID")
		} else if part != "" {
			b.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}
	}
	return b.String()
}

// goType is the plainest Go type for a column.
func goType(c *Column) string {
	name := [...]string{Bool: "bool", Int32: "int32", Int64: "int64", Uint64: "uint64", Float64: "float64", Decimal: "string",
		String: "string", Text: "string", Bytes: "[]byte", Date: "time.Time", Datetime: "time.Time", JSON: "json.RawMessage"}[c.Type.Kind]
	if c.Nullable && c.Type.Kind != Bytes && c.Type.Kind != JSON { // a nil slice is NULL
		return "*" + name
	}
	return name
}
