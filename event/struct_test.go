package event

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/fault"
)

type flight struct {
	Carrier   string    `slotline:"carrier,tenant"`
	FlightID  uint64    `slotline:"flight_id,id"` // its spread role may be left out
	SchedDep  time.Time `slotline:"sched_dep,month"`
	Origin    string    `slotline:"origin"`
	Status    string    `slotline:"status"`
	Cancelled bool      `slotline:"cancelled"`
	ArrDelay  *int32    `slotline:"arr_delay"`
	Fare      string    `slotline:"fare"`
	Note      string    // not the table's
}

func aFlight() flight {
	delay := int32(-7)
	zone := time.FixedZone("", -5*3600)
	return flight{Carrier: "UA", FlightID: 9041113, SchedDep: time.Date(2026, 11, 30, 18, 59, 59, 123456999, zone), Origin: "EWR",
		Status: "departed", ArrDelay: &delay, Fare: "219.9", Note: "\xff"}
}

func TestStructEvent(t *testing.T) {
	s, err := StructOf[flight](flights())
	if err != nil {
		t.Fatal(err)
	}
	f := aFlight()
	e, err := s.Event(&f, Upsert)
	if err != nil {
		t.Fatal(err)
	}
	if e.Table != "flights" || e.Tenant != "UA" || e.EntityID != "9041113" || e.Spread != "9041113" || e.Op != Upsert || e.Version != 0 ||
		e.Month != 202611 || string(e.Body) != flightBody {
		t.Errorf("%+v\n%s", e, e.Body)
	}
	// A delete reads the key fields alone: the others may hold anything.
	e, err = s.Event(&flight{Carrier: "UA", FlightID: 1, SchedDep: f.SchedDep, Fare: "?", Status: "\xff"}, Delete)
	if err != nil || string(e.Body) != `{"carrier":"UA","flight_id":1,"sched_dep":"2026-11-30T23:59:59.123456Z"}` || e.Month != 202611 || e.Op != Delete {
		t.Errorf("%+v\n%s\n%v", e, e.Body, err)
	}
}

type code int // a named kind with text of its own

func (c code) MarshalText() ([]byte, error) {
	if c < 0 {
		return nil, errors.New("no code is negative")
	}
	return fmt.Appendf(nil, "%d.5", int(c)), nil
}

type onPointer struct{ text string }

func (p *onPointer) MarshalText() ([]byte, error) { return []byte(p.text), nil }

type audit struct {
	Rev uint32 `slotline:"rev,version"`
	At  time.Time
}

type whole struct {
	audit
	Tenant  int16            `slotline:"tenant,tenant"`
	ID      onPointer        `slotline:"id,id"`
	At      time.Time        `slotline:"at,month"`
	Zone    int8             `slotline:"zone,spread"`
	B       sql.Null[bool]   `slotline:"b"`
	I       sql.NullInt32    `slotline:"i"`
	L       *uint32          `slotline:"l"`
	U       uint             `slotline:"u"` // a nullable column that is never NULL
	F       float32          `slotline:"f"`
	D       *code            `slotline:"d"`
	S       sql.NullString   `slotline:"s"`
	T       *string          `slotline:"t"`
	X       []byte           `slotline:"x"`
	Day     sql.Null[string] `slotline:"day"`
	TS      sql.NullTime     `slotline:"ts"`
	J       json.RawMessage  `slotline:"j"`
	Ignored chan int         `slotline:"-"`
}

