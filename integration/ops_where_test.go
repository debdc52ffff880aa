package integration

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/examples/flights/nyc"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/internal/line"
	"github.com/slotline/slotline/producer"
)

// where asks for an entity and checks the exit status.
func (w *wholeLine) where(t *testing.T, status int, args ...string) line.Where {
	t.Helper()
	return whereIn(t, w.file, status, args...)
}

func whereIn(t *testing.T, file string, status int, args ...string) (found line.Where) {
	t.Helper()
	r := harness.Command{Args: append([]string{"-c", file, "where", "-o", "json"}, args...), Name: "where"}.Run(t, time.Minute)
	if r.Code != status {
		t.Fatalf("slotline where %v: exit status %d, want %d\n%s%s", args, r.Code, status, r.Stdout, r.Stderr)
	}
	if err := json.Unmarshal([]byte(r.Stdout), &found); err != nil {
		t.Fatal(err)
	}
	return found
}

// verdicts are what where says of each store: "mysql/s1 applied".
func verdicts(w line.Where) (list []string) {
	for _, s := range w.Stores {
		list = append(list, s.Store+" "+s.Verdict)
	}
	return list
}

// where follows an entity from the outbox to the stores, and names what keeps it from one.
func TestWhereFollowsAnEntity(t *testing.T) {
	harness.Proof(t)
	w := newLine(t, sharedServers(t), "")
	const dep, month = "2013-02-03T04:05:06.000000Z", 201302
	image := func(dest string) event.Event {
		return rawEvent("DL", 1545, month, flightBody("DL", 1545, dep, dest, "1"))
	}
	shard := "mysql/" + w.layout.ShardName(w.layout.Route("DL", "1545").Shard) // DL is spread over both, by the id
	db := w.shards[strings.TrimPrefix(shard, "mysql/")]
	expect := func(status int, outbox, published, events int, want ...string) line.Where {
		t.Helper()
		found := w.where(t, status, "flights", "DL", "1545")
		n := 0
		for _, r := range found.Outbox {
			if r.Published {
				n++
			}
		}
		if len(found.Outbox) != outbox || n != published || len(found.Log) != 1 || len(found.Log[0].Events) != events || !slices.Equal(verdicts(found), want) {
			t.Fatalf("found %+v\nwant %d rows in the outbox, %d published, %d in Kafka, %v", found, outbox, published, events, want)
		}
		return found
	}
	expect(0, 0, 0, 0, shard+" not_there", "clickhouse not_there")
	w.append(t, image(`"LAX"`))
	expect(0, 1, 0, 0, shard+" not_there", "clickhouse not_there")

	relay := w.start(t, "relay")
	w.waitPublished(t)
	expect(0, 1, 1, 1, shard+" behind", "clickhouse behind")
	if _, err := db.Exec("UPDATE slotline_progress SET halted_at = UTC_TIMESTAMP(6), halt_code = 'SL6001', halt_text = 'on purpose'"); err != nil {
		t.Fatal(err)
	}
	expect(4, 1, 1, 1, shard+" halted", "clickhouse behind")

	sinks := w.start(t, "run")
	relay.Stop(t, 30*time.Second)
	w.append(t, image(`"SFO"`), image(`"TOOLONG"`))
	w.waitDrained(t, time.Minute)
	found := expect(0, 3, 3, 3, shard+" dead_letter", "clickhouse dead_letter")
	if len(found.DeadLetters) != 2 || found.Stores[0].Rows[0].Version != found.Log[0].Events[1].Version || found.Stores[0].Rows[0].Table != "flights_201302" {
		t.Errorf("found %+v", found)
	}
	remove := rawEvent("DL", 1545, month, fmt.Sprintf(`{"carrier":"DL","flight_id":1545,"sched_dep":%q}`, dep))
	remove.Op = event.Delete
	w.append(t, remove)
	w.waitDrained(t, time.Minute)
	if found = expect(0, 4, 4, 4, shard+" applied", "clickhouse applied"); !found.Stores[0].Rows[0].Deleted || !found.Stores[1].Rows[0].Deleted {
		t.Errorf("a deleted entity: %+v", found.Stores)
	}
	if r := sinks.Stop(t, 30*time.Second); r.Code != 0 {
		t.Errorf("slotline run ended with status %d", r.Code)
	}

	// A row that somebody removed, and one that is in two months.
	if _, err := db.Exec("CREATE TABLE flights_201303 LIKE flights_201302"); err != nil {
		t.Fatal(err)
	}
	const columns = "carrier, flight_id, sched_dep, origin, dest, status, cancelled, dep_delay, arr_delay, distance, _ver"
	if _, err := db.Exec("INSERT INTO flights_201303 (" + columns + ") SELECT " + columns + " FROM flights_201302"); err != nil {
		t.Fatal(err)
	}
	expect(3, 4, 4, 4, shard+" twice", "clickhouse applied")
	if found := w.where(t, 0, "flights", "DL", "1545", "--month", "2013-02"); len(found.Stores[0].Rows) != 1 {
		t.Errorf("in one month: %+v", found.Stores[0])
	}
	for _, table := range []string{"flights_201302", "flights_201303"} {
		if _, err := db.Exec("DELETE FROM " + table); err != nil {
			t.Fatal(err)
		}
	}
	expect(3, 4, 4, 4, shard+" missing", "clickhouse applied")

	// Stages that are down are named, and hide none of the others.
	found = whereIn(t, w.write(t, strings.ReplaceAll(w.text(t), w.kafka.Brokers[0], "127.0.0.1:1")), 1, "flights", "DL", "1545")
	if len(found.NotAsked) != 1 || found.NotAsked[0].Stage != "kafka" || len(found.Outbox) != 4 || found.Stores[1].Verdict != line.VerdictApplied {
		t.Errorf("without Kafka: %+v", found)
	}
	s := w.text(t)
	at := strings.Index(s, "outbox: { dsn: ")
	end := at + strings.Index(s[at:], "\n")
	down := s[:at] + `outbox: { dsn: "mysql://u:p@127.0.0.1:1/nowhere", lanes: 4, lease_time: 1s }` + s[end:]
	found = whereIn(t, w.write(t, down), 3, "flights", "DL", "1545")
	var stages []string
	for _, n := range found.NotAsked {
		stages = append(stages, n.Stage)
	}
	if !slices.Equal(stages, []string{"clickhouse", "outbox"}) || len(found.Log[0].Events) != 4 || found.Stores[0].Verdict != line.VerdictMissing {
		t.Errorf("without the outbox database, which also holds the state of ClickHouse: %+v", found)
	}
}

