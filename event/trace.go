package event

// The W3C trace context of an event: https://www.w3.org/TR/trace-context/, version 00. slotline carries it and looks at
// no more of it than the form.

// traceParentBytes is 00-<32 hex digits>-<16 hex digits>-<2 hex digits>.
const traceParentBytes = 55

// IsTraceParent says that a text is a traceparent: of version 00, in lower case, neither of its ids all zeros.
func IsTraceParent[S string | []byte](s S) bool {
	if len(s) != traceParentBytes || s[0] != '0' || s[1] != '0' {
		return false
	}
	var trace, span byte
	for i := 2; i < traceParentBytes; i++ {
		switch n := nibble(s[i]); {
		case i == 2 || i == 35 || i == 52:
			if s[i] != '-' {
				return false
			}
		case n > 0xf:
			return false
		case i < 35:
			trace |= n
		case i < 52:
			span |= n
		}
	}
	return trace != 0 && span != 0
}

// Sampled says that a text is a traceparent whose trace is recorded.
func Sampled[S string | []byte](s S) bool {
	return IsTraceParent(s) && nibble(s[traceParentBytes-1])&1 == 1
}

// TraceParentOf is the traceparent header of a record that AppendRecord made, its last; nil when there is none.
func TraceParentOf(rec *Record) []byte {
	if rec.Packed != nil {
		return packedTrace(rec.Packed)
	}
	if n := len(rec.Headers); n > 0 && rec.Headers[n-1].Key == headerTraceParent {
		return rec.Headers[n-1].Value
	}
	return nil
}

// TracesMax bounds a list of AppendTrace: a span of OpenTelemetry keeps 128 links unless told otherwise.
const TracesMax = 128

// AppendTrace adds the record's traceparent to a list of them without repeats, if its trace is recorded and the list is
// not full. What handles many events at once links to the traces that emitted them: it is nobody's child.
func AppendTrace(list []string, rec *Record) []string {
	if len(list) >= TracesMax {
		return list
	}
	trace := TraceParentOf(rec)
	if !Sampled(trace) {
		return list
	}
	for _, have := range list {
		if have == string(trace) {
			return list
		}
	}
	return append(list, string(trace))
}
