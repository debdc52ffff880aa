package clickhouse

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/ch-go/compress"
	"github.com/ClickHouse/ch-go/proto"

	"github.com/slotline/slotline/embedded/clickhouse/internal/wire"
)

// rawClient speaks the protocol by hand, so that it can carry types that ch-go does not know, and break rules.
type rawClient struct {
	conn net.Conn
	src  *wire.Source
}

func rawDial(t *testing.T, addr string) *rawClient {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	return &rawClient{conn: conn, src: wire.NewSource(conn)}
}

func helloBytes(database string) []byte {
	var b proto.Buffer
	proto.ClientHello{Name: "raw", Major: 1, ProtocolVersion: 54460, Database: database, User: "default"}.Encode(&b)
	return b.Buf
}

// queryBytes is a query with the empty block that ends its external data.
func queryBytes(sql string) []byte {
	var b proto.Buffer
	proto.Query{ID: "q", Body: sql, Info: proto.ClientInfo{
		Interface: proto.InterfaceTCP, Query: proto.ClientQueryInitial, ProtocolVersion: 54460,
	}}.EncodeAware(&b, 54460)
	return append(b.Buf, dataBytes([]byte{0, 0})...)
}

// dataBytes is a Data packet of a block's bytes, without its info.
func dataBytes(block []byte) []byte {
	var b proto.Buffer
	proto.ClientCodeData.Encode(&b)
	b.PutString("")
	proto.BlockInfo{BucketNum: -1}.Encode(&b)
	return append(b.Buf, block...)
}

func (r *rawClient) send(t *testing.T, b []byte) {
	t.Helper()
	if _, err := r.conn.Write(b); err != nil {
		t.Fatal(err)
	}
}

// hello shakes hands.
func (r *rawClient) hello(t *testing.T, database string) {
	t.Helper()
	r.send(t, append(helloBytes(database), 0)) // and an empty quota key
	code, err := r.src.UVarInt()
	if err != nil || proto.ServerCode(code) != proto.ServerCodeHello {
		t.Fatalf("the answer to hello is packet %d, %v", code, err)
	}
	r.strings(t, 1)
	r.numbers(t, 3)
	r.strings(t, 2)
	r.numbers(t, 1)
}

func (r *rawClient) strings(t *testing.T, n int) {
	t.Helper()
	for range n {
		if _, err := r.src.String("text", 1<<20); err != nil {
			t.Fatal(err)
		}
	}
}

func (r *rawClient) numbers(t *testing.T, n int) {
	t.Helper()
	for range n {
		if _, err := r.src.UVarInt(); err != nil {
			t.Fatal(err)
		}
	}
}

// errEnded is the end of a statement's answer.
var errEnded = errors.New("end of stream")

// next reads packets up to the next data block, whose bytes it returns in wire form; errEnded at the end, a
// *ch.Exception for one.
func (r *rawClient) next() (block []byte, shape wire.Shape, err error) {
	for {
		code, err := r.src.UVarInt()
		if err != nil {
			return nil, shape, err
		}
		var skip int
		switch proto.ServerCode(code) {
		case proto.ServerCodeData, proto.ServerProfileEvents:
			if _, err := r.src.String("table", 1<<10); err != nil {
				return nil, shape, err
			}
			var info [9]byte
			if err := r.src.Fixed(info[:8]); err != nil {
				return nil, shape, err
			}
			var c wire.Carrier
			engine, shape, err := c.FromWire(r.src, nil)
			if err != nil {
				return nil, shape, err
			}
			if proto.ServerCode(code) == proto.ServerProfileEvents {
				continue
			}
			block, _, err := c.FromEngine(wire.MemorySource(engine), nil)
			return block, shape, err
		case proto.ServerCodeException:
			var e struct{ code, name, message string }
			var number [4]byte
			if err := r.src.Fixed(number[:]); err != nil {
				return nil, shape, err
			}
			for _, s := range []*string{&e.name, &e.message, &e.code} {
				if *s, err = r.src.String("text", 1<<20); err != nil {
					return nil, shape, err
				}
			}
			if _, err := r.src.Byte(); err != nil {
				return nil, shape, err
			}
			code := int(number[0]) | int(number[1])<<8 | int(number[2])<<16 | int(number[3])<<24
			return nil, shape, &ch.Exception{Code: proto.Error(code), Name: e.name, Message: e.message}
		case proto.ServerCodeProfile:
			skip = 6
		case proto.ServerCodeProgress:
			skip = 6
		case proto.ServerCodeEndOfStream:
			return nil, shape, errEnded
		default:
			return nil, shape, fmt.Errorf("packet %d", code)
		}
		for range skip {
			if _, err := r.src.UVarInt(); err != nil {
				return nil, shape, err
			}
		}
	}
}

