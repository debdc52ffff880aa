package kafka

import (
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/checkup"
)

// sound is a cluster of three brokers that nothing is wrong with.
func sound() *Brokers {
	cfg := testConfig(nil)
	cfg.Kafka.Replication = 3
	b := &Brokers{version: "4.1", topicIDs: true, count: 3, topics: map[string]*found{}, lacking: map[string][]string{}, hidden: map[string]bool{},
		settings: map[string]string{"offsets.topic.replication.factor": "3", "transaction.state.log.replication.factor": "3",
			"transaction.state.log.min.isr": "2", "transaction.max.timeout.ms": "900000"}}
	cfg.Tables = []*event.Table{{Name: "flights"}}
	for _, t := range Topics(cfg) {
		have := &found{partitions: t.Partitions, replication: 3, inSync: 3, settings: t.Settings()}
		have.settings["min.insync.replicas"], have.settings["unclean.leader.election.enable"] = "2", "false"
		b.topics[t.Name] = have
	}
	return b
}

func TestEachThingThatIsWrongWithBrokersIsNamed(t *testing.T) {
	const topic = "flights.events"
	of := func(key, value string) func(*Brokers) {
		return func(b *Brokers) { b.topics[topic].settings[key] = value }
	}
	broker := func(key, value string) func(*Brokers) { return func(b *Brokers) { b.settings[key] = value } }
	nothing := func(*Brokers) {}
	for _, c := range []struct {
		name       string
		wrong      func(*Brokers)
		partitions int    // of the layout in force
		sign, what string // "" for no finding
		do         string
		plain      bool // lanes are not transactional
	}{
		{"sound", nothing, 4, "", "", "", false},
		{"sound, not applied", nothing, 0, "", "", "", false},
		{"sound, the outbox does not answer", nothing, -1, "", "", "", false},
		{"not applied", func(b *Brokers) { clear(b.topics) }, 0, "", "", "", false},
		{"unknown", func(b *Brokers) { clear(b.topics) }, -1, "", "", "", false},
		{"no settings shown", func(b *Brokers) { clear(b.settings) }, 4, "", "", "", false},
		{"old", func(b *Brokers) { b.topicIDs = false }, 4, "x", "older than Kafka 3.1", "newer", false},
		{"topic gone", func(b *Brokers) { delete(b.topics, topic) }, 4, "x", "topic flights.events is not there", "slotline apply", false},
		{"compaction", of("cleanup.policy", "compact"), 4, "x", "cleanup.policy=compact", "kafka-configs.sh --bootstrap-server kafka1:9092 --alter --entity-type topics --entity-name flights.events --add-config cleanup.policy=delete", false},
		{"compaction and deletion", of("cleanup.policy", "compact,delete"), 4, "x", "cleanup.policy=compact,delete", "--add-config cleanup.policy=delete", false},
		{"compaction before apply", of("cleanup.policy", "compact"), 0, "x", "cleanup.policy=compact", "", false},
		{"retention", of("retention.ms", "604800000"), 4, "x", "retention.ms 604800000 -> -1", "slotline apply", false},
		{"retention by bytes", of("retention.bytes", "1000"), -1, "x", "retention.bytes 1000 -> -1", "slotline apply", false},
		{"small records", of("max.message.bytes", "1000"), 4, "x", "max.message.bytes 1000 ->", "slotline apply", false},
		{"partitions", func(b *Brokers) { b.topics[topic].partitions = 6 }, 4, "x", "has 6 partitions", "", false},
		{"the file is ahead", func(b *Brokers) { b.topics[topic].partitions = 2 }, 2, "", "", "", false},
		{"no leader", func(b *Brokers) { b.topics[topic].leaderless, b.topics[topic].inSync = []int32{2}, 0 }, 4, "x", "no leader for partitions [2]", "brokers", false},
		{"unclean", of("unclean.leader.election.enable", "true"), 4, "x", "unclean.leader.election.enable=true", "--entity-name flights.events --add-config unclean.leader.election.enable=false", false},
		{"too many in sync wanted", of("min.insync.replicas", "4"), 4, "!", "min.insync.replicas=4 and 3 replicas", "min.insync.replicas=2", false},
		{"too few in sync", func(b *Brokers) { b.topics[topic].inSync = 1 }, 4, "x", "1 replicas in sync", "replicas", false},
		{"behind, and enough", func(b *Brokers) { b.topics[topic].inSync = 2 }, 4, "", "", "", false},
		{"all in sync wanted", of("min.insync.replicas", "3"), 4, "!", "min.insync.replicas=3 and as many", "min.insync.replicas=2", false},
		{"one in sync is enough", of("min.insync.replicas", "1"), 4, "!", "min.insync.replicas=1", "min.insync.replicas=2", false},
		{"one replica", func(b *Brokers) {
			b.topics[topic].replication, b.topics[topic].inSync, b.topics[topic].settings["min.insync.replicas"] = 1, 1, "1"
		}, 4, "!", "has one replica", "kafka-reassign-partitions", false},
		{"rights", func(b *Brokers) { b.lacking[topic] = []string{"Write"} }, 4, "x", "may not Write on topic flights.events", "--operation Write --topic flights.events", false},
		{"hidden", func(b *Brokers) {
			delete(b.topics, topic)
			b.hidden[topic], b.lacking[topic] = true, []string{"Read", "Write"}
		}, 4, "x", "may not Read, Write on topic flights.events", "--operation Read --operation Write --topic flights.events", false},
		{"groups", func(b *Brokers) { b.noGroups = true }, 4, "x", "may not Read on groups slotline.flights.*", "--operation Read --resource-pattern-type prefixed --group slotline.flights.", false},
		{"offsets of one broker", func(b *Brokers) { b.topics[offsetsTopic] = &found{replication: 1} }, 4, "!", "__consumer_offsets has one replica", "kafka-reassign-partitions", false},
		{"offsets on more brokers than there are", broker("offsets.topic.replication.factor", "5"), 4, "x", "factor is 5, and there are 3", "offsets.topic.replication.factor=3", false},
		{"and they are there", func(b *Brokers) {
			b.settings["offsets.topic.replication.factor"], b.topics[offsetsTopic] = "5", &found{replication: 3}
		}, 4, "", "", "", false},
		{"transactions", broker("transaction.state.log.replication.factor", "5"), 4, "x", "factor is 5", "transaction.state.log.replication.factor=3", false},
		{"transactions, lanes have none", broker("transaction.state.log.replication.factor", "5"), 4, "", "", "", true},
		{"transactions in sync", broker("transaction.state.log.min.isr", "4"), 4, "!", "min.isr is 4", "min.isr=2", false},
		{"short transactions", broker("transaction.max.timeout.ms", "10000"), 4, "x", "transaction.max.timeout.ms is 10000", "900000", false},
	} {
		b, cfg := sound(), testConfig([]string{"kafka1:9092"})
		cfg.Tables, cfg.Outbox.Transactional = []*event.Table{{Name: "flights"}}, !c.plain
		c.wrong(b)
		list := b.Checkup(cfg, c.partitions).Findings
		if c.sign == "" {
			if len(list) != 0 {
				t.Errorf("%s: %+v", c.name, list)
			}
			continue
		}
		if len(list) != 1 || list[0].Sign != c.sign || !strings.Contains(list[0].What, c.what) || !strings.Contains(list[0].Do, c.do) || list[0].Why+list[0].Code == "" {
			t.Errorf("%s: %+v", c.name, list)
		}
	}
}