func TestStructOfEveryKind(t *testing.T) {
	s, err := StructOf[whole](allKinds())
	if err != nil {
		t.Fatal(err)
	}
	l, d, text := uint32(math.MaxUint32), code(12), "雪"
	at := time.Date(2024, 2, 29, 0, 0, 0, 0, time.FixedZone("", 3600)) // its own date, not UTC's
	v := whole{audit: audit{Rev: 3}, Tenant: -5, ID: onPointer{"a"}, At: at, Zone: -1, B: sql.Null[bool]{V: true, Valid: true},
		I: sql.NullInt32{Int32: -1, Valid: true}, L: &l, U: math.MaxUint, F: 0.5, D: &d, S: sql.NullString{String: "s", Valid: true}, T: &text,
		X: []byte{0, 1}, Day: sql.Null[string]{V: "0001-01-01", Valid: true}, TS: sql.NullTime{Time: time.Unix(0, -1), Valid: true}, J: json.RawMessage(` { "a" : 1 } `)}
	e, err := s.Event(&v, Upsert)
	want := `{"tenant":-5,"id":"a","rev":3,"at":"2024-02-29","zone":-1,"b":true,"i":-1,"l":4294967295,"u":18446744073709551615,"f":0.5,` +
		`"d":"12.5000","s":"s","t":"雪","x":"AAE=","day":"0001-01-01","ts":"1969-12-31T23:59:59.999999Z","j":{"a":1}}`
	if err != nil || string(e.Body) != want || e.Version != 3 || e.Tenant != "-5" || e.EntityID != "a" || e.Spread != "-1" || e.Month != 202402 {
		t.Errorf("%+v\n%s\n%v", e, e.Body, err)
	}
	e, err = s.Event(&whole{audit: audit{Rev: 3}, ID: onPointer{"a"}, At: at}, Upsert)
	want = `{"tenant":0,"id":"a","rev":3,"at":"2024-02-29","zone":0,"b":null,"i":null,"l":null,"u":0,"f":0,` +
		`"d":null,"s":null,"t":null,"x":null,"day":null,"ts":null,"j":null}`
	if err != nil || string(e.Body) != want {
		t.Errorf("%s\n%v", e.Body, err)
	}
	if e, err = s.Event(&v, Delete); err != nil || e.Version != 3 || string(e.Body) != `{"tenant":-5,"id":"a","at":"2024-02-29","zone":-1}` {
		t.Errorf("%+v\n%s\n%v", e, e.Body, err)
	}
}

func TestP12_StructValuesThatDoNotFit(t *testing.T) {
	s, err := StructOf[whole](allKinds())
	if err != nil {
		t.Fatal(err)
	}
	good := func() *whole {
		return &whole{audit: audit{Rev: 3}, ID: onPointer{"a"}, At: time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC)}
	}
	if _, err := s.Event(good(), Upsert); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 21)
	negative := code(-1)
	for _, c := range []struct {
		column, reason string
		change         func(*whole)
	}{
		{"id", ReasonEmpty, func(v *whole) { v.ID.text = "" }},
		{"id", ReasonTooLong, func(v *whole) { v.ID.text = strings.Repeat("x", 41) }},
		{"rev", ReasonOutOfRange, func(v *whole) { v.Rev = 0 }},
		{"at", ReasonWrongType, func(v *whole) { v.At = v.At.Add(time.Nanosecond) }},
		{"at", ReasonOutOfRange, func(v *whole) { v.At = v.At.AddDate(8000, 0, 0) }},
		{"at", ReasonOutOfRange, func(v *whole) { v.At = v.At.AddDate(-2025, 0, 0) }},
		{"at", ReasonOutOfRange, func(v *whole) { v.At = time.Time{} }},
		{"f", ReasonOutOfRange, func(v *whole) { v.F = float32(math.NaN()) }},
		{"f", ReasonOutOfRange, func(v *whole) { v.F = float32(math.Inf(-1)) }},
		{"d", ReasonWrongType, func(v *whole) { v.D = &negative }},
		{"s", ReasonTooLong, func(v *whole) { v.S = sql.NullString{String: long, Valid: true} }},
		{"s", ReasonBadText, func(v *whole) { v.S = sql.NullString{String: "\xff", Valid: true} }},
		{"x", ReasonTooLong, func(v *whole) { v.X = make([]byte, 17) }},
		{"day", ReasonWrongType, func(v *whole) { v.Day = sql.Null[string]{V: "2023-02-29", Valid: true} }},
		{"ts", ReasonOutOfRange, func(v *whole) { v.TS = sql.NullTime{Time: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), Valid: true} }},
		{"ts", ReasonOutOfRange, func(v *whole) { v.TS = sql.NullTime{Time: time.Date(1, 1, 1, 0, 0, 0, -1, time.UTC), Valid: true} }},
		{"j", ReasonMalformed, func(v *whole) { v.J = json.RawMessage(`{`) }},
		{"j", ReasonDuplicate, func(v *whole) { v.J = json.RawMessage(`{"a":1,"a":2}`) }},
	} {
		v := good()
		c.change(v)
		_, err := s.Event(v, Upsert)
		var e *DataError
		if !errors.As(err, &e) || e.Column != c.column || e.Reason != c.reason || e.Code != codeValue || !fault.Is(err, fault.Data) {
			t.Errorf("%s %s: %v", c.column, c.reason, err)
		}
	}
}