// Types that slotline does not write but a person may ask for come through in both directions.
func TestOtherTypesRoundTrip(t *testing.T) {
	c := database(t, "dev_other_types")(t, ch.Options{Compression: ch.CompressionLZ4})
	for _, expression := range []string{
		"[number, 2, 3]", "[]::Array(String)", "arrayMap(x -> toString(x), range(number % 5))", "[[toLowCardinality(toString(number % 9))], []]",
		"map('a', number, 'b', 2)", "mapFromArrays(arrayMap(x -> toString(x), range(number % 4)), range(number % 4))", "(number, 'a')",
		"(number, 'a')::Tuple(x UInt64, `y z` String)", "toFixedString(toString(number % 9), 4)", "generateUUIDv4(number)",
		"toIPv4(number)", "toIPv6('::1')", "'b,c\\'d'::Enum8('a' = 1, 'b,c\\'d' = 2)", "toInt256(-number)", "toUInt128(number)",
		"toIntervalDay(number)", "toDateTime(number, 'UTC')", "toLowCardinality(toNullable(if(number % 3 = 0, NULL, toString(number))))",
		"[(number, if(number % 2 = 0, NULL, 'x'))]", "toDecimal256(number, 10)", "toFloat32(number)", "(number, 2.)::Point",
		"toLowCardinality(toString(number))", "[((number, 'a'), [map('x', toLowCardinality('y'))])]", "toDate32('2299-12-31')",
		"CAST([(1, 'a')], 'Nested(a UInt8, b String)')", "repeat('x', number % 3 * 40000)", "CAST(number, 'SimpleAggregateFunction(sum, UInt64)')",
	} {
		run(t, c, "DROP TABLE IF EXISTS made")
		run(t, c, "DROP TABLE IF EXISTS copied")
		run(t, c, "CREATE TABLE made ENGINE = MergeTree ORDER BY tuple() AS SELECT "+expression+" AS v FROM numbers(3000)")
		run(t, c, "CREATE TABLE copied AS made")

		r := rawDial(t, sharedAddr(t))
		r.hello(t, "dev_other_types")
		r.send(t, queryBytes("SELECT v FROM made"))
		var blocks [][]byte
		for {
			block, shape, err := r.next()
			if errors.Is(err, errEnded) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", expression, err)
			}
			if shape.Rows > 0 {
				blocks = append(blocks, block)
			}
		}
		r.send(t, queryBytes("INSERT INTO copied (v) VALUES"))
		if _, _, err := r.next(); err != nil { // the columns
			t.Fatalf("%s: %v", expression, err)
		}
		for _, block := range blocks {
			r.send(t, dataBytes(block))
		}
		r.send(t, dataBytes([]byte{0, 0}))
		if _, _, err := r.next(); !errors.Is(err, errEnded) {
			t.Fatalf("%s: %v", expression, err)
		}
		digest := func(table string) string {
			return text(t, c, "SELECT concat(toString(count()), ' ', toString(sum(cityHash64(formatRow('TSV', v))))) AS answer FROM "+table)
		}
		if made, copied := digest("made"), digest("copied"); made != copied || !strings.HasPrefix(made, "3000 ") {
			t.Errorf("%s: made %s, copied %s", expression, made, copied)
		}
	}
}

// What cannot be carried is refused with a reason, and the connection goes on.
func TestTypesThatAreRefused(t *testing.T) {
	r := rawDial(t, sharedAddr(t))
	r.hello(t, "")
	for _, sql := range []string{"SELECT '{\"a\":1}'::JSON AS v", "SELECT sumState(number) AS v FROM numbers(10)", "SELECT 1::Dynamic AS v"} {
		r.send(t, queryBytes(sql))
		_, _, err := r.next()
		var e *ch.Exception
		if !errors.As(err, &e) || e.Code != proto.ErrNotImplemented || !strings.Contains(e.Message, "not supported") {
			t.Errorf("%s: %v", sql, err)
		}
	}
	r.send(t, queryBytes("SELECT 1 AS v"))
	if _, _, err := r.next(); err != nil {
		t.Error(err)
	}
}

