package event

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// The body of eight columns that the figures in docs/formats.md are about.

func BenchmarkDecodeRow(b *testing.B) {
	table, body := flights(), []byte(flightBody)
	var row Row
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if err := table.DecodeRow(body, Upsert, &row); err != nil {
			b.Fatal(err)
		}
	}
	rowsPerSecond(b)
}

// The same fields in reverse order: no field is where it is looked for first.
func BenchmarkDecodeRowReversed(b *testing.B) {
	fields := strings.Split(strings.Trim(flightBody, "{}"), ",")
	for i := range len(fields) / 2 {
		fields[i], fields[len(fields)-1-i] = fields[len(fields)-1-i], fields[i]
	}
	table, body := flights(), []byte("{"+strings.Join(fields, ",")+"}")
	var row Row
	b.ReportAllocs()
	for b.Loop() {
		if err := table.DecodeRow(body, Upsert, &row); err != nil {
			b.Fatal(err)
		}
	}
	rowsPerSecond(b)
}

// baseline is what a service would decode the body into without this package: no column is checked.
type baseline struct {
	Carrier   string    `json:"carrier"`
	FlightID  uint64    `json:"flight_id"`
	SchedDep  time.Time `json:"sched_dep"`
	Origin    string    `json:"origin"`
	Status    string    `json:"status"`
	Cancelled bool      `json:"cancelled"`
	ArrDelay  *int32    `json:"arr_delay"`
	Fare      string    `json:"fare"`
}

func BenchmarkDecodeBaselineStruct(b *testing.B) {
	body := []byte(flightBody)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		var v baseline
		if err := json.Unmarshal(body, &v); err != nil {
			b.Fatal(err)
		}
	}
	rowsPerSecond(b)
}

// What encoding/json needs only to see that the body is JSON: no values, no checks.
func BenchmarkDecodeBaselineValid(b *testing.B) {
	body := []byte(flightBody)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if !json.Valid(body) {
			b.Fatal("invalid")
		}
	}
	rowsPerSecond(b)
}

func BenchmarkAppendRow(b *testing.B) {
	table := flights()
	var row Row
	if err := table.DecodeRow([]byte(flightBody), Upsert, &row); err != nil {
		b.Fatal(err)
	}
	var body []byte
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if body, err = table.AppendRow(body[:0], row.Values, Upsert); err != nil {
			b.Fatal(err)
		}
	}
	rowsPerSecond(b)
}

func BenchmarkStructEvent(b *testing.B) {
	s, err := StructOf[flight](flights())
	if err != nil {
		b.Fatal(err)
	}
	f := aFlight()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Event(&f, Upsert); err != nil {
			b.Fatal(err)
		}
	}
	rowsPerSecond(b)
}

func BenchmarkAppendRecord(b *testing.B) {
	e := events()["upsert"]
	var buf []byte
	var rec Record
	b.ReportAllocs()
	for b.Loop() {
		buf = e.AppendRecordTo(buf[:0], "slotline/flights", &rec)
	}
	rowsPerSecond(b)
}

func BenchmarkParseView(b *testing.B) {
	e := events()["upsert"]
	_, rec := e.AppendRecord(nil, Source("flights"))
	var v View
	b.ReportAllocs()
	for b.Loop() {
		if err := ParseView(rec, &v); err != nil {
			b.Fatal(err)
		}
	}
	rowsPerSecond(b)
}

// As the consumers have it.
func BenchmarkParseViewPacked(b *testing.B) {
	e := events()["upsert"]
	_, rec := e.AppendRecord(nil, Source("flights"))
	rec, _ = pack(rec)
	var v View
	b.ReportAllocs()
	for b.Loop() {
		if err := ParseView(rec, &v); err != nil {
			b.Fatal(err)
		}
	}
	rowsPerSecond(b)
}

func BenchmarkAppendPacked(b *testing.B) {
	e := events()["upsert"]
	_, rec := e.AppendRecord(nil, Source("flights"))
	headers, buf := inKafka(rec.Headers), make([]byte, 0, 512)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := AppendPacked(buf, rec.Key, headers); !ok {
			b.Fatal("not packed")
		}
	}
	rowsPerSecond(b)
}

func rowsPerSecond(b *testing.B) {
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
