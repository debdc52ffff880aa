package line

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/outbox"
)

// DeadLetters are the dead letters of a line: those of the sinks, from the dead-letter topic, and those of the relay, from
// the outbox database.
type DeadLetters struct {
	Line    string       `json:"line"`
	Letters []DeadLetter `json:"letters"`
}

// DeadLetter is one event that a sink or the relay could not take.
type DeadLetter struct {
	Key    string    `json:"key"` // sink/topic/partition/offset, or outbox/lane/generation/id
	Sink   string    `json:"sink"`
	Reason string    `json:"reason"`
	Error  string    `json:"error"`
	At     time.Time `json:"at"`
	Table  string    `json:"table"`
	Tenant string    `json:"tenant"`
	ID     string    `json:"id"`
	// Headers and Body are there when one letter is shown.
	Headers []DeadHeader `json:"headers,omitempty"`
	Body    string       `json:"body,omitempty"`
}

// DeadHeader is one header of the original record.
type DeadHeader struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// DeadLetters lists all dead letters, oldest first.
func (l *Line) DeadLetters(ctx context.Context) (*DeadLetters, error) { return l.deadLetters(ctx, "") }

// deadLetters reads all dead letters; the one whose key is shown comes whole.
func (l *Line) deadLetters(ctx context.Context, shown string) (*DeadLetters, error) {
	list := &DeadLetters{Line: l.Config.Line, Letters: []DeadLetter{}}
	ofSinks, err := kafka.DeadLetters(ctx, l.Config, l.Log, func(d *kafka.DeadLetter) bool { return d.Key() == shown })
	if err != nil {
		return nil, err
	}
	for i := range ofSinks {
		d := &ofSinks[i]
		letter := DeadLetter{Key: d.Key(), Sink: d.Sink, Reason: d.Reason, Error: d.Error, At: d.At}
		if parts := bytes.SplitN(d.Record.Key, []byte{0}, 3); len(parts) == 3 { // the key of another record says nothing
			letter.Table, letter.Tenant, letter.ID = printable(parts[0]), printable(parts[1]), printable(parts[2])
		}
		if d.Key() == shown {
			letter.Body = printable(d.Record.Value)
			for _, h := range d.Record.Headers {
				letter.Headers = append(letter.Headers, DeadHeader{h.Key, printable(h.Value)})
			}
		}
		list.Letters = append(list.Letters, letter)
	}
	db, err := l.outboxDB()
	if err != nil {
		return nil, err
	}
	ofRelay, err := outbox.DeadLetters(ctx, db)
	if err != nil {
		return nil, mysqldb.Wrap(err, "SL9012", "outbox "+l.Config.Outbox.DSN.Place()+", slotline_dead")
	}
	for _, d := range ofRelay {
		letter := DeadLetter{Key: fmt.Sprintf("outbox/%02d/%d/%d", d.Lane, d.Generation, d.ID), Sink: "outbox", Reason: d.Reason, Error: d.Detail, At: d.At,
			Table: printable(d.Table), Tenant: printable(d.Tenant), ID: printable(d.EntityID)}
		if letter.Key == shown {
			letter.Body = printable(d.Payload)
		}
		list.Letters = append(list.Letters, letter)
	}
	slices.SortStableFunc(list.Letters, func(a, b DeadLetter) int { return a.At.Compare(b.At) })
	return list, nil
}

// DeadLetter is one dead letter whole, by the key that the list shows.
func (l *Line) DeadLetter(ctx context.Context, key string) (*DeadLetter, error) {
	list, err := l.deadLetters(ctx, key)
	if err != nil {
		return nil, err
	}
	for i := range list.Letters {
		if list.Letters[i].Key == key {
			return &list.Letters[i], nil
		}
	}
	return nil, &fault.Error{Code: "SL9013", Class: fault.Usage,
		What: fmt.Sprintf("there is no dead letter %q", key), Do: "take a key from slotline dlq list"}
}

// printable is text as it is, and quoted where it could play tricks on a terminal or a table.
func printable[T ~string | ~[]byte](b T) string {
	text := string(b)
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// WriteText prints the letters by reason, then each.
func (d *DeadLetters) WriteText(w io.Writer) error {
	if len(d.Letters) == 0 {
		fmt.Fprintf(w, "%s has no dead letters\n", d.Line)
		return nil
	}
	type group struct{ sink, reason string }
	counts := map[group]int{}
	var groups []group
	for _, l := range d.Letters {
		g := group{l.Sink, l.Reason}
		if counts[g] == 0 {
			groups = append(groups, g)
		}
		counts[g]++
	}
	t := newTable(w, "SINK", "REASON", "LETTERS")
	for _, g := range groups {
		t.row(g.sink, g.reason, fmt.Sprint(counts[g]))
	}
	if err := t.flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	t = newTable(w, "KEY", "AT", "TABLE", "TENANT", "ID", "REASON", "ERROR")
	for _, l := range d.Letters {
		t.row(l.Key, l.At.UTC().Format(time.DateTime), l.Table, l.Tenant, l.ID, l.Reason, firstLine(l.Error))
	}
	return t.flush()
}

// WriteText prints one letter whole.
func (d *DeadLetter) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "key     %s\nat      %s\nentity  table %s, tenant %s, id %s\nreason  %s\nerror   %s\n", d.Key,
		d.At.UTC().Format(time.RFC3339), d.Table, d.Tenant, d.ID, d.Reason, strings.ReplaceAll(d.Error, "\n", "\n        "))
	for _, h := range d.Headers {
		fmt.Fprintf(w, "header  %s: %s\n", h.Key, h.Value)
	}
	_, err := fmt.Fprintf(w, "body    %s\n", d.Body)
	return err
}
