package event

import (
	"time"

	"github.com/slotline/slotline/partitioner"
)

// Op is what an event does to its entity.
type Op uint8

const (
	Upsert Op = 1
	Delete Op = 2
)

// ID is an event's random 128-bit identity, fixed at append.
type ID [16]byte

// VersionMax is the greatest version: versions are positive and below 2^62, so that version*2+1 fits an int64.
const VersionMax = 1<<62 - 1

// OutboxPosition says which outbox row an event came from.
type OutboxPosition struct {
	Generation int64
	Lane       int
	ID         uint64
}

// Event is a full image of an entity, or its deletion.
type Event struct {
	ID          ID
	Table       string
	Tenant      string // empty for a broadcast table
	EntityID    string // canonical text of the id column
	Op          Op
	Version     int64             // 1..VersionMax; 0 in the outbox where the version is automatic
	Month       partitioner.Month // 0 for a table without months; not in the record's headers: the body holds it
	Spread      string            // canonical text of the spread column; "" without one
	Time        time.Time         // of the append, UTC, microseconds
	LayoutEpoch int64             // of the layout that chose the partition
	Outbox      OutboxPosition
	TraceParent string // W3C traceparent or ""
	Body        []byte // row image, JSON; for a delete: tenant, id, month and spread fields only
}
