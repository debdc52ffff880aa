package line

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/deadletter"
	"github.com/slotline/slotline/internal/intake"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/outbox"
	"github.com/slotline/slotline/partitioner"
)

// Settling is what came of redriving or discarding dead letters.
type Settling struct {
	Line   string            `json:"line"`
	Action deadletter.Action `json:"action"`
	Done   int               `json:"done"`
	Left   []LeftLetter      `json:"left"` // still open
}

// LeftLetter is a dead letter that stayed open.
type LeftLetter struct {
	Key string `json:"key"`
	Why string `json:"why"`
}

// settleChunk letters are marked at a time: what is published and not yet marked when a command dies is published again
// by the next one, and changes nothing.
const settleChunk = 100

// Discard gives the letters up: it records who and why, and they are listed no more unless asked for.
func (l *Line) Discard(ctx context.Context, list *DeadLetters, who, why string) (*Settling, error) {
	return l.settleAll(ctx, list, deadletter.Settled{Action: deadletter.Discarded, By: who, Why: why}, nil)
}

// Redrive publishes the letters' events again, each as it was: the same bytes, event id and version, to the partition of
// its tenant in the layout in force. All sinks see them again and versions decide, so what took an event already, or a
// newer one of its entity, does not change, and redriving twice is redriving once.
//
// A letter that the file's own rules still refuse stays open, with the reason in Left: it would only come back.
func (l *Line) Redrive(ctx context.Context, list *DeadLetters, who, why string) (*Settling, error) {
	if err := l.loadLayout(ctx); err != nil {
		return nil, err
	}
	pub, err := kafka.NewPublisher(ctx, l.Config, "redrive", l.Log)
	if err != nil {
		return nil, err
	}
	defer pub.Close()
	return l.settleAll(ctx, list, deadletter.Settled{Action: deadletter.Redriven, By: who, Why: why}, pub)
}

// settling is one command under way.
type settling struct {
	*Line
	how    deadletter.Settled
	pub    *kafka.Publisher // nil: nothing is published
	rules  *redriveRules
	dead   *kafka.Dead
	result *Settling
	chunk  []*DeadLetter // published, not yet marked
}

func (l *Line) settleAll(ctx context.Context, list *DeadLetters, how deadletter.Settled, pub *kafka.Publisher) (*Settling, error) {
	dead, err := kafka.NewDead(l.Config, "dlq", l.Log)
	if err != nil {
		return nil, err
	}
	defer dead.Close()
	s := &settling{Line: l, how: how, pub: pub, dead: dead,
		result: &Settling{Line: l.Config.Line, Action: how.Action, Left: []LeftLetter{}}}
	if pub != nil {
		if s.rules, err = newRedriveRules(l.Config, l.layout); err != nil {
			return nil, err
		}
	}
	if err = s.run(ctx, list); err == nil {
		err = s.mark(ctx)
	} else { // what was published is marked all the same
		marking, cancel := context.WithTimeout(context.WithoutCancel(ctx), markTimeout)
		defer cancel()
		err = errors.Join(err, s.mark(marking))
		l.Log.Warn("ended early", "action", how.Action, "done", s.result.Done, "of", len(list.Letters))
	}
	return s.result, err
}

// markTimeout bounds the marking after a failure.
const markTimeout = 10 * time.Second

func (s *settling) run(ctx context.Context, list *DeadLetters) error {
	places, byPlace := map[kafka.DeadPlace]bool{}, map[kafka.DeadPlace]*DeadLetter{}
	for i := range list.Letters {
		d := &list.Letters[i]
		switch {
		case s.pub == nil:
			if err := s.settled(ctx, d); err != nil {
				return err
			}
		case d.ofRelay != nil:
			if err := s.redriveRelays(ctx, d); err != nil {
				return err
			}
		default: // read whole below: many may be more than memory holds
			places[d.ofSink], byPlace[d.ofSink] = true, d
		}
	}
	err := kafka.EachDeadLetter(ctx, s.Config, s.Log, places, func(whole *kafka.DeadLetter) error {
		d := byPlace[whole.Place]
		delete(byPlace, whole.Place)
		return s.redriveSinks(ctx, d, whole)
	})
	if err != nil {
		return err
	}
	for i := range list.Letters {
		if d := &list.Letters[i]; byPlace[d.ofSink] == d {
			s.left(d, "it is not in the dead-letter topic any more")
		}
	}
	return nil
}

// redriveRelays publishes what the relay could not.
func (s *settling) redriveRelays(ctx context.Context, d *DeadLetter) error {
	db, err := s.outboxDB()
	if err != nil {
		return err
	}
	out, refused, err := outbox.Redrive(ctx, db, s.Config, s.layout, d.ofRelay)
	if err != nil {
		return mysqldb.Wrap(err, "SL9016", "outbox "+s.Config.Outbox.DSN.Place()+", dead letter "+d.Key)
	}
	if refused != "" {
		s.left(d, refused)
		return nil
	}
	return s.publish(ctx, d, out.Partition, out.Record)
}

