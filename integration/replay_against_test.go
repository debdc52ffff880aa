package integration

import (
	"database/sql"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/internal/rowsum"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/mysql"
)

const thingsColumns = `things: { tenant: owner, id: thing, columns: { owner: int64, thing: string(20), a: bool, b: "int32?", c: "int64?", d: "uint64?",
    e: float64, f: "float64?", g: "decimal(5,2)?", h: "decimal(%[1]d,30)", i: "string(40)?", j: text, k: "bytes(40)?", l: "date?", m: datetime, n: "datetime?", o: "json?", p: "decimal(9,0)" } }
  plain: { tenant: owner, id: thing, columns: { owner: int64, thing: int64, e: float64, f: "float64?", g: "decimal(5,2)?", i: "string(40)?", k: "bytes(40)?", l: "date?", n: "datetime?" } }
  exact: { tenant: owner, id: thing, columns: { owner: int64, thing: int64, a: "bool?", b: "int32?", c: int64, d: "uint64?", g: "decimal(5,2)?", h: "decimal(%[1]d,30)?", i: "string(40)?", j: text,
    k: "bytes(40)?", l: "date?", m: datetime, n: "datetime?", p: "decimal(9,0)" } }
  airports:`

// thingValues draws a row: values at the ends of what a type holds, and in between.
func thingValues(rng *rand.Rand, t *event.Table) []event.Value {
	pick := func(list ...string) event.Value { return event.Value{Bytes: []byte(list[rng.IntN(len(list))])} }
	micros := func(list ...string) event.Value {
		at, err := time.Parse(time.RFC3339Nano, list[rng.IntN(len(list))])
		if err != nil {
			panic(err)
		}
		return event.Value{Int: at.UnixMicro()}
	}
	values := make([]event.Value, len(t.Columns))
	for i, c := range t.Columns {
		if c.Nullable && rng.IntN(4) == 0 {
			values[i] = event.Value{Null: true}
			continue
		}
		switch c.Type.Kind {
		case event.Bool:
			values[i] = event.Value{Int: int64(rng.IntN(2))}
		case event.Int32:
			values[i] = event.Value{Int: []int64{0, -1, math.MaxInt32, math.MinInt32}[rng.IntN(4)]}
		case event.Int64:
			values[i] = event.Value{Int: []int64{0, -1, math.MaxInt64, math.MinInt64}[rng.IntN(4)]}
		case event.Uint64:
			values[i] = event.Value{Uint: []uint64{0, 1, math.MaxUint64, 1 << 63}[rng.IntN(4)]}
		case event.Float64:
			values[i] = event.Value{Float: []float64{0, math.Copysign(0, -1), 0.1, -2.5e300, math.SmallestNonzeroFloat64, math.MaxFloat64, 1e20, rng.NormFloat64()}[rng.IntN(8)]}
		case event.Decimal:
			switch c.Type.Precision {
			case 5:
				values[i] = pick("0.00", "-0.05", "999.99", "-999.99", "12.50")
			case 9:
				values[i] = pick("0", "-1", "999999999")
			default:
				values[i] = pick("0."+strings.Repeat("0", 30), "-"+strings.Repeat("9", c.Type.Precision-30)+"."+strings.Repeat("9", 30), "1."+strings.Repeat("0", 29)+"1")
			}
		case event.String, event.Text:
			values[i] = pick("", "N", "a", "a ", "Ä€🛫", "1:x,", "it's \\ \"q\"\n\t", "\u0000")
		case event.Bytes:
			values[i] = pick("", "\x00\xff", "N", "plain")
		case event.Date:
			values[i] = event.Value{Int: []int64{0, -25567, 15706, 120529}[rng.IntN(4)]} // 1900-01-01 to 2299-12-31
		case event.Datetime:
			values[i] = micros("1970-01-01T00:00:00Z", "1900-01-01T00:00:00.000001Z", "2299-12-31T23:59:59.999999Z", "2013-03-01T10:00:00.5Z")
		case event.JSON:
			values[i] = pick(`{"b":1,"aa":[1.10,1e2,-0.0,100000000000000000000],"a":{"z":null,"y":"\u00e4"}}`, `[]`, `"text"`, `18446744073709551615`, `true`, `{"aa":[ 1 ],"b":2}`)
		}
	}
	return values
}

