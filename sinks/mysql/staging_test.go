package mysql

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/go-sql-driver/mysql"

	"github.com/slotline/slotline/event"
)

// readLine is what a server makes of a line of LOAD DATA; nil is NULL.
func readLine(line string) (values [][]byte, err error) {
	value := []byte{}
	null := false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; c {
		case '\\':
			if i++; i == len(line) {
				return nil, errors.New("the line ends in an escape")
			}
			switch line[i] {
			case 'N':
				null = len(value) == 0 && (line[i+1] == '\t' || line[i+1] == '\n')
			case 'n':
				value = append(value, '\n')
			case 't':
				value = append(value, '\t')
			default:
				value = append(value, line[i])
			}
		case '\t', '\n':
			if null {
				value = nil
			}
			values = append(values, value)
			value, null = []byte{}, false
			if c == '\n' {
				if i+1 != len(line) {
					return nil, errors.New("the line ends early")
				}
				return values, nil
			}
		default:
			value = append(value, c)
		}
	}
	return nil, errors.New("line without end")
}

func stagingTable(text event.Kind) *event.Table {
	return &event.Table{Name: "t", Tenant: 0, ID: 0, Month: event.None, Columns: []event.Column{
		{Name: "a", Type: event.Type{Kind: text, Length: 10}}, {Name: "n", Type: event.Type{Kind: event.Int64}, Nullable: true},
		{Name: "b", Type: event.Type{Kind: event.Bytes, Length: 10}}, {Name: "z", Type: event.Type{Kind: text, Length: 10}, Nullable: true}}}
}

// P12: a line of LOAD DATA holds what the tuple holds, whatever bytes that are.
func FuzzStagingLine(f *testing.F) {
	for _, s := range []string{"", "a", "'", "''", "'',''", `\N`, "\\", "a\tb\nc", "NULL", "N", "x'00'", "\x00\x1a\r", "é'日本\\", ",1)", "_utf8mb4 x'00'"} {
		f.Add(s, []byte(s), int64(1), false)
		f.Add(s, []byte{0xff, '\\', '\t'}, int64(-9), true)
	}
	table := stagingTable(event.String)
	f.Fuzz(func(t *testing.T, s string, b []byte, ver int64, null bool) {
		s = strings.ToValidUTF8(s, "")
		row := event.Row{Values: []event.Value{{Bytes: []byte(s)}, {Int: ver, Null: null}, {Bytes: b}, {Bytes: []byte(s), Null: null}}}
		tuple := appendTuple(nil, table, make([]string, 4), &row, ver)
		line := string(appendLine([]byte("before"), tuple)[len("before"):])
		got, err := readLine(line)
		if err != nil || len(got) != 5 {
			t.Fatalf("%s became %q: %d values, %v", tuple, line, len(got), err)
		}
		number := appendInt(nil, ver)
		want := [][]byte{[]byte(s), number, b, []byte(s), number}
		if null {
			want[1], want[3] = nil, nil
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) || (got[i] == nil) != (null && (i == 1 || i == 3)) {
				t.Errorf("%s became %q: value %d is %q, wanted %q", tuple, line, i, got[i], want[i])
			}
		}
	})
}

// However the driver asks, it gets every line once, in order, and full packets but for the last.
func TestStagingLinesAreReadWhole(t *testing.T) {
	random := seeded(t)
	for range 200 {
		r, want := randomLines(random)
		packet := 1 + random.IntN(300)
		var got []byte
		read := &lines{rows: r, entries: r.entries}
		for p := make([]byte, packet); ; {
			n, err := read.Read(p)
			if err == io.EOF {
				break
			}
			got = append(got, p[:n]...)
			if n < packet && len(got) < len(want) {
				t.Fatalf("a packet of %d, %d would fit, %d of %d bytes read", n, packet, len(got), len(want))
			}
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%q, wanted %q", got, want)
		}
		if err := iotest.TestReader(&lines{rows: r, entries: r.entries}, want); err != nil {
			t.Fatal(err)
		}
	}
}

