package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestProducedIsConsumed(t *testing.T) {
	b, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.ConsumeTopics("t"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	topics, err := admin.ListTopics(t.Context())
	if err != nil || len(topics) > 0 {
		t.Fatalf("a new broker has topics %v, %v", topics.Names(), err)
	}
	if _, err := admin.CreateTopic(t.Context(), 3, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("a")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	fetches := client.PollFetches(t.Context())
	if err := fetches.Err(); err != nil || fetches.NumRecords() != 1 || string(fetches.Records()[0].Value) != "a" {
		t.Fatalf("%d records, %v", fetches.NumRecords(), err)
	}
}

func TestUnknownTopicIsNotMade(t *testing.T) {
	b, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	details, err := kadm.NewClient(client).ListTopics(t.Context(), "no-such-topic")
	if err != nil {
		t.Fatal(err)
	}
	if d := details["no-such-topic"]; d.Err == nil {
		t.Fatalf("the topic was made by being named: %+v", d)
	}
}
