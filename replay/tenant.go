package replay

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/intake"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/partitioner"
)

// AsOf bounds which events count. The zero value has all.
type AsOf struct {
	Time    time.Time                 // events that were appended later do not count; zero: none is left out
	Offsets map[event.Partition]int64 // those at or above the offset do not count; of a partition that is not here, all do
}

// ParseAsOf reads "2026-11-30T12:00:00Z" or "0=1234,1=88", offsets of partitions; "flights.events/0=1234" names a topic.
// topics are the line's, the first its default.
func ParseAsOf(text string, topics []string) (a AsOf, err error) {
	if text == "" {
		return a, nil
	}
	if a.Time, err = time.Parse(time.RFC3339Nano, text); err == nil {
		return a, nil
	}
	a.Offsets = map[event.Partition]int64{}
	for part := range strings.SplitSeq(text, ",") {
		name, offset, ok := strings.Cut(part, "=")
		topic, number := topics[0], name
		if at := strings.LastIndexByte(name, '/'); at >= 0 {
			topic, number = name[:at], name[at+1:]
		}
		n, errN := strconv.ParseInt(number, 10, 32)
		o, errO := strconv.ParseInt(offset, 10, 64)
		p := event.Partition{Topic: topic, Number: int32(n)}
		if _, twice := a.Offsets[p]; !ok || errN != nil || errO != nil || n < 0 || o < 0 || twice || !slices.Contains(topics, topic) {
			return a, fmt.Errorf("--as-of %q: write a time, as 2026-11-30T12:00:00Z, or offsets of partitions, as 0=1234,1=88", text)
		}
		a.Offsets[p] = o
	}
	return a, nil
}

// TenantOptions of Tenant. Config, Layout, Tenant and To are needed.
type TenantOptions struct {
	Config *config.Config
	Layout *partitioner.Layout // the one in force
	Tenant string              // canonical text
	Tables []string            // logical; none: all that have a tenant
	AsOf   AsOf
	To     RowWriter
	// AllowEmpty has a tenant without an event be no error.
	AllowEmpty bool
	Logger     *slog.Logger
	Say        func(Line)
}

// RowWriter takes the rows, table by table as they come in the log.
type RowWriter interface {
	// Row takes a row that is not deleted. What it is given is valid during the call only.
	Row(ctx context.Context, t *event.Table, row *event.Row, ver int64, body []byte) error
}

// TenantRows is what folding a tenant's events has made.
type TenantRows struct {
	Tenant     string         `json:"tenant"`
	Partitions int            `json:"partitions"`
	Offsets    int64          `json:"offsets"` // read, of all tenants
	Events     int64          `json:"events"`  // of the tenant, that count
	Tables     []TableRows    `json:"tables"`
	Refused    int64          `json:"refused"`      // events of the tenant that make no row
	Named      []RefusedEvent `json:"refused_list"` // the first 1000 of them
}

// TableRows are a table's.
type TableRows struct {
	Table   string `json:"table"`
	Rows    int64  `json:"rows"`
	Deleted int64  `json:"deleted"` // entities whose newest event deletes them
}

// RefusedEvent is one that makes no row.
type RefusedEvent struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Table     string `json:"table"`
	ID        string `json:"id"`
	Reason    string `json:"reason"`
	Error     string `json:"error"`
}

// tenantFold folds one tenant's events.
type tenantFold struct {
	o       TenantOptions
	h       *history
	parts   []event.Partition
	rules   *intake.Rules
	dead    map[event.Partition]map[int64]string // letters of the MySQL sink, and why
	refused map[event.Partition]map[int64]bool
	newest  newest // versions by record key
	out     *TenantRows
	rows    map[string]*TableRows
	event   intake.Event
}