func randomLines(random *rand.Rand) (*rows, []byte) {
	r := &rows{}
	var all []byte
	table := stagingTable(event.String)
	for i := range random.IntN(50) {
		text := event.Value{Bytes: []byte(strings.Repeat("it's\n", random.IntN(60)))}
		from := len(r.arena)
		r.arena = appendTuple(r.arena, table, make([]string, 4), &event.Row{Values: []event.Value{text, {Int: 1}, text, text}}, int64(i))
		r.add(0, span{}, r.since(from), 1, i)
		all = appendLine(all, r.bytes(r.entries[i].tuple))
	}
	return r, all
}

// Whole tables are staged, in order, and only those that are large enough.
func TestStagingTakesLargeTables(t *testing.T) {
	random := seeded(t)
	for range 300 {
		var entries []entry
		counts := map[place]int{}
		for p := range place(5) {
			counts[p] = random.IntN(8)
			for range counts[p] {
				entries = append(entries, entry{place: p})
			}
		}
		rowsMin := 1 + random.IntN(8)
		for _, list := range toStage(entries, rowsMin) {
			p := list[0].place
			if len(list) != counts[p] || len(list) < rowsMin {
				t.Fatalf("%d of %d rows of a table, from %d on", len(list), counts[p], rowsMin)
			}
			delete(counts, p)
		}
		for p, n := range counts {
			if n >= rowsMin {
				t.Fatalf("table %d with %d rows is not staged, from %d on", p, n, rowsMin)
			}
		}
	}
}

func TestStagingGolden(t *testing.T) {
	s := testSink(t)
	var b strings.Builder
	for i, table := range s.tables {
		q := newStagingSQL(table.Table, 202611, dialect{RowAlias: true}, i, 5000, "slotline_7")
		b.WriteString(q.create + ";\n" + q.load + ";\nSTART TRANSACTION;\n-- progress\n" + q.insert + ";\nCOMMIT" + dropSQL([]staged{{stagingSQL: q}}) + ";\n\n")
	}
	golden(t, "staging.mysql.sql", b.String())
}

// What MEMORY cannot hold, or would refuse, goes into InnoDB.
func TestStagingEngine(t *testing.T) {
	wide := stagingTable(event.String)
	wide.Columns[0].Type.Length = 1000
	for _, c := range []struct {
		table *event.Table
		rows  int
		want  string
	}{{stagingTable(event.String), 10_000, "MEMORY"}, {stagingTable(event.String), 100_000, "InnoDB"}, {wide, 1000, "MEMORY"},
		{wide, 10_000, "InnoDB"}, {stagingTable(event.Text), 1, "InnoDB"}, {stagingTable(event.JSON), 1, "InnoDB"}} {
		if q := newStagingSQL(c.table, 0, dialect{RowAlias: true}, 0, c.rows, "r"); !strings.Contains(q.create, "ENGINE="+c.want+" ") {
			t.Errorf("%d rows, wanted %s: %s", c.rows, c.want, q.create)
		}
	}
}

// After a refusal a shard's batches go as text for a while, and the log says so once; bad data of one batch changes
// nothing for the next.
func TestStagingRestsAfterARefusal(t *testing.T) {
	s := testSink(t)
	o, _ := benchBatch(t, s, 1)
	e := &engine{dialect: dialect{RowAlias: true}}
	fresh := func() *task { return &task{owned: o, shard: s.shards["s1"], entries: make([]entry, stagingRowsMin)} }
	if len(fresh().stages(e)) != 1 {
		t.Fatal("not staged")
	}
	for _, e := range []*engine{{}, {dialect: dialect{RowAlias: true, MariaDB: true}}} {
		if len(fresh().stages(e)) != 0 {
			t.Errorf("staged with %+v", e)
		}
	}
	task := fresh()
	task.fellBack(t.Context(), &mysql.MySQLError{Number: 1406})
	if len(task.stages(e)) != 0 || len(fresh().stages(e)) != 1 {
		t.Error("after bad data the batch goes as text, the next does not")
	}
	task = fresh()
	task.fellBack(t.Context(), &mysql.MySQLError{Number: 3948})
	if len(fresh().stages(e)) != 0 {
		t.Error("asked again at once")
	}
	state := &s.shards["s1"].staging
	if state.rest(&mysql.MySQLError{Number: 3948}) || !state.rest(io.EOF) {
		t.Error("a reason is logged when it is new")
	}
	state.until = state.until.Add(-stagingRest)
	if len(fresh().stages(e)) != 1 {
		t.Error("not asked again")
	}
}
