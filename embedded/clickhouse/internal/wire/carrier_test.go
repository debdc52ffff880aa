package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/ClickHouse/ch-go/proto"
)

// ch-go encodes a block for any revision: at this one it is the twin of the engine's form.
const (
	engineRevision = 54453
	wireRevision   = 54460
)

// randomBlock returns a block in both forms.
func randomBlock(t testing.TB, random *rand.Rand, rows int) (engine, onWire []byte) {
	t.Helper()
	word := func() string {
		if random.IntN(50) == 0 {
			return strings.Repeat("x", random.IntN(5000))
		}
		return fmt.Sprint("w", random.IntN(1000))
	}
	ints, words := new(proto.ColInt64), new(proto.ColStr)
	low := new(proto.ColStr).LowCardinality()
	maybe := new(proto.ColStr).Nullable()
	array := new(proto.ColStr).Array()
	lowArray := proto.NewArray(new(proto.ColStr).LowCardinality())
	dictionary := proto.NewMap(new(proto.ColStr), proto.NewArray(new(proto.ColInt64)))
	for range rows {
		ints.Append(random.Int64())
		words.Append(word())
		low.Append(word())
		maybe.Append(proto.Nullable[string]{Set: random.IntN(2) == 0, Value: word()})
		var list []string
		for range random.IntN(4) {
			list = append(list, word())
		}
		array.Append(list)
		lowArray.Append(list)
		dictionary.Append(map[string][]int64{word(): {1, 2}})
	}
	tuple := proto.ColTuple{ints, words}
	var input proto.Input
	for i, data := range []proto.ColInput{ints, words, low, maybe, array, lowArray, dictionary, tuple} {
		if random.IntN(3) > 0 {
			input = append(input, proto.InputColumn{Name: fmt.Sprint("c", i), Data: data})
		}
	}
	if len(input) == 0 {
		input = append(input, proto.InputColumn{Name: "only", Data: ints})
	}
	var e, w proto.Buffer
	block := proto.Block{Columns: len(input), Rows: rows}
	if err := errors.Join(block.EncodeRawBlock(&e, engineRevision, input), block.EncodeRawBlock(&w, wireRevision, input)); err != nil {
		t.Fatal(err)
	}
	return e.Buf, w.Buf
}

// Both directions give the bytes of the other form, however the bytes arrive.
func TestCarrierAgreesWithChGo(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		rows := random.IntN(60)
		engine, onWire := randomBlock(t, random, rows)
		for _, dir := range []struct {
			name     string
			from, to []byte
			carry    func(*Carrier, *Source) ([]byte, Shape, error)
		}{
			{"from the wire", onWire, engine, func(c *Carrier, s *Source) ([]byte, Shape, error) { return c.FromWire(s, nil) }},
			{"from the engine", engine, onWire, func(c *Carrier, s *Source) ([]byte, Shape, error) { return c.FromEngine(s, nil) }},
		} {
			tail := []byte("tail")
			input := append(append([]byte(nil), dir.from...), tail...)
			for name, src := range map[string]*Source{
				"memory": MemorySource(input), "stream": NewSource(bytes.NewReader(input)),
				"single bytes": NewSource(iotest.OneByteReader(bytes.NewReader(input))),
				"halves":       NewSource(iotest.HalfReader(bytes.NewReader(input))),
			} {
				var c Carrier
				out, shape, err := dir.carry(&c, src)
				if err != nil || shape.Rows != rows || !bytes.Equal(out, dir.to) {
					t.Fatalf("%s, %s: %d of %d rows, equal %v, %v", dir.name, name, shape.Rows, rows, bytes.Equal(out, dir.to), err)
				}
				if left, err := io.ReadAll(src); err != nil || !bytes.Equal(left, tail) {
					t.Fatalf("%s, %s: %q was left, %v", dir.name, name, left, err)
				}
			}
		}
	}
}

// With Flush, the parts together are the block, and each is small.
func TestCarrierFlushes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	engine, onWire := randomBlock(t, random, 60_000)
	var got []byte
	parts, largest := 0, 0
	c := Carrier{Flush: func(part []byte) error {
		got = append(got, part...)
		parts++
		largest = max(largest, len(part))
		return nil
	}}
	rest, _, err := c.FromWire(NewSource(bytes.NewReader(onWire)), nil)
	if err != nil || !bytes.Equal(append(got, rest...), engine) {
		t.Fatalf("the parts are not the block: %v", err)
	}
	if parts < 2 || largest > 3*flushBytes {
		t.Errorf("%d parts, the largest of %d bytes", parts, largest)
	}
	stop := errors.New("stop")
	c.Flush = func([]byte) error { return stop }
	if _, _, err := c.FromWire(NewSource(bytes.NewReader(onWire)), nil); !errors.Is(err, stop) {
		t.Errorf("Flush's error: %v", err)
	}
}

// Cut off at any byte, a block is an error.
func TestTruncatedBlocksFail(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 0))
	engine, onWire := randomBlock(t, random, 7)
	for cut := range onWire {
		var c Carrier
		if _, _, err := c.FromWire(NewSource(bytes.NewReader(onWire[:cut])), nil); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("wire, %d of %d bytes: %v", cut, len(onWire), err)
		}
	}
	for cut := range engine {
		var c Carrier
		if _, _, err := c.FromEngine(MemorySource(engine[:cut]), nil); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("engine, %d of %d bytes: %v", cut, len(engine), err)
		}
	}
}

