package consumers

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
)

func partitionOf(topic string, n int32) event.Partition {
	return event.Partition{Topic: topic, Number: n}
}

func TestSpans(t *testing.T) {
	for want, numbers := range map[string][]int32{"": nil, "7": {7}, "0-1": {1, 0}, "0-3, 7, 9-10": {9, 3, 0, 1, 2, 10, 7, 7}} {
		if got := spans(numbers); got != want {
			t.Errorf("%v: %q, want %q", numbers, got, want)
		}
	}
}

// Sixteen partitions that halt for one reason are one line of the log, one for another reason is its own; and what is
// said later is said anew.
func TestNewsSaysTheSameOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		n := news{log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			}}))}
		differs := &fault.Error{Code: "SL3003", Class: fault.Fatal, What: "table orders differs"}
		for i := range int32(16) {
			n.add(slog.LevelError, "halted", event.Position{Partition: partitionOf("a", i), Next: 5}, differs)
			n.add(slog.LevelWarn, "could not record", event.Position{Partition: partitionOf("a", i)}, errors.New("no answer"))
		}
		n.add(slog.LevelError, "halted", event.Position{Partition: partitionOf("b", 3), Next: 9}, differs)
		n.add(slog.LevelError, "halted", event.Position{Partition: partitionOf("a", 4), Next: 7}, &fault.Error{Code: "SL6001", What: "gone"})
		n.mu.Lock() // the timer writes under it
		if log.Len() > 0 {
			t.Errorf("said at once: %s", log.String())
		}
		n.mu.Unlock()
		time.Sleep(newsWait)
		synctest.Wait()
		n.add(slog.LevelInfo, "the partition goes on", event.Position{Partition: partitionOf("a", 4), Next: 8}, nil)
		n.flush()
		n.flush()
		const want = `level=ERROR msg=halted topic=a partitions=0-15 code=SL3003 error="table orders differs [SL3003]"
level=WARN msg="could not record" topic=a partitions=0-15 error="no answer"
level=ERROR msg=halted topic=b partition=3 offset=9 code=SL3003 error="table orders differs [SL3003]"
level=ERROR msg=halted topic=a partition=4 offset=7 code=SL6001 error="gone [SL6001]"
level=INFO msg="the partition goes on" topic=a partition=4 offset=8
`
		if log.String() != want {
			t.Errorf("the log is\n%s\nwanted\n%s", log.String(), want)
		}
	})
}

// The error that Run ends with has one paragraph for each reason.
func TestHaltedHasAParagraphForEachReason(t *testing.T) {
	at := time.Date(2026, 11, 30, 3, 12, 4, 0, time.UTC)
	differs := &fault.Error{Code: "SL3003", What: "table orders differs", Do: "slotline apply"}
	h := &Halted{Sink: "mysql"}
	for i := range int32(8) {
		why := differs
		if i == 5 {
			why = &fault.Error{Code: "SL6001", What: "offset 7 is gone from Kafka"}
		}
		h.Halts = append(h.Halts, Halt{Partition: partitionOf("flights.events", i), Since: at.Add(-time.Duration(i) * time.Second), Why: why})
	}
	const want = `mysql, flights.events partitions 0-4, 6-7 halted since 03:11:57Z: table orders differs [SL3003]
  do: slotline apply
mysql, flights.events partition 5 halted since 03:11:59Z: offset 7 is gone from Kafka [SL6001]`
	if h.Error() != want {
		t.Errorf("the error is\n%s\nwanted\n%s", h.Error(), want)
	}
	if fault.CodeOf(h) != "SL3003" {
		t.Errorf("its code is %s", fault.CodeOf(h))
	}
}
