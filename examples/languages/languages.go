// Package languages emits the events of rows.jsonl in Go; emit.sql and Emit.java emit the same in SQL and in Java. A test
// holds that all three write the same rows, byte for byte: docs/emit-from-other-languages.md.
package languages

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/producer"
)

type flight struct {
	Carrier   string    `slotline:"carrier,tenant"`
	FlightID  uint64    `slotline:"flight_id,id,spread"`
	SchedDep  time.Time `slotline:"sched_dep,month"`
	Status    string    `slotline:"status"`
	Cancelled bool      `slotline:"cancelled"`
	ArrDelay  *int32    `slotline:"arr_delay"`
}

type airport struct {
	Code string `slotline:"code,id"`
	Name string `slotline:"name"`
}

type sample struct {
	Owner string           `slotline:"owner,tenant"`
	N     int64            `slotline:"n,id"`
	V     int64            `slotline:"v,version"`
	Yes   bool             `slotline:"yes"`
	Small int32            `slotline:"small"`
	Big   uint64           `slotline:"big"`
	Ratio float64          `slotline:"ratio"`
	Price string           `slotline:"price"`
	Note  string           `slotline:"note"`
	Raw   []byte           `slotline:"raw"`
	Day   time.Time        `slotline:"day"`
	At    time.Time        `slotline:"at"`
	Doc   json.RawMessage  `slotline:"doc"`
	None  sql.Null[string] `slotline:"none"`
}

// TraceParent is the W3C trace context that the first event carries.
const TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// Emit writes the events in one transaction for each program: flights, then the rest.
func Emit(ctx context.Context, cfg *config.Config, db producer.Beginner) error {
	trace := TraceParent
	p := producer.New(cfg, producer.WithTraceParent(func(context.Context) string { return trace }))
	flights := producer.MustRegister[flight](p, "flights")
	airports := producer.MustRegister[airport](p, "airports")
	samples := producer.MustRegister[sample](p, "samples")

	delay := int32(-3)
	f := flight{Carrier: "UA", FlightID: 1545, SchedDep: time.Date(2024, 2, 29, 10, 15, 0, 0, time.UTC), Status: "departed"}
	err := p.Run(ctx, db, func(tx *producer.Tx) error { return p.Emit(ctx, tx, flights.Upsert(f)) })
	if err != nil {
		return err
	}
	trace = ""
	raw := make([]byte, 80)
	for i := range raw {
		raw[i] = byte(i * 7)
	}
	return p.Run(ctx, db, func(tx *producer.Tx) error {
		f.Status, f.ArrDelay = "arrived", &delay
		return p.Emit(ctx, tx, flights.Upsert(f), flights.Delete(flight{Carrier: "DL", FlightID: 18446744073709551615, SchedDep: time.Date(2024, 3, 1, 0, 0, 0, 0, time.UTC)}),
			airports.Upsert(airport{"JFK", "John F. Kennedy"}),
			samples.Upsert(sample{Owner: "ann's \\ naïve\n", N: -7, V: 42, Yes: true, Small: -2147483648, Big: 18446744073709551615, Ratio: 0.1,
				Price: "-12.50", Note: "\"quoted\" \\ \t\r\n\b\f\x01\x1f\x7f é 😀 \u2028", Raw: raw, Day: time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC),
				At: time.Date(1999, 12, 31, 23, 59, 59, 123456000, time.UTC), Doc: json.RawMessage(`{"a":[1,true,null],"b":"x"}`)}))
	})
}