// Time is cut, never rounded, to microseconds: before the epoch as after it, and it stays in its second, day and month.
func TestP12_DatetimeIsCutToMicroseconds(t *testing.T) {
	type row struct {
		ID int64     `slotline:"id,id"`
		V  time.Time `slotline:"v"`
	}
	s, err := StructOf[row](oneColumn("datetime"))
	if err != nil {
		t.Fatal(err)
	}
	random := newRandom(t)
	for range 10_000 {
		at := time.Unix(random.Int64N(8e11)-6e10, random.Int64N(1e9)).In(time.FixedZone("", random.IntN(86400)-43200))
		if at.UTC().Year() < 1 || at.UTC().Year() > 9999 {
			continue
		}
		e, err := s.Event(&row{1, at}, Upsert)
		text := at.UTC().Format("2006-01-02T15:04:05.000000000") // package time cuts too
		if want := field(`"` + text[:len(text)-3] + `Z"`); err != nil || string(e.Body) != want {
			t.Fatalf("%s is written %s, %v", at, e.Body, err)
		}
	}
	e, err := s.Event(&row{1, time.Date(2026, 11, 30, 23, 59, 59, 999999999, time.UTC)}, Upsert)
	if err != nil || string(e.Body) != field(`"2026-11-30T23:59:59.999999Z"`) {
		t.Errorf("%s, %v", e.Body, err)
	}
}

// The event owns its texts and body: the struct may change afterwards.
func TestStructEventOwnsItsMemory(t *testing.T) {
	type row struct {
		ID [4]byte `slotline:"x"`
		K  string  `slotline:"id,id"`
	}
	table := &Table{Name: "own", Columns: []Column{column("x", "bytes(4)"), column("id", "string(5)")}, Tenant: None, ID: 1, Month: None, Spread: None, Version: None}
	s, err := StructOf[row](table)
	if err != nil {
		t.Fatal(err)
	}
	v := row{[4]byte{1, 2, 3, 4}, "abc"}
	first, err := s.Event(&v, Upsert)
	if err != nil {
		t.Fatal(err)
	}
	v.ID = [4]byte{}
	if _, err := s.Event(&row{K: "zzz"}, Upsert); err != nil {
		t.Fatal(err)
	}
	if string(first.Body) != `{"x":"AQIDBA==","id":"abc"}` || first.EntityID != "abc" {
		t.Errorf("%s %s", first.Body, first.EntityID)
	}
}

// The mismatch of the surface document, word for word.
func TestStructMismatchText(t *testing.T) {
	type order struct {
		Carrier  string    `slotline:"carrier,tenant"`
		OrderID  uint64    `slotline:"order_id,id"`
		PlacedAt time.Time `slotline:"placed_at,month"`
		Total    int64     `slotline:"total"`
	}
	table := &Table{Name: "orders", Columns: []Column{column("carrier", "string(2)"), column("order_id", "uint64"), column("placed_at", "datetime"),
		column("total", "decimal(12,2)")}, Tenant: 0, ID: 1, Month: 2, Spread: None, Version: None}
	table.Columns[3].Source = "slotline.yaml:11"
	_, err := StructOf[order](table)
	want := "table orders, field Total (int64): column total is decimal(12,2) in slotline.yaml:11 [SL1107]\n" +
		"  an int64 cannot hold it without a silent factor of 100\n" +
		"  write: Total string, or any type with MarshalText; or change the column to int64 before the first apply"
	if err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
}

