package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
)

// P12: values reach each sink equal, within the range table; outside it the event is refused, never altered. Here:
// from JSON text to Value and back. Each case is a field's JSON text as it stands in a row image; what is accepted
// and what is refused is written to testdata for other languages.

type taken struct {
	json string // as it is written; canonical
	want Value
}

type refused struct {
	json   string
	reason string
}

type clause struct {
	column  string // type
	takes   []taken
	also    map[string]string // other texts, and the canonical text of the same value
	refuses []refused
}

func text(s string) Value { return Value{Bytes: []byte(s)} }
func integer(n int64) Value {
	return Value{Int: n}
}
func quoted(s string) string { b, _ := json.Marshal(s); return string(b) }

var p12 = map[string][]clause{
	"Integers": {
		{column: "int32", takes: []taken{{"0", integer(0)}, {"-1", integer(-1)}, {"2147483647", integer(math.MaxInt32)}, {"-2147483648", integer(math.MinInt32)}},
			refuses: append(notIntegers, refused{"2147483648", ReasonOutOfRange}, refused{"-2147483649", ReasonOutOfRange})},
		{column: "int64", takes: []taken{{"9223372036854775807", integer(math.MaxInt64)}, {"-9223372036854775808", integer(math.MinInt64)},
			{"9007199254740993", integer(1<<53 + 1)}}, // no float64
			refuses: append(notIntegers, refused{"9223372036854775808", ReasonOutOfRange}, refused{"-9223372036854775809", ReasonOutOfRange},
				refused{"18446744073709551615", ReasonOutOfRange})},
		{column: "uint64", takes: []taken{{"0", Value{}}, {"18446744073709551615", Value{Uint: math.MaxUint64}}, {"9223372036854775808", Value{Uint: 1 << 63}}},
			refuses: append(notIntegers, refused{"18446744073709551616", ReasonOutOfRange}, refused{"-1", ReasonOutOfRange},
				refused{"99999999999999999999", ReasonOutOfRange}, refused{"184467440737095516150", ReasonOutOfRange})},
	},
	"Float64": {{column: "float64",
		takes: []taken{{"0", Value{}}, {"-0", Value{Float: math.Copysign(0, -1)}}, {"0.1", Value{Float: 0.1}}, {"-2.5", Value{Float: -2.5}},
			{"100", Value{Float: 100}}, {"1e+21", Value{Float: 1e21}}, {"123456789012345680000", Value{Float: 123456789012345680000}},
			{"0.000001", Value{Float: 1e-6}}, {"1e-7", Value{Float: 1e-7}}, {"1.5e-10", Value{Float: 1.5e-10}},
			{"1.7976931348623157e+308", Value{Float: math.MaxFloat64}}, {"5e-324", Value{Float: math.SmallestNonzeroFloat64}},
			{"9007199254740992", Value{Float: 1 << 53}}, {"3.141592653589793", Value{Float: math.Pi}}},
		also: map[string]string{"1.0": "1", "1E2": "100", "0.10000000000000000555": "0.1", "1e-400": "0", "100e-2": "1"},
		refuses: []refused{{"1e400", ReasonOutOfRange}, {"-1e309", ReasonOutOfRange}, {"NaN", ReasonWrongType}, {"Infinity", ReasonWrongType},
			{"-Infinity", ReasonWrongType}, {`"NaN"`, ReasonWrongType}, {`"1"`, ReasonWrongType}, {"01", ReasonWrongType}, {".5", ReasonWrongType},
			{"5.", ReasonWrongType}, {"1e", ReasonWrongType}, {"+1", ReasonWrongType}, {"0x10", ReasonMalformed}, {"true", ReasonWrongType}, {"null", ReasonNull}},
	}},
	"Decimal": {
		{column: "decimal(12,2)",
			takes: []taken{{`"-12.50"`, text("-12.50")}, {`"0.00"`, text("0.00")}, {`"9999999999.99"`, text("9999999999.99")},
				{`"-9999999999.99"`, text("-9999999999.99")}, {`"0.01"`, text("0.01")}},
			also: map[string]string{`"1"`: `"1.00"`, `"1.5"`: `"1.50"`, `"-0"`: `"0.00"`, `"-0.00"`: `"0.00"`, `"-0.01"`: `"-0.01"`, `"\u0031"`: `"1.00"`},
			refuses: []refused{{`"1.234"`, ReasonOutOfRange}, {`"1.000"`, ReasonOutOfRange}, {`"10000000000.00"`, ReasonOutOfRange}, {`"01.00"`, ReasonWrongType},
				{`"+1.00"`, ReasonWrongType}, {`".50"`, ReasonWrongType}, {`"1."`, ReasonWrongType}, {`"1e2"`, ReasonWrongType}, {`""`, ReasonWrongType},
				{`"-"`, ReasonWrongType}, {`" 1.00"`, ReasonWrongType}, {`"1,00"`, ReasonWrongType}, {`"NaN"`, ReasonWrongType}, {"1.00", ReasonWrongType},
				{"1", ReasonWrongType}, {"null", ReasonNull}}},
		{column: "decimal(3,0)", takes: []taken{{`"999"`, text("999")}, {`"-1"`, text("-1")}}, refuses: []refused{{`"1.0"`, ReasonOutOfRange}, {`"1000"`, ReasonOutOfRange}}},
		{column: "decimal(2,2)", takes: []taken{{`"0.99"`, text("0.99")}}, refuses: []refused{{`"1.00"`, ReasonOutOfRange}}},
		{column: "decimal(65,30)", takes: []taken{{`"` + strings.Repeat("9", 35) + "." + strings.Repeat("9", 30) + `"`, text(strings.Repeat("9", 35) + "." + strings.Repeat("9", 30))}},
			refuses: []refused{{`"` + strings.Repeat("9", 36) + `"`, ReasonOutOfRange}}},
	},
	"Bool": {{column: "bool", takes: []taken{{"true", integer(1)}, {"false", integer(0)}},
		refuses: []refused{{"1", ReasonWrongType}, {"0", ReasonWrongType}, {`"true"`, ReasonWrongType}, {"True", ReasonWrongType}, {"truth", ReasonMalformed},
			{"null", ReasonNull}}}},
	"Text": {
		{column: "string(3)",
			takes: []taken{{`""`, text("")}, {`"abc"`, text("abc")}, {`"雪雪雪"`, text("雪雪雪")}, {`"😀😀😀"`, text("😀😀😀")}, {`" a "`, text(" a ")},
				{`"\u0000"`, text("\x00")}, {`"\"\\/"`, text(`"\/`)}, {`"\b\f\n"`, text("\b\f\n")}, {`"\r\t\u001f"`, text("\r\t\x1f")}, {"\"\u2028<\x7f\"", text("\u2028<\x7f")},
				{"\"\ufffd\"", text("\ufffd")}},
			also:    map[string]string{`"\u0061\/"`: `"a/"`, `"\ud83d\ude00"`: `"😀"`, `"\uD83D\uDE00"`: `"😀"`, `"\u00e9"`: `"é"`, `"\ufffd"`: "\"\ufffd\""},
			refuses: append(notText, refused{`"abcd"`, ReasonTooLong}, refused{`"雪雪雪雪"`, ReasonTooLong}, refused{`"e\u0301e\u0301"`, ReasonTooLong})},
		{column: "text", takes: []taken{{`""`, text("")}, {quoted(strings.Repeat("雪", 1000)), text(strings.Repeat("雪", 1000))}}, refuses: notText},
	},
	"Bytes": {{column: "bytes(4)",
		takes:   []taken{{`""`, text("")}, {`"AA=="`, text("\x00")}, {`"//8="`, text("\xff\xff")}, {`"AAEC"`, text("\x00\x01\x02")}, {`"+/+/+w=="`, text("\xfb\xff\xbf\xfb")}},
		also:    map[string]string{`"\/\/8="`: `"//8="`, `"\u0041A=="`: `"AA=="`},
		refuses: []refused{{`"AAECAwQ="`, ReasonTooLong}, {`"AA"`, ReasonWrongType}, {`"AA="`, ReasonWrongType}, {`"AB=="`, ReasonWrongType}, {`"AA==\n"`, ReasonWrongType}, {`"A\r\nA=="`, ReasonWrongType}, {`"A\rA=="`, ReasonWrongType}, {`"AA==\r"`, ReasonWrongType}, {`"__8="`, ReasonWrongType}, {`" AA=="`, ReasonWrongType}, {"[0]", ReasonWrongType}, {"null", ReasonNull}},
	}},
	"Date": {{column: "date",
		takes: []taken{{`"1970-01-01"`, integer(0)}, {`"0001-01-01"`, integer(-719162)}, {`"9999-12-31"`, integer(2932896)}, {`"2024-02-29"`, integer(19782)},
			{`"2000-02-29"`, integer(11016)}, {`"1969-12-31"`, integer(-1)}, {`"1900-03-01"`, integer(-25508)}},
		also: map[string]string{`"2024\u002d02-29"`: `"2024-02-29"`},
		refuses: []refused{{`"0000-01-01"`, ReasonWrongType}, {`"0000-12-31"`, ReasonWrongType}, {`"10000-01-01"`, ReasonWrongType}, {`"2023-02-29"`, ReasonWrongType},
			{`"1900-02-29"`, ReasonWrongType}, {`"2100-02-29"`, ReasonWrongType}, {`"2024-04-31"`, ReasonWrongType}, {`"2024-13-01"`, ReasonWrongType}, {`"2024-00-01"`, ReasonWrongType},
			{`"2024-01-00"`, ReasonWrongType}, {`"2024-1-01"`, ReasonWrongType}, {`"24-01-01"`, ReasonWrongType}, {`"2024/01/01"`, ReasonWrongType}, {`"-001-01-01"`, ReasonWrongType},
			{`"2024-01-01T00:00:00Z"`, ReasonWrongType}, {`"2024-01-01 "`, ReasonWrongType}, {`""`, ReasonWrongType}, {"0", ReasonWrongType}, {"null", ReasonNull}},
	}},
	"Datetime": {{column: "datetime",
		takes: []taken{{`"1970-01-01T00:00:00.000000Z"`, integer(0)}, {`"1969-12-31T23:59:59.999999Z"`, integer(-1)}, {`"0001-01-01T00:00:00.000000Z"`, integer(-62135596800000000)},
			{`"9999-12-31T23:59:59.999999Z"`, integer(253402300799999999)}, {`"2024-02-29T12:34:56.000001Z"`, integer(1709210096000001)}},
		refuses: []refused{{`"0000-12-31T23:59:59.999999Z"`, ReasonWrongType}, {`"2023-02-29T00:00:00.000000Z"`, ReasonWrongType}, {`"2024-01-01T24:00:00.000000Z"`, ReasonWrongType},
			{`"2024-01-01T23:60:00.000000Z"`, ReasonWrongType}, {`"2016-12-31T23:59:60.000000Z"`, ReasonWrongType}, {`"2024-01-01T00:00:00Z"`, ReasonWrongType},
			{`"2024-01-01T00:00:00.000Z"`, ReasonWrongType}, {`"2024-01-01T00:00:00.0000000Z"`, ReasonWrongType}, {`"2024-01-01T00:00:00.000000"`, ReasonWrongType},
			{`"2024-01-01T00:00:00.000000+00:00"`, ReasonWrongType}, {`"2024-01-01 00:00:00.000000Z"`, ReasonWrongType}, {`"2024-01-01t00:00:00.000000z"`, ReasonWrongType},
			{`"2024-01-01T00:00:00,000000Z"`, ReasonWrongType}, {`"2024-01-01"`, ReasonWrongType}, {"1704067200", ReasonWrongType}, {"null", ReasonNull}},
	}},
	"JSON": {{column: "json",
		takes: []taken{{`{}`, text(`{}`)}, {`[]`, text(`[]`)}, {`"null"`, text(`"null"`)}, {`true`, text(`true`)}, {`{"b":1,"a":[null,{"c":"d e"}]}`, text(`{"b":1,"a":[null,{"c":"d e"}]}`)},
			{`18446744073709551615`, text(`18446744073709551615`)}, {`1.10`, text(`1.10`)}, {`{"":{"":0}}`, text(`{"":{"":0}}`)}, {`[{"a":1},{"a":1}]`, text(`[{"a":1},{"a":1}]`)},
			{deep(JSONDepthMax), text(deep(JSONDepthMax))}, {deepObjects(JSONDepthMax), text(deepObjects(JSONDepthMax))}, {manyKeys(100, "x"), text(manyKeys(100, "x"))}},
		also: map[string]string{" [ 1 , 2 ] ": "[1,2]", "{\n\t\"a b\" : \" c \\\" : \" }": `{"a b":" c \" : "}`},
		refuses: []refused{{"null", ReasonNull}, {`{"a":1,"a":1}`, ReasonDuplicate}, {`{"a":1,"\u0061":2}`, ReasonDuplicate}, {manyKeys(31, "k0"), ReasonDuplicate}, {manyKeys(32, "k31"), ReasonDuplicate},
			{manyKeys(33, "k0"), ReasonDuplicate}, {manyKeys(100, "k99"), ReasonDuplicate}, {`[1e400]`, ReasonOutOfRange}, {"1" + strings.Repeat("0", 400), ReasonOutOfRange},
			{deep(JSONDepthMax + 1), ReasonOutOfRange}, {deepObjects(JSONDepthMax + 1), ReasonOutOfRange}, {`{"` + strings.Repeat("k", JSONKeyBytesMax+1) + `":1}`, ReasonTooLong}, {`["\ud800"]`, ReasonBadText}, {"[\"\xff\"]", ReasonBadText}, {`{"\udc00":1}`, ReasonBadText},
			{`[1,]`, ReasonMalformed}, {`{"a":1,}`, ReasonMalformed}, {`{a:1}`, ReasonMalformed}, {`[01]`, ReasonMalformed}, {`[NaN]`, ReasonMalformed}, {`'a'`, ReasonMalformed}, {`[1 2]`, ReasonMalformed}, {`{"a" 1}`, ReasonMalformed}, {"[1", ReasonMalformed}},
	}},
	"Null": {
		{column: "int32?", takes: []taken{{"null", Value{Null: true}}, {"0", Value{}}}, refuses: []refused{{`""`, ReasonWrongType}, {"nul", ReasonMalformed}, {"NULL", ReasonWrongType}}},
		{column: "string(3)?", takes: []taken{{"null", Value{Null: true}}, {`""`, text("")}, {`"nil"`, text("nil")}}},
		{column: "json?", takes: []taken{{"null", Value{Null: true}}, {`"null"`, text(`"null"`)}, {`[null]`, text(`[null]`)}}},
		{column: "bytes(3)?", takes: []taken{{"null", Value{Null: true}}, {`""`, text("")}}},
		{column: "datetime?", takes: []taken{{"null", Value{Null: true}}}, refuses: []refused{{`""`, ReasonWrongType}, {`"0000-00-00T00:00:00.000000Z"`, ReasonWrongType}}},
	},
}

