package kafka

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/deadletter"
)

// A letter is open unless the last record of its key settles it, whatever came in which order; the twin looks through
// the whole topic for each key.
func TestSettledLettersAgainstTwin(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		var topic []*kgo.Record
		for i := range rng.IntN(12) {
			d := DeadLetter{Sink: "mysql", Partition: event.Partition{Topic: "flights.events", Number: 1}, Offset: rng.Int64N(3),
				Reason: fmt.Sprintf("reason%d", i), At: time.Unix(int64(i), 0)}
			r := d.record("flights.dead")
			if rng.IntN(2) == 0 {
				action := []deadletter.Action{deadletter.Redriven, deadletter.Discarded}[rng.IntN(2)]
				r = settledRecord("flights.dead", d.Key(), deadletter.Settled{Action: action, By: "ops", Why: fmt.Sprint(i), At: time.Unix(int64(i), 0)})
			}
			r.Offset = int64(i)
			topic = append(topic, r)
		}
		f := newFold(nil)
		for _, r := range topic {
			if s, ok := parseSettled(r); ok {
				f.settle(string(r.Key), s)
			} else if d, err := parseDead(r); err != nil {
				t.Fatal(err)
			} else {
				f.add(d)
			}
		}
		for _, got := range f.letters {
			var want *deadletter.Settled
			reason := ""
			for _, r := range topic {
				if string(r.Key) != got.Key() {
					continue
				}
				if s, ok := parseSettled(r); !ok {
					want, reason = nil, string(r.Headers[len(r.Headers)-5].Value)
				} else if reason != "" {
					want = &s
				}
			}
			if got.Reason != reason || (got.Settled == nil) != (want == nil) || want != nil && *got.Settled != *want {
				t.Fatalf("seed %d: letter %s has reason %s and is settled as %+v, want %s and %+v", seed, got.Key(), got.Reason, got.Settled, reason, want)
			}
		}
	}
}

// What is settled is known to everybody who reads the topic, and the letters can still be read whole, by place.
func TestSettleThroughTheTopic(t *testing.T) {
	_, cfg := cluster(t)
	cl := open(t, cfg)
	for _, topic := range Topics(cfg) {
		if err := topic.Create(t.Context(), cl); err != nil {
			t.Fatal(err)
		}
	}
	dead, err := NewDead(cfg, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	letter := func(offset int64) DeadLetter {
		return DeadLetter{Sink: "mysql", Partition: event.Partition{Topic: cfg.Kafka.Topic}, Offset: offset, Reason: "too_long", At: time.Now(),
			Record: event.Record{Key: []byte("flights\x00UA\x001"), Value: fmt.Append(nil, offset), Headers: []event.Header{{Key: "ce_id", Value: []byte("x")}}}}
	}
	if err := dead.Produce(t.Context(), []DeadLetter{letter(1), letter(2), letter(3)}); err != nil {
		t.Fatal(err)
	}
	how := deadletter.Settled{Action: deadletter.Discarded, By: "ops@host", Why: "test data", At: time.Now().UTC().Truncate(time.Nanosecond)}
	if err := dead.Settle(t.Context(), []string{"mysql/flights.events/0/2", "mysql/flights.events/0/77"}, how); err != nil {
		t.Fatal(err)
	}
	got, err := DeadLetters(t.Context(), cfg, nil, nil)
	if err != nil || len(got) != 3 || got[0].Settled != nil || got[1].Settled == nil || *got[1].Settled != how || got[2].Settled != nil {
		t.Fatalf("%+v, %v", got, err)
	}
	var values string
	err = EachDeadLetter(t.Context(), cfg, nil, map[DeadPlace]bool{got[0].Place: true, got[2].Place: true}, func(d *DeadLetter) error {
		values += string(d.Record.Value)
		return nil
	})
	if err != nil || values != "13" {
		t.Errorf("letters %q read whole, %v", values, err)
	}
	stop := fmt.Errorf("enough")
	err = EachDeadLetter(t.Context(), cfg, nil, map[DeadPlace]bool{got[0].Place: true, got[2].Place: true}, func(d *DeadLetter) error { return stop })
	if err != stop {
		t.Errorf("an error of the reader becomes %v", err)
	}
}
