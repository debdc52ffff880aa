package line

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

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
	c.add(&checkup.Server{Where: "clickhouse ch1:9000/flights", NotAsked: "no answer within 5s [SL9026]", Why: "something takes connections there", Do: "see the server's log"})
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
	for _, want := range []string{`"findings":[]`, `"unchecked":[]`, `"sign":"x","what":"two are one","why":"first\nsecond","do":"give each its own","code":"SL1814"`, `"not_asked":"no answer within 5s [SL9026]","why":"something takes connections there","do":"see the server's log"`} {
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
	var text bytes.Buffer
	if err := c.WriteText(&text); err != nil || !strings.HasSuffix(text.String(), "\nDoctor: no server could be asked. Nothing was changed.\n") {
		t.Errorf("%v\n%s", err, &text)
	}
	for i, begins := range []string{"kafka ", "outbox ", "shard s1 ", "shard s2 ", "sinks.state ", "clickhouse "} {
		if i >= len(c.Servers) || !strings.HasPrefix(c.Servers[i].Where, begins) || !strings.Contains(c.Servers[i].NotAsked, "no answer ") || c.Servers[i].Why == "" || c.Servers[i].Do == "" || len(c.Servers[i].Findings) != 0 {
			t.Fatalf("server %d is not %q, or not named: %+v", i, begins, c.Servers[min(i, len(c.Servers)-1)])
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := lineOf(t, file).Doctor(ctx); fault.CodeOf(err) != "SL9024" {
		t.Errorf("interrupted: %v", err)
	}
}

// What apply says to do of a login, a certificate or a port, doctor says too. A broker that refuses has answered.
func TestDoctorSaysWhatToDoWhereItWasNotLetIn(t *testing.T) {
	t.Parallel()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "line", "pw"))
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	broker.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		r := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		r.ErrorCode, r.ErrorMessage = kerr.SaslAuthenticationFailed.Code, kmsg.StringPtr("invalid credentials")
		return r, nil, true
	})
	secure := httptest.NewTLSServer(nil) // its certificate is of nobody's authority
	defer secure.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := closed.Addr().String()
	closed.Close()
	for _, c := range []struct {
		name, address, keys string
		code, do            string
		answers             bool
	}{
		{"wrong password", broker.ListenAddrs()[0], `sasl: { scram-sha-512: { user: line, password: wrong } }`, "SL2014", "check user and password of kafka.sasl", true},
		{"wrong authority", secure.Listener.Addr().String(), `tls: {}`, "SL2015", "kafka.tls.ca has to name", true},
		{"a port without TLS that waits", broker.ListenAddrs()[0], `tls: {}`, "SL2001", "that this port speaks TLS", false},
		{"nobody there", nobody, `partitions: 4`, "SL2001", "check kafka.brokers", false},
	} {
		found, err := lineOf(t, fmt.Sprintf(`line: flights
kafka: { brokers: [%q], %s }
outbox: { dsn: "mysql://u:p@%[3]s/flights" }
shards: { s1: { dsn: "mysql://u:p@%[3]s/s1", slots: 0-1023 } }
tables:
  orders: { tenant: carrier, id: id, columns: { carrier: string(2), id: uint64 } }
sinks: { clickhouse: { dsn: "clickhouse://u:p@%[3]s/flights" } }
`, c.address, c.keys, nobody)).Doctor(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		if err := found.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		kafka := found.Servers[0]
		if c.answers {
			if len(kafka.Findings) != 1 || kafka.NotAsked != "" || kafka.Findings[0].Code != c.code || kafka.Findings[0].Sign != checkup.Stops || !strings.Contains(kafka.Findings[0].Do, c.do) {
				t.Errorf("%s: %+v", c.name, kafka)
			}
		} else if len(kafka.Findings) != 0 || !strings.HasSuffix(kafka.NotAsked, "["+c.code+"]") || !strings.Contains(kafka.Do, c.do) {
			t.Errorf("%s: %+v", c.name, kafka)
		}
		for _, s := range found.Servers[1:] {
			if s.NotAsked == "" || s.Do == "" || strings.Contains(s.NotAsked, s.Where) || !strings.Contains(text.String(), "  NOT ASKED  "+s.NotAsked+"\n    "+strings.TrimPrefix(s.Why+"\n    do: ", "\n    ")+s.Do+"\n") {
				t.Errorf("%s: %+v\n%s", c.name, s, &text)
			}
		}
	}
}
