package integration

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/producer"
)

// layoutLine is a line whose layout changes while it runs: shops with accounts, orders (children of an account) and, in
// every shard, countries. It keeps what was emitted, which is what the shards must hold.
type layoutLine struct {
	*wholeLine
	servers lineServers
	names   map[string]string // of databases, by shard

	mu       sync.Mutex
	accounts map[shopEntity]string // what is emitted last; "" for a deleted one
	orders   map[shopEntity]uint64 // the account
	country  map[string]string
}

// shopEntity is an account's or order's identity.
type shopEntity struct {
	Shop string
	ID   uint64
}

type shopAccount struct {
	Shop string `slotline:"shop,tenant"`
	ID   uint64 `slotline:"id,id"`
	Name string `slotline:"name"`
}

type shopOrder struct {
	Shop    string    `slotline:"shop,tenant"`
	ID      uint64    `slotline:"id,id"`
	Account uint64    `slotline:"account"`
	Placed  time.Time `slotline:"placed,month"`
}

type shopCountry struct {
	Code string `slotline:"code,id"`
	Name string `slotline:"name"`
}

// layoutFile is what differs between the files of a line.
type layoutFile struct {
	epoch, partitions int
	slots             map[string]string // by shard
	tenants           string
}

// twoShards is the layout that the tests begin with.
var twoShards = layoutFile{epoch: 1, partitions: 4, slots: map[string]string{"s1": "0-511", "s2": "512-1023"}}

// newLayoutLine applies a line with two shards; a database for s3 is there.
func newLayoutLine(t *testing.T) *layoutLine {
	t.Helper()
	s := sharedServers(t)
	w := &layoutLine{wholeLine: &wholeLine{name: harness.Name(t), ch: s.ch, kafka: s.kafka, shards: map[string]*sql.DB{}}, servers: s,
		names: map[string]string{}, accounts: map[shopEntity]string{}, orders: map[shopEntity]uint64{}, country: map[string]string{}}
	s.kafka.Topics(t, w.name)
	w.names["outbox"] = s.outbox.NewDatabase(t, w.name+"_outbox")
	for _, shard := range []string{"s1", "s2", "s3"} {
		w.names[shard] = s.s1.NewDatabase(t, w.name+"_"+shard)
		w.shards[shard] = s.s1.Open(t, w.names[shard])
	}
	w.chDB = s.ch.NewDatabase(t, w.name)
	w.outbox = s.outbox.Open(t, w.names["outbox"])
	w.file = filepath.Join(t.TempDir(), "slotline.yaml")
	w.put(t, twoShards)
	var err error
	if w.cfg, err = config.Load(w.file); err != nil {
		t.Fatal(err)
	}
	w.run(t, 0, "apply")
	w.inForce(t)
	return w
}

// text is the file of a layout.
func (w *layoutLine) text(f layoutFile) string {
	shards := ""
	for _, shard := range []string{"s1", "s2", "s3"} {
		if slots, ok := f.slots[shard]; ok {
			shards += fmt.Sprintf("  %s: { dsn: %q", shard, w.servers.s1.URL(w.names[shard]))
			if slots != "" {
				shards += ", slots: " + slots
			}
			shards += " }\n"
		}
	}
	return fmt.Sprintf(`line: %s
kafka: { brokers: [%q], partitions: %d, replication: 1 }
layout:
  epoch: %d
%sshards:
%stables:
  accounts: { tenant: shop, id: id, columns: { shop: string(20), id: uint64, name: string(40) } }
  orders:
    tenant: shop
    id: id
    month: placed
    columns: { shop: string(20), id: uint64, account: uint64, placed: datetime }
  countries: { id: code, columns: { code: string(2), name: string(40) } }
months: { from: 2026-01, ahead: 1 }
outbox: { dsn: %q, lanes: 2, lease_time: 1s }
sinks:
  clickhouse: { dsn: %q, groups: 2, batch_age: 100ms }
http: { listen: "127.0.0.1:0" }
`, w.name, w.kafka.Brokers[0], f.partitions, f.epoch, f.tenants, shards, w.servers.outbox.URL(w.names["outbox"]), w.ch.URL(w.chDB))
}

// put writes the line's file, all at once, as a deployment does.
func (w *layoutLine) put(t *testing.T, f layoutFile) { putText(t, w.file, w.text(f)) }

func putText(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// beside writes another file of the line, and returns its name.
func (w *layoutLine) beside(t *testing.T, f layoutFile) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "slotline.yaml")
	putText(t, file, w.text(f))
	return file
}

// runWith runs a command with another file and returns its result.
func (w *layoutLine) runWith(t *testing.T, file string, args ...string) harness.Result {
	t.Helper()
	return harness.Command{Args: append([]string{"-c", file}, args...), Name: strings.Join(args, "-")}.Run(t, time.Minute)
}

// inForce reads the layout in force from the outbox database.
func (w *layoutLine) inForce(t *testing.T) *partitioner.Layout {
	t.Helper()
	var body string
	if err := w.outbox.QueryRow("SELECT body FROM slotline_layout ORDER BY epoch DESC LIMIT 1").Scan(&body); err != nil {
		t.Fatal(err)
	}
	spec, err := partitioner.ParseSpec([]byte(body))
	if err == nil {
		w.layout, err = partitioner.New(spec)
	}
	if err != nil {
		t.Fatal(err)
	}
	return w.layout
}

