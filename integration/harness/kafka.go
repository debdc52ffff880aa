package harness

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// KafkaServer is one broker. Topics are made by who needs them: it makes none by itself.
type KafkaServer struct {
	Outage
	Brokers []string
}

const kafkaVariable = "SLOTLINE_TEST_KAFKA" // host:port, several separated by commas

var sharedKafka = sync.OnceValues(func() (*KafkaServer, error) {
	if v := os.Getenv(kafkaVariable); v != "" {
		brokers := strings.Split(v, ",")
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		if err := kafkaReady(brokers)(ctx); err != nil {
			return nil, fmt.Errorf("%s=%s: %w", kafkaVariable, v, err)
		}
		return &KafkaServer{Brokers: brokers}, nil
	}
	k, err := startKafka("")
	if err != nil {
		return nil, err
	}
	return &KafkaServer{Brokers: k.Brokers}, nil
})

// Kafka returns the broker that the tests of this binary share.
func Kafka(t testing.TB) *KafkaServer {
	t.Helper()
	need(t)
	k, err := sharedKafka()
	if err != nil {
		unavailable(t, err.Error())
	}
	return k
}

// PrivateKafka starts a broker that this test alone uses, and may stop, kill and pause.
func PrivateKafka(t testing.TB) *KafkaServer {
	t.Helper()
	need(t)
	// Such a broker lives for seconds: compiling its code well would cost more than it brings back.
	k, err := startKafka("-XX:TieredStopAtLevel=1")
	if err != nil {
		unavailable(t, err.Error())
	}
	t.Cleanup(k.s.remove)
	return k
}

// Topics deletes at the end of the test every topic whose name begins with the prefix (a Name).
func (k *KafkaServer) Topics(t testing.TB, prefix string) {
	t.Cleanup(func() {
		c, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers...))
		if err != nil {
			t.Errorf("deleting topics %s*: %v", prefix, err)
			return
		}
		defer c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
		defer cancel()
		admin := kadm.NewClient(c)
		all, err := admin.ListTopics(ctx)
		if err != nil {
			t.Errorf("deleting topics %s*: %v", prefix, err)
			return
		}
		var mine []string
		for _, name := range all.Names() {
			if strings.HasPrefix(name, prefix) {
				mine = append(mine, name)
			}
		}
		if len(mine) == 0 {
			return
		}
		if _, err := admin.DeleteTopics(ctx, mine...); err != nil {
			t.Errorf("deleting topics %s*: %v", prefix, err)
		}
	})
}

func startKafka(javaOptions string) (*KafkaServer, error) {
	s, err := spec{
		image: kafkaImage,
		port:  9092,
		env: func(port int, _ ...int) map[string]string {
			env := kafkaEnv(port)
			if javaOptions != "" {
				env["JAVA_TOOL_OPTIONS"] = javaOptions
			}
			return env
		},
		ready: func(port int) func(context.Context) error { return kafkaReady([]string{loopback(port)}) },
	}.start()
	if err != nil {
		return nil, err
	}
	return &KafkaServer{Outage: Outage{s}, Brokers: []string{loopback(s.port)}}, nil
}

// kafkaEnv serves the official image and the built one alike.
func kafkaEnv(port int) map[string]string {
	return map[string]string{
		"KAFKA_NODE_ID":       "1",
		"KAFKA_PROCESS_ROLES": "broker,controller",
		// The broker sends transaction markers to itself. Through the published port it would not reach itself from
		// inside its container, and each transaction would hang: so it has a listener of its own.
		"KAFKA_LISTENERS":                                        "PLAINTEXT://0.0.0.0:9092,BROKER://127.0.0.1:9094,CONTROLLER://127.0.0.1:9093",
		"KAFKA_ADVERTISED_LISTENERS":                             "PLAINTEXT://" + loopback(port) + ",BROKER://127.0.0.1:9094",
		"KAFKA_LISTENER_SECURITY_PROTOCOL_MAP":                   "PLAINTEXT:PLAINTEXT,BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"KAFKA_INTER_BROKER_LISTENER_NAME":                       "BROKER",
		"KAFKA_CONTROLLER_LISTENER_NAMES":                        "CONTROLLER",
		"KAFKA_CONTROLLER_QUORUM_VOTERS":                         "1@127.0.0.1:9093",
		"KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR":                 "1",
		"KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS":                     "1", // fifty of them make each restart longer and prove nothing
		"KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR":         "1",
		"KAFKA_TRANSACTION_STATE_LOG_MIN_ISR":                    "1",
		"KAFKA_TRANSACTION_STATE_LOG_NUM_PARTITIONS":             "1",
		"KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR": "1",
		"KAFKA_SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR":            "1",
		"KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS":                 "0",
		"KAFKA_AUTO_CREATE_TOPICS_ENABLE":                        "false",
		"KAFKA_LOG_RETENTION_CHECK_INTERVAL_MS":                  "1000", // so that a test which cuts a log sees it soon
	}
}

// kafkaReady asks for the brokers and for each partition's leader: after a restart the broker answers before it leads.
func kafkaReady(brokers []string) func(context.Context) error {
	return func(ctx context.Context) error {
		c, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.RequestRetries(0))
		if err != nil {
			return err
		}
		defer c.Close()
		meta, err := kadm.NewClient(c).Metadata(ctx)
		if err != nil {
			return err
		}
		if meta.Controller < 0 || len(meta.Brokers) == 0 {
			return fmt.Errorf("no controller yet")
		}
		for _, topic := range meta.Topics {
			for _, p := range topic.Partitions {
				if p.Leader < 0 {
					return fmt.Errorf("topic %s partition %d has no leader yet", p.Topic, p.Partition)
				}
			}
		}
		return nil
	}
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
