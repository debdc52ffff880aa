package event

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/partitioner"
)

// P6: the month is UTC's, whatever zone the time was given in, and the same from struct, value and body.
func TestP6_MonthIsOfUTC(t *testing.T) {
	s, err := StructOf[flight](flights())
	if err != nil {
		t.Fatal(err)
	}
	table := flights()
	var row Row
	for at, want := range map[string]partitioner.Month{
		"2026-11-30T23:59:59.9999999+00:00": 202611, "2026-12-01T00:00:00+00:00": 202612, "2026-12-01T00:59:59+01:00": 202611,
		"2026-11-30T19:00:00-05:00": 202612, "2025-01-01T00:00:00+14:00": 202412, "1969-12-31T23:59:59.999999999Z": 196912,
		"1000-01-01T00:00:00Z": 100001, "9999-12-31T23:59:59Z": 999912, "2024-02-29T12:00:00Z": 202402,
	} {
		f := aFlight()
		if f.SchedDep, err = time.Parse(time.RFC3339Nano, at); err != nil {
			t.Fatal(err)
		}
		e, err := s.Event(&f, Upsert)
		if err != nil || e.Month != want {
			t.Errorf("%s: %s, wanted %s: %v", at, e.Month, want, err)
		}
		if err := table.DecodeRow(e.Body, Upsert, &row); err != nil || row.Month != want {
			t.Errorf("%s: the body says %s, wanted %s: %v", at, row.Month, want, err)
		}
	}
}

func TestMonthOfAgreesWithPartitioner(t *testing.T) {
	random := newRandom(t)
	dates, times := allKinds(), flights()
	for range 100_000 {
		micros := datetimeMin + random.Int64N(datetimeMax-datetimeMin+1)
		at := time.UnixMicro(micros)
		want := partitioner.MonthOf(at)
		got, err := times.MonthOf(Value{Int: micros})
		got2, err2 := dates.MonthOf(Value{Int: floorDays(micros)})
		if got != want && want.Valid() || got != got2 || (err == nil) != want.Valid() || (err2 == nil) != want.Valid() {
			t.Fatalf("%s: %s and %s, wanted %s: %v", at.UTC(), got, got2, want, err)
		}
	}
	if m, err := oneColumn("bool").MonthOf(Value{}); m != partitioner.NoMonth || err != nil {
		t.Errorf("without a month column: %s, %v", m, err)
	}
}

func TestMonthOfSnowflake(t *testing.T) {
	epoch := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	at := time.Date(2026, 11, 30, 23, 59, 59, 999e6, time.UTC)
	id := uint64(at.Sub(epoch).Milliseconds())<<22 | (1<<22 - 1)
	for _, kind := range []string{"int64", "uint64"} {
		table := &Table{Name: "s", Columns: []Column{column("t", "string(9)"), column("id", kind)}, Tenant: 0, ID: 1, Month: 1, Spread: 1,
			Version: None, SnowflakeEpoch: &epoch}
		var row Row
		if err := table.DecodeRow(fmt.Appendf(nil, `{"t":"a","id":%d}`, id), Delete, &row); err != nil || row.Month != 202611 {
			t.Errorf("%s: %s, %v", kind, row.Month, err)
		}
		if err := table.DecodeRow(fmt.Appendf(nil, `{"t":"a","id":%d}`, id+1), Delete, &row); err != nil || row.Month != 202612 {
			t.Errorf("%s: %s, %v", kind, row.Month, err)
		}
	}
	table := &Table{Name: "s", Columns: []Column{column("id", "int64")}, Tenant: None, ID: 0, Month: 0, Spread: None, Version: None, SnowflakeEpoch: &epoch}
	if _, err := table.MonthOf(Value{Int: -1}); !fault.Is(err, fault.Data) {
		t.Errorf("a negative snowflake id: %v", err)
	}
}

func TestCanonicalText(t *testing.T) {
	table := allKinds()
	for col, c := range map[int]struct {
		v    Value
		want string
	}{
		0: {Value{Int: -5}, "-5"}, 1: {Value{Bytes: []byte("a\x00雪")}, "a\x00雪"}, 2: {Value{Uint: 1<<64 - 1}, "18446744073709551615"}, 4: {Value{}, "0"},
	} {
		if got := string(table.CanonicalText([]byte("-"), col, c.v)); got != "-"+c.want {
			t.Errorf("%q, wanted %q", got, c.want)
		}
	}
}

// A Struct and a Table serve many goroutines at once.
func TestConcurrentUse(t *testing.T) {
	s, err := StructOf[flight](flights())
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			var row Row
			for i := range 500 {
				f := aFlight()
				f.FlightID = uint64(g*1000 + i)
				e, err := s.Event(&f, Upsert)
				if err == nil {
					err = s.Table().DecodeRow(e.Body, Upsert, &row)
				}
				if err != nil || e.EntityID != fmt.Sprint(f.FlightID) || string(row.ID) != e.EntityID {
					t.Errorf("%s %s: %v", e.EntityID, row.ID, err)
				}
			}
		})
	}
	wg.Wait()
}