// shopsIn are n shops whose slots lie in a range, in order of their numbers; from tells sets of them apart.
func (w *layoutLine) shopsIn(first, last partitioner.Slot, n int) (shops []string) {
	for i := 0; len(shops) < n; i++ {
		shop := fmt.Sprintf("shop-%d", i)
		if slot := w.layout.Route(shop, "").Slot; first <= slot && slot <= last {
			shops = append(shops, shop)
		}
	}
	return shops
}

// emit commits one transaction: an account of the shop, new or renamed or deleted, and two orders of it.
func (w *layoutLine) emit(t *testing.T, p *producer.Producer, shop string, step uint64) {
	t.Helper()
	accounts, orders := producer.MustRegister[shopAccount](p, "accounts"), producer.MustRegister[shopOrder](p, "orders")
	a := shopAccount{shop, step % 7, fmt.Sprintf("name %d", step)}
	events := []producer.Event{accounts.Upsert(a)}
	name := a.Name
	if step%7 == 6 && step > 7 {
		events, name = []producer.Event{accounts.Delete(a)}, ""
	}
	placed := time.Date(2026, time.Month(9+step%2), 3, 4, 5, 6, 0, time.UTC)
	for i := range uint64(2) {
		events = append(events, orders.Upsert(shopOrder{shop, 2*step + i, a.ID, placed}))
	}
	w.commit(t, p, events...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.accounts[shopEntity{shop, a.ID}] = name
	for i := range uint64(2) {
		w.orders[shopEntity{shop, 2*step + i}] = a.ID
	}
}

func (w *layoutLine) emitCountries(t *testing.T, p *producer.Producer, name string, codes ...string) {
	t.Helper()
	countries := producer.MustRegister[shopCountry](p, "countries")
	for _, code := range codes {
		c := shopCountry{code, name + " " + code}
		w.commit(t, p, countries.Upsert(c))
		w.mu.Lock()
		w.country[code] = c.Name
		w.mu.Unlock()
	}
}

func (w *layoutLine) commit(t *testing.T, p *producer.Producer, events ...producer.Event) {
	t.Helper()
	err := p.Run(t.Context(), w.outbox, func(tx *producer.Tx) error { return p.Emit(t.Context(), tx, events...) })
	if err != nil {
		t.Fatal(err)
	}
}

// traffic emits for the shops, some transactions each, until stopped.
func (w *layoutLine) traffic(t *testing.T, shops []string) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		p := producer.New(w.cfg)
		for step := uint64(1); ctx.Err() == nil; step++ {
			for _, shop := range shops {
				w.emit(t, p, shop, step)
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond): // the load: not what anything waits for
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// check compares each shard with what was emitted: every row is there, once, in the shard of the layout in force.
func (w *layoutLine) check(t *testing.T) {
	t.Helper()
	w.inForce(t)
	accounts, orders := map[shopEntity]string{}, map[shopEntity]uint64{}
	for _, name := range w.layout.Shards() {
		db := w.shards[name]
		here := func(shop, what string) {
			if want := w.layout.ShardName(w.layout.Route(shop, "").Shard); want != name {
				t.Errorf("%s of %s is in shard %s, its layout says %s", what, shop, name, want)
			}
		}
		each(t, db, "SELECT shop, id, IF(_deleted, '', name) FROM accounts", func(scan func(...any)) {
			var a shopEntity
			var text string
			scan(&a.Shop, &a.ID, &text)
			if _, twice := accounts[a]; twice {
				t.Errorf("account %v is in two shards", a)
			}
			accounts[a] = text
			here(a.Shop, "an account")
		})
		for _, table := range w.monthTables(t, db, "orders") {
			each(t, db, "SELECT shop, id, account FROM "+table+" WHERE NOT _deleted", func(scan func(...any)) {
				var o shopEntity
				var of uint64
				scan(&o.Shop, &o.ID, &of)
				if _, twice := orders[o]; twice {
					t.Errorf("order %v is in two places", o)
				}
				orders[o] = of
				here(o.Shop, "an order")
			})
		}
		countries := map[string]string{}
		each(t, db, "SELECT code, name FROM countries WHERE NOT _deleted", func(scan func(...any)) {
			var code, text string
			scan(&code, &text)
			countries[code] = text
		})
		equal(t, "countries of shard "+name, countries, w.country)
	}
	equal(t, "accounts", accounts, w.accounts)
	equal(t, "orders", orders, w.orders)
}

func each(t *testing.T, db *sql.DB, query string, row func(scan func(...any))) {
	t.Helper()
	rows, err := db.Query(query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		row(func(to ...any) {
			if err := rows.Scan(to...); err != nil {
				t.Fatal(err)
			}
		})
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

func equal[K, V comparable](t *testing.T, what string, got, want map[K]V) {
	t.Helper()
	wrong := 0
	for k, v := range want {
		if g, ok := got[k]; !ok || g != v {
			if wrong++; wrong <= 3 {
				t.Errorf("%s: %v is %v (there: %v), emitted was %v", what, k, g, ok, v)
			}
		}
	}
	if len(got) != len(want) || wrong > 0 {
		t.Errorf("%s: %d rows, %d of %d are not as emitted", what, len(got), wrong, len(want))
	}
}

// until polls a state that the line reaches by itself.
func until(t *testing.T, what string, limit time.Duration, is func() bool) {
	t.Helper()
	for deadline := harness.Deadline(limit); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

func count(t *testing.T, db *sql.DB, query string, args ...any) (n int) {
	t.Helper()
	if err := db.QueryRow(query, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
