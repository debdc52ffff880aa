package line

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/deadletter"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/partitioner"
)

// settleLine is a line whose Kafka is a fake, for dead letters of sinks.
func settleLine(t *testing.T, columns string) *Line {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "flights.events"), kfake.SeedTopics(1, "flights.dead"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	cfg, err := config.Parse("slotline.yaml", []byte(`
line: flights
kafka: { brokers: ["`+cluster.ListenAddrs()[0]+`"], partitions: 4, replication: 1 }
outbox: { dsn: "mysql://app:secret@127.0.0.1/flights", lanes: 2 }
shards: { s1: { dsn: "mysql://slotline:secret@127.0.0.1/flights_s1", slots: 0-1023 } }
tables: { flights: { tenant: carrier, id: flight_id, month: dep, columns: `+columns+` } }
`))
	if err != nil {
		t.Fatal(err)
	}
	l := New(cfg, slog.New(slog.DiscardHandler))
	l.layout = layoutOf(t, partitioner.Spec{Epoch: 1, Slots: 1024, Shards: []partitioner.ShardSpec{
		{Name: "s1", Slots: []partitioner.SlotRange{{First: 0, Last: 1023}}}}}, 4)
	return l
}

const (
	narrowColumns = `{ carrier: string(2), flight_id: int64, dep: datetime, name: string(2) }`
	wideColumns   = `{ carrier: string(2), flight_id: int64, dep: datetime, name: string(9) }`
)

func flightRecord(carrier string, id, version int64, name string) event.Record {
	e := event.Event{ID: event.NewID(), Table: "flights", Tenant: carrier, EntityID: fmt.Sprint(id), Op: event.Upsert, Version: version,
		Time: time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC), LayoutEpoch: 1, Outbox: event.OutboxPosition{Generation: 1, Lane: 1, ID: uint64(id)},
		Body: fmt.Appendf(nil, `{"carrier":%q,"flight_id":%d,"dep":"2026-11-30T10:00:00.000000Z","name":%q}`, carrier, id, name)}
	_, rec := e.AppendRecord(nil, event.Source("flights"))
	return rec
}

