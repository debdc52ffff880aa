package event

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/slotline/slotline/fault"
)

// codeRecord is the code of a Kafka record that is not an event of this format.
const codeRecord = "SL2101"

// View is a parsed record. Its slices point into the record.
type View struct {
	ID          ID
	Table       []byte
	Tenant      []byte // empty for a broadcast table
	EntityID    []byte
	Op          Op
	Version     int64     // 1..VersionMax
	Time        time.Time // UTC, microseconds
	LayoutEpoch int64     // at least 1
	Outbox      OutboxPosition
	TraceParent []byte // nil when there is none
	Body        []byte
}

// ParseView reads a record without copying or allocating. Headers may come in any order, and unknown ones are passed
// over; a known one that is missing, comes twice or disagrees with the key is refused. The error is a *DataError, or
// a *fault.Error of class Fatal for a record of a newer format.
func ParseView(rec Record, v *View) error {
	*v = View{Body: rec.Value}
	if rec.Packed != nil {
		switch {
		case !v.unpack(rec.Key, rec.Packed):
			return recordError("its packed headers are not of its key")
		case rec.Value == nil:
			return recordError(noValue)
		}
		return nil
	}
	var h [len(headerNames)][]byte
	if err := collectHeaders(rec.Headers, &h); err != nil {
		return err
	}
	// Before anything else: what a newer format changes is not known here.
	if err := checkFormat(h[6]); err != nil {
		return err
	}
	if !splitKey(rec.Key, v) {
		return recordError("the key " + quoteBounded(rec.Key) + " is not table, tenant and id with a NUL between")
	}
	if rec.Value == nil {
		return recordError(noValue)
	}
	return v.parseHeaders(&h)
}

const noValue = "the record has no value: a delete is an event with a body too"

func recordError(detail string) error {
	return &DataError{Code: codeRecord, Reason: ReasonBadRecord, Detail: detail}
}

func headerError(name string, value []byte, wanted string) error {
	return recordError("header " + name + " is " + quoteBounded(value) + ", wanted " + wanted)
}

// collectHeaders sorts the known headers by their place in headerNames.
func collectHeaders(headers []Header, h *[len(headerNames)][]byte) error {
	for i := range headers {
		at := headerPlace(headers[i].Key, i)
		if at < 0 {
			continue
		}
		if h[at] != nil {
			return recordError("header " + headerNames[at] + " comes twice")
		}
		if h[at] = headers[i].Value; h[at] == nil {
			h[at] = []byte{} // there, and empty
		}
	}
	for at, value := range h[:headersFixed] {
		if value == nil {
			return recordError("header " + headerNames[at] + " is missing")
		}
	}
	return nil
}

// headerPlace is the place in headerNames of the header that comes i-th in a record; -1 when it is none of ours.
func headerPlace(name string, i int) int {
	if i < len(headerNames) && name == headerNames[i] {
		return i
	}
	for at := range headerNames {
		if name == headerNames[at] {
			return at
		}
	}
	return -1
}

// checkFormat tells a newer format, which is no fault of the event, from something else altogether.
func checkFormat(value []byte) error {
	if string(value) == contentType {
		return nil
	}
	number, ok := bytes.CutPrefix(value, []byte(contentTypePrefix))
	if format, whole := parseDecimal(number); ok && whole && format > RecordFormat {
		return &fault.Error{Code: "SL2102", Class: fault.Fatal,
			What: "the record is of format " + strconv.FormatInt(format, 10) + ", this binary reads up to " + strconv.Itoa(RecordFormat),
			Why:  "a newer slotline wrote it; going past it would lose the event",
			Do:   "upgrade this process to the release that the relay runs"}
	}
	return headerError(headerContentType, value, contentType)
}

// splitKey splits at the first two NULs: table and tenant contain none.
func splitKey(key []byte, v *View) bool {
	first := bytes.IndexByte(key, 0)
	if first < 1 {
		return false
	}
	second := bytes.IndexByte(key[first+1:], 0)
	if second < 0 {
		return false
	}
	v.Table, v.Tenant, v.EntityID = key[:first], key[first+1:first+1+second], key[first+second+2:]
	return len(v.EntityID) > 0 && len(v.EntityID) <= EntityIDBytesMax && len(v.Tenant) <= TenantBytesMax &&
		len(v.Table) <= TableNameBytesMax && utf8.Valid(key)
}

