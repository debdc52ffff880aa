package rowsum

import (
	"fmt"
	"testing"

	"github.com/slotline/slotline/event"
)

// JSON counts by value: what docs/types.md calls equal has one form, and nothing else has it.
func TestJSONByValue(t *testing.T) {
	equal := [][]string{
		{`{"a":1,"bb":[1.10,true]}`, ` { "bb" : [1.1,true], "a":1 } `, `{"\u0061":1,"bb":[11e-1,true]}`},
		{`18446744073709551615`}, {`18446744073709551616`, `18446744073709551616.0`, `1.8446744073709552e19`},
		{`-9223372036854775808`}, {`0.0`, `-0.0`, `0e5`}, {`"ä"`, `"\u00e4"`}, {`"1"`}, {`1`}, {`[]`}, {`{}`}, {`[1,2]`}, {`[2,1]`}, {`[[1],2]`}, {`null`}, {`""`},
	}
	seen := map[string]int{}
	for i, forms := range equal {
		for _, text := range forms {
			form := string(appendJSON(nil, []byte(text)))
			if other, ok := seen[form]; ok && other != i {
				t.Errorf("%s has the form of %s", text, equal[other][0])
			}
			seen[form] = i
		}
	}
	if len(seen) != len(equal) {
		t.Errorf("%d forms of %d values: %v", len(seen), len(equal), seen)
	}
}

// The text of a row is fixed: stores are compared by processes of other releases.
func TestText(t *testing.T) {
	types := []string{"string(5)", "int64", "bool", "float64?", "decimal(5,2)", "date", "datetime", "bytes(4)?", "text"}
	table := &event.Table{Name: "things", Tenant: 0, ID: 1, Month: event.None, Spread: event.None}
	for i, text := range types {
		typ, nullable, err := event.ParseType(text)
		if err != nil {
			t.Fatal(err)
		}
		table.Columns = append(table.Columns, event.Column{Name: fmt.Sprintf("c%d", i), Type: typ, Nullable: nullable})
	}
	row := &event.Row{Values: []event.Value{{Bytes: []byte("ä,")}, {Int: -7}, {Int: 1}, {Float: 0.1}, {Bytes: []byte("-0.05")}, {Int: 15706}, {Int: 1}, {Null: true}, {Bytes: []byte("N")}}}
	if got, want := string(appendText(nil, table, row, 14)), "14,0,3:ä,,-7,1,9A9999999999B93F,-0.05,2013-01-01,1970-01-01 00:00:00.000001,N,1:N"; got != want {
		t.Errorf("the text is\n%s, want\n%s", got, want)
	}
	if got, want := string(appendText(nil, table, row, 15)), "15,1,3:ä,,-7"; got != want {
		t.Errorf("deleted, the text is\n%s, want\n%s", got, want)
	}
	if sum := Of(table, row, 14); sum != hash(appendText(nil, table, row, 14)) {
		t.Errorf("sum %d", sum)
	}
}
