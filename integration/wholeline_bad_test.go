package integration

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/examples/flights/nyc"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/outbox"
	"github.com/slotline/slotline/partitioner"
)

// rawEvent is an outbox row as another language could write it: nothing checks its body.
func rawEvent(carrier string, id uint64, month partitioner.Month, body string) event.Event {
	return event.Event{ID: event.NewID(), Table: "flights", Tenant: carrier, EntityID: fmt.Sprint(id), Op: event.Upsert,
		Month: month, Spread: fmt.Sprint(id), Time: time.Now().UTC().Truncate(time.Microsecond), Body: []byte(body)}
}

func flightBody(carrier string, id uint64, dep, dest, arrDelay string) string {
	return fmt.Sprintf(`{"carrier":%q,"flight_id":%d,"sched_dep":%q,"origin":"JFK","dest":%s,"status":"arrived","cancelled":false,`+
		`"dep_delay":null,"arr_delay":%s,"distance":100}`, carrier, id, dep, dest, arrDelay)
}

// append writes rows straight into the lanes, in one transaction.
func (w *wholeLine) append(t *testing.T, events ...event.Event) {
	t.Helper()
	tx, err := w.outbox.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	for _, ins := range outbox.Inserts(events, w.cfg.Outbox.Lanes) {
		if _, err := tx.Exec(ins.SQL); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

type deadList struct {
	Letters []struct {
		Key    string `json:"key"`
		Sink   string `json:"sink"`
		Reason string `json:"reason"`
		Error  string `json:"error"`
		ID     string `json:"id"`
	} `json:"letters"`
}

// P7: an event that the table cannot hold is a dead letter with its reason, alone: its batch neighbours and the next
// lower version of its entity are applied.
func TestP7_BadEventAlone(t *testing.T) {
	t.Parallel()
	w := newLine(t, sharedServers(t), "")
	const dep, month = "2013-02-03T04:05:06.000000Z", 201302
	good := func(id uint64, arr string) event.Event {
		return rawEvent("AA", id, month, flightBody("AA", id, dep, `"LAX"`, arr))
	}
	bad := []struct {
		id     uint64
		body   string
		reason string
	}{
		{11, flightBody("AA", 11, dep, `"LAXX"`, "1"), event.ReasonTooLong},
		{12, flightBody("AA", 12, dep, `"LAX"`, "2147483648"), event.ReasonOutOfRange},
		{13, flightBody("AA", 13, "2013-02-30T00:00:00.000000Z", `"LAX"`, "1"), event.ReasonWrongType},
		{14, flightBody("AA", 14, dep, "null", "1"), event.ReasonNull},
	}
	var events []event.Event
	for _, b := range bad {
		events = append(events, good(b.id, "7"), good(b.id+100, "8"), rawEvent("AA", b.id, month, b.body), good(b.id+200, "9"))
	}
	w.append(t, events...)
	run := w.start(t, "run")
	w.waitDrained(t, time.Minute)

	shard := w.shards[w.layout.ShardName(w.layout.Route("AA", "").Shard)]
	for _, b := range bad {
		for id, want := range map[uint64]int{b.id: 7, b.id + 100: 8, b.id + 200: 9} {
			var got int
			if err := shard.QueryRow("SELECT arr_delay FROM flights_201302 WHERE carrier='AA' AND flight_id=?", id).Scan(&got); err != nil || got != want {
				t.Errorf("flight %d: arr_delay %d, %v; want %d", id, got, err, want)
			}
		}
	}
	if f := w.clickhouseFigures(t)[nyc.Bucket{Carrier: "AA", Month: "201302"}]; f.Flights != 12 || f.ArrDelaySum != 4*(7+8+9) {
		t.Errorf("clickhouse: %+v, want 12 flights with the sum of the lower versions %d", f, 4*(7+8+9))
	}

	var dead deadList
	if err := json.Unmarshal([]byte(w.run(t, 0, "dlq", "list", "-o", "json")), &dead); err != nil {
		t.Fatal(err)
	}
	for _, sink := range []string{"mysql", "clickhouse"} {
		for _, b := range bad {
			i := slices.IndexFunc(dead.Letters, func(l struct {
				Key    string `json:"key"`
				Sink   string `json:"sink"`
				Reason string `json:"reason"`
				Error  string `json:"error"`
				ID     string `json:"id"`
			}) bool {
				return l.Sink == sink && l.ID == fmt.Sprint(b.id)
			})
			if i < 0 {
				t.Errorf("no dead letter of %s for flight %d", sink, b.id)
				continue
			}
			if l := dead.Letters[i]; l.Reason != b.reason || l.Error == "" {
				t.Errorf("dead letter of %s for flight %d: reason %q, error %q; want reason %q", sink, b.id, l.Reason, l.Error, b.reason)
			}
			shown := w.run(t, 0, "dlq", "show", dead.Letters[i].Key)
			if !strings.Contains(shown, "ce_id") || !strings.Contains(shown, fmt.Sprint(b.id)) {
				t.Errorf("dlq show %s lacks headers or body:\n%s", dead.Letters[i].Key, shown)
			}
		}
	}
	if len(dead.Letters) != 2*len(bad) {
		t.Errorf("%d dead letters, want %d: %+v", len(dead.Letters), 2*len(bad), dead.Letters)
	}
	if r := run.Stop(t, 30*time.Second); r.Code != 0 {
		t.Errorf("slotline run ended with status %d", r.Code)
	}
}

// P8: a topic whose log was cut ahead of the sink halts that partition, which says so; the others go on. accept-gap is
// the way past, and records who and why.
func TestP8_LogCutAheadOfTheSink(t *testing.T) {
	t.Parallel() // long, and most of it waiting
	w := newLine(t, sharedServers(t), "")
	flights, _ := reference(t, func(id uint64) bool { return id%100 == 5 })
	relay := w.start(t, "relay")
	w.emit(t, flights, seedOf(t))
	deadline := harness.Deadline(time.Minute)
	for {
		backlog := int64(0)
		for _, l := range w.status(t).Lanes {
			backlog += l.Backlog
		}
		if backlog == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the relay did not publish everything within a minute")
		}
	}
	relay.Stop(t, 30*time.Second)

	cl, err := kgo.NewClient(kgo.SeedBrokers(w.kafka.Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ends := w.endOffsets(t, cl)
	const cut, at = int32(5), int64(40)
	if ends[cut] < 2*at {
		t.Fatalf("partition %d has only %d records", cut, ends[cut])
	}
	var offsets kadm.Offsets
	offsets.AddOffset(w.cfg.Kafka.Topic, cut, at, -1)
	if r, err := kadm.NewClient(cl).DeleteRecords(t.Context(), offsets); err != nil || r.Error() != nil {
		t.Fatal(err, r.Error())
	}

	sink := w.start(t, "sink", "mysql")
	sinkLag := func(s lineStatus) (lag int64) {
		for _, k := range s.Sinks {
			if strings.HasPrefix(k.Name, "mysql/") {
				lag += k.Lag
			}
		}
		return lag
	}
	deadline = harness.Deadline(time.Minute)
	for {
		s := w.status(t)
		if len(s.Halted) > 0 && sinkLag(s) == ends[cut] {
			for _, h := range s.Halted {
				if h.Partition != cut || !strings.Contains(h.Text, fmt.Sprintf("log starts at %d", at)) {
					t.Errorf("halted: %+v", h)
				}
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no halt, or the other partitions do not go on: lag %d, want the %d of partition %d alone; %+v", sinkLag(s), ends[cut], cut, s)
		}
	}
	if text := w.run(t, 4, "status"); !strings.Contains(text, "HALTED") || !strings.Contains(text, "accept-gap") {
		t.Errorf("slotline status does not say what is halted and what to do:\n%s", text)
	}
	w.run(t, 0, "sink", "accept-gap", "--sink", "mysql", "--partition", fmt.Sprint(cut), "--why", "cut on purpose", "--who", "the test", "--yes")
	deadline = harness.Deadline(2 * time.Minute)
	for {
		if s := w.status(t); len(s.Halted) == 0 && sinkLag(s) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after accept-gap the partition does not go on: %+v", w.status(t))
		}
	}
	gaps := 0
	for _, db := range w.shards {
		rows, err := db.Query("SELECT accepted_by, reason FROM slotline_gap")
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var who, why string
			if err := rows.Scan(&who, &why); err != nil || who != "the test" || why != "cut on purpose" {
				t.Errorf("gap accepted by %q because %q, %v", who, why, err)
			}
			gaps++
		}
	}
	if gaps == 0 {
		t.Error("no shard records the accepted gap")
	}
	if r := sink.Stop(t, 30*time.Second); r.Code != 0 {
		t.Errorf("slotline sink mysql ended with status %d", r.Code)
	}
}

// Bad input is a clear error that names the thing and what to do, before anything is lost.
func TestBadInput(t *testing.T) {
	t.Parallel()
	w := newLine(t, sharedServers(t), "")
	text := w.text(t)
	run := func(t *testing.T, yaml string, args ...string) harness.Result {
		t.Helper()
		file := w.write(t, yaml)
		return harness.Command{Args: append([]string{"-c", file}, args...), Name: strings.Join(args, "-")}.Run(t, time.Minute)
	}
	expect := func(t *testing.T, r harness.Result, status int, parts ...string) {
		t.Helper()
		if r.Code != status {
			t.Errorf("exit status %d, want %d", r.Code, status)
		}
		for _, p := range parts {
			if !strings.Contains(r.Stderr+r.Stdout, p) {
				t.Errorf("the error does not say %q:\n%s%s", p, r.Stderr, r.Stdout)
			}
		}
		if strings.Contains(r.Stderr, "goroutine ") {
			t.Errorf("a crash:\n%s", r.Stderr)
		}
	}

	t.Run("slot placed twice", func(t *testing.T) {
		expect(t, run(t, strings.Replace(text, "slots: 512-1023", "slots: 500-1023", 1), "apply"), 2, "s1", "s2", "500-511", "512-1023")
	})
	t.Run("unknown placement", func(t *testing.T) {
		expect(t, run(t, strings.Replace(text, "100000: s1", "100000: s9", 1), "apply"), 2, "s9", "UA")
	})
	t.Run("another line on the same outbox", func(t *testing.T) {
		other := strings.Replace(text, "line: "+w.name, "line: other", 1)
		expect(t, run(t, other, "apply"), 2, "SL1812", w.name, "other")
		expect(t, run(t, other, "relay"), 2, "SL1812", w.name, "other")
	})
	t.Run("two shards that are one database", func(t *testing.T) {
		my := harness.MySQL(t)
		alias := strings.Replace(my.URL(w.name+"_s1"), "127.0.0.1", "localhost", 1)
		both := strings.Replace(text, my.URL(w.name+"_s2"), alias, 1)
		expect(t, run(t, both, "apply"), 2, "SL1814", "s1", "s2")
		expect(t, run(t, both, "sink", "mysql"), 2, "SL1813", "s2")
	})
	t.Run("another line's table in a shard", func(t *testing.T) {
		l := newLineAt(t, sharedServers(t), harness.Name(t), "")
		my := harness.MySQL(t)
		expect(t, run(t, strings.Replace(l.text(t), my.URL(l.name+"_s1"), my.URL(w.name+"_s1"), 1), "apply"), 2, "SL1815", "flights", w.name)
	})
	t.Run("another line's tables in ClickHouse", func(t *testing.T) {
		l := newLineAt(t, sharedServers(t), harness.Name(t), "")
		expect(t, run(t, strings.Replace(l.text(t), w.ch.URL(l.chDB), w.ch.URL(w.chDB), 1), "apply", "--dry-run"), 3, "x flights", "line "+w.name)
	})
	t.Run("unreachable broker", func(t *testing.T) {
		expect(t, run(t, strings.ReplaceAll(text, w.kafka.Brokers[0], "127.0.0.1:1"), "apply", "--dry-run"), 1, "127.0.0.1:1", "do:")
	})
	t.Run("wrong DSN", func(t *testing.T) {
		expect(t, run(t, strings.Replace(text, "mysql://", "postgres://", 1), "apply"), 2, "shards.s1.dsn", "mysql://")
	})
	t.Run("database that is not there", func(t *testing.T) {
		expect(t, run(t, strings.Replace(text, w.name+"_s2", w.name+"_nowhere", 1), "run"), 1, "_nowhere", "s2")
	})
	t.Run("layout that differs from the applied one", func(t *testing.T) {
		expect(t, run(t, strings.Replace(strings.Replace(text, "0-511", "0-510", 1), "512-1023", "511-1023", 1), "run"), 2, "layout epoch 1", "511")
	})
	t.Run("topic with another partition count", func(t *testing.T) {
		other := harness.Name(t)
		w.kafka.Topics(t, other)
		cl, err := kgo.NewClient(kgo.SeedBrokers(w.kafka.Brokers...))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), 3, 1, nil, other+".events"); err != nil {
			t.Fatal(err)
		}
		l := newLineAt(t, sharedServers(t), other, "")
		expect(t, run(t, l.text(t), "apply"), 1, other+".events", "3 partitions", "8")
	})
	t.Run("secondary unique key", func(t *testing.T) {
		db := w.shards["s1"]
		if _, err := db.Exec("ALTER TABLE airports ADD UNIQUE KEY uk_flights (flights)"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = db.Exec("ALTER TABLE airports DROP KEY uk_flights") })
		expect(t, run(t, text, "apply", "--dry-run"), 3, "uk_flights", "airports", "DROP KEY uk_flights")
	})
	t.Run("missing privilege", func(t *testing.T) {
		my := harness.MySQL(t)
		root := my.Open(t, "")
		user := w.name + "u"
		for _, q := range []string{"CREATE USER " + user + "@'%' IDENTIFIED BY 'pw'", "GRANT SELECT ON " + w.name + "_s2.* TO " + user + "@'%'"} {
			if _, err := root.Exec(q); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() { _, _ = root.Exec("DROP USER " + user + "@'%'") })
		if _, err := w.shards["s2"].Exec("DROP TABLE airports"); err != nil {
			t.Fatal(err)
		}
		url := my.URL(w.name + "_s2")
		at := strings.LastIndex(url, "@")
		expect(t, run(t, strings.Replace(text, url, "mysql://"+user+":pw"+url[at:], 1), "apply"), 1, "s2", "GRANT", user)
		w.run(t, 0, "apply")
	})
	t.Run("unknown table and struct that differs", func(t *testing.T) {
		expect(t, run(t, strings.Replace(text, "tenant: carrier", "tenant: carier", 1), "apply"), 2, "carier", "carrier")
	})
}
