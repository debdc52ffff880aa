package archive

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func spoolFile(t testing.TB) *os.File {
	f, err := os.CreateTemp(t.TempDir(), "spool")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// flightsRecord is one as the relay writes it.
func flightsRecord(i int64) *kgo.Record {
	h := func(k, v string) kgo.RecordHeader { return kgo.RecordHeader{Key: k, Value: []byte(v)} }
	carrier := [...]string{"UA", "DL", "AA", "9E", "MQ"}[i%5]
	return &kgo.Record{Offset: i, Timestamp: time.UnixMilli(1_780_000_000_000 + i*3), LeaderEpoch: 2, Key: fmt.Appendf(nil, "flights\x00%s\x00%d", carrier, 9_000_000+i),
		Value: fmt.Appendf(nil, `{"carrier":"%s","flight_id":%d,"sched_dep":"2013-05-%02dT10:%02d:00.000000Z","origin":"JFK","dest":"LAX","tail_num":"N%d","distance":2475,"status":"departed","cancelled":false,"dep_delay":%d,"arr_delay":null}`, carrier, 9_000_000+i, i%28+1, i%60, i%999, i%77),
		Headers: []kgo.RecordHeader{h("ce_specversion", "1.0"), h("ce_id", fmt.Sprintf("0190f6e2-7f3a-4c5d-8e9f-%012x", uint64(i)*0x9e3779b97f4a7c15>>16)), h("ce_source", "slotline/flights"),
			h("ce_type", "flights.upsert"), h("ce_time", fmt.Sprintf("2026-11-30T09:14:02.%06dZ", i%1e6)), h("ce_subject", fmt.Sprintf("flights/%s/%d", carrier, 9_000_000+i)),
			h("content-type", "application/json; format=1"), h("ce_version", fmt.Sprint(140737506559879+i)), h("ce_op", "upsert"), h("ce_layoutepoch", "1"), h("ce_outbox", fmt.Sprintf("1.00/%d", 18204551+i))}}
}

// Nothing of a record changes, whatever it holds: no key, an empty one, headers that come twice, and no value at all, which
// is not an empty one.
func TestFileHoldsWhatTheTopicHeld(t *testing.T) {
	f := spoolFile(t)
	records := []*kgo.Record{
		{Offset: 3, Timestamp: time.UnixMilli(5)},
		{Offset: 5, Timestamp: time.UnixMilli(4), Key: []byte{}, Value: []byte{0, 255},
			Headers: []kgo.RecordHeader{{}, {Key: "a", Value: []byte{}}, {Key: "a", Value: []byte("x")}}},
		flightsRecord(7),
		{Offset: 8, Timestamp: time.UnixMilli(math.MaxInt64), Key: []byte("another program's")},
		{Offset: 9, Timestamp: time.UnixMilli(9), LeaderEpoch: 4, Key: []byte("k"), Value: []byte{}},
	}
	w := newFileWriter(f, "t", 2)
	for _, r := range records {
		if err := w.add(r); err != nil {
			t.Fatal(err)
		}
	}
	e, err := w.close(12)
	if err != nil {
		t.Fatal(err)
	}
	if e.From != 2 || e.To != 12 || e.Records != 5 || e.LeaderEpoch != 4 || e.First.UnixMilli() != 4 || e.Last.Year() != 9999 {
		t.Errorf("%+v", e)
	}
	text := func(r *kgo.Record) string {
		return fmt.Sprintf("%d %d %d %#v %#v %#v", r.Offset, r.Timestamp.UnixMilli(), r.LeaderEpoch, r.Key, r.Value, r.Headers)
	}
	for from := range int64(11) {
		want := slices.DeleteFunc(slices.Clone(records), func(r *kgo.Record) bool { return r.Offset < from })
		err = readRecords(f, e, "t", 0, from, func(list []*kgo.Record) error {
			for _, r := range list {
				if text(r) != text(want[0]) {
					t.Errorf("read %s\nwas  %s", text(r), text(want[0]))
				}
				want = want[1:]
			}
			return nil
		})
		if err != nil || len(want) > 0 {
			t.Fatalf("from %d: %d are missing, %v", from, len(want), err)
		}
	}
	m := testManifest()
	m.Files = []File{e}
	m.encode()
	if err := readRecords(f, e, "t", 1, 0, func([]*kgo.Record) error { return nil }); !errors.Is(err, errDamaged) {
		t.Errorf("as another partition's: %v", err)
	}
}

// Records that do not ascend, or are not those that the manifest tells of, are none of the archive's: whatever a file's
// digest says.
func TestFileIsReadInOrder(t *testing.T) {
	for _, c := range []struct {
		name     string
		offsets  []int64
		change   func(*File)
		readable bool
	}{
		{"ascending", []int64{2, 3, 7}, func(*File) {}, true},
		{"one offset twice", []int64{2, 3, 3}, func(*File) {}, false},
		{"descending", []int64{2, 4, 3}, func(*File) {}, false},
		{"before the first", []int64{1, 3, 4}, func(*File) {}, false},
		{"past the end", []int64{2, 3, 9}, func(e *File) { e.To = 9 }, false},
		{"one record more than were named", []int64{2, 3, 7}, func(e *File) { e.Records = 2 }, false},
		{"one record fewer", []int64{2, 3, 7}, func(e *File) { e.Records = 4 }, false},
	} {
		f := spoolFile(t)
		w := newFileWriter(f, "t", 2)
		for _, offset := range c.offsets {
			if err := w.add(&kgo.Record{Offset: offset, Timestamp: time.UnixMilli(5), Value: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
		e, err := w.close(10)
		if err != nil {
			t.Fatal(err)
		}
		c.change(&e)
		err = readRecords(f, e, "t", 0, 0, func([]*kgo.Record) error { return nil })
		if c.readable != (err == nil) || err != nil && !errors.Is(err, errDamaged) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Rates and sizes, for docs/archive.md.
func BenchmarkFile(b *testing.B) {
	const n = 200_000
	for b.Loop() {
		f := spoolFile(b)
		at := time.Now()
		w := newFileWriter(f, "t", 0)
		raw := int64(0)
		for i := range int64(n) {
			r := flightsRecord(i)
			raw += recordBytes(r)
			if err := w.add(r); err != nil {
				b.Fatal(err)
			}
		}
		e, err := w.close(n)
		if err != nil {
			b.Fatal(err)
		}
		wrote := time.Since(at)
		at = time.Now()
		if err := readRecords(f, e, "t", 0, 0, func([]*kgo.Record) error { return nil }); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(n)/wrote.Seconds(), "write/s")
		b.ReportMetric(float64(n)/time.Since(at).Seconds(), "read/s")
		b.ReportMetric(float64(e.Bytes)/n, "bytes/event")
		b.ReportMetric(float64(raw)/n, "raw/event")
	}
}
