package doris

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/partitioner"
)

// seeded returns a random source whose seed is in the log.
func seeded(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

func randomText(r *rand.Rand, n int) []byte {
	var b []byte
	for range n {
		switch r.IntN(6) {
		case 0:
			b = append(b, `"\`[r.IntN(2)])
		case 1:
			b = append(b, byte(r.IntN(32)))
		case 2:
			b = utf8.AppendRune(b, rune(r.IntN(0xD800)))
		case 3:
			b = append(b, "\\N\x01\x02\x7f\u2028"...)
		default:
			b = append(b, byte('a'+r.IntN(26)))
		}
	}
	return b
}

// P12: a text is read back as it was, whatever it holds, against encoding/json; and it is one line.
func TestP12_DorisEscapesExactly(t *testing.T) {
	r := seeded(t)
	for range 20_000 {
		text := randomText(r, r.IntN(40))
		line := append(appendEscaped([]byte{'"'}, text), '"')
		var got string
		if err := json.Unmarshal(line, &got); err != nil || got != string(text) {
			t.Fatalf("%q became %s, read as %q: %v", text, line, got, err)
		}
		if bytes.ContainsAny(line, "\n\r\x00") {
			t.Fatalf("%q is not one line", line)
		}
	}
}

// plainBytes against a loop, for each place of each byte.
func TestPlainBytes(t *testing.T) {
	r := seeded(t)
	for range 200_000 {
		var b [8]byte
		for i := range b {
			if b[i] = byte(r.IntN(256)); r.IntN(3) > 0 {
				b[i] = byte('!' + r.IntN(90))
			}
		}
		want := 0
		for want < 8 && b[want] >= ' ' && b[want] != '"' && b[want] != '\\' {
			want++
		}
		w := uint64(0)
		for i := range b {
			w |= uint64(b[i]) << (8 * i)
		}
		if got := plainBytes(w); got != want {
			t.Fatalf("%q: %d, wanted %d", b, got, want)
		}
	}
}

// The twin: encoding/json over a map of plain values.
func twinRow(t *event.Table, row *event.Row, ver int64) map[string]any {
	m := map[string]any{"_ver": json.Number(fmt.Sprint(ver)), "_deleted": json.Number(fmt.Sprint(ver & 1))}
	if t.Month != event.None {
		m["_month"] = fmt.Sprintf("%04d-%02d-01", int(row.Month)/100, int(row.Month)%100)
	}
	for i, c := range t.Columns {
		v := row.Values[i]
		if v.Null && c.Nullable {
			m[c.Name] = nil
			continue
		}
		switch c.Type.Kind {
		case event.Bool, event.Int32, event.Int64:
			m[c.Name] = json.Number(fmt.Sprint(v.Int))
		case event.Uint64:
			m[c.Name] = fmt.Sprint(v.Uint)
		case event.Float64:
			m[c.Name] = v.Float
		case event.Decimal:
			if m[c.Name] = string(v.Bytes); v.Null {
				m[c.Name] = "0"
			}
		case event.Date:
			m[c.Name] = string(event.AppendDate(nil, v.Int))
		case event.Datetime:
			m[c.Name] = strings.NewReplacer("T", " ", "Z", "").Replace(string(event.AppendDatetime(nil, v.Int)))
		case event.Bytes:
			m[c.Name] = base64.StdEncoding.EncodeToString(v.Bytes)
		default:
			m[c.Name] = string(v.Bytes)
		}
	}
	return m
}

// P12: rows of every table against the twin, upserts and deletes, and no number loses a digit.
func TestP12_DorisRowsAgainstTheTwin(t *testing.T) {
	r := seeded(t)
	for _, table := range testSink(t).tables {
		for range 500 {
			row := event.Row{Values: make([]event.Value, len(table.Columns)), Month: partitioner.Month(202601 + r.IntN(12))}
			deleted := r.IntN(4) == 0
			for i, c := range table.Columns {
				v := &row.Values[i]
				if v.Null = deleted || c.Nullable && r.IntN(3) == 0; v.Null {
					continue
				}
				switch c.Type.Kind {
				case event.Bool:
					v.Int = int64(r.IntN(2))
				case event.Int32:
					v.Int = int64(int32(r.Uint32()))
				case event.Int64:
					v.Int = int64(r.Uint64())
				case event.Uint64:
					v.Uint = r.Uint64()
				case event.Float64:
					for v.Float = math.NaN(); math.IsNaN(v.Float) || math.IsInf(v.Float, 0); {
						v.Float = math.Float64frombits(r.Uint64())
					}
				case event.Decimal:
					v.Bytes = []byte("-1234567890.25")
				case event.Date:
					v.Int = r.Int64N(3_000_000) - 700_000
					v.Int = min(v.Int, 2_932_896)
				case event.Datetime:
					v.Int = (r.Int64N(3_000_000)-700_000)*86400_000_000/2 + r.Int64N(86400_000_000)
				case event.Bytes:
					v.Bytes = randomText(r, r.IntN(9))
				case event.JSON:
					v.Bytes = []byte(`{"a":[1,"\"x"]}`)
				default:
					v.Bytes = randomText(r, r.IntN(30))
				}
			}
			ver := r.Int64N(1<<62)*2 + int64(r.IntN(2))
			line := table.encoder.append(nil, &row, ver)
			if n := bytes.IndexByte(line, '\n'); n != len(line)-1 {
				t.Fatalf("a line break at %d of %d: %s", n, len(line), line)
			}
			want, err := json.Marshal(twinRow(table.Table, &row, ver))
			if err != nil {
				t.Fatal(err)
			}
			if got := canonical(t, line); got != canonical(t, want) {
				t.Fatalf("%s\nis not\n%s", line, want)
			}
		}
	}
}

// canonical is JSON with its keys sorted, its numbers as written and its floats as floats.
func canonical(t testing.TB, text []byte) string {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	m := map[string]any{}
	if err := d.Decode(&m); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	for k, v := range m {
		if n, ok := v.(json.Number); ok && strings.ContainsAny(n.String(), ".eE") {
			f, err := n.Float64()
			if err != nil {
				t.Fatal(err)
			}
			m[k] = fmt.Sprintf("float %x", math.Float64bits(f))
		} else if ok && k == "weight" {
			f, _ := n.Float64()
			m[k] = fmt.Sprintf("float %x", math.Float64bits(f))
		}
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// benchRows are rows as those of the flights data.
func benchRows(s *Sink) (t *table, rows []event.Row) {
	t = s.tables[0]
	for i := range 1000 {
		delay := event.Value{Int: int64(i % 90)}
		if i%7 == 0 {
			delay = event.Value{Null: true}
		}
		rows = append(rows, event.Row{Month: 202611, Values: []event.Value{
			{Bytes: []byte("UA")}, {Uint: uint64(7_250_000_000 + i)}, {Int: november.UnixMicro() + int64(i)*60_000_000}, {Bytes: []byte("JFK")},
			{Int: int64(i % 2)}, delay, {Bytes: []byte("1234.50")}}})
	}
	return t, rows
}

// measure also counts by the processor's time, so that a busy machine does not look slow.
func measure(b *testing.B, bytes int64, f func()) {
	b.SetBytes(bytes)
	b.ReportAllocs()
	cpu := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	from := cpu()
	for b.Loop() {
		f()
	}
	b.ReportMetric(float64(bytes)*float64(b.N)/1e6/(cpu()-from).Seconds(), "MB/cpu-s")
}

func BenchmarkEncode(b *testing.B) {
	t, rows := benchRows(testSink(b))
	var buf []byte
	encode := func() {
		buf = buf[:0]
		for i := range rows {
			buf = t.encoder.append(buf, &rows[i], 84)
		}
	}
	encode()
	measure(b, int64(len(buf)), encode)
}

// BenchmarkEncodeCSV is what was not taken: the same rows with \x01 between columns and \x02 between lines, and a scan
// of each text for what it cannot hold. It is faster and shorter, and has no form for such a text, or for one that is \N.
func BenchmarkEncodeCSV(b *testing.B) {
	t, rows := benchRows(testSink(b))
	var buf []byte
	encode := func() {
		buf = buf[:0]
		for i := range rows {
			for c := range t.encoder.columns {
				v := &rows[i].Values[c]
				if v.Null {
					buf = append(buf, `\N`...)
				} else if k := t.encoder.columns[c].kind; k == event.String || k == event.Decimal {
					if bytes.IndexByte(v.Bytes, 1) >= 0 || bytes.IndexByte(v.Bytes, 2) >= 0 || string(v.Bytes) == `\N` {
						b.Fatal("no form")
					}
					buf = append(buf, v.Bytes...)
				} else if k == event.Datetime {
					buf = event.AppendDatetimeText(buf, v.Int, ' ')
				} else {
					buf = strconv.AppendInt(buf, v.Int+int64(v.Uint), 10)
				}
				buf = append(buf, 1)
			}
			buf = append(buf, "2026-11-01\x0184\x010\x02"...)
		}
	}
	encode()
	measure(b, int64(len(buf)), encode)
}

// Long texts, as documents and notes are.
func BenchmarkEscape(b *testing.B) {
	text := []byte(strings.Repeat(`He said "no" and went on, for quite a while. `, 100))
	buf := appendEscaped(nil, text)
	measure(b, int64(len(text)), func() { buf = appendEscaped(buf[:0], text) })
}
