package line

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/checkup"
)

func TestCheckupText(t *testing.T) {
	c := &Checkup{Line: "flights"}
	var b bytes.Buffer
	write := func() {
		if err := c.WriteText(&b); err != nil {
			t.Fatal(err)
		}
	}
	c.add(&checkup.Server{Where: "kafka kafka1:9092 (4.3.1)"})
	write()
	if c.Found() || c.Partial() {
		t.Error("a server without findings has some")
	}
	c.add(&checkup.Server{Where: "clickhouse ch1:9000/flights", NotAsked: "no answer within 5s"})
	write()
	if c.Found() || !c.Partial() {
		t.Error("a silent server is a finding, or is not counted")
	}
	c.add(&checkup.Server{Where: "shard s1 db1/flights_s1 (MySQL 8.4.3)", Unchecked: []string{"privileges: SHOW GRANTS shows none"}, Findings: []checkup.Finding{
		{Sign: checkup.Hurts, What: "local_infile is OFF", Why: "the faster staging path stays unused", Do: "SET PERSIST local_infile = ON"},
		checkup.OfFault(checkup.Stops, &fault.Error{Code: "SL1814", What: "two are one; nothing was started", Why: "first\nsecond", Do: "give each its own"})}})
	write()
	if !c.Found() || !c.Partial() {
		t.Error("findings are not counted")
	}
	golden(t, "doctor.txt", b.Bytes())
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"findings":[]`, `"unchecked":[]`, `"sign":"x","what":"two are one","why":"first\nsecond","do":"give each its own","code":"SL1814"`, `"not_asked":"no answer within 5s"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s\ndoes not hold %s", text, want)
		}
	}
}

// Sessions are counted for the server, whatever database of it they are in.
func TestConnectionsOfAServer(t *testing.T) {
	apart := strings.NewReplacer("@127.0.0.1/flights_s1", "@db1/flights_s1", "@127.0.0.1/flights_s2", "@db2/flights_s2", "@127.0.0.1/flights\"", "@db0/flights\"")
	file := apart.Replace(config.Example()) + "\nsinks: { mysql: { connections_per_shard: 8 }, clickhouse: { dsn: \"clickhouse://u:p@ch1:9000/flights\" } }\n"
	for _, name := range []string{"OUTBOX_PASSWORD", "S1_PASSWORD", "S2_PASSWORD"} {
		t.Setenv(name, "x")
	}
	l := lineOf(t, file)
	outbox, shard := l.outboxConnections(), 8+1+shardConnections
	if len(l.Config.Shards) != 2 || outbox != 12 {
		t.Fatalf("%d shards, %d connections of the outbox", len(l.Config.Shards), outbox)
	}
	if n := l.connections(l.Config.Outbox.DSN); n != outbox {
		t.Errorf("the outbox's server has %d, want %d", n, outbox)
	}
	if n := l.connections(l.Config.Shards[0].DSN); n != shard {
		t.Errorf("a shard's server has %d, want %d", n, shard)
	}
	together := strings.NewReplacer("@db1/", "@db0/", "@db2/", "@db0/").Replace(file)
	l = lineOf(t, together)
	if n := l.connections(l.Config.Shards[1].DSN); n != outbox+2*shard {
		t.Errorf("one server of all has %d, want %d", n, outbox+2*shard)
	}
}

func TestTheSameDatabaseByTwoAddressesIsFound(t *testing.T) {
	d := &databases{list: []knownDatabase{{"outbox", "u1/a"}, {"shard s1", "u1/b"}, {"shard s2", "u2/b"}, {"shard s3", "u1/b"}}}
	for where, want := range map[string]string{"outbox": "", "shard s1": "shard s3", "shard s2": "", "shard s3": "shard s1", "shard s4": ""} {
		e := d.twice(where)
		if (e == nil) != (want == "") || e != nil && !strings.Contains(e.What, want+" and "+where) {
			t.Errorf("%s: %v, want %q", where, e, want)
		}
	}
}

// Servers that say nothing are waited for all at once, and each is named.
func TestDoctorAsksAllServersAtOnce(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	file := fmt.Sprintf(`line: flights
kafka: { brokers: [%[1]q] }
outbox: { dsn: "mysql://u:p@%[1]s/flights" }
shards:
  s1: { dsn: "mysql://u:p@%[1]s/s1", slots: 0-511 }
  s2: { dsn: "mysql://u:p@%[1]s/s2", slots: 512-1023 }
tables:
  orders: { tenant: carrier, id: id, columns: { carrier: string(2), id: uint64 } }
sinks: { clickhouse: { dsn: "clickhouse://u:p@%[1]s/flights" }, state: "mysql://u:p@%[1]s/state" }
`, silent.Addr().String())
	began := time.Now()
	c, err := lineOf(t, file).Doctor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 4*checkTimeout { // one after the other takes five of them
		t.Errorf("it took %v", took)
	}
	for i, begins := range []string{"kafka ", "outbox ", "shard s1 ", "shard s2 ", "sinks.state ", "clickhouse "} {
		if i >= len(c.Servers) || !strings.HasPrefix(c.Servers[i].Where, begins) || !strings.Contains(c.Servers[i].NotAsked, "no answer") || len(c.Servers[i].Findings) != 0 {
			t.Fatalf("server %d is not %q, or not named: %+v", i, begins, c.Servers)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := lineOf(t, file).Doctor(ctx); fault.CodeOf(err) != "SL9024" {
		t.Errorf("interrupted: %v", err)
	}
}