// One broker with topics of one replica is a laptop, which its owner knows.
func TestALaptopsBrokerIsSound(t *testing.T) {
	_, cfg := cluster(t, kfake.NumBrokers(1))
	cl := open(t, cfg)
	read := func() []checkup.Finding {
		t.Helper()
		b, err := ReadBrokers(t.Context(), cl, cfg)
		if err != nil {
			t.Fatal(err)
		}
		return b.Checkup(cfg, cfg.Kafka.Partitions).Findings
	}
	if list := read(); len(list) != 2 {
		t.Errorf("of two topics that are not there: %+v", list)
	}
	changes, _, err := Plan(t.Context(), cl, cfg, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range changes {
		if err := c.Apply(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if list := read(); len(list) != 0 {
		t.Errorf("%+v", list)
	}
	compact := "compact"
	if _, err := kadm.NewClient(cl).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "cleanup.policy", Value: &compact}}, "flights.events"); err != nil {
		t.Fatal(err)
	}
	if list := read(); len(list) != 1 || list[0].Code != "SL2004" || list[0].Sign != checkup.Stops {
		t.Errorf("%+v", list)
	}
}

// What a user may not do with a topic is named before it is tried.
func TestRightsOnTopicsAreRead(t *testing.T) {
	_, cfg := cluster(t, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "admin", "admin"),
		kfake.User("PLAIN", "slotline", "secret",
			kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: "flights.", Pattern: kmsg.ACLResourcePatternTypePrefixed, Operation: kmsg.ACLOperationRead, Allow: true},
			kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: "flights.", Pattern: kmsg.ACLResourcePatternTypePrefixed, Operation: kmsg.ACLOperationDescribeConfigs, Allow: true}))
	as := func(user, password string) *kgo.Client {
		cl, err := Open(t.Context(), cfg, "test", nil, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.Close)
		return cl
	}
	admin := as("admin", "admin")
	for _, topic := range Topics(cfg) {
		if err := topic.Create(t.Context(), admin); err != nil {
			t.Fatal(err)
		}
	}
	for _, user := range []struct{ name, password string }{{"admin", "admin"}, {"slotline", "secret"}} {
		b, err := ReadBrokers(t.Context(), as(user.name, user.password), cfg)
		if err != nil {
			t.Fatal(err)
		}
		list := b.Checkup(cfg, cfg.Kafka.Partitions).Findings
		if user.name == "admin" {
			if len(list) != 0 {
				t.Errorf("the superuser: %+v", list)
			}
			continue
		}
		if len(list) != 3 || !slices.ContainsFunc(list, func(f checkup.Finding) bool { // two topics and the groups
			return f.Sign == checkup.Stops && strings.Contains(f.What, "may not Write on topic flights.events") && strings.Contains(f.Do, "--operation Write --topic flights.events")
		}) {
			t.Errorf("%+v", list)
		}
	}
}

