package event

import (
	"strconv"

	"github.com/slotline/slotline/fault"
)

// Reasons of a DataError: short and stable, dead letters are listed under them.
const (
	ReasonMalformed    = "malformed"     // not JSON, or not an object
	ReasonUnknownField = "unknown_field" // a field that the table, or a delete, does not have
	ReasonDuplicate    = "duplicate"     // a field or a JSON key that comes twice
	ReasonMissing      = "missing"       // a field that must not be missing
	ReasonNull         = "null"          // null in a column that is not nullable
	ReasonWrongType    = "wrong_type"    // JSON of another type, or a number or text of another form
	ReasonOutOfRange   = "out_of_range"
	ReasonTooLong      = "too_long"
	ReasonEmpty        = "empty"      // a tenant or id without any byte
	ReasonBadText      = "bad_text"   // invalid UTF-8, a lone surrogate, a NUL in a tenant
	ReasonBadRecord    = "bad_record" // key or headers of the record are not as docs/formats.md says
	ReasonMismatch     = "mismatch"   // the body disagrees with the record's key or version

	ReasonUnknownTable   = "unknown_table"   // the file has no such table
	ReasonWrongPartition = "wrong_partition" // the tenant's slot, or a broadcast table, is of another one

	ReasonCheckConstraint = "check_constraint"  // a server's CHECK
	ReasonRefusedByServer = "refused_by_server" // a server refused the row, and says no more
	ReasonRefused         = "refused"
)

// DataError is one event that its table cannot hold, or a record that is not one event. Its class is fault.Data.
type DataError struct {
	Code   string // SLnnnn
	Table  string // "" when it is not known
	Column string // "" when it concerns no single column
	Reason string // one of the Reasons above
	Detail string // for a person: what was found and what is allowed; quotes at most a few dozen bytes
}

func (e *DataError) Error() string { return e.what() + " [" + e.Code + "]" }

func (e *DataError) what() string {
	where := "record"
	if e.Table != "" {
		where = "table " + e.Table
	}
	if e.Column != "" {
		where += ", column " + e.Column
	}
	return where + ": " + e.Detail
}

// Unwrap gives the error its class and code in package fault's terms.
func (e *DataError) Unwrap() error {
	return &fault.Error{Code: e.Code, Class: fault.Data, What: e.what()}
}

// quoteBounded quotes what came from outside, cut so that one bad value cannot flood a log.
func quoteBounded[S string | []byte](text S) string {
	const quotedBytesMax = 48
	if len(text) <= quotedBytesMax {
		return strconv.Quote(string(text))
	}
	return strconv.Quote(string(text[:quotedBytesMax])) + "..."
}
