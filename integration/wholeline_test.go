package integration

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/ch-go/proto"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/examples/flights/nyc"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/producer"
)

// wholeLine is one line on real servers: an outbox database, two shards, a topic and a ClickHouse database.
type wholeLine struct {
	name   string
	file   string
	cfg    *config.Config
	layout *partitioner.Layout
	outbox *sql.DB
	shards map[string]*sql.DB
	ch     *harness.ClickHouseServer
	chDB   string
	kafka  *harness.KafkaServer
}

// lineServers are the servers of a line; a test that stops one gives its own.
type lineServers struct {
	kafka  *harness.KafkaServer
	outbox *harness.MySQLServer
	s1, s2 *harness.MySQLServer
	ch     *harness.ClickHouseServer
}

func sharedServers(t *testing.T) lineServers {
	my := harness.MySQL(t)
	return lineServers{kafka: harness.Kafka(t), outbox: my, s1: my, s2: my, ch: harness.ClickHouse(t)}
}

// newLine writes a configuration in which UA is dedicated and DL spread over four slots, and applies it.
func newLine(t *testing.T, s lineServers, extra string) *wholeLine {
	t.Helper()
	return newLineAt(t, s, harness.Name(t), extra).applied(t)
}

// applied applies the line's file.
func (w *wholeLine) applied(t *testing.T) *wholeLine {
	t.Helper()
	var err error
	if w.cfg, err = config.Load(w.file); err != nil {
		t.Fatal(err)
	}
	w.run(t, 0, "apply")
	var body string
	if err := w.outbox.QueryRow("SELECT body FROM slotline_layout").Scan(&body); err != nil {
		t.Fatal(err)
	}
	spec, err := partitioner.ParseSpec([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	if w.layout, err = partitioner.New(spec); err != nil {
		t.Fatal(err)
	}
	return w
}

// newLineAt is newLine without the apply.
func newLineAt(t *testing.T, s lineServers, name, extra string) *wholeLine {
	t.Helper()
	w := &wholeLine{name: name, ch: s.ch, kafka: s.kafka, shards: map[string]*sql.DB{}}
	s.kafka.Topics(t, w.name)
	outboxDB := s.outbox.NewDatabase(t, w.name+"_outbox")
	s1 := s.s1.NewDatabase(t, w.name+"_s1")
	s2 := s.s2.NewDatabase(t, w.name+"_s2")
	w.chDB = s.ch.NewDatabase(t, w.name)
	w.file = filepath.Join(t.TempDir(), "slotline.yaml")
	text := fmt.Sprintf(`line: %s
kafka: { brokers: [%q], partitions: 8, replication: 1 }
layout:
  epoch: 1
  tenants:
    UA: { slots: { 100000: s1 } }
    DL: { slots: { 100001-100002: s1, 100003-100004: s2 } }
shards:
  s1: { dsn: %q, slots: 0-511 }
  s2: { dsn: %q, slots: 512-1023 }
tables:
  flights:
    tenant: carrier
    id: flight_id
    month: sched_dep
    spread: flight_id
    columns: %s
    indexes: [[carrier, origin, sched_dep]]
  airports: { id: code, columns: %s }
months: { from: 2012-12, ahead: 1 }
outbox: { dsn: %q, lanes: 4, lease_time: 1s }
sinks:
  clickhouse: { dsn: %q, groups: 2, batch_age: 200ms }
http: { listen: "127.0.0.1:0" }
%s`, w.name, s.kafka.Brokers[0], s.s1.URL(s1), s.s2.URL(s2), nyc.Columns, nyc.AirportColumns, s.outbox.URL(outboxDB),
		s.ch.URL(w.chDB), extra)
	if err := os.WriteFile(w.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if w.cfg, err = config.Load(w.file); err != nil {
		t.Fatal(err)
	}
	w.outbox = s.outbox.Open(t, outboxDB)
	w.shards["s1"], w.shards["s2"] = s.s1.Open(t, s1), s.s2.Open(t, s2)
	return w
}

// text is the line's configuration; write puts another one beside it.
func (w *wholeLine) text(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(w.file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (w *wholeLine) write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "slotline.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// run runs one command on the line to its end and returns its stdout.
func (w *wholeLine) run(t *testing.T, status int, args ...string) string {
	t.Helper()
	r := harness.Command{Args: append([]string{"-c", w.file}, args...), Name: strings.Join(args, "-")}.Run(t, time.Minute)
	if r.Code != status {
		t.Fatalf("slotline %v: exit status %d, want %d\n%s%s", args, r.Code, status, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

func (w *wholeLine) start(t *testing.T, args ...string) *harness.Process {
	return harness.Command{Args: append([]string{"-c", w.file}, args...), Name: strings.Join(args, "-")}.Start(t)
}

// emission is what a load has done: committed events, and transactions rolled back.
type emission struct {
	committed  atomic.Int64
	rolledBack atomic.Int64
	singles    atomic.Int64
}

var errRollBack = errors.New("rolled back on purpose")

// emit plays the life of flights from 8 goroutines, each owning its flights, in transactions of 20 to 100 events (a few
// thousand of one), a tenth of which are rolled back after emitting images that no figure may ever show.
func (w *wholeLine) emit(t *testing.T, flights []nyc.Flight, seed uint64) *emission {
	t.Helper()
	p := producer.New(w.cfg)
	rows := producer.MustRegister[nyc.Row](p, "flights")
	airports := producer.MustRegister[nyc.Airport](p, "airports")
	e := &emission{}
	ctx := t.Context()

	commit := func(events []producer.Event) error {
		for {
			err := p.Run(ctx, w.outbox, func(tx *producer.Tx) error { return p.Emit(ctx, tx, events...) })
			if errors.Is(err, producer.ErrBacklogged) {
				select { // the relay is being restarted, or behind; a service would answer 503
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(50 * time.Millisecond):
				}
				continue
			}
			if err == nil {
				e.committed.Add(int64(len(events)))
			}
			return err
		}
	}
	ports := nyc.Airports(flights)
	batch := make([]producer.Event, len(ports))
	for i := range ports {
		batch[i] = airports.Upsert(ports[i])
	}
	if err := commit(batch); err != nil {
		t.Fatal(err)
	}

	const writers = 8
	errs := make(chan error, writers)
	var wg sync.WaitGroup
	for g := range writers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(g)))
			var pending []producer.Event
			want := 20 + rng.IntN(81)
			flush := func() error {
				if rng.IntN(10) == 0 {
					poison := make([]producer.Event, 0, len(pending))
					for range len(pending) {
						f := &flights[rng.IntN(len(flights))]
						poison = append(poison, rows.Upsert(nyc.Row{Carrier: f.Carrier, FlightID: f.ID, SchedDep: f.SchedDep,
							Origin: f.Origin, Dest: f.Dest, Status: "poison", Distance: 1_000_000}))
					}
					err := p.Run(ctx, w.outbox, func(tx *producer.Tx) error {
						if err := p.Emit(ctx, tx, poison...); err != nil {
							return err
						}
						return errRollBack
					})
					if !errors.Is(err, errRollBack) && !errors.Is(err, producer.ErrBacklogged) {
						return fmt.Errorf("a transaction that fails returned %w", err)
					}
					e.rolledBack.Add(1)
				}
				if len(pending) == 1 {
					e.singles.Add(1)
				}
				if err := commit(pending); err != nil {
					return err
				}
				pending, want = pending[:0], 20+rng.IntN(81)
				if rng.IntN(4) == 0 {
					want = 1
				}
				return nil
			}
			// Flights overlap: each waits with its next steps while others begin, as in a day at an airport.
			type waiting struct{ steps []nyc.Step }
			var open []waiting
			next := g
			for {
				for len(open) < 64 && next < len(flights) {
					open = append(open, waiting{nyc.Life(&flights[next], rng)})
					next += writers
				}
				if len(open) == 0 {
					break
				}
				i := rng.IntN(len(open))
				s := open[i].steps[0]
				if s.Delete {
					pending = append(pending, rows.Delete(s.Row))
				} else {
					pending = append(pending, rows.Upsert(s.Row))
				}
				if open[i].steps = open[i].steps[1:]; len(open[i].steps) == 0 {
					open[i] = open[len(open)-1]
					open = open[:len(open)-1]
				}
				if len(pending) >= want {
					if err := flush(); err != nil {
						errs <- err
						return
					}
				}
			}
			if len(pending) > 0 {
				if err := flush(); err != nil {
					errs <- err
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		t.Fatalf("emit: %v", err)
	default:
	}
	return e
}

type lineStatus struct {
	Lanes []struct {
		Backlog int64 `json:"backlog"`
	} `json:"lanes"`
	Sinks []struct {
		Name string `json:"name"`
		Lag  int64  `json:"lag"`
	} `json:"sinks"`
	Halted []struct {
		Sink      string `json:"sink"`
		Partition int32  `json:"partition"`
		Text      string `json:"text"`
	} `json:"halted"`
}

func (w *wholeLine) status(t *testing.T) lineStatus {
	t.Helper()
	r := harness.Command{Args: []string{"-c", w.file, "status", "-o", "json"}, Name: "status"}.Run(t, time.Minute)
	var s lineStatus
	if err := json.Unmarshal([]byte(r.Stdout), &s); err != nil {
		t.Fatalf("slotline status -o json: %v, exit status %d\n%s%s", err, r.Code, r.Stdout, r.Stderr)
	}
	return s
}

// waitDrained waits until nothing is unpublished and no sink lags, twice in a row.
func (w *wholeLine) waitDrained(t *testing.T, limit time.Duration) {
	t.Helper()
	deadline := harness.Deadline(limit)
	quiet := 0
	for quiet < 2 {
		s := w.status(t)
		busy := len(s.Lanes) == 0 || len(s.Sinks) == 0
		for _, l := range s.Lanes {
			busy = busy || l.Backlog > 0
		}
		for _, k := range s.Sinks {
			busy = busy || k.Lag > 0
		}
		if busy {
			quiet = 0
		} else {
			quiet++
		}
		if time.Now().After(deadline) {
			t.Fatalf("not drained within %v: %+v", limit, s)
		}
		time.Sleep(200 * time.Millisecond) // a poll: the loop ends by the state it reads
	}
}

// shardFigures sums what readers of the shards see.
func (w *wholeLine) shardFigures(t *testing.T) map[nyc.Bucket]nyc.Figures {
	t.Helper()
	out := map[nyc.Bucket]nyc.Figures{}
	for name, db := range w.shards {
		for _, table := range w.monthTables(t, db, "flights") {
			rows, err := db.Query("SELECT carrier, COUNT(*), SUM(cancelled), SUM(distance), IFNULL(SUM(arr_delay),0), COUNT(arr_delay) FROM " +
				table + " WHERE _deleted = 0 GROUP BY carrier")
			if err != nil {
				t.Fatalf("shard %s: %v", name, err)
			}
			for rows.Next() {
				b := nyc.Bucket{Month: strings.TrimPrefix(table, "flights_")}
				var f nyc.Figures
				if err := rows.Scan(&b.Carrier, &f.Flights, &f.Cancelled, &f.Distance, &f.ArrDelaySum, &f.ArrDelayCount); err != nil {
					t.Fatal(err)
				}
				sum := out[b]
				sum.Flights += f.Flights
				sum.Cancelled += f.Cancelled
				sum.Distance += f.Distance
				sum.ArrDelaySum += f.ArrDelaySum
				sum.ArrDelayCount += f.ArrDelayCount
				out[b] = sum
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return out
}

func (w *wholeLine) monthTables(t *testing.T, db *sql.DB, table string) []string {
	t.Helper()
	rows, err := db.Query(`SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()
		AND table_name LIKE ? ORDER BY table_name`, table+`\_2%`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		out = append(out, name)
	}
	return out
}

// checkPlaces reads every row, deleted ones too, and shows that it is in the shard and month that the layout says, and in
// no other (P6).
func (w *wholeLine) checkPlaces(t *testing.T) {
	t.Helper()
	type entity struct {
		carrier string
		id      uint64
	}
	seen := map[entity]string{}
	perShard := map[string]int{}
	for name, db := range w.shards {
		for _, table := range w.monthTables(t, db, "flights") {
			rows, err := db.Query("SELECT carrier, flight_id, sched_dep FROM " + table)
			if err != nil {
				t.Fatal(err)
			}
			for rows.Next() {
				var e entity
				var dep sql.NullTime
				if err := rows.Scan(&e.carrier, &e.id, &dep); err != nil {
					t.Fatal(err)
				}
				here := name + "." + table
				if other, twice := seen[e]; twice {
					t.Errorf("%v is in %s and in %s", e, other, here)
				}
				seen[e] = here
				perShard[name]++
				shard := w.layout.ShardName(w.layout.Route(e.carrier, fmt.Sprint(e.id)).Shard)
				if want := fmt.Sprintf("%s.flights_%s", shard, dep.Time.UTC().Format("200601")); want != here {
					t.Errorf("%v is in %s, its layout says %s", e, here, want)
				}
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if perShard["s1"] == 0 || perShard["s2"] == 0 {
		t.Errorf("rows per shard: %v: one holds none", perShard)
	}
	t.Logf("rows per shard, deleted ones too: %v", perShard)
}

// checkAirports shows that the broadcast table is once, and equal, in every shard.
func (w *wholeLine) checkAirports(t *testing.T, want []nyc.Airport) {
	t.Helper()
	for name, db := range w.shards {
		got := map[string]int32{}
		rows, err := db.Query("SELECT code, flights FROM airports WHERE _deleted = 0")
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var a nyc.Airport
			if err := rows.Scan(&a.Code, &a.Flights); err != nil {
				t.Fatal(err)
			}
			got[a.Code] = a.Flights
		}
		if len(got) != len(want) {
			t.Errorf("shard %s has %d airports, want %d", name, len(got), len(want))
		}
		for _, a := range want {
			if got[a.Code] != a.Flights {
				t.Errorf("shard %s, airport %s: %d flights, want %d", name, a.Code, got[a.Code], a.Flights)
			}
		}
	}
}

// clickhouseFigures sums what readers of the view see.
func (w *wholeLine) clickhouseFigures(t *testing.T) map[nyc.Bucket]nyc.Figures {
	t.Helper()
	client := w.ch.Dial(t, w.chDB)
	out := map[nyc.Bucket]nyc.Figures{}
	var carrier, month proto.ColStr
	var flights, cancelled, distance, sum, cnt proto.ColInt64
	err := client.Do(t.Context(), ch.Query{
		Body: `SELECT toString(carrier) AS carrier, toString(toYYYYMM(sched_dep, 'UTC')) AS month, toInt64(count()) AS flights,
			toInt64(sum(cancelled)) AS cancelled, toInt64(sum(distance)) AS distance, toInt64(ifNull(sum(arr_delay), 0)) AS delay,
			toInt64(count(arr_delay)) AS arrived FROM flights_now GROUP BY carrier, month`,
		Result: proto.Results{{Name: "carrier", Data: &carrier}, {Name: "month", Data: &month}, {Name: "flights", Data: &flights},
			{Name: "cancelled", Data: &cancelled}, {Name: "distance", Data: &distance}, {Name: "delay", Data: &sum},
			{Name: "arrived", Data: &cnt}},
		OnResult: func(context.Context, proto.Block) error {
			for i := range flights {
				out[nyc.Bucket{Carrier: carrier.Row(i), Month: month.Row(i)}] = nyc.Figures{Flights: flights[i],
					Cancelled: cancelled[i], Distance: distance[i], ArrDelaySum: sum[i], ArrDelayCount: cnt[i]}
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// compare names every figure that differs.
func compare(t *testing.T, where string, got, want map[nyc.Bucket]nyc.Figures) {
	t.Helper()
	if maps.Equal(got, want) && len(want) > 0 {
		t.Logf("%s: %d buckets of carrier and month equal the CSV", where, len(want))
		return
	}
	for b := range want {
		if got[b] != want[b] {
			t.Errorf("%s, %s %s: %+v, the CSV says %+v", where, b.Carrier, b.Month, got[b], want[b])
		}
	}
	for b := range got {
		if _, ok := want[b]; !ok {
			t.Errorf("%s, %s %s: %+v, the CSV has none", where, b.Carrier, b.Month, got[b])
		}
	}
	if len(want) == 0 {
		t.Errorf("%s: nothing was compared", where)
	}
}

// topicCount reads the whole topic: distinct event ids, records in all, and how many rolled-back images are among them.
type topicCount struct{ distinct, records, poison int }

func (w *wholeLine) readTopic(t *testing.T) topicCount {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(w.kafka.Brokers...), kgo.ConsumeTopics(w.cfg.Kafka.Topic),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords()) // a partition may end with one
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	ids := map[string]bool{}
	var n topicCount
	for ends := w.endOffsets(t, cl); len(ends) > 0; {
		fetches := cl.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			t.Fatalf("reading the topic: %v; missing up to %v", err, ends)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset+1 >= ends[r.Partition] {
				delete(ends, r.Partition)
			}
			if r.Attrs.IsControl() {
				return
			}
			n.records++
			if strings.Contains(string(r.Value), `"poison"`) {
				n.poison++
			}
			for _, h := range r.Headers {
				if h.Key == "ce_id" {
					ids[string(h.Value)] = true
				}
			}
		})
	}
	n.distinct = len(ids)
	return n
}

// endOffsets is the end of each partition that holds records.
func (w *wholeLine) endOffsets(t *testing.T, cl *kgo.Client) map[int32]int64 {
	t.Helper()
	ends, err := listEnds(t.Context(), cl, w.cfg.Kafka.Topic)
	if err != nil {
		t.Fatal(err)
	}
	return ends
}

// produceAgain appends the first records of every partition a second time, n in all, as repeats that come late. It returns
// how many it appended.
func (w *wholeLine) produceAgain(t *testing.T, n int) (repeats int) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(w.kafka.Brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ends := w.endOffsets(t, cl)
	for p, end := range ends {
		left := min(int64(n/len(ends)), end)
		cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{w.cfg.Kafka.Topic: {p: kgo.NewOffset().AtStart()}})
		for left > 0 {
			var again []*kgo.Record
			cl.PollRecords(ctx, int(min(left, 1000))).EachRecord(func(r *kgo.Record) {
				again = append(again, &kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Headers: r.Headers})
			})
			if err := ctx.Err(); err != nil {
				t.Fatal(err)
			}
			if err := cl.ProduceSync(ctx, again...).FirstErr(); err != nil {
				t.Fatal(err)
			}
			left -= int64(len(again))
			repeats += len(again)
		}
		cl.RemoveConsumePartitions(map[string][]int32{w.cfg.Kafka.Topic: {p}})
	}
	return repeats
}

// part returns the share of the flights that a run plays: SLOTLINE_SOAK=1 plays all.
func part(id uint64) bool { return os.Getenv("SLOTLINE_SOAK") != "" || id%10 == 3 }

func listEnds(ctx context.Context, cl *kgo.Client, topic string) (map[int32]int64, error) {
	listed, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := map[int32]int64{}
	for _, o := range listed[topic] {
		if o.Err != nil {
			return nil, o.Err
		}
		if o.Offset > 0 {
			out[o.Partition] = o.Offset
		}
	}
	return out, nil
}

func reference(t *testing.T, keep func(uint64) bool) ([]nyc.Flight, map[nyc.Bucket]nyc.Figures) {
	t.Helper()
	flights, err := nyc.Flights(keep)
	if err != nil {
		t.Fatal(err)
	}
	want, err := nyc.Reference(nyc.CSV(), keep)
	if err != nil {
		t.Fatal(err)
	}
	return flights, want
}

func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("SEED=%s: %v", s, err)
		}
		seed = n
	}
	t.Logf("seed %d (SEED=%d repeats it)", seed, seed)
	return seed
}

// checkLine compares everything that the line promises of a drained load.
func (w *wholeLine) checkLine(t *testing.T, e *emission, repeats int, flights []nyc.Flight, want map[nyc.Bucket]nyc.Figures) {
	t.Helper()
	n := w.readTopic(t)
	t.Logf("emitted %d events in transactions that committed (%d of one event), %d transactions rolled back; topic: %d events, %d records",
		e.committed.Load(), e.singles.Load(), e.rolledBack.Load(), n.distinct, n.records)
	if int64(n.distinct) != e.committed.Load() {
		t.Errorf("P1: the topic holds %d events, %d were committed", n.distinct, e.committed.Load())
	}
	if n.poison > 0 {
		t.Errorf("P1: %d events of rolled-back transactions are in the topic", n.poison)
	}
	if repeats >= 0 && n.records != n.distinct+repeats {
		t.Errorf("%d records for %d events and %d forced repeats: the relay sent some twice without a kill", n.records, n.distinct, repeats)
	}
	compare(t, "shards", w.shardFigures(t), want)
	compare(t, "clickhouse", w.clickhouseFigures(t), want)
	w.checkPlaces(t)
	w.checkAirports(t, nyc.Airports(flights))
	if s := w.status(t); len(s.Halted) > 0 {
		t.Errorf("halted: %+v", s.Halted)
	}
}

// All flights of 2013 as a million events, through the real binary: every figure, in shards and in ClickHouse, equals
// the CSV, with repeats in the topic and a shard's progress put back on the way. Where the run is not Whole it is every
// tenth flight.
func TestWholeLine_AllFlights(t *testing.T) { // not parallel: it needs both cores
	// Larger batches than the other tests have, which want a short way: a million events are a load.
	w := newLineAt(t, sharedServers(t), harness.Name(t), "")
	w.file = w.write(t, strings.Replace(w.text(t), "batch_age: 200ms }", "batch_age: 1s }\n  mysql: { batch_age: 100ms }", 1))
	w.applied(t)
	keep, least := func(uint64) bool { return true }, int64(1_000_000)
	if !harness.Whole() {
		t.Log("every tenth flight; in CI, in make proofs and in make soak it is all of them")
		keep, least = func(id uint64) bool { return id%10 == 3 }, 100_000
	}
	flights, want := reference(t, keep)
	run := w.start(t, "run")
	began := time.Now()
	e := w.emit(t, flights, seedOf(t))
	emitted := time.Since(began)
	w.waitDrained(t, 5*time.Minute)
	drained := time.Since(began)
	if e.committed.Load() < least {
		t.Errorf("%d events, want at least %d", e.committed.Load(), least)
	}
	t.Logf("emitted in %v (%.0f events/s), drained after %v (%.0f events/s end to end)", emitted.Round(time.Millisecond),
		float64(e.committed.Load())/emitted.Seconds(), drained.Round(time.Millisecond), float64(e.committed.Load())/drained.Seconds())

	// Redelivery: repeats appended to the log, and progress of one shard put back by a thousand offsets.
	if _, err := w.shards["s1"].Exec("UPDATE slotline_progress SET next_off = GREATEST(next_off-1000, 0) WHERE sink='mysql' AND topic=?",
		w.cfg.Kafka.Topic); err != nil {
		t.Fatal(err)
	}
	repeats := w.produceAgain(t, 20_000)
	w.waitDrained(t, 2*time.Minute)
	if r := run.Stop(t, 30*time.Second); r.Code != 0 {
		t.Errorf("slotline run ended with status %d after SIGTERM", r.Code)
	}
	w.checkLine(t, e, repeats, flights, want)
}

// The same over transactional lanes, while the relay is killed and restarted: the topic holds each event once.
func TestWholeLine_TransactionalLanes(t *testing.T) {
	harness.Proof(t)
	plain := newLineAt(t, sharedServers(t), harness.Name(t), "")
	plain.file = plain.write(t, strings.Replace(plain.text(t), "lanes: 4,", "lanes: 4, transactional: true,", 1))
	w := plain.applied(t)
	flights, want := reference(t, part)
	sinks := []*harness.Process{w.start(t, "sink", "mysql"), w.start(t, "sink", "clickhouse")}
	relay := w.start(t, "relay")
	var emitted atomic.Bool
	kills := 0
	var keeper sync.WaitGroup
	keeper.Go(func() {
		for ; kills < 3 && !emitted.Load(); kills++ {
			time.Sleep(3 * time.Second) // a random point of the load
			relay.Kill(t)
			relay = w.start(t, "relay")
		}
	})
	e := w.emit(t, flights, seedOf(t))
	emitted.Store(true)
	keeper.Wait()
	w.waitDrained(t, 5*time.Minute)
	for _, p := range append(sinks, relay) {
		if r := p.Stop(t, 30*time.Second); r.Code != 0 {
			t.Errorf("ended with status %d after SIGTERM\n%s", r.Code, r.Stderr)
		}
	}
	t.Logf("the relay was killed %d times", kills)
	w.checkLine(t, e, 0, flights, want)
}

// The same while relay, MySQL sink and ClickHouse sink are each killed at random points and restarted at least five
// times, and the broker and one shard's server are restarted.
func TestWholeLine_Kills(t *testing.T) {
	t.Parallel() // long, and most of it waiting
	servers := lineServers{kafka: harness.PrivateKafka(t), outbox: harness.MySQL(t), s1: harness.MySQL(t),
		s2: harness.PrivateMySQL(t), ch: harness.ClickHouse(t)}
	w := newLine(t, servers, "")
	flights, want := reference(t, part)
	seed := seedOf(t)

	type stage struct {
		args         []string
		proc         *harness.Process
		kills, exits int
	}
	stages := []*stage{{args: []string{"relay"}}, {args: []string{"sink", "mysql", "--instance", "one"}}, {args: []string{"sink", "clickhouse"}}}
	var emitted, drained atomic.Bool
	var keepers sync.WaitGroup
	for i, s := range stages {
		s.proc = w.start(t, s.args...)
		// Each stage has a keeper, as a service manager would be: it starts again what was killed, and what ended by
		// itself because a server was away when it started.
		keepers.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(100+i)))
			for !drained.Load() || s.kills < 5 {
				select {
				case <-s.proc.Done():
					s.exits++
				case <-time.After(time.Duration(500+rng.IntN(2500)) * time.Millisecond): // the random point
					if emitted.Load() && s.kills >= 5 { // let it drain
						continue
					}
					s.proc.Kill(t)
					s.kills++
				}
				s.proc = w.start(t, s.args...)
			}
		})
	}
	keepers.Go(func() { servers.kafka.Restart(t) })
	keepers.Go(func() { servers.s2.Kill(t); servers.s2.Start(t) })
	e := w.emit(t, flights, seed)
	emitted.Store(true)
	w.waitDrained(t, 5*time.Minute)
	drained.Store(true)
	keepers.Wait()
	for _, s := range stages {
		t.Logf("slotline %v: killed %d times, ended by itself %d times", s.args, s.kills, s.exits)
		if s.kills < 5 {
			t.Errorf("slotline %v was killed %d times only", s.args, s.kills)
		}
		if r := s.proc.Stop(t, 30*time.Second); r.Code != 0 {
			t.Errorf("slotline %v ended with status %d after SIGTERM", s.args, r.Code)
		}
	}
	w.waitDrained(t, time.Minute) // what a last kill left undone would show here
	w.checkLine(t, e, -1, flights, want)
}
