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

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/deadletter"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/outbox"
)

// DeadLetters are dead letters of a line: those of the sinks, from the dead-letter topic, and those of the relay, from
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
	State  string    `json:"state"` // open, redriven or discarded
	// Settled is there when the letter is not open.
	Settled *SettledLetter `json:"settled,omitempty"`
	// Headers and Body are there when one letter is shown.
	Headers []DeadHeader `json:"headers,omitempty"`
	Body    string       `json:"body,omitempty"`

	ofSink  kafka.DeadPlace    // of a sink's letter
	ofRelay *outbox.DeadLetter // nil for a sink's
	entity  entityKey          // as the record's key has it, not as it is printed
}

// entityKey names an entity as records do.
type entityKey struct{ table, tenant, id string }

// SettledLetter says who settled a dead letter, when and why.
type SettledLetter struct {
	At  time.Time `json:"at"`
	By  string    `json:"by"`
	Why string    `json:"why"`
}

// DeadHeader is one header of the original record.
type DeadHeader struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// stateOpen is the state of a letter that nobody has settled.
const stateOpen = "open"

func (d *DeadLetter) settle(s *deadletter.Settled) {
	d.State = stateOpen
	if s != nil {
		d.State = string(s.Action)
		d.Settled = &SettledLetter{s.At.UTC(), printable(s.By), printable(s.Why)}
	}
}

// DeadFilter selects dead letters. The zero value selects all that are open.
type DeadFilter struct {
	Keys                        []string // any of these; none: any key
	Sink, Reason, Table, Tenant string   // "" : any
	Since, Until                time.Time
	Settled                     bool // also those that were redriven or discarded
}

// DeadSinks and DeadReasons are what letters are listed under.
var (
	DeadSinks   = []string{"outbox", "mysql", "clickhouse", "doris"}
	DeadReasons = []string{
		event.ReasonMalformed, event.ReasonUnknownField, event.ReasonDuplicate, event.ReasonMissing, event.ReasonNull, event.ReasonWrongType,
		event.ReasonOutOfRange, event.ReasonTooLong, event.ReasonEmpty, event.ReasonBadText, event.ReasonBadRecord, event.ReasonMismatch,
		event.ReasonUnknownTable, event.ReasonWrongPartition, event.ReasonCheckConstraint, event.ReasonRefusedByServer, event.ReasonRefused,
		outbox.ReasonBadRow, outbox.ReasonBadVersion, outbox.ReasonTooLarge, outbox.ReasonLost,
	}
)

// Check refuses a sink or a reason that no letter can have: nothing found would look like nothing wrong.
func (f *DeadFilter) Check() error {
	for _, c := range []struct {
		what, text string
		known      []string
	}{{"sink", f.Sink, DeadSinks}, {"reason", f.Reason, DeadReasons}} {
		if c.text != "" && !slices.Contains(c.known, c.text) {
			return &fault.Error{Code: "SL9025", Class: fault.Usage, What: fmt.Sprintf("--%s %s: no dead letter has this %s", c.what, printable(c.text), c.what),
				Do: "write one of: " + strings.Join(c.known, ", ")}
		}
	}
	return nil
}

// Empty says that the filter leaves out nothing that is open.
func (f *DeadFilter) Empty() bool {
	return len(f.Keys) == 0 && f.Sink == "" && f.Reason == "" && f.Table == "" && f.Tenant == "" && f.Since.IsZero() && f.Until.IsZero()
}

func (f *DeadFilter) match(d *DeadLetter) bool {
	text := func(want, have string) bool { return want == "" || want == have }
	return (len(f.Keys) == 0 || slices.Contains(f.Keys, d.Key)) &&
		text(f.Sink, d.Sink) && text(f.Reason, d.Reason) && text(f.Table, d.entity.table) && text(f.Tenant, d.entity.tenant) &&
		(f.Since.IsZero() || !d.At.Before(f.Since)) && (f.Until.IsZero() || d.At.Before(f.Until)) &&
		(f.Settled || d.State == stateOpen)
}

