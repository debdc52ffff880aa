package harness

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/ch-go/proto"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func kafkaClient(t *testing.T, k *KafkaServer, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append(opts, kgo.SeedBrokers(k.Brokers...))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func createTopic(t *testing.T, k *KafkaServer, topic string) {
	t.Helper()
	resp, err := kadm.NewClient(kafkaClient(t, k)).CreateTopic(testContext(t), 2, 1, nil, topic)
	if err == nil {
		err = resp.Err
	}
	if err != nil {
		t.Fatal(err)
	}
}

// commit produces one record in one Kafka transaction. It hangs on a broker that cannot reach itself.
func commit(t *testing.T, k *KafkaServer, topic, value string) {
	t.Helper()
	ctx := testContext(t)
	c := kafkaClient(t, k, kgo.TransactionalID(topic))
	if err := c.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := c.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := c.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
}

func wantRecords(t *testing.T, k *KafkaServer, topic string, want int) {
	t.Helper()
	ctx := testContext(t)
	c := kafkaClient(t, k, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for got := 0; got < want; {
		f := c.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			t.Fatalf("%d of %d records within three minutes", got, want)
		}
		got += f.NumRecords()
	}
}

func TestKafkaCommitsTransactions(t *testing.T) {
	k := Kafka(t)
	topic := Name(t)
	k.Topics(t, topic)
	createTopic(t, k, topic)
	commit(t, k, topic, "a")
	wantRecords(t, k, topic, 1)
}

func TestAPrivateKafkaKeepsDataAndAddress(t *testing.T) {
	k := PrivateKafka(t)
	topic := Name(t)
	createTopic(t, k, topic)
	commit(t, k, topic, "a")
	k.Restart(t)
	commit(t, k, topic, "b")
	wantRecords(t, k, topic, 2) // Kafka answers a commit before it has written its marker: what a kill then does is Kafka's affair
	k.Kill(t)
	k.Start(t)
	k.Pause(t)
	k.Resume(t)
	commit(t, k, topic, "c")
	wantRecords(t, k, topic, 3)
}

func TestMySQLIsDurableWhereThatIsAskedFor(t *testing.T) {
	m := PrivateMySQL(t)
	settings := func() (list [3]int) {
		t.Helper()
		err := m.Open(t, "").QueryRow("SELECT @@sync_binlog, @@innodb_flush_log_at_trx_commit, @@local_infile").Scan(&list[0], &list[1], &list[2])
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	if have := settings(); have != [3]int{0, 2, 1} {
		t.Errorf("sync_binlog, innodb_flush_log_at_trx_commit, local_infile are %d, want 0 2 1: a commit outlives a kill", have)
	}
	m.MakeDurable(t)
	if have := settings(); os.Getenv(mysqlVariable) == "" && have != [3]int{1, 1, 1} {
		t.Errorf("sync_binlog, innodb_flush_log_at_trx_commit, local_infile are %d, want 1 1 1: a commit is on the disk", have)
	}
}

func TestTwoMySQLsHaveTwoIdentities(t *testing.T) {
	uuid := func(m *MySQLServer) (s string) {
		t.Helper()
		if err := m.Open(t, "").QueryRow("SELECT @@server_uuid").Scan(&s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	if a, b := uuid(MySQL(t)), uuid(PrivateMySQL(t)); a == b {
		t.Errorf("both have server_uuid %s: a failover between them would go unseen", a)
	}
}

func TestAPrivateMySQLKeepsDataAndAddress(t *testing.T) {
	m := PrivateMySQL(t, "--max-connections=77")
	name := m.NewDatabase(t, Name(t))
	db := m.Open(t, name)
	exec := func(query string) {
		t.Helper()
		if _, err := db.ExecContext(testContext(t), query); err != nil {
			t.Fatal(err)
		}
	}
	exec("CREATE TABLE x (id BIGINT PRIMARY KEY)")
	exec("INSERT INTO x VALUES (1)")
	m.Kill(t)
	m.Start(t)
	exec("INSERT INTO x VALUES (2)")
	m.Restart(t)
	var rows, connections int
	if err := db.QueryRow("SELECT COUNT(*), @@max_connections FROM x").Scan(&rows, &connections); err != nil {
		t.Fatal(err)
	}
	if rows != 2 || connections != 77 {
		t.Errorf("%d rows and max_connections %d after a kill and a restart, want 2 and 77", rows, connections)
	}
}

func TestClickHouseAnswers(t *testing.T) {
	c := ClickHouse(t)
	conn := c.Dial(t, c.NewDatabase(t, Name(t)))
	ctx := testContext(t)
	do := func(q ch.Query) {
		t.Helper()
		if err := conn.Do(ctx, q); err != nil {
			t.Fatalf("%s: %v", q.Body, err)
		}
	}
	do(ch.Query{Body: "CREATE TABLE x (id UInt64) ENGINE = MergeTree ORDER BY id"})
	ids := proto.ColUInt64{1, 2, 3}
	do(ch.Query{Body: "INSERT INTO x VALUES", Input: proto.Input{{Name: "id", Data: &ids}}})
	var sum proto.ColUInt64
	do(ch.Query{Body: "SELECT sum(id) AS s FROM x", Result: proto.Results{{Name: "s", Data: &sum}}})
	if sum.Rows() != 1 || sum.Row(0) != 6 {
		t.Errorf("sum is %v, want [6]", sum)
	}
}

func TestAPrivateClickHouseKeepsDataAndAddress(t *testing.T) {
	c := PrivateClickHouse(t)
	name := c.NewDatabase(t, Name(t))
	for _, q := range []string{"CREATE TABLE x (id UInt64) ENGINE = MergeTree ORDER BY id", "INSERT INTO x SELECT number FROM numbers(10)"} {
		if err := c.Dial(t, name).Do(testContext(t), ch.Query{Body: q}); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	c.Kill(t)
	c.Start(t)
	c.Restart(t)
	var rows proto.ColUInt64
	if err := c.Dial(t, name).Do(testContext(t), ch.Query{Body: "SELECT count() AS n FROM x", Result: proto.Results{{Name: "n", Data: &rows}}}); err != nil {
		t.Fatal(err)
	}
	if rows.Rows() != 1 || rows.Row(0) != 10 {
		t.Errorf("%v rows after a kill and a restart, want [10]", rows)
	}
}
