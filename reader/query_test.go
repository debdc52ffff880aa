package reader

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/partitioner"
)

const file = `line: read
kafka: { brokers: [127.0.0.1:9092] }
outbox: { dsn: "mysql://app@127.0.0.1:1/read" }
shards:
  s1: { dsn: "mysql://s1@127.0.0.1:1/read_s1", slots: 0-511 }
  s2: { dsn: "mysql://s2@127.0.0.1:1/read_s2", slots: 512-1023 }
tables:
  flights:
    tenant: carrier
    id: flight_id
    month: sched_dep
    spread: flight_id
    columns: { carrier: string(2), flight_id: uint64, sched_dep: datetime, status: string(10) }
  days:
    tenant: owner
    id: name
    month: day
    columns: { owner: int64, name: string(20), day: date }
  scans:
    tenant: owner
    id: scan
    month: { snowflake: scan, epoch: 2020-01-01T00:00:00Z }
    columns: { owner: string(20), scan: int64, n: int32 }
  notes:
    tenant: owner
    id: note
    columns: { owner: string(20), note: int32, text: text }
  airports:
    id: code
    columns: { code: string(3), name: string(80) }
`

func configOf(t *testing.T) *config.Config {
	t.Helper()
	cfg, err := config.Parse("slotline.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// The statement names the tenant, whatever is asked; a cursor and times are bounds of its key and its month.
func TestSQL(t *testing.T) {
	cfg := configOf(t)
	from := time.Date(2013, 2, 1, 10, 0, 0, 1500, time.UTC)
	for _, c := range []struct {
		q     Query
		table string
		after cursor
		limit int
		want  string
		args  []any
	}{
		{Query{Table: "flights", Tenant: "UA"}, "flights_201302", cursor{}, math.MaxInt,
			"SELECT F.`flight_id`, `_ver`, F.`carrier`, F.`flight_id`, F.`sched_dep`, F.`status` FROM F WHERE `_deleted` = 0 AND F.`carrier` = ? ORDER BY F.`flight_id`", []any{"UA"}},
		{Query{Table: "flights", Tenant: "UA", From: from, To: from.Add(time.Hour), Spread: "7", Columns: "status", Where: "status = ? OR status IS NULL", Args: []any{"late"}, Descending: true},
			"flights_201302", cursor{true, 201302, "18446744073709551615"}, 10,
			"SELECT F.`flight_id`, `_ver`, status FROM F WHERE `_deleted` = 0 AND F.`carrier` = ? AND F.`flight_id` = ? AND F.`sched_dep` >= ? AND F.`sched_dep` < ? " +
				"AND F.`flight_id` < ? AND (status = ? OR status IS NULL) ORDER BY F.`flight_id` DESC LIMIT 10",
			[]any{"UA", uint64(7), "2013-02-01 10:00:00.000002", "2013-02-01 11:00:00.000002", uint64(math.MaxUint64), "late"}},
		{Query{Table: "days", Tenant: "-7", ID: "x", From: from}, "days_201302", cursor{true, 201302, "o'x"}, 1,
			"SELECT F.`name`, `_ver`, F.`owner`, F.`name`, F.`day` FROM F WHERE `_deleted` = 0 AND F.`owner` = ? AND F.`name` = ? AND F.`day` >= ? AND F.`name` > ? ORDER BY F.`name` LIMIT 1",
			[]any{int64(-7), "x", "2013-02-02", "o'x"}},
		{Query{Table: "airports"}, "airports", cursor{}, math.MaxInt, "SELECT F.`code`, `_ver`, F.`code`, F.`name` FROM F WHERE `_deleted` = 0 ORDER BY F.`code`", nil},
	} {
		got, args := c.q.sql(cfg.Table(c.q.Table), c.table, c.after, c.limit)
		c.want = strings.ReplaceAll(strings.ReplaceAll(c.want, "F.", "`"+c.table+"`."), "FROM F ", "FROM `"+c.table+"` ")
		if got != c.want || fmt.Sprintf("%#v", args) != fmt.Sprintf("%#v", c.args) {
			t.Errorf("%s\n%#v\nwant\n%s\n%#v", got, args, c.want, c.args)
		}
	}
}

// A month column's value is at or above the bound exactly if it says that time or a later one.
func TestBoundAgainstTwin(t *testing.T) {
	cfg := configOf(t)
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 1))
	epoch := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	for range 20_000 {
		at := epoch.Add(time.Duration(r.Int64N(int64(10 * 365 * 24 * time.Hour)))).Truncate([]time.Duration{1, time.Microsecond, time.Millisecond, time.Hour, 24 * time.Hour}[r.IntN(5)])
		value := at.Add(time.Duration(r.Int64N(3)-1) * []time.Duration{time.Microsecond, time.Millisecond, 24 * time.Hour}[r.IntN(3)])
		for name, c := range map[string]struct {
			said  time.Time
			least any
		}{
			"flights": {value.Truncate(time.Microsecond), value.Truncate(time.Microsecond).Format("2006-01-02 15:04:05.000000")},
			"days":    {value.Truncate(24 * time.Hour), value.Format(time.DateOnly)},
			"scans":   {value.Truncate(time.Millisecond), value.Sub(epoch).Milliseconds()<<22 | r.Int64N(1<<22)},
		} {
			if value.Before(epoch) {
				continue
			}
			value, lies := bound(cfg.Table(name), at)
			above := lies == belowAll
			switch b := value.(type) {
			case string:
				above = c.least.(string) >= b
			case int64:
				above = c.least.(int64) >= b
			}
			if want := !c.said.Before(at); above != want {
				t.Fatalf("seed %d: %s: bound of %v is %v; %v, which says %v, is above it: %v", seed, name, at, value, c.least, c.said, above)
			}
		}
	}
	end := time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC)
	for _, c := range []struct {
		table string
		at    time.Time
		lies  int
	}{{"scans", epoch.AddDate(-3, 0, 0), belowAll}, {"scans", epoch, belowAll}, {"scans", epoch.AddDate(69, 0, 0), among}, {"scans", epoch.AddDate(80, 0, 0), aboveAll},
		{"scans", end, aboveAll}, {"flights", end, aboveAll}, {"flights", end.Truncate(time.Microsecond), among}, {"days", end, aboveAll}, {"days", end.Truncate(24 * time.Hour), among},
		{"flights", time.Date(0, 12, 31, 0, 0, 0, 0, time.UTC), belowAll}, {"flights", end.AddDate(5000, 0, 0), aboveAll}} {
		if value, lies := bound(cfg.Table(c.table), c.at); lies != c.lies || (lies == among) != (value != nil) {
			t.Errorf("%s at %v: %v lies %d", c.table, c.at, value, lies)
		}
	}
	for want, q := range map[string]Query{
		"WHERE `_deleted` = 0 AND `scans_202001`.`owner` = ? ORDER": {Table: "scans", Tenant: "a", From: epoch.AddDate(-1, 0, 0), To: end},
		"`owner` = ? AND FALSE AND FALSE ORDER":                     {Table: "scans", Tenant: "a", From: end, To: epoch},
	} {
		if got, _ := q.sql(cfg.Table("scans"), "scans_202001", cursor{}, 1); !strings.Contains(got, want) {
			t.Errorf("%s lacks %s", got, want)
		}
	}
}

