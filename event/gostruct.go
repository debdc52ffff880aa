package event

import (
	"fmt"
	"go/format"
	"slices"
	"strings"
)

// GoStruct is a Go file with a struct of the table for producer.Register: a field for each column in the plainest type
// that holds it, with its tag. The struct is named as the table, FlightLegs for flight_legs.
func (t *Table) GoStruct(pkg string) (string, error) {
	var imports []string
	var fields strings.Builder
	taken := map[string]bool{}
	for col := range t.Columns {
		c := &t.Columns[col]
		name := exportedName(c.Name)
		for taken[name] { // a_b and a__b
			name += "_"
		}
		taken[name] = true
		typ := goType(c)
		for _, path := range []string{"time", "encoding/json"} {
			if strings.Contains(typ, path[strings.LastIndexByte(path, '/')+1:]+".") && !slices.Contains(imports, path) {
				imports = append(imports, path)
			}
		}
		fmt.Fprintf(&fields, "\t%s %s `slotline:\"%s\"` // %s\n", name, typ, strings.Join(append([]string{c.Name}, t.rolesOf(col)...), ","), c.TypeText())
	}
	slices.Sort(imports)
	var b strings.Builder
	fmt.Fprintf(&b, "package %s\n\n", pkg)
	if len(imports) > 0 {
		fmt.Fprintf(&b, "import (\n\t\"%s\"\n)\n\n", strings.Join(imports, "\"\n\t\""))
	}
	name := exportedName(t.Name)
	fmt.Fprintf(&b, "// %s is a row of table %s, whole: each event carries every column.\ntype %s struct {\n%s}\n", name, t.Name, name, fields.String())
	text, err := format.Source([]byte(b.String()))
	return string(text), err
}
