package lease

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files")

// The statements as a DBA reviews them.
func TestSQLGolden(t *testing.T) {
	row := Row{Table: "slotline_lane", Where: "lane = ?", Args: []any{3}}
	got := strings.Join([]string{"-- columns", Columns, "-- read", row.readSQL(), "-- take over", row.takeSQL(),
		"-- renew", row.renewSQL(), "-- release", row.releaseSQL(), "-- guard of other statements", Guard, ""}, "\n")
	const golden = "testdata/lease.sql"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("statements differ from %s (go test ./lease -update rewrites it):\n%s", golden, got)
	}
}

func TestRowString(t *testing.T) {
	row := Row{Table: "slotline_intent", Where: "sink = ? AND grp = ?", Args: []any{[]byte("clickhouse"), 2}}
	if got := row.String(); got != "slotline_intent (sink = clickhouse AND grp = 2)" {
		t.Error(got)
	}
}