func TestCompareIDsAgainstTwin(t *testing.T) {
	cfg := configOf(t)
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 2))
	draw := func() int64 {
		return []int64{math.MinInt64, -1, 0, 1, math.MaxInt64, r.Int64N(2000) - 1000, int64(r.Uint64())}[r.IntN(7)]
	}
	for range 20_000 {
		a, b := draw(), draw()
		if got := compareIDs(cfg.Table("scans"), fmt.Append(nil, a), fmt.Append(nil, b)); sign(got) != cmp.Compare(a, b) {
			t.Fatalf("seed %d: %d and %d compare as %d", seed, a, b, got)
		}
		if got := compareIDs(cfg.Table("flights"), fmt.Append(nil, uint64(a)), fmt.Append(nil, uint64(b))); sign(got) != cmp.Compare(uint64(a), uint64(b)) {
			t.Fatalf("seed %d: %d and %d compare as %d", seed, uint64(a), uint64(b), got)
		}
	}
	if compareIDs(cfg.Table("days"), []byte("10"), []byte("9")) >= 0 || sign(compareIDs(cfg.Table("days"), []byte("é"), []byte("z"))) != bytes.Compare([]byte("é"), []byte("z")) {
		t.Error("texts are not compared by their bytes")
	}
}

func sign(n int) int { return cmp.Compare(n, 0) }