// manyKeys is an object of n keys and then one more.
func manyKeys(n int, last string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"k%d":{},`[min(i, 1):], i)
	}
	return b.String() + `"` + last + `":0}`
}

var notIntegers = []refused{{"1.0", ReasonWrongType}, {"1e2", ReasonWrongType}, {"1E2", ReasonWrongType}, {"01", ReasonWrongType}, {"-0", ReasonWrongType}, {"00", ReasonWrongType},
	{"+1", ReasonWrongType}, {`"1"`, ReasonWrongType}, {"true", ReasonWrongType}, {"-", ReasonWrongType}, {"0x1", ReasonMalformed}, {"1_000", ReasonMalformed}, {"null", ReasonNull}, {"[1]", ReasonWrongType}, {"1 2", ReasonMalformed}}

var notText = []refused{{`"\ud800"`, ReasonBadText}, {`"\udc00"`, ReasonBadText}, {`"\ud800a"`, ReasonBadText}, {`"\ud800\n"`, ReasonBadText}, {`"\ud800\u0041"`, ReasonBadText}, {`"\ude00\ud83d"`, ReasonBadText},
	{"\"\xff\"", ReasonBadText}, {"\"\xc3\"", ReasonBadText}, {"\"\xc0\x80\"", ReasonBadText}, {"\"\xed\xa0\x80\"", ReasonBadText}, {"\"\\n\xff\"", ReasonBadText}, {"\"\xf4\x90\x80\x80\"", ReasonBadText},
	{"\"\n\"", ReasonMalformed}, {"\"\x00\"", ReasonMalformed}, {`"\x41"`, ReasonMalformed}, {`"\u00g0"`, ReasonMalformed}, {`"\u00`, ReasonMalformed}, {`"abc`, ReasonMalformed}, {"abc", ReasonWrongType}, {"1", ReasonWrongType}, {"null", ReasonNull}}

func deep(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func deepObjects(n int) string { return strings.Repeat(`{"":`, n-1) + "{}" + strings.Repeat("}", n-1) }

func field(json string) string { return `{"id":1,"v":` + json + `}` }

func testClauses(t *testing.T, name string) {
	t.Helper()
	for _, c := range p12[name] {
		table := oneColumn(c.column)
		var row Row
		for _, take := range c.takes {
			body := field(take.json)
			if err := table.DecodeRow([]byte(body), Upsert, &row); err != nil {
				t.Errorf("%s: %s: %v", c.column, body, err)
				continue
			}
			if got := row.Values[1]; !sameValue(got, take.want) || math.Signbit(got.Float) != math.Signbit(take.want.Float) {
				t.Errorf("%s: %s reads as %+v, wanted %+v", c.column, body, got, take.want)
			}
			image, err := table.AppendRow(nil, []Value{{Int: 1}, take.want}, Upsert)
			if err != nil || string(image) != body {
				t.Errorf("%s: %s is written %s, %v", c.column, body, image, err)
			}
		}
		for other, canonical := range c.also {
			if err := table.DecodeRow([]byte(field(other)), Upsert, &row); err != nil {
				t.Errorf("%s: %s: %v", c.column, other, err)
				continue
			}
			image, err := table.AppendRow(nil, row.Values, Upsert)
			if err != nil || string(image) != field(canonical) {
				t.Errorf("%s: %s is written %s, wanted %s: %v", c.column, other, image, canonical, err)
			}
		}
		for _, r := range c.refuses {
			err := table.DecodeRow([]byte(field(r.json)), Upsert, &row)
			var e *DataError
			if !errors.As(err, &e) || e.Reason != r.reason {
				t.Errorf("%s: %.60s: %v, wanted %s", c.column, r.json, err, r.reason)
			} else if e.Column != "v" {
				t.Errorf("%s: %.60s: the error names column %q", c.column, r.json, e.Column)
			}
		}
	}
}

func TestP12_IntegersAreExact(t *testing.T) { testClauses(t, "Integers") }
func TestP12_DecimalsAreExact(t *testing.T) { testClauses(t, "Decimal") }
func TestP12_Bool(t *testing.T)             { testClauses(t, "Bool") }
func TestP12_TextIsUTF8(t *testing.T)       { testClauses(t, "Text") }
func TestP12_Bytes(t *testing.T)            { testClauses(t, "Bytes") }
func TestP12_Date(t *testing.T)             { testClauses(t, "Date") }
func TestP12_Datetime(t *testing.T)         { testClauses(t, "Datetime") }
func TestP12_JSONByValue(t *testing.T)      { testClauses(t, "JSON") }
func TestP12_Null(t *testing.T)             { testClauses(t, "Null") }

func TestP12_FloatsInShortestForm(t *testing.T) {
	testClauses(t, "Float64")
	random := newRandom(t)
	table := oneColumn("float64")
	var row Row
	for range 200_000 {
		f := math.Float64frombits(random.Uint64())
		if math.IsNaN(f) || math.IsInf(f, 0) {
			continue
		}
		image, err := table.AppendRow(nil, []Value{{Int: 1}, {Float: f}}, Upsert)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := json.Marshal(f)
		if string(image) != field(string(want)) {
			t.Fatalf("%v is written %s, encoding/json says %s", f, image, want)
		}
		if err := table.DecodeRow(image, Upsert, &row); err != nil || math.Float64bits(row.Values[1].Float) != math.Float64bits(f) {
			t.Fatalf("%s reads as %v, %v", image, row.Values[1].Float, err)
		}
	}
}

// What no row image can say is refused when it is written.
func TestP12_EncoderRefuses(t *testing.T) {
	for _, c := range []struct {
		column string
		value  Value
		reason string
	}{
		{"float64", Value{Float: math.NaN()}, ReasonOutOfRange},
		{"float64", Value{Float: math.Inf(1)}, ReasonOutOfRange},
		{"float64", Value{Float: math.Inf(-1)}, ReasonOutOfRange},
		{"bool", Value{Int: 2}, ReasonOutOfRange},
		{"bool", Value{Int: -1}, ReasonOutOfRange},
		{"int32", Value{Int: math.MaxInt32 + 1}, ReasonOutOfRange},
		{"int32", Value{Int: math.MinInt32 - 1}, ReasonOutOfRange},
		{"date", Value{Int: dateMin - 1}, ReasonOutOfRange},
		{"date", Value{Int: dateMax + 1}, ReasonOutOfRange},
		{"date", Value{Int: math.MinInt64}, ReasonOutOfRange},
		{"datetime", Value{Int: datetimeMin - 1}, ReasonOutOfRange},
		{"datetime", Value{Int: datetimeMax + 1}, ReasonOutOfRange},
		{"decimal(4,2)", text("1.234"), ReasonOutOfRange},
		{"decimal(4,2)", text("100"), ReasonOutOfRange},
		{"decimal(4,2)", text("1e1"), ReasonWrongType},
		{"string(3)", text("abcd"), ReasonTooLong},
		{"string(3)", text("\xff"), ReasonBadText},
		{"string(3)", text("\xed\xa0\x80"), ReasonBadText},
		{"text", text("a\xc3"), ReasonBadText},
		{"bytes(3)", text("abcd"), ReasonTooLong},
		{"json", text(""), ReasonMalformed},
		{"json", text("{"), ReasonMalformed},
		{"json", text("1 2"), ReasonMalformed},
		{"json", text(`{"a":1,"a":1}`), ReasonDuplicate},
		{"json", text(" null"), ReasonNull},
		{"json?", text("null"), ReasonNull},
		{"int64", Value{Null: true}, ReasonNull},
	} {
		table := oneColumn(c.column)
		before := []byte("kept")
		got, err := table.AppendRow(before, []Value{{Int: 1}, c.value}, Upsert)
		var e *DataError
		if !errors.As(err, &e) || e.Reason != c.reason || e.Column != "v" || e.Code != codeValue {
			t.Errorf("%s of %+v: %v, wanted %s", c.column, c.value, err, c.reason)
		}
		if string(got) != "kept" {
			t.Errorf("%s of %+v left %q", c.column, c.value, got)
		}
	}
}

func TestP12_MissingUnknownAndDuplicateFields(t *testing.T) {
	table := oneColumn("int32?")
	var row Row
	if err := table.DecodeRow([]byte(`{"id":1}`), Upsert, &row); err != nil || !row.Values[1].Null {
		t.Errorf("a nullable field that is missing is NULL: %+v, %v", row.Values[1], err)
	}
	for body, reason := range map[string]string{
		`{"v":1}`: ReasonMissing, `{}`: ReasonMissing, `{"id":null,"v":1}`: ReasonNull,
		`{"id":1,"v":1,"w":1}`: ReasonUnknownField, `{"id":1,"V":1}`: ReasonUnknownField, `{"id":1,"":1}`: ReasonUnknownField,
		`{"id":1,"v":1,"v":1}`: ReasonDuplicate, `{"id":1,"id":1}`: ReasonDuplicate, `{"id":1,"v":null,"v":1}`: ReasonDuplicate,
		``: ReasonMalformed, `[]`: ReasonMalformed, `null`: ReasonMalformed, `{"id":1}{`: ReasonMalformed, `{"id":1,}`: ReasonMalformed,
		`{"id" 1}`: ReasonMalformed, `{"id":}`: ReasonWrongType, "\ufeff{\"id\":1}": ReasonMalformed, `{"id":1};`: ReasonMalformed, `{id:1}`: ReasonMalformed,
	} {
		if got := decodeReason(t, table, body, Upsert); got != reason {
			t.Errorf("%q: %q, wanted %s", body, got, reason)
		}
	}
}

func TestP12_DeletesHoldKeyFieldsOnly(t *testing.T) {
	table := flights()
	for body, reason := range map[string]string{
		`{"carrier":"UA","flight_id":1,"sched_dep":"2026-11-30T23:59:59.123456Z"}`: "",
		flightBody:                       ReasonUnknownField,
		`{"carrier":"UA","flight_id":1}`: ReasonMissing,
		`{"carrier":"UA","flight_id":1,"sched_dep":"2026-11-30T23:59:59.123456Z","arr_delay":null}`: ReasonUnknownField,
	} {
		if got := decodeReason(t, table, body, Delete); got != reason {
			t.Errorf("%s: %q, wanted %q", body, got, reason)
		}
	}
}

func TestP12_KeyTexts(t *testing.T) {
	table := &Table{Name: "keys", Columns: []Column{column("tenant", "string(64)"), column("id", "string(255)"), column("spread", "string(255)"),
		column("ver", "int64"), column("at", "date")}, Tenant: 0, ID: 1, Spread: 2, Version: 3, Month: 4}
	body := func(tenant, id, spread, version, at string) string {
		return fmt.Sprintf(`{"tenant":%s,"id":%s,"spread":%s,"ver":%s,"at":%s}`, tenant, id, spread, version, at)
	}
	long := func(n int) string { return `"` + strings.Repeat("x", n) + `"` }
	for _, c := range []struct{ tenant, id, spread, version, at, reason, column string }{
		{long(64), long(255), long(255), "4611686018427387903", `"1000-01-01"`, "", ""},
		{`"a"`, `"\u0000\u0000"`, `""`, "1", `"9999-12-31"`, "", ""},
		{`""`, `"1"`, `""`, "1", `"2026-01-01"`, ReasonEmpty, "tenant"},
		{`"` + strings.Repeat("雪", 22) + `"`, `"1"`, `""`, "1", `"2026-01-01"`, ReasonTooLong, "tenant"},
		{`"a\u0000b"`, `"1"`, `""`, "1", `"2026-01-01"`, ReasonBadText, "tenant"},
		{`"a"`, `""`, `""`, "1", `"2026-01-01"`, ReasonEmpty, "id"},
		{`"a"`, `"` + strings.Repeat("é", 128) + `"`, `""`, "1", `"2026-01-01"`, ReasonTooLong, "id"},
		{`"a"`, `"1"`, `"` + strings.Repeat("é", 128) + `"`, "1", `"2026-01-01"`, ReasonTooLong, "spread"},
		{`"a"`, `"1"`, `""`, "0", `"2026-01-01"`, ReasonOutOfRange, "ver"},
		{`"a"`, `"1"`, `""`, "-1", `"2026-01-01"`, ReasonOutOfRange, "ver"},
		{`"a"`, `"1"`, `""`, "4611686018427387904", `"2026-01-01"`, ReasonOutOfRange, "ver"},
		{`"a"`, `"1"`, `""`, "1", `"0999-12-31"`, ReasonOutOfRange, "at"},
	} {
		var row Row
		err := table.DecodeRow([]byte(body(c.tenant, c.id, c.spread, c.version, c.at)), Upsert, &row)
		var e *DataError
		if errors.As(err, &e); c.reason == "" && err != nil || c.reason != "" && (e == nil || e.Reason != c.reason || e.Column != c.column) {
			t.Errorf("%+v: %v", c, err)
		}
		if err != nil {
			continue
		}
		// The encoder judges the same.
		image, err := table.AppendRow(nil, row.Values, Upsert)
		if err != nil || string(image) != body(c.tenant, c.id, c.spread, c.version, c.at) {
			t.Errorf("%+v: %s, %v", c, image, err)
		}
	}
	values := []Value{text("a"), text("1"), text(""), integer(1), integer(0)}
	for col, bad := range []Value{text("a\x00"), text(""), text(strings.Repeat("x", 256)), integer(0), integer(dateMin)} {
		changed := bytes.Clone(nil)
		spoilt := append([]Value(nil), values...)
		spoilt[col] = bad
		if changed, err := table.AppendRow(changed, spoilt, Upsert); err == nil {
			t.Errorf("column %d: %s was written", col, changed)
		}
	}
}

// The cases above as files, for implementations in other languages.
func TestRowImageGoldenFiles(t *testing.T) {
	var images, bad bytes.Buffer
	for _, name := range []string{"Integers", "Float64", "Decimal", "Bool", "Text", "Bytes", "Date", "Datetime", "JSON", "Null"} {
		for _, c := range p12[name] {
			table := oneColumn(c.column)
			for _, take := range c.takes {
				image, err := table.AppendRow(nil, []Value{{Int: 1}, take.want}, Upsert)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&images, "%s\t%s\n", c.column, image)
			}
			for _, r := range c.refuses {
				if len(r.json) < 500 {
					fmt.Fprintf(&bad, "%s\t%s\t%s\n", c.column, r.reason, strconv.Quote(field(r.json)))
				}
			}
		}
	}
	image, err := everything(t)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&images, "all kinds\t%s\n", image)
	golden(t, "row_images.tsv", images.Bytes())
	golden(t, "row_refused.tsv", bad.Bytes())
}

func everything(t *testing.T) ([]byte, error) {
	var row Row
	if err := allKinds().DecodeRow([]byte(everythingBody), Upsert, &row); err != nil {
		t.Fatal(err)
	}
	return allKinds().AppendRow(nil, row.Values, Upsert)
}
