package event

import (
	"strconv"
)

// RecordFormat is the format number of the record and the row image that this package writes; it refuses greater ones.
const RecordFormat = 1

// Header names in the order in which a record has them.
const (
	headerSpecVersion = "ce_specversion"
	headerID          = "ce_id"
	headerSource      = "ce_source"
	headerType        = "ce_type"
	headerTime        = "ce_time"
	headerSubject     = "ce_subject"
	headerContentType = "content-type"
	headerVersion     = "ce_version"
	headerOp          = "ce_op"
	headerLayoutEpoch = "ce_layoutepoch"
	headerOutbox      = "ce_outbox"
	headerTraceParent = "traceparent" // the only one that may be missing
)

// headerNames is the order; headers of a record of ours are recognized by their place first.
var headerNames = [...]string{headerSpecVersion, headerID, headerSource, headerType, headerTime, headerSubject,
	headerContentType, headerVersion, headerOp, headerLayoutEpoch, headerOutbox, headerTraceParent}

// headersFixed is the number of headers that every record has.
const headersFixed = len(headerNames) - 1

const (
	specVersion       = "1.0"
	sourcePrefix      = "slotline/"
	contentTypePrefix = "application/json; format="
	contentType       = contentTypePrefix + "1"
)

// opNames are the texts of ce_op, and the endings of ce_type.
var opNames = [...]string{Upsert: "upsert", Delete: "delete"}

// String is "upsert" or "delete".
func (op Op) String() string {
	if op == Upsert || op == Delete {
		return opNames[op]
	}
	return "Op(" + strconv.Itoa(int(op)) + ")"
}

// Source is the ce_source of a line's events.
func Source(line string) string { return sourcePrefix + line }

// AppendRecord appends the event's key and header values to dst and returns it with the Kafka record, whose key and
// headers are slices of it; the record's value is the event's body itself. source is Source(line). The event must be
// whole: published events have a version, an id and a time.
func (e *Event) AppendRecord(dst []byte, source string) (buf []byte, rec Record) {
	buf = e.AppendRecordTo(dst, source, &rec)
	return buf, rec
}

// AppendRecordTo is AppendRecord into rec, whose Headers are reused.
func (e *Event) AppendRecordTo(dst []byte, source string, rec *Record) (buf []byte) {
	rec.Headers = rec.Headers[:0]
	mark := len(dst)
	cut := func() []byte { // what was appended since the last cut
		part := dst[mark:len(dst):len(dst)]
		mark = len(dst)
		return part
	}
	header := func(name string) { rec.Headers = append(rec.Headers, Header{name, cut()}) }
	if cap(rec.Headers) == 0 {
		rec.Headers = make([]Header, 0, len(headerNames))
	}

	dst = append(dst, e.Table...)
	dst = append(append(dst, 0), e.Tenant...)
	dst = append(append(dst, 0), e.EntityID...)
	rec.Key = cut()
	rec.Value = e.Body

	dst = append(dst, specVersion...)
	header(headerSpecVersion)
	dst = e.ID.AppendText(dst)
	header(headerID)
	dst = append(dst, source...)
	header(headerSource)
	dst = append(append(append(dst, e.Table...), '.'), e.Op.String()...)
	header(headerType)
	dst = AppendDatetime(dst, e.Time.UnixMicro())
	header(headerTime)
	dst = append(append(dst, e.Table...), '/')
	dst = append(append(dst, e.Tenant...), '/')
	dst = append(dst, e.EntityID...)
	header(headerSubject)
	dst = append(dst, contentType...)
	header(headerContentType)
	dst = strconv.AppendInt(dst, e.Version, 10)
	header(headerVersion)
	dst = append(dst, e.Op.String()...)
	header(headerOp)
	dst = strconv.AppendInt(dst, e.LayoutEpoch, 10)
	header(headerLayoutEpoch)
	dst = e.Outbox.AppendText(dst)
	header(headerOutbox)
	if e.TraceParent != "" {
		dst = append(dst, e.TraceParent...)
		header(headerTraceParent)
	}
	return dst
}

// AppendText appends "generation.lane/id", the lane with at least two digits.
func (o OutboxPosition) AppendText(dst []byte) []byte {
	dst = append(strconv.AppendInt(dst, o.Generation, 10), '.')
	if o.Lane < 10 {
		dst = append(dst, '0')
	}
	dst = append(strconv.AppendInt(dst, int64(o.Lane), 10), '/')
	return strconv.AppendUint(dst, o.ID, 10)
}

// String is "1.00/42": generation, lane, id.
func (o OutboxPosition) String() string { return string(o.AppendText(nil)) }