// What no row can be found by is refused before a server is asked: the servers of this file are not there.
func TestQuestionsThatAreRefused(t *testing.T) {
	r, err := New(configOf(t))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	at := time.Now()
	for want, q := range map[string]Query{
		`no table "nope"`:                         {Table: "nope", Tenant: "a"},
		"flights is asked without a tenant":       {Table: "flights"},
		"airports has no tenant":                  {Table: "airports", Tenant: "a"},
		"no tenant is \"007\": column owner":      {Table: "days", Tenant: "007"},
		"no tenant is \"x\": column owner":        {Table: "days", Tenant: "x"},
		`ID is "-1", and column flight_id`:        {Table: "flights", Tenant: "UA", ID: "-1"},
		`After is "201302"`:                       {Table: "flights", Tenant: "UA", After: "201302"},
		`After is "/7"`:                           {Table: "flights", Tenant: "UA", After: "/7"},
		`After is "201313/7"`:                     {Table: "flights", Tenant: "UA", After: "201313/7"},
		`After is "x", and column flight_id`:      {Table: "flights", Tenant: "UA", After: "201302/x"},
		`After is "201302/7", which is no cursor`: {Table: "notes", Tenant: "UA", After: "201302/7"},
		"it has no month column":                  {Table: "notes", Tenant: "UA", To: at},
		"it has no spread column":                 {Table: "notes", Tenant: "UA", Spread: "7"},
		`Spread is "1.5", and column flight_id`:   {Table: "flights", Tenant: "UA", Spread: "1.5"},
		"whose parentheses":                       {Table: "notes", Tenant: "UA", Where: "1=1) OR (1=1"},
		`Where is "text = 'it`:                    {Table: "notes", Tenant: "UA", Where: "text = 'it''s"},
		"Limit is -1":                             {Table: "notes", Tenant: "UA", Limit: -1},
	} {
		n := 0
		for row, err := range r.Query(t.Context(), q) {
			n++
			if row != nil || !fault.Is(err, fault.Usage) || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: row %v, error %v", q, row, err)
			}
		}
		if n != 1 {
			t.Errorf("%+v: %d turns of the loop", q, n)
		}
	}
	for _, w := range []struct {
		id      string
		version int64
	}{{"x", 1}, {"", 1}, {"7", 0}, {"7", math.MaxInt64}} {
		if err := r.Wait(t.Context(), "flights", "UA", w.id, w.version); !fault.Is(err, fault.Usage) {
			t.Error(err)
		}
	}
	if !balanced(`a = ')' AND (b = "(" OR `+"`c)`"+` = 'it\'s (')`) || balanced("(a") || balanced("a)(") {
		t.Error("parentheses and quotes")
	}
	if _, err := r.Places(t.Context(), "flights", "", at, at); !fault.Is(err, fault.Usage) {
		t.Error(err)
	}
	if _, err := New(configOf(t), WithDatabase("s1", nil)); fault.CodeOf(err) != codeOptions {
		t.Error(err)
	}
	if _, err := New(configOf(t), WithDatabase("s3", nil)); fault.CodeOf(err) != codeOptions || !strings.Contains(err.Error(), "s1, s2") {
		t.Error(err)
	}
}

// A shard that is down is an outage, and named.
func TestNoServer(t *testing.T) {
	r, err := New(configOf(t))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, err := range r.Query(t.Context(), Query{Table: "flights", Tenant: "UA"}) {
		if !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "shard s1") || !strings.Contains(err.Error(), "shard s2") {
			t.Error(err)
		}
	}
}

// Whoever reads from several shards takes them in one order, whichever its slots name first.
func TestShardsAreTakenInOneOrder(t *testing.T) {
	cfg, err := config.Parse("slotline.yaml", []byte(strings.Replace(file, "shards:", `layout:
  tenants:
    A: { slots: { 100000: s1, 100001: s2 } }
    B: { slots: { 100002: s2, 100003: s1 } }
shards:`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	spec, err := cfg.Layout.WithPartitions(cfg.Kafka.Partitions)
	if err != nil {
		t.Fatal(err)
	}
	l, err := partitioner.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []string{"A", "B"} {
		if names := shardsOf(l, cfg.Table("flights"), tenant, ""); !slices.Equal(names, []string{"s1", "s2"}) {
			t.Errorf("%s: %v", tenant, names)
		}
	}
}

func TestMonths(t *testing.T) {
	places := []Place{{Shard: "s1", Month: 201301}, {Shard: "s1", Month: 201302}, {Shard: "s2", Month: 201302}, {Shard: "s2", Month: 201304}}
	text := func(list [][]Place) (s string) {
		for _, m := range list {
			for _, p := range m {
				s += fmt.Sprint(p.Shard, p.Month, " ")
			}
			s += "; "
		}
		return s
	}
	if got := text(months(places, false)); got != "s1201301 ; s1201302 s2201302 ; s2201304 ; " {
		t.Error(got)
	}
	if got := text(months(places, true)); got != "s2201304 ; s1201302 s2201302 ; s1201301 ; " {
		t.Error(got)
	}
	c := cursor{set: true, month: 201302}
	for m, want := range map[partitioner.Month][2]bool{201301: {true, false}, 201302: {false, false}, 201303: {false, true}} {
		if got := [2]bool{c.passed(m, false), c.passed(m, true)}; got != want {
			t.Errorf("%s: %v", m, got)
		}
	}
	feb := time.Date(2013, 2, 1, 0, 0, 0, 0, time.UTC)
	for want, span := range map[string][2]time.Time{"201301 201302 201303 ": {}, "201302 201303 ": {feb, {}}, "201301 201302  ": {feb.Add(-1), feb.Add(1)},
		"201301 ": {{}, feb}, "201302 ": {feb, feb.AddDate(0, 1, 0)}} {
		got := ""
		for _, m := range []partitioner.Month{201301, 201302, 201303} {
			if within(m, span[0], span[1]) {
				got += m.String() + " "
			}
		}
		if strings.TrimSpace(got) != strings.TrimSpace(want) {
			t.Errorf("%v: %s", span, got)
		}
	}
	if !within(partitioner.NoMonth, feb, feb) {
		t.Error("a table without months")
	}
}
