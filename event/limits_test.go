package event

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/slotline/slotline/fault"
)

var sinks = []*Limits{&LimitsMySQL, &LimitsClickHouse, &LimitsDoris}

// P12: the range table of each sink, at its edges.
func TestP12_RangesPerSink(t *testing.T) {
	type edge struct {
		column string
		in     []string
		out    map[string]string // value: reason
	}
	for limits, edges := range map[*Limits][]edge{
		&LimitsMySQL: {
			{"date", []string{`"1000-01-01"`, `"9999-12-31"`}, map[string]string{`"0999-12-31"`: ReasonOutOfRange, `"0001-01-01"`: ReasonOutOfRange}},
			{"datetime", []string{`"1000-01-01T00:00:00.000000Z"`, `"9999-12-31T23:59:59.999999Z"`}, map[string]string{`"0999-12-31T23:59:59.999999Z"`: ReasonOutOfRange}},
		},
		&LimitsClickHouse: {
			{"date", []string{`"1900-01-01"`, `"2299-12-31"`}, map[string]string{`"1899-12-31"`: ReasonOutOfRange, `"2300-01-01"`: ReasonOutOfRange}},
			{"datetime", []string{`"1900-01-01T00:00:00.000000Z"`, `"2299-12-31T23:59:59.999999Z"`},
				map[string]string{`"1899-12-31T23:59:59.999999Z"`: ReasonOutOfRange, `"2300-01-01T00:00:00.000000Z"`: ReasonOutOfRange}},
			{"datetime?", []string{`null`}, nil},
		},
		&LimitsDoris: {
			{"date", []string{`"0001-01-01"`, `"9999-12-31"`}, nil},
			{"datetime", []string{`"0001-01-01T00:00:00.000000Z"`, `"9999-12-31T23:59:59.999999Z"`}, nil},
			{"text", []string{`"` + strings.Repeat("x", 1_048_576) + `"`}, map[string]string{`"` + strings.Repeat("x", 1_048_577) + `"`: ReasonTooLong}},
			{"json", []string{`"` + strings.Repeat("x", 1_048_574) + `"`}, map[string]string{`"` + strings.Repeat("x", 1_048_575) + `"`: ReasonTooLong}},
		},
	} {
		for _, e := range edges {
			table := oneColumn(e.column)
			check := func(value string) error {
				var row Row
				if err := table.DecodeRow([]byte(field(value)), Upsert, &row); err != nil {
					t.Fatal(err)
				}
				return limits.Check(table, &row)
			}
			for _, value := range e.in {
				if err := check(value); err != nil {
					t.Errorf("%s: %.60s: %v", limits.Sink, value, err)
				}
			}
			for value, reason := range e.out {
				var data *DataError
				if err := check(value); !errors.As(err, &data) || data.Reason != reason || data.Column != "v" || !fault.Is(err, fault.Data) ||
					!strings.Contains(err.Error(), limits.Sink) {
					t.Errorf("%s: %.60s: %v, wanted %s", limits.Sink, value, err, reason)
				}
			}
		}
	}
}

func TestP12_LimitsOfDeclaredColumns(t *testing.T) {
	for _, l := range sinks {
		table := oneColumn("decimal(65,30)")
		if err := l.CheckTable(table); (err != nil) != (l.DecimalPrecisionMax < 65) {
			t.Errorf("%s: %v", l.Sink, err)
		}
		if err := l.CheckTable(flights()); err != nil {
			t.Errorf("%s: %v", l.Sink, err)
		}
	}
	wide := flights()
	wide.Columns[4] = column("status", "string(16383)")
	if err := LimitsMySQL.CheckTable(wide); err == nil || LimitsClickHouse.CheckTable(wide) != nil {
		t.Errorf("%v", err)
	}
	index := flights()
	index.Columns[4] = column("status", "string(766)") // 3064 + 2 + 10
	index.Indexes = append(index.Indexes, []string{"carrier", "status"})
	var problems Problems
	if err := LimitsMySQL.CheckTable(index); !errors.As(err, &problems) || problems[0].Key != "indexes.1" {
		t.Errorf("%v", err)
	}
}