// Every mismatch of one struct is in one error; the file shows what a person reads.
func TestStructMismatchesGoldenFile(t *testing.T) {
	type inner struct {
		Zone int `slotline:"zone,spread"`
	}
	type pointed struct {
		T string `slotline:"t"`
	}
	type bad struct {
		inner                       // int does not fit int32
		*pointed                    // may be nil
		Tenant     int64            `slotline:"tenant"`          // role left out
		ID         *string          `slotline:"id,id"`           // not nullable
		Rev        int64            `slotline:"rev,version"`     // does not fit uint64
		At         string           `slotline:"at,month,tenant"` // a role too many
		B          int              `slotline:"b"`               // not a bool
		I          int64            `slotline:"i"`               // too wide
		L          uint64           `slotline:"l"`               // too wide
		U          *int             `slotline:"u"`               // signed
		F          int              `slotline:"f"`               // not a float
		D          float64          `slotline:"d"`               // inexact
		S          []byte           `slotline:"s"`               // not text
		X          string           `slotline:"x"`               // not bytes
		Day        int              `slotline:"day"`             // not a date
		TS         string           `slotline:"ts"`              // not a time
		J          map[string]any   `slotline:"j"`               // not raw JSON
		Again      json.RawMessage  `slotline:"j"`               // twice
		Typo       string           `slotline:"T"`               // no such column
		Role       string           `slotline:"t,primary"`       // no such role
		Nameless   string           `slotline:",id"`             // no column
		unmarked   int              //nolint:unused // not the table's
		unexported sql.Null[string] `slotline:"t"` //nolint:unused
	}
	_ = bad{}.unmarked
	_ = bad{}.unexported
	table := allKinds()
	for i := range table.Columns {
		table.Columns[i].Source = fmt.Sprintf("slotline.yaml:%d", 20+i)
	}
	_, err := StructOf[bad](table)
	if !fault.Is(err, fault.Usage) {
		t.Fatalf("%v", err)
	}
	golden(t, "struct_mismatches.txt", []byte(err.Error()+"\n"))
	if _, err := StructOf[*flight](flights()); fault.CodeOf(err) != "SL1108" {
		t.Errorf("%v", err)
	}
}

// A version column without the table's saying so, and the other way round.
func TestStructVersionRuleMustAgree(t *testing.T) {
	type row struct {
		ID int64 `slotline:"id,id"`
		V  int64 `slotline:"v,version"`
	}
	table := oneColumn("int64")
	_, err := StructOf[row](table)
	if err == nil || !strings.Contains(err.Error(), "version: auto") {
		t.Errorf("%v", err)
	}
	table.Version = 1
	if _, err := StructOf[row](table); err != nil {
		t.Errorf("%v", err)
	}
}

type cell[F any] struct {
	ID int64 `slotline:"id,id"`
	V  F     `slotline:"v"`
}

// fits writes v into a column of the type, and compares the field; want "" is a type that Register must refuse.
func fits[F any](t *testing.T, column string, v F, want string) {
	t.Helper()
	s, err := StructOf[cell[F]](oneColumn(column))
	if (err == nil) != (want != "") {
		t.Errorf("%T in %s: %v", v, column, err)
	}
	if err != nil {
		return
	}
	if e, err := s.Event(&cell[F]{1, v}, Upsert); err != nil || string(e.Body) != field(want) {
		t.Errorf("%T in %s: %s, %v", v, column, e.Body, err)
	}
}

type status string

