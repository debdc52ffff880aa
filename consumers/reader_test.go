package consumers

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/kafka"
)

// P8: what a fetch brings from another topic of the same name is not taken, whatever its offsets say.
func TestP8_FetchOfATopicMadeAgainIsNotTaken(t *testing.T) {
	part := event.Partition{Topic: "flights.events", Number: 1}
	ours, other := event.TopicID{1}, event.TopicID{2}
	for _, c := range []struct {
		name  string
		id    event.TopicID
		taken int
	}{{"the same", ours, 1}, {"made again", other, 0}, {"a broker without ids", event.TopicID{}, 1}} {
		t.Run(c.name, func(t *testing.T) {
			s := newStream(event.Position{Partition: part, Next: 5, LeaderEpoch: -1}, kafka.Log{TopicID: ours}, make(chan struct{}, 1))
			r := &reader{streams: map[event.Partition]*stream{part: s}}
			r.deliverPartition(&kgo.FetchTopic{Topic: part.Topic, TopicID: c.id},
				&kgo.FetchPartition{Partition: part.Number, Records: []*kgo.Record{{Offset: 5, Value: []byte("{}")}}}, time.Now())
			if len(s.q.items) != c.taken || (s.trouble != nil) != (c.taken == 0) || (r.held.Load() > 0) != (c.taken > 0) {
				t.Errorf("%d records taken, %d bytes held, trouble %v", len(s.q.items), r.held.Load(), s.trouble)
			}
		})
	}
}
