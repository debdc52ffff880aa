// Package load makes events of any table of a file, for tenants of unequal size: what slotline bench writes.
//
// It promises rows that every store can hold, and that no entity is one of a service's: the names of its tenants begin with ~,
// or are the greatest integers. It does no I/O.
package load

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
)

// EntitiesMax is how many entities one load can name: ids have room for that many in each run.
const EntitiesMax = 1 << 21

// skew is the exponent of Zipf's law: of 1,000 tenants the largest has some 17 % of the events, the smaller half 5 %.
const skew = 1.1

// Load makes events of one table. It is safe for concurrent use; a Drawer is not.
type Load struct {
	table   *event.Table
	tenants int
	run     uint64 // seconds since 1970, and ten bits of chance: entities of another run have other ids
}

// Entity is one of the load's: what must not change about it.
type Entity struct {
	tenant  int32
	version int32 // of the last event, where a column has the version
	number  uint32
	micros  int64 // the moment that its month column says
}

// New is a load for that many tenants, fewer where the tenant column has no room for their names. chance tells loads apart that
// begin in the same second. The error says which column is too short.
func New(t *event.Table, tenants int, begun time.Time, chance uint64) (*Load, error) {
	refuse := func(what, why string) (*Load, error) {
		return nil, &fault.Error{Code: "SL9031", Class: fault.Usage, What: "table " + t.Name + ": " + what, Why: why, Do: "choose another with --table"}
	}
	if t.Broadcast() {
		return refuse("it has no tenant", "a load is of tenants")
	}
	if c := &t.Columns[t.Tenant]; c.Type.Kind == event.String {
		if c.Type.Length < 2 {
			return refuse(fmt.Sprintf("column %s is %s: too short for the name of a tenant that no service has", c.Name, c.Type), "")
		}
		if room := math.Pow(float64(len(digits)), float64(c.Type.Length-1)); float64(tenants) > room {
			tenants = int(room)
		}
	}
	if c := &t.Columns[t.ID]; c.Type.Kind == event.String && c.Type.Length < 4 {
		return refuse(fmt.Sprintf("column %s is %s: too short for the ids of a load", c.Name, c.Type), "")
	}
	return &Load{table: t, tenants: tenants, run: uint64(begun.Unix())<<10 | chance%1024}, nil
}

// Tenants is how many there are.
func (l *Load) Tenants() int { return l.tenants }

// TenantText is the canonical text of a tenant, counted from 0, the largest.
func (l *Load) TenantText(tenant int) string {
	return l.text(l.table.Tenant, &Entity{tenant: int32(tenant)})
}

// LargestShare is the largest tenant's share of the events.
func (l *Load) LargestShare() float64 {
	var sum float64
	for i := range l.tenants {
		sum += math.Pow(float64(i+1), -skew)
	}
	return 1 / sum
}

// Drawer draws entities and values; it is one goroutine's.
type Drawer struct {
	load   *Load
	random *rand.Rand
	zipf   *rand.Zipf
}

// Drawer makes one, whose draws follow from the seed.
func (l *Load) Drawer(seed1, seed2 uint64) *Drawer {
	r := rand.New(rand.NewPCG(seed1, seed2))
	return &Drawer{l, r, rand.NewZipf(r, skew, 1, uint64(l.tenants-1))}
}

// Entity is a new entity of a tenant drawn by its size; number is its own in this run, below EntitiesMax.
func (d *Drawer) Entity(number uint32, now time.Time) Entity {
	return Entity{tenant: int32(d.zipf.Uint64()), number: number, micros: now.UnixMicro()}
}

// Index draws a number below n.
func (d *Drawer) Index(n int) int { return d.random.IntN(n) }

// Upsert is an event that gives the entity values drawn anew.
func (d *Drawer) Upsert(e *Entity, now time.Time) (event.Event, error) {
	return d.event(e, event.Upsert, now)
}

// Delete is the event that the entity is gone.
func (d *Drawer) Delete(e *Entity, now time.Time) (event.Event, error) {
	return d.event(e, event.Delete, now)
}

func (d *Drawer) event(e *Entity, op event.Op, now time.Time) (event.Event, error) {
	l, t := d.load, d.load.table
	e.version++
	values := make([]event.Value, len(t.Columns))
	for col := range values {
		if op == event.Upsert || t.Keeps(col) {
			values[col] = d.value(col, e)
		}
	}
	month, err := t.MonthOf(monthValue(t, values))
	if err != nil {
		return event.Event{}, err
	}
	body, err := t.AppendRow(nil, values, op)
	if err != nil {
		return event.Event{}, err
	}
	ev := event.Event{ID: event.NewID(), Table: t.Name, Tenant: l.text(t.Tenant, e), EntityID: l.text(t.ID, e), Op: op, Month: month,
		Time: now.UTC().Truncate(time.Microsecond), Body: body}
	if t.Spread != event.None {
		ev.Spread = l.text(t.Spread, e)
	}
	if t.Version != event.None {
		ev.Version = int64(l.version(e))
	}
	return ev, nil
}

// version is the entity's where a column has it: it begins above those of every load that began before, whose entities may have
// had the same id.
func (l *Load) version(e *Entity) uint64 { return l.run>>10 + uint64(e.version) }

func monthValue(t *event.Table, values []event.Value) event.Value {
	if t.Month == event.None {
		return event.Value{}
	}
	return values[t.Month]
}

func (l *Load) text(col int, e *Entity) string {
	return string(l.table.CanonicalText(nil, col, l.fixed(col, e)))
}

// fixed is the value of a column that names the entity: tenant, id, month or spread. It follows from the entity alone.
func (l *Load) fixed(col int, e *Entity) event.Value {
	t := l.table
	c := &t.Columns[col]
	switch {
	case col == t.Month && t.SnowflakeEpoch != nil: // it may be the id, too
		n := uint64(time.UnixMicro(e.micros).Sub(*t.SnowflakeEpoch).Milliseconds())<<22 | uint64(e.number)
		return number(c, n)
	case col == t.Tenant:
		return tenantValue(c, e)
	case col == t.Month:
		if c.Type.Kind == event.Date {
			return event.Value{Int: e.micros / dayMicros}
		}
		return event.Value{Int: e.micros}
	}
	return l.idValue(c, e) // id and spread
}

// tenantValue is a name that begins with ~, or one of the greatest integers.
func tenantValue(c *event.Column, e *Entity) event.Value {
	switch c.Type.Kind {
	case event.Int32:
		return number(c, math.MaxInt32-uint64(e.tenant))
	case event.Int64, event.Uint64:
		return number(c, math.MaxInt64-uint64(e.tenant))
	}
	return event.Value{Bytes: append([]byte("~"), base62(uint64(e.tenant), 0)...)}
}

func (l *Load) idValue(c *event.Column, e *Entity) event.Value {
	switch c.Type.Kind {
	case event.Int32:
		return number(c, l.run%1024*EntitiesMax+uint64(e.number))
	case event.Int64, event.Uint64:
		return number(c, l.run*EntitiesMax+uint64(e.number))
	}
	if c.Type.Length < 12 { // no room for the run: somewhere in what there is
		room := uint64(math.Pow(float64(len(digits)), float64(c.Type.Length))) - EntitiesMax
		return event.Value{Bytes: base62(l.run*0x9E3779B97F4A7C15%room+uint64(e.number), c.Type.Length)}
	}
	return event.Value{Bytes: base62(l.run*EntitiesMax+uint64(e.number), 0)}
}