// Tenant folds the events of one tenant, and passes on the rows that they make: what a shard held when it had applied those
// events and no others. It reads the log twice: first it learns which version of each entity is the newest, some 35 bytes
// per entity, then it passes those on. Events that make no row are named, never passed over in silence: dead letters of
// the MySQL sink, unknown tables and schemas, values out of range.
func Tenant(ctx context.Context, o TenantOptions) (*TenantRows, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	f := &tenantFold{o: o, h: &history{o.Config, o.Logger}, dead: map[event.Partition]map[int64]string{}, refused: map[event.Partition]map[int64]bool{},
		out: &TenantRows{Tenant: o.Tenant, Tables: []TableRows{}, Named: []RefusedEvent{}}, rows: map[string]*TableRows{}}
	for _, name := range o.Tables {
		if t := o.Config.Table(name); t == nil || t.Broadcast() {
			return nil, &fault.Error{Code: codeNoTable, Class: fault.Usage, What: fmt.Sprintf("%s has no table %q with a tenant", o.Config.File, name), Do: "name tables that stand under tables"}
		}
	}
	var err error
	if f.rules, err = intake.New(o.Config.Tables, &event.LimitsMySQL, o.Config.Months.From); err != nil {
		return nil, err
	}
	f.parts = tenantPartitions(o.Config, o.Layout, o.Tenant)
	logs, holes, err := f.h.stand(ctx, "replay", f.parts)
	if err != nil {
		return nil, err
	}
	if len(holes) > 0 {
		return nil, &fault.Error{Code: codeHistory, Class: fault.Fatal, What: fmt.Sprintf("the log does not hold all events of tenant %s: rows would be lacking", o.Tenant),
			Why: strings.Join(holes, "\n"), Do: "restore them from a backup"}
	}
	from, to := map[event.Partition]int64{}, map[event.Partition]int64{}
	for p, log := range logs {
		from[p], to[p] = log.Start, log.Stable
		if end, bounded := o.AsOf.Offsets[p]; bounded {
			if end > log.Stable {
				return nil, &fault.Error{Code: codeHistory, Class: fault.Fatal, What: fmt.Sprintf("%s partition %d ends at offset %d; --as-of says %d", p.Topic, p.Number, log.Stable, end),
					Do: "name an offset that is there"}
			}
			to[p] = end
		}
		f.out.Offsets += to[p] - from[p]
	}
	f.out.Partitions = len(f.parts)
	if err := f.letters(ctx); err != nil {
		return nil, err
	}
	f.say("%d offsets of %d partitions: which versions are the newest", f.out.Offsets, len(f.parts))
	if err := f.pass(ctx, from, to, f.learn); err != nil {
		return nil, err
	}
	if f.out.Events == 0 && f.out.Refused == 0 && !o.AllowEmpty {
		return f.out, &fault.Error{Code: codeNoTenant, Class: fault.Fatal, What: fmt.Sprintf("the log has no event of tenant %s that counts", o.Tenant),
			Do: "write the tenant as its column has it; if that is right: --allow-empty"}
	}
	f.say("%d events, %d entities: their rows", f.out.Events, f.newest.keys.Load())
	if err := f.pass(ctx, from, to, f.emit); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(f.rows)) {
		f.out.Tables = append(f.out.Tables, *f.rows[name])
	}
	for _, r := range f.out.Named {
		f.say("%s partition %d offset %d, %s %s  %s: %s", r.Topic, r.Partition, r.Offset, r.Table, r.ID, r.Reason, r.Error)
	}
	if n := f.out.Refused - int64(len(f.out.Named)); n > 0 {
		f.say("and %d more", n)
	}
	return f.out, nil
}

// tenantPartitions are those that may hold events of a tenant: in an earlier layout it may have had others.
func tenantPartitions(cfg *config.Config, l *partitioner.Layout, tenant string) (list []event.Partition) {
	for _, topic := range cfg.Topics() {
		if l.Epoch() > 1 {
			for n := range l.Partitions() {
				list = append(list, event.Partition{Topic: topic, Number: int32(n)})
			}
			continue
		}
		for _, r := range l.Routes(tenant) {
			if p := (event.Partition{Topic: topic, Number: r.Partition}); !slices.Contains(list, p) {
				list = append(list, p)
			}
		}
	}
	return list
}

func (f *tenantFold) say(format string, args ...any) {
	if f.o.Say != nil {
		f.o.Say(Line{Stage: "tenant", Text: fmt.Sprintf(format, args...)})
	}
}

// letters learns which events the shards' sink has refused: they made no row, whatever the file says by now.
func (f *tenantFold) letters(ctx context.Context) error {
	list, err := kafka.DeadLetters(ctx, f.o.Config, f.o.Logger, nil)
	if err != nil {
		return err
	}
	for _, l := range list {
		if _, tenant, _ := splitKey(l.Record.Key); l.Sink != liveSink || tenant != f.o.Tenant {
			continue
		}
		if f.dead[l.Partition] == nil {
			f.dead[l.Partition] = map[int64]string{}
		}
		f.dead[l.Partition][l.Offset] = l.Reason + ": " + l.Error
	}
	return nil
}