// Every engine and Go make the same sum of every value of every type, deleted rows and JSON included, so that a comparison
// finds nothing where nothing differs; an event that the store alone cannot hold is a dead letter, not a difference.
func TestReplayAgainstEveryType(t *testing.T) {
	harness.Proof(t)
	eachOLAP(t, func(t *testing.T, store string) {
		w := newLineOnAt(t, store, "")
		digits := map[string]int{"clickhouse": 65, "doris": 38}[store]
		w.edit(t, "airports:", fmt.Sprintf(thingsColumns, digits))
		w.applied(t)
		if r := w.replayCommand(t, "verify", "--against", store); r.Code != 1 || !strings.Contains(r.Stderr, "SL7509") {
			t.Errorf("a comparison of nothing ends with %d:\n%s", r.Code, r.Stderr)
		}
		w.run(t, 0, "replay", "verify", "--against", store, "--allow-empty")
		other := map[string]string{"clickhouse": "doris", "doris": "clickhouse"}[store]
		if r := w.replayCommand(t, "verify", "--against", other); r.Code != 2 || !strings.Contains(r.Stderr, "SL9023") {
			t.Errorf("a comparison with a store that the file does not have ends with %d:\n%s", r.Code, r.Stderr)
		}
		run := w.start(t, "run")
		seed := uint64(time.Now().UnixNano())
		rng := rand.New(rand.NewPCG(seed, 1))
		t.Logf("seed %d", seed)
		rows := map[string]map[string][]event.Value{"things": {}, "plain": {}, "exact": {}} // by table and entity
		var events []event.Event
		add := func(table string, owner int64, id string, op event.Op, values []event.Value) {
			t.Helper()
			tt := w.cfg.Table(table)
			values[tt.Tenant] = event.Value{Int: owner}
			values[tt.ID] = event.Value{Bytes: []byte(id)}
			if tt.Columns[tt.ID].Type.Kind == event.Int64 {
				var n int64
				fmt.Sscan(id, &n)
				values[tt.ID] = event.Value{Int: n}
			}
			body, err := tt.AppendRow(nil, values, op)
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, event.Event{ID: event.NewID(), Table: table, Tenant: fmt.Sprint(owner), EntityID: id, Op: op,
				Time: time.Now().UTC().Truncate(time.Microsecond), Body: body})
			rows[table][fmt.Sprintf("%d/%s", owner, id)] = values
			if op == event.Delete {
				rows[table][fmt.Sprintf("%d/%s", owner, id)] = nil
			}
		}
		for n := range 300 {
			owner := int64(n%7) - 3
			add("things", owner, fmt.Sprintf("T%d", n), event.Upsert, thingValues(rng, w.cfg.Table("things")))
			add("plain", owner, fmt.Sprint(n-150), event.Upsert, thingValues(rng, w.cfg.Table("plain")))
			add("exact", owner, fmt.Sprint(n-150), event.Upsert, thingValues(rng, w.cfg.Table("exact")))
			if n%10 == 0 {
				add("things", owner, fmt.Sprintf("T%d", n), event.Delete, make([]event.Value, len(w.cfg.Table("things").Columns)))
				add("exact", owner, fmt.Sprint(n-150), event.Delete, make([]event.Value, len(w.cfg.Table("exact").Columns)))
			}
		}
		w.append(t, events...)
		w.waitDrained(t, time.Minute)
		if out := w.run(t, 0, "replay", "verify", "--against", store); !strings.Contains(out, " 900 equal, 0 of them but for dead letters, 0 differ") {
			t.Errorf("a comparison where nothing differs:\n%s", out)
		}

		sink := w.sink(t)
		for table, want := range rows {
			tt, found := w.cfg.Table(table), 0
			sums := map[string]uint64{}
			for owner := int64(-3); owner <= 3; owner++ {
				var shards []rowsum.Item
				for _, db := range w.shards {
					list, err := mysql.RowSums(t.Context(), db, tt, table, fmt.Sprint(owner), nil, nil, 1000)
					if err != nil {
						t.Fatal(err)
					}
					shards = append(shards, list...)
				}
				stored, err := sink.RowSums(t.Context(), tt, partitioner.NoMonth, fmt.Sprint(owner), nil, nil, nil, 1000)
				if err != nil {
					t.Fatal(err)
				}
				for side, list := range map[string][]rowsum.Item{"the shard": shards, store: stored} {
					for _, i := range list {
						values := want[fmt.Sprintf("%d/%s", owner, i.Key)]
						if values == nil { // deleted: tenant and id count
							values = make([]event.Value, len(tt.Columns))
							values[tt.Tenant], values[tt.ID] = event.Value{Int: owner}, event.Value{Bytes: []byte(i.Key)}
							if tt.Columns[tt.ID].Type.Kind == event.Int64 {
								fmt.Sscan(i.Key, &values[tt.ID].Int)
							}
						}
						sum := rowsum.Of(tt, &event.Row{Values: values}, i.Ver)
						if sum != i.Sum {
							t.Errorf("seed %d, %s %d %s: the sum in %s is another than Go's: %+v", seed, table, owner, i.Key, side, values)
						}
						if side == store {
							sums[fmt.Sprint(owner)] += sum
						}
						found++
					}
				}
			}
			if found != 600 {
				t.Errorf("%s: %d rows found in both stores, want 600", table, found)
			}
			if sink.ByRow(tt) { // its sums say nothing
				continue
			}
			list, err := sink.TenantSums(t.Context(), tt, []partitioner.Month{partitioner.NoMonth}, nil, nil, 1000)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range list {
				if i.Sum != sums[i.Key] {
					t.Errorf("seed %d, %s %s: the sum of %d rows in %s is not that of the rows", seed, table, i.Key, i.Rows, store)
				}
				delete(sums, i.Key)
			}
			if len(sums) > 0 {
				t.Errorf("%s sums up all tenants but %v", store, sums)
			}
		}

		if store == "clickhouse" {
			events = nil
			values := thingValues(rng, w.cfg.Table("plain"))
			values[7] = event.Value{Int: -40000} // a day of 1860: MySQL holds it, and Doris does
			add("plain", 1, "1000", event.Upsert, values)
			w.append(t, events...)
			w.waitDrained(t, time.Minute)
			if out := w.run(t, 0, "replay", "verify", "--against", store, "--tables", "plain"); !strings.Contains(out, "301 rows in 2 tables, 301 equal, 1 of them but for dead letters, 0 differ") {
				t.Errorf("a dead letter of %s:\n%s", store, out)
			}
		}
		for name, db := range w.shards { // JSON is compared by value, and is compared
			if _, err := db.Exec(`UPDATE things SET o='{"harmed":1}' WHERE thing='T7'`); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if r := w.replayCommand(t, "verify", "--against", store); r.Code != 3 || !strings.Contains(r.Stderr, "things -3 T7  ") || !strings.Contains(r.Stdout, " 1 differ") {
			t.Errorf("harmed JSON: exit status %d\n%s%s", r.Code, r.Stdout, r.Stderr)
		}
		run.Stop(t, time.Minute)
	})
}

