package integration

import (
	"database/sql"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/partitioner"
)

// sinkProof is a line whose events are written straight into Kafka, with a file on disk that processes run from: what is
// proved is what consumers and the MySQL sink make of the log.
type sinkProof struct {
	*shardLine
	file    string
	kafka   *kgo.Client
	random  *rand.Rand
	tenants map[int32]string // by partition
	fold    map[string]int64 // table, tenant and id → the greatest _ver
	events  int
}

func newSinkProof(t *testing.T, broker *harness.KafkaServer, server *harness.MySQLServer) *sinkProof {
	t.Helper()
	name := harness.Name(t)
	broker.Topics(t, name)
	p := &sinkProof{shardLine: &shardLine{t: t, dbs: map[string]*sql.DB{}, names: map[string]string{}, urls: map[string]string{},
		server: server, line: name, next: map[int32]int64{}}, random: seeded(t), tenants: map[int32]string{}, fold: map[string]int64{}}
	for _, shard := range []string{"s1", "s2"} {
		p.names[shard] = server.NewDatabase(t, name+"_"+shard)
		p.dbs[shard] = server.Open(t, p.names[shard])
		p.urls[shard] = server.URL(p.names[shard])
	}
	p.file = filepath.Join(t.TempDir(), "slotline.yaml")
	text := fmt.Sprintf(`line: %s
kafka: { brokers: [%q], partitions: 4, replication: 1 }
outbox: { dsn: %q }
shards:
  s1: { dsn: %q, slots: 0-511 }
  s2: { dsn: %q, slots: 512-1023 }
sinks: { mysql: { batch_rows: 200, batch_age: 20ms } }
limits: { drain_timeout: 5s }
http: { listen: "127.0.0.1:0" }
%s`, name, broker.Brokers[0], server.URL(server.NewDatabase(t, name+"_outbox")), p.urls["s1"], p.urls["s2"], shardLineTables)
	if err := os.WriteFile(p.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := harness.Command{Args: []string{"-c", p.file, "apply"}}.Run(t, time.Minute)
	if r.Code != 0 {
		t.Fatalf("slotline apply: %s%s", r.Stdout, r.Stderr)
	}
	var err error
	if p.cfg, err = config.Load(p.file); err != nil {
		t.Fatal(err)
	}
	spec, err := p.cfg.Layout.WithPartitions(p.cfg.Kafka.Partitions)
	if err != nil {
		t.Fatal(err)
	}
	if p.layout, err = partitioner.New(spec); err != nil {
		t.Fatal(err)
	}
	if p.kafka, err = kafka.Open(t.Context(), p.cfg, "test", nil, kgo.RecordPartitioner(kgo.ManualPartitioner())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kafka.Close)
	for n := range int32(4) {
		p.tenants[n] = p.tenantIn(n, p.home(n))
	}
	return p
}

// home is the shard that a partition's tenants are in.
func (p *sinkProof) home(partition int32) string {
	if partition < 2 {
		return "s1"
	}
	return "s2"
}

// process starts a sink's process, from the line's file with some texts replaced.
func (p *sinkProof) process(t *testing.T, name string, replace ...string) *harness.Process {
	t.Helper()
	text, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), name+".yaml")
	if err := os.WriteFile(file, []byte(strings.NewReplacer(replace...).Replace(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	return harness.Command{Args: []string{"-c", file, "sink", "mysql"}, Name: name}.Start(t)
}

// produce writes events of a few hundred entities to every partition: new and old versions, deletions, repeats. It is
// called by one goroutine at a time.
func (p *sinkProof) produce(each int) {
	p.t.Helper()
	var records []*kgo.Record
	for n, tenant := range p.tenants {
		for range each {
			id, version, op := p.random.Int64N(200), 1+p.random.Int64N(1_000_000), event.Upsert
			if p.random.IntN(5) == 0 {
				op = event.Delete
			}
			table, values, key := "items", item(tenant, id, "x"), fmt.Sprintf("items/%s/%d", tenant, id)
			if p.random.IntN(3) == 0 {
				table, values = "notes", []event.Value{text(tenant), text(fmt.Sprint("n", id)), text("body")}
				key = fmt.Sprintf("notes/%s/n%d", tenant, id)
			}
			ver := version * 2
			if op == event.Delete {
				ver++
			}
			p.fold[key] = max(p.fold[key], ver)
			m := p.message(n, table, op, version, values)
			r := &kgo.Record{Topic: m.Partition.Topic, Partition: n, Key: m.Key, Value: m.Value}
			for _, h := range m.Headers {
				r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
			}
			records = append(records, r)
			p.events++
			if p.random.IntN(20) == 0 {
				again := *r
				records = append(records, &again)
			}
		}
	}
	if err := p.kafka.ProduceSync(p.t.Context(), records...).FirstErr(); err != nil {
		p.t.Fatal(err)
	}
}

// until waits for a state, which must come within two minutes, or twenty in a soak.
func (p *sinkProof) until(what string, ok func() bool) {
	p.t.Helper()
	limit := 2 * time.Minute
	if harness.Soak() {
		limit *= 10
	}
	for end := harness.Deadline(limit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
	}
	p.t.Fatalf("waited in vain until %s", what)
}

// untilDrained waits until every progress row is at the end of its log.
func (p *sinkProof) untilDrained() {
	p.t.Helper()
	ends, err := kadm.NewClient(p.kafka).ListEndOffsets(p.t.Context(), p.cfg.Kafka.Topic)
	if err != nil || ends.Error() != nil {
		p.t.Fatal(err, ends.Error())
	}
	p.until("the sinks are at the end of the log", func() bool {
		for n := range int32(4) {
			end, _ := ends.Lookup(p.cfg.Kafka.Topic, n)
			for _, i := range p.layout.PartitionShards(n) {
				if p.progress(p.layout.ShardName(i), n).Next != end.Offset {
					return false
				}
			}
		}
		return true
	})
}

// check compares every row of both shards with the fold of the log.
func (p *sinkProof) check() {
	p.t.Helper()
	have := map[string]int64{}
	for shard, db := range p.dbs {
		rows, err := db.QueryContext(p.t.Context(), "SELECT CONCAT('items/', owner, '/', item), _ver FROM items_202611 "+
			"UNION ALL SELECT CONCAT('notes/', owner, '/', note), _ver FROM notes")
		if err != nil {
			p.t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var key string
			var ver int64
			if err := rows.Scan(&key, &ver); err != nil {
				p.t.Fatal(err)
			}
			if _, twice := have[key]; twice {
				p.t.Errorf("%s is in %s too", key, shard)
			}
			have[key] = ver
		}
		if err := rows.Err(); err != nil {
			p.t.Fatal(err)
		}
	}
	if !maps.Equal(have, p.fold) {
		wrong := 0
		for key, ver := range p.fold {
			if have[key] != ver {
				wrong++
			}
		}
		p.t.Errorf("%d of %d entities are not as the fold of the log has them; the shards hold %d", wrong, len(p.fold), len(have))
	}
}

// ownerEpochs is the sum of all partitions' owner epochs: how often one was taken over.
func (p *sinkProof) ownerEpochs() (sum int64) {
	p.t.Helper()
	for n := range int32(4) {
		sum += p.progress(p.home(n), n).OwnerEpoch
	}
	return sum
}

// P10: what a sink's process takes while it drains a backlog does not grow with it: limits.memory_bytes_max and 64 MiB.
func TestP10_SinkProofMemory(t *testing.T) {
	harness.Proof(t)
	p := newSinkProof(t, harness.Kafka(t), harness.MySQL(t))
	events := 400_000
	if harness.Soak() {
		events = 5_000_000
	}
	for p.events < events {
		p.produce(10_000)
	}
	began := time.Now()
	sink := p.process(t, "drain", "batch_rows: 200, batch_age: 20ms", "batch_rows: 1000", "limits: {", "limits: { memory_bytes_max: 192MiB,")
	p.untilDrained()
	took, peak := time.Since(began), sink.PeakBytes(t)
	if r := sink.Stop(t, 30*time.Second); r.Code != 0 {
		t.Errorf("the sink ended with status %d after SIGTERM", r.Code)
	}
	p.check()
	t.Logf("%d events drained in %v (%.0f events/s): %d MiB at most", p.events, took.Round(time.Millisecond), float64(p.events)/took.Seconds(), peak>>20)
	if peak >= 256<<20 {
		t.Errorf("the process took %d MiB, want less than 256", peak>>20)
	}
}
