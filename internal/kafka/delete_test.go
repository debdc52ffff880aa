package kafka

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
)

// The right to remove records is asked for before; it is enough for that, and for looking how the logs stand. The line's own
// user does not have it. A partition that fails holds up no other.
func TestDeleteNeedsDeleteAlone(t *testing.T) {
	right := func(operation kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: "flights.events", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: operation, Allow: true}
	}
	_, cfg := cluster(t, kfake.NumBrokers(2), kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "admin", "admin"),
		kfake.User("PLAIN", "operator", "pw", right(kmsg.ACLOperationDelete)), kfake.User("PLAIN", "line", "pw", right(kmsg.ACLOperationRead), right(kmsg.ACLOperationWrite)))
	as := func(user, password string) *kgo.Client {
		cl, err := Open(t.Context(), cfg, "test", nil, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.Close)
		return cl
	}
	admin, operator, line := as("admin", "admin"), as("operator", "pw"), as("line", "pw")
	if err := Topics(cfg)[0].Create(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	parts := []event.Partition{{Topic: cfg.Kafka.Topic}, {Topic: cfg.Kafka.Topic, Number: 1}, {Topic: cfg.Kafka.Topic, Number: 2}}
	var at []event.Position
	for _, p := range parts {
		at = append(at, event.Position{Partition: p, LeaderEpoch: -1})
		for range 10 {
			if err := admin.ProduceSync(t.Context(), &kgo.Record{Topic: p.Topic, Partition: p.Number, Value: []byte("x")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := MayDelete(t.Context(), line, cfg); fault.CodeOf(err) != "SL2006" || !strings.Contains(err.Error(), "cannot remove records of topic flights.events (Delete)") {
		t.Errorf("without the right: %v", err)
	}
	below := map[event.Partition]int64{parts[0]: 4, parts[1]: 10, parts[2]: 11} // of ten
	for p, err := range DeleteBelow(t.Context(), line, below) {
		if fault.CodeOf(err) != "SL2006" {
			t.Errorf("%v without the right: %v", p, err)
		}
	}
	if err := MayDelete(t.Context(), operator, cfg); err != nil {
		t.Error(err)
	}
	failed := DeleteBelow(t.Context(), operator, below)
	if err := failed[parts[2]]; len(failed) != 1 || err == nil || !strings.Contains(err.Error(), "cannot remove what lies below offset 11 of flights.events partition 2") {
		t.Errorf("%v", failed)
	}
	logs, err := Inspect(t.Context(), operator, at)
	if err != nil || logs[parts[0]].Start != 4 || logs[parts[1]].Start != 10 || logs[parts[2]].Start != 0 {
		t.Errorf("%+v, %v", logs, err)
	}
}
