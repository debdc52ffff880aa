package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/partitioner"
)

func parse(t *testing.T, text string) *Config {
	t.Helper()
	cfg, err := Parse("slotline.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := schemaError(t, compiled(t), text); err != nil {
		t.Errorf("the JSON Schema refuses what Parse takes: %v\n%s", err, text)
	}
	return cfg
}

func TestExample(t *testing.T) {
	cfg := parse(t, Example())
	if n := strings.Count(Example(), "\n"); n != 12 {
		t.Errorf("the first file has %d lines", n)
	}
	if cfg.Line != "flights" || cfg.Kafka.Topic != "flights.events" || cfg.Dead.Topic != "flights.dead" || len(cfg.Shards) != 2 {
		t.Errorf("%+v", cfg)
	}
	orders := cfg.Table("orders")
	if orders == nil || cfg.Table("order") != nil {
		t.Fatal("no table orders")
	}
	if orders.Tenant != 0 || orders.ID != 1 || orders.Month != 2 || orders.Spread != event.None || orders.Version != event.None {
		t.Errorf("%+v", orders)
	}
	if c := orders.Columns[3]; c.String() != "total: decimal(12,2)" || c.Source != "slotline.yaml:12" {
		t.Errorf("%+v", c)
	}
	if cfg.Sinks.ClickHouse != nil || !reflect.DeepEqual(cfg.Sinks.State, cfg.Outbox.DSN) {
		t.Errorf("%+v", cfg.Sinks)
	}
}

func TestExampleFull(t *testing.T) {
	cfg := parse(t, ExampleFull())
	flights, airports := cfg.Table("flights"), cfg.Table("airports")
	if flights == nil || airports == nil || !airports.Broadcast() || flights.Broadcast() {
		t.Fatalf("%+v", cfg.Tables)
	}
	if flights.Spread != flights.ID || len(flights.Indexes) != 1 || airports.Month != event.None {
		t.Errorf("%+v", flights)
	}
	layout, err := cfg.Layout.WithPartitions(cfg.Kafka.Partitions)
	if err != nil {
		t.Fatal(err)
	}
	l, err := partitioner.New(layout)
	if err != nil {
		t.Fatal(err)
	}
	if l.Slots() != 1024 || !slices.Equal(l.Shards(), []string{"s1", "s2"}) {
		t.Errorf("%+v", l.Spec())
	}
	if ch := cfg.Sinks.ClickHouse; ch == nil || ch.Groups != 4 || ch.BatchRows != 100_000 || ch.BatchBytes != 32<<20 || ch.BatchAge != time.Second {
		t.Errorf("%+v", ch)
	}
	if d := cfg.Sinks.Doris; d == nil || d.HTTPS || d.QueryPort != 9030 || d.Replication != 1 || d.Groups != 4 || d.BatchRows != 200_000 ||
		d.BatchBytes != 16<<20 || d.BatchAge != 5*time.Second || d.DSN.Place() != "127.0.0.1:8030/flights" {
		t.Errorf("%+v", d)
	}
	if cfg.Dead.Retention != 90*24*time.Hour || cfg.Months.From != 200001 || cfg.Outbox.EventBytesMax != 900<<10 {
		t.Errorf("%+v", cfg)
	}
}

// The full file says of itself that its values are the defaults: take each such line away, and nothing changes.
func TestExampleFullShowsDefaults(t *testing.T) {
	cfg := parse(t, ExampleFull())
	lines := strings.Split(ExampleFull(), "\n")
	removed := 0
	for i, line := range lines {
		key, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok || strings.HasPrefix(key, "#") || strings.HasPrefix(key, "{") || !isDefault(key, value) {
			continue
		}
		removed++
		without, err := Parse("slotline.yaml", []byte(strings.Join(slices.Concat(lines[:i], []string{""}, lines[i+1:]), "\n")))
		if err != nil {
			t.Errorf("without line %d (%s): %v", i+1, line, err)
		} else if !reflect.DeepEqual(cfg, without) {
			t.Errorf("line %d does not show the default: %s", i+1, line)
		}
	}
	if removed < 18 {
		t.Errorf("only %d lines show defaults", removed)
	}
}

