package consumers

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/kafka"
)

func TestP8_Judge(t *testing.T) {
	id, other := event.TopicID{1}, event.TopicID{2}
	for name, c := range map[string]struct {
		at   event.Position
		log  kafka.Log
		want string
	}{
		"nothing applied, empty log":    {event.Position{LeaderEpoch: -1}, kafka.Log{TopicID: id, Epoch: -1, EpochEnd: -1}, ""},
		"nothing applied, log expired":  {event.Position{LeaderEpoch: -1}, kafka.Log{TopicID: id, Start: 5, End: 9, Epoch: -1, EpochEnd: -1}, "SL6001"},
		"goes on":                       {event.Position{Next: 7, TopicID: id, LeaderEpoch: 3}, kafka.Log{TopicID: id, End: 9, Epoch: 3, EpochEnd: 9}, ""},
		"at the end":                    {event.Position{Next: 9, TopicID: id, LeaderEpoch: 3}, kafka.Log{TopicID: id, End: 9, Epoch: 3, EpochEnd: 9}, ""},
		"at the start":                  {event.Position{Next: 5, TopicID: id, LeaderEpoch: 3}, kafka.Log{TopicID: id, Start: 5, End: 9, Epoch: 3, EpochEnd: 9}, ""},
		"epoch ended where we are":      {event.Position{Next: 7, TopicID: id, LeaderEpoch: 3}, kafka.Log{TopicID: id, End: 9, Epoch: 3, EpochEnd: 7}, ""},
		"an earlier epoch answers":      {event.Position{Next: 7, TopicID: id, LeaderEpoch: 3}, kafka.Log{TopicID: id, End: 9, Epoch: 2, EpochEnd: 7}, ""},
		"epoch ended below":             {event.Position{Next: 7, TopicID: id, LeaderEpoch: 3}, kafka.Log{TopicID: id, End: 9, Epoch: 3, EpochEnd: 6}, "SL6002"},
		"log shorter":                   {event.Position{Next: 7, TopicID: id, LeaderEpoch: 3}, kafka.Log{TopicID: id, End: 6, Epoch: 3, EpochEnd: 6}, "SL6002"},
		"log shorter, nothing known":    {event.Position{Next: 7, LeaderEpoch: -1}, kafka.Log{TopicID: id, End: 6, Epoch: -1, EpochEnd: -1}, "SL6002"},
		"expired":                       {event.Position{Next: 7, TopicID: id, LeaderEpoch: 3}, kafka.Log{TopicID: id, Start: 8, End: 9, Epoch: 3, EpochEnd: 9}, "SL6001"},
		"another topic":                 {event.Position{Next: 7, TopicID: id, LeaderEpoch: 3}, kafka.Log{TopicID: other, End: 9, Epoch: 3, EpochEnd: 9}, "SL6003"},
		"epoch unknown":                 {event.Position{Next: 7, TopicID: id, LeaderEpoch: 3}, kafka.Log{TopicID: id, End: 9, Epoch: -1, EpochEnd: -1}, "SL6004"},
		"epoch unknown to an empty log": {event.Position{Next: 9, TopicID: id, LeaderEpoch: 3}, kafka.Log{TopicID: id, Start: 9, End: 9, Epoch: -1, EpochEnd: -1}, ""},
		"a broker without topic ids":    {event.Position{Next: 7, TopicID: id, LeaderEpoch: 3}, kafka.Log{End: 9, Epoch: 3, EpochEnd: 9}, ""},
	} {
		got := ""
		if why := judge(c.at, c.log, "slotline sink accept-gap"); why != nil {
			got = why.Code
			if why.Class != fault.Fatal || why.Do == "" {
				t.Errorf("%s: %v", name, why)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The command that a halt names is whole: it can be run as it stands, but for the reason.
func TestAcceptGapIsTheWholeCommand(t *testing.T) {
	l := &loop{sink: namedSink{}, opts: Options{Config: &config.Config{Kafka: config.Kafka{Topic: "flights.events"}}}}
	for topic, want := range map[string]string{
		"flights.events": `slotline sink accept-gap --sink named --partition 11 --why "..."`,
		"flights.bags":   `slotline sink accept-gap --sink named --partition 11 --topic flights.bags --why "..."`,
	} {
		if got := l.acceptGap(event.Partition{Topic: topic, Number: 11}); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

type namedSink struct{ Sink }

func (namedSink) Name() string { return "named" }

// modelLog is a partition's log as its leader has it: for each offset from start on, the epoch under which it was
// written and what was written.
type modelLog struct {
	id    event.TopicID
	start int64
	epoch []int32
	value []int
}

func (l *modelLog) answer(at event.Position, leader int32) kafka.Log {
	end := l.start + int64(len(l.epoch))
	log := kafka.Log{TopicID: l.id, LeaderEpoch: leader, Start: l.start, End: end, Stable: end, Epoch: -1, EpochEnd: -1}
	switch {
	case at.LeaderEpoch < 0 || at.LeaderEpoch > leader:
	case at.LeaderEpoch == leader:
		log.Epoch, log.EpochEnd = leader, end
	default:
		// Kafka's rule: the start of the first greater epoch; the new leader's own begins at the end.
		log.Epoch, log.EpochEnd = at.LeaderEpoch, end
		for i, e := range l.epoch {
			if e > at.LeaderEpoch {
				log.EpochEnd = l.start + int64(i)
				break
			}
		}
	}
	return log
}

// P8: random writes, elections (clean, and unclean ones that cut the log), expiry and recreation, with a reader that
// goes on only while judge lets it. It never takes a log for a continuation that is not one, and never halts without a
// loss.
func TestP8_JudgeAgainstAModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	halts := map[string]int{}
	for range 20000 {
		log := modelLog{id: event.TopicID{1}}
		leader, value := int32(0), 0
		at := event.Position{LeaderEpoch: -1}
		lost := false // something that was applied is not what the log holds, or something that was not applied is gone
		applied := map[int64]int{}
		for range 25 {
			switch r.IntN(12) {
			default:
				for range r.IntN(5) {
					value++
					log.epoch, log.value = append(log.epoch, leader), append(log.value, value)
				}
			case 6, 7: // a clean election
				leader++
			case 8: // an unclean one
				if r.IntN(3) == 0 {
					n := r.IntN(len(log.epoch) + 1)
					log.epoch, log.value = log.epoch[:n], log.value[:n]
					leader++
				}
			case 9: // expiry
				if r.IntN(3) == 0 {
					n := r.IntN(len(log.epoch) + 1)
					log.epoch, log.value, log.start = log.epoch[n:], log.value[n:], log.start+int64(n)
				}
			case 10: // made again
				if r.IntN(10) == 0 {
					log = modelLog{id: event.TopicID{log.id[0] + 1}}
					leader = 0
				}
			}
			end := log.start + int64(len(log.epoch))
			lost = at.Next < log.start || at.Next > end || at.TopicID != event.TopicID{} && at.TopicID != log.id
			for o := log.start; o < min(at.Next, end); o++ {
				lost = lost || applied[o] != log.value[o-log.start]
			}
			why := judge(at, log.answer(at, leader), "slotline sink accept-gap")
			if why == nil && lost {
				t.Fatalf("a log that lost something is taken for a continuation of %+v: %+v", at, log)
			}
			if why != nil && !lost {
				t.Fatalf("halted without a loss at %+v: %v; %+v", at, why, log)
			}
			if why != nil {
				halts[why.Code]++
				break
			}
			// Apply some of it, one epoch at a time, as batches do.
			for n := r.IntN(6); n > 0 && at.Next < end; n-- {
				e := log.epoch[at.Next-log.start]
				if at.LeaderEpoch >= 0 && e != at.LeaderEpoch && judge(at, log.answer(at, leader), "slotline sink accept-gap") != nil {
					t.Fatalf("halted at a change of leader without a loss: %+v", at)
				}
				applied[at.Next] = log.value[at.Next-log.start]
				at = event.Position{Partition: at.Partition, Next: at.Next + 1, LeaderEpoch: e, TopicID: log.id}
			}
		}
	}
	for _, code := range []string{"SL6001", "SL6002", "SL6003"} {
		if halts[code] < 100 {
			t.Errorf("the model hardly ever came to %s: %v", code, halts)
		}
	}
}
