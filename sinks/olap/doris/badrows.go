package doris

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
)

// errorLogBytesMax bounds what is read of the rows that a load refused. Lines beyond are found in the next try.
const errorLogBytesMax = 8 << 20

// badRow is a row that the server refuses, with its reason.
type badRow struct {
	row    int
	reason string
}

// findBadRows finds rows that make the server refuse a block: those that it wrote down, or else those that halving
// leaves. What halving loads on the way are rows of a stored intent: it adds nothing that is not sent again.
func (s *Sink) findBadRows(ctx context.Context, b *block, label string, a answer) ([]badRow, error) {
	if a.ErrorURL != "" {
		if text, err := s.loader.errorLog(ctx, a.ErrorURL); err == nil {
			if bad := matchErrorLog(text, b); len(bad) > 0 {
				return bad, nil
			}
		}
	}
	return s.halve(ctx, b, label, 0, b.rows(), a.text())
}

// halve finds the bad rows from from to to, of which there is one at least.
func (s *Sink) halve(ctx context.Context, b *block, label string, from, to int, reason string) ([]badRow, error) {
	if to-from == 1 {
		return []badRow{{from, cut(reason)}}, nil
	}
	var bad []badRow
	middle := (from + to) / 2
	for _, part := range [][2]int{{from, middle}, {middle, to}} {
		// The intent names the rows, so that the label of a part names them too, whoever sends it.
		res, v, err := s.loader.load(ctx, s.into(b.table), b.table, fmt.Sprintf("%s-%d-%d", label, part[0], part[1]), part[1]-part[0], b.lines(part[0], part[1]))
		if err != nil {
			return nil, err
		}
		if v.outcome != refused {
			continue
		}
		a, _ := parseAnswer(res.body)
		found, err := s.halve(ctx, b, label, part[0], part[1], a.text())
		if err != nil {
			return nil, err
		}
		bad = append(bad, found...)
		if len(bad) >= halvedMax {
			break
		}
	}
	return bad, nil
}

// halvedMax is how many bad rows are looked for by halving before their dead letters are made: each costs some twenty
// loads, and a flood of them halts the partition sooner.
const halvedMax = 16

// matchErrorLog finds the rows whose lines stand in an error log: "Reason: <text>. src line [<line>]; ". A line that
// was cut or written otherwise matches none.
func matchErrorLog(log []byte, b *block) []badRow {
	rows := make(map[string]int, b.rows())
	for i := range b.rows() {
		rows[string(b.line(i))] = i
	}
	var bad []badRow
	for entry := range bytes.Lines(log) {
		reason, rest, found := bytes.Cut(entry, []byte("src line ["))
		at := bytes.LastIndex(rest, []byte("]"))
		if !found || at < 0 {
			continue
		}
		row, ours := rows[string(rest[:at])]
		if ours && !slices.ContainsFunc(bad, func(r badRow) bool { return r.row == row }) {
			text := bytes.TrimPrefix(bytes.TrimSpace(reason), []byte("Reason: "))
			bad = append(bad, badRow{row, cut(string(bytes.TrimSuffix(text, []byte("."))))})
		}
	}
	return bad
}

// rejected makes what the consumer is told of the bad rows of a block.
func rejected(b *block, bad []badRow) []event.Rejected {
	var list []event.Rejected
	for _, r := range bad {
		list = append(list, event.Rejected{Index: int(b.messages[r.row]), Reason: event.ReasonRefused,
			Err: &fault.Error{Code: codeRow, Class: fault.Data, What: fmt.Sprintf("table %s: Doris refuses the row: %s", b.table.Name, r.reason)}})
	}
	return list
}