func TestStructFieldTypes(t *testing.T) {
	fits(t, "bool", true, "true")
	fits(t, "bool", int8(1), "")
	fits(t, "int32", int8(math.MinInt8), "-128")
	fits(t, "int32", int16(math.MinInt16), "-32768")
	fits(t, "int32", int32(math.MinInt32), "-2147483648")
	fits(t, "int32", uint8(math.MaxUint8), "255")
	fits(t, "int32", uint16(math.MaxUint16), "65535")
	fits(t, "int32", uint32(0), "")
	fits(t, "int32", int(0), "")
	fits(t, "int32", "1", "")
	fits(t, "int64", int64(math.MinInt64), "-9223372036854775808")
	fits(t, "int64", int(math.MaxInt64), "9223372036854775807")
	fits(t, "int64", uint32(math.MaxUint32), "4294967295")
	fits(t, "int64", time.Duration(-1), "-1")
	fits(t, "int64", uint64(0), "")
	fits(t, "int64", uint(0), "")
	fits(t, "int64", 1.5, "")
	fits(t, "uint64", uint8(255), "255")
	fits(t, "uint64", uint16(65535), "65535")
	fits(t, "uint64", uint32(math.MaxUint32), "4294967295")
	fits(t, "uint64", uint64(math.MaxUint64), "18446744073709551615")
	fits(t, "uint64", uint(math.MaxUint64), "18446744073709551615")
	fits(t, "uint64", int8(0), "")
	fits(t, "float64", float32(0.1), "0.10000000149011612")
	fits(t, "float64", math.Copysign(0, -1), "-0")
	fits(t, "float64", int8(0), "")
	fits(t, "decimal(5,2)", "1.5", `"1.50"`)
	fits(t, "decimal(5,1)", code(3), `"3.5"`)
	fits(t, "decimal(5,0)", int64(3), "")
	fits(t, "string(9)", status("ok"), `"ok"`)
	fits(t, "string(9)", code(3), `"3.5"`)
	fits(t, "text", onPointer{"x"}, `"x"`)
	fits(t, "string(9)", []byte("x"), "")
	fits(t, "string(99)", time.Time{}, "")
	fits(t, "bytes(4)", []byte(nil), `""`)
	fits(t, "bytes(4)?", []byte(nil), "null")
	fits(t, "bytes(4)?", []byte{}, `""`)
	fits(t, "bytes(4)", [3]byte{1, 2, 3}, `"AQID"`)
	fits(t, "bytes(4)", [0]byte{}, `""`)
	fits(t, "bytes(4)", []int8{1}, "")
	fits(t, "bytes(4)", json.RawMessage(nil), "")
	fits(t, "json", json.RawMessage("[1, 2]"), "[1,2]")
	fits(t, "json?", json.RawMessage("null"), "null")
	fits(t, "json", []byte("1"), "")
	fits(t, "date", "2024-02-29", `"2024-02-29"`)
	fits(t, "date", time.Date(2024, 2, 29, 0, 0, 0, 0, time.Local), `"2024-02-29"`)
	fits(t, "date", int64(0), "")
	fits(t, "datetime", time.Unix(0, 0), `"1970-01-01T00:00:00.000000Z"`)
	fits(t, "datetime", "1970-01-01T00:00:00.000000Z", "")
	fits(t, "int32?", (*int32)(nil), "null")
	fits(t, "int32?", sql.Null[int32]{}, "null")
	fits(t, "int32?", int32(0), "0")
	fits(t, "int32", (*int32)(nil), "")
	fits(t, "int32", sql.Null[int32]{}, "")
	fits(t, "string(9)?", sql.Null[code]{V: 1, Valid: true}, `"1.5"`)
}

func TestStructSuggestions(t *testing.T) {
	_, err := StructOf[cell[*int32]](oneColumn("int32"))
	if err == nil || !strings.Contains(err.Error(), "write: V int32; or v: int32? before the first apply") {
		t.Errorf("%v", err)
	}
	type short struct {
		ID int64 `slotline:"id,id"`
	}
	table := oneColumn("int32?")
	table.Columns[1].Name = "arr_delay"
	_, err = StructOf[short](table)
	if err == nil || !strings.Contains(err.Error(), "write: ArrDelay *int32 `slotline:\"arr_delay\"`") {
		t.Errorf("%v", err)
	}
}
