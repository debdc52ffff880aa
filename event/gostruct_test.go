package event

import (
	"os"
	"strings"
	"testing"
)

// The struct that is printed for a table with every type is the one in everything_test.go, which compiles and registers.
func TestGoStruct(t *testing.T) {
	const file = "everything_test.go"
	got, err := allKinds().GoStruct("event")
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("prints now:\n%s\nwas (-update rewrites it):\n%s", got, want)
	}
	if _, err := StructOf[Everything](allKinds()); err != nil {
		t.Errorf("the printed struct does not register: %v", err)
	}
}

// Columns whose names differ by underscores alone get fields of different names.
func TestGoStructNames(t *testing.T) {
	table := &Table{Name: "flight_legs", Tenant: None, ID: 0, Month: None, Spread: None, Version: None, Columns: []Column{
		{Name: "a_b", Type: Type{Kind: Int32}}, {Name: "a__b", Type: Type{Kind: Int32}}, {Name: "leg_id", Type: Type{Kind: Int32}}}}
	text, err := table.GoStruct("x")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"type FlightLegs struct", "\tAB    int32", "\tAB_   int32", "\tLegID int32"} {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in\n%s", part, text)
		}
	}
}