func TestLyingCountsAreNotBelieved(t *testing.T) {
	huge := "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
	for name, block := range map[string]string{
		"columns":           huge + "\x01",
		"rows":              "\x01" + huge,
		"rows only":         "\x00\x05",
		"rows without data": "\x01\xff\xff\xff\xff\x07\x01a\x05Int64\x00",
		"name":              "\x01\x01" + huge,
		"type":              "\x01\x01\x01a" + huge,
		"string":            "\x01\x01\x01a\x06String\x00" + huge,
		"fixed string":      "\x01\xff\xff\xff\xff\x07\x01a\x15FixedString(16777215)\x00",
		"array end":         "\x01\x01\x01a\x0cArray(Int64)\x00" + strings.Repeat("\xff", 8),
		"array backwards":   "\x01\x02\x01a\x0cArray(Int64)\x00\x05\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00",
		"dictionary":        "\x01\x01\x01a\x16LowCardinality(String)\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00" + strings.Repeat("\xff", 8),
		"dictionary flags":  "\x01\x01\x01a\x16LowCardinality(String)\x00\x01\x00\x00\x00\x00\x00\x00\x00\x09\x02\x00\x00\x00\x00\x00\x00",
		"no indexes":        "\x01\x01\x01a\x16LowCardinality(String)\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" + strings.Repeat("\x00", 8),
		"custom":            "\x01\x01\x01a\x05Int64\x01",
		"long number":       strings.Repeat("\xff", 11),
	} {
		var c Carrier
		_, _, err := c.FromWire(NewSource(strings.NewReader(block)), nil)
		if !errors.Is(err, ErrFormat) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %v", name, err)
		}
		if cap(c.out) > 1<<16 {
			t.Errorf("%s: %d bytes were taken for %d that arrived", name, cap(c.out), len(block))
		}
	}
}

func TestTypes(t *testing.T) {
	for text, want := range map[string]string{
		"Int64": "8", "DateTime": "4", "DateTime('UTC')": "4", "DateTime64(6, 'UTC')": "8", "Decimal(9, 2)": "4", "Decimal(10, 2)": "8",
		"Decimal(18, 0)": "8", "Decimal(19, 0)": "16", "Decimal(38,10)": "16", "Decimal(39,10)": "32", "Decimal(76, 1)": "32", "Decimal128(3)": "16",
		"FixedString(7)": "7", "Enum8('a' = 1, 'b,)' = 2)": "1", "Enum16('it\\'s' = 1)": "2", "IntervalDay": "8", "String": "s",
		"Nullable(String)": "n(s)", "LowCardinality(Nullable(String))": "l(s)", "Array(Array(Int8))": "a(a(1))",
		"Map(String, Array(UInt16))": "a(t(s,a(2)))", "Tuple(Int8, String)": "t(1,s)", "Tuple(a Int8, `b c,(` Nullable(Int16))": "t(1,n(2))",
		"Tuple(d Decimal(10, 2), e Enum8('x y' = 1))": "t(8,1)", "Nested(a Int8, b String)": "a(t(1,s))", "Point": "t(8,8)", "Polygon": "a(a(t(8,8)))",
		"SimpleAggregateFunction(sum, UInt64)": "8", "Nullable(Nothing)": "n(1)", "UUID": "16", "Bool": "1",
	} {
		n, err := parseType(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := describe(n); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{
		"", "Int65", "JSON", "Dynamic", "Variant(Int8, String)", "AggregateFunction(sum, Int8)", "Array", "Array()", "Array(Int8", "Array(Int8))",
		"Nullable(Int8, Int8)", "FixedString", "FixedString(0)", "FixedString(99999999)", "Decimal", "Decimal(77, 1)", "Decimal(x)", "Map(String)",
		"Tuple()", "Tuple", "Enum8('a", strings.Repeat("Array(", 100) + "Int8" + strings.Repeat(")", 100), "SimpleAggregateFunction(Int8)",
	} {
		if _, err := parseType(text); !errors.Is(err, ErrType) {
			t.Errorf("%q: %v, want ErrType", text, err)
		}
	}
}

func describe(n *node) string {
	var inner []string
	for _, i := range n.inner {
		inner = append(inner, describe(i))
	}
	list := "(" + strings.Join(inner, ",") + ")"
	switch n.shape {
	case shapeFixed:
		return fmt.Sprint(n.size)
	case shapeString:
		return "s"
	case shapeNullable:
		return "n" + list
	case shapeLowCardinality:
		return "l" + list
	case shapeArray:
		return "a" + list
	default:
		return "t" + list
	}
}

// Whatever the bytes, there is no panic; and what is carried from the wire goes back to the same bytes.
func FuzzFromWire(f *testing.F) {
	random := rand.New(rand.NewPCG(3, 0))
	for rows := range 4 {
		_, onWire := randomBlock(f, random, rows)
		f.Add(onWire)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		src := MemorySource(data)
		var c Carrier
		engine, shape, err := c.FromWire(src, nil)
		if err != nil || shape.Columns == 0 {
			return
		}
		used := data[:len(data)-len(src.window)]
		back, _, err := c.FromEngine(MemorySource(engine), nil)
		if err != nil || len(back) > len(used) {
			t.Fatalf("%d bytes went back to %d, %v", len(used), len(back), err)
		}
		again, _, err := c.FromWire(MemorySource(back), nil)
		if err != nil || !bytes.Equal(again, engine) {
			t.Fatalf("carried twice it differs: %v", err)
		}
	})
}

func BenchmarkFromWire(b *testing.B) {
	_, onWire := randomBlock(b, rand.New(rand.NewPCG(4, 0)), 10_000)
	b.SetBytes(int64(len(onWire)))
	b.ReportAllocs()
	var c Carrier
	var out []byte
	for b.Loop() {
		var err error
		if out, _, err = c.FromWire(MemorySource(onWire), out[:0]); err != nil {
			b.Fatal(err)
		}
	}
}