func splitKey(key []byte) (table, tenant, id string) {
	table, rest, _ := strings.Cut(string(key), "\x00")
	tenant, id, _ = strings.Cut(rest, "\x00")
	return table, tenant, id
}

// wanted says that a table's events count. Those of a table that the file does not have are named, unless tables are.
func (f *tenantFold) wanted(table string) bool {
	return len(f.o.Tables) == 0 || slices.Contains(f.o.Tables, table)
}

func (f *tenantFold) refuse(p event.Partition, offset int64, table, id, reason, text string) {
	if f.refused[p][offset] {
		return
	}
	if f.refused[p] == nil {
		f.refused[p] = map[int64]bool{}
	}
	f.refused[p][offset] = true
	f.out.Refused++
	if len(f.out.Named) < namedMax {
		text, _, _ = strings.Cut(text, "\n")
		f.out.Named = append(f.out.Named, RefusedEvent{p.Topic, p.Number, offset, table, id, reason, text})
	}
}

// pass reads the log, one partition after the other so that the rows come in one order, and calls each for the tenant's
// events that count.
func (f *tenantFold) pass(ctx context.Context, from, to map[event.Partition]int64, each func(ctx context.Context, m *event.Message, key entityKey) error) error {
	inner := "\x00" + f.o.Tenant + "\x00"
	for _, p := range f.parts {
		reading, stop := context.WithCancel(ctx)
		var failed error
		err := f.h.scan(reading, "replay", map[event.Partition]int64{p: from[p]}, map[event.Partition]int64{p: to[p]}, func(r *kgo.Record) {
			table, rest, ok := strings.Cut(string(r.Key), "\x00")
			if failed != nil || !ok || !strings.HasPrefix("\x00"+rest, inner) || !f.wanted(table) || f.refused[p][r.Offset] {
				return
			}
			m := &event.Message{Record: kafka.Content(r), Partition: p, Offset: r.Offset}
			if failed = each(ctx, m, keyOf(r.Key)); failed != nil {
				stop()
			}
		})
		stop()
		if failed != nil {
			return failed
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// read takes an event apart; false: it does not count, or makes no row.
func (f *tenantFold) read(m *event.Message) (bool, error) {
	err := f.rules.Read(m, f.o.Layout, &f.event)
	v := &f.event.View
	switch {
	case err != nil && !fault.Is(err, fault.Data):
		return false, fmt.Errorf("%s partition %d offset %d: %w", m.Partition.Topic, m.Partition.Number, m.Offset, err)
	case !f.o.AsOf.Time.IsZero() && !v.Time.IsZero() && v.Time.After(f.o.AsOf.Time):
		return false, nil
	}
	letter, dead := f.dead[m.Partition][m.Offset]
	if err == nil && !dead {
		return true, nil
	}
	table, _, id := splitKey(m.Key)
	if dead {
		f.refuse(m.Partition, m.Offset, table, id, "dead_letter", letter)
	} else {
		f.refuse(m.Partition, m.Offset, table, id, intake.Reason(err), err.Error())
	}
	return false, nil
}

func (f *tenantFold) learn(_ context.Context, m *event.Message, key entityKey) error {
	counts, err := f.read(m)
	if !counts || err != nil {
		return err
	}
	f.out.Events++
	f.newest.learn(key, f.event.Ver)
	return nil
}

// emit passes on the event that is the newest of its entity, once: it may be in the log again.
func (f *tenantFold) emit(ctx context.Context, m *event.Message, key entityKey) error {
	if f.newest.of(key) == 0 {
		return nil
	}
	counts, err := f.read(m)
	if !counts || err != nil || !f.newest.take(key, f.event.Ver) {
		return err
	}
	t := f.o.Config.Tables[f.event.Table]
	rows := f.rows[t.Name]
	if rows == nil {
		rows = &TableRows{Table: t.Name}
		f.rows[t.Name] = rows
	}
	if f.event.Ver&1 == 1 {
		rows.Deleted++
		return nil
	}
	rows.Rows++
	return f.o.To.Row(ctx, t, &f.event.Row, f.event.Ver, m.Value)
}