// isDefault says whether a line of the full file holds a key with a default, alone or in a map of such keys.
func isDefault(key, value string) bool {
	if key == "sched_dep" || key == "replication" { // a column; 1 for a laptop, as its comments say
		return false
	}
	for _, k := range keys {
		if _, last := cutLast(k.path); last == key && (k.def != "" || slices.Contains([]string{"months", "http"}, key) || k.path == "sinks.mysql") {
			return true
		}
	}
	return false
}

func TestDefaultsAreGood(t *testing.T) {
	for _, k := range keys {
		switch k.kind {
		case count, size, span:
			if n, wrong, _ := k.read(k.def); wrong != "" || n < k.min || n > k.max {
				t.Errorf("%s: default %s is not within %s %s", k.path, k.def, k.bounds(), wrong)
			} else if k.format(n) != k.def && k.format(n) != strings.ReplaceAll(k.def, "_", "") {
				t.Errorf("%s: default %s would be written %s", k.path, k.def, k.format(n))
			}
		case choice:
			if !slices.Contains(k.choices, k.def) {
				t.Errorf("%s: default %s is not a choice", k.path, k.def)
			}
		}
		if k.meaning == "" {
			t.Errorf("%s has no meaning", k.path)
		}
	}
}

func TestForms(t *testing.T) {
	cfg := parse(t, `
line: a-line_2
kafka: { brokers: ["[::1]:9092", kafka2:9092], topic: A.b_c-d, partitions: 3 }
layout:
  tenants:
    "42": { slots: { 100000: s.2 } }
    NO: { slots: { "100003,100001": s1, 100002: s.2 } }
shards:
  s1: { dsn: 'mysql://u:p%40ss@[::1]:3307/a?tls=skip-verify', slots: [0-99, "101,103-1023"] }
  s.2: { dsn: "mysql://u@db/b", slots: "100, 102" }
  empty: { dsn: "mysql://u@db/c" }
tables:
  t:
    tenant: n
    id: i
    month: { snowflake: i, epoch: 2020-01-01T02:00:00+02:00 }
    version: v
    topic: other
    columns: { n: int64, i: uint64, v: int64, "d": "decimal(12,2)?" }
  u: { id: i, columns: { i: int64 } }
outbox: { dsn: "mysql://u:${P}@${H}:${PORT}/x", lanes: "2", backlog_events_max: 1_000, backlog_age_max: 1d12h, transactional: true }
sinks: { state: "mysql://u@db/state", clickhouse: { dsn: "clickhouse://u@c1,c2:9001/d" } }
months:
limits: { memory_bytes_max: 1GiB }
`)
	if cfg.Sinks.ClickHouse.Groups != 3 {
		t.Errorf("4 groups by default for 3 partitions became %d", cfg.Sinks.ClickHouse.Groups)
	}
	if cfg.Outbox.BacklogAgeMax != 36*time.Hour || cfg.Outbox.BacklogEventsMax != 1000 || cfg.Outbox.Lanes != 2 || !cfg.Outbox.Transactional {
		t.Errorf("%+v", cfg.Outbox)
	}
	want := []partitioner.TenantSpec{
		{Tenant: "42", Placed: []partitioner.PlacedSlot{{Slot: 100000, Shard: "s.2"}}},
		{Tenant: "NO", Placed: []partitioner.PlacedSlot{{Slot: 100003, Shard: "s1"}, {Slot: 100001, Shard: "s1"}, {Slot: 100002, Shard: "s.2"}}},
	}
	if !reflect.DeepEqual(cfg.Layout.Tenants, want) {
		t.Errorf("%+v", cfg.Layout.Tenants)
	}
	if e := cfg.Table("t").SnowflakeEpoch; e == nil || !e.Equal(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("%v", e)
	}
	if got := cfg.Topics(); !slices.Equal(got, []string{"other", "A.b_c-d"}) || cfg.Topic(cfg.Table("u")) != "A.b_c-d" {
		t.Errorf("%v", got)
	}
	if got := cfg.Shards[0].DSN.Place(); got != "[::1]:3307/a" {
		t.Error(got)
	}
	if got := cfg.Sinks.ClickHouse.DSN.Place(); got != "c1,c2:9001/d" {
		t.Error(got)
	}
}