// Rows are harmed on either side, while events keep coming: each is named, with the side that is wrong, and no other.
func TestP6_AgainstOLAPNamesTheWrongSide(t *testing.T) {
	harness.Proof(t)
	eachOLAP(t, func(t *testing.T, store string) {
		w := newLineOn(t, store, "")
		flights, _ := replayFlights(t, 100, 2)
		run := w.start(t, "run")
		w.emit(t, flights[0], 1)
		w.waitDrained(t, time.Minute)
		s1, s2 := w.shards["s1"], w.shards["s2"]
		named := damage(t, s1)
		rows := rowsToHarm(t, s2, "flights_201304")
		is := func(r flightKey) string { return fmt.Sprintf("carrier='%s' AND flight_id=%d", r.carrier, r.id) }
		columns := "carrier,flight_id,sched_dep,origin,dest,status,cancelled,dep_delay,arr_delay,distance,_ver"
		w.remove(t, is(rows[0]))
		w.change(t, "status", "'harmed'", is(rows[1]))
		stored, from := columns+",_deleted", "FROM flights FINAL WHERE "
		if store == "doris" {
			stored, from = columns+",_deleted,_month", "FROM flights WHERE "
		}
		w.insert(t, stored, strings.Replace(stored, "flight_id", "flight_id+7000000", 1), from+is(rows[2]))
		for _, statement := range []string{ // a row that is in two shards
			"CREATE TABLE IF NOT EXISTS flights_201304 LIKE " + databaseOf(t, s2) + ".flights_201304",
			"INSERT INTO flights_201304 (" + columns + ") SELECT " + columns + " FROM " + databaseOf(t, s2) + ".flights_201304 WHERE " + is(rows[3]),
			"UPDATE airports SET flights=flights+1 LIMIT 1",
		} {
			if _, err := s1.Exec(statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}

		var emitting sync.WaitGroup
		emitting.Go(func() { w.emit(t, flights[1], 2) })
		r := w.replayCommand(t, "verify", "--against", store)
		emitting.Wait()
		t.Logf("%s%s", r.Stderr, r.Stdout)
		if strings.Contains(r.Stderr, "SL7516") { // so busy a machine that a sink stood still for ten seconds
			w.waitDrained(t, time.Minute)
			r = w.replayCommand(t, "verify", "--against", store)
			t.Logf("%s%s", r.Stderr, r.Stdout)
		}
		if r.Code != 3 {
			t.Errorf("the comparison ends with %d", r.Code)
		}
		wrong := map[string]string{} // of each line that names a row
		for line := range strings.SplitSeq(r.Stderr, "\n") {
			if _, at, ok := strings.Cut(line, " verify   "); ok && strings.HasSuffix(at, " wrong)") {
				name, rest, _ := strings.Cut(at, "  ")
				_, side, _ := strings.Cut(rest, "  (")
				wrong[name] = side
			}
		}
		want := map[string]string{}
		for _, text := range named { // "flights_201303 UA 1545  missing"
			name, _, _ := strings.Cut(text, "  ")
			want[strings.Replace(name, "_", " ", 1)] = "s1 is wrong)"
		}
		name := func(r flightKey, more uint64) string {
			return fmt.Sprintf("flights 201304 %s %d", r.carrier, r.id+more)
		}
		storeIsWrong := store + " is wrong)"
		want[name(rows[0], 0)], want[name(rows[1], 0)], want[name(rows[2], 7_000_000)] = storeIsWrong, storeIsWrong, storeIsWrong
		want[name(rows[3], 0)] = "s1 is wrong)"
		if !strings.Contains(r.Stderr, "it is in s1 flights_201304 and s2 flights_201304") {
			t.Error("the row that is in two shards is not said to be")
		}
		for name, side := range want {
			if wrong[name] != side {
				t.Errorf("%s: said %q, want %q", name, wrong[name], side)
			}
			delete(wrong, name)
		}
		for name, side := range wrong {
			if !strings.HasPrefix(name, "airports ") || side != "s1 is wrong)" {
				t.Errorf("%s is named too: %s", name, side)
			}
			delete(wrong, name)
		}
		// One shard alone: its own rows, and none of the other's.
		w.waitDrained(t, time.Minute)
		if r := w.replayCommand(t, "verify", "--against", store, "--shard", "s2", "--rate", "100000"); r.Code != 3 || !strings.Contains(r.Stdout, " 3 differ") {
			t.Errorf("s2 alone: exit status %d\n%s%s", r.Code, r.Stdout, r.Stderr)
		}
		run.Stop(t, time.Minute)

		// A sink that is stopped is lag, and no difference.
		relay, sink := w.start(t, "relay"), w.start(t, "sink", store)
		w.append(t, rawEvent("UA", 8_000_000, 0, flightBody("UA", 8_000_000, "2013-04-03T04:05:06.000000Z", `"LAX"`, "1")))
		until(t, store+" has the row", time.Minute, func() bool { return len(w.read(t, "flight_id", "flights_now WHERE flight_id=8000000")) == 1 })
		if r := w.replayCommand(t, "verify", "--against", store, "--shard", "s1", "--tables", "flights"); r.Code != 1 || !strings.Contains(r.Stderr, "SL7516") ||
			!strings.Contains(r.Stderr, "rows differ, and no moment") {
			t.Errorf("with a sink stopped: exit status %d\n%s%s", r.Code, r.Stdout, r.Stderr)
		}
		relay.Stop(t, time.Minute)
		sink.Stop(t, time.Minute)
	})
}

// databaseOf is the name of the database that a pool is connected to.
func databaseOf(t *testing.T, db *sql.DB) (name string) {
	t.Helper()
	if err := db.QueryRow("SELECT DATABASE()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	return name
}
