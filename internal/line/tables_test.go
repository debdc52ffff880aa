package line

import (
	"bytes"
	"testing"

	"github.com/slotline/slotline/partitioner"
)

func TestTablesText(t *testing.T) {
	const now = partitioner.Month(202611)
	months := StoreTable{Store: "mysql/s1", Table: "flights", MissingAhead: []string{"flights_202612", "flights_202701", "flights_202702"}}
	months.add(202401, 1_200_000, 340<<20, now)
	months.add(202611, 980, 16<<10, now)
	plain := StoreTable{Store: "mysql/s1", Table: "airports"}
	plain.add(partitioner.NoMonth, 12, 1600, now)
	all := &Tables{Line: "flights", Tables: []StoreTable{months, plain, {Store: "clickhouse", Table: "flights"}},
		NotAsked: []NotAskedReason{{"mysql/s2", "no answer within 5s"}}}
	var b bytes.Buffer
	if err := all.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	b.WriteByte('\n')
	if err := all.WriteMonths(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "tables.txt", b.Bytes())
}

func TestMonthsBetween(t *testing.T) {
	for _, c := range []struct {
		from, to partitioner.Month
		want     int
	}{{202611, 202611, 0}, {202512, 202601, 1}, {202401, 202611, 34}, {202701, 202611, -2}} {
		if got := monthsBetween(c.from, c.to); got != c.want {
			t.Errorf("from %s to %s: %d, want %d", c.from, c.to, got, c.want)
		}
	}
}
