package event

import (
	"testing"

	"github.com/slotline/slotline/fault"
)

func TestParseType(t *testing.T) {
	for _, text := range []string{"bool", "int32", "int64", "uint64", "float64", "decimal(12,2)", "decimal(65,30)", "decimal(1,0)",
		"decimal(2,2)", "string(1)", "string(16383)", "text", "bytes(1)", "bytes(65532)", "date", "datetime", "json"} {
		for _, end := range []string{"", "?"} {
			typ, nullable, err := ParseType(text + end)
			if err != nil {
				t.Errorf("%s%s: %v", text, end, err)
			}
			if typ.String() != text || nullable != (end == "?") {
				t.Errorf("%s%s reads as %s, nullable %v", text, end, typ, nullable)
			}
		}
	}
	if typ, _, err := ParseType(" decimal(12, 2) "); err != nil || typ.String() != "decimal(12,2)" {
		t.Errorf("spaces: %s, %v", typ, err)
	}
}

func TestParseTypeRefuses(t *testing.T) {
	for text, write := range map[string]string{
		"varchar(10)": "string(10)", "varchar(10)?": "string(10)?", "VARCHAR(10)": "string(10)", "int": "int64", "bigint": "int64",
		"boolean?": "bool?", "timestamp": "datetime", "double": "float64", "numeric(10,2)": "decimal(10,2)", "numeric": "decimal(12,2)", "string": "string(100)",
		"string(0)": "string(1)", "string(16384)": "text", "bytes(65533)": "bytes(65532)", "decimal(66,2)": "decimal(65,2)",
		"decimal(10,11)": "decimal(10,10)", "decimal(60,31)": "decimal(60,30)", "decimal(0,0)": "decimal(1,0)", "decimal(12)": "decimal(12,2)",
		"text(5)": "text", "int64()": "int64", "string(+5)": "string(100)", "string(05)": "string(100)", "string(5": "string(100)",
		"string(5)x": "string(100)", "varbinary(x)": "bytes(100)", "decimal(99999999999,2)": "decimal(12,2)",
		"":  "one of bool int32 int64 uint64 float64 decimal(p,s) string(n) text bytes(n) date datetime json; a trailing ? allows NULL",
		"?": "one of bool int32 int64 uint64 float64 decimal(p,s) string(n) text bytes(n) date datetime json; a trailing ? allows NULL",
	} {
		_, _, err := ParseType(text)
		e, ok := err.(*fault.Error)
		if !ok {
			t.Errorf("%q was read", text)
			continue
		}
		if e.Write != write || e.Class != fault.Usage || e.Code != "SL1102" {
			t.Errorf("%q: write %q, wanted %q; %+v", text, e.Write, write, e)
		}
	}
}

func FuzzParseType(f *testing.F) {
	for _, seed := range []string{"bool", "decimal(12,2)?", "string(10)", "varchar(10)", "bytes(", "decimal(,)"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		typ, nullable, err := ParseType(text)
		if err != nil {
			return
		}
		if what, _ := typ.bounds(); what != "" {
			t.Fatalf("%q was read, and %s", text, what)
		}
		again, nullable2, err := ParseType(Column{Type: typ, Nullable: nullable}.TypeText())
		if err != nil || again != typ || nullable2 != nullable {
			t.Fatalf("%q reads as %s, which reads as %s: %v", text, typ, again, err)
		}
	})
}