// redriveSinks publishes again what a sink refused.
func (s *settling) redriveSinks(ctx context.Context, d *DeadLetter, whole *kafka.DeadLetter) error {
	to, err := s.rules.place(whole)
	if err != nil {
		s.left(d, firstLine(err.Error()))
		return nil
	}
	return s.publish(ctx, d, to, whole.Record)
}

func (s *settling) publish(ctx context.Context, d *DeadLetter, to event.Partition, rec event.Record) error {
	offset, tooLarge, err := s.pub.Publish(ctx, to, rec)
	switch {
	case err != nil:
		return err
	case tooLarge:
		s.left(d, "it is larger than the topic takes: raise outbox.event_bytes_max and run slotline apply")
		return nil
	}
	s.Log.Info("redriven", "letter", d.Key, "topic", to.Topic, "partition", to.Number, "offset", offset)
	return s.settled(ctx, d)
}

// settled notes a letter that is to be marked.
func (s *settling) settled(ctx context.Context, d *DeadLetter) error {
	if s.chunk = append(s.chunk, d); len(s.chunk) < settleChunk {
		return nil
	}
	return s.mark(ctx)
}

// mark records how the letters of the chunk were settled.
func (s *settling) mark(ctx context.Context) error {
	s.how.At = time.Now()
	var keys []string
	for _, d := range s.chunk {
		if d.ofRelay == nil {
			keys = append(keys, d.Key)
			continue
		}
		db, err := s.outboxDB()
		if err != nil {
			return err
		}
		if err := outbox.Settle(ctx, db, d.ofRelay.DeadKey, s.how); err != nil {
			return mysqldb.Wrap(err, "SL9016", "outbox "+s.Config.Outbox.DSN.Place()+", dead letter "+d.Key)
		}
	}
	if len(keys) > 0 {
		if err := s.dead.Settle(ctx, keys, s.how); err != nil {
			return err
		}
	}
	s.result.Done += len(s.chunk)
	s.chunk = s.chunk[:0]
	return nil
}

func (s *settling) left(d *DeadLetter, why string) {
	s.result.Left = append(s.result.Left, LeftLetter{d.Key, why})
}

// redriveRules say where an event belongs now, and whether the sink that refused it would refuse it again. They are pure.
type redriveRules struct {
	cfg    *config.Config
	layout *partitioner.Layout
	bySink map[string]*intake.Rules
}

func newRedriveRules(cfg *config.Config, layout *partitioner.Layout) (*redriveRules, error) {
	r := &redriveRules{cfg: cfg, layout: layout, bySink: map[string]*intake.Rules{}}
	limits := map[string]*event.Limits{"mysql": &event.LimitsMySQL}
	if cfg.Sinks.ClickHouse != nil {
		limits["clickhouse"] = &event.LimitsClickHouse
	}
	if cfg.Sinks.Doris != nil {
		limits["doris"] = &event.LimitsDoris
	}
	for sink, l := range limits {
		rules, err := intake.New(cfg.Tables, l, cfg.Months.From)
		if err != nil {
			return nil, err
		}
		r.bySink[sink] = rules
	}
	return r, nil
}

// place is the partition of the event's tenant in the layout in force: since the event was published, its slot may have
// come to another.
func (r *redriveRules) place(d *kafka.DeadLetter) (event.Partition, error) {
	var v event.View
	if err := event.ParseView(d.Record, &v); err != nil {
		return event.Partition{}, err
	}
	to := event.Partition{Number: r.layout.Broadcast()}
	for _, t := range r.cfg.Tables {
		if t.Name != string(v.Table) {
			continue
		}
		to.Topic = r.cfg.Topic(t)
		if !t.Broadcast() {
			var row event.Row
			if err := t.DecodeView(&v, &row); err != nil {
				return event.Partition{}, err
			}
			to.Number = r.layout.RouteBytes(row.Tenant, row.Spread).Partition
		}
	}
	if to.Topic == "" {
		return event.Partition{}, fmt.Errorf("%s has no table %s", r.cfg.File, printable(v.Table))
	}
	rules := r.bySink[d.Sink]
	if rules == nil {
		return event.Partition{}, fmt.Errorf("%s has no sink %s", r.cfg.File, printable(d.Sink))
	}
	var e intake.Event
	if err := rules.Read(&event.Message{Partition: to, Offset: d.Offset, Record: d.Record}, r.layout, &e); err != nil {
		return event.Partition{}, err
	}
	return to, nil
}

// WriteText prints what was done, and what was not and why.
func (s *Settling) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "%s: %d %s, %d left open\n", s.Line, s.Done, s.Action, len(s.Left))
	if len(s.Left) == 0 {
		return nil
	}
	t := newTable(w, "LEFT OPEN", "WHY")
	for _, l := range s.Left {
		t.row(l.Key, l.Why)
	}
	return t.flush()
}
