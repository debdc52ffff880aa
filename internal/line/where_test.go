package line

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/partitioner"
)

var nineOClock = time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)

func logOf(partition int32, events ...LogEvent) LogPartition {
	return LogPartition{Topic: "flights.events", Partition: partition, End: 48200, From: 100, Events: events}
}

func logEvent(offset, version int64, op event.Op) LogEvent {
	return LogEvent{Offset: offset, Op: op.String(), Version: version, At: nineOClock, Outbox: fmt.Sprintf("1.00/%d", version), ver: verOf(version, op)}
}

func storeAt(next int64, halted bool, vers ...int64) StoreRow {
	r := StoreRow{Store: "mysql/s1", sink: "mysql", Positions: []StandsAt{{Topic: "flights.events", Partition: 3, Next: next, HaltCode: "SL6001", halted: halted}}}
	for i, v := range vers {
		r.Rows = append(r.Rows, storedRow(fmt.Sprintf("flights_20261%d", i), v))
	}
	return r
}

func TestJudge(t *testing.T) {
	up := func(offset, version int64) LogEvent { return logEvent(offset, version, event.Upsert) }
	letter := func(offset int64) DeadLetter {
		return DeadLetter{Key: fmt.Sprintf("mysql/flights.events/3/%d", offset), State: stateOpen, Reason: "too_long"}
	}
	for _, c := range []struct {
		name    string
		store   StoreRow
		log     []LogPartition
		letters []DeadLetter
		want    string
	}{
		{"applied", storeAt(101, false, 20), []LogPartition{logOf(3, up(100, 10), up(90, 9))}, nil, VerdictApplied},
		{"a repeat of an older event behind it", storeAt(200, false, 20), []LogPartition{logOf(3, up(150, 9), up(100, 10))}, nil, VerdictApplied},
		{"the last is a delete", storeAt(101, false, 21), []LogPartition{logOf(3, logEvent(100, 10, event.Delete))}, nil, VerdictApplied},
		{"a delete of the row's own version is missing", storeAt(101, false, 20), []LogPartition{logOf(3, logEvent(100, 10, event.Delete))}, nil, VerdictMissing},
		{"not come to it", storeAt(100, false, 18), []LogPartition{logOf(3, up(100, 10), up(90, 9))}, nil, VerdictBehind},
		{"halted before it", storeAt(95, true, 18), []LogPartition{logOf(3, up(100, 10))}, nil, VerdictHalted},
		{"halted behind it", storeAt(101, true, 20), []LogPartition{logOf(3, up(100, 10))}, nil, VerdictApplied},
		{"passed and not there", storeAt(101, false), []LogPartition{logOf(3, up(100, 10))}, nil, VerdictMissing},
		{"refused", storeAt(101, false, 18), []LogPartition{logOf(3, up(100, 10), up(90, 9))}, []DeadLetter{letter(100)}, VerdictDead},
		{"refused, and there is nothing else", storeAt(101, false), []LogPartition{logOf(3, up(100, 10))}, []DeadLetter{letter(100)}, VerdictDead},
		{"refused, and a newer one is applied", storeAt(111, false, 22), []LogPartition{logOf(3, up(110, 11), up(100, 10))}, []DeadLetter{letter(100)}, VerdictApplied},
		{"refused, and the one below it is missing", storeAt(101, false), []LogPartition{logOf(3, up(100, 10), up(90, 9))}, []DeadLetter{letter(100)}, VerdictMissing},
		{"redriven and applied", storeAt(151, false, 20), []LogPartition{logOf(3, up(150, 10), up(100, 10))}, []DeadLetter{letter(100)}, VerdictApplied},
		{"twice", storeAt(101, false, 20, 18), []LogPartition{logOf(3, up(100, 10))}, nil, VerdictTwice},
		{"nowhere", storeAt(101, false), []LogPartition{logOf(3)}, nil, VerdictNotThere},
		{"older than what was searched", storeAt(101, false, 20), []LogPartition{logOf(3)}, nil, VerdictApplied},
		{"the log was not asked", storeAt(101, false, 20), nil, nil, VerdictApplied},
		{"another sink's letter", storeAt(101, false, 20), []LogPartition{logOf(3, up(100, 10))}, []DeadLetter{{Key: "clickhouse/flights.events/3/100"}}, VerdictApplied},
		{"no progress row", StoreRow{sink: "mysql"}, []LogPartition{logOf(3, up(100, 10))}, nil, VerdictBehind},
	} {
		c.store.judge(c.log, c.letters)
		if c.store.Verdict != c.want || c.store.Text == "" {
			t.Errorf("%s: %s (%s), want %s", c.name, c.store.Verdict, c.store.Text, c.want)
		}
	}
}

