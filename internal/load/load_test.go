package load

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/partitioner"
)

const file = `line: load
kafka: { brokers: [127.0.0.1:9092] }
outbox: { dsn: "mysql://app@127.0.0.1/load" }
shards:
  s1: { dsn: "mysql://s1@127.0.0.1/load_s1", slots: 0-1023 }
tables:
  everything:
    tenant: owner
    id: item
    month: at
    spread: part
    version: rev
    columns: { owner: string(64), item: int64, at: datetime, part: string(20), rev: int32, b: bool, i: int32, u: uint64, f: float64,
      d: "decimal(65,30)", one: "decimal(1,1)", whole: "decimal(20,0)", s: string(1), t: text, y: bytes(3), day: date, j: json, sometimes: "string(9)?" }
  scans:
    tenant: owner
    id: scan
    spread: scan
    month: { snowflake: scan, epoch: 2020-01-01T00:00:00Z }
    columns: { owner: int32, scan: uint64, n: int32 }
  medium:
    tenant: owner
    id: name
    columns: { owner: string(20), name: string(9) }
  days:
    tenant: owner
    id: name
    month: day
    columns: { owner: uint64, name: string(4), day: date }
  short:
    tenant: owner
    id: n
    columns: { owner: string(2), n: int32 }
  texts:
    tenant: owner
    id: name
    columns: { owner: int64, name: string(255) }
  tiny:
    tenant: owner
    id: n
    columns: { owner: string(1), n: int32 }
  narrow:
    tenant: owner
    id: name
    columns: { owner: string(8), name: string(3) }
  codes:
    id: code
    columns: { code: string(3) }
`

func tableOf(t *testing.T, name string) *event.Table {
	t.Helper()
	cfg, err := config.Parse("slotline.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	return cfg.Table(name)
}

// What a load makes is a row that every store holds, by the names that its record says; no two entities are one, those of two runs
// neither, and a delete names the entity that the upsert named.
func TestEventsOfEveryTable(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	begun := time.Now()
	for _, name := range []string{"everything", "scans", "days", "short", "texts", "medium"} {
		table := tableOf(t, name)
		seen := map[string]bool{}
		for run := range 2 {
			now := begun.Add(time.Duration(run) * time.Minute) // a snowflake has no room for the run, but for the time
			l, err := New(table, 300, begun, uint64(run))      // in the same second
			if err != nil {
				t.Fatal(err)
			}
			d := l.Drawer(seed, uint64(run))
			nulls := 0
			for n := range 2000 {
				number := uint32(n)
				if n >= 1000 {
					number = EntitiesMax - 1 - uint32(n-1000)
				}
				e := d.Entity(number, now.Add(time.Duration(n)*time.Millisecond))
				up, err := d.Upsert(&e, now)
				if err != nil {
					t.Fatalf("seed %d: %s %d: %v", seed, name, n, err)
				}
				var row event.Row
				if err := table.DecodeRow(up.Body, event.Upsert, &row); err != nil {
					t.Fatalf("seed %d: %s %d: %s: %v", seed, name, n, up.Body, err)
				}
				for _, limits := range []*event.Limits{&event.LimitsMySQL, &event.LimitsClickHouse, &event.LimitsDoris} {
					if err := limits.Check(table, &row); err != nil {
						t.Errorf("seed %d: %s: %v", seed, up.Body, err)
					}
				}
				if up.Tenant != string(row.Tenant) || up.EntityID != string(row.ID) || up.Spread != string(row.Spread) || up.Month != row.Month {
					t.Fatalf("the event says %q %q %q %s, its row %q %q %q %s", up.Tenant, up.EntityID, up.Spread, up.Month, row.Tenant, row.ID, row.Spread, row.Month)
				}
				if table.Month != event.None && up.Month != partitioner.MonthOf(now.Add(time.Duration(n)*time.Millisecond)) {
					t.Errorf("month %s", up.Month)
				}
				if i := table.Column("sometimes"); i != event.None && row.Values[i].Null {
					nulls++
				}
				again, err := d.Upsert(&e, now)
				if err != nil {
					t.Fatal(err)
				}
				gone, err := d.Delete(&e, now)
				if err != nil {
					t.Fatal(err)
				}
				if err := table.DecodeRow(gone.Body, event.Delete, &row); err != nil {
					t.Fatalf("%s: %v", gone.Body, err)
				}
				if gone.Tenant != up.Tenant || gone.EntityID != up.EntityID || gone.Spread != up.Spread || gone.Month != up.Month || row.Month != up.Month {
					t.Fatalf("deleted %q %q %q %s, was %q %q %q %s", gone.Tenant, gone.EntityID, gone.Spread, gone.Month, up.Tenant, up.EntityID, up.Spread, up.Month)
				}
				if table.Version != event.None && (up.Version != begun.Unix()+1 || again.Version != up.Version+1 || gone.Version != up.Version+2) {
					t.Fatalf("versions %d, %d, %d", up.Version, again.Version, gone.Version)
				}
				key := up.Tenant + "\x00" + up.EntityID
				if run == 1 && table.Columns[table.ID].Type.Kind == event.String && table.Columns[table.ID].Type.Length < 6 {
					key += "\x00again" // no room for the run
				}
				if seen[key] {
					t.Fatalf("seed %d: %s: entity %q is there twice", seed, name, key)
				}
				seen[key] = true
			}
			if name == "everything" && (nulls == 0 || nulls == 2000) {
				t.Errorf("%d of 2000 values are NULL", nulls)
			}
		}
	}
}

// Tenants are as unequal as the law says, and as many as their column has names for.
func TestTenants(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	for name, want := range map[string]struct {
		tenants     int
		first, last string
	}{
		"everything": {1000, "~0", "~G7"},
		"short":      {62, "~0", "~z"},
		"scans":      {1000, fmt.Sprint(math.MaxInt32), fmt.Sprint(math.MaxInt32 - 999)},
		"days":       {1000, fmt.Sprint(int64(math.MaxInt64)), fmt.Sprint(int64(math.MaxInt64 - 999))},
	} {
		l, err := New(tableOf(t, name), 1000, time.Now(), 7)
		if err != nil {
			t.Fatal(err)
		}
		if l.Tenants() != want.tenants || l.TenantText(0) != want.first || l.TenantText(want.tenants-1) != want.last {
			t.Errorf("%s: %d tenants, %s to %s", name, l.Tenants(), l.TenantText(0), l.TenantText(l.Tenants()-1))
		}
		d, largest := l.Drawer(seed, 1), 0
		const draws = 20_000
		for range draws {
			e := d.Entity(0, time.Now())
			if int(e.tenant) >= want.tenants {
				t.Fatalf("tenant %d", e.tenant)
			}
			if e.tenant == 0 {
				largest++
			}
		}
		// Seven standard deviations: a seed that fails is one in 10^11.
		share := l.LargestShare()
		if off := math.Abs(float64(largest)/draws - share); off > 7*math.Sqrt(share*(1-share)/draws) || share < 0.1 || share > 0.4 {
			t.Errorf("seed %d: %s: the largest tenant has %d of %d events, said is %.3f", seed, name, largest, draws, share)
		}
	}
}

// A table that a load cannot be of is refused by the name of the column.
func TestTablesThatAreRefused(t *testing.T) {
	for name, want := range map[string]string{"tiny": "column owner is string(1)", "narrow": "column name is string(3)", "codes": "it has no tenant"} {
		_, err := New(tableOf(t, name), 1000, time.Now(), 7)
		if !fault.Is(err, fault.Usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
