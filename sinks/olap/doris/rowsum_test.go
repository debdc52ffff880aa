package doris

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/olap/doris/doristest"
)

func TestRowSumGolden(t *testing.T) {
	var b strings.Builder
	after, upTo := "7", "9"
	for _, table := range testSink(t).tables {
		m := partitioner.NoMonth
		if table.Month != event.None {
			m = 202611
		}
		b.WriteString(tenantSumsSQL(table.Table, []partitioner.Month{m}, &after, &upTo, 500) + ";\n\n" +
			rowSumsSQL(table.Table, m, "7", between(table.Columns[table.ID], &after, nil), 5000) + ";\n\n")
	}
	golden(t, "testdata/rowsum.sql", b.String())
}

// A double is read back exactly, whether a release writes 17 digits of it or 16, and what these lack of it too.
func TestDoubleOfSixteenDigits(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 1))
	list := []float64{0, 0.1, -0.1, 1e20, 1e-20, math.SmallestNonzeroFloat64, 2.2250738585072014e-308, math.MaxFloat64, -math.MaxFloat64, 1797693134862315e293}
	for len(list) < 20_000 {
		if f := math.Float64frombits(rng.Uint64()); !math.IsNaN(f) && !math.IsInf(f, 0) && math.Abs(f) < 1.797693134862315e308 {
			list = append(list, f)
		}
	}
	for _, f := range list {
		for digits, text := range map[string]string{"16": fmt.Sprintf("%.16g", f), "all": strconv.FormatFloat(f, 'g', -1, 64)} {
			rest := "-Infinity" // the cast of a text beyond all doubles
			if near, err := strconv.ParseFloat(text, 64); err == nil {
				rest = fmt.Sprintf("%.16g", f-near)
			}
			if got := doubleOf(text, rest); got != f {
				t.Errorf("seed %d: %v by %s digits, %s and %s, is read as %v", seed, f, digits, text, rest, got)
			}
		}
	}
}

// What is committed and not visible yet is waited for before rows are read a second time.
func TestRowSumsWaitForWhatIsCommitted(t *testing.T) {
	server := doristest.New(t)
	server.NewDatabase("flights")
	s := sinkAt(t, server.QueryPort(), server.FE())
	table := s.tables[0].Table
	publish, done := server.Commit("flights", "late"), make(chan error, 1)
	go func() {
		_, err := s.RowSums(t.Context(), table, 202611, "UA", nil, nil, []string{"1"}, 1)
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(2 * settlePeriod): // it looks at least once
	}
	publish()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "Syntax error") { // no MySQL is lent: the SELECT itself is refused
		t.Fatal(err)
	}
}

// Tables with values that Doris cannot sum up as other stores do are compared by rows.
func TestByRow(t *testing.T) {
	for kind, want := range map[event.Kind]bool{event.Float64: true, event.JSON: true, event.Int64: false, event.Decimal: false, event.Bytes: false} {
		table := &event.Table{Columns: []event.Column{{Name: "id", Type: event.Type{Kind: event.Int64}}, {Name: "v", Type: event.Type{Kind: kind}}}}
		if got := byRow(table); got != want {
			t.Errorf("with a column of %v: %t", kind, got)
		}
	}
}