// Against a twin that applies the log one by one: a store that holds the fold of what lies below its offset is never
// called missing, and one that holds less always is.
func TestJudgeAgainstTwin(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 20_000 {
		var events []LogEvent
		var letters []DeadLetter
		next := rng.Int64N(8)
		var fold int64
		for offset := range rng.Int64N(8) {
			e := logEvent(offset, 1+rng.Int64N(4), []event.Op{event.Upsert, event.Delete}[rng.IntN(2)])
			events = append([]LogEvent{e}, events...)
			refused := offset < next && rng.IntN(4) == 0
			if refused {
				letters = append(letters, DeadLetter{Key: fmt.Sprintf("mysql/flights.events/3/%d", offset), State: stateOpen})
			}
			if offset < next && !refused {
				fold = max(fold, e.ver)
			}
		}
		var good, bad StoreRow
		if good = storeAt(next, false); fold > 0 {
			good = storeAt(next, false, fold)
		}
		good.judge([]LogPartition{logOf(3, events...)}, letters)
		if good.Verdict == VerdictMissing {
			t.Fatalf("seed %d: events %+v, letters %+v, next %d, holds %d: %s", seed, events, letters, next, fold, good.Text)
		}
		ahead := false // a greater one is to come: then it is not known yet
		for _, e := range events {
			ahead = ahead || e.Offset >= next && e.ver >= fold
		}
		if fold == 0 || ahead {
			continue
		}
		bad = storeAt(next, false)
		bad.judge([]LogPartition{logOf(3, events...)}, letters)
		if bad.Verdict != VerdictMissing {
			t.Fatalf("seed %d: events %+v, letters %+v, next %d, holds nothing: %s (%s)", seed, events, letters, next, bad.Verdict, bad.Text)
		}
	}
}

func TestWhereText(t *testing.T) {
	w := &Where{Line: "flights", Table: "flights", Tenant: "UA", ID: "1545", Lane: 1,
		Outbox: []OutboxRow{{ID: 12, Op: "upsert", Version: 140737488355340, At: nineOClock}, {ID: 10, Op: "upsert", Version: 140737488355338, At: nineOClock, Published: true}},
		Log:    []LogPartition{logOf(3, logEvent(48100, 140737488355338, event.Upsert), logEvent(48000, 140737488355330, event.Upsert))}}
	w.DeadLetters = []DeadLetter{{Key: "clickhouse/flights.events/3/48000", At: nineOClock, Reason: "out_of_range", State: stateOpen}}
	s1, ch := storeAt(48101, false, 2*140737488355338), storeAt(48050, false)
	ch.Store, ch.sink = "clickhouse", "clickhouse"
	w.Stores = []StoreRow{s1, ch}
	for i := range w.Stores {
		w.Stores[i].judge(w.Log, w.DeadLetters)
	}
	w.NotAsked = []NotAskedReason{{"mysql/s2", "no answer within 5s"}}
	var b bytes.Buffer
	if err := w.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "where.txt", b.Bytes())
}

func TestEntityTable(t *testing.T) {
	l := settleLine(t, narrowColumns)
	for _, c := range []struct {
		e    Entity
		id   string
		fine bool
	}{
		{Entity{Table: "flights", Tenant: "UA", ID: "+07"}, "7", true},
		{Entity{Table: "flights", Tenant: "UA", ID: "x"}, "", false},
		{Entity{Table: "flights", Tenant: "", ID: "7"}, "", false},
		{Entity{Table: "flight", Tenant: "UA", ID: "7"}, "", false},
	} {
		_, err := l.entityTable(&c.e)
		if (err == nil) != c.fine || err == nil && (c.e.ID != c.id || c.e.Month != partitioner.NoMonth) {
			t.Errorf("%+v: %v", c.e, err)
		}
	}
}
