package consumers_test

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/consumers"
	"github.com/slotline/slotline/event"
)

// Each batch that is applied is told of once, with the sampled traces of its events, also where their records were let go
// of before it was sent; a try that failed is in its time, and no batch of its own.
func TestAppliedTellsOfEachBatchWithItsTraces(t *testing.T) {
	for name, gathers := range map[string]bool{"whole": false, "gathered": true} {
		t.Run(name, func(t *testing.T) {
			l := newLine(t)
			sink := l.sink()
			if gathers {
				sink, _ = l.gathers(0)
			}
			var records []*kgo.Record
			var want []string
			for i := range int64(200) {
				l.next[1]++
				r := l.record(1, i, l.next[1], "")
				flags := "00"
				if i%3 == 0 {
					flags = "01"
				}
				trace := fmt.Sprintf("00-%032x-%016x-%s", i/6+1, i/6+1, flags) // a transaction emitted six
				if flags == "01" && !slices.Contains(want, trace) {
					want = append(want, trace)
				}
				r.Headers = append(r.Headers, kgo.RecordHeader{Key: "traceparent", Value: []byte(trace)})
				records = append(records, r)
			}
			l.send(l.cl, records...)
			var mu sync.Mutex
			var told []consumers.Applied
			began := time.Now()
			p := l.run(sink, func(o *consumersOptions) {
				o.Applied = func(a consumers.Applied) {
					mu.Lock()
					defer mu.Unlock()
					told = append(told, a)
				}
			})
			l.untilDrained()
			if err := p.stop(); err != nil {
				t.Fatal(err)
			}
			events, at := 0, int64(0)
			var links []string
			for _, a := range told {
				r := a.Ranges[0]
				if a.Sink != sink.Name() || len(a.Ranges) != 1 || r.Partition != l.part(1) || r.From != at {
					t.Errorf("%+v, wanted a batch from offset %d on", a, at)
				}
				if a.Since.Before(began) || a.Until.Before(a.Since) {
					t.Errorf("from %v to %v", a.Since, a.Until)
				}
				events, at = events+a.Events, r.To
				for _, trace := range a.Traces {
					if !slices.Contains(links, trace) { // one that two batches share is linked to by both
						links = append(links, trace)
					}
				}
			}
			if events != 200 || !slices.Equal(links, want) {
				t.Errorf("%d events in %d batches, %d links; wanted 200 and %d", events, len(told), len(links), len(want))
			}
		})
	}
}

// traced is a message whose header is there, packed as Kafka has it.
func traced(trace string) event.Message {
	e := event.Event{ID: event.NewID(), Table: "t", Tenant: "a", EntityID: "1", Op: event.Upsert, Version: 1, Time: time.Unix(0, 0), TraceParent: trace}
	_, rec := e.AppendRecord(nil, "slotline/x")
	return event.Message{Record: event.Record{Key: rec.Key, Value: bytes.Clone(rec.Value), Headers: rec.Headers}}
}

// Where nobody asks for traces, and where nobody records any, they cost no allocation.
func TestTracesThatNobodyWantsCostNothing(t *testing.T) {
	for _, c := range []struct {
		name  string
		on    bool
		trace string
	}{{"off", false, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, {"none sampled", true, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}} {
		link := consumers.Linking(c.on)
		messages := []event.Message{traced(c.trace), traced("")}
		if n := testing.AllocsPerRun(100, func() { link(messages) }); n != 0 {
			t.Errorf("%s: %v allocations", c.name, n)
		}
	}
}