// A right that is missing on one topic hides nothing of what else is wrong, and each has the command that gives it.
func TestEachMissingRightIsFoundByItself(t *testing.T) {
	const topic, group = kmsg.ACLResourceTypeTopic, kmsg.ACLResourceTypeGroup
	acl := func(kind kmsg.ACLResourceType, name string, operation kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: kind, Name: name, Pattern: kmsg.ACLResourcePatternTypePrefixed, Operation: operation, Allow: true}
	}
	printed := []kfake.ACL{acl(group, "slotline.flights.", kmsg.ACLOperationRead)}
	for _, op := range []kmsg.ACLOperation{kmsg.ACLOperationRead, kmsg.ACLOperationWrite, kmsg.ACLOperationCreate, kmsg.ACLOperationAlter, kmsg.ACLOperationAlterConfigs} {
		printed = append(printed, acl(topic, "flights.", op))
	}
	_, cfg := cluster(t, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "admin", "admin"),
		kfake.User("PLAIN", "printed", "pw", printed...),
		kfake.User("PLAIN", "few", "pw", acl(topic, "flights.events", kmsg.ACLOperationDescribeConfigs), acl(topic, "flights.events", kmsg.ACLOperationRead),
			acl(topic, "flights.dead", kmsg.ACLOperationWrite)),
		kfake.User("PLAIN", "none", "pw"))
	read := func(user, password string) *checkup.Server {
		t.Helper()
		cl, err := Open(t.Context(), cfg, "test", nil, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.Close)
		if user == "admin" {
			for _, topic := range Topics(cfg) {
				if err := topic.Create(t.Context(), cl); err != nil {
					t.Fatal(err)
				}
			}
			for _, owned := range []string{offsetsTopic, transactionsTopic} {
				if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), 1, 1, nil, owned); err != nil {
					t.Fatal(err)
				}
			}
		}
		b, err := ReadBrokers(t.Context(), cl, cfg)
		if err != nil {
			t.Fatalf("%s: %v", user, err)
		}
		return b.Checkup(cfg, cfg.Kafka.Partitions)
	}
	if s := read("admin", "admin"); len(s.Findings)+len(s.Unchecked) != 0 {
		t.Errorf("the superuser: %+v", s)
	}
	const topicsRight = "Describe on topic __consumer_offsets"
	if s := read("printed", "pw"); len(s.Findings) != 0 || len(s.Unchecked) != 1 || !strings.Contains(s.Unchecked[0], topicsRight) ||
		strings.Contains(s.Unchecked[0], "transaction") || strings.Contains(s.Unchecked[0], "AUTHORIZATION") {
		t.Errorf("what apply --grants prints: %+v", s)
	}
	for user, want := range map[string][]string{
		"few": {"Write on topic flights.events --operation Write --topic flights.events",
			"Read, DescribeConfigs on topic flights.dead --operation Read --operation DescribeConfigs --topic flights.dead",
			"Read on groups slotline.flights.* --operation Read --resource-pattern-type prefixed --group slotline.flights."},
		"none": {"Read, Write on topic flights.events --operation Read --operation Write --topic flights.events",
			"Read, Write on topic flights.dead --operation Read --operation Write --topic flights.dead",
			"Read on groups slotline.flights.* --operation Read --resource-pattern-type prefixed --group slotline.flights."},
	} {
		var got []string
		for _, f := range read(user, "pw").Findings {
			_, operations, _ := strings.Cut(f.Do, "'User:…' ")
			got = append(got, strings.TrimPrefix(f.What, "this user may not ")+" "+operations)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", user, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	cfg.Outbox.Transactional = true
	if s := read("printed", "pw"); len(s.Unchecked) != 1 || !strings.Contains(s.Unchecked[0], topicsRight+", Describe on topic __transaction_state, DescribeConfigs on the cluster") {
		t.Errorf("with transactional lanes: %+v", s)
	}
}