func TestCheckAllocatesNothing(t *testing.T) {
	table := allKinds()
	var row Row
	if err := table.DecodeRow([]byte(everythingBody), Upsert, &row); err != nil {
		t.Fatal(err)
	}
	row.Values[14] = Value{Null: true} // 0001-01-01
	if n := testing.AllocsPerRun(100, func() {
		if err := LimitsMySQL.Check(table, &row); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

const typesDoc = "../docs/types.md"

// The range table of docs/types.md is what the code enforces; -update rewrites it.
func TestRangeTableInDocs(t *testing.T) {
	doc, err := os.ReadFile(typesDoc)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- ranges: begin, written by go test ./event -update -->\n", "<!-- ranges: end -->"
	before, rest, ok := strings.Cut(string(doc), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no range table", typesDoc)
	}
	want := before + begin + rangeTable() + end + after
	if want == string(doc) {
		return
	}
	if !*update {
		t.Fatalf("%s differs from the code; go test ./event -update rewrites it", typesDoc)
	}
	if err := os.WriteFile(typesDoc, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

func rangeTable() string {
	var b strings.Builder
	row := func(cells ...string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	each := func(name, event string, cell func(l *Limits) string) {
		cells := []string{name, event}
		for _, l := range sinks {
			cells = append(cells, cell(l))
		}
		row(cells...)
	}
	bytes := func(n int64, none string) string {
		if n == 0 {
			return none
		}
		return fmt.Sprintf("%d bytes", n)
	}
	row("limit", "event", "mysql", "clickhouse", "doris")
	row("---", "---", "---", "---", "---")
	each("date, least", string(AppendDate(nil, dateMin)), func(l *Limits) string { return string(AppendDate(nil, l.DateMin)) })
	each("date, greatest", string(AppendDate(nil, dateMax)), func(l *Limits) string { return string(AppendDate(nil, l.DateMax)) })
	each("datetime, least", string(AppendDatetime(nil, datetimeMin)), func(l *Limits) string { return string(AppendDatetime(nil, l.DatetimeMin)) })
	each("datetime, greatest", string(AppendDatetime(nil, datetimeMax)), func(l *Limits) string { return string(AppendDatetime(nil, l.DatetimeMax)) })
	each("decimal precision", fmt.Sprint(DecimalPrecisionMax), func(l *Limits) string { return fmt.Sprint(l.DecimalPrecisionMax) })
	each("decimal scale", fmt.Sprint(DecimalScaleMax), func(l *Limits) string { return fmt.Sprint(min(DecimalScaleMax, l.DecimalPrecisionMax)) })
	each("string(n)", fmt.Sprintf("%d code points", StringLengthMax), func(*Limits) string { return "as declared" })
	each("bytes(n)", fmt.Sprintf("%d bytes", BytesLengthMax), func(*Limits) string { return "as declared" })
	each("text", "the event's size", func(l *Limits) string { return bytes(l.TextBytesMax, "the event's size") })
	each("json", "the event's size", func(l *Limits) string { return bytes(l.JSONBytesMax, "the event's size") })
	each("json depth", fmt.Sprintf("%d objects and lists", JSONDepthMax), func(*Limits) string { return "the same" })
	each("json key", fmt.Sprintf("%d bytes", JSONKeyBytesMax), func(*Limits) string { return "the same" })
	each("all declared columns", fmt.Sprintf("%d columns", ColumnsMax), func(l *Limits) string { return bytes(int64(l.RowBytesMax), "no bound") })
	each("columns of an index", fmt.Sprintf("%d columns", IndexColumnsMax), func(l *Limits) string { return bytes(int64(l.IndexBytesMax), "no bound") })
	return b.String()
}
