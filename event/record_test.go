package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/fault"
)

func events() map[string]Event {
	id, _ := ParseID("0190f6e2-7f3a-4c5d-8e9f-0123456789ab")
	at := time.Date(2026, 11, 30, 9, 14, 2, 123456000, time.UTC)
	return map[string]Event{
		"upsert": {ID: id, Table: "flights", Tenant: "UA", EntityID: "9041113", Op: Upsert, Version: 1<<47 | 18204551, Time: at, LayoutEpoch: 1,
			Outbox: OutboxPosition{1, 0, 18204551}, TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Body: []byte(flightBody)},
		"delete": {ID: id, Table: "flights", Tenant: "UA", EntityID: "9041113", Op: Delete, Version: 1<<47 | 18204999, Time: at, LayoutEpoch: 1,
			Outbox: OutboxPosition{1, 3, 18204999}, Body: []byte(`{"carrier":"UA","flight_id":9041113,"sched_dep":"2026-11-30T23:59:59.123456Z"}`)},
		"broadcast": {ID: id, Table: "airports", EntityID: "EWR", Op: Upsert, Version: VersionMax, Time: time.UnixMicro(0).UTC(), LayoutEpoch: 12,
			Outbox: OutboxPosition{7, 100, 1}, Body: []byte(`{"code":"EWR","name":"Newark Liberty Intl"}`)},
		// The entity id may hold what separates key and subject.
		"odd_id": {ID: id, Table: "notes", Tenant: "a/b", EntityID: "x\x00y/z\x00", Op: Upsert, Version: 1, Time: at, LayoutEpoch: 1,
			Outbox: OutboxPosition{0, 9, 0}, Body: []byte(`{}`)},
	}
}

// recordFile is a record as JSON: what other implementations compare with.
func recordFile(rec Record) []byte {
	quote := func(b []byte) string { q, _ := json.Marshal(string(b)); return string(q) }
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\n  \"key\": %s,\n  \"headers\": [", quote(rec.Key))
	for i, h := range rec.Headers {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "\n    [%s, %s]", quote([]byte(h.Key)), quote(h.Value))
	}
	fmt.Fprintf(&b, "\n  ],\n  \"value\": %s\n}\n", quote(rec.Value))
	return b.Bytes()
}

func TestRecordGoldenFiles(t *testing.T) {
	for name, e := range events() {
		_, rec := e.AppendRecord(nil, Source("flights"))
		golden(t, "record_"+name+".json", recordFile(rec))
	}
}

func TestRecordReadsBack(t *testing.T) {
	for name, e := range events() {
		buf, rec := e.AppendRecord([]byte("before"), Source("flights"))
		if !bytes.HasPrefix(buf, []byte("before")) {
			t.Errorf("%s: what was in the buffer changed", name)
		}
		var got Event
		if err := ParseRecord(rec, &got); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !reflect.DeepEqual(got, e) {
			t.Errorf("%s reads as\n%+v, wanted\n%+v", name, got, e)
		}
		// The event is its own, apart from the body.
		clear(rec.Key)
		for _, h := range rec.Headers {
			clear(h.Value)
		}
		if !reflect.DeepEqual(got, e) {
			t.Errorf("%s: the event points into the record's headers or key", name)
		}
	}
}

// The values of one record do not change when a buffer is reused for the next one after it.
func TestRecordsShareOneBuffer(t *testing.T) {
	upsert, other := events()["upsert"], events()["broadcast"]
	buf, first := upsert.AppendRecord(make([]byte, 0, 64), Source("flights"))
	want := recordFile(first)
	other.AppendRecord(buf, Source("flights"))
	if got := recordFile(first); !bytes.Equal(got, want) {
		t.Errorf("became %s", got)
	}
}

// cutRecords are records of which something is missing.
func cutRecords(rec Record) map[string]Record {
	cut := map[string]Record{}
	for n := range len(rec.Key) {
		c := rec
		c.Key = rec.Key[:n]
		cut["key "+string(rec.Key[:n])] = c
	}
	for n := range headersFixed {
		c := rec
		c.Headers = rec.Headers[:n]
		cut["headers before "+headerNames[n]] = c
	}
	for i := range headersFixed {
		switch rec.Headers[i].Key {
		case headerSource, headerVersion, headerLayoutEpoch, headerOutbox:
			continue // a prefix of a number or of a line's name is another one
		}
		for n := range len(rec.Headers[i].Value) {
			c := rec
			c.Headers = append([]Header(nil), rec.Headers...)
			c.Headers[i].Value = rec.Headers[i].Value[:n]
			cut["header "+rec.Headers[i].Key+" "+string(c.Headers[i].Value)] = c
		}
	}
	return cut
}

