package event

import "time"

// View is a parsed record. Its slices point into the record.
type View struct {
	ID          ID
	Table       []byte
	Tenant      []byte
	EntityID    []byte
	Op          Op
	Version     int64
	Time        time.Time // UTC, microseconds
	LayoutEpoch int64
	Outbox      OutboxPosition
	TraceParent []byte
	Body        []byte
}

// AppendRecord appends the event's key and header values to dst and returns it with the Kafka record, whose slices
// point into it. source is "slotline/<line>".
func (e *Event) AppendRecord(dst []byte, source string) (buf []byte, rec Record) { panic("being built") }

// AppendRecordTo is AppendRecord with rec.Headers reused.
func (e *Event) AppendRecordTo(dst []byte, source string, rec *Record) (buf []byte) { panic("being built") }

// ParseView reads a record without copying or allocating.
func ParseView(rec *Record, v *View) error { panic("being built") }

// ParseRecord reads a record into an event that does not outlive rec.Value alone. Month and Spread are the body's.
func ParseRecord(rec *Record, dst *Event) error { panic("being built") }
