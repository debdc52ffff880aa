package event

import (
	"encoding/json"
	"time"
)

// Everything is a row of table everything, whole: each event carries every column.
type Everything struct {
	Tenant int64           `slotline:"tenant,tenant"` // int64
	ID     string          `slotline:"id,id"`         // string(40)
	Rev    uint64          `slotline:"rev,version"`   // uint64
	At     time.Time       `slotline:"at,month"`      // date
	Zone   int32           `slotline:"zone,spread"`   // int32
	B      *bool           `slotline:"b"`             // bool?
	I      *int32          `slotline:"i"`             // int32?
	L      *int64          `slotline:"l"`             // int64?
	U      *uint64         `slotline:"u"`             // uint64?
	F      *float64        `slotline:"f"`             // float64?
	D      *string         `slotline:"d"`             // decimal(20,4)?
	S      *string         `slotline:"s"`             // string(20)?
	T      *string         `slotline:"t"`             // text?
	X      []byte          `slotline:"x"`             // bytes(16)?
	Day    *time.Time      `slotline:"day"`           // date?
	Ts     *time.Time      `slotline:"ts"`            // datetime?
	J      json.RawMessage `slotline:"j"`             // json?
}