func TestEveryTruncatedRecordIsRefused(t *testing.T) {
	for name, e := range events() {
		_, rec := e.AppendRecord(nil, Source("flights"))
		for what, c := range cutRecords(rec) {
			var v View
			if err := ParseView(c, &v); !fault.Is(err, fault.Data) || fault.CodeOf(err) != codeRecord {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
		for _, i := range []int{2, 7, 9, 10} { // what a prefix of is not always one: at least the empty one fails
			c := rec
			c.Headers = append([]Header(nil), rec.Headers...)
			c.Headers[i].Value = nil
			if err := ParseView(c, new(View)); err == nil {
				t.Errorf("%s: empty %s was accepted", name, c.Headers[i].Key)
			}
		}
	}
}

func TestRecordRefuses(t *testing.T) {
	for what, change := range map[string]func(*Record){
		"no value":               func(r *Record) { r.Value = nil },
		"no id in the key":       func(r *Record) { r.Key = []byte("flights\x00UA\x00") },
		"no table in the key":    func(r *Record) { r.Key = []byte("\x00UA\x009041113") },
		"another tenant":         func(r *Record) { r.Key = []byte("flights\x00AA\x009041113") },
		"tenant of 65 bytes":     func(r *Record) { r.Key = []byte("flights\x00" + strings.Repeat("x", 65) + "\x009041113") },
		"key not UTF-8":          func(r *Record) { r.Key = []byte("flights\x00U\xff\x009041113") },
		"spec version":           func(r *Record) { r.Headers[0].Value = []byte("1.1") },
		"id in upper case":       func(r *Record) { r.Headers[1].Value = bytes.ToUpper(r.Headers[1].Value) },
		"id without dashes":      func(r *Record) { r.Headers[1].Value = []byte(strings.Repeat("0", 36)) },
		"foreign source":         func(r *Record) { r.Headers[2].Value = []byte("debezium/x") },
		"type of another table":  func(r *Record) { r.Headers[3].Value = []byte("orders.upsert") },
		"type of another op":     func(r *Record) { r.Headers[3].Value = []byte("flights.delete") },
		"time in another form":   func(r *Record) { r.Headers[4].Value = []byte("2026-11-30T09:14:02Z") },
		"another content type":   func(r *Record) { r.Headers[6].Value = []byte("application/json") },
		"format 0":               func(r *Record) { r.Headers[6].Value = []byte("application/json; format=0") },
		"version 0":              func(r *Record) { r.Headers[7].Value = []byte("0") },
		"version 2^62":           func(r *Record) { r.Headers[7].Value = []byte("4611686018427387904") },
		"version beyond int64":   func(r *Record) { r.Headers[7].Value = []byte("9999999999999999999") },
		"version with a sign":    func(r *Record) { r.Headers[7].Value = []byte("+1") },
		"version with a zero":    func(r *Record) { r.Headers[7].Value = []byte("01") },
		"op":                     func(r *Record) { r.Headers[8].Value = []byte("Upsert") },
		"layout epoch 0":         func(r *Record) { r.Headers[9].Value = []byte("0") },
		"outbox without lane":    func(r *Record) { r.Headers[10].Value = []byte("1/5") },
		"outbox lane of a digit": func(r *Record) { r.Headers[10].Value = []byte("1.1/5") },
		"outbox lane 003":        func(r *Record) { r.Headers[10].Value = []byte("1.003/5") },
		"header twice":           func(r *Record) { r.Headers = append(r.Headers, r.Headers[0]) },
	} {
		e := events()["upsert"]
		_, rec := e.AppendRecord(nil, Source("flights"))
		change(&rec)
		var v View
		if err := ParseView(rec, &v); !fault.Is(err, fault.Data) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A record of a newer format is not a bad event: the binary is old, and must not put it away.
func TestRecordOfNewerFormatIsFatal(t *testing.T) {
	e := events()["upsert"]
	_, rec := e.AppendRecord(nil, Source("flights"))
	rec.Headers[6].Value = []byte("application/json; format=2")
	rec.Headers = append(rec.Headers, Header{"ce_new", nil})
	rec.Key = nil
	var data *DataError
	if err := ParseView(rec, new(View)); !fault.Is(err, fault.Fatal) || errors.As(err, &data) {
		t.Errorf("%v", err)
	}
}

// Other producers and proxies reorder headers and add their own.
func TestRecordHeadersComeInAnyOrder(t *testing.T) {
	e := events()["upsert"]
	_, rec := e.AppendRecord(nil, Source("flights"))
	var want Event
	if err := ParseRecord(rec, &want); err != nil {
		t.Fatal(err)
	}
	random := newRandom(t)
	rec.Headers = append(rec.Headers, Header{"x-proxy", []byte("1")}, Header{"x-proxy", []byte("2")}, Header{"", nil})
	for range 100 {
		random.Shuffle(len(rec.Headers), func(i, j int) { rec.Headers[i], rec.Headers[j] = rec.Headers[j], rec.Headers[i] })
		var got Event
		if err := ParseRecord(rec, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v: %v", got, err)
		}
	}
}

func TestRecordAllocations(t *testing.T) {
	e := events()["upsert"]
	buf, rec := e.AppendRecord(nil, Source("flights"))
	if n := testing.AllocsPerRun(100, func() { buf = e.AppendRecordTo(buf[:0], "slotline/flights", &rec) }); n != 0 {
		t.Errorf("AppendRecordTo: %v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() { buf, rec = e.AppendRecord(buf[:0], "slotline/flights") }); n != 1 {
		t.Errorf("AppendRecord: %v allocations, wanted 1 (the headers)", n)
	}
	var v View
	if n := testing.AllocsPerRun(100, func() {
		if err := ParseView(rec, &v); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("ParseView: %v allocations", n)
	}
	var got Event
	if n := testing.AllocsPerRun(100, func() {
		if err := ParseRecord(rec, &got); err != nil {
			t.Fatal(err)
		}
	}); n > 2 {
		t.Errorf("ParseRecord: %v allocations, wanted 2 (key, traceparent)", n)
	}
}

func TestOutboxPositionText(t *testing.T) {
	for want, o := range map[string]OutboxPosition{"1.00/42": {1, 0, 42}, "0.09/0": {0, 9, 0}, "16383.127/9223372036854775807": {16383, 127, 1<<63 - 1}} {
		var back OutboxPosition
		if got := o.String(); got != want || !parseOutbox([]byte(got), &back) || back != o {
			t.Errorf("%+v is %s, which reads as %+v", o, got, back)
		}
	}
}

func TestNewID(t *testing.T) {
	seen := map[ID]bool{}
	for range 1000 {
		id := NewID()
		again, err := ParseID(id.String())
		if err != nil || again != id || seen[id] {
			t.Fatalf("%s: %v", id, err)
		}
		if s := id.String(); s[14] != '4' || !strings.ContainsRune("89ab", rune(s[19])) {
			t.Fatalf("%s is not a version 4 UUID", s)
		}
		seen[id] = true
	}
	for _, text := range []string{"", "0190f6e2-7f3a-4c5d-8e9f-0123456789a", "0190f6e2-7f3a-4c5d-8e9f-0123456789AB", "0190f6e2-7f3a-4c5d-8e9f-0123456789ag",
		"{190f6e2-7f3a-4c5d-8e9f-0123456789ab", "0190f6e27f3a-4c5d-8e9f-0123456789ab-", "0190f6e2-7f3a-4c5d-8e9f-0123456789abc"} {
		if id, err := ParseID(text); err == nil {
			t.Errorf("%q reads as %s", text, id)
		}
	}
}

// Eight digits at a time, against one at a time: any byte at any place.
func TestIDFormIsStrict(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	random := newRandom(t)
	for range 20 {
		text := NewID().String()
		for i := range text {
			for c := range 256 {
				changed := []byte(text)
				changed[i] = byte(c)
				if random.IntN(4) == 0 {
					changed[random.IntN(len(text))] = "0123456789abcdef-:`ghAF/"[random.IntN(24)]
				}
				id, err := ParseID(string(changed))
				if want := form.Match(changed); want != (err == nil) || want && id.String() != string(changed) {
					t.Fatalf("%q reads as %s, %v", changed, id, err)
				}
			}
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	for _, e := range events() {
		_, rec := e.AppendRecord(nil, Source("flights"))
		f.Add(rec.Key, joinHeaders(rec.Headers), rec.Value)
	}
	f.Fuzz(func(t *testing.T, key, headers, value []byte) {
		rec := Record{Key: key, Value: value, Headers: splitHeaders(headers)}
		var e, again Event
		err := ParseRecord(rec, &e)
		if short, ok := pack(rec); ok {
			if packedErr := ParseRecord(short, &again); !reflect.DeepEqual(packedErr, err) || !reflect.DeepEqual(again, e) || !reflect.DeepEqual(short.Unpacked(), rec.Headers) {
				t.Fatalf("%q packed reads as %+v, %v; wanted %+v, %v", rec.Headers, again, packedErr, e, err)
			}
			again = Event{}
		}
		if err != nil {
			return
		}
		// What was read is written with the same meaning; our own form of it is a fixed point.
		_, out := e.AppendRecord(nil, Source("flights"))
		if !bytes.Equal(out.Key, key) {
			t.Fatalf("key %q became %q", key, out.Key)
		}
		if err := ParseRecord(out, &again); err != nil || !reflect.DeepEqual(e, again) {
			t.Fatalf("%+v became %+v: %v", e, again, err)
		}
	})
}

func joinHeaders(headers []Header) []byte {
	var b []byte
	for _, h := range headers {
		b = append(append(append(append(b, h.Key...), '\n'), h.Value...), '\n')
	}
	return b
}

func splitHeaders(b []byte) (headers []Header) {
	parts := bytes.Split(b, []byte{'\n'})
	for i := 0; i+1 < len(parts); i += 2 {
		headers = append(headers, Header{string(parts[i]), parts[i+1]})
	}
	return headers
}
