package event

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestValidateAccepts(t *testing.T) {
	for _, table := range []*Table{flights(), allKinds(), oneColumn("json")} {
		if err := table.Validate(); err != nil {
			t.Errorf("%s: %v", table.Name, err)
		}
	}
	// A snowflake id may be id, month and spread at once.
	epoch := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	table := &Table{Name: "s", Columns: []Column{column("t", "string(64)"), column("id", "uint64")}, Tenant: 0, ID: 1, Month: 1, Spread: 1,
		Version: None, SnowflakeEpoch: &epoch}
	if err := table.Validate(); err != nil {
		t.Error(err)
	}
}

// Each case changes the flights table in one way, and expects one problem.
func TestValidateRefuses(t *testing.T) {
	epoch := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	var all strings.Builder
	for _, c := range []struct {
		name   string
		change func(*Table)
		code   string
		key    string
	}{
		{"no name", func(t *Table) { t.Name = "" }, codeName, ""},
		{"long name", func(t *Table) { t.Name = strings.Repeat("x", 41) }, codeName, ""},
		{"upper case", func(t *Table) { t.Name = "Flights" }, codeName, ""},
		{"digit first", func(t *Table) { t.Name = "1flights" }, codeName, ""},
		{"dash", func(t *Table) { t.Name = "fli-ghts" }, codeName, ""},
		{"NUL", func(t *Table) { t.Name = "fli\x00ghts" }, codeName, ""},
		{"reserved", func(t *Table) { t.Name = "slotline_x" }, codeName, ""},
		{"underscore", func(t *Table) { t.Name = "_x" }, codeName, ""},
		{"two underscores", func(t *Table) { t.Name = "a__b" }, codeName, ""},
		{"month", func(t *Table) { t.Name = "flights_202611" }, codeName, ""},
		{"view", func(t *Table) { t.Name = "flights_now" }, codeName, ""},
		{"column name", func(t *Table) { t.Columns[4].Name = "sta tus" }, codeName, "columns.sta tus"},
		{"column quote", func(t *Table) { t.Columns[4].Name = "s\"`" }, codeName, "columns.s\"`"},
		{"column _ver", func(t *Table) { t.Columns[4].Name = "_ver" }, codeName, "columns._ver"},
		{"column reserved", func(t *Table) { t.Columns[4].Name = "SLOTLINE_x" }, codeName, "columns.SLOTLINE_x"},
		{"column long", func(t *Table) { t.Columns[4].Name = strings.Repeat("c", 65) }, codeName, "columns." + strings.Repeat("c", 65)},
		{"column twice", func(t *Table) { t.Columns[4].Name = "FARE" }, codeName, "columns.fare"},
		{"no type", func(t *Table) { t.Columns[4].Type = Type{} }, codeShape, "columns.status"},
		{"bad type", func(t *Table) { t.Columns[4].Type.Length = 0 }, codeShape, "columns.status"},
		{"too many columns", func(t *Table) {
			for i := range ColumnsMax {
				t.Columns = append(t.Columns, column(fmt.Sprintf("c%d", i), "bool"))
			}
		}, codeShape, "columns"},
		{"no id", func(t *Table) { t.ID = None }, codeRole, "id"},
		{"id outside", func(t *Table) { t.ID = 8 }, codeRole, "id"},
		{"id a bool", func(t *Table) { t.ID = 5 }, codeRole, "id"},
		{"id nullable", func(t *Table) { t.ID = 6 }, codeRole, "id"},
		{"id is tenant", func(t *Table) { t.ID = 0 }, codeRole, "id"},
		{"id too long", func(t *Table) { t.Columns[1].Type = Type{Kind: String, Length: 256}; t.Spread = None }, codeRole, "id"},
		{"tenant too long", func(t *Table) { t.Columns[0].Type.Length = 65 }, codeRole, "tenant"},
		{"tenant a decimal", func(t *Table) { t.Columns[0].Type = Type{Kind: Decimal, Precision: 5} }, codeRole, "tenant"},
		{"month an integer", func(t *Table) { t.Month = 1 }, codeRole, "month"},
		{"month nullable", func(t *Table) { t.Columns[2].Nullable = true }, codeRole, "month"},
		{"snowflake a time", func(t *Table) { t.SnowflakeEpoch = &epoch }, codeRole, "month"},
		{"snowflake nowhere", func(t *Table) { t.SnowflakeEpoch = &epoch; t.Month = None }, codeRole, "month"},
		{"spread is tenant", func(t *Table) { t.Spread = 0 }, codeRole, "spread"},
		{"version is id", func(t *Table) { t.Version = 1; t.Spread = None }, codeRole, "version"},
		{"version a string", func(t *Table) { t.Version = 3 }, codeRole, "version"},
		{"version nullable", func(t *Table) { t.Version = 6 }, codeRole, "version"},
		{"broadcast with spread", func(t *Table) { t.Tenant, t.Month = None, None }, codeRole, "spread"},
		{"broadcast with month", func(t *Table) { t.Tenant, t.Spread = None, None }, codeRole, "month"},
		{"index without tenant", func(t *Table) { t.Indexes[0] = []string{"origin"} }, codeIndex, "indexes.0"},
		{"index of nothing", func(t *Table) { t.Indexes = append(t.Indexes, nil) }, codeIndex, "indexes.1"},
		{"index of no column", func(t *Table) { t.Indexes[0][1] = "nowhere" }, codeIndex, "indexes.0"},
		{"index column twice", func(t *Table) { t.Indexes[0][1] = "carrier" }, codeIndex, "indexes.0"},
		{"index twice", func(t *Table) { t.Indexes = append(t.Indexes, t.Indexes[0]) }, codeIndex, "indexes.1"},
		{"index of text", func(t *Table) { t.Columns[3].Type = Type{Kind: Text} }, codeIndex, "indexes.0"},
		{"many indexes", func(t *Table) {
			t.Indexes = nil
			for i := range IndexesMax + 1 {
				t.Columns = append(t.Columns, column(fmt.Sprintf("c%d", i), "bool"))
				t.Indexes = append(t.Indexes, []string{"carrier", fmt.Sprintf("c%d", i)})
			}
		}, codeShape, "indexes"},
	} {
		table := flights()
		c.change(table)
		err := table.Validate()
		var problems Problems
		if !errors.As(err, &problems) {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if len(problems) != 1 || problems[0].Code != c.code || problems[0].Key != c.key || problems[0].Table != table.Name {
			t.Errorf("%s: %d problems, wanted one of %s at %q:\n%v", c.name, len(problems), c.code, c.key, err)
		}
		fmt.Fprintf(&all, "# %s\n%v\n", c.name, err)
	}
	golden(t, "problems.txt", []byte(all.String()))
}

// All of a table's problems come at once, and no index or role that points nowhere ends the program.
func TestValidateFindsEverything(t *testing.T) {
	table := &Table{Name: "X", Tenant: 5, ID: -7, Month: 99, Spread: 99, Version: 99, Indexes: [][]string{{"a"}}}
	var problems Problems
	if err := table.Validate(); !errors.As(err, &problems) || len(problems) < 7 {
		t.Errorf("%v", err)
	}
}