func (v *View) parseHeaders(h *[len(headerNames)][]byte) error {
	var ok bool
	switch string(h[8]) {
	case opNames[Upsert]:
		v.Op = Upsert
	case opNames[Delete]:
		v.Op = Delete
	default:
		return headerError(headerOp, h[8], "upsert or delete")
	}
	if string(h[0]) != specVersion {
		return headerError(headerSpecVersion, h[0], specVersion)
	}
	if v.ID, ok = parseID(h[1]); !ok {
		return headerError(headerID, h[1], "a UUID of 36 bytes")
	}
	if !bytes.HasPrefix(h[2], []byte(sourcePrefix)) || len(h[2]) == len(sourcePrefix) {
		return headerError(headerSource, h[2], sourcePrefix+" and the line's name")
	}
	if !v.isType(h[3]) {
		return headerError(headerType, h[3], string(v.Table)+"."+v.Op.String())
	}
	if !v.isSubject(h[5]) {
		return headerError(headerSubject, h[5], "the key's table/tenant/id")
	}
	micros, ok := parseDatetime(h[4])
	if !ok {
		return headerError(headerTime, h[4], "2026-11-30T23:59:59.123456Z")
	}
	v.Time = time.UnixMicro(micros).UTC()
	if v.Version, ok = parseDecimal(h[7]); !ok || v.Version < 1 || v.Version > VersionMax {
		return headerError(headerVersion, h[7], "1 to 2^62-1")
	}
	if v.LayoutEpoch, ok = parseDecimal(h[9]); !ok || v.LayoutEpoch < 1 {
		return headerError(headerLayoutEpoch, h[9], "at least 1")
	}
	if !parseOutbox(h[10], &v.Outbox) {
		return headerError(headerOutbox, h[10], "generation.lane/id, as 1.00/42")
	}
	v.TraceParent = h[11]
	return nil
}

// isType reports whether b is "table.op", and isSubject whether it is "table/tenant/id".
func (v *View) isType(b []byte) bool {
	return len(b) > len(v.Table) && b[len(v.Table)] == '.' && bytes.HasPrefix(b, v.Table) &&
		string(b[len(v.Table)+1:]) == opNames[v.Op]
}

func (v *View) isSubject(b []byte) bool {
	for _, part := range [2][]byte{v.Table, v.Tenant} {
		if len(b) <= len(part) || !bytes.HasPrefix(b, part) || b[len(part)] != '/' {
			return false
		}
		b = b[len(part)+1:]
	}
	return bytes.Equal(b, v.EntityID)
}

// parseOutbox reads "generation.lane/id".
func parseOutbox(b []byte, o *OutboxPosition) bool {
	generation, rest, ok := bytes.Cut(b, []byte{'.'})
	lane, id, ok2 := bytes.Cut(rest, []byte{'/'})
	if !ok || !ok2 || len(lane) < 2 {
		return false
	}
	if len(lane) == 2 && lane[0] == '0' {
		lane = lane[1:]
	}
	var n int64
	if o.Generation, ok = parseDecimal(generation); !ok {
		return false
	}
	if n, ok = parseDecimal(lane); !ok || n > math.MaxInt32 {
		return false
	}
	o.Lane = int(n)
	n, ok = parseDecimal(id)
	o.ID = uint64(n)
	return ok
}

// parseDecimal reads a number below 2^63 as strconv.FormatInt writes it.
func parseDecimal(b []byte) (n int64, ok bool) {
	const digitsMax = 19
	if len(b) == 0 || len(b) > digitsMax || b[0] == '0' && len(b) > 1 {
		return 0, false
	}
	var u uint64
	for _, c := range b {
		d := c - '0'
		if d > 9 {
			return 0, false
		}
		u = u*10 + uint64(d)
	}
	return int64(u), u <= math.MaxInt64
}

// ParseRecord reads a record into an event whose texts are its own; Body is the record's value. Month and Spread are
// in the body only and stay empty.
func ParseRecord(rec Record, dst *Event) error {
	var v View
	if err := ParseView(rec, &v); err != nil {
		return err
	}
	key := string(rec.Key)
	table, rest, _ := strings.Cut(key, "\x00")
	tenant, id, _ := strings.Cut(rest, "\x00")
	*dst = Event{ID: v.ID, Table: table, Tenant: tenant, EntityID: id, Op: v.Op, Version: v.Version, Time: v.Time,
		LayoutEpoch: v.LayoutEpoch, Outbox: v.Outbox, TraceParent: string(v.TraceParent), Body: v.Body}
	return nil
}
