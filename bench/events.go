package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/slotline/slotline/event"
)

// orderTable is the table of the outbox benches: its row image has about 512 bytes.
const orderTable = `
tables:
  orders: { tenant: owner, id: order_id, columns: { owner: string(40), order_id: uint64, amount: int64, note: text } }`

// order is a row of it.
type order struct {
	Owner  string `slotline:"owner,tenant"`
	ID     uint64 `slotline:"order_id,id"`
	Amount int64  `slotline:"amount"`
	Note   string `slotline:"note"`
}

// orderBytes is the size of an order's row image.
const orderBytes = 512

// words are what notes are made of: text that compresses as text does, by half or so.
var words = strings.Fields("alter berth cargo depot eight final gates hotel index joint kilos later minor north order " +
	"piece quick route seven table under valid weigh yield agent batch count delay enter first given house issue judge")

func phrase(random *rand.Rand, bytes int) string {
	var b strings.Builder
	for b.Len() < bytes {
		fmt.Fprintf(&b, "%s %d ", words[random.IntN(len(words))], random.IntN(1000))
	}
	return b.String()[:bytes]
}

func newOrder(random *rand.Rand, owner string, id uint64) order {
	o := order{Owner: owner, ID: id, Amount: random.Int64N(100_000)}
	o.Note = phrase(random, orderBytes-len(`{"owner":"t00000","order_id":1000000,"amount":10000,"note":""}`))
	return o
}

// event is what the relay would publish, or Emit would insert.
func (o *order) event(s *event.Struct[order], layoutEpoch int64) (event.Event, error) {
	e, err := s.Event(o, event.Upsert)
	e.ID, e.Time, e.LayoutEpoch = event.NewID(), time.Now().UTC().Truncate(time.Microsecond), layoutEpoch
	return e, err
}

// flightTable is the table of the sink benches: 8 columns, one secondary index, a row image of about 190 bytes.
const flightTable = `
tables:
  flights:
    tenant: carrier
    id: flight_id
    columns: { carrier: string(8), flight_id: uint64, origin: string(3), dest: string(3), status: string(10),
               sched_dep: datetime, arr_delay: int32, note: string(100) }
    indexes: [[carrier, origin, sched_dep]]`

// flight is a row of it.
type flight struct {
	Carrier  string    `slotline:"carrier,tenant"`
	FlightID uint64    `slotline:"flight_id,id"`
	Origin   string    `slotline:"origin"`
	Dest     string    `slotline:"dest"`
	Status   string    `slotline:"status"`
	SchedDep time.Time `slotline:"sched_dep"`
	ArrDelay int32     `slotline:"arr_delay"`
	Note     string    `slotline:"note"`

	version int64
}

var (
	airports = strings.Fields("JFK EWR LGA LAX SFO ORD ATL MIA BOS SEA DEN PHX IAH DFW MSP DTW")
	statuses = strings.Fields("scheduled departed delayed arrived cancelled")
	opening  = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
)

func newFlight(random *rand.Rand, carrier string, id uint64, version int64) flight {
	return flight{Carrier: carrier, FlightID: id, Origin: airports[random.IntN(len(airports))], Dest: airports[random.IntN(len(airports))],
		Status: statuses[random.IntN(len(statuses))], SchedDep: opening.Add(time.Duration(random.Int64N(30*24*3600)) * time.Second),
		ArrDelay: random.Int32N(240) - 30, Note: phrase(random, 40), version: version}
}

func (f *flight) event(s *event.Struct[flight], layoutEpoch int64) (event.Event, error) {
	e, err := s.Event(f, event.Upsert)
	e.ID, e.Time, e.LayoutEpoch, e.Version = event.NewID(), time.Now().UTC().Truncate(time.Microsecond), layoutEpoch, f.version
	e.Outbox = event.OutboxPosition{Generation: 1, ID: f.FlightID}
	return e, err
}
