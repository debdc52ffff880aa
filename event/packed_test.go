package event

import (
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// inKafka is headers as a Kafka record has them.
func inKafka(headers []Header) []byte {
	text := func(p, b []byte) []byte {
		if b == nil {
			return binary.AppendVarint(p, -1)
		}
		return append(binary.AppendVarint(p, int64(len(b))), b...)
	}
	p := binary.AppendVarint(nil, int64(len(headers)))
	for _, h := range headers {
		p = text(text(p, []byte(h.Key)), h.Value)
	}
	return p
}

// pack is rec with its headers packed; false when they cannot be.
func pack(rec Record) (Record, bool) {
	packed, ok := AppendPacked([]byte("before"), rec.Key, inKafka(rec.Headers))
	if !ok {
		return rec, false
	}
	return Record{Key: rec.Key, Value: rec.Value, Packed: packed[len("before"):]}, true
}

// What is packed is read as the list of headers is, and is unpacked into that list; what cannot be is never of ours.
func TestPackedHeadersAreReadAsAList(t *testing.T) {
	random := newRandom(t)
	packed := 0
	for name, e := range events() {
		for _, id := range []string{e.EntityID, strings.Repeat("9", EntityIDBytesMax)} {
			e.EntityID = id
			_, rec := e.AppendRecord(nil, Source("flights"))
			if _, ok := pack(rec); !ok {
				t.Errorf("%s: a record of ours was not packed", name)
			}
		}
		for range 3000 {
			_, rec := e.AppendRecord(nil, Source("flights"))
			for range random.IntN(3) {
				breakRecord(random, &rec)
			}
			var want, got View
			wantErr := ParseView(rec, &want)
			short, ok := pack(rec)
			if !ok {
				continue
			}
			packed++
			if list := short.Unpacked(); !reflect.DeepEqual(list, rec.Headers) {
				t.Fatalf("%s: unpacked %q, wanted %q", name, list, rec.Headers)
			}
			if gotErr := ParseView(short, &got); !reflect.DeepEqual(gotErr, wantErr) || wantErr == nil && !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: headers %q packed: %+v, %v; wanted %+v, %v", name, rec.Headers, got, gotErr, want, wantErr)
			}
		}
	}
	if packed < 1000 {
		t.Errorf("%d records were packed", packed)
	}
}

// breakRecord changes something of a record that AppendRecord made.
func breakRecord(random *rand.Rand, rec *Record) {
	i, j := random.IntN(len(rec.Headers)), random.IntN(len(rec.Headers))
	switch random.IntN(9) {
	case 0:
		rec.Headers[i], rec.Headers[j] = rec.Headers[j], rec.Headers[i]
	case 1:
		rec.Headers[i] = rec.Headers[j]
	case 2:
		rec.Headers[i].Value = [][]byte{nil, {}}[random.IntN(2)]
	case 3:
		rec.Headers[i].Value = make([]byte, []int{63, 64, 200, 9000}[random.IntN(4)])
	case 4:
		rec.Headers = append(rec.Headers, Header{Key: "other", Value: []byte{}})
	case 5:
		rec.Headers[i].Key = ""
	case 6:
		rec.Value = nil
	case 7:
		if value := append([]byte{}, rec.Headers[i].Value...); len(value) > 0 {
			value[random.IntN(len(value))] = "0123456789a/.\x00"[random.IntN(14)]
			rec.Headers[i].Value = value
		}
	case 8:
		rec.Key = append([]byte{}, rec.Key...)
		rec.Key[random.IntN(len(rec.Key))] = "0/\x00\xff"[random.IntN(4)]
	}
}

// Headers that are cut, or go on, are not packed; packed ones that are cut, or of another key, are refused.
func TestPackedHeadersThatEndTooEarly(t *testing.T) {
	e := events()["upsert"]
	_, rec := e.AppendRecord(nil, Source("flights"))
	whole := inKafka(rec.Headers)
	for end := range len(whole) {
		for _, cut := range [][]byte{whole[:end:end], append(append([]byte{}, whole[:end]...), make([]byte, 400)...)} {
			if dst, ok := AppendPacked([]byte("x"), rec.Key, cut); ok || string(dst) != "x" {
				t.Fatalf("%d bytes of %d were enough", end, len(whole))
			}
		}
	}
	for i, h := range rec.Headers { // a length that is negative is that of nothing, whatever follows
		at := len(inKafka(rec.Headers[:i+1])) - len(h.Value) - 1
		negative := append([]byte{}, whole...)
		negative[at]++
		if _, ok := AppendPacked(nil, rec.Key, negative); ok {
			t.Errorf("%s of a negative length was packed", h.Key)
		}
	}
	if _, ok := AppendPacked(nil, rec.Key, append(whole, 0)); ok {
		t.Error("what follows the headers was passed over")
	}
	short, _ := pack(rec)
	trace := len(traceParentExample)
	for end := range len(short.Packed) - trace {
		var v View
		if err := ParseView(Record{Key: rec.Key, Value: rec.Value, Packed: short.Packed[:end:end]}, &v); err == nil {
			t.Fatalf("%d bytes of %d were enough", end, len(short.Packed))
		}
	}
	var v View
	if err := ParseView(Record{Key: []byte("a\x00b"), Value: rec.Value, Packed: short.Packed}, &v); err == nil {
		t.Error("another key was accepted")
	}
}

// The traceparent of packed headers is the one of a list of them.
func TestTraceParentOfPackedHeaders(t *testing.T) {
	for name, e := range events() {
		for _, trace := range []string{"", traceParentExample} {
			e.TraceParent = trace
			_, rec := e.AppendRecord(nil, Source("flights"))
			packed, ok := pack(rec)
			if got := TraceParentOf(&packed); !ok || string(got) != trace || string(got) != string(TraceParentOf(&rec)) {
				t.Errorf("%s: %q, wanted %q", name, got, trace)
			}
			for n := range packedBytes { // one that ends too early has none
				if got := TraceParentOf(&Record{Packed: packed.Packed[:n:n]}); got != nil {
					t.Fatalf("%s cut at %d: %q", name, n, got)
				}
			}
			list := AppendTrace(AppendTrace(nil, &packed), &rec)
			if want := min(1, len(trace)); len(list) != want || testing.AllocsPerRun(10, func() { list = AppendTrace(list, &packed) }) > 0 && want > 0 {
				t.Errorf("%s: links %q", name, list)
			}
		}
	}
}

func TestAppendPackedAllocatesNothing(t *testing.T) {
	e := events()["upsert"]
	_, rec := e.AppendRecord(nil, Source("flights"))
	headers, buf := inKafka(rec.Headers), make([]byte, 0, 512)
	if n := testing.AllocsPerRun(100, func() {
		if _, ok := AppendPacked(buf, rec.Key, headers); !ok {
			t.Fatal("not packed")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