// bury writes letters of the MySQL sink.
func bury(t *testing.T, l *Line, sink string, records ...event.Record) {
	t.Helper()
	dead, err := kafka.NewDead(l.Config, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	var letters []kafka.DeadLetter
	for i, r := range records {
		letters = append(letters, kafka.DeadLetter{Sink: sink, Partition: event.Partition{Topic: "flights.events", Number: 3}, Offset: int64(i),
			Reason: event.ReasonTooLong, Error: "too long", At: time.Now(), Record: r})
	}
	if err := dead.Produce(t.Context(), letters); err != nil {
		t.Fatal(err)
	}
}

func openLetters(t *testing.T, l *Line, f DeadFilter) *DeadLetters {
	t.Helper()
	letters, err := l.sinkLetters(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	list := &DeadLetters{Line: "flights"}
	for _, d := range letters {
		if f.match(&d) {
			list.Letters = append(list.Letters, d)
		}
	}
	return list
}

func redrive(t *testing.T, l *Line, list *DeadLetters) *Settling {
	t.Helper()
	pub, err := kafka.NewPublisher(t.Context(), l.Config, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer pub.Close()
	s, err := l.settleAll(t.Context(), list, deadletter.Settled{Action: deadletter.Redriven, By: "ops@host"}, pub)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// published is the topic's records, by partition and offset.
func published(t *testing.T, l *Line) (records []string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(l.Config.Kafka.Brokers...), kgo.ConsumeTopics("flights.events"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(t.Context(), "flights.events")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	ends.Each(func(o kadm.ListedOffset) { count += int(o.Offset) })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for len(records) < count {
		if ctx.Err() != nil {
			t.Fatalf("%d of %d records in time", len(records), count)
		}
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			text := fmt.Sprintf("%d %q %q", r.Partition, r.Key, r.Value)
			for _, h := range r.Headers {
				text += fmt.Sprintf(" %s=%q", h.Key, h.Value)
			}
			records = append(records, text)
		})
	}
	return records
}

func asPublished(partition int32, r event.Record) string {
	text := fmt.Sprintf("%d %q %q", partition, r.Key, r.Value)
	for _, h := range r.Headers {
		text += fmt.Sprintf(" %s=%q", h.Key, h.Value)
	}
	return text
}

// A redriven event is the original one byte for byte, in the partition of its tenant, however often it is redriven; what
// the rules still refuse stays open.
func TestRedriveRepeatsTheRecord(t *testing.T) {
	l := settleLine(t, wideColumns)
	fits, tooLong, strange := flightRecord("UA", 1, 10, "arrived"), flightRecord("UA", 2, 11, "far too long"), event.Record{Key: []byte("x"), Value: []byte("y")}
	bury(t, l, "mysql", fits, tooLong, strange)
	list := openLetters(t, l, DeadFilter{})
	if len(list.Letters) != 3 {
		t.Fatalf("%d letters", len(list.Letters))
	}
	first, second := redrive(t, l, list), redrive(t, l, list) // two operators, at once
	for _, s := range []*Settling{first, second} {
		if s.Done != 1 || len(s.Left) != 2 || !strings.Contains(s.Left[0].Why, "name") || s.Left[0].Key != "mysql/flights.events/3/1" {
			t.Errorf("%+v", s)
		}
	}
	want := asPublished(l.layout.Route("UA", "").Partition, fits)
	if got := published(t, l); len(got) != 2 || got[0] != want || got[1] != want {
		t.Errorf("published %q, want twice %q", got, want)
	}
	if open := openLetters(t, l, DeadFilter{}); len(open.Letters) != 2 || open.Letters[0].ID != "2" {
		t.Errorf("open are %+v", open.Letters)
	}
	all := openLetters(t, l, DeadFilter{Settled: true})
	if d := all.Letters[0]; len(all.Letters) != 3 || d.State != "redriven" || d.Settled == nil || d.Settled.By != "ops@host" {
		t.Errorf("all are %+v", all.Letters)
	}
	if s := redrive(t, l, openLetters(t, l, DeadFilter{Sink: "clickhouse"})); s.Done != 0 || len(s.Left) != 0 {
		t.Errorf("nothing selected: %+v", s)
	}
}

// Before the column is widened nothing is published: the letter would only come back.
func TestRedriveRefusesWhatIsNotMended(t *testing.T) {
	l := settleLine(t, narrowColumns)
	bury(t, l, "mysql", flightRecord("UA", 1, 10, "arrived"))
	bury(t, l, "elsewhere", flightRecord("UA", 1, 10, "ok"))
	s := redrive(t, l, openLetters(t, l, DeadFilter{}))
	if s.Done != 0 || len(s.Left) != 2 || !strings.Contains(s.Left[1].Why, "no sink elsewhere") {
		t.Errorf("%+v", s)
	}
	if got := published(t, l); len(got) != 0 {
		t.Errorf("published %q", got)
	}
}

func TestDeadFilter(t *testing.T) {
	at := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	d := DeadLetter{Key: "mysql/flights.events/3/1", Sink: "mysql", Reason: "too_long", At: at, State: stateOpen, entity: entityKey{"flights", "UA", "1"}}
	for _, c := range []struct {
		f    DeadFilter
		want bool
	}{
		{DeadFilter{}, true},
		{DeadFilter{Keys: []string{"a", d.Key}}, true},
		{DeadFilter{Keys: []string{"a"}}, false},
		{DeadFilter{Sink: "mysql", Reason: "too_long", Table: "flights", Tenant: "UA"}, true},
		{DeadFilter{Sink: "outbox"}, false},
		{DeadFilter{Reason: "null"}, false},
		{DeadFilter{Table: "flight"}, false},
		{DeadFilter{Tenant: "ua"}, false},
		{DeadFilter{Since: at, Until: at.Add(1)}, true},
		{DeadFilter{Since: at.Add(1)}, false},
		{DeadFilter{Until: at}, false},
	} {
		if got := c.f.match(&d); got != c.want {
			t.Errorf("%+v selects it: %v, want %v", c.f, got, c.want)
		}
		if c.f.Empty() != (c.f.Keys == nil && c.f.Sink+c.f.Reason+c.f.Table+c.f.Tenant == "" && c.f.Since.IsZero() && c.f.Until.IsZero()) {
			t.Errorf("%+v: Empty() is %v", c.f, c.f.Empty())
		}
	}
	d.State = string(deadletter.Discarded)
	if (&DeadFilter{}).match(&d) || !(&DeadFilter{Settled: true}).match(&d) {
		t.Error("a settled letter is selected only where settled ones are asked for")
	}
}

func TestDeadLettersText(t *testing.T) {
	at := time.Date(2026, 11, 30, 9, 14, 2, 0, time.UTC)
	list := &DeadLetters{Line: "flights", Letters: []DeadLetter{
		{Key: "mysql/flights.events/3/48100", Sink: "mysql", Reason: "too_long", Error: "table flights, column name: 12 code points [SL1131]\n  do: widen it", At: at, Table: "flights", Tenant: "UA", ID: "9041113", State: stateOpen},
		{Key: "outbox/01/1/7", Sink: "outbox", Reason: "unknown_table", Error: "the file has no table \"gates\"", At: at.Add(time.Minute), Table: "gates", Tenant: "UA", ID: "7", State: stateOpen}}}
	var b bytes.Buffer
	write := func(text func(*bytes.Buffer) error) {
		t.Helper()
		if err := text(&b); err != nil {
			t.Fatal(err)
		}
		b.WriteByte('\n')
	}
	write(func(b *bytes.Buffer) error { return (&DeadLetters{Line: "flights"}).WriteText(b) })
	write(func(b *bytes.Buffer) error { return list.WriteText(b) })
	list.Letters[0].settle(&deadletter.Settled{Action: deadletter.Discarded, At: at.Add(time.Hour), By: "ops@host", Why: "test data"})
	write(func(b *bytes.Buffer) error { return list.WriteText(b) })
	write(func(b *bytes.Buffer) error { return list.Letters[0].WriteText(b) })
	write(func(b *bytes.Buffer) error {
		return (&Settling{Line: "flights", Action: deadletter.Redriven, Done: 12}).WriteText(b)
	})
	write(func(b *bytes.Buffer) error {
		return (&Settling{Line: "flights", Action: deadletter.Redriven, Done: 1, Left: []LeftLetter{{"outbox/01/1/7", `unknown_table: the file has no table "gates"`}}}).WriteText(b)
	})
	golden(t, "deadletters.txt", b.Bytes())
}
