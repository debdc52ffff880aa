package mysql

import (
	"errors"
	"slices"
	"testing"

	"github.com/slotline/slotline/event"
)

// P7: where the greatest version of an entity is a dead letter, the next lower one of the batch is applied.
func TestP7_NextLowerVersionTakesThePlaceOfAnExcludedOne(t *testing.T) {
	s := testSink(t)
	o, b := benchBatch(t, s, 1)
	newer := b.Messages[0]
	newer.Offset = 1
	newer.Headers = slices.Clone(newer.Headers)
	for i := range newer.Headers {
		if newer.Headers[i].Key == "ce_version" {
			newer.Headers[i].Value = []byte("9")
		}
	}
	b.Messages = append(b.Messages, newer)
	b.Ranges[0].To = 2
	for _, c := range []struct {
		excluded map[int]bool
		ver      int64
	}{{nil, 18}, {map[int]bool{1: true}, 2}, {map[int]bool{0: true}, 18}} {
		b.Excluded = c.excluded
		p, err := o.Prepare(b)
		if err != nil {
			t.Fatal(err)
		}
		entries := p.(*prepared).buffer.entries
		if len(entries) != 1 || entries[0].ver != c.ver {
			t.Errorf("without %v: rows %+v, wanted one of _ver %d", c.excluded, entries, c.ver)
		}
		o.giveBuffer(p.(*prepared))
	}
}

// An event of a layout that the sink does not know yet is no dead letter, and neither are those beside it: the batch waits.
func TestP7_EventOfANewerLayoutIsNoDeadLetter(t *testing.T) {
	s := testSink(t)
	o, b := benchBatch(t, s, 1)
	bad, newer := b.Messages[0], b.Messages[0]
	bad.Offset, bad.Value = 1, []byte("{")
	newer.Offset, newer.Headers = 2, slices.Clone(newer.Headers)
	for i := range newer.Headers {
		if newer.Headers[i].Key == "ce_layoutepoch" {
			newer.Headers[i].Value = []byte("2")
		}
	}
	b.Messages = append(b.Messages, bad, newer)
	b.Ranges[0].To = 3
	p, err := o.Prepare(b)
	if at, ok := errors.AsType[*event.NewerLayout](err); !ok || at.Epoch != 2 || p != nil {
		t.Errorf("prepared %v, %v", p, err)
	}
}