// DeadLetters lists the dead letters that the filter selects, oldest first. A key of the filter that no letter has is an
// error.
func (l *Line) DeadLetters(ctx context.Context, f DeadFilter) (*DeadLetters, error) {
	list, err := l.deadLetters(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, key := range f.Keys {
		if !slices.ContainsFunc(list.Letters, func(d DeadLetter) bool { return d.Key == key }) {
			return nil, noSuchLetter(key)
		}
	}
	list.Letters = slices.DeleteFunc(list.Letters, func(d DeadLetter) bool { return !f.match(&d) })
	return list, nil
}

// deadLetters reads all dead letters; the one whose key is shown comes whole.
func (l *Line) deadLetters(ctx context.Context, shown string) (*DeadLetters, error) {
	list := &DeadLetters{Line: l.Config.Line, Letters: []DeadLetter{}}
	letters, err := l.sinkLetters(ctx, shown)
	if err != nil {
		return nil, err
	}
	list.Letters = append(list.Letters, letters...)
	if letters, err = l.relayLetters(ctx, shown); err != nil {
		return nil, err
	}
	list.Letters = append(list.Letters, letters...)
	slices.SortStableFunc(list.Letters, func(a, b DeadLetter) int { return a.At.Compare(b.At) })
	return list, nil
}

// sinkLetters are the letters of the dead-letter topic.
func (l *Line) sinkLetters(ctx context.Context, shown string) (letters []DeadLetter, err error) {
	ofSinks, err := kafka.DeadLetters(ctx, l.Config, l.Log, func(d *kafka.DeadLetter) bool { return d.Key() == shown })
	if err != nil {
		return nil, err
	}
	for i := range ofSinks {
		d := &ofSinks[i]
		letter := DeadLetter{Key: d.Key(), Sink: d.Sink, Reason: d.Reason, Error: d.Error, At: d.At, ofSink: d.Place}
		letter.settle(d.Settled)
		if parts := bytes.SplitN(d.Record.Key, []byte{0}, 3); len(parts) == 3 { // the key of another record says nothing
			letter.entity = entityKey{string(parts[0]), string(parts[1]), string(parts[2])}
		}
		if d.Key() == shown {
			letter.Body = printable(d.Record.Value)
			for _, h := range d.Record.Headers {
				letter.Headers = append(letter.Headers, DeadHeader{h.Key, printable(h.Value)})
			}
		}
		letter.Table, letter.Tenant, letter.ID = printable(letter.entity.table), printable(letter.entity.tenant), printable(letter.entity.id)
		letters = append(letters, letter)
	}
	return letters, nil
}

// relayLetters are the letters of slotline_dead.
func (l *Line) relayLetters(ctx context.Context, shown string) (letters []DeadLetter, err error) {
	db, err := l.outboxDB()
	if err != nil {
		return nil, err
	}
	ofRelay, err := outbox.DeadLetters(ctx, db, relayKey(shown))
	if err != nil {
		return nil, mysqldb.Wrap(err, "SL9012", "outbox "+l.Config.Outbox.DSN.Place()+", slotline_dead")
	}
	for i := range ofRelay {
		d := &ofRelay[i]
		letter := DeadLetter{Key: d.DeadKey.String(), Sink: "outbox", Reason: d.Reason, Error: d.Detail, At: d.At, ofRelay: d,
			entity: entityKey{d.Table, d.Tenant, d.EntityID}, Table: printable(d.Table), Tenant: printable(d.Tenant), ID: printable(d.EntityID)}
		letter.settle(d.Settled)
		if letter.Key == shown {
			letter.Body = printable(d.Payload)
		}
		letters = append(letters, letter)
	}
	return letters, nil
}

// relayKey reads the key of a relay's letter; the zero key, which no letter has, stands for any other text.
func relayKey(text string) (key outbox.DeadKey) {
	if _, err := fmt.Sscanf(text, "outbox/%d/%d/%d", &key.Lane, &key.Generation, &key.ID); err != nil {
		return outbox.DeadKey{}
	}
	return key
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
	return nil, noSuchLetter(key)
}

func noSuchLetter(key string) error {
	return &fault.Error{Code: "SL9013", Class: fault.Usage,
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
		fmt.Fprintf(w, "%s: no dead letters\n", d.Line)
		return nil
	}
	if err := d.WriteSummary(w); err != nil {
		return err
	}
	fmt.Fprintln(w)
	settled := slices.ContainsFunc(d.Letters, func(l DeadLetter) bool { return l.Settled != nil })
	header := []string{"KEY", "AT", "TABLE", "TENANT", "ID", "REASON", "ERROR"}
	if settled {
		header = slices.Insert(header, 1, "STATE")
	}
	t := newTable(w, header...)
	for _, l := range d.Letters {
		cells := []string{l.Key, l.At.UTC().Format(time.DateTime), l.Table, l.Tenant, l.ID, l.Reason, firstLine(l.Error)}
		if settled {
			cells = slices.Insert(cells, 1, l.State)
		}
		t.row(cells...)
	}
	return t.flush()
}

// WriteSummary prints how many letters there are by sink and reason.
func (d *DeadLetters) WriteSummary(w io.Writer) error {
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
	return t.flush()
}

// WriteText prints one letter whole.
func (d *DeadLetter) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "key     %s\nat      %s\nentity  table %s, tenant %s, id %s\nreason  %s\nerror   %s\n", d.Key,
		d.At.UTC().Format(time.RFC3339), d.Table, d.Tenant, d.ID, d.Reason, strings.ReplaceAll(d.Error, "\n", "\n        "))
	state := d.State
	if s := d.Settled; s != nil {
		state += fmt.Sprintf(" %s by %s", s.At.UTC().Format(time.RFC3339), s.By)
		if s.Why != "" {
			state += ": " + s.Why
		}
	}
	fmt.Fprintf(w, "state   %s\n", state)
	for _, h := range d.Headers {
		fmt.Fprintf(w, "header  %s: %s\n", h.Key, h.Value)
	}
	_, err := fmt.Fprintf(w, "body    %s\n", d.Body)
	return err
}