// Packets that make no sense, cut off at any byte, or followed by silence: the client is told or dropped, and the
// others do not notice.
func TestBadPackets(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	addr := sharedAddr(t)
	witness := connect(t, ch.Options{Address: addr})
	run(t, witness, "CREATE OR REPLACE TABLE default.bad_packets (a Int64, s String) ENGINE = MergeTree ORDER BY a")
	defer run(t, witness, "DROP TABLE default.bad_packets")
	var block proto.Buffer
	input := proto.Input{{Name: "a", Data: proto.ColInt64{1, 2}}, {Name: "s", Data: strs("x", "yy")}}
	if err := (proto.Block{Columns: 2, Rows: 2}).EncodeRawBlock(&block, 54460, input); err != nil {
		t.Fatal(err)
	}
	whole := append(append(append(append(helloBytes("default"), 0),
		queryBytes("INSERT INTO bad_packets (a, s) VALUES")...), dataBytes(block.Buf)...), dataBytes([]byte{0, 0})...)
	before := number(t, witness, "SELECT count() AS answer FROM default.bad_packets")
	for cut := range len(whole) - 1 {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(whole[:cut]); err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
	huge := bytes.Repeat([]byte{0xff}, 9)
	huge = append(huge, 1)
	query := queryBytes("SELECT 1")
	for name, sent := range map[string][]byte{
		"http":              []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"zeros":             make([]byte, 4096),
		"ones":              bytes.Repeat([]byte{0xff}, 4096),
		"huge client name":  append([]byte{0}, huge...),
		"huge query id":     append(append(helloBytes(""), 0, 1), huge...),
		"unknown packet":    append(helloBytes(""), 0, 77),
		"data first":        append(append(helloBytes(""), 0), dataBytes([]byte{0, 0})...),
		"old client":        oldHello(),
		"query cut short":   append(append(helloBytes(""), 0), query[:len(query)-14]...),
		"huge block":        append(append(append(helloBytes(""), 0), queryBytes("INSERT INTO default.bad_packets (a) VALUES")...), dataBytes(append([]byte{1}, huge...))...),
		"many rows no data": append(append(append(helloBytes(""), 0), queryBytes("INSERT INTO default.bad_packets (a) VALUES")...), dataBytes([]byte("\x01\xff\xff\xff\xff\x07\x01a\x05Int64\x00"))...),
		"huge string": append(append(append(helloBytes(""), 0), queryBytes("INSERT INTO default.bad_packets (s) VALUES")...),
			dataBytes(append([]byte("\x01\x01\x01s\x06String\x00"), huge...))...),
		"bad frame": append(append(append(helloBytes(""), 0), compressedQuery("INSERT INTO default.bad_packets (s) VALUES")...), bytes.Repeat([]byte{1}, 100)...),
	} {
		r := rawDial(t, addr)
		if _, err := r.conn.Write(sent); err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("%s: %v", name, err)
		}
		_ = r.conn.(*net.TCPConn).CloseWrite()
		if _, err := io.Copy(io.Discard, r.conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: the connection was not closed: %v", name, err)
		}
	}
	if after := number(t, witness, "SELECT count() AS answer FROM default.bad_packets"); after != before {
		t.Errorf("%d rows came of unfinished inserts", after-before)
	}
	if err := witness.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func strs(values ...string) proto.ColStr {
	var s proto.ColStr
	s.AppendArr(values)
	return s
}

func oldHello() []byte {
	var b proto.Buffer
	proto.ClientHello{Name: "old", Major: 1, ProtocolVersion: 54412}.Encode(&b)
	return b.Buf
}

func compressedQuery(sql string) []byte {
	var b proto.Buffer
	proto.Query{ID: "q", Body: sql, Compression: proto.CompressionEnabled, Info: proto.ClientInfo{
		Interface: proto.InterfaceTCP, Query: proto.ClientQueryInitial,
	}}.EncodeAware(&b, 54460)
	proto.ClientCodeData.Encode(&b)
	b.PutString("")
	var block proto.Buffer
	proto.BlockInfo{BucketNum: -1}.Encode(&block)
	w := compress.NewWriter(compress.LevelZero, compress.LZ4)
	if err := w.Compress(append(block.Buf, 0, 0)); err != nil {
		panic(err)
	}
	b.Buf = append(b.Buf, w.Data...)
	proto.ClientCodeData.Encode(&b)
	b.PutString("")
	return b.Buf
}

// A SELECT whose client says nothing and reads nothing does not hold the others, and ends when that client does.
func TestClientThatDoesNotRead(t *testing.T) {
	addr := sharedAddr(t)
	r := rawDial(t, addr)
	r.hello(t, "")
	r.send(t, queryBytes("SELECT number, 'does not read' FROM numbers(1000000000)"))
	witness := connect(t, ch.Options{Address: addr})
	running := func() uint64 {
		return number(t, witness, "SELECT count() AS answer FROM system.processes WHERE query LIKE '%does not read%' AND query NOT LIKE '%processes%'")
	}
	eventually(t, "the statement runs", func() bool { return running() == 1 })
	_ = r.conn.Close()
	eventually(t, "the statement ends", func() bool { return running() == 0 })
}

// eventually waits for a state of the server, asking again and again.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if holds() {
			return
		}
		if time.Since(began) > 20*time.Second {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}