// The keys of sinks.doris make an address: its password is put in late, as in a URL, and printed by nothing.
// One account has one password: the examples' databases are on one server.
func TestExampleAccountsHaveOnePasswordEach(t *testing.T) {
	for _, text := range []string{Example(), ExampleFull()} {
		cfg := parse(t, text)
		password := map[string]string{}
		dsns := []DSN{cfg.Outbox.DSN}
		for _, s := range cfg.Shards {
			dsns = append(dsns, s.DSN)
		}
		for _, d := range dsns {
			account := d.user + " at " + strings.Join(d.hosts, " ")
			if other, there := password[account]; there && other != d.password {
				t.Errorf("%s has the passwords %s and %s", account, other, d.password)
			}
			password[account] = d.password
		}
	}
}

func TestDoris(t *testing.T) {
	file := `
line: flights
kafka: { brokers: [kafka1:9092] }
outbox: { dsn: "mysql://app@db0/flights" }
shards: { s1: { dsn: "mysql://app@db1/s1" , slots: 0-1023 } }
tables: { t: { id: i, columns: { i: int64 } } }
sinks: { doris: { fe: ["https://fe1", "https://[::1]:8443/"], database: d, user: u@cluster, password: %q } }
`
	const secret = "hunter2:@/${x}"
	t.Setenv("SLOTLINE_TEST_SECRET", secret)
	for _, password := range []string{"${SLOTLINE_TEST_SECRET}", "hunter2"} {
		cfg := parse(t, fmt.Sprintf(file, password))
		d := cfg.Sinks.Doris
		a, err := d.DSN.Resolve()
		if err != nil {
			t.Fatal(err)
		}
		if want := map[bool]string{true: secret, false: "hunter2"}[password != "hunter2"]; a.Password != want || a.User != "u@cluster" || a.Database != "d" ||
			!slices.Equal(a.Hosts, []string{"fe1:8030", "[::1]:8443"}) || !d.HTTPS || !slices.Contains(cfg.Secrets(), want) {
			t.Errorf("user %q, database %q, hosts %q", a.User, a.Database, a.Hosts)
		}
		for _, text := range []string{fmt.Sprint(a, d.DSN), fmt.Sprintf("%+v %#v", d, d.DSN), d.DSN.Redacted()} {
			if strings.Contains(text, "hunter2") {
				t.Errorf("a password is printed: %s", text)
			}
		}
	}
	if _, err := parse(t, fmt.Sprintf(file, "${SLOTLINE_TEST_UNSET}")).Sinks.Doris.DSN.Resolve(); !strings.Contains(fmt.Sprint(err), "slotline.yaml:7: sinks.doris.password needs the environment variable SLOTLINE_TEST_UNSET") {
		t.Errorf("%v", err)
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "slotline.yaml")
	_, err := Load(path)
	if fault.CodeOf(err) != "SL1001" || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "slotline init") {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(path, []byte(Example()), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := Load(path)
	if err != nil || cfg.File != path {
		t.Fatalf("%v", err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(Example(), "id:", "idd:", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = Load(path); fault.CodeOf(err) != "SL1003" || !fault.Is(err, fault.Usage) {
		t.Errorf("%v", err)
	}
}

func TestProblemsAreBounded(t *testing.T) {
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, "unknown_%d: 1\n", i)
	}
	_, err := Parse("slotline.yaml", []byte(b.String()))
	if n := strings.Count(err.Error(), " [SL1"); n != problemsMax+1 || !strings.Contains(err.Error(), " more [SL1003]") {
		t.Errorf("%d problems printed", n)
	}
	if _, err := Parse("slotline.yaml", make([]byte, fileBytesMax+1)); err == nil || len(err.Error()) > 1000 {
		t.Errorf("a file of %d bytes: %v", fileBytesMax+1, err)
	}
}

// A path may lead to a device without end: no more is read than a file may have.
func TestLoadReadsNoMoreThanAFileMayHave(t *testing.T) {
	if _, err := Load("/dev/zero"); err == nil || len(err.Error()) > 1000 {
		t.Errorf("/dev/zero: %v", err)
	}
}
