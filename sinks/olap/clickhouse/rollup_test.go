package clickhouse

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/sinks/olap/rollup"
)

const rollupFile = `line: flights
kafka: { brokers: [kafka1:9092] }
outbox: { dsn: "mysql://app:${OUTBOX_PASSWORD}@db0/flights" }
shards: { s1: { dsn: "mysql://slotline:${S1_PASSWORD}@db1/flights_s1", slots: 0-1023 } }
sinks: { clickhouse: { dsn: "clickhouse://slotline:${CH_PASSWORD}@ch1:9000/flights" } }
tables:
  flights: { tenant: carrier, id: flight_id, month: sched_dep,
             columns: { carrier: string(2), flight_id: uint64, sched_dep: datetime, origin: "string(3)?", late: bool, paid: "decimal(9,2)?", delay: "int32?" } }
  posts: { tenant: owner, id: post, month: { snowflake: post, epoch: 2020-01-01T00:00:00Z }, columns: { owner: int64, post: uint64, size: float64 } }
  visits: { tenant: owner, id: visit, month: day_of, columns: { owner: int64, visit: uint64, day_of: date } }
rollups:
  flights_by_day: { table: flights, by: [carrier, origin],
                    measures: { flights: count, late: sum(late), paid: sum(paid), delay: avg(delay), last: max(sched_dep), planes: distinct(delay) } }
  posts_by_month: { table: posts, bucket: month, measures: { posts: count, size: sum(size) } }
  visits_by_day: { table: visits, measures: { visits: count } }
`

// What a DBA reads of rollups.
func TestRollupStatements(t *testing.T) {
	cfg, err := config.Parse("slotline.yaml", []byte(rollupFile))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	day := int32(time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC).Unix() / 86400)
	for _, r := range cfg.Rollups {
		tenant := map[bool]string{true: "U'A", false: "-7"}[r.Name == "flights_by_day"]
		b.WriteString(strings.Join(rollupDDL(r, "flights", cluster{}), "") + ";\n\n" + rollupViewDDL(r, cluster{}) + ";\n\n")
		for _, month := range rollup.Slices(r, []rollup.Pair{{Tenant: tenant, Day: day}, {Tenant: tenant, Day: day - 1}, {Tenant: tenant, Day: day + 1}}, slicesMax) {
			b.WriteString(computeSQL(r, month, 1700000000000001) + ";\n\n")
		}
	}
	const golden = "testdata/rollups.sql"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || string(want) != b.String() {
		t.Errorf("the statements are not those of %s (%v); -update rewrites it:\n%s", golden, err, b.String())
	}
}
