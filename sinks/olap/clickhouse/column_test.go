package clickhouse

import (
	"bytes"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/slotline/slotline/event"
)

// seeded returns a random source whose seed is in the log.
func seeded(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// twin is the client library's own column of a kind, and how a value is put into it.
type twin struct {
	typ    string // as config writes it
	column proto.ColInput
	add    func(v event.Value)
}

func twins() []twin {
	var list []twin
	plain := func(typ string, column proto.ColInput, add func(v event.Value)) {
		list = append(list, twin{typ: typ, column: column, add: add})
	}
	b, i32, i64, u64, f64 := new(proto.ColBool), new(proto.ColInt32), new(proto.ColInt64), new(proto.ColUInt64), new(proto.ColFloat64)
	plain("bool", b, func(v event.Value) { b.Append(v.Int == 1) })
	plain("int32", i32, func(v event.Value) { i32.Append(int32(v.Int)) })
	plain("int64", i64, func(v event.Value) { i64.Append(v.Int) })
	plain("uint64", u64, func(v event.Value) { u64.Append(v.Uint) })
	plain("float64", f64, func(v event.Value) { f64.Append(v.Float) })
	for _, typ := range []string{"string(20)", "text", "bytes(20)", "json"} {
		s := new(proto.ColStr)
		plain(typ, s, func(v event.Value) { s.AppendBytes(v.Bytes) })
	}
	d32 := new(proto.ColDate32)
	plain("date", d32, func(v event.Value) { d32.Append(time.Unix(v.Int*86400, 0).UTC()) })
	d64 := new(proto.ColDateTime64).WithPrecision(proto.PrecisionMicro).WithLocation(time.UTC)
	plain("datetime", d64, func(v event.Value) { d64.AppendRaw(proto.DateTime64(v.Int)) })
	dec32, dec64, dec128, dec256 := new(proto.ColDecimal32), new(proto.ColDecimal64), new(proto.ColDecimal128), new(proto.ColDecimal256)
	plain("decimal(9,2)", dec32, func(v event.Value) { dec32.Append(proto.Decimal32(unscaled(v.Bytes).Int64())) })
	plain("decimal(18,0)", dec64, func(v event.Value) { dec64.Append(proto.Decimal64(unscaled(v.Bytes).Int64())) })
	plain("decimal(38,10)", dec128, func(v event.Value) {
		l := limbs(unscaled(v.Bytes))
		dec128.Append(proto.Decimal128(proto.Int128{Low: l[0], High: l[1]}))
	})
	plain("decimal(65,30)", dec256, func(v event.Value) {
		l := limbs(unscaled(v.Bytes))
		dec256.Append(proto.Decimal256(proto.Int256{Low: proto.UInt128{Low: l[0], High: l[1]}, High: proto.UInt128{Low: l[2], High: l[3]}}))
	})
	return list
}

// unscaled is a decimal's digits as a number, by other code.
func unscaled(text []byte) *big.Int {
	n := new(big.Int)
	if len(text) > 0 {
		if _, ok := n.SetString(strings.Replace(string(text), ".", "", 1), 10); !ok {
			panic(string(text))
		}
	}
	return n
}

// limbs is two's complement in 256 bits.
func limbs(n *big.Int) (l [4]uint64) {
	m := new(big.Int).Set(n)
	if m.Sign() < 0 {
		m.Add(m, new(big.Int).Lsh(big.NewInt(1), 256))
	}
	for i := range l {
		l[i] = new(big.Int).And(m, new(big.Int).SetUint64(math.MaxUint64)).Uint64()
		m.Rsh(m, 64)
	}
	return l
}

func randomDecimal(random *rand.Rand, t event.Type) []byte {
	digits := 1 + random.IntN(t.Precision)
	var s strings.Builder
	for range digits {
		s.WriteByte(byte('0' + random.IntN(10)))
	}
	if random.IntN(4) == 0 {
		s.Reset()
		s.WriteString(strings.Repeat("9", t.Precision))
	}
	text := strings.Repeat("0", t.Scale) + s.String()
	whole, fraction := text[:len(text)-t.Scale], text[len(text)-t.Scale:]
	if whole = strings.TrimLeft(whole, "0"); whole == "" {
		whole = "0"
	}
	if t.Scale > 0 {
		whole += "." + fraction
	}
	if random.IntN(2) == 0 && strings.Trim(whole, "0.") != "" {
		whole = "-" + whole
	}
	return []byte(whole)
}

func randomValue(random *rand.Rand, t event.Type) event.Value {
	edge := func(n int64, edges ...int64) int64 {
		if random.IntN(3) == 0 {
			return edges[random.IntN(len(edges))]
		}
		return n
	}
	switch t.Kind {
	case event.Bool:
		return event.Value{Int: random.Int64N(2)}
	case event.Int32:
		return event.Value{Int: edge(int64(int32(random.Uint32())), math.MinInt32, -1, 0, math.MaxInt32)}
	case event.Int64:
		return event.Value{Int: edge(int64(random.Uint64()), math.MinInt64, -1, 0, math.MaxInt64)}
	case event.Uint64:
		return event.Value{Uint: uint64(edge(int64(random.Uint64()), 0, -1, math.MinInt64))}
	case event.Float64:
		return event.Value{Float: random.NormFloat64() * math.Pow(10, float64(random.IntN(600)-300))}
	case event.Date:
		return event.Value{Int: edge(random.Int64N(100_000)-20_000, event.LimitsClickHouse.DateMin, event.LimitsClickHouse.DateMax, 0, -1)}
	case event.Datetime:
		return event.Value{Int: edge(random.Int64N(1<<50), event.LimitsClickHouse.DatetimeMin, event.LimitsClickHouse.DatetimeMax, 0, -1)}
	case event.Decimal:
		return event.Value{Bytes: randomDecimal(random, t)}
	}
	b := make([]byte, edge(random.Int64N(30), 0, 127, 128, 20_000))
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return event.Value{Bytes: b}
}

func parseColumn(t testing.TB, name, typ string) event.Column {
	t.Helper()
	parsed, nullable, err := event.ParseType(typ)
	if err != nil {
		t.Fatal(err)
	}
	return event.Column{Name: name, Type: parsed, Nullable: nullable}
}

// Each column's bytes equal those of the client library's column that was given the same values.
func TestP12_ColumnsEncodeAsTheClientLibraryDoes(t *testing.T) {
	random := seeded(t)
	for _, nullable := range []bool{false, true} {
		for _, w := range twins() {
			typ := w.typ
			if nullable {
				typ += "?"
			}
			ours := newColumn(parseColumn(t, "c", typ))
			for round := range 3 {
				ours.reset()
				var nulls []byte
				if round > 0 {
					w.column.(proto.Resettable).Reset()
				}
				for range random.IntN(60) {
					v := randomValue(random, parseColumn(t, "c", typ).Type)
					if nullable && random.IntN(3) == 0 {
						v = event.Value{Null: true}
					}
					ours.append(&v)
					w.add(v)
					if nullable {
						null := byte(0)
						if v.Null {
							null = 1
						}
						nulls = append(nulls, null)
					}
				}
				want := proto.Buffer{Buf: nulls}
				w.column.EncodeColumn(&want)
				var got proto.Buffer
				ours.EncodeColumn(&got)
				if !bytes.Equal(got.Buf, want.Buf) || ours.Rows() != w.column.Rows() {
					t.Fatalf("%s: %d rows\n%x\nwanted %d\n%x", typ, ours.Rows(), got.Buf, w.column.Rows(), want.Buf)
				}
				var sent bytes.Buffer
				writer := proto.NewWriter(&sent, new(proto.Buffer))
				ours.WriteColumn(writer)
				if _, err := writer.Flush(); err != nil || !bytes.Equal(sent.Bytes(), want.Buf) {
					t.Fatalf("%s uncompressed: %v\n%x\nwanted\n%x", typ, err, sent.Bytes(), want.Buf)
				}
			}
		}
	}
}

// A column that somebody changed is refused at the next INSERT, before rows would be converted in silence.
func TestP12_ColumnRefusesAnotherType(t *testing.T) {
	for _, c := range []struct {
		typ, table string
		ok         bool
	}{
		{"int32", "Int32", true}, {"int32", "Int64", false}, {"int32?", "Nullable(Int32)", true}, {"int32?", "Int32", false},
		{"decimal(12,2)", "Decimal(12, 2)", true}, {"decimal(12,2)", "Decimal(12,2)", true}, {"decimal(12,2)", "Decimal(12, 3)", false},
		{"datetime", "DateTime64(6, 'UTC')", true}, {"datetime", "DateTime64(6)", true}, {"datetime", "DateTime64(3, 'UTC')", false},
		{"datetime?", "Nullable(DateTime64(6, 'UTC'))", true}, {"date", "Date", false}, {"bool", "UInt8", false}, {"text", "FixedString(3)", false},
	} {
		column := newColumn(parseColumn(t, "c", c.typ))
		err := column.Infer(proto.ColumnType(c.table))
		if (err == nil) != c.ok {
			t.Errorf("%s in a table that has %s: %v", c.typ, c.table, err)
		}
		if err != nil && !strings.Contains(err.Error(), c.table) {
			t.Errorf("the error does not name %s: %v", c.table, err)
		}
	}
}

// FuzzDecimal: every decimal that its column holds, against math/big.
func FuzzDecimal(f *testing.F) {
	f.Add(uint64(1), 12, 2)
	f.Add(uint64(2), 65, 30)
	f.Fuzz(func(t *testing.T, seed uint64, precision, scale int) {
		typ := event.Type{Kind: event.Decimal, Precision: precision, Scale: scale}
		if precision < 1 || precision > event.DecimalPrecisionMax || scale < 0 || scale > min(precision, event.DecimalScaleMax) {
			t.Skip()
		}
		text := randomDecimal(rand.New(rand.NewPCG(seed, 2)), typ)
		width := decimalBytes(precision)
		got := appendDecimal(nil, text, width)
		var want []byte
		for _, l := range limbs(unscaled(text)) {
			for i := range 8 {
				want = append(want, byte(l>>(8*i)))
			}
		}
		if !bytes.Equal(got, want[:width]) {
			t.Errorf("%s as decimal(%d,%d): %x, wanted %x", text, precision, scale, got, want[:width])
		}
	})
}