// A broadcast row is looked for in every shard.
func TestWhereOfABroadcastTable(t *testing.T) {
	t.Parallel()
	w := newLine(t, sharedServers(t), "")
	p := producer.New(w.cfg)
	airports := producer.MustRegister[nyc.Airport](p, "airports")
	err := p.Run(t.Context(), w.outbox, func(tx *producer.Tx) error {
		return p.Emit(t.Context(), tx, airports.Upsert(nyc.Airport{Code: "JFK"}))
	})
	if err != nil {
		t.Fatal(err)
	}
	run := w.start(t, "run")
	w.waitDrained(t, time.Minute)
	if found := w.where(t, 0, "airports", "JFK"); !slices.Equal(verdicts(found), []string{"mysql/s1 applied", "mysql/s2 applied", "clickhouse applied"}) {
		t.Errorf("found %+v", found)
	}
	for _, args := range [][]string{{"airports", "UA", "JFK"}, {"flights", "JFK"}, {"flights", "UA", "x"}, {"nothing", "UA", "1"}} {
		r := harness.Command{Args: append([]string{"-c", w.file, "where"}, args...), Name: "where-wrong"}.Run(t, time.Minute)
		if r.Code != 2 || !strings.Contains(r.Stderr, "SL9017") {
			t.Errorf("where %v: exit status %d\n%s", args, r.Code, r.Stderr)
		}
	}
	if r := run.Stop(t, 30*time.Second); r.Code != 0 {
		t.Errorf("slotline run ended with status %d", r.Code)
	}
}

// waitPublished waits until the relay has nothing left to publish.
func (w *wholeLine) waitPublished(t *testing.T) {
	t.Helper()
	deadline := harness.Deadline(time.Minute)
	for {
		backlog := int64(0)
		for _, l := range w.status(t).Lanes {
			backlog += l.Backlog
		}
		if backlog == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the relay did not publish everything within a minute")
		}
	}
}
