package event

import (
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"testing"
)

// pack is rec with its headers as Kafka has them.
func pack(rec Record) Record {
	text := func(p, b []byte) []byte {
		if b == nil {
			return binary.AppendVarint(p, -1)
		}
		return append(binary.AppendVarint(p, int64(len(b))), b...)
	}
	p := binary.AppendVarint(nil, int64(len(rec.Headers)))
	for _, h := range rec.Headers {
		p = text(text(p, []byte(h.Key)), h.Value)
	}
	return Record{Key: rec.Key, Value: rec.Value, Packed: p}
}

// Packed headers are read as a list of them is, whatever is wrong with it.
func TestPackedHeadersAreReadAsAList(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for name, e := range events() {
		for range 500 {
			_, rec := e.AppendRecord(nil, Source("flights"))
			for range random.IntN(3) {
				i, j := random.IntN(len(rec.Headers)), random.IntN(len(rec.Headers))
				switch random.IntN(6) {
				case 0:
					rec.Headers[i], rec.Headers[j] = rec.Headers[j], rec.Headers[i]
				case 1:
					rec.Headers[i] = rec.Headers[j]
				case 2:
					rec.Headers[i].Value = nil
				case 3:
					rec.Headers[i].Value = make([]byte, 200)
				case 4:
					rec.Headers = append(rec.Headers, Header{Key: "other", Value: []byte{}})
				case 5:
					rec.Headers[i].Key = ""
				}
			}
			packed := pack(rec)
			if got := packed.Unpacked(); !reflect.DeepEqual(got, rec.Headers) {
				t.Fatalf("%s: unpacked %q, wanted %q", name, got, rec.Headers)
			}
			var want, got View
			wantErr, gotErr := ParseView(rec, &want), ParseView(packed, &got)
			if !reflect.DeepEqual(gotErr, wantErr) || wantErr == nil && !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: headers %q packed: %+v, %v; wanted %+v, %v", name, rec.Headers, got, gotErr, want, wantErr)
			}
		}
	}
}

// Packed headers that end too early are refused, and those before are there for the dead letter.
func TestPackedHeadersThatEndTooEarly(t *testing.T) {
	e := events()["upsert"]
	_, rec := e.AppendRecord(nil, Source("flights"))
	packed := pack(rec)
	for end := range len(packed.Packed) {
		short := Record{Key: rec.Key, Value: rec.Value, Packed: packed.Packed[:end:end]}
		var v View
		if err := ParseView(short, &v); err == nil {
			t.Fatalf("%d bytes of %d were enough", end, len(packed.Packed))
		}
		if n := len(short.Unpacked()); n > 0 && !reflect.DeepEqual(short.Unpacked(), rec.Headers[:n]) {
			t.Fatalf("%d bytes: %q", end, short.Unpacked())
		}
	}
	for _, p := range [][]byte{{}, {0}, {1}, {0xff}, binary.AppendVarint(nil, 1<<40), {2, 0xff}, {2, 1, 0xfe}} {
		var v View
		if err := ParseView(Record{Key: rec.Key, Value: rec.Value, Packed: p}, &v); err == nil {
			t.Errorf("% x was accepted", p)
		}
	}
}

// The traceparent of packed headers is the one of a list of them.
func TestTraceParentOfPackedHeaders(t *testing.T) {
	for name, e := range events() {
		for _, trace := range []string{"", traceParentExample} {
			e.TraceParent = trace
			_, rec := e.AppendRecord(nil, Source("flights"))
			packed := pack(rec)
			if got := TraceParentOf(&packed); string(got) != trace || string(got) != string(TraceParentOf(&rec)) {
				t.Errorf("%s: %q, wanted %q", name, got, trace)
			}
			for n := range packed.Packed { // one that ends too early has none
				cut := Record{Packed: packed.Packed[:n:n]}
				if got := TraceParentOf(&cut); got != nil {
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
